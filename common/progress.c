/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One round of progress: events from the fabric, then timers.  Nothing here walks peers or operations.  What events make
 * possible to send is sent when the round is over, by rme_settle: so credits given back by the whole round travel on
 * the first message, and doorbells are rung once.
 */
#include <errno.h>

#include "engine.h"

#define ROUND 16      /* events taken at a time */
#define ROUNDS_MAX 8  /* times in one call, before others get the lock */
#define TIMER_SKIP 64 /* rounds between looks at the clock while polling */

/* The peer would use more receive buffers than it has: it gets as many again, up to the limit. */
static void grow_credits(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    uint32_t promised = peer->credit.promised + peer->credit.grown;
    uint32_t more;

    if (promised >= rme->tuning.credits_max || !rme_keep_may_grow(&rme->keep))
        return;
    more = rme->tuning.credits_max - promised;
    if (more > promised)
        more = promised;
    if (rme->ops->rx_reserve(peer->link, more) != 0)
        return;
    rme_credit_grow(&peer->credit, more);
    peer->grew = true;
}

/* What every header says.  False: it cannot be true. */
static bool take_header(struct rme_peer *peer, const struct rme_wire_message *message)
{
    uint32_t more = message->type == RME_WIRE_CREDIT ? (uint32_t)message->tag : 0;

    peer->heard = true;
    if (message->credits != 0 || more != 0) {
        if (rme_credit_gain(&peer->credit, message->credits, more) != 0)
            return false;
        rme_peer_kick(peer);
    }
    if (peer->holds != 0) /* the window may have room for one that waits for it */
        rme_peer_kick(peer);
    return rme_window_report(&peer->window[RME_EXPECTED], message->eager_taken) == 0 &&
           rme_window_report(&peer->window[RME_UNEXPECTED_STREAM], message->unexpected_taken) == 0;
}

static void take_message(struct rme_peer *peer, const struct rme_wire_message *message)
{
    switch ((enum rme_wire_type)message->type) {
    case RME_WIRE_EAGER:
        rme_eager_arrived(peer, message);
        break;
    case RME_WIRE_UNEXPECTED:
        rme_unexp_arrived(peer, message);
        break;
    case RME_WIRE_RTS:
        if (message->flags & RME_WIRE_F_UNEXPECTED)
            rme_unexp_rts(peer, message);
        else
            rme_rts_arrived(peer, message);
        break;
    case RME_WIRE_CTS:
        rme_rndv_cts(peer, message);
        break;
    case RME_WIRE_OFFER:
        rme_rndv_offer(peer, message);
        break;
    case RME_WIRE_GO:
        rme_rndv_go(peer, message);
        break;
    case RME_WIRE_FIN:
        rme_rndv_fin(peer, message);
        break;
    case RME_WIRE_CREDIT:
        break; /* the header says it all */
    case RME_WIRE_CANCEL:
        rme_cancel_arrived(peer, message);
        break;
    case RME_WIRE_CANCEL_ACK:
        rme_cancel_acked(peer, message);
        break;
    case RME_WIRE_REFUSED:
        rme_refused_arrived(peer, message);
        break;
    case RME_WIRE_INVITE:
        rme_invite_arrived(peer, message);
        break;
    case RME_WIRE_PING:
        rme_peer_pinged(peer, (uint32_t)message->tag);
        break;
    case RME_WIRE_PONG:
        rme_peer_yielded(peer, (uint32_t)message->tag);
        break;
    case RME_WIRE_BYE: /* what we have moved may be complete and not be reported yet: LINK_DOWN ends the rest */
        peer->bye_in = true;
        peer->rme->ops->link_disconnect(peer->link, -ECONNRESET);
        break;
    }
}

static bool listens(const struct rme_peer *peer)
{
    return peer->state == RME_PEER_UP || peer->state == RME_PEER_ACCEPTING;
}

void rme_take_message(struct rme_peer *peer, const struct rme_arrival *arrival)
{
    struct rme *rme = peer->rme;
    const struct rme_wire_message *message = &arrival->message;

    take_message(peer, message);
    rme->ops->rx_return(rme->fabric, arrival->rx);
    if (peer->state == RME_PEER_CLOSING && peer->error == -EPROTO)
        rme_log_put(rme->log, RME_LOG_INFO, "%s: that was in a message of type %s and %zu bytes", rme_peer_name(peer),
                    rme_wire_type_name(message->type), arrival->length);
    if (!listens(peer))
        return;
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more messages than it has credits");
        return;
    }
    if (message->type == RME_WIRE_FIN)
        peer->credit.untold = true;
    if (message->flags & RME_WIRE_F_STALLED)
        grow_credits(peer);
    if (rme_credit_due(&peer->credit))
        rme_peer_kick(peer);
}

void rme_take_immediate(struct rme_peer *peer, uint32_t imm)
{
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more immediates than it has credits");
        return;
    }
    peer->credit.untold = true;
    rme_rndv_imm(peer, imm);
    if (rme_credit_due(&peer->credit))
        rme_peer_kick(peer);
}

static void received(struct rme_peer *peer, const struct rme_event *event)
{
    struct rme *rme = peer->rme;
    struct rme_arrival arrival; /* not cleared: it is large, and its immediate is not looked at */

    if (!listens(peer)) {
        /* nothing of a link that is given up is looked at */
    } else if (rme_wire_decode(event->data, event->length, &arrival.message) == -EPROTO) {
        rme_peer_protocol_error(peer, "a malformed message");
    } else if (!take_header(peer, &arrival.message)) {
        rme_peer_protocol_error(peer, "credits or windows that cannot be");
    } else {
        arrival.is_immediate = false;
        arrival.imm = 0;
        arrival.rx = event->rx;
        arrival.length = event->length;
        if (rme_defer_must(peer, peer->credit.told))
            rme_defer(peer, &arrival, peer->credit.told);
        else
            rme_take_message(peer, &arrival);
        return;
    }
    rme->ops->rx_return(rme->fabric, event->rx);
}

static void immediate(struct rme_peer *peer, uint32_t imm)
{
    uint32_t told;

    if (!listens(peer))
        return;
    peer->heard = true;
    told = rme_defer_told(peer, imm);
    if (rme_defer_must(peer, told))
        rme_defer(peer, &(const struct rme_arrival){.is_immediate = true, .imm = imm}, told);
    else
        rme_take_immediate(peer, imm);
}

static void moved(struct rme *rme, struct rme_xfer *xfer)
{
    struct rme_peer *peer = rme_move_peer(xfer);

    rme_move_done(rme, xfer);
    rme_defer_run(peer);
}

static void handle(struct rme *rme, const struct rme_event *event)
{
    struct rme_peer *peer = event->owner;

    switch (event->type) {
    case RME_EV_LINK_REQUEST:
        rme_peer_request(rme, event);
        break;
    case RME_EV_LINK_UP:
        rme_peer_up(peer, event);
        break;
    case RME_EV_LINK_DOWN:
        rme_peer_down(peer, event);
        break;
    case RME_EV_RECV:
        received(peer, event);
        break;
    case RME_EV_IMM:
        immediate(peer, event->imm);
        break;
    case RME_EV_XFER_DONE:
        if (event->xfer == &peer->bye)
            rme_peer_bye_done(peer);
        else
            moved(rme, event->xfer);
        break;
    case RME_EV_CLOSED:
        rme_unit_closed(rme, event->closed);
        rme_defer_run(peer);
        break;
    case RME_EV_TX_ROOM:
        peer->tx_wait = false;
        rme_peer_kick(peer);
        break;
    }
}

static void run_timers(struct rme *rme)
{
    uint64_t now = rme_now();
    struct rme_timer *timer;

    rme->timer_skip = 0;
    while ((timer = rme_timers_due(&rme->timers, now)) != NULL)
        rme_peer_timer(rme_entry(timer, struct rme_peer, timer), now);
    rme_zone_look(rme->zone, now);
}

int rme_progress(struct rme *rme, bool timers)
{
    struct rme_event event[ROUND];
    int total = 0;

    if (rme->lingers)
        rme->unflushed = true;

    for (int round = 0; round < ROUNDS_MAX; round++) {
        int n = rme->ops->poll(rme->fabric, event, ROUND);

        for (int i = 0; i < n; i++)
            handle(rme, &event[i]);
        total += n > 0 ? n : 0;
        if (n < ROUND)
            break;
    }
    if (total > 0)
        rme->unflushed = true; /* buffers were given back */
    if (timers || ++rme->timer_skip >= TIMER_SKIP)
        run_timers(rme);
    return total;
}
