/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ending operations before their time: by the host, by the peer, and by the loss of the link.  What may end at once and
 * what must wait for the peer is told at the head of rndv.c.  An eager send is complete when it is posted to the fabric and
 * cannot be cancelled any more; one that waits for credits can.
 */
#include <errno.h>

#include "proto/cancel.h"
#include "proto/message.h"
#include "proto/rndv.h"
#include "proto/send.h"
#include "proto/unexp.h"

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
        rme_send_leave(op);
        rme_peer_kick(op->peer); /* those behind it may go */
        rme_op_end(rme, op, -ECANCELED);
        break;
    case RME_OP_POSTED:
        rme_op_end(rme, op, -ECANCELED);
        break;
    case RME_OP_INVITING: /* also by force: the peer has most likely nothing to do for it, and answers at once */
        op->protocol->failed(rme, op, -ECANCELED);
        break;
    case RME_OP_RTS:
    case RME_OP_EXPOSED:
    case RME_OP_MOVING:
        if (rme->protocols->forceful)
            cancel_by_force(op);
        else
            op->protocol->failed(rme, op, -ECANCELED);
        break;
    default:
        break;
    }
}

/* The message of the peer's send that no receive has met, taken out; NULL: none.  It counts as held until it is answered. */
static struct rme_message *unmatched_of(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    struct rme_message *message = rme_message_find(peer, cancel->from);

    if (message == NULL || (message->unexp != NULL) != ((cancel->flags & RME_WIRE_F_UNEXPECTED) != 0))
        return NULL;
    rme_message_unlink(peer->rme, message);
    if (message->unexp != NULL)
        rme_unexp_cancel(message);
    return message;
}

/* Is this op meant?  What the peer calls its end has to be what we know of it, if we know it. */
static bool is_meant(const struct rme_op *op, const struct rme_wire_message *cancel)
{
    bool from_sender = (cancel->flags & RME_WIRE_F_FROM_SENDER) != 0;
    uint32_t known = rme_rndv_peer_handle(op->rndv);

    return rme_op_sends(op) != from_sender && (known == 0 || known == cancel->from);
}

static void cancel_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme *rme = peer->rme;
    bool from_sender = (message->flags & RME_WIRE_F_FROM_SENDER) != 0;
    struct rme_op *op = rme_rndv_find(peer, message->to);
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
        op = rme_rndv_find_receive(peer, message->from);
    }
    if (op == NULL || !is_meant(op, message))
        return; /* over already; its end was told before */
    switch ((enum rme_op_state)op->state) {
    case RME_OP_INVITING:
    case RME_OP_RTS:
    case RME_OP_EXPOSED:
    case RME_OP_MOVING:
    case RME_OP_CANCELLING:
        op->rndv->peer_stop = true;
        rme_rndv_set_peer_handle(op, message->from);
        rme_rndv_halt(rme, op);
        break;
    default:
        break;
    }
}

static void acked(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = rme_rndv_find(peer, message->to);

    if (op != NULL && op->state == RME_OP_CANCELLING)
        rme_op_end(peer->rme, op, op->rndv->stop_error);
}

void rme_op_detach(struct rme *rme, struct rme_op *op)
{
    if (op->state == RME_OP_QUEUED)
        rme_send_leave(op);
    else if (op->slot != NULL)
        rme_op_leave_slot(rme, op);
    if (op->protocol != NULL)
        op->protocol->silenced(op);
}

bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now)
{
    peer->cancel_by = UINT64_MAX;
    for (struct rme_node *node = peer->ops.next; node != &peer->ops; node = node->next) {
        struct rme_op *op = rme_entry(node, struct rme_op, of_peer);

        if (op->state != RME_OP_CANCELLING)
            continue;
        if (op->rndv->cancel_by <= now)
            return true;
        if (op->rndv->cancel_by < peer->cancel_by)
            peer->cancel_by = op->rndv->cancel_by;
    }
    return false;
}

const struct rme_protocol rme_protocol_cancel = {
    .name = "cancel",
    .arrived = {[RME_WIRE_CANCEL] = cancel_arrived, [RME_WIRE_CANCEL_ACK] = acked},
};
