/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sender's side of invitations (see invite.c): invitations are held, taken by the next
 * message of their tag, or cancelled. */
#include <errno.h>

#include "plan/plan.h"
#include "proto/cancel.h"
#include "proto/rndv.h"
#include "proto/send.h"
#include "proto/talk.h"

/* CANCEL_ACK to one peer that wait for its credits; the peer cannot invite more meanwhile */
#define ACKS_MAX 1024u

/* Would a transfer of `bytes` bytes that is queued now be handed to the fabric at once, before
 * any other? */
static bool nothing_before_it(const struct rme_peer *peer, uint64_t bytes)
{
    return rme_node_alone(&peer->xferq) && rme_move_room(peer, bytes) &&
           rme_move_has_turn(peer);
}

/* Writes the send into the invited receive, if the invitation is for it and everything is
 * ready.  Otherwise rndv_send.c uses the fragment, for RTS. */
static enum rme_started start(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_invites *invites = &peer->talk->invites;
    struct rme_unit *unit;
    struct rme_rndv *r;

    if (invites->held == NULL || invites->tag != op->tag || op->kind != RME_OP_SEND)
        return RME_START_OTHER;
    if (invites->held->length != op->size || !rme_move_whole(rme, op->size) ||
        !nothing_before_it(peer, op->size) ||
        (op->rndv == NULL && rme_rndv_plan_send(rme, op) != 0))
        return RME_START_OTHER;
    if (rme_plan_declines(&rme->load, op->rndv->offers))
        return RME_START_OTHER;
    if (!rme_peer_may(peer, RME_CREDIT_DATA))
        return RME_START_STUCK;
    r = op->rndv;
    if (rme_node_alone(&r->units) && !rme_unit_next(rme, op))
        return op->state == RME_OP_QUEUED ? RME_START_STUCK : RME_START_GONE;
    unit = rme_entry(r->units.next, struct rme_unit, link);
    if (unit->state != RME_UNIT_READY || unit->length != op->size || rme_unit_waits(rme, unit))
        return RME_START_OTHER;
    if (peer->credit.exact && peer->credit.untold &&
        !rme_peer_send_header(peer, RME_WIRE_CREDIT, RME_CREDIT_RETURN))
        /* an immediate carries no count of consumed messages: op/end.c */
        return RME_START_STUCK;
    if (!rme_peer_may_report(peer))
        return RME_START_STUCK; /* CREDIT has used the last credit */
    rme_send_leave(op);
    rme_rndv_set_peer_handle(op, invites->from);
    rme_node_append(&r->openings, &invites->held->link);
    invites->held = NULL;
    rme_count(rme, RME_C_INVITES_TAKEN);
    r->opened = op->size;
    r->whole = r->invited = true;
    rme_rndv_begin(rme, op, RME_OP_MOVING);
    if (op->state != RME_OP_MOVING) /* no memory: CANCEL precedes the next message of the tag */
        return RME_START_STUCK;
    while (!rme_node_alone(&peer->xferq) && rme_move_push(peer))
        continue;
    return RME_START_GONE;
}

/* Finds the oldest message of the tag among the last `unseen` that were sent; NULL: none. */
static const struct rme_invite_sent *sent_since(const struct rme_invites *invites,
                                                uint32_t unseen, int32_t tag)
{
    for (uint32_t i = unseen; i > 0; i--) {
        const struct rme_invite_sent *sent =
            &invites->ring[(invites->sent - i) % RME_INVITE_RING];

        if (sent->tag == tag)
            return sent;
    }
    return NULL;
}

static void arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_invites *invites = &peer->talk->invites;
    uint32_t unseen = invites->sent - message->to;
    const struct rme_invite_sent *sent;

    if (invites->held != NULL || unseen > RME_INVITE_RING || message->window == 0 ||
        message->offset != 0) {
        rme_peer_protocol_error(peer, "an unexpected INVITE");
        return;
    }
    sent = sent_since(invites, unseen, message->tag);
    if (sent != NULL) {
        if (sent->handle != 0)
            rme_rndv_crossed(peer, sent->handle, message);
        return;
    }
    invites->held = rme_opening_new(message);
    if (invites->held == NULL) {
        rme_peer_fail(peer, -ENOMEM, "no memory for an invitation");
        return;
    }
    invites->tag = message->tag;
    invites->from = message->from;
    rme_send_invited(peer, message->tag);
}

/* Finds the send that writes, or wrote, into the peer's receive. */
static struct rme_op *send_into(struct rme_peer *peer, uint32_t receive)
{
    struct rme_op *op = rme_rndv_find_theirs(peer, RME_NAME_RECEIVE, receive);

    return op != NULL && (op->state == RME_OP_MOVING || op->state == RME_OP_CANCELLING) ? op
                                                                                        : NULL;
}

/* Handles the peer's cancel of the invitation of its receive `from`. */
static void taken_back(struct rme_peer *peer, uint32_t from)
{
    struct rme_invites *invites = &peer->talk->invites;
    struct rme_op *op = send_into(peer, from);

    if (op != NULL) {
        op->rndv->peer_stop = true;
        rme_rndv_halt(peer->rme, op);
        return;
    }
    if (invites->held != NULL && invites->from == from)
        rme_invite_drop(invites);
    if (invites->acks >= ACKS_MAX) {
        rme_peer_protocol_error(peer, "more cancelled invitations than unread answers");
        return;
    }
    invites->acks++;
    rme_cancel_ack(peer, from, &invites->acks);
}

static bool cancelled(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    if ((cancel->flags & RME_WIRE_F_FROM_SENDER) != 0 || cancel->to != 0)
        return false;
    taken_back(peer, cancel->from);
    return true;
}

static void left(struct rme_peer *peer)
{
    rme_invite_drop(&peer->talk->invites);
}

static void started(struct rme_peer *peer)
{
    struct rme_invites *invites = &peer->talk->invites;

    invites->seen = invites->sent = invites->acks = 0;
}

const struct rme_protocol rme_protocol_invitation = {
    .start = start,
    .cancelled = cancelled,
    .arrived = {[RME_WIRE_INVITE] = arrived},
    .started = started,
    .left = left,
};
