/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rendezvous: a message that is moved by RDMA between the memory of its send and the memory of
 * its receive.  rndv.c tells how; rndv_send.c and rndv_recv.c are the two ends, unit.c the
 * memory, move.c the transfers.
 */
#ifndef RME_RNDV_H
#define RME_RNDV_H

#include "move/move.h"
#include "plan/plan.h"

struct rme_message;

/* The row of both ends, op->protocol of whatever has an rme_rndv; and what only one of them
 * does. */
extern const struct rme_protocol rme_protocol_rendezvous, rme_protocol_rndv_send,
    rme_protocol_rndv_recv;

/* What an op has to say, in this order. */
#define RME_SAY_GO         1u
#define RME_SAY_FIN        2u
#define RME_SAY_CANCEL     4u
#define RME_SAY_CANCEL_ACK 8u

/* ---- rndv.c: what both ends share ---- */

int rme_rndv_new(struct rme *rme, struct rme_op *op);
void rme_rndv_set_peer_handle(struct rme_op *op, uint32_t handle);
/* The op of this peer that we call so, or whose other end the peer calls so; NULL: there is
 * none such any more. */
struct rme_op *rme_rndv_find(struct rme_peer *peer, uint32_t handle);
struct rme_op *rme_rndv_find_theirs(struct rme_peer *peer, enum rme_name_kind kind,
                                    uint32_t handle);
/* Frees it; called when op->pins is 0. */
void rme_rndv_free(struct rme *rme, struct rme_op *op);
/* Frees what is kept for reuse, here and in unit.c and move.c. */
void rme_rndv_clear(struct rme *rme);

/*
 * What the planner shall know of our side of a message: memory in so many segments, `ready`
 * when it is registered whatever becomes of the message (memory of zones).  The second one is
 * of an operation.
 */
struct rme_plan_side rme_rndv_side(const struct rme *rme, uint64_t segments, bool ready,
                                   bool sends);
/* The other side of a message that it has not heard of: a process like us. */
struct rme_plan_side rme_rndv_far_side(const struct rme *rme, bool server);
struct rme_plan_side rme_rndv_own_side(struct rme *rme, const struct rme_op *op);
/* What the planner shall know of this engine and its device; the two sides are left to the
 * caller. */
struct rme_plan_in rme_rndv_plan_in(const struct rme *rme, uint64_t bytes);

/* Queues what an op has to say. */
void rme_rndv_say(struct rme_op *op, unsigned what);
/* Sends CANCEL_ACK for the peer's operation `to`, which has no other end here; false: no credit
 * or buffer. */
bool rme_rndv_send_ack(struct rme_peer *peer, uint32_t to);

/* Makes progress: prepares units, and exposes or moves them, as the op's state says.  May end
 * the op. */
void rme_rndv_advance(struct rme *rme, struct rme_op *op);
/* It no longer counts as load: it is moved, or never will be.  Nor as one that has invited. */
void rme_rndv_unload(struct rme_op *op);
/* Enters EXPOSED or MOVING. */
void rme_rndv_begin(struct rme *rme, struct rme_op *op, enum rme_op_state state);
/* A stopped op may have come to rest: says what there is to say and ends it, or waits on. */
void rme_rndv_halt(struct rme *rme, struct rme_op *op);
/* A receive that its message cannot be moved into: both ends end so. */
void rme_rndv_refuse(struct rme *rme, struct rme_op *op, int error);
/* The peer moved everything up to `done`: units are unpacked and let go. */
void rme_rndv_exposed_done(struct rme *rme, struct rme_op *op, uint64_t done);

/* ---- rndv_send.c, rndv_recv.c ---- */

/* Asks the planner, with the receiver's side unknown, for our own memory; and whether to offer
 * it.  -ENOMEM. */
int rme_rndv_plan_send(struct rme *rme, struct rme_op *op);
/* An INVITE has crossed the RTS of this send: it may be the answer. */
void rme_rndv_crossed(struct rme_peer *peer, uint32_t handle,
                      const struct rme_wire_message *invite);

/* A receive (or pull) met an RTS. */
void rme_rndv_receive(struct rme *rme, struct rme_op *op, struct rme_message *rts);
void rme_rndv_imm(struct rme_peer *peer, uint32_t imm);

#endif
