/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Invitations: a receive's memory that is open to the sender before its RTS.  See invite.c. */
#ifndef RME_INVITE_H
#define RME_INVITE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "op/operations.h"

struct rme_message;
struct rme_remote_window;

#define RME_INVITE_RING 64u /* messages in flight, at most, when an invitation is sent */

/* An EAGER or RTS that was sent. */
struct rme_invite_sent {
    int32_t tag;
    uint32_t handle; /* of an RTS; 0: EAGER */
};

/* State of a peer, for one link. */
struct rme_invites {
    /* receive whose invitation is neither matched nor void; NULL: none */
    struct rme_op *inviting;
    uint32_t seen; /* EAGER and RTS of expected messages received, modulo 2^32 */
    /* void invitations in a row, then also receives that did not invite */
    uint32_t fail_streak;

    struct rme_remote_window *held; /* the peer's invitation; NULL: none */
    int32_t tag;                    /* of the invited messages */
    uint32_t from;                  /* handle of the peer's receive */
    uint32_t answers;               /* to CANCEL, which wait for credits */
    /* EAGER and RTS of expected messages sent, modulo 2^32 */
    uint32_t sent;
    struct rme_invite_sent ring[RME_INVITE_RING]; /* the last of them */
};

/* ---- The receiver ---- */

/* Lets a receive invite, if possible: the oldest of its tag, after a receive was posted. */
void rme_invite_try(struct rme *rme, struct rme_op *op);
/* Is this RTS bound to the invitation of the receive (or will the sender take it for its
 * CTS)? */
bool rme_invite_meets(const struct rme_op *op, const struct rme_message *rts);
/* Matches an RTS with a receive that has invited.  True: the invitation answers the RTS.
 * False: the receive is POSTED again. */
bool rme_invite_met(struct rme *rme, struct rme_op *op, const struct rme_message *rts);
/* Voids the invitation, because the message came another way: the receive is POSTED again. */
void rme_invite_void(struct rme *rme, struct rme_op *op);

/* ---- The sender ---- */

rme_arrived_fn rme_invite_arrived;
rme_start_fn rme_invite_start;
rme_cancelled_fn rme_invite_cancelled;

/* Drops the held invitation, if any. */
static inline void rme_invite_drop(struct rme_invites *invites)
{
    free(invites->held);
    invites->held = NULL;
}
/* Notes an EAGER (`handle` 0), or the RTS of `handle`.  True: the message declines a held
 * invitation. */
static inline bool rme_invite_sent(struct rme_invites *invites, int32_t tag, uint32_t handle)
{
    invites->ring[invites->sent++ % RME_INVITE_RING] = (struct rme_invite_sent){tag, handle};
    if (invites->held == NULL || invites->tag != tag)
        return false;
    rme_invite_drop(invites);
    return true;
}

#endif
