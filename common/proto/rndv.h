/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rendezvous: a message moved by RDMA between the memory of its send and the memory of its
 * receive.  See rndv.c; rndv_send.c and rndv_recv.c are the two ends, frag.c prepares the
 * memory, move.c posts the transfers.
 */
#ifndef RME_RNDV_H
#define RME_RNDV_H

#include "proto/proto.h"

rme_arrived_fn rme_cts_arrived, rme_fin_arrived;
rme_start_fn rme_rndv_start;
/* Returns true if the start would not return RME_START_WAIT. */
bool rme_rndv_may_start(const struct rme_op *op);
rme_cancelled_fn rme_rndv_cancelled;

/* ---- rndv.c: common to both ends ---- */

/* Starts the use of op->rndv, under a new handle. */
void rme_rndv_new(struct rme *rme, struct rme_op *op);
void rme_rndv_set_peer_handle(struct rme_op *op, uint32_t handle);
/* Finds an op of this peer by its own handle; NULL: none. */
struct rme_op *rme_rndv_find(struct rme_peer *peer, uint32_t handle);

/*
 * Describes this side of a message to the planner: memory of `segments` segments, `ready` if it
 * is registered independently of the message (memory of zones).  rme_rndv_own_side() describes
 * the memory of an operation.
 */
struct rme_plan_side rme_rndv_side(const struct rme *rme, uint64_t segments, bool ready,
                                   bool sends);
/* Describes an unknown other side: a process like this one. */
struct rme_plan_side rme_rndv_far_side(const struct rme *rme, bool server);
struct rme_plan_side rme_rndv_own_side(struct rme *rme, const struct rme_op *op);
/* Describes this engine and its device to the planner; the caller fills in the two sides. */
struct rme_plan_in rme_rndv_plan_in(const struct rme *rme, uint64_t bytes);

/* Queues FIN or CANCEL of an op, in place of one that is still queued: FIN says more. */
void rme_rndv_queue_ctrl(struct rme_op *op, enum rme_wire_type type);

/* Enters TARGET or MOVING, counts the op in the load of the side that moves, and advances. */
void rme_rndv_begin(struct rme *rme, struct rme_op *op, enum rme_op_state state);
/* Continues a stopped op.  Without transfers in flight, queues its last control message, and
 * ends the op or waits for the peer's answer. */
void rme_rndv_halt(struct rme *rme, struct rme_op *op);
/* Ends an op, and the peer's end of it by FIN.  The peer has no transfer in flight and starts
 * none. */
void rme_rndv_finish(struct rme *rme, struct rme_op *op, int error);
/* Unpacks and frees the fragments up to `done`, which the peer has moved. */
void rme_rndv_target_done(struct rme *rme, struct rme_op *op, uint64_t done);

/* ---- rndv_send.c, rndv_recv.c ---- */

/* Plans a send with the receiver's side unknown: the use of its memory, and whether the memory
 * is offered. */
void rme_rndv_plan_send(struct rme *rme, struct rme_op *op);

/* Starts a receive (or pull) that an RTS has matched. */
void rme_rndv_receive(struct rme *rme, struct rme_op *op, struct rme_message *rts);
/* Ends a receive that is too small for the eager message of op->size bytes at `place`, once FIN
 * has reported that to the sender. */
void rme_rndv_refuse(struct rme *rme, struct rme_op *op, uint32_t place);
void rme_rndv_imm(struct rme_peer *peer, uint32_t imm);

#endif
