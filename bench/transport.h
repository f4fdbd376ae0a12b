/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How a client process runs jobs: over BMI (bmi_client.c) or over plain TCP sockets
 * (tcp_client.c). */
#ifndef BENCH_TRANSPORT_H
#define BENCH_TRANSPORT_H

#include "bench/job.h"

#define MAX_SERVERS 16
#define WHY_SIZE    1024

/* What a client process found out in the timed phase of a job. */
struct outcome {
    uint64_t start,
        end; /* clock_ns(): from the first post to the last byte known to have arrived */
    uint64_t messages; /* each way */
    uint64_t bytes;    /* payload, both ways */
    uint64_t bad;      /* messages with wrong contents, on both sides */
    uint64_t cpu;      /* processor time of this process in ns */
    uint64_t server_cpu_start[MAX_SERVERS], server_cpu_end[MAX_SERVERS]; /* 0 where not used */
};

/* Phase `number` of a transport's job: 0 warms up, 1 is timed.  0, or -1 with the reason. */
typedef int (*phase_fn)(void *state, uint64_t number, char *why);

/* Runs the timed phase; the outcome is its times and nothing else yet. */
int outcome_time(struct outcome *outcome, phase_fn phase, void *state, char *why);
/* Adds what one server did and said, and how many messages from it were bad. */
void outcome_add(struct outcome *outcome, const struct job *job, unsigned server,
                 const struct report *said, uint64_t bad);

/* Which of the servers take part: `count` of them from `first` on. */
struct part {
    unsigned first, count;
};

/*
 * All return 0, or -1 with one line in `why` (WHY_SIZE bytes) that names the server and the
 * cause.  After a failure only close is allowed.  prepare ends with the warm-up done, run does
 * the timed phase.  counters gives the engine's counters of a server, or of this process
 * (server -1), as lines of text.
 */
struct transport {
    const char *name;
    int (*open)(char *const *servers, unsigned count, const char *options, void **state,
                char *why);
    int (*prepare)(void *state, const struct job *job, struct part part, char *why);
    int (*run)(void *state, struct outcome *outcome, char *why);
    int (*counters)(void *state, int server, char *text, size_t size, char *why);
    void (*close)(void *state);
};

extern const struct transport bmi_transport, tcp_transport;

/* Of bmi_transport: an option that there is not is named on standard error. */
void bmi_tell_ignored(const void *state);

/* Of bmi_transport: what its first server counts, as Prometheus reads it. */
int bmi_metrics(void *state, char *text, size_t size, char *why);

#endif
