/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Registration of user memory for the time of an operation, in few calls [001 4.2], with a
 * cache when (and only when) unmaps are watched [000 5.4].  Cached is private anonymous memory
 * alone, because of no other the kernel reports every change; the rest (files, memfd, shared
 * memory, hugetlbfs) is registered for each operation, and exactly its bytes.
 *
 * Where the device pages on demand (caps.on_demand) nothing is pinned and nothing needs to be
 * watched: all memory is cached, and the kernel is asked at each use whether it is there
 * (demand.c).
 *
 * Threads: acquire, reap and warm register or deregister and are called with no lock of the
 * engine held.  release only moves list entries and may be called with it.  Own lock, never
 * held while registering.
 *
 * The rule that keeps freed memory from being registered: a completion is reported to the host
 * only after the operation's registrations are gone or are known to be watched, or to follow
 * what is mapped.  So an
 * operation ends like this: (engine's lock)   need = rme_mreg_release(mreg, hold); (no lock) if
 * (need) rme_mreg_reap(mreg); then the completion becomes visible. Many operations may be
 * released before one reap: that is the batch.
 */
#ifndef RME_MREG_H
#define RME_MREG_H

#include "memory/pin.h"
#include "memory/zone.h"

struct rme_mreg;
struct rme_mreg_hold; /* what one acquire holds */

struct rme_mreg_config {
    struct rme_pin *pin;
    struct rme_zone *zone; /* segments inside it need no registration; may be NULL */
    uint64_t max_entries;  /* cached registrations; 0: no cache */
    uint64_t max_bytes;    /* cached registered bytes; 0: no cache, UINT64_MAX: a quarter of
                              rme_pin_budget() */
    uint32_t batch;      /* registrations that the cache gives up together; 0, 1: one by one */
    bool free_on_demand; /* no bound of bytes where memory comes on demand: they cost none */
    bool single;         /* no groups: each segment is registered by itself */
    double call_ns; /* cost of a registration: call_ns + page_ns * pages; both 0: presets */
    double page_ns;
};

/* A segment: base and length in, keys out (0 for length 0). */
struct rme_mseg {
    void *base;
    uint64_t length;
    uint64_t lkey;
    uint64_t rkey;
};

/* -ENOMEM. */
int rme_mreg_new(const struct rme_mreg_config *config, struct rme_mreg **out);

/* Deregisters everything; all holds have been released.  NULL is allowed. */
void rme_mreg_free(struct rme_mreg *mreg);

/*
 * Makes `count` segments ready for the device with RME_ACCESS_* rights and fills in their
 * keys.  Neighbouring segments are registered together where T = a*p + b says so, holes
 * included (but exactly the segments where a peer shall have a key that opens all of the
 * registration); when the system refuses such a group, its segments are registered one by one,
 * or, when they are many, in groups between the holes that the kernel tells of [001 4.2.2].
 * Pure sources (RME_ACCESS_LOCAL, REMOTE_READ) register read-only memory. -ENOMEM: refused,
 * nothing is held; the caller copies instead.  -EFAULT, -EINVAL: memory that is not there or
 * not writable.
 */
int rme_mreg_acquire(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                     unsigned access, struct rme_mreg_hold **out);

/*
 * Keys without any registration call: from zones, the cache, or NULL segments.  -EAGAIN:
 * acquire is needed (nothing is held).  Never blocks; may be called with the engine's lock
 * held.
 */
int rme_mreg_try(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count, unsigned access,
                 struct rme_mreg_hold **out);

/* Ends a hold (NULL is allowed).  True: call rme_mreg_reap before the completion is reported.
 */
bool rme_mreg_release(struct rme_mreg *mreg, struct rme_mreg_hold *hold);

/* The same for a hold on a block of the zone that was registered for one operation alone: the
 * zone gets it back when that is deregistered, and nobody uses it before. */
bool rme_mreg_release_block(struct rme_mreg *mreg, struct rme_mreg_hold *hold, void *block);

/*
 * Deregisters what was released and is not cached, and what the cache gave up, in one batch.
 * Returns when all that was released before the call is deregistered, also when another thread
 * is at it.  Cheap when there is nothing.
 */
void rme_mreg_reap(struct rme_mreg *mreg);
bool rme_mreg_wants_reap(const struct rme_mreg *mreg);

/*
 * A cache that was full gives up ahead of time as many as it would together (`batch`), and an
 * eighth of its bytes, and deregisters them: for who has nothing better to do.  No lock held.
 */
bool rme_mreg_wants_room(const struct rme_mreg *mreg);
void rme_mreg_make_room(struct rme_mreg *mreg);

/*
 * A range will soon be used with these rights.  Only remembered, and that of a few ranges, and
 * of them as many bytes as leave most of the cache to others; does nothing without a cache,
 * nor for a block of the zone.  Forgotten when the range is seen to be unmapped or discarded.
 * Never fails, any lock.  rme_mreg_warm registers the oldest that was named, if its use has not
 * begun meanwhile: for who has nothing better to do.  No lock held.
 */
void rme_mreg_hint(struct rme_mreg *mreg, const void *start, size_t length, unsigned access);
bool rme_mreg_wants_warming(const struct rme_mreg *mreg);
void rme_mreg_warm(struct rme_mreg *mreg);

/* Is the cache in use?  (Bounds above 0; a monitor at work, or memory that comes on demand.) */
bool rme_mreg_caches(const struct rme_mreg *mreg);

/* Bytes that the cache may hold. */
uint64_t rme_mreg_bound(const struct rme_mreg *mreg);
/* Registrations that it may hold; 0: it is not in use. */
uint64_t rme_mreg_entries(const struct rme_mreg *mreg);

#endif
