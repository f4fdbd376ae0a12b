/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arrivals of a peer.  See arrive.c. */
#ifndef RME_ARRIVE_H
#define RME_ARRIVE_H

#include "proto/talk.h"

extern const struct rme_protocol rme_protocol_link;

/* A message that a peer sent. */
struct rme_arrival {
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

/* Process an arrival and return its buffer.  rme_peer_listens() must be true. */
void rme_take_message(struct rme_peer *peer, const struct rme_arrival *arrival);
void rme_take_immediate(struct rme_peer *peer, uint32_t imm);

/* Returns the buffer of an arrival. */
void rme_arrival_drop(struct rme *rme, const struct rme_arrival *arrival);

#endif
