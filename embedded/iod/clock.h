/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* clock.h - monotonic time for timeouts and rates. */
#ifndef IOD_CLOCK_H
#define IOD_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns monotonic time in ms. */
static inline int64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns monotonic time in seconds. */
static inline double clock_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
