/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Client processes. Each is a child with its own connections to the servers, like the clients
 * of a file system. The parent distributes jobs, starts them at the same time, and adds up the
 * results. The parent never opens a transport, and can therefore fork.
 */
#ifndef BENCH_WORKERS_H
#define BENCH_WORKERS_H

#include "bench/transport.h"

enum side { SIDE_BMI, SIDE_TCP, SIDES };

struct workers_config {
    unsigned clients;
    char *const *servers[SIDES]; /* addresses of each side */
    unsigned count[SIDES];
    const char *options; /* for BMI; may be NULL */
};

struct workers;

/* Results: 0, or -1 with one line in `why` (WHY_SIZE bytes). After a failure only
 * workers_stop() is permitted. */
int workers_start(const struct workers_config *config, struct workers **out, char *why);
void workers_stop(struct workers *workers);

/* Runs the job in all clients at the same time; *total is the sum (first start, last end,
 * processor time of all). */
int workers_run(struct workers *workers, enum side side, const struct job *job,
                struct outcome *total, char *why);

/* Gets the counters of a server through the first client, or the first client's own (server =
 * -1), as lines of text. */
int workers_counters(struct workers *workers, int server, char *text, size_t size, char *why);

#endif
