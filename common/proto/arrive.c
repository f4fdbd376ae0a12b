/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dispatches arrivals to the protocol of their message type, and handles the messages of the
 * link itself: PING, PONG and BYE. */
#include <errno.h>

#include "proto/arrive.h"
#include "proto/rndv.h"

static void take_message(struct rme_peer *peer, const struct rme_wire_message *message)
{
    const rme_arrived_fn *takers = peer->rme->protocols->arrived;
    uint32_t type = message->type;
    rme_arrived_fn arrived = NULL;

    if (type == RME_WIRE_RTS && (message->flags & RME_WIRE_F_UNEXPECTED) != 0)
        arrived = takers[RME_ARRIVAL_UNEXPECTED_RTS];
    else if (type != RME_ARRIVAL_UNEXPECTED_RTS && type < RME_ARRIVALS)
        arrived = takers[type];
    /* else the type is optional and unknown: only its header counts */
    if (arrived != NULL)
        arrived(peer, message);
}

void rme_arrival_drop(struct rme *rme, const struct rme_arrival *arrival)
{
    if (!arrival->is_immediate && arrival->rx != NULL)
        rme->ops->rx_return(rme->fabric, arrival->rx);
}

/* Does a message of this type use a credit outside the reserve? */
static bool starts(uint8_t type)
{
    return type == RME_WIRE_EAGER || type == RME_WIRE_UNEXPECTED || type == RME_WIRE_RTS ||
           type == RME_WIRE_INVITE || type == RME_WIRE_PING;
}

void rme_take_message(struct rme_peer *peer, const struct rme_arrival *arrival)
{
    struct rme *rme = peer->rme;
    const struct rme_wire_message *message = &arrival->message;

    if (arrival->rx == NULL && !rme_fast_there(peer, message)) {
        rme_peer_protocol_error(peer, "a message in an eager ring that was returned");
        return;
    }
    take_message(peer, message);
    rme_arrival_drop(rme, arrival);
    if (!rme_peer_listens(peer)) {
        if (peer->state == RME_PEER_CLOSING && peer->error == -EPROTO)
            rme_log_put(
                rme->log, RME_LOG_INFO, "%s: the invalid message has type %s and %zu bytes",
                rme_peer_name(peer), rme_wire_type_name(message->type), arrival->length);
        return;
    }
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more messages than credits");
        return;
    }
    if (message->type == RME_WIRE_FIN)
        peer->credit.untold = true;
    if (starts(message->type))
        rme_credit_started(&peer->credit);
    if (arrival->rx == NULL)
        rme_fast_took(peer, message);
    if (message->flags & RME_WIRE_F_STALLED)
        rme_grant_more(peer);
    if (peer->credit.taken == peer->used_at)
        rme_grant_used(peer);
    if (rme_credit_due(&peer->credit))
        rme_grant_due(peer);
}

void rme_take_immediate(struct rme_peer *peer, uint32_t imm)
{
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more immediates than credits");
        return;
    }
    peer->credit.untold = true;
    rme_rndv_imm(peer, imm);
    if (peer->credit.taken == peer->used_at)
        rme_grant_used(peer);
    if (rme_credit_due(&peer->credit))
        rme_peer_kick(peer);
}

/* ---- The link itself ---- */

static void pinged(struct rme_peer *peer, const struct rme_wire_message *message)
{
    rme_peer_pinged(peer, (uint32_t)message->tag);
}

static void yielded(struct rme_peer *peer, const struct rme_wire_message *message)
{
    rme_peer_yielded(peer, (uint32_t)message->tag);
}

/* Writes of this side may be complete but not yet reported by the device.  LINK_DOWN ends the
 * remaining operations. */
static void bye(struct rme_peer *peer, const struct rme_wire_message *message)
{
    (void)message;
    peer->bye_in = true;
    rme_peer_disconnect(peer, -ECONNRESET);
}

const struct rme_protocol rme_protocol_link = {
    .arrived = {[RME_WIRE_PING] = pinged, [RME_WIRE_PONG] = yielded, [RME_WIRE_BYE] = bye},
};
