/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Zones: memory handed out already registered [000 5.2].  Blocks of 4 KiB, 8 KiB … 4 MiB are
 * cut from slabs, each registered once; larger requests get a mapping of their own.  Used for
 * rme_memory_alloc and for the engine's bounce buffers.
 *
 * Threads: every function may be called from any thread, with no lock of the engine held,
 * because a slab may have to be registered; the zone has its own lock, which is not held while
 * registering.  rme_zone_find and rme_zone_owns only look and may be called with the engine's
 * lock held, as may rme_zone_try, rme_zone_put, rme_zone_hold and rme_zone_drop.
 */
#ifndef RME_ZONE_H
#define RME_ZONE_H

#include "memory/pin.h"

struct rme_zone;

#define RME_ZONE_MIN_BLOCK 4096u /* the smallest block; smaller requests share its class */

struct rme_zone_config {
    struct rme_pin *pin;
    uint64_t max_bytes;  /* bound of registered zone memory, UINT64_MAX: half of
                            rme_pin_budget().  Beyond it memory  is handed out unregistered */
    uint64_t keep_bytes; /* idle slabs and large mappings up to this total stay registered; the
                            rest is given back */
    uint64_t idle_ms;    /* what nobody needed for so long is given back as well; 0: never */
    bool huge;           /* try huge pages */
    bool dont_fork;      /* madvise(MADV_DONTFORK): children do not see the memory */
};

/* -ENOMEM.  Maps and registers nothing yet. */
int rme_zone_new(const struct rme_zone_config *config, struct rme_zone **out);

/* Deregisters and unmaps everything, blocks still in use included.  NULL is allowed. */
void rme_zone_free(struct rme_zone *zone);

/*
 * A block of at least `size` bytes (0 counts as 1), aligned to a page, content undefined. NULL:
 * no memory.  When the system refuses to register, the block is plain memory: rme_zone_find
 * then says -ENOENT and the data is copied instead.
 */
void *rme_zone_alloc(struct rme_zone *zone, size_t size);

/* The same from what is registered already, or NULL: never maps, never registers, never blocks
 * for long. */
void *rme_zone_try(struct rme_zone *zone, size_t size);

/* Gives a block back.  -EINVAL: not the start of a block in use (foreign, freed twice, inside a
 * block); nothing is done. */
int rme_zone_release(struct rme_zone *zone, void *block);

/*
 * The same without giving memory back to the system: for callers that hold the engine's lock.
 * rme_zone_trim does that later; rme_zone_wants_trim says, without a lock, whether there is
 * anything to trim.
 */
int rme_zone_put(struct rme_zone *zone, void *block);
bool rme_zone_wants_trim(const struct rme_zone *zone);
void rme_zone_trim(struct rme_zone *zone);

/*
 * Looks, at `now` (ms of rme_now), for idle memory that was not needed in the last idle_ms, or
 * up to twice that; rme_zone_wants_trim is then true.  When it should look again at the latest,
 * UINT64_MAX: when something was used.  It never blocks for long, and may be called with the
 * engine's lock held.
 */
uint64_t rme_zone_look(struct rme_zone *zone, uint64_t now);

/* The registration that covers a range inside one block in use; -ENOENT: none.  Valid while the
 * block is in use. */
int rme_zone_find(struct rme_zone *zone, const void *start, size_t length,
                  const struct rme_mr **mr);

/*
 * The same, with keys for a peer that shall have this access (RME_ACCESS_LOCAL: for nobody).
 * Where a registration's own key opens it, a slab has a second one to be read, made when a
 * block of it is read for the first time.  -EAGAIN: it has to be made, which happens if `now`
 * (no lock of the engine held then); -ENOMEM: refused; -EPERM:  not as part of a slab, see
 * rme_pin_alone.
 */
int rme_zone_show(struct rme_zone *zone, const void *start, size_t length, unsigned access,
                  bool now, const struct rme_mr **mr);

/* Does the range lie inside one block in use, registered or not? */
bool rme_zone_owns(struct rme_zone *zone, const void *start, size_t length);

/*
 * For a transfer that may outlast its block: the slab of a range inside one block in use stays
 * mapped and registered until rme_zone_drop of the same start, also when the block is given
 * back before.  False: the range is in no block in use, and nothing is held.
 */
bool rme_zone_hold(struct rme_zone *zone, const void *start, size_t length);
void rme_zone_drop(struct rme_zone *zone, const void *start);

#endif
