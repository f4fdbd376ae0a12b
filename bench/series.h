/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Series of measurements: each is one job over one transport, done once in every round.  The
 * rounds of several series are interleaved (A B, B A, A B …), so that a disturbance of the
 * machine hits all of them; what counts is the median.
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
    const char *name; /* of the test: "lat" … */
    enum side side;
    struct job job;
    enum unit unit;
    bool first_of_group; /* a new line is begun before it; ratios are to the first of a group */
    /* results */
    unsigned rounds;
    double value[MAX_ROUNDS];
    double client_cpu[MAX_ROUNDS], server_cpu[MAX_ROUNDS]; /* cores in use */
    uint64_t bad; /* messages with wrong contents in all rounds */
};

/* Does `rounds` rounds of all series.  0, or -1 with one line in `why`. */
int series_run(struct series *series, unsigned count, unsigned rounds, struct workers *workers,
               char *why);

double series_median(const double *value, unsigned count);

/* Prints them as a table, or as the objects of a JSON array, without its brackets. */
void series_print(FILE *out, const struct series *series, unsigned count);
void series_print_json(FILE *out, const struct series *series, unsigned count);

#endif
