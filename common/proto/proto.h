/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Protocol state of each peer and of the engine, and functions of the protocols for each other
 * and for the engine. */
#ifndef RME_PROTO_H
#define RME_PROTO_H

#include "op/operations.h"
#include "proto/eager_rdma.h"
#include "proto/invite.h"

struct rme_message;

/* Protocol state of a peer. */
struct rme_peer_proto {
    uint32_t posted; /* number of sends QUEUED so far */
    uint32_t links;  /* number of links so far */
    /* QUEUED sends in order, except those out of the queue (send.c) */
    struct list_head sendq[RME_STREAMS];
    struct list_head waitq; /* large sends that wait for an RTS slot, in order */
    uint32_t tags_blocked;  /* number of tags that a waiting send blocks */
    /* expected QUEUED sends with an rme_rndv: their memory is ready or being prepared */
    uint32_t preparing;
    struct list_head messages; /* unmatched expected messages (struct rme_message) */
    /* unexpected messages that are incomplete or behind one (struct rme_message) */
    struct list_head unexpected;
    struct list_head pulls; /* the RTS of `unexpected` that wait for room */
    /* complete unexpected messages that the host has not fetched */
    struct list_head complete;
    uint32_t rts_out[RME_STREAMS]; /* RTS held by the peer */
    uint32_t rts_in[RME_STREAMS];  /* RTS of the peer held here */
    /* cost of unexpected messages being pulled, or pulled and not fetched */
    uint32_t pulled;
    struct rme_invites invites;       /* see invite.c */
    struct rme_eager_rdma eager_rdma; /* see eager_rdma.c */
};

/* Protocol state of the engine. */
struct rme_protocols {
    bool forceful;            /* cancels of the host do not wait for the peer */
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
static inline void rme_eager_rdma_say(struct rme_peer *peer, uint16_t flag)
{
    struct rme_eager_rdma *eager_rdma = &peer->proto->eager_rdma;

    eager_rdma->due |= flag;
    if (list_empty(&eager_rdma->control.link))
        list_add_tail(&eager_rdma->control.link, &peer->control);
    rme_peer_schedule(peer);
}

/* ---- send.c: order of sending ---- */

/* Sends queued messages and transfers, as far as credits and buffers allow. */
void rme_progress_tx(struct rme_peer *peer);

/* ---- tags.c: sends that hold their tag ---- */

/* Returns the send that holds a tag; NULL: none. */
struct rme_op *rme_tag_holder(const struct rme_peer *peer, int32_t tag);
/* Dequeues the send and lets it hold its tag, in the peer's `waitq`; NULL: until
 * rme_send_ready. */
void rme_send_wait(struct rme_op *op, struct list_head *waitq);
/* Removes a QUEUED send from its queue, because it is sent or ends, and passes its tag on. */
void rme_send_leave(struct rme_op *op);
/* Lets a QUEUED send be tried next, because its memory is ready. */
void rme_send_ready(struct rme_op *op);

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
    const struct rme_peer_proto *proto = peer->proto;

    return peer->starved || peer->credit.throttled || !list_empty(&peer->endings) ||
           !list_empty(&peer->control) || !list_empty(&peer->rdma_queue) ||
           !list_empty(&proto->sendq[RME_EXPECTED]) ||
           !list_empty(&proto->sendq[RME_UNEXPECTED_STREAM]);
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

/* ---- cancel.c: cancellation of operations, and refusal of messages ---- */

rme_arrived_fn rme_refusal_arrived;

/* Cancels an op for the host. */
void rme_cancel_op(struct rme *rme, struct rme_op *op);
/* Returns true if a CANCEL has had no answer for cancel_ms.  Otherwise sets peer->cancel_by to
 * the next deadline. */
bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now);
/* Sends FIN, the answer to CANCEL, for an operation of the peer that has no other end here;
 * false: no credit or buffer. */
bool rme_cancel_answer(struct rme_peer *peer, uint32_t to);

#endif
