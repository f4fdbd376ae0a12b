/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What peer.c, hello.c and link.c have of each other. */
#ifndef RME_PEER_INT_H
#define RME_PEER_INT_H

#include "base/probe.h"
#include "transport/peer.h"

/* `link`: that by which a peer comes to us; NULL: it does not.  NULL: no memory. */
struct rme_peer *rme_peer_new(struct rme *rme, struct rme_addr *addr,
                              const struct rme_link *link);
/* Its link goes to another state. */
static inline void rme_peer_step(struct rme_peer *peer, enum rme_peer_state state)
{
    rme_probe_link(peer->serial, peer->state, (int)state);
    peer->state = (uint8_t)state;
}
void rme_peer_set_timer(struct rme_peer *peer, uint64_t when);
/* Nothing more is sent or matched on its link; its ops wait in `dying` for that to be down. */
void rme_peer_leave(struct rme_peer *peer, int error);

/* Our own hello, which promises so many buffers. */
void rme_peer_hello(const struct rme *rme, uint32_t credits, uint8_t out[RME_HELLO_SIZE]);
/* The peer's hello is there: what it takes, and what it may do.  We have promised it so many
 * buffers. */
void rme_peer_agree(struct rme_peer *peer, const struct rme_hello *hello, uint32_t promised);

#endif
