/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages in lent memory that come before their receives: they stay there until they are
 * matched, so that they are copied once, and not twice.
 *
 * What that costs the peer.  Credits say which places are free, and they come back in order
 * (credit.c).  So those of a message that stays, and of all that were taken after it, are kept
 * back.  The bounds: no more than a quarter of the peer's credits is kept back once half of
 * them is owed, and less than half of the memory once three quarters of it are.  What is beyond
 * that is copied aside, the oldest first, whether or not the host takes anything.  So a peer
 * gets its credits and its places back whatever our host receives, as if nothing had stayed.
 * Who was promised few gets all of them back at once.
 *
 * What that costs our account.  A message that stays counts for its window and for its
 * bookkeeping like any that is kept; its payload is in memory that fast_pool bounds.  It counts
 * in the account of what is kept (keep.c) when it is copied aside.
 *
 * Reports.  A peer must hear that we took its report when we speak next (defer.c).  So when one
 * is taken, nothing stays: no report is ever behind what is kept back.
 *
 * The end.  RELEASE comes behind all messages of the memory: those that are still there are
 * copied aside before it goes.  At the end of the link messages without receives go first.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/arrive.h"
#include "proto/message.h"

bool rme_fast_may_stay(const struct rme_peer *peer, const struct rme_wire_message *arrived)
{
    return arrived->payload_length != 0 && rme_fast_there(peer, arrived) &&
           rme_credit_may_keep(&peer->credit);
}

/* From the oldest one that stays on, credits are kept back. */
static void keep_back(struct rme_peer *peer)
{
    const struct rme_node *ring = &peer->talk->fast.early;
    struct rme_credit *credit = &peer->credit;
    const struct rme_early *first;

    credit->keeps = !rme_node_alone(ring);
    if (!credit->keeps)
        return;
    first = rme_entry(ring->next, struct rme_early, link);
    credit->keeps_from = first->number;
    credit->keeps_bulk = first->bulk;
}

void rme_fast_stay(struct rme_message *message, const void *place)
{
    struct rme_peer *peer = message->peer;

    message->early.place = place;
    message->early.number = peer->credit.taken;
    message->early.bulk = peer->credit.bulk;
    rme_node_append(&peer->talk->fast.early, &message->early.link);
    keep_back(peer);
    rme_count(peer->rme, RME_C_FAST_STAYED);
}

void rme_fast_leave(struct rme_message *message)
{
    struct rme_peer *peer = message->peer;
    bool was_first = peer->talk->fast.early.next == &message->early.link;

    if (message->early.place == NULL)
        return;
    message->early.place = NULL;
    rme_node_remove(&message->early.link);
    if (!was_first)
        return;
    keep_back(peer);
    if (peer->state == RME_PEER_UP && rme_credit_due(&peer->credit))
        rme_peer_kick(peer);
}

/* False: no memory. */
static bool copy_aside(struct rme_message *message)
{
    struct rme_peer *peer = message->peer;
    void *copy = malloc((size_t)message->total);

    if (copy == NULL)
        return false;
    memcpy(copy, message->early.place, (size_t)message->total);
    rme_count_add(peer->rme, RME_C_BYTES_COPIED, message->total);
    message->early.aside = copy;
    message->kept += (size_t)message->total;
    rme_keep(peer, message->total);
    rme_fast_leave(message);
    return true;
}

void rme_fast_bound(struct rme_peer *peer, bool all)
{
    struct rme_node *ring = &peer->talk->fast.early;

    while (!rme_node_alone(ring) && (all || rme_credit_keeps_much(&peer->credit))) {
        struct rme_early *first = rme_entry(ring->next, struct rme_early, link);

        if (!copy_aside(rme_entry(first, struct rme_message, early))) {
            rme_message_no_memory(peer);
            return;
        }
    }
}

void rme_fast_released(struct rme_peer *peer, const struct rme_wire_message *message)
{
    (void)message;
    if (rme_fast_given(peer) == 0) {
        rme_peer_protocol_error(peer, "return of memory that was not granted");
        return;
    }
    rme_fast_bound(peer, true);
    if (rme_peer_listens(peer)) /* else there was no memory for that */
        rme_fast_area_released(peer);
}
