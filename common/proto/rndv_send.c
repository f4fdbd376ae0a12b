/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sender's end of a rendezvous: RTS, and what the receiver answers. */
#include <errno.h>

#include "proto/rndv.h"
#include "proto/send.h"
#include "proto/talk.h"

/* copies in zones and registrations for one operation that wait for receives, for each peer */
#define COSTLY_OFFERS 16
/* sends of a peer whose memory is made ready before their RTS; more would have to wait for the
 * same threads */
#define PREPARING_MAX 4u

static enum rme_stream stream_of(const struct rme_op *op)
{
    return op->kind == RME_OP_UNEXPECTED ? RME_UNEXPECTED_STREAM : RME_EXPECTED;
}

/* Asks the planner, with the receiver's side unknown, for our own memory; and whether to offer
 * it. */
static int plan_send(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_plan_in in = rme_rndv_plan_in(rme, op->size);
    struct rme_plan plan;
    int error = rme_rndv_new(rme, op);

    if (error != 0)
        return error;
    peer->talk->preparing += op->kind == RME_OP_SEND;
    in.send = rme_rndv_own_side(rme, op);
    in.recv.server = (peer->hello.flags & RME_HELLO_F_SERVER) != 0;
    in.has_read = (peer->hello.flags & RME_HELLO_F_READ) != 0;
    rme_plan(&in, &plan);
    op->rndv->memory = plan.send_pack ? RME_MEMORY_PACK : RME_MEMORY_DIRECT;
    op->rndv->max_segs = rme_exposed_max(rme, RME_WIRE_RTS, peer->tx_size);
    op->rndv->offers = plan.offer;
    op->rndv->access = op->rndv->offers ? RME_ACCESS_REMOTE_READ : RME_ACCESS_LOCAL;
    return 0;
}

/*
 * An offer may wait long for its receive.  What is held meanwhile is bounded: a few copies for
 * each peer, or registrations where each operation has its own, no reserve block; without an
 * offer the memory is made ready when the receiver answers.
 */
static bool offerable(const struct rme_op *op, uint8_t memory)
{
    return (memory == RME_MEMORY_DIRECT && !op->peer->rme->pin.each) ||
           (memory != RME_MEMORY_RESERVE &&
            op->peer->talk->rts_out[stream_of(op)] < COSTLY_OFFERS);
}

/* The message goes without the offer after all. */
static void offer_nothing(struct rme *rme, struct rme_op *op, struct rme_unit *unit)
{
    rme_unit_free(rme, unit);
    op->rndv->prepared = 0;
    op->rndv->offers = false;
    op->rndv->access = RME_ACCESS_LOCAL;
}

/* The first unit, which goes along with RTS; NULL with *wait: not ready yet, or there will be
 * none. */
static struct rme_unit *offered_unit(struct rme *rme, struct rme_op *op, bool *wait)
{
    struct rme_rndv *r = op->rndv;
    struct rme_unit *unit;

    *wait = false;
    if (!r->offers || (rme_node_alone(&r->units) && !offerable(op, r->memory)))
        return NULL;
    if (rme_node_alone(&r->units) && !rme_unit_next(rme, op)) {
        *wait = true; /* it was stopped */
        return NULL;
    }
    unit = rme_entry(r->units.next, struct rme_unit, link);
    if (offerable(op, unit->memory)) {
        *wait = unit->state != RME_UNIT_READY;
        return *wait ? NULL : unit;
    }
    offer_nothing(rme, op, unit);
    return NULL;
}

static void send_rts(struct rme *rme, struct rme_op *op, struct rme_unit *unit, void *tx)
{
    struct rme_peer *peer = op->peer;
    struct rme_wire_message message;

    rme_peer_header(peer, RME_WIRE_RTS, &message);
    message.tag = op->tag;
    message.from = rme_name_number(&op->rndv->own);
    message.total = op->size;
    message.shape = op->nseg;
    message.load_ops = rme->load.ops;
    message.load_bytes = rme->load.bytes;
    message.nsegment = unit != NULL ? unit->nmseg : 0;
    message.flags |= op->kind == RME_OP_UNEXPECTED ? RME_WIRE_F_UNEXPECTED : 0;
    message.flags |= unit != NULL && unit->length == op->size ? RME_WIRE_F_READY : 0;
    if (op->kind == RME_OP_SEND)
        message.flags |= rme_invite_sent(&peer->talk->invites, op->tag, message.from)
                             ? RME_WIRE_F_DECLINED
                             : 0;
    rme_wire_encode(&message, tx);
    if (unit != NULL) {
        rme_unit_describe(unit, tx, RME_WIRE_RTS);
        unit->exposed = true;
        unit->told = true;
        op->rndv->at = unit->length;
    }
    rme_count(rme, RME_C_CONTROL_SENT);
    rme->ops->tx_send(peer->link, tx, rme_wire_length(RME_WIRE_RTS, message.nsegment));
}

/* What is queued now, of so many bytes, is handed to the fabric at once, before anything else.
 */
static bool nothing_before_it(const struct rme_peer *peer, uint64_t bytes)
{
    const struct rme *rme = peer->rme;

    return rme_node_alone(&peer->xferq) && rme_move_room(peer, bytes) &&
           rme->xfers < rme->tuning.xfers;
}

enum invited { INVITED_ENDED = -1, INVITED_WAITS, INVITED_GONE, INVITED_NOT };

/* The peer has opened memory for a message of this tag: writes into it, if it is for this one
 * and all is ready. */
static enum invited take_invitation(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_opening *opening = peer->talk->invites.held;
    struct rme_unit *unit;
    struct rme_rndv *r;

    if (opening->length != op->size || !rme_move_whole(rme, op->size) ||
        !nothing_before_it(peer, op->size) || (op->rndv == NULL && plan_send(rme, op) != 0))
        return INVITED_NOT;
    if (rme_plan_declines(&rme->load, op->rndv->offers))
        return INVITED_NOT;
    if (!rme_peer_may(peer, RME_CREDIT_DATA))
        return INVITED_WAITS;
    r = op->rndv;
    if (rme_node_alone(&r->units) && !rme_unit_next(rme, op))
        return op->state == RME_OP_QUEUED ? INVITED_WAITS : INVITED_ENDED;
    unit = rme_entry(r->units.next, struct rme_unit, link);
    if (unit->state != RME_UNIT_READY || unit->length != op->size) {
        if (!r->offers) { /* it would be held until the receiver answers */
            rme_unit_free(rme, unit);
            r->prepared = 0;
        }
        return INVITED_NOT;
    }
    if (peer->credit.exact && peer->credit.untold &&
        !rme_peer_send_header(peer, RME_WIRE_CREDIT, RME_CREDIT_RETURN))
        return INVITED_WAITS; /* an immediate cannot say what we have taken: defer.c */
    if (!rme_peer_may_report(peer))
        return INVITED_WAITS; /* that was the last one */
    rme_send_leave(op);
    rme_rndv_set_peer_handle(op, peer->talk->invites.from);
    rme_node_append(&r->openings, &rme_invite_take(peer)->link);
    r->opened = op->size;
    r->whole = r->invited = true;
    rme_rndv_begin(rme, op, RME_OP_MOVING);
    while (!rme_node_alone(&peer->xferq) && rme_move_push(peer))
        continue;
    return INVITED_GONE;
}

bool rme_rndv_in_turn(const struct rme_op *op)
{
    const struct rme_peer *peer = op->peer;

    uint32_t out = peer->talk->rts_out[stream_of(op)];

    if (op->rndv != NULL || op->kind == RME_OP_UNEXPECTED)
        return out < peer->hello.rts_max;
    /* those come first */
    return peer->talk->preparing < PREPARING_MAX &&
           out + peer->talk->preparing < peer->hello.rts_max;
}

/* It goes to the invitation of its tag. */
static enum rme_started sent_invited(enum invited invited)
{
    return invited == INVITED_WAITS ? RME_START_STUCK : RME_START_GONE;
}

enum rme_started rme_rndv_start(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    enum rme_stream stream = stream_of(op);
    struct rme_unit *unit;
    enum invited invited;
    bool wait;
    void *tx;

    if (peer->talk->invites.held != NULL && peer->talk->invites.tag == op->tag &&
        op->kind == RME_OP_SEND) {
        invited = take_invitation(rme, op);
        if (invited != INVITED_NOT)
            return sent_invited(invited);
    }
    if (!rme_rndv_in_turn(op))
        return RME_START_TURN;
    if (op->rndv == NULL && plan_send(rme, op) != 0) {
        rme_send_leave(op);
        rme_op_end(rme, op, -ENOMEM);
        return RME_START_GONE;
    }
    unit = offered_unit(rme, op, &wait);
    if (wait)
        return op->state == RME_OP_QUEUED ? RME_START_PREPARE : RME_START_GONE;
    tx = rme_peer_tx(peer, RME_CREDIT_DATA);
    if (tx == NULL)
        return RME_START_STUCK;
    if (unit != NULL && !rme_unit_offer(peer, unit)) {
        offer_nothing(rme, op, unit);
        unit = NULL;
    }
    send_rts(rme, op, unit, tx);
    rme_send_leave(op);
    peer->talk->rts_out[stream]++;
    op->rndv->rts_out = true;
    rme_op_step(rme, op, RME_OP_RTS);
    return RME_START_GONE;
}

/* The send that an answer is for; NULL: there is none such, the peer made a mistake. */
static struct rme_op *answered(struct rme_peer *peer, uint32_t handle)
{
    struct rme_op *op = rme_rndv_find(peer, handle);

    if (op == NULL || !rme_op_sends(op) || !op->rndv->rts_out)
        return NULL;
    return op;
}

/* The receiver's memory is open: this is its first window, or the next one. */
static void receiver_opened(struct rme_op *op, const struct rme_wire_message *message)
{
    struct rme *rme = op->peer->rme;
    int error = rme_rndv_open(op, message);

    if (error != 0) {
        rme_rndv_open_failed(op->peer, error);
    } else if (op->state == RME_OP_RTS) {
        rme_rndv_set_peer_handle(op, message->from);
        op->rndv->at = 0;
        op->rndv->max_segs = UINT32_MAX;
        op->rndv->access = RME_ACCESS_LOCAL;
        rme_units_close(rme, op); /* what was offered to be read */
        rme_rndv_begin(rme, op, RME_OP_MOVING);
    } else {
        rme_rndv_advance(rme, op);
    }
}

void rme_rndv_cts(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = answered(peer, message->to);

    if (op == NULL || op->state == RME_OP_EXPOSED ||
        (op->state == RME_OP_MOVING && message->from != rme_rndv_peer_handle(op->rndv))) {
        rme_peer_protocol_error(peer, "a CTS for no send that waits for it");
        return;
    }
    if (op->state == RME_OP_RTS || op->state == RME_OP_MOVING)
        receiver_opened(op, message); /* else given up; the receiver will hear of it, or has */
}

void rme_rndv_crossed(struct rme_peer *peer, uint32_t handle,
                      const struct rme_wire_message *invite)
{
    struct rme_op *op = answered(peer, handle);

    if (op == NULL || op->state != RME_OP_RTS || op->size != invite->window)
        return;
    rme_count(peer->rme, RME_C_INVITES_TAKEN);
    op->rndv->invited = true;
    receiver_opened(op, invite);
}

void rme_rndv_go(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_op *op = answered(peer, message->to);

    if (op == NULL || op->state == RME_OP_EXPOSED || op->state == RME_OP_MOVING) {
        rme_peer_protocol_error(peer, "a GO for no send that waits for it");
        return;
    }
    if (op->state != RME_OP_RTS)
        return;
    op->rndv->reads = true;
    rme_rndv_set_peer_handle(op, message->from);
    op->rndv->access = RME_ACCESS_REMOTE_READ;
    op->rndv->max_segs = rme_exposed_max(peer->rme, RME_WIRE_OFFER, peer->tx_size);
    rme_rndv_begin(peer->rme, op, RME_OP_EXPOSED);
}

void rme_rndv_fin(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme *rme = peer->rme;
    struct rme_op *op = answered(peer, message->to);

    if (op == NULL || op->state == RME_OP_MOVING) {
        rme_peer_protocol_error(peer, "a FIN for no send that waits for it");
        return;
    }
    if (op->state == RME_OP_ENDING)
        return;
    if (message->status != RME_WIRE_OK) {
        rme_op_end(rme, op, rme_wire_status_error(message->status));
        return;
    }
    if (message->offset > op->rndv->at || (message->offset <= op->rndv->done && op->size > 0)) {
        rme_peer_protocol_error(peer, "a FIN for bytes that were not offered");
        return;
    }
    op->rndv->reads = true;
    rme_rndv_exposed_done(rme, op, message->offset);
}
