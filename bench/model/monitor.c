/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Takes the place of common/memory/monitor.c: this process unmaps no memory of messages, so
 * every cached registration is valid, whatever the kernel permits.
 */
#include "memory/monitor.h"

struct rme_monitor {
    pthread_mutex_t lock;
};

static struct rme_monitor only = {PTHREAD_MUTEX_INITIALIZER};

void rme_monitor_before_fork(void)
{
}

void rme_monitor_after_fork(void)
{
}

void rme_monitor_after_fork_in_child(void)
{
}

int rme_monitor_join(struct rme_watcher *watcher, struct rme_monitor **out,
                     struct rme_monitor_lacks *lacks)
{
    (void)watcher;
    *lacks = (struct rme_monitor_lacks){NULL, 0, NULL};
    *out = &only;
    return 0;
}

void rme_monitor_leave(struct rme_monitor *monitor, struct rme_watcher *watcher)
{
    (void)monitor;
    (void)watcher;
}

pthread_mutex_t *rme_monitor_lock(struct rme_monitor *monitor)
{
    return &monitor->lock;
}

int rme_monitor_watch(struct rme_monitor *monitor, struct rme_watch *watch)
{
    (void)monitor;
    watch->state = RME_WATCH_HELD;
    return 0;
}

void rme_monitor_drop(struct rme_monitor *monitor, struct rme_watch *watch)
{
    (void)monitor;
    watch->state = RME_WATCH_DROPPED;
}

void rme_monitor_unwatch(struct rme_monitor *monitor, struct rme_itree *dropped)
{
    (void)monitor;
    *dropped = (struct rme_itree){0};
}

bool rme_monitor_still(struct rme_monitor *monitor, const struct rme_watch *watch)
{
    (void)monitor;
    (void)watch;
    return true;
}
