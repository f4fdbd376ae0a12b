/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages that are written into a ring in the receiver's memory.  See eager_rdma.c. */
#ifndef RME_EAGER_RDMA_H
#define RME_EAGER_RDMA_H

#include <stdbool.h>
#include <stdint.h>

#include "op/operations.h"

struct rme_eager_rdma_rx;
struct rme_eager_rdma_tx;

/* State of a peer. */
struct rme_eager_rdma {
    struct rme_eager_rdma_rx *rx; /* ring granted to the peer; NULL: none */
    struct rme_eager_rdma_tx *tx; /* ring granted by the peer; NULL: none */
    /* RTS of the peer that would have fitted a ring, since the link is up or a ring was used */
    uint32_t wants;
    uint16_t due;               /* flags of the CREDIT messages to be sent */
    struct rme_control control; /* sends these, in the order of the flags */
};

/* Registered memory of one side of a ring, held for a peer: the ring, or its staging buffer. */
struct rme_eager_ring {
    struct rme_peer *peer;
    char *base;
    size_t size;
    struct rme_mr mr;
};

/* ---- eager_rdma.c: the sender ---- */

rme_arrived_fn rme_eager_rdma_granted;
void rme_eager_rdma_withdrawn(struct rme_peer *peer);
rme_start_fn rme_eager_rdma_start;
void rme_eager_rdma_init(struct rme_eager_rdma *eager_rdma);
/* Handles the end of the link. */
void rme_eager_rdma_down(struct rme_peer *peer);
/* Writes the message into the peer's ring, from a copy: its memory is the host's again.  False:
 * no credit, no room or not a message for the ring. */
bool rme_eager_rdma_send(struct rme_peer *peer, enum rme_stream stream,
                         const struct rme_seg *seg, uint32_t nseg, uint64_t size, int32_t tag);
/* Handles the completion of a write, or of RELEASE: a transfer whose owner is NULL. */
void rme_eager_rdma_moved(struct rme_peer *peer, struct rme_rdma_op *rdma_op);

/* ---- rx_ring.c: the receiver ---- */

/* Returns the largest payload of a message in a ring, regardless of credits, windows and room.
 * `copied`: a rendezvous would copy the sender's memory as well. */
uint64_t rme_eager_rdma_most(const struct rme *rme, enum rme_stream stream, bool copied);
/* Has the peer a granted ring, not yet released? */
static inline bool rme_eager_rdma_given(const struct rme_peer *peer)
{
    return peer->credit.bulk_due != 0;
}
/* Maps `size` bytes for a peer and registers them.  False: no memory, or more than the quota; a
 * host's first ring needs no share of that. */
bool rme_eager_ring_map(struct rme_eager_ring *ring, struct rme_peer *peer,
                        enum rme_quota_id quota, size_t size, unsigned access);
void rme_eager_ring_unmap(struct rme_eager_ring *ring, enum rme_quota_id quota);

/* Adds the granted ring to GRANT, which is about to be sent from `tx`. */
void rme_eager_rdma_describe(struct rme_peer *peer, struct rme_wire_message *message, void *tx);
/* Notes an RTS of `size` bytes: a peer whose messages would fit is granted a ring. */
void rme_eager_rdma_wanted(struct rme_peer *peer, uint64_t size);
/* Decodes the message in the ring granted to the peer that this immediate names; its payload
 * stays in place, which returns to the peer with the message's credit.  -ENOENT: the immediate
 * names none.  -EPROTO. */
int rme_eager_rdma_decode(struct rme_peer *peer, uint32_t imm,
                          struct rme_wire_message *message);
void rme_eager_rdma_released(struct rme_peer *peer);
/* Handles RME_EV_MW_INVALIDATED.  True: the event was for a ring of this peer. */
bool rme_eager_rdma_closed(struct rme_peer *peer, const void *closed);
/* Frees the ring granted to the peer, if any, which can access it no more. */
void rme_eager_rdma_rx_free(struct rme_peer *peer);

/* Withdraws idle rings; `now` is rme_now(). */
void rme_eager_rdma_look(struct rme *rme, uint64_t now);
/* Time by which rme_eager_rdma_look() is due; UINT64_MAX: no ring is granted or idle ones
 * stay. */
uint64_t rme_eager_rdma_look_at(const struct rme *rme);

#endif
