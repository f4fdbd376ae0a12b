/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ending operations before their time: by the host, by the peer, and by the loss of the link.
 * What may end at once and what must wait for the peer is told at the head of rndv.c.  An eager
 * send is complete when it is posted to the fabric and cannot be cancelled any more; one that
 * waits for credits can.
 */
#include <errno.h>

#include "move/move.h"
#include "proto/cancel.h"
#include "proto/send.h"

/* The peer would have to be asked, and the host does not want to wait: the link goes, and the
 * op says that it was cancelled. */
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
    /* also by force: the peer has most likely nothing to do for it, and answers at once */
    case RME_OP_INVITING:
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

/* What none of the protocols has any more is over; its end was told before. */
static void cancel_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    for (const struct rme_protocol *const *row = peer->rme->protocols->table; *row != NULL;
         row++)
        if ((*row)->cancelled != NULL && (*row)->cancelled(peer, message))
            return;
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
    .arrived = {[RME_WIRE_CANCEL] = cancel_arrived},
};
