/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Invitations: memory of a receive that is open to the sender before that has asked.  invite.c
 * tells how. */
#ifndef RME_INVITE_H
#define RME_INVITE_H

#include <stdbool.h>
#include <stdint.h>

#include "op/operations.h"

struct rme_message;
struct rme_opening;

extern const struct rme_protocol rme_protocol_invitation;

#define RME_INVITE_RING  64u /* messages on their way, at most, when an invitation is sent */
#define RME_INVITE_SIZES 64u /* sizes of receives that are told apart */

/* An EAGER or RTS that went out. */
struct rme_invite_sent {
    int32_t tag;
    uint32_t handle; /* of an RTS; 0: EAGER */
};

/* What a peer has of it, for one link. */
struct rme_invites {
    struct rme_op *inviting; /* our receive that has invited, until that is over; NULL: none */
    uint32_t seen;           /* EAGER and RTS of expected messages that came, modulo 2^32 */

    struct rme_opening *held; /* the peer's invitation; NULL: none */
    int32_t tag;              /* of the messages that it is for */
    uint32_t from;            /* the receive that it is of */
    uint32_t acks;            /* answers to its CANCELs that wait for credits */
    /* EAGER and RTS of expected messages that went out, modulo 2^32 */
    uint32_t sent;
    struct rme_invite_sent ring[RME_INVITE_RING]; /* the last of them */
};

/* Receives of one size: has inviting paid? */
struct rme_invite_size {
    uint64_t size;
    uint32_t in_vain; /* in a row */
    uint32_t left_out;
};

/* ---- The receiver ---- */

/* A receive was posted: the oldest one of the slot may become INVITING. */
void rme_invite_try(struct rme *rme, struct rme_slot *slot);
/* Was this RTS sent to the invitation of the receive (or will the sender take it for that)? */
bool rme_invite_meets(const struct rme_op *op, const struct rme_message *rts);
/* An RTS met a receive that has invited.  True: the invitation answers it.  False: the receive
 * is POSTED again. */
bool rme_invite_met(struct rme *rme, struct rme_op *op, const struct rme_message *rts);
/* The message came another way: the receive is POSTED again. */
void rme_invite_void(struct rme *rme, struct rme_op *op);
/* The sender has written into it. */
void rme_invite_used(struct rme *rme, struct rme_op *op);

/* ---- The sender ---- */

/* Forgets the invitation that is held, if there is one. */
void rme_invite_drop(struct rme_invites *invites);
/* An EAGER, or the RTS of `handle`, goes out.  True: it declines an invitation that is held. */
static inline bool rme_invite_sent(struct rme_invites *invites, int32_t tag, uint32_t handle)
{
    invites->ring[invites->sent++ % RME_INVITE_RING] = (struct rme_invite_sent){tag, handle};
    if (invites->held == NULL || invites->tag != tag)
        return false;
    rme_invite_drop(invites);
    return true;
}

#endif
