/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernel interfaces of the monitor: reports of memory changes (userfaultfd in write-protect
 * mode, with nothing protected), and queries whether memory is unchanged.  No lock: one thread
 * at a time calls watch, unwatch and unwatch_all, any thread the rest.
 */
#ifndef RME_UFFD_H
#define RME_UFFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rme_uffd {
    int fd; /* the userfaultfd that watches */
    /* a second one that watches nothing, for queries; the same as fd where it would not help */
    int asked;
    int map;  /* page map of this process; -1: none that reports huge pages */
    int maps; /* list of mappings of this process */
    size_t page;
};

/* Opens the descriptors.  A negative errno: not available on this system, nothing is open. */
int rme_uffd_open(struct rme_uffd *u);

/* Closes the descriptors.  Watches continue while a forked child has them: see unwatch_all. */
void rme_uffd_close(struct rme_uffd *u);

/* Watch and unwatch whole pages.  A negative errno: such memory cannot be watched (files, huge
 * pages of hugetlbfs, nothing mapped). */
int rme_uffd_watch(const struct rme_uffd *u, uintptr_t start, uintptr_t end);
/* Returns false if a part is no such memory any more; the rest may be still watched. */
bool rme_uffd_unwatch(const struct rme_uffd *u, uintptr_t start, uintptr_t end);

/* Ends every watch in this process, wherever the watched memory was moved to. */
void rme_uffd_unwatch_all(const struct rme_uffd *u);

/* Returns true if a huge page lies across this address. */
bool rme_uffd_splits_huge(const struct rme_uffd *u, uintptr_t address);

#define RME_HUGE_PAGE ((uintptr_t)2 << 20) /* transparent huge page, with 4 KiB pages */

enum rme_still {
    RME_STILL_YES, /* all of it is one private, anonymous, watched mapping */
    RME_STILL_NO,  /* changed */
    /* a change of some mapping is in progress, the kernel cannot tell more */
    RME_STILL_UNKNOWN,
};

/* Returns whether a range is unchanged, in constant time: no page table is read. */
enum rme_still rme_uffd_still(const struct rme_uffd *u, uintptr_t start, uintptr_t end);

/* Returns true if a change of watched memory is in progress whose event is unread or
 * unhandled. */
bool rme_uffd_pending(const struct rme_uffd *u);

enum rme_uffd_event {
    RME_UFFD_NONE,   /* no more events now */
    RME_UFFD_GONE,   /* [start, end) has changed */
    RME_UFFD_MOVED,  /* [start, end) has changed, and its pages are at `to` now */
    RME_UFFD_OTHER,  /* irrelevant */
    RME_UFFD_BROKEN, /* the descriptor reports no more events */
};

struct rme_uffd_change {
    uintptr_t start, end;
    uintptr_t to;
};

/* Reads the next event.  Not by read(): see thread.h. */
enum rme_uffd_event rme_uffd_next(const struct rme_uffd *u, struct rme_uffd_change *change);

/* Releases all threads that wait for an event to be read, unless a forked child has the
 * descriptor, too; nothing can be watched afterwards.  The descriptor number stays in use. */
void rme_uffd_abandon(const struct rme_uffd *u);

#endif
