/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Protocol state of each peer and of the engine, and functions of the protocols for each other
 * and for the engine. */
#ifndef RME_PROTO_H
#define RME_PROTO_H

#include "op/message.h"
#include "op/tags.h"
#include "rndv/rndv.h"

struct rme_ring_rx;
struct rme_ring_tx;

/* State of a peer: messages written into a ring in the receiver's memory (eager_rdma.c). */
struct rme_ring {
    struct rme_ring_rx *rx; /* ring granted to the peer; NULL: none */
    struct rme_ring_tx *tx; /* ring granted by the peer; NULL: none */
    /* RTS of the peer that would have fitted a ring, since the link is up or a ring was used */
    uint32_t wants;
    uint16_t due;               /* flags of the CREDIT messages to be sent */
    struct rme_control control; /* sends these, in the order of the flags */
};

/* Registered memory of one side of a ring, held for a peer: the ring, or its staging buffer. */
struct rme_ring_memory {
    struct rme_peer *peer;
    char *base;
    size_t size;
    struct rme_mr mr;
};

/* Protocol state of a peer. */
struct rme_peer_proto {
    uint32_t links; /* number of links so far */
    struct rme_sends sends;
    struct rme_peer_rndv rndv;
    struct list_head messages; /* unmatched expected messages (struct rme_message) */
    /* unexpected messages that are incomplete or behind one (struct rme_message) */
    struct list_head unexpected;
    struct list_head pulls; /* the RTS of `unexpected` that wait for room */
    /* complete unexpected messages that the host has not fetched */
    struct list_head complete;
    uint32_t rts_in[RME_STREAMS]; /* RTS of the peer held here */
    /* cost of unexpected messages being pulled, or pulled and not fetched */
    uint32_t pulled;
    struct rme_ring ring; /* see eager_rdma.c */
};

/* Protocol state of the engine. */
struct rme_protocols {
    struct list_head rings;   /* granted and not withdrawn (rx_ring.c) */
    uint64_t rings_looked_at; /* time of the last search for idle ones, ms */
    /* first complete message of each peer, for the host (struct rme_message) */
    struct list_head unexpected;
    uint64_t unexpected_changes;  /* number of messages completed and fetched so far */
    struct list_head unpublished; /* likewise, to be delivered after the ops in `ended` */
    struct list_head spare;       /* memory of messages, kept for others (eager.c) */
    size_t spare_bytes;           /* sum of the room in it */
};

/* Queues a CREDIT message with this flag: GRANT, WITHDRAW or RELEASE. */
static inline void rme_ring_queue_credit(struct rme_peer *peer, uint16_t flag)
{
    struct rme_ring *eager_rdma = &peer->proto->ring;

    eager_rdma->due |= flag;
    if (list_empty(&eager_rdma->control.link))
        list_add_tail(&eager_rdma->control.link, &peer->control);
    rme_peer_schedule(peer);
}

/* ---- eager.c: matching of expected messages, and messages that precede their receives ---- */

rme_arrived_fn rme_eager_arrived, rme_rts_arrived;
rme_start_fn rme_eager_start;
/* Handles FIN of a receive that was too small. */
rme_arrived_fn rme_refusal_arrived;

static inline bool rme_rts_is_full(const struct rme_peer *peer, enum rme_stream stream)
{
    return peer->proto->rts_in[stream] >= peer->rme->tuning.rts_max;
}
/* Counts an RTS that is held here. */
static inline void rme_rts_hold(struct rme_peer *peer, enum rme_stream stream)
{
    peer->proto->rts_in[stream]++;
    if (rme_rts_is_full(peer, stream)) {
        peer->rts_full = true;
        rme_window_report_due(peer);
    }
}
/* Accounts for an EAGER, in a buffer or in the ring, that was handed to the fabric. */
static inline void rme_eager_sent(struct rme_peer *peer, enum rme_stream stream, int32_t tag,
                                  uint64_t size)
{
    if (stream == RME_EXPECTED)
        rme_early_cts_message_sent(&peer->rndv->early, tag);
    else
        rme_peer_count(peer, RME_C_UNEXPECTED_SENT, 1);
    rme_window_add(&peer->eager_window[stream], size);
    rme_peer_count(peer, RME_C_SENDS_EAGER, 1);
    rme_peer_count(peer, RME_C_BYTES_SENT, size);
    rme_count_add(peer->rme, RME_C_BYTES_COPIED, size);
}
/* Do size and window allow this message to go eagerly?  Does not check credits. */
static inline bool rme_eager_fits(const struct rme_peer *peer, enum rme_stream stream,
                                  uint64_t size)
{
    return size <= peer->eager_max[stream] &&
           rme_window_fits(&peer->eager_window[stream], size);
}
/* Sends a message in one piece at once; false: not possible now. */
bool rme_eager_send_now(struct rme_peer *peer, enum rme_stream stream, const void *base,
                        uint64_t size, int32_t tag);
/* Sends the message with the other messages of this round; false: no credit or buffer. */
bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag);

/* Makes a message with room for `room` bytes, in no table; NULL: no memory, which ends the
 * link. */
struct rme_message *rme_message_new(struct rme_peer *peer, int32_t tag, size_t room);
/* Likewise, a copy of an eager message, or of an RTS and its offer. */
struct rme_message *rme_message_copy(struct rme_peer *peer,
                                     const struct rme_wire_message *arrived);
struct rme_message *rme_message_from_rts(struct rme_peer *peer,
                                         const struct rme_wire_message *arrived);
/* Matches a new receive with the oldest message of its tag. */
void rme_recv_match(struct rme *rme, struct rme_op *op, struct rme_match *first);
/* Makes an RTS wait: its sender's handle finds it, and its offer is accounted to the peer. */
void rme_message_wait(struct rme_message *message);
/* Removes a message from its tables and queues, and frees it. */
void rme_message_free(struct rme_message *message);
/* Frees the memory of a message that is in no table, or keeps it for another one. */
void rme_message_recycle(struct rme *rme, struct rme_message *message);
/* Frees the memory that is kept. */
void rme_message_clear(struct rme *rme);

/* ---- eager_rdma.c: the sender ---- */

rme_arrived_fn rme_ring_granted;
void rme_ring_withdrawn(struct rme_peer *peer);
rme_start_fn rme_ring_start;
void rme_ring_init(struct rme_ring *eager_rdma);
/* Handles the end of the link. */
void rme_ring_down(struct rme_peer *peer);
/* Writes the message into the peer's ring, from a copy: its memory is the host's again.  False:
 * no credit, no room or not a message for the ring. */
bool rme_ring_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag);
/* Handles the completion of a write, or of RELEASE: a transfer whose owner is NULL. */
void rme_ring_moved(struct rme_peer *peer, struct rme_rdma_op *rdma_op);

/* ---- rx_ring.c: the receiver ---- */

/* Returns the largest payload of a message in a ring, regardless of credits, windows and room.
 * `segments`: of the sender's memory if a rendezvous could copy it as well, else 0. */
uint64_t rme_ring_msg_max(const struct rme *rme, enum rme_stream stream, uint64_t segments);
/* Has the peer a granted ring, not yet released? */
static inline bool rme_ring_is_granted(const struct rme_peer *peer)
{
    return peer->credit.ring_due != 0;
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
/* Decodes the message in the ring granted to the peer that this immediate names; its payload
 * stays in place, which returns to the peer with the message's credit.  -ENOENT: the immediate
 * names none.  -EPROTO. */
int rme_ring_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message);
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

/* ---- send.c: order of sending ---- */

/* Sends queued messages and transfers, as far as credits and buffers allow. */
void rme_progress_tx(struct rme_peer *peer);

/* ---- arrive.c: arrivals of a peer ---- */

/* Are arrivals of this peer's link processed? */
static inline bool rme_peer_listens(const struct rme_peer *peer)
{
    return peer->state == RME_PEER_UP || peer->state == RME_PEER_ACCEPTING;
}

/* True if credits or windows of a header may permit a send.  A message that lacked a credit has
 * set `starved`; a message that waits for the peer's host is in a queue. */
static inline bool rme_peer_waits(const struct rme_peer *peer)
{
    const struct rme_sends *sends = peer->sends;

    return peer->starved || peer->credit.throttled || !list_empty(&peer->endings) ||
           !list_empty(&peer->control) || !list_empty(&peer->rdma_queue) ||
           !list_empty(&sends->sendq[RME_EXPECTED]) ||
           !list_empty(&sends->sendq[RME_UNEXPECTED_STREAM]);
}

/* Processes a received message if it is EAGER and fits a posted receive, and nothing else on
 * the link is affected.  False: nothing was done, and the message is to be decoded and taken
 * as any other one. */
bool rme_take_eager(struct rme_peer *peer, const void *data, size_t length);

/* Process a message, whose credits and windows are already applied, or an immediate.
 * rme_peer_listens() must be true. */
void rme_take_message(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_take_immediate(struct rme_peer *peer, uint32_t imm);

static inline void rme_rx_return(struct rme *rme, void *rx)
{
    if (rme->ops->rx_return(rme->fabric, rx))
        rme->pending |= RME_PENDING_FLUSH;
}

/* ---- unexp.c: unexpected messages, from arrival to delivery ---- */

rme_arrived_fn rme_unexp_arrived, rme_unexp_rts_arrived;
/* Handles the CANCEL of an RTS that no receive has taken. */
rme_cancelled_fn rme_message_cancelled;
/* Handles the end of the peer's link. */
void rme_unexp_disconnected(struct rme_peer *peer);

/* Takes the first complete message; NULL: none.  The host owns its buffer until
 * rme_unexp_free(). */
struct rme_message *rme_unexp_take(struct rme *rme);

/* Frees a message that the host has fetched; false: `buffer` is not the buffer of one. */
bool rme_unexp_free(struct rme *rme, const void *buffer);
/* Delivers the messages that were held back for ops that had ended before. */
void rme_unexp_publish(struct rme *rme);
/* Handles the end of a pull. */
void rme_unexp_pulled(struct rme *rme, struct rme_op *op);
void rme_unexp_clear(struct rme *rme);

#endif
