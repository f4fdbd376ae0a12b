/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <time.h>

#include "base/list.h"
#include "base/timer.h"

uint64_t rme_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t rme_now(void)
{
    return rme_now_ns() / 1000000;
}

void rme_timer_set(struct rme_timers *timers, struct rme_timer *timer, uint64_t when)
{
    rme_timer_stop(timers, timer);
    timer->node.start = when;
    timer->node.end = ++timers->settings;
    rme_itree_insert(&timers->tree, &timer->node);
}

void rme_timer_stop(struct rme_timers *timers, struct rme_timer *timer)
{
    if (rme_timer_is_set(timer))
        rme_itree_remove(&timers->tree, &timer->node);
    timer->node.end = 0;
}

struct rme_timer *rme_timers_first(const struct rme_timers *timers)
{
    struct rme_inode *node = rme_itree_overlap(&timers->tree, 0, UINT64_MAX);

    return node != NULL ? container_of(node, struct rme_timer, node) : NULL;
}

struct rme_timer *rme_timers_due(struct rme_timers *timers, uint64_t now)
{
    struct rme_timer *timer = rme_timers_first(timers);

    if (timer == NULL || timer->node.start > now)
        return NULL;
    rme_timer_stop(timers, timer);
    return timer;
}

uint64_t rme_timers_next(const struct rme_timers *timers)
{
    const struct rme_timer *timer = rme_timers_first(timers);

    return timer != NULL ? timer->node.start : UINT64_MAX;
}
