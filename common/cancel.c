/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ending operations before their time: by the host, by the peer, and by the loss of the link.  What may end at once and
 * what must wait for the peer is told at the head of rndv.c.  An eager send is complete when it is posted to the fabric and
 * cannot be cancelled any more; one that waits for credits can.
 */
#include <errno.h>

#include "engine.h"

void rme_op_leave_slot(struct rme *rme, struct rme_op *op)
{
    rme_node_remove(&op->link);
    rme_match_release(&rme->match, op->slot);
    op->slot = NULL;
}

/* The peer would have to be asked, and the host does not want to wait: the link goes, and the op says that it was cancelled. */
static void cancel_by_force(struct rme_op *op)
{
    op->rndv->stop = true;
    op->rndv->stop_error = -ECANCELED;
    rme_peer_fail(op->peer, -ECONNRESET, "an operation was cancelled by force");
}

void rme_cancel_op(struct rme *rme, struct rme_op *op)
{
    switch ((enum rme_op_state)op->state) {
    case RME_OP_QUEUED:
        rme_node_remove(&op->link);
        rme_peer_kick(op->peer); /* those behind it may go */
        rme_op_end(rme, op, -ECANCELED);
        break;
    case RME_OP_POSTED:
        rme_op_end(rme, op, -ECANCELED);
        break;
    case RME_OP_INVITING: /* also by force: the peer has most likely nothing to do for it, and answers at once */
        rme_rndv_stop(rme, op, -ECANCELED);
        break;
    case RME_OP_RTS:
    case RME_OP_EXPOSED:
    case RME_OP_MOVING:
        if (rme->forceful)
            cancel_by_force(op);
        else
            rme_rndv_stop(rme, op, -ECANCELED);
        break;
    default:
        break;
    }
}

/* The op of ours that the peer's send `from` has met; the peer may not know its name yet. */
static struct rme_op *receive_of(struct rme_peer *peer, uint32_t from)
{
    for (struct rme_node *node = peer->ops.next; node != &peer->ops; node = node->next) {
        struct rme_op *op = rme_entry(node, struct rme_op, of_peer);

        if (!rme_op_sends(op) && op->rndv != NULL && op->rndv->peer_handle == from)
            return op;
    }
    return NULL;
}

/* The message of the peer's send `from` that no receive has met, taken out; NULL: none. */
static struct rme_message *unmatched_of(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    struct rme *rme = peer->rme;
    struct rme_slot *slot;

    if (cancel->flags & RME_WIRE_F_UNEXPECTED)
        return rme_unexp_cancel(peer, cancel->from);
    slot = rme_match_find(&rme->match, rme_match_key(peer->serial, cancel->tag));
    if (slot == NULL)
        return NULL;
    for (struct rme_node *node = slot->messages.next; node != &slot->messages; node = node->next) {
        struct rme_message *message = rme_entry(node, struct rme_message, link);

        if (message->is_rts && message->from == cancel->from) {
            rme_message_unlink(rme, message);
            return message;
        }
    }
    return NULL;
}

void rme_cancel_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme *rme = peer->rme;
    bool from_sender = (message->flags & RME_WIRE_F_FROM_SENDER) != 0;
    struct rme_op *op = rme_op_find_handle(&rme->op_table, message->to);
    struct rme_message *unmatched;

    if (!from_sender && message->to == 0) {
        rme_invite_cancelled(peer, message->from);
        return;
    }
    if (from_sender && message->to == 0) {
        unmatched = unmatched_of(peer, message);
        if (unmatched != NULL) {
            rme_node_append(&peer->control, &unmatched->control.link);
            rme_peer_kick(peer);
            return;
        }
        op = receive_of(peer, message->from);
    }
    if (op == NULL || op->peer != peer || op->rndv == NULL || rme_op_sends(op) == from_sender)
        return; /* over already; its end was told before */
    switch ((enum rme_op_state)op->state) {
    case RME_OP_INVITING:
    case RME_OP_RTS:
    case RME_OP_EXPOSED:
    case RME_OP_MOVING:
    case RME_OP_CANCELLING:
        op->rndv->peer_stop = true;
        op->rndv->peer_handle = message->from;
        rme_rndv_halt(rme, op);
        break;
    default:
        break;
    }
}

void rme_cancel_acked(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = rme_op_find_handle(&peer->rme->op_table, message->to);

    if (op != NULL && op->peer == peer && op->state == RME_OP_CANCELLING)
        rme_op_end(peer->rme, op, op->rndv->stop_error);
}

void rme_op_detach(struct rme *rme, struct rme_op *op)
{
    if (op->state == RME_OP_QUEUED)
        rme_node_remove(&op->link);
    else if (op->slot != NULL)
        rme_op_leave_slot(rme, op);
    if (op->rndv != NULL)
        rme_rndv_silence(op);
}
