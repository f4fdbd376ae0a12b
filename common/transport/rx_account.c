/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Accounting of receive-side memory: unmatched eager messages, descriptions of large messages
 * (RTS), undelivered unexpected messages and the operations that pull them, and replies that
 * wait for credits.  The peer knows the limits per link (hello, credits); a violation is a
 * protocol error.  No peer knows the limit of the process, the quota RME_QUOTA_RX, option
 * rx_buffered_bytes.  From half of it on:
 *
 * - Credits advertised to peers do not grow.
 * - A host with its share gets no further link, nor one in place of a lost link, whose messages
 *   count until they are taken.
 * - Of the links of such a host, those with their share get no credits back but the two that
 *   control messages need, until the link holds less than its share, or all links together hold
 *   less than half of the limit.  doc/design/credits.md (withholding) excludes a deadlock.
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
