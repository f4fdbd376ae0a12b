/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dispatches arrivals by their message type. */
#include <errno.h>
#include <string.h>

#include "proto/proto.h"

/* Passes a message to the function of its type.  Of a plain CREDIT and of unknown types, only
 * the header counts. */
static void take_message(struct rme_peer *peer, const struct rme_wire_message *message)
{
    uint32_t flags = message->flags;

    switch (message->type) {
    case RME_WIRE_EAGER:
        (flags & RME_WIRE_F_UNEXPECTED ? rme_unexp_arrived : rme_eager_arrived)(peer, message);
        break;
    case RME_WIRE_RTS:
        (flags & RME_WIRE_F_UNEXPECTED ? rme_unexp_rts_arrived : rme_rts_arrived)(peer,
                                                                                  message);
        break;
    case RME_WIRE_CTS:
        (flags & RME_WIRE_F_UNSOLICITED ? rme_early_cts_arrived : rme_cts_arrived)(peer,
                                                                                   message);
        break;
    case RME_WIRE_FIN:
        (flags & RME_WIRE_F_EAGER ? rme_refusal_arrived : rme_fin_arrived)(peer, message);
        break;
    case RME_WIRE_CANCEL:
        /* an operation that has ended is not found: its end was reported before */
        (void)(rme_message_cancelled(peer, message) || rme_rndv_cancelled(peer, message) ||
               rme_early_cts_cancelled(peer, message));
        break;
    case RME_WIRE_CREDIT:
        if (flags & RME_WIRE_F_GRANT)
            rme_eager_rdma_granted(peer, message);
        else if (flags & RME_WIRE_F_WITHDRAW)
            rme_eager_rdma_withdrawn(peer);
        else if (flags & RME_WIRE_F_RELEASE)
            rme_eager_rdma_released(peer);
        break;
    case RME_WIRE_BYE:
        /* Writes of this side may be complete but not yet reported by the device.  LINK_DOWN
         * ends the remaining operations. */
        peer->bye_in = true;
        rme_peer_disconnect(peer, -ECONNRESET);
        break;
    case RME_WIRE_PING:
        peer->asked = (uint32_t)message->tag;
        peer->pong_due = true;
        rme_peer_schedule(peer);
        break;
    case RME_WIRE_PONG:
        rme_peer_reduced(peer, (uint32_t)message->tag);
        break;
    default:
        break;
    }
}

/* Does this message use a credit outside the reserve? */
static bool starts(const struct rme_wire_message *message)
{
    return message->type == RME_WIRE_EAGER || message->type == RME_WIRE_RTS ||
           message->type == RME_WIRE_PING ||
           (message->type == RME_WIRE_CTS && (message->flags & RME_WIRE_F_UNSOLICITED) != 0);
}

/* Grants credits, or schedules their return, after a message with these flags was taken. */
static inline void settle_credits(struct rme_peer *peer, uint8_t flags)
{
    if (flags & RME_WIRE_F_STALLED)
        rme_grant_more(peer);
    if (peer->credit.consumed == RME_GRANT_USED)
        rme_grant_used(peer);
    if (rme_credit_due(&peer->credit))
        rme_grant_due(peer);
}

/* Finds the receive for a message of `size` bytes, if the receive is one segment and large
 * enough; NULL: none, or the message is not for the short way. */
static inline struct rme_op *receive_for(const struct rme_peer *peer, int32_t tag, size_t size)
{
    struct rme_match *first =
        rme_match_first(&peer->rme->table, rme_match_key(peer->serial, tag), RME_BY_TAG);
    struct rme_op *op;

    if (first == NULL || first->is_message)
        return NULL;
    op = container_of(first, struct rme_op, match);
    return op->state == RME_OP_POSTED && op->nseg == 1 && size <= op->total ? op : NULL;
}

bool rme_take_eager(struct rme_peer *peer, const void *data, size_t length)
{
    struct rme_window *expected = &peer->eager_window[RME_EXPECTED],
                      *unexpected = &peer->eager_window[RME_UNEXPECTED_STREAM];
    struct rme_window *holding = &peer->holding[RME_EXPECTED];
    struct rme_wire_message head;
    size_t size = length - RME_WIRE_HEADER_SIZE;
    struct rme *rme = peer->rme;
    struct rme_op *op;

    if (length < RME_WIRE_HEADER_SIZE || peer->state != RME_PEER_UP || peer->rts_full ||
        peer->late != 0 || !list_empty(&peer->moving))
        return false;
    rme_wire_copy_head(&head, data);
    if (head.type != RME_WIRE_EAGER || (head.flags & ~RME_WIRE_F_STALLED) != 0 ||
        !rme_window_may(expected, head.eager_consumed) ||
        !rme_window_may(unexpected, head.unexpected_consumed) ||
        !rme_window_fits(holding, size) || peer->credit.unreturned >= peer->credit.advertised)
        return false;
    op = receive_for(peer, head.tag, size);
    if (op == NULL)
        return false;
    if ((head.credits | (head.eager_consumed ^ expected->consumed) |
         (head.unexpected_consumed ^ unexpected->consumed)) != 0) {
        if (rme_credit_gain(&peer->credit, head.credits, 0) != 0)
            return false;
        if (rme_peer_waits(peer))
            rme_peer_schedule(peer);
    }
    peer->heard = true;
    expected->consumed = head.eager_consumed;
    unexpected->consumed = head.unexpected_consumed;
    rme_window_add(holding, size);
    rme_window_consumed(holding, size);
    peer->rndv->early.seen++;
    rme_match_remove(&rme->table, &op->match);
    memcpy(op->seg->base, (const char *)data + RME_WIRE_HEADER_SIZE, size);
    op->size = size;
    rme_count_add(rme, RME_C_BYTES_COPIED, size);
    rme_peer_count(peer, RME_C_RECVS_EAGER, 1);
    rme_op_complete(rme, op);
    peer->credit.unreturned++;
    peer->credit.consumed++;
    rme_credit_started(&peer->credit);
    settle_credits(peer, head.flags);
    return true;
}

void rme_take_message(struct rme_peer *peer, const struct rme_wire_message *message)
{
    take_message(peer, message);
    if (!rme_peer_listens(peer))
        return;
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more messages than credits");
        return;
    }
    if (message->type == RME_WIRE_FIN && !(message->flags & RME_WIRE_F_EAGER))
        peer->credit.unacked = true;
    if (starts(message))
        rme_credit_started(&peer->credit);
    settle_credits(peer, message->flags);
}

void rme_take_immediate(struct rme_peer *peer, uint32_t imm)
{
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more immediates than credits");
        return;
    }
    peer->credit.unacked = true;
    if (!rme_rndv_written(peer, imm, 0))
        rme_peer_protocol_error(peer, "an immediate without a matching receive");
    if (peer->credit.consumed == RME_GRANT_USED)
        rme_grant_used(peer);
    if (rme_credit_due(&peer->credit))
        rme_peer_schedule(peer);
}
