/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Protocol state of each peer and of the engine, and functions of the protocols for each other
 * and for the engine. */
#ifndef RME_PROTO_H
#define RME_PROTO_H

#include "op/message.h"
#include "op/tags.h"
#include "ring/ring.h"
#include "rndv/rndv.h"

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
    struct rme_ring ring; /* see ring/ring.h */
};

/* Protocol state of the engine. */
struct rme_protocols {
    /* first complete message of each peer, for the host (struct rme_message) */
    struct list_head unexpected;
    uint64_t unexpected_changes;  /* number of messages completed and fetched so far */
    struct list_head unpublished; /* likewise, to be delivered after the ops in `ended` */
    struct list_head spare;       /* memory of messages, kept for others (eager.c) */
    size_t spare_bytes;           /* sum of the room in it */
};

/* ---- protocols.c: the tables of protocols and messages ---- */

/* A protocol. */
struct rme_protocol {
    /* the last answer of the planner for which the protocol is tried */
    enum rme_proto plan;
    /* Starts a send.  RME_START_OTHER: no room, or no condition of the protocol holds. */
    rme_start_fn *start;
    /* Handles a CANCEL that names an object of the protocol; NULL: the protocol has none. */
    rme_cancelled_fn *cancelled;
};

/* Starts a send by the protocol that the planner has chosen, or by the first one behind it that
 * can; the last one takes every send. */
enum rme_started rme_send_start(struct rme_op *op);

/* A type of message, without and with the flag of its second meaning. */
struct rme_arrival {
    rme_arrived_fn *arrived[2]; /* NULL: only the header counts */
    bool starts[2];             /* the message used a credit outside the reserve */
    uint8_t flag;
};
#define RME_ARRIVALS (RME_WIRE_PONG + 1)
extern const struct rme_arrival rme_arrivals[RME_ARRIVALS]; /* by type */

/* ---- proto.c ---- */

/* Functions of the protocols for transport/ and op/. */
extern const struct rme_peer_ops rme_proto_peer_ops;

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
/* Asks the planner for the protocol of a message; RNDV_WRITE: a rendezvous of either kind. */
enum rme_proto rme_message_plan(const struct rme_peer *peer, enum rme_stream stream,
                                const struct rme_seg *seg, uint32_t nseg, uint64_t size);
/* Likewise, of a send, which stays a rendezvous once it has been one. */
static inline enum rme_proto rme_send_plan(const struct rme_op *op)
{
    return op->rndv != NULL
               ? RME_PROTO_RNDV_WRITE
               : rme_message_plan(op->peer, rme_op_stream(op), op->seg, op->nseg, op->size);
}
/* Is the message eager, and does the window allow it?  Does not check credits. */
static inline bool rme_eager_fits(const struct rme_peer *peer, enum rme_stream stream,
                                  uint64_t size)
{
    return rme_plan_copied(size, peer->eager_max[stream], 0) == RME_PROTO_EAGER &&
           rme_window_fits(&peer->eager_window[stream], size);
}
/* Sends a message in one piece at once; false: not possible now. */
bool rme_eager_send_now(struct rme_peer *peer, enum rme_stream stream, const void *base,
                        uint64_t size, int32_t tag);
/* Sends the message with the other messages of this round; false: no credit or buffer. */
bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag);

/* Writes a message, planned for the ring, into the peer's one; false: no credit or no room. */
bool rme_ring_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag);
rme_start_fn rme_ring_start;

/* Makes a message with room for `room` bytes, in no table; NULL: no memory, which ends the
 * link. */
struct rme_message *rme_message_new(struct rme_peer *peer, int32_t tag, size_t room);
/* Likewise, a copy of an eager message; or of an RTS and its offer, which must not exceed the
 * limit of its stream, and may want a ring. */
struct rme_message *rme_message_copy(struct rme_peer *peer, int32_t tag, const void *payload,
                                     size_t size);
struct rme_message *rme_message_from_rts(struct rme_peer *peer, enum rme_stream stream,
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

/* Takes a received message if it is EAGER and expected, without decoding more than its header.
 * False: nothing was done, and the message is to be decoded and taken as any other one. */
bool rme_take_eager(struct rme_peer *peer, const void *data, size_t length);

/* Takes a message of `length` bytes from a receive buffer or from the ring; `error` is the
 * result of its decoder.  rme_peer_listens() must be true, also for an immediate. */
void rme_take_message(struct rme_peer *peer, int error, const struct rme_wire_message *message,
                      size_t length, bool in_ring);
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
/* For rme_proto_peer_ops, which has their descriptions. */
void rme_unexp_discard(struct rme_peer *peer);
bool rme_unexp_has_messages(const struct rme_peer *peer);
void rme_unexp_deliver(struct rme_peer *peer);

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
