/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the monitor asks of the kernel: to report changes of memory (userfaultfd in
 * write-protect mode, with nothing protected), and whether memory is what it was.  No lock of
 * its own: watch, unwatch and unwatch_all are called by one thread at a time, the rest by any.
 */
#ifndef RME_UFFD_H
#define RME_UFFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rme_uffd {
    int fd;    /* the userfaultfd that watches */
    int asked; /* one that watches nothing and is asked; the same where that does not serve */
    int map;   /* the page map of this process; -1: there is none that tells of huge pages */
    int maps;  /* the list of mappings of this process */
    size_t page;
};

/* A negative errno, and nothing is open: this system has no such thing for us. */
int rme_uffd_open(struct rme_uffd *u);

/* Closes the descriptors.  That ends no watch while a forked child has them: see unwatch_all.
 */
void rme_uffd_close(struct rme_uffd *u);

/* Starts to watch, ends to watch whole pages.  A negative errno: such memory cannot be watched
 * (files, huge pages of hugetlbfs, nothing there). */
int rme_uffd_watch(const struct rme_uffd *u, uintptr_t start, uintptr_t end);
/* False: some of it is not such memory any more, and perhaps none is unwatched. */
bool rme_uffd_unwatch(const struct rme_uffd *u, uintptr_t start, uintptr_t end);

/* Ends every watch in this process, wherever the watched memory was moved to. */
void rme_uffd_unwatch_all(const struct rme_uffd *u);

/* Does a huge page lie across this address? */
bool rme_uffd_splits_huge(const struct rme_uffd *u, uintptr_t address);

#define RME_HUGE_PAGE                                                                          \
    ((uintptr_t)2 << 20) /* what transparent ones have, with pages of 4 KiB  \
                                            */

enum rme_still {
    RME_STILL_YES,     /* all of it is one mapping: private, anonymous, and watched */
    RME_STILL_NO,      /* it is not */
    RME_STILL_UNKNOWN, /* a change of some mapping is under way, and the kernel says no more */
};

/* Constant time, whatever the size: no page table is looked at. */
enum rme_still rme_uffd_still(const struct rme_uffd *u, uintptr_t start, uintptr_t end);

/* Is a change of watched memory under way, whose event was not read or not acted upon yet? */
bool rme_uffd_pending(const struct rme_uffd *u);

enum rme_uffd_event {
    RME_UFFD_NONE,   /* no more for now */
    RME_UFFD_GONE,   /* [start, end) is not what it was */
    RME_UFFD_MOVED,  /* … and its pages are now at `to` */
    RME_UFFD_OTHER,  /* means nothing to us */
    RME_UFFD_BROKEN, /* the descriptor reports nothing any more */
};

struct rme_uffd_change {
    uintptr_t start, end;
    uintptr_t to;
};

/* The next event.  Not by read(): see thread.h. */
enum rme_uffd_event rme_uffd_next(const struct rme_uffd *u, struct rme_uffd_change *change);

/* Lets go of all who wait for an event to be read, unless a forked child has the descriptor,
 * too; nothing can be watched afterwards.  The number of the descriptor stays taken. */
void rme_uffd_abandon(const struct rme_uffd *u);

#endif
