/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A set of deadlines, ordered by time.  The engine reads the earliest one before sleeping. */
#ifndef RME_TIMER_H
#define RME_TIMER_H

#include "base/itree.h"
#include "rme.h"

/* A member of objects with a deadline; zero-initialised. */
struct rme_timer {
    struct rme_inode node; /* start: ms of rme_now(); end: number of the setting, 0: not set */
};

struct rme_timers {
    struct rme_itree tree;
    uint64_t settings; /* number so far: timers of one ms expire in the order of setting */
};

static inline bool rme_timer_is_set(const struct rme_timer *timer)
{
    return timer->node.end != 0;
}

/* Sets or changes a timer. */
RME_API void rme_timer_set(struct rme_timers *timers, struct rme_timer *timer, uint64_t when);
RME_API void rme_timer_stop(struct rme_timers *timers, struct rme_timer *timer);

/* Stops and returns the earliest timer if it is due at `now`, else NULL. */
RME_API struct rme_timer *rme_timers_due(struct rme_timers *timers, uint64_t now);
/* Returns the earliest timer; NULL: none. */
struct rme_timer *rme_timers_first(const struct rme_timers *timers);
/* Returns when the earliest timer is due; UINT64_MAX: never. */
RME_API uint64_t rme_timers_next(const struct rme_timers *timers);

/* Return a monotonic time in milliseconds and in nanoseconds. */
RME_API uint64_t rme_now(void);
uint64_t rme_now_ns(void);

#endif
