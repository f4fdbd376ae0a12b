/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Deferral of arrivals that overtake the completions of transfers.
 *
 * The initiator of a transfer learns its end twice: from the completion on its own device, and
 * from the peer's answer, which the peer's host may send once it has the data.  Devices report
 * the two in any order:  ACKs are coalesced, and receive and send completions come from
 * different queues.  A host that gets the answer to a write before the end of its own send
 * takes the transfer for stuck (OrangeFS's flows cancel such a transfer and write everything
 * again).  So an arrival, a message or an immediate, is deferred while a transfer is in flight
 * whose notification the peer had consumed when the peer sent the arrival.
 *
 * The same holds for a send whose memory the peer has read: the send ends when its memory is
 * invalidated (expose.c).
 *
 * Count of consumed notifications.  Each message and each immediate of this side uses a credit,
 * and the peer returns credits in the order of consumption, in every header (credit.c).  The
 * sum of returned credits, `told`, is therefore a count of the messages and immediates that the
 * peer has consumed.  Each transfer remembers the position of its notification in the same
 * count (move.c).  An immediate of the peer carries no count.  An immediate belongs to an RTS,
 * which carried a count after the peer's host had posted the send, or to an invitation.  In the
 * latter case a CREDIT message precedes the immediate if notifications of this side were
 * consumed since the last header (invite_send.c), and the immediate keeps its place behind
 * CREDIT.  A peer whose hello does not declare exact counts sends no such CREDIT.  An immediate
 * of such a peer for a receive that has invited may therefore follow anything that the peer can
 * have consumed: the immediate waits for all transfers whose notifications have been handed to
 * the device.
 *
 * Notifications without a position.  On fabrics with `reports_apart`, `told` is the number of
 * consumed notifications, and does not identify them.  Each transfer then remembers the value
 * of `told` when its notification was sent: the peer may have consumed the notification as soon
 * as `told` is larger.  So an arrival may be deferred longer than necessary, and at the end of
 * the link the count is used only if the peer has consumed everything.
 *
 * Exception.  A peer above its share of receive-side memory gets few credits back (keep.c), and
 * so does not learn which notifications this side has consumed: count and credits are one
 * field, and version 1 has no message for the count alone.  Holding back this side's answers
 * instead could deadlock, because the host may need to send them before the host takes the
 * buffered messages.  So such a peer, and no other, may get an answer before the completion of
 * its own device, until this side buffers less for the peer.
 *
 * Why deferral cannot deadlock.  An arrival waits only for transfers whose notifications the
 * peer has consumed.  The notification follows the data, so the device has moved all of it: the
 * completion needs no peer, credit, memory or call of the host.  The completion needs the
 * device alone, or the end of the link, at which all deferred arrivals are processed.
 * Transfers that still move data are not waited for, so a short answer to something else passes
 * a large transfer, with two exceptions: an immediate of a peer without exact counts, and any
 * arrival on a fabric with `reports_apart`, may wait for a transfer whose notification has only
 * been handed to the device.  Such a transfer has all its resources: both memories, and a
 * receive buffer for the notification.  Arrivals behind a deferred one wait with it, because a
 * link's messages are processed in order, and wait no longer.  Credits and windows of a header
 * are applied on arrival, so the sends of this side never wait.
 *
 * Bounds.  A deferred message keeps its receive buffer, and its credit is not returned.  So a
 * peer cannot have more deferred messages than promised credits; more of them are a protocol
 * error.
 *
 * Failure.  When the link goes down, transfers whose notifications the peer has consumed are
 * complete even without a CQE, and the device no longer touches memory.  Those transfers end
 * with success, the deferred arrivals follow in order, then the rest of the link ends.  When
 * this side fails the link, deferred arrivals are dropped like all others.  A peer without
 * exact counts may seem to have consumed more than it has: its arrivals may be deferred until
 * later transfers are complete, and its count is not used at the end of the link.
 */
#include <errno.h>
#include <stdlib.h>

#include "proto/arrive.h"
#include "proto/rndv.h"

struct deferred {
    struct rme_node link; /* in peer->talk->deferred */
    /* count of this side's messages that the peer had consumed when sending */
    uint32_t told;
    struct rme_arrival arrival;
};

/* Finds a transfer in flight whose notification the peer may have consumed at the count `told`;
 * NULL: none. */
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

/* Processes the first deferred arrival.  If the link fails in this call, the queue is empty
 * afterwards. */
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

/* Completes the transfers whose notifications the peer has consumed. */
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
