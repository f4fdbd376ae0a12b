/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Interfaces between peer.c, hello.c and link.c. */
#ifndef RME_PEER_INT_H
#define RME_PEER_INT_H

#include "base/probe.h"
#include "transport/peer.h"

/* Makes the peer of an address.  Returns NULL without memory. */
struct rme_peer *rme_peer_new(struct rme *rme, struct rme_addr *addr);
/* Sets the state of the link. */
static inline void rme_peer_step(struct rme_peer *peer, enum rme_peer_state state)
{
    rme_probe_link(peer->serial, peer->state, (int)state);
    peer->state = (uint8_t)state;
}
void rme_peer_set_timer(struct rme_peer *peer, uint64_t when);
/* Stops sending and matching on the link; its operations wait in `draining` until the link is
 * down. */
void rme_peer_leave(struct rme_peer *peer, int error);

/* Encodes the hello of this side, which advertises `credits` buffers. */
void rme_peer_hello(const struct rme *rme, uint32_t credits, uint8_t out[RME_HELLO_SIZE]);
/* Applies the hello of the peer.  `advertised`: credits advertised to the peer. */
void rme_peer_agree(struct rme_peer *peer, const struct rme_hello *hello, uint32_t advertised);

#endif
