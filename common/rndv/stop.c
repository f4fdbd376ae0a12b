/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends of operations by the host, by memory that is refused, or by the peer.  rndv.c says which
 * operations end at once, and which wait for the peer.  An eager send is complete when it is
 * posted to the fabric, and cannot be cancelled any more; one that waits for credits can.
 *
 * Answers without an operation.  The FIN that answers CANCEL of an unmatched RTS waits for a
 * credit in the object of the RTS, which counts as held until then.  Of the CANCELs of early
 * CTS only the last one is answered: a peer has one open receive at a time, so the immediate
 * has ended the receives of earlier CANCELs.  When the link ends the peer gets no answer.
 */
#include <errno.h>

#include "rndv/rndv.h"

/* Stops the op, which ends with `error` once the peer no longer accesses its memory.  Also for
 * an op without transfers. */
void rme_rndv_stop(struct rme *rme, struct rme_op *op, int error)
{
    if (op->rndv.stop_error != 0)
        return;
    op->rndv.stop_error = error;
    rme_rndv_halt(rme, op);
}

void rme_rndv_limit(struct rme *rme, struct rme_op *op)
{
    op->rndv.cancel_by = rme_now() + rme->tuning.cancel_ms;
    rme_peer_watch_cancel(op->peer);
}

static void ask_peer(struct rme *rme, struct rme_op *op)
{
    rme_op_step(op, RME_OP_CANCELLING);
    rme_ctrl_queue(op, RME_WIRE_CANCEL);
    rme_rndv_limit(rme, op);
}

void rme_rndv_finish(struct rme *rme, struct rme_op *op, int error)
{
    rme_ctrl_queue(op, RME_WIRE_FIN);
    rme_op_end(rme, op, error);
}

/* Does the peer know of the op? */
static bool is_known(const struct rme_op *op)
{
    return op->state >= RME_OP_INVITING && op->state <= RME_OP_CANCELLING;
}

void rme_rndv_halt(struct rme *rme, struct rme_op *op)
{
    struct rme_rndv *r = &op->rndv;

    rme_frags_drop(rme, op);
    if (r->moves > 0) { /* rme_move_done() calls again */
        rme_rndv_limit(rme, op);
        return;
    }
    if (op->state == RME_OP_QUEUED) {
        rme_send_leave(op);
        rme_peer_schedule(op->peer); /* unblocks the sends behind it */
        rme_op_end(rme, op, r->stop_error);
    } else if (!is_known(op) || (op->state == RME_OP_CANCELLING && !r->peer_stop)) {
        return;
    } else if (r->peer_stop) { /* answers the peer's CANCEL */
        rme_rndv_finish(rme, op, r->stop_error);
    } else if (rme_op_sends(op) ||
               (op->state != RME_OP_MOVING && (r->done != 0 || !list_empty(&r->frags)))) {
        ask_peer(rme, op);
    } else {
        rme_rndv_finish(rme, op, r->stop_error);
    }
}

/* Does the CANCEL mean this op?  The peer's handle must equal the known one, if one is
 * known. */
static bool is_meant(const struct rme_op *op, const struct rme_wire_message *cancel)
{
    bool from_sender = (cancel->flags & RME_WIRE_F_FROM_SENDER) != 0;
    uint32_t known = rme_rndv_peer_handle(op);

    return rme_op_sends(op) != from_sender && (known == 0 || known == cancel->from);
}

/* Finds an op of this peer by the peer's handle of the other end; NULL: none. */
static struct rme_op *find_theirs(struct rme_peer *peer, uint32_t handle)
{
    struct rme_keyed *keyed =
        rme_table_find(&peer->rme->table, rme_handle_key(peer, handle), RME_HANDLE_THEIRS);

    return keyed != NULL ? container_of(keyed, struct rme_op, rndv.theirs) : NULL;
}

/* The peer cancels its end of an op.  The peer knows the handle here, unless CANCEL has crossed
 * the first message about the op. */
bool rme_rndv_cancelled(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    struct rme_op *op =
        cancel->to == 0 ? find_theirs(peer, cancel->from) : rme_rndv_find(peer, cancel->to);

    if (op == NULL || !is_meant(op, cancel))
        return false;
    if (is_known(op)) {
        op->rndv.peer_stop = true;
        if (op->rndv.stop_error == 0)
            op->rndv.stop_error = -ECANCELED;
        rme_rndv_set_peer_handle(op, cancel->from);
        rme_rndv_halt(peer->rme, op);
    }
    return true;
}

bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now)
{
    peer->cancel_by = UINT64_MAX;
    for (struct list_head *node = peer->ops.next; node != &peer->ops; node = node->next) {
        struct rme_op *op = container_of(node, struct rme_op, of_peer);

        if (!op->has_rndv || op->rndv.cancel_by == 0)
            continue;
        if (op->rndv.cancel_by <= now)
            return true;
        if (op->rndv.cancel_by < peer->cancel_by)
            peer->cancel_by = op->rndv.cancel_by;
    }
    return false;
}

void rme_cancel_op(struct rme *rme, struct rme_op *op)
{
    switch ((enum rme_op_state)op->state) {
    case RME_OP_QUEUED:
        rme_send_leave(op);
        rme_peer_schedule(op->peer); /* unblocks the sends behind it */
        /* fall through */
    case RME_OP_POSTED:
        rme_op_end(rme, op, -ECANCELED);
        break;
    case RME_OP_INVITING:
        rme_match_remove(&rme->table, &op->match);
        /* fall through */
    case RME_OP_RTS:
    case RME_OP_TARGET:
    case RME_OP_MOVING:
        /* an invited peer most likely moves no data, and answers at once */
        if (!rme->rndv_state->forceful || op->state == RME_OP_INVITING) {
            rme_rndv_stop(rme, op, -ECANCELED);
            break;
        }
        op->rndv.stop_error = -ECANCELED;
        rme_peer_fail(op->peer, -ECONNRESET, "an operation was cancelled by force");
        break;
    case RME_OP_ENDING:
        if (op->has_rndv && op->rndv.moves > 0) /* acknowledged, perhaps falsely */
            rme_rndv_limit(rme, op);
        if (op->has_rndv && op->rndv.refuses && !list_empty(&op->rndv.control.link)) {
            rme_window_free(op->peer, RME_EXPECTED, op->size);
            list_del_init(&op->rndv.control.link);
            rme_op_put(rme, op);
        }
        break;
    default:
        break;
    }
}
