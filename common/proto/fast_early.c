/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Unmatched messages in delegated buffers: their payload stays in place until they are matched,
 * so that it is copied once instead of twice.
 *
 * Cost for the peer.  Credits identify the free places, and return in order (credit.c).  So the
 * credits of a message that stays, and of all messages consumed after it, are withheld.  The
 * bounds: at most a quarter of the peer's credits is withheld once half of them are unreturned,
 * and less than half of the buffer once three quarters of it are.  Payloads beyond that are
 * copied to other memory, the oldest first, whether or not the host receives anything.  So the
 * peer gets its credits and places back independently of the local host, as if no payload had
 * stayed.  A peer that was promised few credits gets all of them back at once.
 *
 * Cost for the accounting.  A message that stays counts for its window and for its bookkeeping
 * like any buffered message; its payload is in memory bounded by fast_pool.  The payload counts
 * in the receive-side accounting (keep.c) when it is copied.
 *
 * Notifications.  The next header to a peer must return the credit of the peer's notification
 * (op/end.c).  So when a notification is consumed, all payloads are copied: no notification is
 * ever behind withheld credits.
 *
 * The end.  RELEASE follows all messages of the buffer: payloads that are still there are
 * copied before the buffer is freed.  At the end of the link unmatched messages are freed
 * first.
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

/* Withholds credits from the oldest payload in the buffer on. */
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

/* Copies the payload to memory of its own.  False: no memory. */
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
    if (rme_peer_listens(peer)) /* else the copies failed for lack of memory */
        rme_fast_area_released(peer);
}
