/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cancellation of operations: by the host, by the peer, and by the loss of the link.  The head
 * of rndv.c says which operations may end at once and which wait for the peer.  An eager send
 * is complete when it is posted to the fabric, and cannot be cancelled any more.  An eager send
 * that waits for credits can be cancelled.
 */
#include <errno.h>

#include "move/move.h"
#include "proto/cancel.h"
#include "proto/send.h"

/* Fails the link, because the host does not want to wait for the peer's CANCEL_ACK.  The op
 * ends with -ECANCELED. */
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
        rme_peer_kick(op->peer); /* unblocks the sends behind it */
        rme_op_end(rme, op, -ECANCELED);
        break;
    case RME_OP_POSTED:
        rme_op_end(rme, op, -ECANCELED);
        break;
    /* also with forced cancels: most likely no data moves, and the peer answers at once */
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

/* Offers a CANCEL to each protocol.  No protocol knows an operation that has ended: its end was
 * reported before, and the CANCEL is ignored. */
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
    else if (rme_match_is_in(&op->match))
        rme_match_remove(&rme->operations->match, &op->match);
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
