/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ring allocation of a delegated buffer, for its user: each message has consecutive units, and
 * the units are freed in the order of allocation.  Pure arithmetic. */
#ifndef RME_FAST_RING_H
#define RME_FAST_RING_H

#include <stdbool.h>
#include <stdint.h>

struct rme_fast_ring {
    uint32_t units; /* total number */
    uint32_t first; /* the oldest used one */
    uint32_t taken;
};

/* Finds `count` consecutive units: *at is the first, *skip the number of units left out before
 * it at the end of the ring.  False: no room. */
static inline bool rme_fast_ring_room(const struct rme_fast_ring *ring, uint32_t count,
                                      uint32_t *at, uint32_t *skip)
{
    uint32_t next = ring->first + ring->taken;

    if (next >= ring->units)
        next -= ring->units;
    if (ring->taken == 0)
        next = 0;
    *at = next;
    *skip = 0;
    if (count > ring->units - next) {
        *skip = ring->units - next;
        *at = 0;
    }
    return count + *skip <= ring->units - ring->taken && count <= ring->units;
}

/* Allocates the units that rme_fast_ring_room() found. */
static inline void rme_fast_ring_take(struct rme_fast_ring *ring, uint32_t at, uint32_t count,
                                      uint32_t skip)
{
    if (ring->taken == 0)
        ring->first = at;
    ring->taken += count + skip;
}

/* Frees the oldest `count` units: those of one message, skipped ones included. */
static inline void rme_fast_ring_free(struct rme_fast_ring *ring, uint32_t count)
{
    ring->first += count;
    if (ring->first >= ring->units)
        ring->first -= ring->units;
    ring->taken -= count;
}

#endif
