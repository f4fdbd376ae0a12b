/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contexts, and the calls that report completions.  A finished operation stays in the ring of
 * its context until the host fetches its completion, which frees the operation. */
#include <errno.h>

#include "engine/engine.h"

int rme_context_open(struct rme *rme, int ctx)
{
    int error = 0;

    if (ctx < 0 || ctx >= RME_MAX_CONTEXTS)
        return -EINVAL;
    if (!rme_enter(rme))
        return -ENODEV;
    if (rme->operations->ctx[ctx].open)
        error = -EEXIST;
    rme->operations->ctx[ctx].open = true;
    rme_unlock(rme);
    return error;
}

void rme_context_close(struct rme *rme, int ctx)
{
    struct rme_ctx *c;

    if (ctx < 0 || ctx >= RME_MAX_CONTEXTS || !rme_enter(rme))
        return;
    c = &rme->operations->ctx[ctx];
    c->open = false;
    c->closes++;
    while (!list_empty(&c->done))
        rme_op_leave(rme, container_of(c->done.next, struct rme_op, link));
    rme_unlock(rme);
}

/* Reports and frees a finished operation. */
static inline __attribute__((always_inline)) void report(struct rme *rme, struct rme_op *op,
                                                         struct rme_done *done)
{
    done->id = op->id;
    done->user = op->user;
    done->error = op->error;
    done->actual = op->error == 0 ? (int64_t)op->size : 0;
    rme_op_leave(rme, op);
}

/* A call that reports up to `max` completions or unexpected messages. */
struct test_wait {
    struct rme_waiter waiter;
    int max;
    struct rme_done *done;
    const rme_id *ids; /* rme_test_some: `max` ids, and the positions of the complete ones */
    int *index;
    struct rme_unexpected *unexpected;
};

static inline __attribute__((always_inline)) int wait_for(
    struct rme *rme, struct test_wait *wait, int ctx,
    bool (*ready)(struct rme *, struct rme_waiter *), int max, int wait_ms)
{
    if (max < 0)
        return -EINVAL;
    wait->waiter.ctx = ctx;
    wait->waiter.found = 0;
    wait->waiter.ready = ready;
    wait->max = max;
    return rme_wait(rme, &wait->waiter, max == 0 ? 0 : wait_ms);
}

/* ---- One context ---- */

/* Not inlined, so that a call that finds nothing saves no registers for it. */
__attribute__((noinline)) static bool take_done(struct rme *rme, struct list_head *ring,
                                                struct test_wait *wait)
{
    int n = 0;

    while (n < wait->max && !list_empty(ring))
        report(rme, container_of(ring->next, struct rme_op, link), &wait->done[n++]);
    wait->waiter.found = n;
    return n > 0;
}

static bool context_ready(struct rme *rme, struct rme_waiter *waiter)
{
    struct list_head *ring = &rme->operations->ctx[waiter->ctx].done;

    return !list_empty(ring) &&
           take_done(rme, ring, container_of(waiter, struct test_wait, waiter));
}

int rme_test_context(struct rme *rme, int ctx, struct rme_done *done, int max, int wait_ms)
{
    struct test_wait wait;

    if (ctx < 0 || ctx >= RME_MAX_CONTEXTS || !rme->operations->ctx[ctx].open)
        return -EINVAL;
    wait.done = done;
    return wait_for(rme, &wait, ctx, context_ready, max, wait_ms);
}

/* ---- Named operations ---- */

/* Returns true also if no operation is left to wait for. */
static bool some_ready(struct rme *rme, struct rme_waiter *waiter)
{
    struct test_wait *wait = container_of(waiter, struct test_wait, waiter);
    bool pending = false;
    int n = 0;

    for (int i = 0; i < wait->max; i++) {
        struct rme_op *op = rme_op_find(&rme->operations->table, wait->ids[i]);

        if (op != NULL && op->state == RME_OP_DONE) {
            if (wait->index != NULL)
                wait->index[n] = i;
            report(rme, op, &wait->done[n++]);
        } else if (op != NULL) {
            pending = true;
        }
    }
    waiter->found = n;
    return n > 0 || !pending;
}

int rme_test_some(struct rme *rme, const rme_id *ids, int count, int *index,
                  struct rme_done *done, int wait_ms)
{
    struct test_wait wait = {.done = done, .ids = ids, .index = index};

    return wait_for(rme, &wait, RME_WAIT_ANY, some_ready, count, wait_ms);
}

/* ---- Unexpected messages ---- */

static bool unexpected_ready(struct rme *rme, struct rme_waiter *waiter)
{
    struct test_wait *wait = container_of(waiter, struct test_wait, waiter);
    struct rme_message *u;
    int n = 0;

    while (n < wait->max && (u = rme_unexp_take(rme)) != NULL) {
        wait->unexpected[n++] = (struct rme_unexpected){
            .addr = u->sender,
            .first = !u->peer->reported,
            .tag = u->tag,
            .buffer = u->data,
            .size = (int64_t)u->total,
        };
        u->peer->reported = true;
        u->peer = NULL;
    }
    waiter->found = n;
    return n > 0;
}

int rme_test_unexpected(struct rme *rme, struct rme_unexpected *out, int max, int wait_ms)
{
    struct test_wait wait;

    wait.unexpected = out;
    return wait_for(rme, &wait, RME_WAIT_UNEXPECTED, unexpected_ready, max, wait_ms);
}

int rme_unexpected_free(struct rme *rme, void *buffer)
{
    bool known;

    if (!rme_enter(rme))
        return -ENODEV;
    known = rme_unexp_free(rme, buffer);
    rme_unlock(rme);
    return known ? 0 : -EINVAL;
}
