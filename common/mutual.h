/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Receives at addresses that were looked up, for messages over links that came to us: mutual.c. */
#ifndef RME_MUTUAL_H
#define RME_MUTUAL_H

#include "peer.h"

/* May a receive at this peer meet a message over a link of the other direction?  Hosts of requests and answers: hardly ever. */
static inline bool rme_mutual_may(const struct rme_peer *peer)
{
    return !peer->passive && !peer->spoken;
}

/* Flags of an expected message to the peer. */
static inline uint8_t rme_mutual_flag(const struct rme_peer *peer)
{
    return peer->spoken ? 0 : RME_WIRE_F_NAMELESS;
}

/* The oldest receive elsewhere for a nameless message over this link, taken out and moved to it; NULL: none. */
struct rme_op *rme_mutual_recv(struct rme *rme, struct rme_peer *passive, int32_t tag);
/* A receive waits in its slot: gives it the message that waits for it on a link of the other direction.  False: none does. */
bool rme_mutual_posted(struct rme *rme, struct rme_op *op);
/* It is known now where this address leads. */
void rme_mutual_up(struct rme_peer *active);

#endif
