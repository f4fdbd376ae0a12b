/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the protocols share: their table, what they have going on with each peer, and what they
 * keep for the process. */
#ifndef RME_TALK_H
#define RME_TALK_H

#include "op/operations.h"
#include "proto/fast.h"
#include "proto/invite.h"

struct rme_unexp;

/* What the links tell: passed on to all protocols. */
extern const struct rme_link_user rme_talk_user;

/* What an expected send waits for when the peer's host has taken too few: a small one for its
 * window or an RTS, a large one for that. */
enum rme_turn { RME_TURN_SMALL, RME_TURN_LARGE, RME_TURNS };

/* With one peer. */
struct rme_talk {
    bool small_next; /* of those in `turn`, where both could go */
    uint32_t posted; /* sends that were QUEUED, so far */
    uint32_t links;  /* with it, so far */
    /* QUEUED sends, in order, but for those that let others pass (send.c) */
    struct rme_node sendq[RME_STREAMS];
    /* of those, the ones that wait for the peer's host, in order */
    struct rme_node turn[RME_TURNS];
    uint32_t holds; /* tags of which sends let others pass */
    /* expected QUEUED sends whose memory is ready, or made ready */
    uint32_t preparing;
    /* messages and immediates that wait for our own transfers (defer.c) */
    struct rme_node deferred;
    struct rme_node messages; /* expected messages without a receive (struct rme_message) */
    /* unexpected messages not complete or not in turn yet (struct rme_unexp) */
    struct rme_node unexpected;
    struct rme_node pulls;         /* of those, RTS that wait for room */
    struct rme_node complete;      /* unexpected messages that wait for the host */
    uint32_t rts_out[RME_STREAMS]; /* our RTS that the peer holds */
    uint32_t rts_in[RME_STREAMS];  /* its RTS that we hold */
    /* cost of unexpected messages being pulled, or pulled and not delivered */
    uint32_t pulled;
    struct rme_invites invites; /* see invite.c */
    struct rme_fast fast;       /* see fast.c */
};

/* For the process. */
struct rme_protocols {
    /* all of them, in the order in which they are asked; ended by NULL */
    const struct rme_protocol *const *table;
    rme_arrived_fn arrived[RME_ARRIVALS]; /* of all protocols */
    bool forceful;                        /* who cancels does not wait for a peer */
    struct rme_match holds;               /* sends that wait for one of their tag (send.c) */
    struct rme_invite_size invite_size[RME_INVITE_SIZES];
    struct rme_fast_pool fast;
    struct rme_node unexpected;  /* complete, to be delivered (struct rme_unexp) */
    uint64_t unexpected_changes; /* messages delivered and fetched so far */
    struct rme_node unpublished; /* likewise, behind the ops in `ended` */
    /* unexpected messages that the host has, by the address of the buffer */
    struct rme_table lent;
};

/* Fills in `table` and `arrived`. */
void rme_protocols_init(struct rme_protocols *protocols);

#endif
