/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sees to it that no memory changes unnoticed.  munmap, mremap, brk, MADV_DONTNEED and the like
 * on a watched range stop until the event was read; what the kernel does not report is found
 * when the range is asked about (rme_monitor_still).  Needs no privilege; no page fault is ever
 * handled.  For private anonymous memory only: changes of any other come without an event.
 *
 * There is one for a process, shared by all its engines, because a range can be watched by one
 * userfaultfd only.  It begins with the first watcher and ends with the last.
 */
#ifndef RME_MONITOR_H
#define RME_MONITOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/itree.h"
#include "memory/uffd.h"

struct rme_monitor;

/*
 * Who is told of changes.  Filled in by its owner, who keeps it until rme_monitor_leave.
 *
 * `gone` is called with *lock held, by the monitor's own thread or from a call of the
 * watcher's, for memory that is not what it was any more.  It must not allocate, free, unmap,
 * call anything here but rme_monitor_drop, or take a lock that someone holds while doing so:
 * other threads that unmap may have to wait until it returns.  For the same reason nobody may
 * allocate or free while holding *lock.
 */
struct rme_watcher {
    pthread_mutex_t *lock;
    void (*gone)(void *arg, uintptr_t start, uintptr_t end);
    void *arg;
    struct rme_watcher *next; /* the rest is the monitor's */
    uint64_t told;            /* entries of its log */
    uint64_t batches;         /* that had begun to be read by then */
};

/* -ENOSYS, -EPERM …: this system has no such thing for us.  Any thread, no lock held. */
int rme_monitor_join(struct rme_watcher *watcher, struct rme_monitor **out);

/* `gone` is not called after that.  With the last watcher all watching ends, for forked
 * children, too.  NULL is allowed.  No lock held. */
void rme_monitor_leave(struct rme_monitor *monitor, struct rme_watcher *watcher);

/* Bytes that somebody relies on: a part of a watch.  start and end, whole pages, are its
 * owner's. */
struct rme_claim {
    struct rme_inode node; /* the monitor's, but for start and end */
    struct rme_claim *next;
};

/*
 * What one owner wants watched: whole pages, of which it relies on the claims.  Owned by the
 * caller, and not moved or freed between rme_monitor_watch and rme_monitor_unwatch.
 */
struct rme_watch {
    uintptr_t start, end;
    struct rme_claim *claims;
    enum { RME_WATCH_NEW, RME_WATCH_HELD, RME_WATCH_DROPPED } state; /* the monitor's */
};

/*
 * Watches all of the range that nobody claims yet, and the rest of a huge page that the range
 * ends in: `gone` may be called for that, too.  Whether it succeeded rme_monitor_still tells.
 * No lock held.
 */
void rme_monitor_watch(struct rme_monitor *monitor, struct rme_watch *watch);

/* Nobody relies on these claims any more.  For `gone`, and for who found that the memory is
 * another.  The watch is ended later, by rme_monitor_unwatch.  With the watcher's lock held. */
void rme_monitor_drop(struct rme_monitor *monitor, struct rme_watch *watch);

/* Ends the watches, which are in the order of their addresses, on what nobody else claims, and
 * those that touch at once.  No lock held. */
void rme_monitor_unwatch(struct rme_monitor *monitor, struct rme_watch *const *watch,
                         unsigned count);

/* With the watcher's lock held, before it relies on anything: calls `gone` for every change
 * that was complete before this call.  One atomic load when there was none. */
void rme_monitor_catch_up(struct rme_monitor *monitor, struct rme_watcher *watcher);

/*
 * With the watcher's lock held: is this part of a claim still the memory that was claimed?
 * `seam`: a word of the caller's, 0 at first, where the mapping is remembered to be cut in two.
 * One system call, as a rule.
 */
enum rme_still rme_monitor_still(struct rme_monitor *monitor, uintptr_t start, uintptr_t end,
                                 uintptr_t *seam);

/* Tells all watchers that a range is not what it was.  No lock held. */
void rme_monitor_lost(struct rme_monitor *monitor, uintptr_t start, uintptr_t end);

#endif
