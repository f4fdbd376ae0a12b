/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends of operations, in two steps.  rme_op_end() sets the result and removes the op from all
 * queues.  When `refcount` is 0, the op is finished: its other resources are freed, and its
 * completion is reported.  `refcount` counts queued and posted transfers, threads that register
 * or pack, queued control messages, fragments with a pending invalidation, and a link that is
 * given up but not down.
 *
 * An op is late between the peer's acknowledgement of all its data, or the peer's last read,
 * and the end of the op.  Receives and unexpected messages of the peer that are complete
 * meanwhile are held back.  doc/design/completion-order.md has the reason, and the argument
 * that nothing blocks.
 */
#include <errno.h>

#include "op/operations.h"

/* Reports an op.  An op that waits for rme_mreg_dereg_flush delays those that end later, so
 * that completions keep their order. */
static void report(struct rme *rme, struct rme_op *op)
{
    if (op->dereg_flush || op->kind == RME_OP_PULL || rme_is_ending(rme)) {
        list_add_tail(&op->link, &rme->operations->ended);
        rme->pending |= RME_PENDING_RUN;
    } else {
        rme_ctx_publish(rme, op);
    }
}

/* Finishes an op without references to its memory. */
static void finish(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    bool pulls = op->kind == RME_OP_PULL;
    bool late = op->late;

    if (op->has_rndv)
        rme_rndv_free(rme, op);
    list_del_init(&op->of_peer);
    if (late || peer->late == 0 || rme_op_sends(op) || op->error == -ECANCELED) {
        report(rme, op);
    } else {
        list_add_tail(&op->link, &peer->held);
        rme_count(rme, RME_C_DEFERRED);
    }
    if (late && --peer->late == 0) {
        struct list_head *node;

        while ((node = list_pop(&peer->held)) != NULL)
            report(rme, container_of(node, struct rme_op, link));
        rme_unexp_pass_on(peer);
    }
    if (!pulls) /* rme_unexp_pulled drops the reference of a pull to its peer */
        rme_peer_put(peer);
}

void rme_op_put(struct rme *rme, struct rme_op *op)
{
    op->refcount--;
    if (op->refcount == 0 && op->state == RME_OP_ENDING)
        finish(rme, op);
}

void rme_op_end(struct rme *rme, struct rme_op *op, int error)
{
    if (op->state == RME_OP_ENDING)
        return;
    op->error = error;
    if (error == -ECANCELED)
        rme_count(rme, RME_C_CANCELS);
    if (error == 0 && op->kind == RME_OP_RECV)
        rme_peer_count(op->peer, RME_C_BYTES_RECEIVED, op->size);
    rme_op_step(op, RME_OP_ENDING);
    op->refcount++;
    if (rme_match_is_in(&op->match))
        rme_match_remove(&rme->table, &op->match);
    if (op->has_rndv)
        rme_rndv_ended(rme, op);
    rme_op_put(rme, op);
}

void rme_op_complete(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;

    if (op->refcount != 0 || op->has_rndv || peer->late != 0 || rme_is_ending(rme)) {
        rme_op_end(rme, op, 0);
        return;
    }
    if (op->kind == RME_OP_RECV)
        rme_peer_count(peer, RME_C_BYTES_RECEIVED, op->size);
    list_del_init(&op->of_peer);
    rme_ctx_publish(rme, op);
    rme_peer_put(peer);
}
