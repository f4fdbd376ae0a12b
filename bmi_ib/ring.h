/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ring.h - accounting of one send queue, and when to ask for a completion.
 *
 * A send queue completes in order, so one completion frees everything posted before it.  The
 * ring remembers what each request carried until then.  Positions are counters that run freely;
 * a work request id carries the low 24 bits.
 *
 * The signalling rule (pure, tested by itself): a request is signalled when it ends a transfer
 * that is not quiet (fabric.h), when it is the last one that fits while more waits, when
 * half of the queue went by without a signal, or when too many send buffers, of all or of
 * those that one link may have, would be held by requests that nobody will report.  Hence,
 * whenever the queue is more than half full, a completion is on its way, and a queue that
 * never fills up again holds at most half of its slots and a bounded share of the send
 * buffers.
 */
#ifndef BMI_IB_RING_H
#define BMI_IB_RING_H

#include <stdbool.h>
#include <stdint.h>

struct rme_xfer;

#define IB_POSITION_BITS 24
#define IB_POSITION_MASK ((1u << IB_POSITION_BITS) - 1)

struct ib_slot {
    struct rme_xfer *x; /* what ends with this request; NULL: nothing to do */
    bool read;          /* counts against the read limit */
};

struct ib_ring {
    struct ib_slot *slot; /* a power of two of them */
    uint32_t mask;
    uint32_t depth; /* requests the device's queue holds for us */
    uint32_t head;  /* posted */
    uint32_t tail;  /* known to be complete */
    uint32_t quiet; /* posted since the last signalled one */
    uint32_t reads; /* reads posted and not known to be complete */
};

int ib_ring_init(struct ib_ring *r, uint32_t depth);
void ib_ring_fini(struct ib_ring *r);

static inline uint32_t ib_ring_used(const struct ib_ring *r)
{
    return r->head - r->tail;
}

static inline uint32_t ib_ring_room(const struct ib_ring *r)
{
    return r->depth - ib_ring_used(r);
}

/* The next request is due for a signal for the queue's own sake. */
static inline bool ib_ring_due(const struct ib_ring *r)
{
    return r->quiet + 1 >= (r->depth + 1) / 2;
}

/* Enters a request.  The caller has checked the room.  Returns the position to carry in the
 * request's id. */
static inline uint32_t ib_ring_push(struct ib_ring *r, struct rme_xfer *x, bool read)
{
    struct ib_slot *s = &r->slot[r->head & r->mask];
    s->x = x;
    s->read = read;
    r->reads += read;
    r->head++;
    r->quiet++;
    return r->head & IB_POSITION_MASK;
}

/* How many requests a completion with this position covers; 0 when it is none of ours (stale).
 */
static inline uint32_t ib_ring_covered(const struct ib_ring *r, uint32_t position)
{
    uint32_t n = (position - r->tail) & IB_POSITION_MASK;
    return n <= ib_ring_used(r) ? n : 0;
}

/* Takes the oldest request out.  The caller has checked that there is one. */
static inline struct rme_xfer *ib_ring_pop(struct ib_ring *r)
{
    struct ib_slot *s = &r->slot[r->tail & r->mask];
    r->reads -= s->read;
    r->tail++;
    return s->x;
}

#endif
