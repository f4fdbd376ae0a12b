/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Room in delegated memory, as its holder manages it: each message has consecutive units, and
 * they come back in the order in which they were taken.  Arithmetic only.
 */
#ifndef RME_FAST_RING_H
#define RME_FAST_RING_H

#include <stdbool.h>
#include <stdint.h>

struct rme_fast_ring {
    uint32_t units; /* all */
    uint32_t first; /* the oldest one that is taken */
    uint32_t taken;
};

/* Where `count` consecutive units begin, and with *skip how many before them are left out.
 * False: there is no such room. */
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

/* Takes what rme_fast_ring_room found. */
static inline void rme_fast_ring_take(struct rme_fast_ring *ring, uint32_t at, uint32_t count,
                                      uint32_t skip)
{
    if (ring->taken == 0)
        ring->first = at;
    ring->taken += count + skip;
}

/* The oldest ones come back: as many as were taken with their message, left out ones
 * included. */
static inline void rme_fast_ring_free(struct rme_fast_ring *ring, uint32_t count)
{
    ring->first += count;
    if (ring->first >= ring->units)
        ring->first -= ring->units;
    ring->taken -= count;
}

#endif
