/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The operations of an engine: where they wait for their messages, how they end, and where they
 * wait for the host.  See end.c. */
#ifndef RME_OPERATIONS_H
#define RME_OPERATIONS_H

#include "base/probe.h"
#include "op/match.h"
#include "op/op.h"
#include "op/protocol.h"
#include "op/times.h"
#include "transport/core.h"

/* A context: finished operations that wait for the host. */
struct rme_ctx {
    _Atomic bool open;    /* changed under the engine's lock */
    uint32_t turn;        /* how often it was closed: an op of before is not reported */
    struct rme_node done; /* to be reported */
    /* rme_protocols.unexpected_changes when a wait ended for unexpected messages */
    uint64_t unexpected_seen;
};

struct rme_operations {
    struct rme_ctx ctx[RME_MAX_CONTEXTS]; /* has a lock of its own: `open` */
    struct rme_op_table table;
    struct rme_times times; /* of operations in their states */
    struct rme_match match; /* receives, and messages that have met none */
    struct rme_node ended;  /* ops that end after the next rme_mreg_reap */
    bool reaping;           /* a thread is at it, with older ones */
    /* constant: the host's, see rme.h */
    void (*dropped)(void *arg, void *user);
    void *dropped_arg;
};

/* Logs a step that the table of op.c does not have. */
void rme_op_misstep(struct rme *rme, const struct rme_op *op, enum rme_op_state state);
/* Moves an op to another state. */
static inline void rme_op_step(struct rme *rme, struct rme_op *op, enum rme_op_state state)
{
    if (!rme_op_may_step(op->state, state))
        rme_op_misstep(rme, op, state);
    if (op->watch != NULL)
        rme_times_step(op);
    rme_probe_op_step(op->id, op->state, (int)state);
    op->state = (uint8_t)state;
}
/* Gives an op back: who waited for it has its outcome if it is `reported`. */
static inline void rme_op_leave(struct rme *rme, struct rme_op *op, bool reported)
{
    if (op->watch != NULL)
        rme_times_end(&rme->operations->times, op, reported);
    rme_probe_op_step(op->id, op->state, RME_OP_FREE);
    rme_op_recycle(&rme->operations->table, op);
}
/* It is one of the peer's, which it pins until it is finished. */
static inline void rme_op_attach(struct rme_op *op, struct rme_peer *peer)
{
    op->peer = peer;
    peer->pins++;
    rme_node_append(&peer->ops, &op->of_peer);
}

/* The order that a send belongs to. */
static inline enum rme_stream rme_op_stream(const struct rme_op *op)
{
    return op->kind == RME_OP_UNEXPECTED ? RME_UNEXPECTED_STREAM : RME_EXPECTED;
}
/* The outcome is known: 0 or a negative errno.  It is reported when nobody uses its memory any
 * more. */
void rme_op_end(struct rme *rme, struct rme_op *op, int error);
/* The same with success, for one that waits nowhere any more: it is DONE at once if neither a
 * device, a thread, nor an op before it keeps it from that. */
void rme_op_complete(struct rme *rme, struct rme_op *op);
/* One user of its memory less. */
void rme_op_unpin(struct rme *rme, struct rme_op *op);
/* Takes a receive out of where it waits for its message. */
void rme_op_leave_slot(struct rme *rme, struct rme_op *op);

/* Are there ops that have ended and are not visible yet? */
static inline bool rme_is_ending(const struct rme *rme)
{
    return rme->operations->reaping || !rme_node_alone(&rme->operations->ended);
}

/* Gives an op back that is over and whose context is closed: the host is told. */
void rme_op_drop(struct rme *rme, struct rme_op *op);
/* Queues a completion for the host. */
void rme_ctx_publish(struct rme *rme, struct rme_op *op);

#endif
