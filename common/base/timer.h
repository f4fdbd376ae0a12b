/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A heap of deadlines.  Nothing ticks: the engine asks for the earliest one before it
 * sleeps. */
#ifndef RME_TIMER_H
#define RME_TIMER_H

#include <stdint.h>

/* Kept inside what has a deadline; zeroed at first. */
struct rme_timer {
    uint64_t when;  /* ms of rme_now() */
    uint32_t place; /* index in the heap + 1; 0: not set */
};

struct rme_timers {
    struct rme_timer **heap;
    uint32_t count;
    uint32_t room;
};

/* Room for one more timer than there were calls; -ENOMEM.  Setting a timer then never fails. */
int rme_timers_reserve(struct rme_timers *timers, uint32_t total);
void rme_timers_clear(struct rme_timers *timers);

/* Sets it, whether or not it is set already. */
void rme_timer_set(struct rme_timers *timers, struct rme_timer *timer, uint64_t when);
void rme_timer_stop(struct rme_timers *timers, struct rme_timer *timer);

/* The earliest timer if it is due at `now`, stopped; else NULL. */
struct rme_timer *rme_timers_due(struct rme_timers *timers, uint64_t now);
/* The earliest, not stopped; NULL: none. */
struct rme_timer *rme_timers_first(const struct rme_timers *timers);
/* When the earliest is due; UINT64_MAX for never. */
uint64_t rme_timers_next(const struct rme_timers *timers);

/* Milliseconds, monotonic, and nanoseconds of the same clock. */
uint64_t rme_now(void);
uint64_t rme_now_ns(void);

#endif
