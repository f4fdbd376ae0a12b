/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a peer says after it has got our data waits until we know that the data is gone.
 *
 * A side that moves data learns of its end twice: its device completes the transfer, and the
 * peer, whose host has the data then, says something in answer.  Devices report the two in any
 * order: acknowledgements are coalesced, and receive and send completions come from different
 * queues.  A host that gets the answer to a write before it hears that the write's data was
 * sent takes its transfer for stuck (OrangeFS's flows cancel it, and write everything again).
 * So an arrival, be it a message or an immediate, is deferred as long as a transfer is under
 * way of which the peer had taken the report when it spoke.
 *
 * The same holds for a send whose memory the peer has read: it ends when that is closed
 * (expose.c).
 *
 * How we know what the peer had taken.  Each message and each immediate of ours uses a credit,
 * and the peer returns credits in the order of taking, in every header (credit.c).  The sum of
 * what came back, `told`, is thus a count of ours that it has taken.  Each transfer remembers
 * the place of the report behind it in the same count (move.c).  An immediate of the peer
 * carries no count.  It belongs to an RTS, which had one when its host had posted the send, or
 * was invited: then a CREDIT message goes before it if reports of ours were taken since the
 * last header (rndv_send.c), and it keeps its place behind that.  A peer whose hello does not
 * say that its counts are exact sends none.  So an immediate of such a peer for a receive that
 * has invited may follow anything that the peer can have taken: it waits for all transfers
 * whose reports have been handed to the device.
 *
 * Reports without a place.  Where the fabric lets reports overtake, `told` says how many of
 * ours were taken, not which.  Then each transfer remembers what was told when its report went
 * out: the peer may have taken it as soon as it tells of more.  So an arrival may be deferred
 * longer than it needs, and at the end of the link the peer is believed only if it has taken
 * all.
 *
 * Where it does not hold.  A peer that makes us keep more than its share gets few credits back
 * (keep.c), and so is not told what we have taken: the count and the credits are one field, and
 * to send the one without the other takes a message that version 1 does not have.  To hold our
 * own answers back instead could block, as our host may want them out before it takes what we
 * keep.  So such a peer, and no other, may hear our answer before its own device's word, until
 * we keep less for it.
 *
 * Why nothing blocks.  An arrival waits only for transfers whose reports the peer has taken.
 * The report is behind their data, so the device has moved it all: their completion needs no
 * peer, no credit, no memory and no call of a host, only the device, or the end of the link, at
 * which everything that waits is taken.  Transfers that still move data are not waited for, so
 * a short answer to something else passes a large transfer, with two exceptions: an immediate
 * of an old peer, and any arrival where reports are apart, may wait for one whose report is
 * only handed to the device.  That has all that it needs: both memories, and a receive buffer
 * for the report.  Arrivals behind a deferred one wait with it, because a link's messages are
 * taken in order, and no longer than it.  What the header says (credits, windows) is taken note
 * of at once, so our own sending never waits.
 *
 * Bounds.  What is deferred keeps its receive buffer and its credit is not returned.  So a peer
 * has no more of them than it was promised; more is a protocol error.
 *
 * Failure.  When the link goes down, transfers whose reports the peer has taken are complete,
 * whatever became of their completions, and the device touches no memory any more.  They end
 * with success, what is deferred follows in order, then the rest of the link ends.  When we
 * give the link up ourselves, what is deferred is dropped like all that has not arrived.  A
 * peer whose hello does not say that its counts are exact may seem to have taken more than it
 * has: its arrivals may be deferred longer, until transfers are complete that it knows nothing
 * of, and at the end of the link it is not believed.
 */
#include <errno.h>
#include <stdlib.h>

#include "proto/arrive.h"
#include "proto/rndv.h"

struct deferred {
    struct rme_node link; /* in peer->talk->deferred */
    uint32_t told;        /* what the peer had taken of ours when it said this */
    struct rme_arrival arrival;
};

/* A transfer under way whose report the peer may have taken when so much was told, or NULL. */
static struct rme_move *taken_move(const struct rme_peer *peer, uint32_t told)
{
    for (struct rme_node *node = peer->moving.next; node != &peer->moving; node = node->next) {
        struct rme_move *move = rme_entry(node, struct rme_move, link);

        if (move->reported && (int32_t)(told - move->report) >= 0)
            return move;
    }
    return NULL;
}

uint32_t rme_defer_told(struct rme_peer *peer, uint32_t imm)
{
    const struct rme_op *op;

    if (peer->credit.exact)
        return peer->credit.told;
    op = rme_rndv_find(peer, imm);
    if (op != NULL && (op->state == RME_OP_INVITING || op->state == RME_OP_CANCELLING))
        return peer->credit.spent;
    return peer->credit.told;
}

bool rme_defer_moves(const struct rme_peer *peer, uint32_t told)
{
    return taken_move(peer, told) != NULL;
}

void rme_defer(struct rme_peer *peer, const struct rme_arrival *arrival, uint32_t told)
{
    struct rme *rme = peer->rme;
    struct deferred *deferred;

    if (peer->aside + peer->credit.owed >= peer->credit.promised) {
        rme_arrival_drop(rme, arrival);
        rme_peer_protocol_error(peer, "more messages than credits");
        return;
    }
    deferred = malloc(sizeof(*deferred));
    if (deferred == NULL) {
        rme_arrival_drop(rme, arrival);
        rme_peer_fail(peer, -ENOMEM, "no memory for a delayed message");
        return;
    }
    deferred->told = told;
    deferred->arrival = *arrival;
    rme_node_append(&peer->talk->deferred, &deferred->link);
    peer->aside++;
    rme_count(rme, RME_C_DEFERRED);
}

static struct deferred *first_of(struct rme_peer *peer)
{
    return rme_node_alone(&peer->talk->deferred)
               ? NULL
               : rme_entry(peer->talk->deferred.next, struct deferred, link);
}

/* Takes the first one.  It may give the link up, and then nothing is left behind it. */
static void take_first(struct rme_peer *peer, struct deferred *first)
{
    rme_node_remove(&first->link);
    peer->aside--;
    if (first->arrival.is_immediate)
        rme_take_immediate(peer, first->arrival.imm);
    else
        rme_take_message(peer, &first->arrival);
    free(first);
}

void rme_defer_run(struct rme_peer *peer)
{
    struct deferred *first;

    while (peer->shutting == 0 && (first = first_of(peer)) != NULL &&
           taken_move(peer, first->told) == NULL)
        take_first(peer, first);
}

/* What the peer has taken is complete. */
static void believe(struct rme_peer *peer, uint32_t told)
{
    struct rme_move *move;
    bool sure =
        peer->credit.exact && (!peer->rme->caps->reports_apart || told == peer->credit.spent);

    while (sure && (move = taken_move(peer, told)) != NULL)
        rme_move_done(peer->rme, &move->xfer);
}

void rme_defer_end(struct rme_peer *peer)
{
    struct deferred *first;

    rme_units_lost(peer);
    while ((first = first_of(peer)) != NULL) {
        believe(peer, first->told);
        take_first(peer, first);
        rme_units_lost(peer);
    }
    if (peer->state == RME_PEER_UP)
        believe(peer, peer->credit.told);
}

static void left(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    struct deferred *first;

    while ((first = first_of(peer)) != NULL) {
        rme_node_remove(&first->link);
        rme_arrival_drop(rme, &first->arrival);
        free(first);
    }
    peer->aside = 0;
}

static void made(struct rme_peer *peer)
{
    rme_node_init(&peer->talk->deferred);
}

const struct rme_protocol rme_protocol_defer = {.made = made, .left = left};
