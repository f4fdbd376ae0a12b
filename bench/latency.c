/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Times of single messages; see latency.h. */
#include "bench/latency.h"

#include <string.h>
#include "bench/job.h"

/* A time below 128 is its own class; of longer ones the 7 leading bits select the class. */
static unsigned class_of(uint64_t ns)
{
    unsigned shift = ns < 128 ? 0 : 57 - (unsigned)__builtin_clzll(ns);
    unsigned class = 64 * shift + (unsigned)(ns >> shift);

    return class < LATENCY_CLASSES ? class : LATENCY_CLASSES - 1;
}

/* Returns the middle of a class, in ns. */
static double middle_of(unsigned class)
{
    unsigned shift = class < 128 ? 0 : class / 64 - 1;
    uint64_t first = (uint64_t)(class - 64 * shift) << shift;

    return (double)first + (double)((UINT64_C(1) << shift) - 1) / 2;
}

void latency_begin(struct latency *latency)
{
    memset(latency->count, 0, sizeof latency->count);
    latency->last = clock_ns();
}

void latency_take(struct latency *latency)
{
    uint64_t now = clock_ns();

    latency_count(latency, now - latency->last);
    latency->last = now;
}

void latency_count(struct latency *latency, uint64_t ns)
{
    latency->count[class_of(ns)]++;
}

void latency_add(struct latency *sum, const struct latency *one)
{
    for (unsigned i = 0; i < LATENCY_CLASSES; i++)
        sum->count[i] += one->count[i];
}

double latency_percentile(const struct latency *latency, double share)
{
    uint64_t all = 0, passed = 0, rank;

    for (unsigned i = 0; i < LATENCY_CLASSES; i++)
        all += latency->count[i];
    rank = (uint64_t)(share * (double)all);
    if (rank >= all && all)
        rank = all - 1;
    for (unsigned i = 0; i < LATENCY_CLASSES; i++) {
        passed += latency->count[i];
        if (passed > rank)
            return middle_of(i);
    }
    return 0;
}
