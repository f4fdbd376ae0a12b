/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Times of single messages, counted in classes that are 1/64 of their time wide, so that any
 * number of them takes the same memory. One thread at a time.
 */
#ifndef BENCH_LATENCY_H
#define BENCH_LATENCY_H

#include <stdint.h>

#define LATENCY_CLASSES (30 * 64) /* up to 2^35 ns; longer times are in the last one */

struct latency {
    uint64_t last; /* clock_ns() */
    uint32_t count[LATENCY_CLASSES];
};

/* Clears all counts; the time of the next message begins now. */
void latency_begin(struct latency *latency);

/* Counts the time since latency_begin() or the last call. */
void latency_take(struct latency *latency);

/* Counts a time in ns. */
void latency_count(struct latency *latency, uint64_t ns);

void latency_add(struct latency *sum, const struct latency *one);

/* Returns the time in ns within which `share` (0 to 1) of the messages are; 0 without any. */
double latency_percentile(const struct latency *latency, double share);

#endif
