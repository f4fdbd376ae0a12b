/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Per-peer accounting of receive-side memory: unmatched eager messages, descriptions of large
 * messages (RTS), undelivered unexpected messages and the operations that pull them, and
 * replies that wait for credits.
 *
 * Each kind has a limit per link, which the peer knows (windows and rts_max of the hello;
 * credits).  A violation is a protocol error, which ends that link alone.
 *
 * The process has a limit as well, which no peer knows: option rx_buffered_bytes, a quota
 * (quota.c).  From half of it on the following rules hold:
 *
 * - Credits advertised to peers do not grow.
 * - A host with its share gets no further link, nor one in place of a lost link, whose messages
 *   count until they are taken.
 * - Of the links of such a host, those with their share get no credits back but the two that
 *   control messages need.  When its other credits are used up, a link starts nothing until the
 *   link holds less than its share, or all links together hold less than half of the limit.
 *
 * No credits are withheld from a link with less than its fair share, or of another host.  The
 * shares add up to less than half of the limit, so the memory stays below the limit, except for
 * credits advertised before half of the limit was reached.
 *
 * No deadlock.  Memory is released when this side's host takes the messages, or at the end of
 * the link.  This host may take one message after the other, and the first one may still have
 * to be moved; or this host may wait for a reply to be sent.  For both, the peer has to answer
 * and to return credits of this side.  The peer can: a peer that keeps a reserve starts nothing
 * with two credits, and the credits that it uses come back at once, by the proof of credit.c.
 * A link that was advertised too few credits for a reserve is advertised them when withholding
 * begins, even if the pool is empty: their buffers are fewer bytes than are accounted to such a
 * link, unless its host has very many links.  If the device has no buffers left, or if the peer
 * breaks the rule and starts more than its reserve permits, the link gets nothing back, and an
 * operation with it may block.  A cancel that waits too long ends the link (cancel_ms),
 * and releases everything accounted to the link.  Withheld credits are returned later and in
 * order, so that the acknowledgements are late but correct.
 *
 * Memory that malloc has freed stays with the process for the next flood (removed.md).  So does
 * the memory of messages that is kept for others, at most one window (proto/eager.c).
 */
#include "transport/peer.h"

void rme_rx_account_update(struct rme_peer *peer)
{
    bool before = peer->credit.throttled, now = rme_quota_is_over(peer, RME_QUOTA_RX);

    if (now == before)
        return;
    rme_credit_throttle(&peer->credit, now);
    list_del_init(&peer->throttled);
    if (now)
        list_add_tail(&peer->throttled, &peer->rme->throttled);
    rme_peer_schedule(peer); /* credits may be returned, or a reserve has to be advertised */
}

/* The share of another peer may be larger now, too.  That peer is judged when it releases
 * memory itself or a message is sent to it, so that one release does not visit all peers. */
void rme_rx_uncharge(struct rme_peer *peer, uint64_t bytes)
{
    struct rme *rme = peer->rme;
    struct list_head *node;

    rme_quota_add(peer, RME_QUOTA_RX, -bytes);
    rme_rx_account_check(peer);
    while (!rme_rx_account_is_tight(rme) && (node = list_pop(&rme->throttled)) != NULL)
        rme_rx_account_update(container_of(node, struct rme_peer, throttled));
}
