/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rings: memory that a receiver grants to one sender, which writes eager messages there by
 * RDMA.  tx.c is the sender's side and describes the protocol, rx.c the receiver's.  The papers
 * call this an RDMA write of eager data, Fast RDMA [000 4.5.2], and delegated memory
 * [003 4.1].
 *
 * A ring is granted, withdrawn and released by CREDIT messages.  `rx` owns the memory of a
 * granted ring until RELEASE, and `tx` the staging buffer until all its writes and RELEASE are
 * complete; rme_ring_down() frees both.
 */
#ifndef RME_RING_H
#define RME_RING_H

#include "op/op.h"
#include "transport/peer.h"

struct rme_ring_rx;
struct rme_ring_tx;

/* The CREDIT messages about rings, in the order of sending. */
enum rme_ring_control {
    RME_RING_GRANT,
    RME_RING_WITHDRAW,
    RME_RING_RELEASE,
    RME_RING_CONTROLS
};

/* State of a peer. */
struct rme_ring {
    struct rme_ring_rx *rx; /* ring granted to the peer; NULL: none */
    struct rme_ring_tx *tx; /* ring granted by the peer; NULL: none */
    bool granted;           /* GRANT of `rx` is sent, and RELEASE has not arrived */
    /* RTS of the peer that would have fitted a ring, since the last attempt to grant one, and
     * the number of them that starts the next attempt */
    uint32_t wants, wants_needed;
    bool due[RME_RING_CONTROLS]; /* CREDIT messages to be sent */
    struct rme_control control;  /* sends these */
};

/* State of the engine. */
struct rme_rings {
    struct list_head granted; /* those that are not withdrawn (struct rme_ring_rx) */
    uint64_t idle_checked_at; /* time of the last search for idle ones, ms */
};

/* Registered memory of one side of a ring, held for a peer: the ring, or its staging buffer. */
struct rme_ring_memory {
    struct rme_peer *peer;
    char *base;
    size_t size;
    struct rme_mr mr;
};

/* Initializes the state of a peer, which belongs to the caller. */
void rme_ring_init(struct rme_peer *peer, struct rme_ring *ring);
/* Frees the rings of a link that is down. */
void rme_ring_down(struct rme_peer *peer);

/* ---- tx.c: the sender ---- */

/* Handle GRANT and WITHDRAW. */
void rme_ring_granted(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_ring_withdrawn(struct rme_peer *peer);

/* Result of the check whether a message can be written into the peer's ring. */
enum rme_ring_fit {
    RME_RING_OTHER, /* not a message for a ring, or there is none */
    RME_RING_FULL,
    RME_RING_WAIT, /* full, and the room is certain to come (tx.c, "No room") */
    RME_RING_ROOM, /* rme_ring_write() may follow at once */
};
enum rme_ring_fit rme_ring_admit(struct rme_peer *peer, enum rme_stream stream, uint64_t size);
/* Returns the largest payload that the planner may choose the ring for, in place of this
 * message; 0: there is no ring. */
uint64_t rme_ring_max(const struct rme_peer *peer, enum rme_stream stream,
                      const struct rme_seg *seg, uint32_t nseg, uint64_t size);
/* Notes that the first expected message of the queue waits for room: unexpected messages do not
 * take that room, and a completion schedules the peer. */
void rme_ring_await(struct rme_peer *peer);
/* Writes a message, for which there is room, from a copy: its memory is the host's again.
 * False: no credit. */
bool rme_ring_write(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag);
/* Handles the completion of a write, or of RELEASE: a transfer whose owner is NULL. */
void rme_ring_transfer_done(struct rme_peer *peer, struct rme_rdma_op *rdma_op);

/* ---- rx.c: the receiver ---- */

/* Returns the largest payload of a message in a ring, regardless of credits, windows and room.
 * `segments`: of the sender's memory if a rendezvous could copy it as well, else 0. */
uint64_t rme_ring_msg_max(const struct rme *rme, enum rme_stream stream, uint64_t segments);
/* Has the peer a granted ring, not yet released? */
static inline bool rme_ring_is_granted(const struct rme_peer *peer)
{
    return peer->ring->granted;
}
/* Maps `size` bytes for a peer and registers them.  False: no memory, or more than the quota; a
 * host's first ring needs no share of that. */
bool rme_ring_map(struct rme_ring_memory *ring, struct rme_peer *peer, enum rme_quota_id quota,
                  size_t size, unsigned access);
void rme_ring_unmap(struct rme_ring_memory *ring, enum rme_quota_id quota);

/* Adds the granted ring to GRANT, which is about to be sent from `tx`. */
void rme_ring_describe(struct rme_peer *peer, struct rme_wire_message *message, void *tx);
/* Notes an RTS of `size` bytes in so many segments: a peer whose messages would fit is granted
 * a ring. */
void rme_ring_wanted(struct rme_peer *peer, uint64_t size, uint64_t segments);
/* Begins the count of such RTS anew: after a message in a ring, and for a new peer. */
void rme_ring_wants_restart(struct rme_ring *ring);
/* Decodes the message in the ring granted to the peer that this immediate names; its payload
 * stays in place, which returns to the peer with the message's credit.  -ENOENT: the immediate
 * names none.  -EPROTO. */
int rme_ring_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message);
/* Handles RELEASE. */
void rme_ring_released(struct rme_peer *peer);
/* Handles RME_EV_MW_INVALIDATED.  True: the event was for a ring of this peer. */
bool rme_ring_invalidated(struct rme_peer *peer, const void *closed);
/* Frees the ring granted to the peer, if any, which can access it no more. */
void rme_ring_rx_free(struct rme_peer *peer);

/* Withdraws idle rings; `now` is rme_now(). */
void rme_ring_withdraw_idle(struct rme *rme, uint64_t now);
/* Time by which rme_ring_withdraw_idle() is due; UINT64_MAX: no ring is granted or idle ones
 * stay. */
uint64_t rme_ring_idle_due(const struct rme *rme);

/* ---- Both sides ---- */

/* Queues a CREDIT message about a ring. */
static inline void rme_ring_queue_credit(struct rme_peer *peer, enum rme_ring_control control)
{
    struct rme_ring *ring = peer->ring;

    ring->due[control] = true;
    if (list_empty(&ring->control.link))
        list_add_tail(&ring->control.link, &peer->control);
    rme_peer_schedule(peer);
}

#endif
