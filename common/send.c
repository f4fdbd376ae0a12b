/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What goes out on a link, and in which order.
 *
 * Whatever wants to send puts itself into one of the peer's queues and kicks the peer; rme_settle pushes kicked peers when the
 * round of events is over.  A push sends, as far as credits and buffers reach: control messages, which end or move
 * operations under way; transfers; then what starts something new, first in first out in each stream, so that messages of one
 * (peer, tag) leave in the order of posting, whatever protocol they take.  A stream whose first message has to wait
 * waits as a whole.  Last, credits go back by themselves if enough are owed and no message took them along.
 */
#include <string.h>

#include "engine.h"

void rme_peer_kick(struct rme_peer *peer)
{
    if (rme_node_alone(&peer->kick))
        rme_node_append(&peer->rme->kicked, &peer->kick);
}

bool rme_peer_may(struct rme_peer *peer, enum rme_credit_class class)
{
    if (rme_credit_may(&peer->credit, class))
        return true;
    if (!peer->credit.stalled) {
        peer->credit.stalled = true;
        rme_count(peer->rme, RME_C_CREDIT_STALLS);
    }
    return false;
}

void *rme_peer_tx(struct rme_peer *peer, enum rme_credit_class class)
{
    void *tx;

    if (peer->tx_wait || !rme_peer_may(peer, class))
        return NULL;
    tx = peer->rme->ops->tx_get(peer->link);
    peer->tx_wait = tx == NULL;
    return tx;
}

void rme_peer_header(struct rme_peer *peer, uint8_t type, struct rme_wire_message *out)
{
    rme_wire_clear_body(out);
    out->payload = NULL;
    out->payload_length = 0;
    out->type = type;
    peer->rme->unflushed = true;
    out->flags = peer->credit.stalled ? RME_WIRE_F_STALLED : 0;
    peer->credit.stalled = false;
    out->tag = 0;
    out->credits = rme_keep_waits(peer) ? 0 : rme_credit_give(&peer->credit);
    out->eager_taken = peer->holding[RME_EXPECTED].taken;
    out->unexpected_taken = peer->holding[RME_UNEXPECTED_STREAM].taken;
    rme_credit_spend(&peer->credit);
}

bool rme_peer_send_header(struct rme_peer *peer, uint8_t type, enum rme_credit_class class)
{
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, class);

    if (tx == NULL)
        return false;
    rme_peer_header(peer, type, &message);
    rme_wire_encode(&message, tx);
    rme_count(peer->rme, type == RME_WIRE_CREDIT ? RME_C_CREDIT_SENT : RME_C_CONTROL_SENT);
    peer->rme->ops->tx_send(peer->link, tx, RME_WIRE_HEADER_SIZE);
    return true;
}

/* The first send of a stream: gone (1), must wait (0), or ended (-1). */
static int send_first(struct rme_peer *peer, enum rme_stream stream)
/* What the tag of a message says that is only a header: receive buffers. */
static uint32_t buffers_told(struct rme_peer *peer, uint8_t type)
{
    uint32_t asked = peer->asked;

    switch (type) {
    case RME_WIRE_CREDIT:
        return rme_credit_give_more(&peer->credit);
    case RME_WIRE_PING:
        return rme_credit_surplus(&peer->credit);
    case RME_WIRE_PONG:
        peer->asked = 0;
        return rme_credit_yield(&peer->credit, asked);
    default:
        return 0;
    }
}

{
    struct rme *rme = peer->rme;
    struct rme_op *op = rme_entry(peer->sendq[stream].next, struct rme_op, link);

    if (op->rndv != NULL || !rme_eager_fits(peer, stream, op->size))
        return rme_rndv_send(rme, op);
    if (!rme_eager_send(peer, stream, op->seg, op->nseg, op->size, op->tag))
        return 0;
    message.tag = (int32_t)buffers_told(peer, type);
    rme_node_remove(&op->link);
    rme_op_end(rme, op, 0);
    return 1;
}

static void push(struct rme_peer *peer)
{
    while (!rme_node_alone(&peer->control) && rme_rndv_push_control(peer))
        continue;
    while (!rme_node_alone(&peer->xferq) && rme_move_push(peer))
        continue;
    if (peer->pong_due && rme_peer_send_header(peer, RME_WIRE_PONG, RME_CREDIT_CONTROL))
        peer->pong_due = false;
    if (peer->ping_due && rme_peer_send_header(peer, RME_WIRE_PING, RME_CREDIT_DATA))
        peer->ping_due = false;
    for (int stream = 0; stream < RME_STREAMS; stream++)
        while (!rme_node_alone(&peer->sendq[stream]) && send_first(peer, stream) != 0)
            continue;
    if (rme_credit_due(&peer->credit) && !rme_keep_waits(peer))
        rme_peer_send_header(peer, RME_WIRE_CREDIT, RME_CREDIT_RETURN);
}

void rme_peer_push(struct rme_peer *peer)
{
    if (peer->state == RME_PEER_UP)
        push(peer);
    rme_move_turn(peer->rme);
}
