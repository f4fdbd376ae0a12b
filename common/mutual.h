/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Receives at addresses that were looked up, for messages over links that came to us: mutual.c. */
#ifndef RME_MUTUAL_H
#define RME_MUTUAL_H

#include "peer.h"

/* May a receive or a message of this peer belong to a link of the other direction?  Hosts of requests and answers: never. */
static inline bool rme_mutual_may(const struct rme_peer *peer)
{
    return !peer->spoken;
}

/* The oldest receive elsewhere for a message that came over this link, taken out and moved to it; NULL: none. */
struct rme_op *rme_mutual_recv(struct rme *rme, struct rme_peer *passive, int32_t tag);
/* A receive waits in its slot: gives it the message that waits for it on a link of the other direction.  False: none does. */
bool rme_mutual_posted(struct rme *rme, struct rme_op *op);
/* It is known now where this address leads. */
void rme_mutual_up(struct rme_peer *active);

#endif
