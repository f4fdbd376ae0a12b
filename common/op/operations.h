/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The operations of an engine: matching, ends of operations (end.c), and completions to be
 * fetched by the host. */
#ifndef RME_OPERATIONS_H
#define RME_OPERATIONS_H

#include "base/probe.h"
#include "op/op.h"
#include "transport/peer.h"

/* A context: the completion queue of a host. */
struct rme_ctx {
    _Atomic bool open;     /* written with the engine's lock held */
    uint32_t closes;       /* number of closes; an op posted before the last one is dropped */
    struct list_head done; /* ops to be reported */
    /* rme_protocols.unexpected_changes when a wait last ended for unexpected messages */
    uint64_t unexpected_seen;
};

struct rme_operations {
    struct rme_ctx ctx[RME_MAX_CONTEXTS]; /* `open` is read without the lock */
    struct rme_op_table table;
    struct list_head ended; /* ops reported after the next rme_mreg_dereg_flush */
    bool deregistering;     /* a thread deregisters for ops that ended earlier */
};

/* Sets the state of an op. */
static inline void rme_op_step(struct rme_op *op, enum rme_op_state state)
{
    rme_probe_op_step(op->id, op->state, (int)state);
    op->state = (uint8_t)state;
}
/* Recycles an op. */
static inline __attribute__((always_inline)) void rme_op_leave(struct rme *rme,
                                                               struct rme_op *op)
{
    rme_probe_op_step(op->id, op->state, RME_OP_FREE);
    rme_op_recycle(&rme->operations->table, op);
}
/* Adds an op to a peer, which holds a reference to the peer until the op is finished. */
static inline void rme_op_attach(struct rme_op *op, struct rme_peer *peer)
{
    op->peer = peer;
    peer->refcount++;
    list_add_tail(&op->of_peer, &peer->ops);
}

/* Returns the stream of a send, in which messages keep their order. */
static inline enum rme_stream rme_op_stream(const struct rme_op *op)
{
    return op->kind == RME_OP_UNEXPECTED ? RME_UNEXPECTED_STREAM : RME_EXPECTED;
}
/* Notes an unexpected send that became an op: failed receives of its tag follow its report. */
void rme_request_posted(struct rme_op *op);
/* Sets the result of an op: 0 or a negative errno.  The op is reported when no reference to its
 * memory is left. */
void rme_op_end(struct rme *rme, struct rme_op *op, int error);
/* Drops a reference to the op's memory. */
void rme_op_put(struct rme *rme, struct rme_op *op);

/* Returns true if ops that have ended wait for rme_mreg_dereg_flush. */
static inline bool rme_is_ending(const struct rme *rme)
{
    return !list_empty(&rme->operations->ended);
}

/* Queues the completion for the host. */
static inline __attribute__((always_inline)) void rme_ctx_publish(struct rme *rme,
                                                                  struct rme_op *op)
{
    struct rme_ctx *c = &rme->operations->ctx[op->ctx];

    rme_op_step(op, RME_OP_DONE);
    if (!c->open || op->closes != c->closes) {
        rme_op_leave(rme, op);
        return;
    }
    list_add_tail(&op->link, &c->done);
    rme_wait_notify(rme, op->ctx);
}

/* Ends an op that is in no queue with success; not an unexpected send.  The op is DONE at once,
 * unless a device, a thread or an op that ended earlier delays its report. */
static inline void rme_op_complete(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;

    if (op->refcount != 0 || op->rndv != NULL || peer->completing_ops != 0 ||
        rme_is_ending(rme)) {
        rme_op_end(rme, op, 0);
        return;
    }
    if (op->kind == RME_OP_RECV)
        rme_peer_count(peer, RME_C_BYTES_RECEIVED, op->size);
    list_del_init(&op->of_peer);
    rme_ctx_publish(rme, op);
    rme_peer_put(peer);
}

/* ---- Types of the functions of protocols, called with the engine's lock held ---- */

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

/* Functions of rendezvous for an op that is one: rme->op_ops. */
struct rme_op_ops {
    /* Stops all work of an op whose result is set. */
    void (*ended)(struct rme *rme, struct rme_op *op);
    /* Frees op->rndv of an op without references to its memory, and sets it to NULL. */
    void (*free)(struct rme *rme, struct rme_op *op);
};

#endif
