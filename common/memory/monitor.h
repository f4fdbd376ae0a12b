/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Monitors changes of memory mappings.  munmap, mremap, brk, MADV_DONTNEED and the like on a
 * watched range block until the monitor has read their event; a change that the kernel does not
 * report is found by rme_monitor_still.  Needs no privilege, and handles no page fault. Private
 * anonymous memory only: changes of other memory have no event.  Where userfaultfd is refused,
 * hooks in the C library (hooks.h) take its place.
 *
 * One monitor serves all engines of a process, because only one userfaultfd can watch a range.
 * The first watcher starts the monitor, the last one stops it.
 */
#ifndef RME_MONITOR_H
#define RME_MONITOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/itree.h"
#include "base/list.h"

struct rme_monitor;

/*
 * A recipient of changes.  Filled in by its owner, and valid until rme_monitor_leave.
 *
 * `gone` reports a range whose memory has changed.  The monitor's thread, a thread in
 * rme_monitor_watch, or with hooks the thread that changes the memory, runs `gone` with the
 * monitor's lock held.  `gone` must not allocate, free, unmap, call a function of this file
 * except rme_monitor_drop, or take a lock whose holders do so: munmap() in other threads may
 * wait for the return of `gone`.  For the same reason no thread may allocate or free while
 * holding the lock.
 */
struct rme_watcher {
    void (*on_unmap)(void *arg, uintptr_t start, uintptr_t end);
    void *arg;
    struct list_head link; /* private to the monitor */
};

/* Reasons for another monitor than userfaultfd, or for none. */
struct rme_monitor_lacks {
    const char *what;  /* refused to userfaultfd; NULL: userfaultfd watches */
    int error;         /* a negative errno */
    const char *hooks; /* missing for hooks; NULL: hooks watch */
};

/* The three handlers of a fork, for pthread_atfork().  The engine registers these before it
 * joins the monitor (engine/forked.c). */
void rme_monitor_before_fork(void);
void rme_monitor_after_fork(void);
void rme_monitor_after_fork_in_child(void);

/* Adds a watcher.  -ENOSYS, -EPERM …: not available on this system, for want of `lacks`.  Any
 * thread, no lock held. */
int rme_monitor_join(struct rme_watcher *watcher, struct rme_monitor **out,
                     struct rme_monitor_lacks *lacks);

/* Removes a watcher, after which `gone` is not called.  The last one ends all watches, also in
 * forked children.  NULL is allowed.  No lock held. */
void rme_monitor_leave(struct rme_monitor *monitor, struct rme_watcher *watcher);

/* Returns the lock of the monitor.  Events are read and reported with this lock held, so that
 * its holder knows of all changes whose system call has returned. */
pthread_mutex_t *rme_monitor_lock(struct rme_monitor *monitor);

/* A range to be watched.  Owned by the caller, who sets start and end of `claim` (whole pages)
 * and zeroes the rest; neither moved nor freed between rme_monitor_watch and
 * rme_monitor_unwatch. */
struct rme_watch {
    struct rme_inode claim;
    enum { RME_WATCH_NEW, RME_WATCH_HELD, RME_WATCH_DROPPED } state;
};

/*
 * Watches the parts of the range that no other watch claims, and the rest of a huge page that
 * the range ends in: `gone` may be called for that rest, too.  No lock held.  -EAGAIN: a part
 * cannot be watched, or may have been replaced unnoticed while another watch claimed it.
 * -EBADF: nothing is watched any more, because the program has closed the monitor's descriptors
 * or events could not be read; -ESTALE: because another library has replaced the hooks.  After
 * an error `gone` was called for the range, and the caller ends the watch.
 */
int rme_monitor_watch(struct rme_monitor *monitor, struct rme_watch *watch);

/* Drops the claim of a watch, from `gone` or after the memory was found to have changed.
 * rme_monitor_unwatch ends the watch later.  The lock is held. */
void rme_monitor_drop(struct rme_monitor *monitor, struct rme_watch *watch);

/* Ends dropped watches, whose claims are the nodes of `dropped`, where no other watch claims
 * the memory, and empties `dropped`.  Adjacent ones are ended by one call.  No lock held. */
void rme_monitor_unwatch(struct rme_monitor *monitor, struct rme_itree *dropped);

/* Returns true if all of a claimed range is still the claimed memory: private, anonymous,
 * watched.  The lock is held.  Costs one system call, as a rule: no page table is read.  With
 * hooks, no call: nothing has changed that they saw. */
bool rme_monitor_still(struct rme_monitor *monitor, const struct rme_watch *watch);

#endif
