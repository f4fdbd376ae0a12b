/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arrivals of a peer: dispatch (arrive.c) and deferral (defer.c). */
#ifndef RME_ARRIVE_H
#define RME_ARRIVE_H

#include "proto/talk.h"

extern const struct rme_protocol rme_protocol_link, rme_protocol_defer;

/* A message or an immediate that a peer sent. */
struct rme_arrival {
    bool is_immediate;
    uint32_t imm;
    /* the message's buffer, owned by the engine until the message is taken; NULL: the message
     * is in delegated memory */
    void *rx;
    size_t length;
    struct rme_wire_message message; /* decoded; its credits and windows are already applied */
};

/* Are arrivals of this peer's link processed? */
static inline bool rme_peer_listens(const struct rme_peer *peer)
{
    return peer->state == RME_PEER_UP || peer->state == RME_PEER_ACCEPTING;
}

/* True if credits of a header may permit a send.  A message that lacked a credit has set
 * `starved`; a message that waits for the peer's host is in a queue. */
static inline bool rme_peer_waits(const struct rme_peer *peer)
{
    const struct rme_talk *talk = peer->talk;

    return peer->starved || peer->credit.withholds || !rme_node_alone(&peer->endings) ||
           !rme_node_alone(&peer->control) || !rme_node_alone(&peer->xferq) ||
           !rme_node_alone(&talk->sendq[RME_EXPECTED]) ||
           !rme_node_alone(&talk->sendq[RME_UNEXPECTED_STREAM]);
}

/* Processes a received message if it is EAGER and fits a posted receive, and nothing else on
 * the link is affected.  False: nothing was done, and the message is to be decoded and taken
 * as any other one. */
bool rme_take_eager(struct rme_peer *peer, const void *data, size_t length);

/* Process an arrival and return its buffer.  rme_peer_listens() must be true. */
void rme_take_message(struct rme_peer *peer, const struct rme_arrival *arrival);
void rme_take_immediate(struct rme_peer *peer, uint32_t imm);

static inline void rme_rx_return(struct rme *rme, void *rx)
{
    if (rme->ops->rx_return(rme->fabric, rx))
        rme->pending |= RME_PENDING_FLUSH;
}
/* Returns the buffer of an arrival. */
void rme_arrival_drop(struct rme *rme, const struct rme_arrival *arrival);

/* ---- defer.c ---- */

/* Upper bound of the count of this side's messages and immediates that the peer had consumed
 * when the peer sent an immediate.  A message has that count in its header. */
uint32_t rme_defer_told(struct rme_peer *peer, uint32_t imm);
/* Must an arrival with the count `told` be deferred? */
bool rme_defer_moves(const struct rme_peer *peer, uint32_t told); /* because of a transfer */
static inline bool rme_defer_must(const struct rme_peer *peer, uint32_t told)
{
    return !rme_node_alone(&peer->talk->deferred) || peer->shutting != 0 ||
           (!rme_node_alone(&peer->moving) && rme_defer_moves(peer, told));
}
/* Defers the arrival, or fails the link. */
void rme_defer(struct rme_peer *peer, const struct rme_arrival *arrival, uint32_t told);
/* Processes deferred arrivals that may go on, after a transfer to the peer has completed. */
void rme_defer_run(struct rme_peer *peer);
/* Processes all deferred arrivals in order.  The link is down and no device works for the
 * link. */
void rme_defer_end(struct rme_peer *peer);

#endif
