/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Zones: registered memory for rme_memory_alloc and for bounce buffers [000 5.2].  Blocks of 4
 * KiB, 8 KiB … 4 MiB are cut from slabs, each registered once; a larger request gets a mapping
 * of its own.
 *
 * Threads: any thread, without a lock of the engine, because a slab may have to be registered.
 * The zone has its own lock, which is not held during a registration.  rme_zone_find,
 * rme_zone_release, and rme_zone_alloc without `grow` may be called with the engine's lock.
 */
#ifndef RME_ZONE_H
#define RME_ZONE_H

#include "memory/pin.h"

struct rme_zone;

#define RME_ZONE_MIN_BLOCK 4096u /* the smallest block; smaller requests use its class */
/* The first slab of a class, and the unit of large requests.  Slabs are smaller only under a
 * small limit of locked memory. */
#define RME_ZONE_SLAB ((size_t)256 << 10)

/* Creates a zone of up to `max_bytes` of registered memory; memory beyond that is unregistered.
 * Memory that was not needed for `idle_ms` is released; 0: never.  Maps and registers nothing
 * yet.  -ENOMEM. */
int rme_zone_new(struct rme_pin *pin, uint64_t max_bytes, uint64_t idle_ms,
                 struct rme_zone **out);

/* Deregisters and unmaps everything, used blocks included.  NULL is allowed. */
void rme_zone_free(struct rme_zone *zone);

/*
 * Allocates a block of at least `size` bytes (0 counts as 1), aligned to a page, content
 * undefined.  NULL: no memory.  If the registration is refused the block is plain memory:
 * without a registration, and is used like other memory of the host.  Without `grow`, only
 * registered memory that is free is used: nothing is mapped or registered, and the call never
 * blocks for long.
 */
void *rme_zone_alloc(struct rme_zone *zone, size_t size, bool grow);

/* Frees a block.  -EINVAL: not the start of a used block (foreign, freed twice, inside a
 * block); nothing is done.  Registered memory stays; the engine's lock may be held. */
int rme_zone_release(struct rme_zone *zone, void *block);

/* Releases idle memory that rme_zone_trim_due has found.  No lock of the engine is held. */
void rme_zone_trim(struct rme_zone *zone);

/*
 * Checks, at `now` (ms of rme_now), for idle memory that was not needed in the last idle_ms, or
 * up to twice that, and sets `chores` of rme_pin if there is any.  Returns the time of the next
 * check, UINT64_MAX: after the next use.  Never blocks for long; the engine's lock may be held.
 */
uint64_t rme_zone_trim_due(struct rme_zone *zone, uint64_t now);

/* Finds the registration of a range inside one used block, with these rights.  Valid while the
 * block is used.  NULL: none, or not permitted for a part of a slab (rme_pin_alone). */
const struct rme_mr *rme_zone_find(struct rme_zone *zone, const void *start, size_t length,
                                   unsigned access);

#endif
