/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Time that only goes forward, for time-outs and rates. */
#ifndef IOD_CLOCK_H
#define IOD_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds since some fixed moment. */
static inline int64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The same in seconds. */
static inline double clock_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
