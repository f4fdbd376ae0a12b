/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ring.h - accounting of one send queue, and selection of signalled requests.
 *
 * A send queue completes in order, so one CQE retires all requests before it.  The ring holds
 * the transfer that each request ends.  Positions are free-running counters; a wr_id holds the
 * low 24 bits.
 *
 * A request is signalled if it ends a transfer that is not unsignalled (fabric.h), if it is the
 * last one that fits while more are queued, if half of the queue was posted without a signal,
 * or if unsignalled requests would hold too many send buffers, of all or of one link.  Hence a
 * CQE is pending whenever the queue is more than half full, and an idle queue holds at most
 * half of its slots and a bounded number of send buffers.
 */
#ifndef BMI_IB_RING_H
#define BMI_IB_RING_H

#include <stdbool.h>
#include <stdint.h>

struct rme_rdma_op;

#define IB_POSITION_BITS 24
#define IB_POSITION_MASK ((1u << IB_POSITION_BITS) - 1)

struct ib_slot {
    struct rme_rdma_op *x; /* transfer that ends with this request; NULL: none */
    bool read;             /* RDMA read: counts against the read limit */
};

struct ib_ring {
    struct ib_slot *slot; /* mask + 1 entries, a power of two */
    uint32_t mask;
    uint32_t depth;       /* capacity of the send queue, in requests */
    uint32_t head;        /* requests posted */
    uint32_t tail;        /* requests known to be complete */
    uint32_t unsignalled; /* posted since the last signalled request */
    uint32_t reads;       /* RDMA reads in flight */
};

/* Allocates the slots for `depth` requests.  Returns 0 or -ENOMEM. */
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

/* Returns true if the next request must be signalled because half of the queue is not. */
static inline bool ib_ring_due(const struct ib_ring *r)
{
    return r->unsignalled + 1 >= (r->depth + 1) / 2;
}

/* Adds a request; the caller has checked for room.  Returns the position for the wr_id. */
static inline uint32_t ib_ring_push(struct ib_ring *r, struct rme_rdma_op *x, bool read)
{
    struct ib_slot *s = &r->slot[r->head & r->mask];
    s->x = x;
    s->read = read;
    r->reads += read;
    r->head++;
    r->unsignalled++;
    return r->head & IB_POSITION_MASK;
}

/* Returns the number of requests that a CQE with this position retires; 0 if stale. */
static inline uint32_t ib_ring_covered(const struct ib_ring *r, uint32_t position)
{
    uint32_t n = (position - r->tail) & IB_POSITION_MASK;
    return n <= ib_ring_used(r) ? n : 0;
}

/* Removes the oldest request and returns its transfer.  The ring must not be empty. */
static inline struct rme_rdma_op *ib_ring_pop(struct ib_ring *r)
{
    struct ib_slot *s = &r->slot[r->tail & r->mask];
    r->reads -= s->read;
    r->tail++;
    return s->x;
}

#endif
