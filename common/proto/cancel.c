/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cancellation of operations: by the host, by the peer, and by the loss of the link.  The head
 * of rndv.c says which operations may end at once and which wait for the peer.  An eager send
 * is complete when it is posted to the fabric, and cannot be cancelled any more.  An eager send
 * that waits for credits can be cancelled.
 *
 * Refusal.  An eager message that is larger than its receive ends the receive with an error,
 * once FIN with the flag EAGER was sent.  FIN names the message by its place in the stream: the
 * cost of all eager messages up to it, which both sides count for the window (credit.h).  The
 * sender logs the loss in one line and counts it; the send stays complete, whether or not its
 * host has fetched the completion.  With eager_max=0 every message that could be refused goes
 * by rendezvous, where both sides wait for the match.  A cancel of the receive before FIN is
 * sent ends the receive, and the sender gets no report.
 *
 * Answers without an operation.  The FIN that answers CANCEL of an unmatched RTS waits for a
 * credit in the object of the RTS, which counts as held until then.  Of the CANCELs of
 * invitations only the last one is answered: a peer has one invited receive at a time, so the
 * immediate has ended the receives of earlier CANCELs.  When the link ends the peer gets no
 * answer.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "proto/proto.h"

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
        if (!rme->protocols->forceful || op->state == RME_OP_INVITING) {
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

bool rme_cancel_answer(struct rme_peer *peer, uint32_t to)
{
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    rme_peer_header(peer, RME_WIRE_FIN, &message);
    message.status = RME_WIRE_CANCELED;
    message.to = to;
    rme_peer_send_control(peer, &message, tx);
    return true;
}

void rme_refusal_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme *rme = peer->rme;
    int error = rme_wire_status_error(message->status);

    if (error == 0 || (int32_t)(peer->eager_window[RME_EXPECTED].total - message->to) < 0) {
        rme_peer_protocol_error(peer, "a refusal of no send");
        return;
    }
    rme_count(rme, RME_C_EAGER_REFUSED);
    rme_log_put(
        rme->log, RME_LOG_WARN,
        "%s: a message of %" PRIu64 " bytes with tag %" PRId32
        " is lost: larger than its receive of %" PRIu64
        " bytes (%s), and the eager send had completed; post a larger receive there, or set "
        "eager_max=0 here so that such sends fail",
        rme_peer_name(peer), message->total, message->tag, message->offset, strerror(-error));
}
