/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cancellation of operations: by the host, by the peer, and by the loss of the link.  The head
 * of rndv.c says which operations may end at once and which wait for the peer.  An eager send
 * is complete when it is posted to the fabric, and cannot be cancelled any more.  An eager send
 * that waits for credits can be cancelled.
 *
 * Refusal.  An eager message that is larger than its receive ends the receive with an error,
 * and FIN with the flag EAGER goes back.  It names the message by its place in the stream: the
 * cost of all eager messages up to it, which both sides count for the window (credit.h).  The
 * sender logs the loss in one line and counts it; the send stays complete, whether or not its
 * host has fetched the completion.  A host that cannot accept that sets eager_max=0: every
 * message that could be refused then goes by rendezvous, where both sides wait for the match.
 *
 * Answers without an operation.  A refusal, and the FIN that answers CANCEL of an unmatched RTS
 * or of an invitation, wait for a credit.  The message counts as held until then (window,
 * rts_max, or answers of invite.h), which bounds the number of answers.  When the link ends, or
 * without memory for a refusal, the peer gets none.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cancel.h"
#include "proto/rndv.h"
#include "proto/tags.h"

void rme_cancel_op(struct rme *rme, struct rme_op *op)
{
    switch ((enum rme_op_state)op->state) {
    case RME_OP_QUEUED:
        rme_send_leave(op);
        rme_peer_schedule(op->peer); /* unblocks the sends behind it */
        rme_op_end(rme, op, -ECANCELED);
        break;
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
    default:
        break;
    }
}

bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now)
{
    peer->cancel_by = UINT64_MAX;
    for (struct list_head *node = peer->ops.next; node != &peer->ops; node = node->next) {
        struct rme_op *op = container_of(node, struct rme_op, of_peer);

        if (op->state != RME_OP_CANCELLING)
            continue;
        if (op->rndv.cancel_by <= now)
            return true;
        if (op->rndv.cancel_by < peer->cancel_by)
            peer->cancel_by = op->rndv.cancel_by;
    }
    return false;
}

/* ---- Answers without an operation ---- */

struct answer {
    struct rme_control control;
    uint32_t to;
    uint32_t *waiting; /* counter of such answers; NULL: a refusal */
    int32_t tag;
    uint64_t size; /* of the message */
    uint64_t room; /* of the receive */
};

static void drop_answer(struct rme_peer *peer, struct rme_control *control)
{
    rme_rx_uncharge(peer, sizeof(struct answer));
    free(container_of(control, struct answer, control));
}

static bool send_answer(struct rme_peer *peer, struct rme_control *control)
{
    struct answer *answer = container_of(control, struct answer, control);
    bool refuses = answer->waiting == NULL;
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    if (refuses)
        rme_window_consumed(&peer->holding[RME_EXPECTED], answer->size);
    else
        --*answer->waiting;
    rme_peer_header(peer, RME_WIRE_FIN, &message);
    message.flags |= refuses ? RME_WIRE_F_EAGER : 0;
    message.status = refuses ? RME_WIRE_TOO_LARGE : RME_WIRE_CANCELED;
    message.to = answer->to;
    message.tag = answer->tag;
    message.total = answer->size;
    message.offset = answer->room;
    rme_peer_send_control(peer, &message, tx);
    list_del_init(&control->link);
    drop_answer(peer, control);
    return true;
}

static const struct rme_control_kind answer_kind = {send_answer, drop_answer};

/* Queues an answer; NULL: no memory. */
static struct answer *answer_new(struct rme_peer *peer, struct list_head *queue, uint32_t to)
{
    struct answer *answer = malloc(sizeof(*answer));

    if (answer == NULL)
        return NULL;
    *answer = (struct answer){.control.kind = &answer_kind, .to = to};
    list_init(&answer->control.link);
    list_add_tail(&answer->control.link, queue);
    rme_rx_charge(peer, sizeof(*answer));
    rme_peer_schedule(peer);
    return answer;
}

void rme_cancel_answer(struct rme_peer *peer, uint32_t to, uint32_t *waiting)
{
    struct answer *answer = answer_new(peer, &peer->endings, to);

    if (answer != NULL)
        answer->waiting = waiting;
    else
        rme_peer_fail(peer, -ENOMEM, "no memory to answer a cancel");
}

void rme_refuse(struct rme_op *op, uint32_t place)
{
    struct answer *answer = answer_new(op->peer, &op->peer->control, place);

    if (answer == NULL) {
        rme_window_consumed(&op->peer->holding[RME_EXPECTED], op->size);
        return;
    }
    answer->tag = op->tag;
    answer->size = op->size;
    answer->room = op->total;
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
