/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dispatches arrivals by their message type. */
#include <errno.h>

#include "proto/account.h"

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
            rme_ring_granted(peer, message);
        else if (flags & RME_WIRE_F_WITHDRAW)
            rme_ring_withdrawn(peer);
        else if (flags & RME_WIRE_F_RELEASE)
            rme_ring_released(peer);
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

void rme_log_invalid(const struct rme_peer *peer, uint8_t type, uint8_t flags, size_t length)
{
    if (peer->state == RME_PEER_CLOSING && peer->error == -EPROTO)
        rme_log_put(peer->rme->log, RME_LOG_INFO,
                    "%s: the invalid message has type %s (%u), flags 0x%02x and %zu bytes",
                    rme_peer_name(peer), rme_wire_type_name(type), type, flags, length);
}

void rme_take_message(struct rme_peer *peer, int error, const struct rme_wire_message *message,
                      size_t length, bool in_ring)
{
    uint32_t more = message->type == RME_WIRE_CREDIT ? (uint32_t)message->tag : 0;

    if (error == -EPROTO) {
        rme_peer_protocol_error(peer, in_ring ? "a malformed message in the ring"
                                              : "a malformed message");
    } else if (!rme_head_take(peer, message, more)) {
        rme_peer_protocol_error(peer, "invalid credits or window");
    } else {
        peer->heard = true;
        rme_move_told(peer);
        take_message(peer, message);
    }
    if (!rme_peer_listens(peer) || !rme_message_account(peer, message->type, message->flags))
        rme_log_invalid(peer, message->type, message->flags, length);
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
