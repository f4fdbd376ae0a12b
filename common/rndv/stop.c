/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends of operations by the host, by memory that is refused, or by the peer: one table, state x
 * cause.  An eager send is complete when it is posted to the fabric, and can no longer be
 * cancelled; one that waits for credits can.
 *
 * Failure path.  A side that gives up (cancel, no memory) sets `stop_error`.  The initiator
 * lets posted transfers finish; if those were all, the message completes.  A transfer to memory
 * that the peer does not have may never finish: the link ends if none does for cancel_ms.
 * Otherwise a receiver that reads, or that has not advertised its memory, sends FIN with the
 * reason and ends, because no device accesses its memory.  In all other cases CANCEL goes to
 * the peer, and the op waits in CANCELLING.  The peer stops likewise on CANCEL, answers FIN,
 * and ends its own op with -ECANCELED.  If both sides send CANCEL at the same time, each takes
 * the other's CANCEL for the answer, because neither side sends one with transfers in flight.
 * FIN and CANCEL follow all notifications of their sender, so a target that receives one gets
 * no notification after it.  A CANCEL for an op that has ended is ignored, and so is a FIN that
 * answers CANCEL: the end was reported before, or its report is in flight.
 *
 * Answers without an operation.  The FIN that answers CANCEL of an unmatched RTS waits for a
 * credit in the object of the RTS, which counts as held until then.  Of the CANCELs of early
 * CTS only the last one is answered: a peer has one open receive at a time, so the immediate
 * has ended the receives of earlier CANCELs.  When the link ends the peer gets no answer.
 */
#include <errno.h>

#include "rndv/rndv.h"

/* Ends the link unless the op ends, or continues, within cancel_ms. */
static void limit(struct rme *rme, struct rme_op *op)
{
    op->rndv->cancel_by = rme_now() + rme->tuning.cancel_ms;
    rme_peer_watch_cancel(op->peer);
}

bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now)
{
    struct rme_op *op;

    peer->cancel_by = UINT64_MAX;
    list_for_each(op, &peer->ops, of_peer) {
        if (op->rndv == NULL || op->rndv->cancel_by == 0)
            continue;
        if (op->rndv->cancel_by <= now)
            return true;
        if (op->rndv->cancel_by < peer->cancel_by)
            peer->cancel_by = op->rndv->cancel_by;
    }
    return false;
}

void rme_rndv_finish(struct rme *rme, struct rme_op *op, int error)
{
    rme_ctrl_queue(op, RME_WIRE_FIN);
    rme_op_end(rme, op, error);
}

/* ---- Actions ---- */

/* Ends a queued send, and lets those behind it be tried. */
static void leave(struct rme *rme, struct rme_op *op, int error)
{
    rme_send_leave(op);
    rme_peer_schedule(op->peer);
    rme_op_end(rme, op, error);
}

/* May the peer access memory of a stopped op, or is it to be told that none will be offered? */
static bool must_ask(const struct rme_op *op)
{
    const struct rme_rndv *r = op->rndv;

    return !r->peer_stop && (rme_op_sends(op) || (op->state != RME_OP_MOVING &&
                                                  (r->done != 0 || !list_empty(&r->frags))));
}

/* Continues a stopped op: after its transfers in flight, rme_xfer_done() calls again. */
static void halt(struct rme *rme, struct rme_op *op)
{
    rme_frags_drop(rme, op);
    if (op->rndv->moves > 0) {
        limit(rme, op);
    } else if (must_ask(op)) {
        rme_op_step(op, RME_OP_CANCELLING);
        rme_ctrl_queue(op, RME_WIRE_CANCEL);
        limit(rme, op);
    } else {
        rme_rndv_finish(rme, op, op->rndv->stop_error);
    }
}

/* What a stopped op still does.  Data that arrive before the answer to CANCEL count. */
static const struct rme_rndv_stage stopped[RME_OP_STATES] = {
    [RME_OP_MOVING] = {.advance = halt},
    [RME_OP_CANCELLING] = {.moved = rme_rndv_target_done},
};

static void stop(struct rme *rme, struct rme_op *op, int error)
{
    if (op->rndv->stop_error != 0)
        return;
    op->rndv->stop_error = error;
    op->rndv->stages = stopped;
    halt(rme, op);
}

/* Stops for the host, which may have called rme_set_forceful_cancel().  That is not for a
 * receive that has sent an early CTS: the peer most likely moves no data, and answers soon. */
static void cancel(struct rme *rme, struct rme_op *op, int error)
{
    if (op->state == RME_OP_EARLY_CTS)
        rme_match_remove(&rme->table, &op->match);
    if (!rme->rndv_state->forceful || op->state == RME_OP_EARLY_CTS) {
        stop(rme, op, error);
        return;
    }
    op->rndv->stop_error = error;
    rme_peer_fail(op->peer, -ECONNRESET, "an operation was cancelled by force");
}

/* Answers the peer's CANCEL when no transfer is in flight. */
static void answer(struct rme *rme, struct rme_op *op, int error)
{
    struct rme_rndv *r = op->rndv;

    r->peer_stop = true;
    r->stages = stopped;
    if (r->stop_error == 0)
        r->stop_error = error;
    halt(rme, op);
}

/* The peer answers CANCEL, or has refused the message before: the receive has taken it. */
static void left(struct rme *rme, struct rme_op *op, int error)
{
    rme_op_end(rme, op, error == -ECANCELED ? op->rndv->stop_error : error);
}

/* Ends an op with its link.  The caller holds a reference if a message is queued. */
static void lose(struct rme *rme, struct rme_op *op, int error)
{
    const struct rme_rndv *r = op->rndv;

    op->refcount -= rme_ctrl_unqueue(op);
    rme_op_end(rme, op,
               r != NULL && r->stop_error != 0 && !r->peer_stop ? r->stop_error : error);
}

/* Cancels an op whose result is set: the peer may have acknowledged data falsely, or FIN has
 * not reported a refusal yet. */
static void recall(struct rme *rme, struct rme_op *op, int error)
{
    (void)error;
    if (op->rndv != NULL && op->rndv->moves > 0)
        limit(rme, op);
    if (op->rndv != NULL && op->rndv->refuses && rme_ctrl_unqueue(op)) {
        rme_window_free(op->peer, RME_EXPECTED, op->size);
        rme_op_put(rme, op);
    }
}

static void (*const actions[RME_OP_STATES][RME_STOP_CAUSES])(struct rme *, struct rme_op *,
                                                             int) = {
    /* causes: host, memory, CANCEL, FIN, link */
    [RME_OP_QUEUED] = {leave, leave, NULL, NULL, leave},
    [RME_OP_POSTED] = {rme_op_end, NULL, NULL, NULL, rme_op_end},
    [RME_OP_EARLY_CTS] = {cancel, NULL, answer, NULL, lose},
    [RME_OP_RTS] = {cancel, stop, answer, rme_op_end, lose},
    [RME_OP_TARGET] = {cancel, stop, answer, NULL, lose},
    [RME_OP_MOVING] = {cancel, stop, answer, NULL, lose},
    [RME_OP_CANCELLING] = {NULL, NULL, answer, left, lose},
    [RME_OP_ENDING] = {recall, NULL, NULL, NULL, lose},
};

void rme_op_stop(struct rme *rme, struct rme_op *op, enum rme_stop_cause cause, int error)
{
    if (actions[op->state][cause] != NULL)
        actions[op->state][cause](rme, op, error);
}

/* ---- Causes ---- */

bool rme_rndv_cancelled(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    struct rme_op *op = rme_cancel_find(peer, cancel);

    if (op == NULL)
        return false;
    if (actions[op->state][RME_STOP_CANCEL] != NULL)
        rme_rndv_set_peer_handle(op, cancel->from);
    rme_op_stop(peer->rme, op, RME_STOP_CANCEL, -ECANCELED);
    return true;
}

void rme_rndv_work(struct rme *rme)
{
    int error;
    struct rme_op *op = rme_frag_work(rme, &error);

    if (error == 0)
        rme_rndv_advance(rme, op);
    else if (error < 0)
        rme_op_stop(rme, op, RME_STOP_MEMORY, error);
    rme_op_put(rme, op);
}

/* Makes fragments until no more are needed now, or `one`.  False after stopping the op. */
static bool make(struct rme *rme, struct rme_op *op, bool one)
{
    int made;

    do
        made = rme_frag_next(rme, op);
    while (made > 0 && !one);
    if (made < 0)
        rme_op_stop(rme, op, RME_STOP_MEMORY, made);
    return made >= 0;
}

struct rme_frag *rme_rndv_first(struct rme *rme, struct rme_op *op)
{
    return rme_frag_first(op) != NULL || make(rme, op, true) ? rme_frag_first(op) : NULL;
}

struct rme_frag *rme_rndv_prepare(struct rme *rme, struct rme_op *op)
{
    struct rme_frag *frag;

    if (!make(rme, op, false))
        return NULL;
    list_for_each(frag, &op->rndv->frags, link)
        if (frag->state < RME_FRAG_QUEUED)
            return frag->state == RME_FRAG_READY ? frag : NULL;
    return NULL;
}
