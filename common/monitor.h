/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sees to it that no mapping disappears unnoticed, by userfaultfd: munmap, mremap, brk,
 * MADV_DONTNEED and the like on a watched range stop until the event was read.  Needs no
 * privilege; no page fault is ever handled (write-protect mode, nothing protected).  Works for
 * private anonymous, shared anonymous and huge page memory, not for files.
 */
#ifndef RME_MONITOR_H
#define RME_MONITOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rme_monitor;

/*
 * `gone` is called with *lock held by the monitor's own thread, for memory that is not what it
 * was any more.  It must not allocate, free, unmap, or take a lock that someone holds while
 * doing so: the thread that unmaps waits for it.  For the same reason nobody may allocate or
 * free while holding *lock. -ENOSYS, -EPERM …: this system has no such thing for us.
 */
int rme_monitor_new(pthread_mutex_t *lock,
                    void (*gone)(void *arg, uintptr_t start, uintptr_t end), void *arg,
                    struct rme_monitor **out);

/* Stops watching.  NULL is allowed.  *lock is not held. */
void rme_monitor_free(struct rme_monitor *monitor);

/*
 * Watches whole pages, and the rest of a huge page that the range ends in: `gone` may be called
 * for that, too, and also after the range was given up.  A negative errno: that memory cannot be
 * watched.
 */
int rme_monitor_watch(struct rme_monitor *monitor, uintptr_t start, uintptr_t end);
void rme_monitor_unwatch(struct rme_monitor *monitor, uintptr_t start, uintptr_t end);

/*
 * With *lock held: true when `gone` has been called for every change that began before this
 * call.  (The event of an unmap is sent after the range is free for others; the kernel tells
 * that one is under way.)  False: trust no range now.
 */
bool rme_monitor_settled(struct rme_monitor *monitor);

#endif
