/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RTS and its answers: a sender starts without the knowledge of the receiver's choice, and the
 * receiver chooses the algorithm.  Arrivals go to the stage of the op that they name.
 */
#include <errno.h>

#include "rndv/rndv.h"

/* offers per peer that hold a bounce buffer or a registration of their own */
#define COSTLY_OFFERS 16
/* sends per peer whose memory is prepared before RTS; more would wait for the same threads */
#define PREPARING_MAX 4u

/* A sender, until the receiver has chosen. */
static const struct rme_rndv_stage sender[RME_OP_STATES] = {
    [RME_OP_QUEUED] = {.advance = rme_send_ready},
    [RME_OP_RTS] = {.opened = rme_put_begin, .moved = rme_rndv_target_done},
};

bool rme_rndv_plan_send(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_plan_in in = rme_rndv_plan_in_send(rme, op->size, rme_rndv_own_side(rme, op));
    struct rme_plan plan;

    if (!rme_rndv_new(rme, op, sender)) {
        rme_op_stop(rme, op, RME_STOP_MEMORY, -ENOMEM);
        return false;
    }
    peer->sends->preparing += op->kind == RME_OP_SEND;
    in.recv.segments = peer->rndv->shape;
    in.busy = peer->rndv->rts_out[rme_op_stream(op)] != 0;
    in.recv.server = (peer->hello.flags & RME_HELLO_F_SERVER) != 0;
    in.has_read = (peer->hello.flags & RME_HELLO_F_READ) != 0;
    rme_plan(&in, &plan);
    op->rndv->memory = plan.send_pack ? RME_MEMORY_PACK : RME_MEMORY_DIRECT;
    op->rndv->max_segs = rme_mw_segments_max(rme, RME_WIRE_RTS, peer->tx_size);
    op->rndv->access = plan.offer ? RME_ACCESS_REMOTE_READ : RME_ACCESS_LOCAL;
    return true;
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
    op->rndv->prepared = 0;
    op->rndv->access = RME_ACCESS_LOCAL;
}

/* Prepares the whole message as one fragment, for the offer in RTS.  RME_START_OTHER: RTS may
 * be sent, with the offer unless *offered is NULL. */
static enum rme_started prepare_offer(struct rme *rme, struct rme_op *op,
                                      struct rme_frag **offered)
{
    struct rme_frag *frag = rme_frag_first(op);

    *offered = NULL;
    if (op->rndv->access != RME_ACCESS_REMOTE_READ ||
        (frag == NULL && !offerable(op, op->rndv->memory)))
        return RME_START_OTHER;
    frag = rme_rndv_first(rme, op);
    if (frag == NULL)
        return op->state == RME_OP_QUEUED ? RME_START_OTHER : RME_START_GONE;
    if (frag->length != op->size || !offerable(op, frag->memory)) {
        offer_nothing(rme, op, frag);
        return RME_START_OTHER;
    }
    *offered = frag;
    return frag->state == RME_FRAG_READY ? RME_START_OTHER : RME_START_PREPARE;
}

bool rme_rndv_may_start(const struct rme_op *op)
{
    const struct rme_peer *peer = op->peer;
    uint32_t out = peer->rndv->rts_out[rme_op_stream(op)];

    if (op->rndv != NULL || op->kind == RME_OP_UNEXPECTED)
        return out < peer->hello.rts_max;
    /* sends in preparation have precedence */
    return peer->sends->preparing < PREPARING_MAX &&
           out + peer->sends->preparing < peer->hello.rts_max;
}

enum rme_started rme_rndv_start(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_frag *frag = op->rndv != NULL ? rme_frag_first(op) : NULL;
    enum rme_started started;
    void *tx;

    /* of an unused early CTS: the receiver may answer RTS, or have room for it, much later */
    if (frag != NULL && op->rndv->access != RME_ACCESS_REMOTE_READ)
        offer_nothing(rme, op, frag);
    if (!rme_rndv_may_start(op))
        return RME_START_WAIT;
    if (op->rndv == NULL && !rme_rndv_plan_send(rme, op))
        return RME_START_GONE;
    started = prepare_offer(rme, op, &frag);
    if (started != RME_START_OTHER)
        return started;
    tx = rme_peer_tx(peer, RME_CREDIT_DATA);
    if (tx == NULL)
        return RME_START_STUCK;
    if (frag != NULL && rme_frag_bind(peer, frag, true) != 0) {
        offer_nothing(rme, op, frag);
        frag = NULL;
    }
    rme_rts_send(op, frag, tx);
    if (frag != NULL)
        frag->state = RME_FRAG_POSTED;
    if (op->kind == RME_OP_SEND)
        rme_early_cts_message_sent(&peer->rndv->early, op->tag);
    rme_send_leave(op);
    peer->rndv->rts_out[rme_op_stream(op)]++;
    op->rndv->rts_out = true;
    rme_op_step(op, RME_OP_RTS);
    return RME_START_GONE;
}

/* ---- The receiver ---- */

/* Makes a receive a rendezvous; false after failing the link. */
static bool receive_new(struct rme *rme, struct rme_op *op)
{
    if (rme_rndv_new(rme, op, rme_put_stages))
        return true;
    rme_peer_fail(op->peer, -ENOMEM, "no memory for a rendezvous");
    return false;
}

/*
 * Plans a receive.  The sender's load in RTS does not include work that this side has given the
 * sender since, perhaps for other messages that came along with this one.  The larger of the
 * two figures is closer to the truth.
 */
static void plan_receive(struct rme *rme, struct rme_op *op, const struct rme_message *rts,
                         struct rme_plan *plan)
{
    const struct rme_peer *peer = op->peer;
    struct rme_plan_in in = rme_rndv_plan_in(rme, op->size);
    in.send = (struct rme_plan_side){
        .segments = rts->remote_window != NULL ? rts->remote_window->nsegment : rts->shape,
        .ready = rts->remote_window != NULL,
        .server = (peer->hello.flags & RME_HELLO_F_SERVER) != 0,
        .load = {.ops = peer->load.ops > rts->load.ops ? peer->load.ops : rts->load.ops,
                 .bytes =
                     peer->load.bytes > rts->load.bytes ? peer->load.bytes : rts->load.bytes}};
    in.recv = rme_rndv_own_side(rme, op);
    in.nothing_to_read = rts->remote_window == NULL;
    rme_plan(&in, plan);
}

void rme_rndv_receive(struct rme *rme, struct rme_op *op, struct rme_message *rts)
{
    struct rme_plan plan;

    op->size = rts->total;
    if (!receive_new(rme, op))
        return;
    rme_rndv_set_peer_handle(op, rts->from);
    if (op->size > op->total || op->size == 0) {
        op->rndv->reads = true; /* an empty one counts as read */
        rme_rndv_finish(rme, op, op->size != 0 ? -EMSGSIZE : 0);
        return;
    }
    plan_receive(rme, op, rts, &plan);
    op->rndv->memory = plan.recv_pack ? RME_MEMORY_PACK : RME_MEMORY_DIRECT;
    if (plan.proto == RME_PROTO_RNDV_READ)
        rme_get_receive(rme, op, rts);
    else
        rme_put_receive(rme, op);
}

void rme_rndv_refuse(struct rme *rme, struct rme_op *op, uint32_t place)
{
    if (!receive_new(rme, op))
        return;
    op->rndv->refuses = true;
    op->rndv->theirs.key = place;
    rme_rndv_finish(rme, op, -EMSGSIZE);
}

/* ---- Arrivals ---- */

/* Notes the receiver's segments for the next plan.  Devices whose openings cost little have
 * limits that were measured without. */
static void learn_shape(struct rme_peer *peer, const struct rme_wire_message *message)
{
    if (message->shape != 0 && peer->rme->limits->window != 0)
        peer->rndv->shape = message->shape;
}

void rme_cts_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = rme_rndv_answered(peer, message->to);

    if (op == NULL ||
        (op->state == RME_OP_MOVING && message->from != rme_rndv_peer_handle(op))) {
        rme_peer_protocol_error(peer, "a CTS without a matching send");
        return;
    }
    learn_shape(peer, message);
    /* a stopped op has none: CANCEL is queued or sent */
    if (op->rndv->stages[op->state].opened != NULL)
        op->rndv->stages[op->state].opened(op, message);
}

bool rme_rndv_written(struct rme_peer *peer, uint32_t handle, uint64_t end)
{
    struct rme_op *op = rme_rndv_find(peer, handle);
    struct rme_frag *frag = NULL;

    if (op != NULL && !rme_op_sends(op) && op->rndv->stages[op->state].moved != NULL)
        frag = rme_frag_first(op);
    if (frag == NULL || frag->state != RME_FRAG_POSTED ||
        (end != 0 && end != frag->offset + frag->length))
        return false;
    op->rndv->stages[op->state].moved(peer->rme, op, frag->offset + frag->length);
    return true;
}

void rme_fin_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = rme_rndv_find(peer, message->to);

    /* without an op, FIN crosses the answer to CANCEL, or answers a CANCEL of an ended op */
    if (message->status != RME_WIRE_OK) {
        if (op != NULL)
            rme_op_stop(peer->rme, op, RME_STOP_FIN, rme_wire_status_error(message->status));
        return;
    }
    op = rme_rndv_answered(peer, message->to);
    if (op == NULL && message->offset != 0 &&
        rme_rndv_written(peer, message->to, message->offset))
        return;
    if (op == NULL || !rme_fin_is_valid(op, message) ||
        op->rndv->stages[op->state].moved == NULL) {
        rme_peer_protocol_error(peer, "a FIN without an offer that it answers");
        return;
    }
    learn_shape(peer, message);
    op->rndv->reads = true;
    op->rndv->stages[op->state].moved(peer->rme, op, op->size);
}
