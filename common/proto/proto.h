/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Protocol state of each peer and of the engine, and functions of the protocols for each other
 * and for the engine. */
#ifndef RME_PROTO_H
#define RME_PROTO_H

#include <stdlib.h>

#include "move/move.h"
#include "ring/ring.h"

struct rme_message;

/* State of a peer, for one link: memory that is open to the sender before RTS (invite.c). */
struct rme_invites {
    /* receive whose invitation is neither matched nor void; NULL: none */
    struct rme_op *inviting;
    uint32_t seen; /* EAGER and RTS of expected messages received, modulo 2^32 */
    /* void invitations in a row, then also receives that did not invite */
    uint32_t fail_streak;

    struct rme_remote_window *held; /* the peer's invitation; NULL: none */
    int32_t tag;                    /* of the invited messages */
    uint32_t from;                  /* handle of the peer's receive */
    struct rme_control answer;      /* FIN to the peer's last CANCEL of an invitation */
    uint32_t cancelled;             /* handle of its receive */
    uint32_t sent;                  /* EAGER and RTS of expected messages sent, modulo 2^32 */
};

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
    uint32_t shape; /* segments of the peer's last receive by rendezvous; 0: unknown */
    /* cost of unexpected messages being pulled, or pulled and not fetched */
    uint32_t pulled;
    struct rme_invites invites; /* see invite.c */
    struct rme_ring ring;       /* see ring/ring.h */
};

/* Protocol state of the engine. */
struct rme_protocols {
    bool forceful; /* cancels of the host do not wait for the peer */
    /* first complete message of each peer, for the host (struct rme_message) */
    struct list_head unexpected;
    uint64_t unexpected_changes;  /* number of messages completed and fetched so far */
    struct list_head unpublished; /* likewise, to be delivered after the ops in `ended` */
    struct list_head spare;       /* memory of messages, kept for others (eager.c) */
    size_t spare_bytes;           /* sum of the room in it */
};

/* ---- invite.c: invitations ---- */

void rme_invites_init(struct rme_invites *invites);
/* The receiver. */
/* Lets a receive invite, if possible: the oldest of its tag, after a receive was posted. */
void rme_invite_try(struct rme *rme, struct rme_op *op);
/* Voids the invitation, because an EAGER or RTS has met the receive, which is POSTED again. */
void rme_invite_void(struct rme *rme, struct rme_op *op);

/* The sender. */
rme_arrived_fn rme_invite_arrived;
rme_start_fn rme_invite_start;
rme_cancelled_fn rme_invite_cancelled;

/* Drops the held invitation, if any. */
static inline void rme_invite_drop(struct rme_invites *invites)
{
    free(invites->held);
    invites->held = NULL;
}
/* Notes an EAGER or RTS, which voids a held invitation for its tag. */
static inline void rme_invite_sent(struct rme_invites *invites, int32_t tag)
{
    invites->sent++;
    if (invites->held != NULL && invites->tag == tag)
        rme_invite_drop(invites);
}
/* Is a held invitation for an expected message of this tag and size? */
static inline bool rme_invite_is_for(const struct rme_invites *invites, int32_t tag,
                                     uint64_t size)
{
    return invites->held != NULL && invites->tag == tag && invites->held->length == size;
}

/* ---- eager.c: matching of expected messages, and messages that precede their receives ---- */

rme_arrived_fn rme_eager_arrived, rme_rts_arrived;
rme_start_fn rme_eager_start;

/* ---- Windows of a peer without RTS slots: see credit.c ---- */

static inline bool rme_rts_is_full(const struct rme_peer *peer, enum rme_stream stream)
{
    return peer->proto->rts_in[stream] >= peer->rme->tuning.rts_max;
}
static inline void rme_window_report_due(struct rme_peer *peer)
{
    peer->credit.window_due = true;
    rme_peer_schedule(peer);
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
/* Frees room in the window of a stream. */
static inline void rme_window_free(struct rme_peer *peer, enum rme_stream stream,
                                   uint64_t payload)
{
    rme_window_consumed(&peer->holding[stream], payload);
    if (peer->rts_full)
        rme_window_report_due(peer);
}

/* Accounts for an EAGER, in a buffer or in the ring, that was handed to the fabric. */
static inline void rme_eager_sent(struct rme_peer *peer, enum rme_stream stream, int32_t tag,
                                  uint64_t size)
{
    if (stream == RME_EXPECTED)
        rme_invite_sent(&peer->proto->invites, tag);
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

/* Writes a message into the peer's ring; false: no credit, no room, or not a message for the
 * ring. */
bool rme_ring_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag);
rme_start_fn rme_ring_start;

/* A message that no operation has taken: an unmatched expected one; an unexpected one, which
 * the host owns once it has fetched it; also, temporarily, an RTS that matches at once. */
struct rme_message {
    /* expected: in the table of receives and unmatched messages; unexpected and fetched:
     * `keyed` in the table of fetched messages */
    struct rme_match match;
    /* expected or cancelled: in `messages` of the peer; unexpected: in `unexpected` of the
     * peer; the first complete one of a peer in rme_protocols.unexpected */
    struct list_head link;
    struct list_head waiting;   /* unexpected: in the peer's `pulls`, later in its `complete` */
    struct rme_keyed by_handle; /* of an RTS that waits */
    struct rme_control answer;  /* FIN of an RTS that was cancelled */
    struct rme_peer *peer;      /* NULL once the host has fetched the message */
    struct rme_addr *sender;    /* from then on, with a reference */
    int32_t tag;
    bool is_rts;
    bool pulled;   /* arrived as RTS and is being pulled, or was */
    bool complete; /* unexpected: `data` is the whole message */
    bool dropped;  /* the host has discarded the message, which is still being pulled */
    uint8_t flags; /* of its header */
    /* RTS: the sender's handle; expected and eager: the message's place (cancel.c); unexpected
     * and eager: number of the peer's link in whose window the message counts */
    uint32_t from;
    uint32_t shape;
    struct rme_load load;                    /* of the sender */
    uint64_t total;                          /* bytes of the message */
    struct rme_remote_window *remote_window; /* memory offered by the RTS; NULL: none */
    size_t rx_buffered;          /* bytes in the receive-side accounting of the peer */
    size_t room;                 /* of `data` */
    _Alignas(16) uint8_t data[]; /* the payload, if not an RTS */
};

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

/* ---- rndv.c: rendezvous, common to both ends ---- */

rme_cancelled_fn rme_rndv_cancelled;

/* Starts the use of op->rndv, under a new handle. */
void rme_rndv_new(struct rme *rme, struct rme_op *op);
void rme_rndv_set_peer_handle(struct rme_op *op, uint32_t handle);
/* Finds an op of this peer by its own handle; NULL: none. */
struct rme_op *rme_rndv_find(struct rme_peer *peer, uint32_t handle);

/*
 * Describes this side of a message to the planner: memory of `segments` segments, `ready` if it
 * is registered independently of the message (memory of zones).  rme_rndv_own_side() describes
 * the memory of an operation.
 */
struct rme_plan_side rme_rndv_side(const struct rme *rme, uint64_t segments, bool ready);
struct rme_plan_side rme_rndv_own_side(struct rme *rme, const struct rme_op *op);
/* Describes this engine and its device to the planner; the caller fills in the two sides. */
struct rme_plan_in rme_rndv_plan_in(const struct rme *rme, uint64_t bytes);

/* Enters TARGET or MOVING, counts the op in the load of the side that moves, and advances. */
void rme_rndv_begin(struct rme *rme, struct rme_op *op, enum rme_op_state state);
/* Continues a stopped op.  Without transfers in flight, queues its last control message, and
 * ends the op or waits for the peer's answer. */
void rme_rndv_halt(struct rme *rme, struct rme_op *op);
/* Ends the link unless the op, which the host cancelled, ends or continues within cancel_ms. */
void rme_rndv_limit(struct rme *rme, struct rme_op *op);
/* Unpacks and frees the fragments up to `done`, which the peer has moved. */
void rme_rndv_target_done(struct rme *rme, struct rme_op *op, uint64_t done);

/* ---- rndv_send.c, rndv_recv.c ---- */

rme_arrived_fn rme_cts_arrived, rme_fin_arrived;
rme_start_fn rme_rndv_start;
/* Returns true if the start would not return RME_START_WAIT. */
bool rme_rndv_may_start(const struct rme_op *op);
/* Plans a send with the receiver's side unknown: the use of its memory, and whether the memory
 * is offered. */
void rme_rndv_plan_send(struct rme *rme, struct rme_op *op);

/* Starts a receive (or pull) that an RTS has matched. */
void rme_rndv_receive(struct rme *rme, struct rme_op *op, struct rme_message *rts);
/* Ends a receive that is too small for the eager message of op->size bytes at `place`, once FIN
 * has reported that to the sender. */
void rme_rndv_refuse(struct rme *rme, struct rme_op *op, uint32_t place);
/* The peer reports that the first window of a receive is written, by an immediate or by FIN,
 * which names the window's end.  False: there is no such window. */
bool rme_rndv_written(struct rme_peer *peer, uint32_t handle, uint64_t end);

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
/* Returns true if a CANCEL has had no answer, or a transfer of a cancelled op has not ended,
 * for cancel_ms.  Otherwise sets peer->cancel_by to
 * the next deadline. */
bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now);
/* Sends FIN, the answer to CANCEL, for an operation of the peer that has no other end here;
 * false: no credit or buffer. */
bool rme_cancel_answer(struct rme_peer *peer, uint32_t to);

#endif
