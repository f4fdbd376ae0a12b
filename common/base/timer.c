/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

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

int rme_timers_reserve(struct rme_timers *timers, uint32_t total)
{
    uint32_t room = timers->room == 0 ? 16 : timers->room;
    struct rme_timer **heap;

    while (room < total)
        room *= 2;
    if (room == timers->room)
        return 0;
    heap = realloc(timers->heap, room * sizeof(*heap));
    if (heap == NULL)
        return -ENOMEM;
    timers->heap = heap;
    timers->room = room;
    return 0;
}

void rme_timers_clear(struct rme_timers *timers)
{
    free(timers->heap);
    timers->heap = NULL;
    timers->count = 0;
    timers->room = 0;
}

static void put(struct rme_timers *timers, uint32_t at, struct rme_timer *timer)
{
    timers->heap[at] = timer;
    timer->place = at + 1;
}

/* Moves a timer from `at` to its place: up while it is earlier than its parent, then down. */
static void settle(struct rme_timers *timers, uint32_t at, struct rme_timer *timer)
{
    while (at > 0 && timer->when < timers->heap[(at - 1) / 2]->when) {
        put(timers, at, timers->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < timers->count &&
            timers->heap[child + 1]->when < timers->heap[child]->when)
            child++;
        if (child >= timers->count || timers->heap[child]->when >= timer->when)
            break;
        put(timers, at, timers->heap[child]);
        at = child;
    }
    put(timers, at, timer);
}

void rme_timer_set(struct rme_timers *timers, struct rme_timer *timer, uint64_t when)
{
    timer->when = when;
    if (timer->place == 0) {
        put(timers, timers->count, timer);
        timers->count++;
    }
    settle(timers, timer->place - 1, timer);
}

void rme_timer_stop(struct rme_timers *timers, struct rme_timer *timer)
{
    uint32_t at = timer->place - 1;
    struct rme_timer *last;

    if (timer->place == 0)
        return;
    timer->place = 0;
    last = timers->heap[--timers->count];
    if (last != timer)
        settle(timers, at, last);
}

struct rme_timer *rme_timers_due(struct rme_timers *timers, uint64_t now)
{
    struct rme_timer *timer;

    if (timers->count == 0 || timers->heap[0]->when > now)
        return NULL;
    timer = timers->heap[0];
    rme_timer_stop(timers, timer);
    return timer;
}

struct rme_timer *rme_timers_first(const struct rme_timers *timers)
{
    return timers->count == 0 ? NULL : timers->heap[0];
}

uint64_t rme_timers_next(const struct rme_timers *timers)
{
    return timers->count == 0 ? UINT64_MAX : timers->heap[0]->when;
}
