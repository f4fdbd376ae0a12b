/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What has come from a peer, and when it is looked at.  See arrive.c and defer.c. */
#ifndef RME_ARRIVE_H
#define RME_ARRIVE_H

#include "proto/talk.h"

extern const struct rme_protocol rme_protocol_link, rme_protocol_defer;

/* A message or an immediate of a peer that came. */
struct rme_arrival {
    bool is_immediate;
    uint32_t imm;
    /* the message's buffer: ours until it is taken; NULL: it is in delegated memory */
    void *rx;
    size_t length;
    struct rme_wire_message message; /* its header has been taken note of */
};

/* Is anything of its link looked at? */
static inline bool rme_peer_listens(const struct rme_peer *peer)
{
    return peer->state == RME_PEER_UP || peer->state == RME_PEER_ACCEPTING;
}

/* What it says is done, and its buffer given back.  The peer is listened to. */
void rme_take_message(struct rme_peer *peer, const struct rme_arrival *arrival);
void rme_take_immediate(struct rme_peer *peer, uint32_t imm);

/* Gives its buffer back. */
void rme_arrival_drop(struct rme *rme, const struct rme_arrival *arrival);

/* ---- defer.c ---- */

/* How much of ours the peer had taken at most when it sent an immediate; of a message its
 * header has said it. */
uint32_t rme_defer_told(struct rme_peer *peer, uint32_t imm);
/* Must what has just come from the peer wait, if so much was told? */
bool rme_defer_moves(const struct rme_peer *peer, uint32_t told); /* for a transfer */
static inline bool rme_defer_must(const struct rme_peer *peer, uint32_t told)
{
    return !rme_node_alone(&peer->talk->deferred) || peer->shutting != 0 ||
           (!rme_node_alone(&peer->moving) && rme_defer_moves(peer, told));
}
/* Keeps it, or gives the link up. */
void rme_defer(struct rme_peer *peer, const struct rme_arrival *arrival, uint32_t told);
/* A transfer of ours to the peer is complete: takes what needs to wait no longer. */
void rme_defer_run(struct rme_peer *peer);
/* The link is down and no device works for it: takes everything that waits, in order. */
void rme_defer_end(struct rme_peer *peer);

#endif
