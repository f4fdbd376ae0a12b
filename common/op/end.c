/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How an op ends, in two steps.  rme_op_end fixes its outcome and takes it out of everything
 * that would start something.  When nothing uses its memory any more (pins is 0) it is
 * finished: the rest of its resources go, and it is reported.  `pins` counts posted and queued
 * transfers, threads that register for it, control messages it has still to send, and, once its
 * link is given up, that link.
 */
#include <errno.h>

#include "op/operations.h"
#include "transport/waiter.h"

void rme_op_misstep(struct rme *rme, const struct rme_op *op, enum rme_op_state state)
{
    rme_log_put(rme->log, RME_LOG_ERROR,
                "engine: operation %llx went from %s to %s, an invalid transition",
                (unsigned long long)op->id, rme_op_state_name(op->state),
                rme_op_state_name(state));
}

static void count_end(struct rme *rme, struct rme_op *op)
{
    if (op->error == -ECANCELED)
        rme_count(rme, RME_C_CANCELS);
    if (op->error == 0 && op->kind == RME_OP_RECV)
        rme_peer_count(op->peer, RME_C_BYTES_RECEIVED, op->size);
}

void rme_op_drop(struct rme *rme, struct rme_op *op)
{
    const struct rme_operations *all = rme->operations;

    if (all->dropped != NULL)
        all->dropped(all->dropped_arg, op->user);
    rme_op_leave(rme, op, false);
}

void rme_ctx_publish(struct rme *rme, struct rme_op *op)
{
    struct rme_ctx *c = &rme->operations->ctx[op->ctx];

    rme_op_step(rme, op, RME_OP_DONE);
    if (!c->open || op->turn != c->turn) {
        rme_op_drop(rme, op);
        return;
    }
    rme_node_append(&c->done, &op->link);
    rme_wait_notify(rme, op->ctx);
}

void rme_op_leave_slot(struct rme *rme, struct rme_op *op)
{
    rme_node_remove(&op->link);
    rme_match_release(&rme->operations->match, op->slot);
    op->slot = NULL;
}

/* Nobody uses its memory any more.  What has to wait for a reap makes those behind it wait as
 * well: order is kept. */
static void finish(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    bool pulls = op->kind == RME_OP_PULL;

    if (op->protocol != NULL)
        op->protocol->freed(rme, op);
    rme_node_remove(&op->of_peer);
    if (op->reap || op->kind == RME_OP_PULL || rme_is_ending(rme)) {
        rme_node_append(&rme->operations->ended, &op->link);
        rme->pending |= RME_PENDING_SETTLE;
    } else {
        rme_ctx_publish(rme, op);
    }
    if (!pulls) /* rme_unexp_pulled comes to its peer once more */
        rme_peer_unpin(peer);
}

void rme_op_unpin(struct rme *rme, struct rme_op *op)
{
    op->pins--;
    if (op->pins == 0 && op->state == RME_OP_ENDING)
        finish(rme, op);
}

void rme_op_end(struct rme *rme, struct rme_op *op, int error)
{
    if (op->state == RME_OP_ENDING)
        return;
    op->error = error;
    count_end(rme, op);
    rme_op_step(rme, op, RME_OP_ENDING);
    op->pins++;
    if (op->slot != NULL)
        rme_op_leave_slot(rme, op);
    if (op->protocol != NULL)
        op->protocol->ended(rme, op);
    rme_op_unpin(rme, op);
}

void rme_op_complete(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;

    if (op->pins != 0 || op->protocol != NULL || rme_is_ending(rme)) {
        rme_op_end(rme, op, 0);
        return;
    }
    count_end(rme, op);
    rme_node_remove(&op->of_peer);
    rme_ctx_publish(rme, op);
    rme_peer_unpin(peer);
}
