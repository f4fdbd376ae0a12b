/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The receiver's end of a rendezvous, which decides the side that moves the data. */
#include <errno.h>

#include "rndv/rndv.h"

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
    struct rme_rndv *r = &op->rndv;
    struct rme_plan plan;

    op->size = rts->total;
    rme_rndv_new(rme, op);
    rme_rndv_set_peer_handle(op, rts->from);
    if (op->size > op->total || op->size == 0) {
        r->reads = true; /* an empty one counts as read */
        rme_rndv_finish(rme, op, op->size != 0 ? -EMSGSIZE : 0);
        return;
    }
    plan_receive(rme, op, rts, &plan);
    r->memory = plan.recv_pack ? RME_MEMORY_PACK : RME_MEMORY_DIRECT;
    r->reads = plan.proto == RME_PROTO_RNDV_READ;
    if (r->reads) {
        r->access = RME_ACCESS_LOCAL_WRITE;
        list_add_tail(&rts->remote_window->link, &r->remote_windows);
        rts->remote_window = NULL;
    } else {
        r->access = RME_ACCESS_REMOTE_WRITE;
        r->max_segs = rme_mw_segments_max(rme, RME_WIRE_CTS, op->peer->tx_size);
    }
    rme_rndv_begin(rme, op, r->reads ? RME_OP_MOVING : RME_OP_TARGET);
}

void rme_rndv_refuse(struct rme *rme, struct rme_op *op, uint32_t place)
{
    rme_rndv_new(rme, op);
    op->rndv.refuses = true;
    op->rndv.theirs.key = place;
    rme_rndv_finish(rme, op, -EMSGSIZE);
}

bool rme_rndv_written(struct rme_peer *peer, uint32_t handle, uint64_t end)
{
    struct rme *rme = peer->rme;
    struct rme_op *op = rme_rndv_find(peer, handle);
    struct rme_frag *frag = NULL;

    if (op != NULL && !rme_op_sends(op) &&
        (op->state == RME_OP_TARGET || op->state == RME_OP_CANCELLING ||
         op->state == RME_OP_INVITING))
        frag = rme_frag_first(op);
    if (frag == NULL || frag->state != RME_FRAG_POSTED ||
        (end != 0 && end != frag->offset + frag->length))
        return false;
    if (op->state == RME_OP_INVITING)
        peer->rndv->early.fail_streak = 0;
    rme_rndv_target_done(rme, op, frag->offset + frag->length);
    return true;
}
