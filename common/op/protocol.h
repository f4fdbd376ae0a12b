/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The interface of protocols to the engine: types of their functions, and the functions by
 * which op/ and move/ call upwards.  All are called with the engine's lock held.
 */
#ifndef RME_PROTOCOL_H
#define RME_PROTOCOL_H

#include "transport/peer.h"

struct rme_op;

/* Results of rme_start_fn. */
enum rme_started {
    /* not for this protocol, or not now: the next protocol is tried */
    RME_START_OTHER,
    RME_START_GONE,    /* started, or ended */
    RME_START_STUCK,   /* no credit or buffer: no other send can start either */
    RME_START_PREPARE, /* its memory is being registered or packed; rme_send_ready follows */
    /* waits for flow control of the peer's host, or for the preparation of other sends */
    RME_START_WAIT,
};

/* Handles a message. */
typedef void rme_arrived_fn(struct rme_peer *peer, const struct rme_wire_message *message);
/* Handles CANCEL of the peer, if the message names an object of this protocol. */
typedef bool rme_cancelled_fn(struct rme_peer *peer, const struct rme_wire_message *cancel);
/* Starts the first QUEUED send of its tag. */
typedef enum rme_started rme_start_fn(struct rme *rme, struct rme_op *op);
/* Returns true if the start would return neither RME_START_OTHER nor RME_START_WAIT. */
typedef bool rme_may_start_fn(const struct rme_op *op);

/* For an op with `has_rndv` (proto/rndv.c). */
/* Continues the op after its memory is ready, or data has moved. */
void rme_rndv_advance(struct rme *rme, struct rme_op *op);
/* Stops the op, which ends with this error when no reference to its memory is left. */
void rme_rndv_stop(struct rme *rme, struct rme_op *op, int error);
/* Stops all work of an op whose result is set. */
void rme_rndv_ended(struct rme *rme, struct rme_op *op);
/* Frees op->rndv of an op without references to its memory. */
void rme_rndv_free(struct rme *rme, struct rme_op *op);

#endif
