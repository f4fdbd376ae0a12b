/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends of operations, in two steps.  rme_op_end() sets the result and removes the op from all
 * queues.  When `refcount` is 0, the op is finished: its other resources are freed, and its
 * completion is reported.  `refcount` counts queued and posted transfers, threads that register
 * or pack, queued control messages, fragments with a pending invalidation, and a link that is
 * given up but not down.
 *
 * An op is completing between the peer's acknowledgement of all its data, or the peer's last
 * read, and the end of the op.  Receives and unexpected messages of the peer that are complete
 * meanwhile are held back.  A receive that fails is held behind the unexpected sends of its
 * peer and tag.  doc/design/completion-order.md has the reasons, and the argument that nothing
 * blocks.
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

/* Reports an op, unless it is deferred behind completing ones. */
static void report_or_defer(struct rme *rme, struct rme_op *op)
{
    if (op->completing || op->peer->completing_ops == 0 || rme_op_sends(op) ||
        op->error == -ECANCELED) {
        report(rme, op);
    } else {
        list_add_tail(&op->link, &op->peer->deferred_recvs);
        rme_count(rme, RME_C_DEFERRED);
    }
}

/* Finds the oldest unfinished unexpected send of this tag; NULL: none. */
static struct rme_match *first_request(const struct rme_peer *peer, int32_t tag)
{
    return rme_match_first(&peer->rme->table, rme_match_key(peer->serial, tag),
                           RME_BY_REQUEST_TAG);
}

void rme_request_posted(struct rme_op *op)
{
    struct rme_peer *peer = op->peer;

    rme_match_add(&peer->rme->table, first_request(peer, op->tag),
                  rme_match_key(peer->serial, op->tag), RME_BY_REQUEST_TAG, &op->match);
}

/* Holds a failed receive until the unexpected sends of its tag that were posted so far have
 * finished.  False: there are none. */
static bool defer_behind_requests(struct rme_op *op)
{
    struct rme_match *first = first_request(op->peer, op->tag);

    if (first == NULL)
        return false;
    first = container_of(first->same.prev, struct rme_match, same); /* now the last one */
    op->posted = container_of(first, struct rme_op, match)->posted;
    list_add_tail(&op->link, &op->peer->failed);
    return true;
}

/* Reports the receives that were held behind an unexpected send, which is reported. */
static void request_finished(struct rme_peer *peer, int32_t tag)
{
    struct rme_op *op, *next;
    const struct rme_match *match = first_request(peer, tag);
    const struct rme_op *first =
        match != NULL ? container_of(match, struct rme_op, match) : NULL;

    list_for_each_safe(op, &peer->failed, link, next) {
        if (op->tag != tag || (first != NULL && (int32_t)(first->posted - op->posted) <= 0))
            continue;
        list_del_init(&op->link);
        report_or_defer(peer->rme, op);
    }
}

/* Finishes an op without references to its memory. */
static void finish(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    enum rme_op_kind kind = op->kind;
    int32_t tag = op->tag;
    bool completing = op->completing;

    if (op->rndv != NULL)
        rme->op_ops->free(rme, op);
    list_del_init(&op->of_peer);
    if (kind == RME_OP_UNEXPECTED)
        rme_match_remove(&rme->table, &op->match);
    if (kind != RME_OP_RECV || op->error == 0 || !defer_behind_requests(op))
        report_or_defer(rme, op);
    if (completing && --peer->completing_ops == 0) {
        struct list_head *node;

        while ((node = list_pop(&peer->deferred_recvs)) != NULL)
            report(rme, container_of(node, struct rme_op, link));
        rme->peer_ops->deliver(peer);
    }
    if (kind == RME_OP_UNEXPECTED)
        request_finished(peer, tag);
    if (kind != RME_OP_PULL) /* rme_unexp_pulled drops the reference of a pull to its peer */
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
    if (op->kind == RME_OP_RECV && rme_match_is_in(&op->match))
        rme_match_remove(&rme->table, &op->match);
    if (op->rndv != NULL)
        rme->op_ops->ended(rme, op);
    rme_op_put(rme, op);
}
