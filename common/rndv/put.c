/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sender's end of a rendezvous: RTS, and the receiver's answers. */

#include "rndv/rndv.h"

/* offers per peer that hold a bounce buffer or a registration of their own */
#define COSTLY_OFFERS 16
/* sends per peer whose memory is prepared before RTS; more would wait for the same threads */
#define PREPARING_MAX 4u

void rme_rndv_plan_send(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_plan_in in = rme_rndv_plan_in_send(rme, op->size, rme_rndv_own_side(rme, op));
    struct rme_plan plan;

    rme_rndv_new(rme, op);
    peer->sends->preparing += op->kind == RME_OP_SEND;
    in.recv.segments = peer->rndv->shape;
    in.busy = peer->rndv->rts_out[rme_op_stream(op)] != 0;
    in.recv.server = (peer->hello.flags & RME_HELLO_F_SERVER) != 0;
    in.has_read = (peer->hello.flags & RME_HELLO_F_READ) != 0;
    rme_plan(&in, &plan);
    op->rndv.memory = plan.send_pack ? RME_MEMORY_PACK : RME_MEMORY_DIRECT;
    op->rndv.max_segs = rme_mw_segments_max(rme, RME_WIRE_RTS, peer->tx_size);
    op->rndv.access = plan.offer ? RME_ACCESS_REMOTE_READ : RME_ACCESS_LOCAL;
}

/*
 * May memory of this kind be offered?  An offer may wait long for its receive, so the resources
 * that it holds are bounded: a few bounce buffers for each peer, or registrations of their own,
 * and no reserve block.  Without an offer the memory is prepared when the receiver answers.
 */
static bool offerable(const struct rme_op *op, uint8_t memory)
{
    return (memory == RME_MEMORY_DIRECT && !op->peer->rme->caps->register_each) ||
           (memory != RME_MEMORY_RESERVE &&
            op->peer->rndv->rts_out[rme_op_stream(op)] < COSTLY_OFFERS);
}

/* Drops the offer: RTS goes without one. */
static void offer_nothing(struct rme *rme, struct rme_op *op, struct rme_frag *frag)
{
    rme_frag_free(rme, frag);
    op->rndv.prepared = 0;
    op->rndv.access = RME_ACCESS_LOCAL;
}

/* Prepares the whole message as one fragment, for the offer in RTS; NULL with *wait: not ready
 * yet, or stopped; NULL alone: no offer. */
static struct rme_frag *offered_frag(struct rme *rme, struct rme_op *op, bool *wait)
{
    struct rme_rndv *r = &op->rndv;
    struct rme_frag *frag = rme_frag_first(op);

    *wait = false;
    if (r->access != RME_ACCESS_REMOTE_READ)
        return NULL;
    if (frag == NULL) {
        if (!offerable(op, r->memory))
            return NULL;
        *wait = !rme_frag_next(rme, op); /* the op was stopped */
        if (*wait)
            return NULL;
        frag = rme_frag_first(op);
    }
    if (frag->length == op->size && offerable(op, frag->memory)) {
        *wait = frag->state != RME_FRAG_READY;
        return *wait ? NULL : frag;
    }
    offer_nothing(rme, op, frag);
    return NULL;
}

bool rme_rndv_may_start(const struct rme_op *op)
{
    const struct rme_peer *peer = op->peer;
    uint32_t out = peer->rndv->rts_out[rme_op_stream(op)];

    if (op->has_rndv || op->kind == RME_OP_UNEXPECTED)
        return out < peer->hello.rts_max;
    /* sends in preparation have precedence */
    return peer->sends->preparing < PREPARING_MAX &&
           out + peer->sends->preparing < peer->hello.rts_max;
}

enum rme_started rme_rndv_start(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    enum rme_stream stream = rme_op_stream(op);
    struct rme_frag *frag = op->has_rndv ? rme_frag_first(op) : NULL;
    bool wait;
    void *tx;

    /* of an unused invitation: the receiver may answer RTS, or have room for it, much later */
    if (frag != NULL && op->rndv.access != RME_ACCESS_REMOTE_READ)
        offer_nothing(rme, op, frag);
    if (!rme_rndv_may_start(op))
        return RME_START_WAIT;
    if (!op->has_rndv)
        rme_rndv_plan_send(rme, op);
    frag = offered_frag(rme, op, &wait);
    if (wait)
        return op->state == RME_OP_QUEUED ? RME_START_PREPARE : RME_START_GONE;
    tx = rme_peer_tx(peer, RME_CREDIT_DATA);
    if (tx == NULL)
        return RME_START_STUCK;
    if (frag != NULL && !rme_frag_bind(peer, frag, true)) {
        offer_nothing(rme, op, frag);
        frag = NULL;
    }
    rme_rts_send(op, frag, tx);
    if (frag != NULL)
        frag->state = RME_FRAG_POSTED;
    if (op->kind == RME_OP_SEND)
        rme_early_cts_message_sent(&peer->rndv->early, op->tag);
    rme_send_leave(op);
    peer->rndv->rts_out[stream]++;
    op->rndv.rts_out = true;
    rme_op_step(op, RME_OP_RTS);
    return RME_START_GONE;
}

/* Finds the send of an answer; NULL: none, a protocol error of the peer. */
static struct rme_op *answered(struct rme_peer *peer, uint32_t handle)
{
    struct rme_op *op = rme_rndv_find(peer, handle);

    if (op == NULL || !rme_op_sends(op) || !op->rndv.rts_out)
        return NULL;
    return op;
}

/* Adds a window of the receiver's memory, the first one or a further one. */
static void receiver_opened(struct rme_op *op, const struct rme_wire_message *message)
{
    struct rme *rme = op->peer->rme;
    struct rme_frag *offered = rme_frag_first(op);

    if (!rme_rndv_open(op, message))
        return;
    if (op->state == RME_OP_RTS) {
        if (offered != NULL)
            offered->state = RME_FRAG_READY;
        rme_rndv_set_peer_handle(op, message->from);
        op->rndv.max_segs = UINT32_MAX;
        op->rndv.access = RME_ACCESS_LOCAL;
        rme_frags_invalidate(rme, op); /* the memory offered for reads */
        rme_rndv_begin(rme, op, RME_OP_MOVING);
    } else {
        rme_rndv_advance(rme, op);
    }
}

/* Notes the receiver's segments for the next plan.  Devices whose openings cost little have
 * limits that were measured without. */
static void learn_shape(struct rme_peer *peer, const struct rme_wire_message *message)
{
    if (message->shape != 0 && peer->rme->limits->window != 0)
        peer->rndv->shape = message->shape;
}

void rme_cts_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = answered(peer, message->to);

    if (op == NULL ||
        (op->state == RME_OP_MOVING && message->from != rme_rndv_peer_handle(op))) {
        rme_peer_protocol_error(peer, "a CTS without a matching send");
        return;
    }
    learn_shape(peer, message);
    if (op->state == RME_OP_RTS || op->state == RME_OP_MOVING)
        receiver_opened(op, message); /* else being cancelled: CANCEL is queued or sent */
}

/* Handles a FIN that refuses a send, or that answers CANCEL.  Legal without an op: the op has
 * ended after CANCEL was sent.  A refusal that crosses CANCEL is the result: the receive has
 * taken the message. */
static void left_by_peer(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = rme_rndv_find(peer, message->to);

    if (op == NULL)
        return;
    if (op->state == RME_OP_CANCELLING)
        rme_op_end(peer->rme, op,
                   message->status == RME_WIRE_CANCELED
                       ? op->rndv.stop_error
                       : rme_wire_status_error(message->status));
    else if (op->state == RME_OP_RTS)
        rme_op_end(peer->rme, op, rme_wire_status_error(message->status));
}

/* Has RTS offered the memory of a send that the receiver has not answered by CTS? */
static bool is_offered(const struct rme_op *op)
{
    const struct rme_frag *frag = rme_frag_first(op);

    return op->state != RME_OP_MOVING && frag != NULL && frag->state == RME_FRAG_POSTED;
}

void rme_fin_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme *rme = peer->rme;
    struct rme_op *op = answered(peer, message->to);

    if (message->status != RME_WIRE_OK) {
        left_by_peer(peer, message);
        return;
    }
    if (op == NULL && message->offset != 0 &&
        rme_rndv_written(peer, message->to, message->offset))
        return;
    if (op == NULL || message->offset != op->size || (op->size != 0 && !is_offered(op))) {
        rme_peer_protocol_error(peer, "a FIN without an offer that it answers");
        return;
    }
    learn_shape(peer, message);
    op->rndv.reads = true;
    rme_rndv_target_done(rme, op, op->size);
}
