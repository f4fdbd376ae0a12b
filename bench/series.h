/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Series of measurements: a job over a transport, run once per round. The rounds of several
 * series are interleaved (A B, B A, A B …), so that disturbances affect all of them; the result
 * is the median.
 */
#ifndef BENCH_SERIES_H
#define BENCH_SERIES_H

#include <stdio.h>
#include "bench/workers.h"

#define MAX_ROUNDS 1000

enum unit {
    UNIT_US,
    UNIT_MBS,
    UNIT_RATE
}; /* one-way microseconds, 10^6 bytes per second, messages per second */

struct series {
    const char *name; /* of the test, such as "lat" */
    enum side side;
    struct job job;
    enum unit unit;
    bool first_of_group; /* begins a group, printed after an empty line; ratios refer to it */
    /* results */
    unsigned rounds;
    double value[MAX_ROUNDS];
    double client_cpu[MAX_ROUNDS], server_cpu[MAX_ROUNDS]; /* cores in use */
    struct latency latency;                                /* of all rounds, there and back */
    uint64_t bad; /* messages with wrong contents in all rounds */
};

/* Runs `rounds` rounds of all series. Returns 0, or -1 with one line in `why`. */
int series_run(struct series *series, unsigned count, unsigned rounds, struct workers *workers,
               char *why);

double series_median(const double *value, unsigned count);

/* Print the series as a table, or as objects of a JSON array, without its brackets. */
void series_print(FILE *out, const struct series *series, unsigned count);
void series_print_json(FILE *out, const struct series *series, unsigned count);

#endif
