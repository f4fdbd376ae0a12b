/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shared by mreg.c (operations and groups), mreg_cache.c (what is kept), holes.c, demand.c. */
#ifndef RME_MREG_INT_H
#define RME_MREG_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/itree.h"
#include "memory/monitor.h"
#include "memory/mreg.h"

/* Whole pages that the host's segments lie in (of an exact region, its bytes): what a cached
 * region may be found by. */
struct span {
    struct rme_inode node; /* in the index */
    struct rme_claim claim;
    struct region *region;
    uintptr_t seam; /* see rme_monitor_still */
};

/*
 * One registration of user memory.  It may contain holes between the host's segments; those are
 * registered, but no span names them, because nobody promised that they are mapped or stay so.
 */
struct region {
    TAILQ_ENTRY(region) link; /* in `unused` or `dead` */
    uintptr_t start, end;     /* what is registered */
    struct rme_mr mr;
    unsigned access;
    unsigned refs; /* holds */
    bool indexed;  /* its spans are in the index: cached and, as far as we know, still the same
                      memory */
    bool live;     /* registered: its keys may be used */
    bool watched;  /* the monitor was told of `watch` */
    bool exact;    /* its key opens it to peers: not a byte beside the host's is registered */
    void *block;   /* of the zone, which gets it back when this is deregistered; or NULL */
    struct rme_watch watch;
    uintptr_t seam; /* see rme_monitor_still */
    uint32_t nspans;
    struct span span[];
};

TAILQ_HEAD(region_list, region);

#define HINTS 8 /* that wait */
#define HINT_SHARE                                                                             \
    4 /* the bytes they name together are at most this fraction of the cache's  \
                      */

struct hint {
    uintptr_t start;
    size_t length;
    unsigned access;
};

#define HOLES 128 /* that are remembered of each way of access; see holes.c */

struct hole {
    struct rme_inode node;
    unsigned uses;
};

struct holes {
    struct rme_itree tree;
    struct hole hole[HOLES]; /* end 0: not in the tree */
    unsigned next;           /* place of the next one: the oldest gives way */
    atomic_uint known;       /* how many are in the tree; also read without the lock */
};

struct rme_mreg {
    struct rme_mreg_config config;
    uintptr_t page;
    struct rme_monitor *monitor; /* NULL: no cache, or none is needed, as memory … */
    bool follows;                /* … comes on demand, and there is a cache */
    int maps;                    /* memory comes on demand: whom to ask for it; else -1 */
    struct rme_watcher watcher;
    pthread_mutex_t
        lock; /* guards what follows.  Nothing is allocated, freed or registered under it */
    struct rme_itree index;       /* spans of cached regions */
    struct region_list unused;    /* cached, without holds; least recently used first */
    struct region_list dead;      /* to be deregistered */
    uint64_t entries, bytes;      /* of cached regions */
    struct hint hint[HINTS];      /* the oldest first */
    atomic_uint hints;            /* how many; also read without the lock */
    uint64_t hint_bytes;          /* that they name together */
    struct holes holes[2];        /* for reading, for writing */
    atomic_uint_fast64_t pending; /* regions that died and are not deregistered yet */
    atomic_bool tight; /* something was given up for want of room, see rme_mreg_make_room */
    pthread_mutex_t reap_lock; /* one reaper at a time; before lock */
};

static inline uintptr_t page_down(const struct rme_mreg *mreg, uintptr_t at)
{
    return at & ~(mreg->page - 1);
}

static inline uintptr_t page_up(const struct rme_mreg *mreg, uintptr_t at)
{
    return page_down(mreg, at + mreg->page - 1);
}

/* Starts the monitor if the bounds allow a cache.  Says so in the log when there cannot be one.
 */
void mreg_cache_open(struct rme_mreg *mreg);
void mreg_cache_close(struct rme_mreg *mreg);

/*
 * With the lock held: a cached region that covers the range with these rights and is still the
 * same memory, with one more hold; NULL: none.  `*known` is a region that the kernel was asked
 * about since the lock was taken, or NULL: it is not asked again.
 */
struct region *mreg_cache_get(struct rme_mreg *mreg, const void *start, uint64_t length,
                              unsigned access, const struct region **known);

/* With the lock held: ends a hold.  True: the region died. */
bool mreg_cache_put(struct rme_mreg *mreg, struct region *region);

/*
 * Registers a region (start, end, access and spans filled in) into the cache, with one hold.
 * `hint`: no operation has this memory, but there was a hint about it, which is taken; NULL for
 * an operation.
 * -EAGAIN: it cannot be cached (bounds, not private anonymous memory), register it for the
 * operation alone; or the hint has been dropped, or comes too late.
 * Other errors are those of the registration.
 */
int mreg_cache_register(struct rme_mreg *mreg, struct region *region, const struct hint *hint);

/* With the lock held: gives up all unused regions. */
void mreg_cache_drop_unused(struct rme_mreg *mreg);

/* With the lock held: gives up unused regions until those that come next need not make room. */
void mreg_cache_make_room(struct rme_mreg *mreg);

/* Remembers a hint, or as much of it as leaves most of the cache to others; no lock held.
 * mreg_hint_oldest: the one that waits longest goes on waiting.  False: there is none. */
void mreg_hint_add(struct rme_mreg *mreg, uintptr_t start, size_t length, unsigned access);
bool mreg_hint_oldest(struct rme_mreg *mreg, struct hint *out);

/* With the lock held: takes a hint that was there before.  False: it is not any more, or the
 * use has begun that it was about, which registers what it needs itself. */
bool mreg_hint_take(struct rme_mreg *mreg, const struct hint *hint);

/* With the lock held: drops the hints about memory that is not what it was. */
void mreg_hints_drop(struct rme_mreg *mreg, uintptr_t start, uintptr_t end);

/* Does a hole that is known lie in a range between two segments?  No lock held. */
bool mreg_hole_between(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access);

/* Asks the kernel for the holes of a range whose registration it refused, and remembers the
 * first HOLES of them.  No lock held. */
void mreg_holes_ask(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access);

/* ---- demand.c ---- */

/* Finds out whether memory may come on demand; mreg->maps is -1 if not. */
void mreg_demand_open(struct rme_mreg *mreg);
void mreg_demand_close(struct rme_mreg *mreg);

/*
 * Is a range there, with what `access` needs?  As the kernel has it at this moment; one system
 * call for each mapping.  -EFAULT; -EACCES: it is, but cannot be opened to a peer.  With or
 * without the lock.
 */
int mreg_demand_look(const struct rme_mreg *mreg, uintptr_t start, uintptr_t end,
                     unsigned access);

/* rme_pin_try, or with `loud` rme_pin_reg, of user memory: on demand, if it is there. */
int mreg_pin(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access, bool loud,
             struct rme_mr *mr);

#define REAP_BATCH 64

/* Ends the watch on what only these dead regions needed, REAP_BATCH of them at most. */
void mreg_cache_unwatch(struct rme_mreg *mreg, struct region *const *region, unsigned count);

#endif
