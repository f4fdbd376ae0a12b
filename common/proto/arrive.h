/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arrivals of a peer.  See arrive.c. */
#ifndef RME_ARRIVE_H
#define RME_ARRIVE_H

#include "proto/proto.h"

/* Are arrivals of this peer's link processed? */
static inline bool rme_peer_listens(const struct rme_peer *peer)
{
    return peer->state == RME_PEER_UP || peer->state == RME_PEER_ACCEPTING;
}

/* True if credits or windows of a header may permit a send.  A message that lacked a credit has
 * set `starved`; a message that waits for the peer's host is in a queue. */
static inline bool rme_peer_waits(const struct rme_peer *peer)
{
    const struct rme_peer_proto *proto = peer->proto;

    return peer->starved || peer->credit.throttled || !list_empty(&peer->endings) ||
           !list_empty(&peer->control) || !list_empty(&peer->rdma_queue) ||
           !list_empty(&proto->sendq[RME_EXPECTED]) ||
           !list_empty(&proto->sendq[RME_UNEXPECTED_STREAM]);
}

/* Processes a received message if it is EAGER and fits a posted receive, and nothing else on
 * the link is affected.  False: nothing was done, and the message is to be decoded and taken
 * as any other one. */
bool rme_take_eager(struct rme_peer *peer, const void *data, size_t length);

/* Process a message, whose credits and windows are already applied, or an immediate.
 * rme_peer_listens() must be true. */
void rme_take_message(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_take_immediate(struct rme_peer *peer, uint32_t imm);

static inline void rme_rx_return(struct rme *rme, void *rx)
{
    if (rme->ops->rx_return(rme->fabric, rx))
        rme->pending |= RME_PENDING_FLUSH;
}

#endif
