/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sending of messages.  To send, schedule the peer with rme_peer_schedule(); its queues are run
 * after the current batch of events.  A message takes a credit and a buffer; its header returns
 * the unreturned credits.
 */
#include "transport/peer.h"

/* True if a message that needs the reserve may be sent because the side keeps none, given the
 * number of returned credits.  If not, the next header reports the stall. */
static bool may_last(struct rme_peer *peer, uint32_t returns)
{
    if (rme_credit_may_last(&peer->credit, returns))
        return true;
    peer->starved = true;
    if (!peer->credit.stalled) {
        peer->credit.stalled = true;
        rme_count(peer->rme, RME_C_CREDIT_STALLS);
    }
    return false;
}

bool rme_peer_may(struct rme_peer *peer, enum rme_credit_class class)
{
    if (rme_credit_may(&peer->credit, class))
        return true;
    rme_rx_account_check(peer);
    return may_last(peer, rme_credit_ready(&peer->credit));
}

bool rme_peer_may_report(struct rme_peer *peer)
{
    return rme_credit_may(&peer->credit, RME_CREDIT_CONTROL) || may_last(peer, 0);
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
    rme_wire_clear(out);
    peer->rme->pending |= RME_PENDING_FLUSH;
    rme_peer_head(peer, type, 0, out);
}

void rme_peer_head(struct rme_peer *peer, uint8_t type, int32_t tag,
                   struct rme_wire_message *out)
{
    rme_head_fill(peer, type, tag, out);
    rme_head_sent(peer, out);
}

void rme_peer_send_closing(struct rme_peer *peer, const struct rme_wire_message *message,
                           void *tx, uint64_t key)
{
    const struct rme_fabric_ops *ops = peer->rme->ops;
    size_t length = rme_wire_length(message->type, message->nsegment);

    rme_wire_encode(message, tx);
    rme_count(peer->rme, RME_C_CONTROL_SENT);
    if (key != 0)
        ops->tx_send_closing(peer->link, tx, length, key);
    else
        ops->tx_send(peer->link, tx, length);
}

void rme_peer_send_control(struct rme_peer *peer, const struct rme_wire_message *message,
                           void *tx)
{
    rme_peer_send_closing(peer, message, tx, 0);
}

/* Number of receive buffers in the tag of a message without payload. */
static uint32_t buffers_advertised(struct rme_peer *peer, uint8_t type, uint32_t returned)
{
    struct rme_credit *credit = &peer->credit;

    if (type == RME_WIRE_CREDIT)
        return rme_credit_give_more(credit);
    if (type == RME_WIRE_PONG)
        return rme_credit_reduce(credit, peer->asked, returned);
    /* PING asks for what this side can use again */
    return peer->rme->caps->keeps_rx ? 0 : credit->advertised - credit->first_advertised;
}

/* Sends CREDIT at once, if nothing is queued at the fabric. */
static bool send_credit_now(struct rme_peer *peer)
{
    const struct rme_fabric_ops *ops = peer->rme->ops;
    struct rme_wire_message message;
    uint8_t head[RME_WIRE_HEADER_SIZE];

    if (ops->send_now == NULL || peer->tx_wait || !rme_peer_may(peer, RME_CREDIT_RETURN))
        return false;
    rme_rx_account_check(peer); /* decides on rme_credit_more() */
    rme_head_fill(peer, RME_WIRE_CREDIT, (int32_t)rme_credit_more(&peer->credit), &message);
    rme_wire_copy_head(head, &message);
    if (!ops->send_now(peer->link, head, sizeof(head), NULL, 0))
        return false;
    rme_head_sent(peer, &message);
    rme_credit_give_more(&peer->credit);
    rme_count(peer->rme, RME_C_CREDIT_SENT);
    return true;
}

bool rme_peer_send_header(struct rme_peer *peer, uint8_t type, enum rme_credit_class class)
{
    struct rme_wire_message message;
    bool stalled = peer->credit.stalled;
    void *tx;

    if (type == RME_WIRE_CREDIT && send_credit_now(peer))
        return true;
    tx = rme_peer_tx(peer, class);
    if (tx == NULL) {
        /* PING does not report a stall: an idle link needs no more credits */
        if (type == RME_WIRE_PING)
            peer->credit.stalled = stalled;
        return false;
    }
    rme_peer_header(peer, type, &message);
    message.tag = (int32_t)buffers_advertised(peer, type, message.credits);
    rme_wire_encode(&message, tx);
    rme_count(peer->rme, type == RME_WIRE_CREDIT ? RME_C_CREDIT_SENT : RME_C_CONTROL_SENT);
    peer->rme->ops->tx_send(peer->link, tx, RME_WIRE_HEADER_SIZE);
    return true;
}

/* ---- BYE, the last message of a link ---- */

void rme_peer_bye(struct rme_peer *peer)
{
    if (peer->state != RME_PEER_UP)
        return;
    peer->bye_state = RME_BYE_DUE;
    peer->rme->byes++;
    rme_peer_schedule(peer);
}

/* Tells the peer that nothing follows, reports included.  The completion of this transfer
 * without data shows that the hardware of the peer has received BYE. */
void rme_peer_send_bye(struct rme_peer *peer)
{
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return;
    rme_peer_header(peer, RME_WIRE_BYE, &message);
    rme_wire_encode(&message, tx);
    peer->bye = (struct rme_rdma_op){
        .notify = RME_NOTIFY_MSG, .tx = tx, .tx_length = RME_WIRE_HEADER_SIZE, .owner = peer};
    peer->bye_state = RME_BYE_OUT;
    peer->rme->ops->rdma_op(peer->link, &peer->bye);
}

void rme_peer_bye_done(struct rme_peer *peer)
{
    if (peer->bye_state != RME_BYE_NONE)
        peer->rme->byes--;
    peer->bye_state = RME_BYE_NONE;
}
