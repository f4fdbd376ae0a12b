/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Registration of user memory for the duration of an operation, in few calls [001 4.2], with a
 * cache if unmaps are monitored [000 5.4].  Only private anonymous memory is cached, because
 * changes of other memory are not all reported by the kernel; files, memfd, shared memory and
 * hugetlbfs are registered for each operation, and exactly the operation's bytes.
 *
 * With on-demand paging (caps.on_demand) nothing is pinned and nothing is monitored: all memory
 * is cached, and every use asks the kernel whether the memory is mapped (demand.h).
 *
 * Threads: acquire, dereg_flush and hint register or deregister, and are called without a lock
 * of the engine.  release only moves list entries and may be called with the engine's lock.
 * The own lock is never held during a registration.
 *
 * Rule that keeps freed memory from staying registered: a completion is reported to the host
 * only after the operation's registrations are ended, monitored, or on demand.  So an operation
 * ends like this:
 * - (engine's lock)   need = rme_mreg_release(mreg, hold, block);
 * - (no lock)         if (need) rme_mreg_dereg_flush(mreg);
 * - then the completion becomes visible.
 *
 * Many operations may be released before one rme_mreg_dereg_flush(), which then deregisters
 * them in one batch.
 */
#ifndef RME_MREG_H
#define RME_MREG_H

#include "memory/pin.h"
#include "memory/zone.h"

struct rme_mreg;
struct rme_mreg_hold; /* the registrations of one acquire */

struct rme_mreg_config {
    struct rme_pin *pin;
    struct rme_zone *zone; /* its memory needs no registration; may be NULL */
    uint64_t max_entries;  /* limit of cached registrations; 0: no cache */
    uint64_t max_bytes;    /* limit of cached registered bytes; 0: no cache */
    uint32_t batch;        /* registrations evicted together; 0, 1: one by one */
    double call_ns;        /* cost of a registration: call_ns + page_ns * pages */
    double page_ns;
};

/* A segment: base and length are inputs, the keys are outputs (0 for length 0). */
struct rme_mseg {
    void *base;
    uint64_t length;
    uint64_t lkey;
    uint64_t rkey;
};

/* Creates the registrations of an engine.  -ENOMEM. */
int rme_mreg_new(const struct rme_mreg_config *config, struct rme_mreg **out);

/* Deregisters everything.  All holds must be released.  NULL is allowed. */
void rme_mreg_free(struct rme_mreg *mreg);

/*
 * Registers `count` segments with RME_ACCESS_* rights and fills in their keys.  Adjacent
 * segments are registered as a group where T = a*p + b is cheaper, holes included unless
 * rme_pin_alone().  If the system refuses a group, its segments are registered one by one, or,
 * if they are many, in groups between the holes that the kernel reports [001 4.2.2].  Pure
 * sources (RME_ACCESS_LOCAL, REMOTE_READ) may be read-only memory. -ENOMEM: refused, nothing is
 * held, and the caller copies instead.  -EFAULT, -EINVAL: memory that is unmapped or not
 * writable.
 */
int rme_mreg_acquire(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count,
                     unsigned access, struct rme_mreg_hold **out);

/*
 * Finds keys without a registration: from zones, from the cache, and for empty segments.
 * -EAGAIN: call rme_mreg_acquire (nothing is held).  Does not block; the engine's lock may be
 * held.
 */
int rme_mreg_try(struct rme_mreg *mreg, struct rme_mseg *seg, uint32_t count, unsigned access,
                 struct rme_mreg_hold **out);

/* Ends a hold, and releases a block of the zone, which may be reused when the registrations are
 * ended; both may be NULL.  True: call rme_mreg_dereg_flush before the completion is
 * reported. */
bool rme_mreg_release(struct rme_mreg *mreg, struct rme_mreg_hold *hold, void *block);

/*
 * Deregisters released registrations that are not cached, and evicted ones, in one batch.
 * Returns when everything that was released before the call is deregistered, also if another
 * thread does it.  Cheap if nothing is pending.
 */
void rme_mreg_dereg_flush(struct rme_mreg *mreg);
bool rme_mreg_wants_dereg(const struct rme_mreg *mreg);

/*
 * Registers a range that will be used with these rights into the cache, in one piece and at
 * most a quarter of the cache's bytes.  Never fails; does nothing without a cache and for a
 * registered block of the zone.  No lock of the engine held.  The range stays mapped until the
 * return.
 */
void rme_mreg_hint(struct rme_mreg *mreg, void *start, uint64_t length, unsigned access);

/* Returns true if the cache is in use: its limits are above 0, and a monitor runs or memory
 * comes on demand. */
bool rme_mreg_caches(const struct rme_mreg *mreg);

/* Returns the limit of cached bytes. */
uint64_t rme_mreg_bound(const struct rme_mreg *mreg);

#endif
