/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shared by mreg.c (operations, groups) and mreg_cache.c (cache, hints). */
#ifndef RME_MREG_INT_H
#define RME_MREG_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/itree.h"
#include "memory/monitor.h"
#include "memory/mreg.h"

/* One registration of user memory: of one segment, or of a group with the holes between its
 * segments. */
struct region {
    /* The range by which a cached region is found: whole pages, or, if a peer gets the key, the
     * host's bytes. */
    struct rme_inode node;
    TAILQ_ENTRY(region) link; /* in `unused` or `dead` */
    struct rme_watch watch;   /* the pages of `node`; NEW: was not passed to the monitor */
    uintptr_t start, end;     /* the host's bytes */
    struct rme_mr mr;
    unsigned access;
    unsigned refs; /* holds */
    bool indexed;  /* in the index: cached, and not known to have changed */
    bool live;     /* registered: the keys are valid */
    void *block;   /* block of the zone that is released when this is deregistered, or NULL */
};

TAILQ_HEAD(region_list, region);

#define HOLES 64 /* limit of recorded holes */

/* Memory between the host's segments that cannot be registered with them. */
struct hole {
    uintptr_t start, end;
    bool writes;   /* for registrations that write; else for those that read */
    unsigned uses; /* before the hole is forgotten */
};

struct rme_mreg {
    struct rme_mreg_config config;
    uintptr_t page;
    struct rme_monitor *monitor; /* NULL: no cache, or none is needed because memory … */
    bool follows;                /* … comes on demand, and there is a cache */
    atomic_bool lost;            /* the monitor does not watch any more */
    int demand;                  /* descriptor of demand.h; -1: memory is pinned */
    struct rme_watcher watcher;
    /* The lock of the monitor, or `own_lock`.  Guards the fields below; nothing is allocated,
     * freed or registered under it. */
    pthread_mutex_t *lock, own_lock;
    struct rme_itree index;       /* cached regions */
    struct region_list unused;    /* cached, without holds; least recently used first */
    struct region_list dead;      /* to be deregistered */
    uint64_t entries, bytes;      /* of cached regions */
    struct hole hole[HOLES];      /* hole n is at n % HOLES */
    atomic_uint holes;            /* recorded since the start; also read without the lock */
    atomic_uint_fast64_t pending; /* dead regions that are not deregistered yet */
    pthread_mutex_t dereg_lock;   /* one thread at a time deregisters; before lock */
};

/* Returns the rights including implied ones. */
static inline unsigned mreg_implied(unsigned access)
{
    return access | ((access & RME_ACCESS_REMOTE_WRITE) != 0 ? RME_ACCESS_LOCAL_WRITE : 0);
}

/* Allocates a region with one hold for a range of the host.  The caller frees it until the
 * region is registered, the flush afterwards. */
struct region *mreg_region_new(uintptr_t start, uintptr_t end, unsigned access);

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
 * Registers a region into the cache.  -EAGAIN: not cacheable (limits, not private anonymous
 * memory), register it for the operation alone.  Other errors: of the registration.
 */
int mreg_cache_register(struct rme_mreg *mreg, struct region *region);

/* Evicts all unused regions, and deregisters them and the dead. */
void mreg_drop_unused(struct rme_mreg *mreg);

/* Registers user memory by rme_pin_try, or with `loud` by rme_pin_reg; on demand, if mapped. */
int mreg_pin(struct rme_mreg *mreg, uintptr_t start, uintptr_t end, unsigned access, bool loud,
             struct rme_mr *mr);

#endif
