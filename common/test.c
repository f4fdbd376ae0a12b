/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contexts, and the calls that report completions.  A finished op waits in the ring of its context, which has a lock of its
 * own: a thread can fetch completions while another makes progress.  Reported ops go to `spent`; they become free ops only under
 * the engine's lock, so an op's id and state change under that lock alone.
 */
#include <errno.h>

#include "engine.h"

int rme_context_open(struct rme *rme, int ctx)
{
    int error = 0;

    if (ctx < 0 || ctx >= RME_MAX_CONTEXTS)
        return -EINVAL;
    rme_lock(rme);
    if (rme->ctx[ctx].open)
        error = -EEXIST;
    rme->ctx[ctx].open = true;
    rme_unlock(rme);
    return error;
}

void rme_context_close(struct rme *rme, int ctx)
{
    struct rme_ctx *c;

    if (ctx < 0 || ctx >= RME_MAX_CONTEXTS)
        return;
    c = &rme->ctx[ctx];
    rme_lock(rme);
    c->open = false;
    pthread_mutex_lock(&c->lock);
    rme_node_splice(&c->spent, &c->done);
    pthread_mutex_unlock(&c->lock);
    rme_op_sweep(rme);
    rme_unlock(rme);
}

void rme_ctx_publish(struct rme *rme, struct rme_op *op)
{
    struct rme_ctx *c = &rme->ctx[op->ctx];

    rme_op_step(rme, op, RME_OP_DONE);
    if (!c->open) {
        rme_op_recycle(&rme->op_table, op);
        return;
    }
    pthread_mutex_lock(&c->lock);
    op->queued = true;
    rme_node_append(&c->done, &op->link);
    pthread_mutex_unlock(&c->lock);
    rme_wait_notify(rme, op->ctx);
}

bool rme_ctx_fail(struct rme *rme, uint64_t place, int error)
{
    struct rme_op *op = rme_op_find_eager(&rme->op_table, place);
    struct rme_ctx *c;
    bool in_time;

    if (op == NULL)
        return false;
    c = &rme->ctx[op->ctx];
    pthread_mutex_lock(&c->lock);
    in_time = op->state == RME_OP_ENDING || op->queued;
    if (in_time)
        op->error = error;
    pthread_mutex_unlock(&c->lock);
    return in_time;
}

/* Reports an op of c->done.  Its lock is held. */
static void report(struct rme_ctx *c, struct rme_op *op, struct rme_done *done)
{
    done->id = op->id;
    done->user = op->user;
    done->error = op->error;
    done->actual = op->error == 0 ? (int64_t)op->size : 0;
    op->queued = false;
    rme_node_remove(&op->link);
    rme_node_append(&c->spent, &op->link);
}

void rme_op_sweep(struct rme *rme)
{
    for (int i = 0; i < RME_MAX_CONTEXTS; i++) {
        struct rme_ctx *c = &rme->ctx[i];
        struct rme_node spent;
        struct rme_node *node;

        rme_node_init(&spent);
        pthread_mutex_lock(&c->lock);
        rme_node_splice(&spent, &c->spent);
        pthread_mutex_unlock(&c->lock);
        while ((node = rme_node_take(&spent)) != NULL)
            rme_op_recycle(&rme->op_table, rme_entry(node, struct rme_op, link));
    }
}

/* ---- One context ------------------------------------------------------------------------------------------------- */

struct context_wait {
    struct rme_waiter waiter;
    struct rme_done *done;
    int max;
};

static int collect(struct rme_ctx *c, struct rme_done *done, int max)
{
    int n = 0;

    pthread_mutex_lock(&c->lock);
    while (n < max && !rme_node_alone(&c->done))
        report(c, rme_entry(c->done.next, struct rme_op, link), &done[n++]);
    pthread_mutex_unlock(&c->lock);
    return n;
}

static int context_ready(struct rme *rme, struct rme_waiter *waiter)
{
    struct context_wait *wait = rme_entry(waiter, struct context_wait, waiter);

    return collect(&rme->ctx[waiter->ctx], wait->done, wait->max);
}

int rme_test_context(struct rme *rme, int ctx, struct rme_done *done, int max, int wait_ms)
{
    struct context_wait wait = {.waiter = {.ctx = ctx, .ready = context_ready}, .done = done, .max = max};

    if (ctx < 0 || ctx >= RME_MAX_CONTEXTS || max < 0 || !rme->ctx[ctx].open)
        return -EINVAL;
    return rme_wait(rme, &wait.waiter, max == 0 ? 0 : wait_ms);
}

/* ---- Named operations -------------------------------------------------------------------------------------------- */

struct some_wait {
    struct rme_waiter waiter;
    const rme_id *ids;
    int count;
    int *index;
    struct rme_done *done;
};

/* Takes the completion of one op if it is there; *live when it may come yet. */
static bool take_one(struct rme *rme, rme_id id, struct rme_done *done, bool *live)
{
    struct rme_op *op = id != 0 ? rme_op_find(&rme->op_table, id) : NULL;
    struct rme_ctx *c;
    bool queued;

    if (op == NULL)
        return false;
    if (op->state != RME_OP_DONE) {
        *live = true;
        return false;
    }
    c = &rme->ctx[op->ctx];
    pthread_mutex_lock(&c->lock);
    queued = op->queued;
    if (queued)
        report(c, op, done);
    pthread_mutex_unlock(&c->lock);
    return queued;
}

static int some_ready(struct rme *rme, struct rme_waiter *waiter)
{
    struct some_wait *wait = rme_entry(waiter, struct some_wait, waiter);
    bool live = false;
    int n = 0;

    for (int i = 0; i < wait->count; i++) {
        if (!take_one(rme, wait->ids[i], &wait->done[n], &live))
            continue;
        if (wait->index != NULL)
            wait->index[n] = i;
        n++;
    }
    waiter->hopeless = !live;
    return n;
}

int rme_test_some(struct rme *rme, const rme_id *ids, int count, int *index, struct rme_done *done, int wait_ms)
{
    struct some_wait wait = {.waiter = {.ctx = RME_WAIT_ANY, .ready = some_ready},
                             .ids = ids,
                             .count = count,
                             .index = index,
                             .done = done};

    if (count < 0)
        return -EINVAL;
    return rme_wait(rme, &wait.waiter, wait_ms);
}

int rme_test(struct rme *rme, rme_id id, struct rme_done *done, int wait_ms)
{
    return rme_test_some(rme, &id, 1, NULL, done, wait_ms);
}

/* ---- Unexpected messages ----------------------------------------------------------------------------------------- */

struct unexpected_wait {
    struct rme_waiter waiter;
    struct rme_unexpected *out;
    int max;
};

static int unexpected_ready(struct rme *rme, struct rme_waiter *waiter)
{
    struct unexpected_wait *wait = rme_entry(waiter, struct unexpected_wait, waiter);
    int n = 0;

    while (n < wait->max) {
        struct rme_unexp *u = rme_unexp_take(rme);
        struct rme_unexpected *out = &wait->out[n];

        if (u == NULL)
            break;
        out->addr = u->peer->addr;
        out->first = !u->peer->introduced;
        out->tag = u->tag;
        out->buffer = u->buffer;
        out->size = (int64_t)u->size;
        u->peer->introduced = true;
        u->peer = NULL;
        n++;
    }
    return n;
}

int rme_test_unexpected(struct rme *rme, struct rme_unexpected *out, int max, int wait_ms)
{
    struct unexpected_wait wait = {
        .waiter = {.ctx = RME_WAIT_UNEXPECTED, .ready = unexpected_ready}, .out = out, .max = max};

    if (max < 0)
        return -EINVAL;
    return rme_wait(rme, &wait.waiter, max == 0 ? 0 : wait_ms);
}
