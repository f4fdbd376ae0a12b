/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shared by mreg.c (operations and groups), mreg_cache.c, mreg_hints.c, holes.c, demand.c. */
#ifndef RME_MREG_INT_H
#define RME_MREG_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/itree.h"
#include "memory/monitor.h"
#include "memory/mreg.h"

/* Whole pages of the host's segments (of an exact region, its bytes), by which a cached region
 * is found. */
struct span {
    struct rme_inode node; /* in the index */
    struct rme_claim claim;
    struct region *region;
    uintptr_t seam; /* see rme_monitor_still */
};

/* One registration of user memory.  Holes between the host's segments may be registered with
 * them, but no span includes a hole, because nothing ensures that a hole is mapped. */
struct region {
    TAILQ_ENTRY(region) link; /* in `unused` or `dead` */
    uintptr_t start, end;     /* registered range */
    struct rme_mr mr;
    unsigned access;
    unsigned refs; /* holds */
    bool indexed;  /* the spans are in the index: cached, and not known to have changed */
    bool live;     /* registered: the keys are valid */
    bool watched;  /* `watch` was passed to the monitor */
    /* a peer gets the key of the registration: only the host's bytes are registered */
    bool exact;
    void *block; /* block of the zone that is released when this is deregistered, or NULL */
    struct rme_watch watch;
    uintptr_t seam; /* see rme_monitor_still */
    uint32_t nspans;
    struct span span[];
};

TAILQ_HEAD(region_list, region);

#define HINTS 8 /* limit of pending hints */
#define HINT_SHARE                                                                             \
    4 /* the bytes they name together are at most this fraction of the cache's  \
                      */

struct hint {
    uintptr_t start;
    size_t length;
    unsigned access;
};

#define HOLES 128 /* limit of recorded holes for each kind of access; see holes.c */

struct hole {
    struct rme_inode node;
    unsigned uses;
};

struct holes {
    struct rme_itree tree;
    struct hole hole[HOLES]; /* end 0: not in the tree */
    unsigned next;           /* index of the next hole to be replaced, the oldest */
    atomic_uint known;       /* holes in the tree; also read without the lock */
};

struct rme_mreg {
    struct rme_mreg_config config;
    uintptr_t page;
    struct rme_monitor *monitor; /* NULL: no cache, or none is needed because memory … */
    bool follows;                /* … comes on demand, and there is a cache */
    int maps;                    /* descriptor of maps.h, if memory comes on demand; else -1 */
    struct rme_watcher watcher;
    pthread_mutex_t
        lock; /* guards the fields below; nothing is allocated, freed or registered under it */
    struct rme_itree index;       /* spans of cached regions */
    struct region_list unused;    /* cached, without holds; least recently used first */
    struct region_list dead;      /* to be deregistered */
    uint64_t entries, bytes;      /* of cached regions */
    struct hint hint[HINTS];      /* oldest first */
    atomic_uint hints;            /* pending hints; also read without the lock */
    uint64_t hint_bytes;          /* bytes of all pending hints */
    struct holes holes[2];        /* for reading, for writing */
    atomic_uint_fast64_t pending; /* dead regions that are not deregistered yet */
    atomic_bool tight; /* regions were evicted for want of room, see rme_mreg_make_room */
    pthread_mutex_t dereg_lock; /* one thread at a time deregisters; before lock */
};

static inline uintptr_t page_down(const struct rme_mreg *mreg, uintptr_t at)
{
    return at & ~(mreg->page - 1);
}

static inline uintptr_t page_up(const struct rme_mreg *mreg, uintptr_t at)
{
    return page_down(mreg, at + mreg->page - 1);
}

/* Starts the monitor if the limits allow a cache.  Logs the reason if the limits exclude
 * one. */
void mreg_cache_open(struct rme_mreg *mreg);
void mreg_cache_close(struct rme_mreg *mreg);

/*
 * Returns a cached region that covers the range with these rights and is still the same memory,
 * with one more hold; NULL: none.  The lock is held.  `*known` is a region that was checked
 * with the kernel since the lock was taken, or NULL; it is not checked again.
 */
struct region *mreg_cache_get(struct rme_mreg *mreg, const void *start, uint64_t length,
                              unsigned access, const struct region **known);

/* Ends a hold.  The lock is held.  True: the region died. */
bool mreg_cache_put(struct rme_mreg *mreg, struct region *region);

/*
 * Registers a region (start, end, access and spans filled in) into the cache, with one hold.
 * `hint`: the hint that the region is registered for, which is consumed; NULL for an operation.
 * -EAGAIN: not cacheable (limits, not private anonymous memory), register it for the operation
 * alone; or the hint was dropped or is too late.  Other errors: of the registration.
 */
int mreg_cache_register(struct rme_mreg *mreg, struct region *region, const struct hint *hint);

/* Evicts all unused regions.  The lock is held. */
void mreg_cache_drop_unused(struct rme_mreg *mreg);

/* Evicts unused regions so that the next ones find room.  The lock is held. */
void mreg_cache_make_room(struct rme_mreg *mreg);

/* Add a hint, cut to its share of the cache, and return the oldest, which stays pending.
 * False: there is none.  No lock held. */
void mreg_hint_add(struct rme_mreg *mreg, uintptr_t start, size_t length, unsigned access);
bool mreg_hint_oldest(struct rme_mreg *mreg, struct hint *out);

/* Consumes a pending hint.  The lock is held.  False: the hint was dropped, or the use of its
 * memory has begun, which registers for itself. */
bool mreg_hint_take(struct rme_mreg *mreg, const struct hint *hint);

/* Drops the hints about changed memory.  The lock is held. */
void mreg_hints_drop(struct rme_mreg *mreg, uintptr_t start, uintptr_t end);

/* Returns true if a recorded hole lies in a range between two segments.  No lock held. */
bool mreg_hole_between(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access);

/* Asks the kernel for the holes of a range whose registration was refused, and records the
 * first HOLES of them.  No lock held. */
void mreg_holes_ask(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access);

/* ---- demand.c ---- */

/* Finds out whether memory may come on demand; sets mreg->maps, -1 if not. */
void mreg_demand_open(struct rme_mreg *mreg);
void mreg_demand_close(struct rme_mreg *mreg);

/*
 * Checks that a range is mapped with the rights that `access` needs, at this moment; one system
 * call for each mapping.  -EFAULT: it is not; -EACCES: mapped, but not permitted to peers.
 * With or without the lock.
 */
int mreg_demand_look(const struct rme_mreg *mreg, uintptr_t start, uintptr_t end,
                     unsigned access);

/* Registers user memory by rme_pin_try, or with `loud` by rme_pin_reg; on demand, if mapped. */
int mreg_pin(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access, bool loud,
             struct rme_mr *mr);

#define DEREG_BATCH 64

/* Ends the watches on what only these dead regions needed, at most DEREG_BATCH of them. */
void mreg_cache_unwatch(struct rme_mreg *mreg, struct region *const *region, unsigned count);

#endif
