/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Invitations: a receive's memory that is open to the sender before its RTS.  See invite.c. */
#ifndef RME_INVITE_H
#define RME_INVITE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "move/move.h"

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
    struct rme_control answer;      /* FIN to the peer's last CANCEL of an invitation */
    uint32_t cancelled;             /* handle of its receive */
    uint32_t sent;                  /* EAGER and RTS of expected messages sent, modulo 2^32 */
};

void rme_invites_init(struct rme_invites *invites);

/* ---- The receiver ---- */

/* Lets a receive invite, if possible: the oldest of its tag, after a receive was posted. */
void rme_invite_try(struct rme *rme, struct rme_op *op);
/* Voids the invitation, because an EAGER or RTS has met the receive, which is POSTED again. */
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
/* Notes an EAGER or RTS, which voids a held invitation for its tag. */
static inline void rme_invite_sent(struct rme_invites *invites, int32_t tag)
{
    invites->sent++;
    if (invites->held != NULL && invites->tag == tag)
        rme_invite_drop(invites);
}
/* Is a held invitation for an expected message of this tag and size? */
static inline bool rme_invite_is_for(const struct rme_invites *invites, int32_t tag,
                                     uint64_t size)
{
    return invites->held != NULL && invites->tag == tag && invites->held->length == size;
}

#endif
