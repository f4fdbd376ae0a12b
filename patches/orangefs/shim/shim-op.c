/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations: from BMI's ids to the engine's and back.
 *
 * In OrangeFS an operation's id is the address of a struct method_op, and bmi.c reads op_id and
 * addr through any id it is given, also one whose operation is long over.  So operations live
 * in chunks that stay until finalize, show a constant address object of the method, and have
 * op_id 0 while they are free.  An id may come back for a later operation; those that have been
 * free longest are used first, and some always rest, so that a late cancel of a finished
 * operation finds nothing rather than a stranger.
 *
 * `engine_id` tells who may touch an operation:
 *
 *     0                     free
 *     POSTING | n           given to the engine, whose id is not known yet; n is different each
 *                           time
 *     anything else         the engine's id
 *
 * A test in another thread may report the operation before the thread that posts it has the
 * engine's id: the poster then finds something else than its own POSTING | n and leaves it
 * alone.
 *
 * Whoever gets that report may free what the operation belonged to, the caller's variable for
 * the id included.  So that variable has its value before the engine is told, and the poster
 * writes it again only when nobody will get a report: the post failed, or the operation was
 * complete at once.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define POSTING     (UINT64_C(1) << 63)
#define FIRST_CHUNK 64u
#define RESTING     32u /* free operations that are not used again yet */

struct shim_op {
    struct method_op op;
    _Atomic uint64_t engine_id;
    uint64_t posts;
    struct shim_op *next;
};

static bmi_op_id_t id_of(struct shim_op *op)
{
    return (bmi_op_id_t)(uintptr_t)&op->op;
}

/* The operation with this id, in whatever state; NULL when the id is no address of one. */
static struct shim_op *op_at(struct shim *s, bmi_op_id_t id)
{
    uintptr_t at = (uintptr_t)id;

    for (unsigned k = 0; k < SHIM_OP_CHUNKS; k++) {
        uintptr_t base = (uintptr_t)atomic_load_explicit(&s->op_chunk[k], memory_order_acquire);
        if (base == 0)
            break;
        if (at >= base && at - base < (sizeof(struct shim_op) * FIRST_CHUNK) << k)
            return (at - base) % sizeof(struct shim_op) == 0 ? (struct shim_op *)at : NULL;
    }
    return NULL;
}

/* The engine's id of an operation under way, else 0. */
static rme_id engine_id(struct shim *s, bmi_op_id_t id)
{
    struct shim_op *op = op_at(s, id);
    uint64_t value = op ? atomic_load_explicit(&op->engine_id, memory_order_acquire) : 0;
    return value & POSTING ? 0 : value;
}

static void append_free(struct shim *s, struct shim_op *op)
{
    op->next = NULL;
    if (s->op_last)
        s->op_last->next = op;
    else
        s->op_first = op;
    s->op_last = op;
    s->op_free++;
}

/* Adds the next chunk; op_lock is held. */
static bool grow(struct shim *s)
{
    if (s->op_chunks == SHIM_OP_CHUNKS)
        return false;
    size_t count = (size_t)FIRST_CHUNK << s->op_chunks;
    struct shim_op *chunk = calloc(count, sizeof(*chunk));
    if (!chunk)
        return false;
    for (size_t i = 0; i < count; i++) {
        chunk[i].op.addr = &s->op_addr;
        append_free(s, &chunk[i]);
    }
    atomic_store_explicit(&s->op_chunk[s->op_chunks++], chunk, memory_order_release);
    return true;
}

static struct shim_op *take_op(struct shim *s)
{
    pthread_mutex_lock(&s->op_lock);
    if (s->op_free <= RESTING)
        grow(s);
    struct shim_op *op = s->op_first;
    if (op) {
        s->op_first = op->next;
        if (!s->op_first)
            s->op_last = NULL;
        s->op_free--;
    }
    pthread_mutex_unlock(&s->op_lock);
    return op;
}

static void make_free(struct shim_op *op)
{
    __atomic_store_n(&op->op.op_id, 0, __ATOMIC_RELAXED);
    atomic_store_explicit(&op->engine_id, 0, memory_order_release);
}

static void give_op_back(struct shim *s, struct shim_op *op)
{
    make_free(op);
    pthread_mutex_lock(&s->op_lock);
    append_free(s, op);
    pthread_mutex_unlock(&s->op_lock);
}

/*
 * An operation for a post.  Most sends are over when the engine returns, and nobody has seen
 * their id: that operation is kept for the next post, without a lock and without a rest.
 */
static struct shim_op *op_to_post(struct shim *s)
{
    struct shim_op *op = atomic_exchange_explicit(&s->op_spare, NULL, memory_order_acquire);
    return op ? op : take_op(s);
}

static void op_not_needed(struct shim *s, struct shim_op *op)
{
    struct shim_op *none = NULL;

    make_free(op);
    if (!atomic_compare_exchange_strong_explicit(&s->op_spare, &none, op, memory_order_release,
                                                 memory_order_relaxed))
        give_op_back(s, op);
}

/* The context was closed before this operation was over, or before it was tested for: nobody
 * hears of it. */
void shim_op_dropped(void *shim, void *op)
{
    give_op_back(shim, op);
}

void shim_free_ops(struct shim *s)
{
    for (unsigned k = 0; k < SHIM_OP_CHUNKS; k++)
        free(atomic_exchange(&s->op_chunk[k], NULL));
    s->op_first = s->op_last = NULL;
    atomic_store_explicit(&s->op_spare, NULL, memory_order_relaxed);
    s->op_chunks = s->op_free = 0;
}

/* total is the sum of the sizes, and each of them is a size. */
static bool is_sum(const struct shim_post *post)
{
    bmi_size_t sum = 0;

    if (post->count < 0)
        return false;
    for (int i = 0; i < post->count; i++)
        if (post->sizes[i] < 0 || __builtin_add_overflow(sum, post->sizes[i], &sum))
            return false;
    return sum == post->total;
}

static int post_to_engine(struct shim *s, const struct shim_post *post, struct rme_addr *peer,
                          void *user, rme_id *id)
{
    const struct rme_list list = {
        .base = post->buffers, .length = post->sizes, .count = post->count};
    int context = (int)post->context;

    switch (post->kind) {
    case SHIM_SEND:
        return rme_post_send(s->rme, peer, &list, post->tag, context, user, id);
    case SHIM_UNEXPECTED:
        return rme_post_unexpected(s->rme, peer, &list, post->tag, context, user, id);
    case SHIM_RECV:
        break;
    }
    return rme_post_recv(s->rme, peer, &list, post->tag, context, user, post->actual, id);
}

int shim_post(struct shim *s, const struct shim_post *post, bmi_op_id_t *id)
{
    struct shim_addr *addr = shim_addr_of(s, post->addr);
    rme_id engine = 0;

    *id = 0; /* what the caller finds if nothing is posted */
    if (!s->rme)
        return -BMI_ENETDOWN;
    if (!addr || !is_sum(post) || post->context < 0 || post->context >= BMI_MAX_CONTEXTS)
        return -BMI_EINVAL;
    struct shim_op *op = op_to_post(s);
    if (!op)
        return -BMI_ENOMEM;

    bmi_op_id_t op_id = id_of(op);
    uint64_t posting = POSTING | ++op->posts;
    op->op.send_recv = post->kind == SHIM_RECV ? BMI_RECV : BMI_SEND;
    op->op.user_ptr = post->user;
    op->op.msg_tag = post->tag;
    op->op.context_id = post->context;
    __atomic_store_n(&op->op.op_id, op_id, __ATOMIC_RELAXED);
    atomic_store_explicit(&op->engine_id, posting, memory_order_release);

    *id = op_id;
    int ret = post_to_engine(s, post, addr->peer, op, &engine);
    if (ret != 0) {
        *id = 0;
        op_not_needed(s, op);
        return ret < 0 ? shim_error(ret) : 1;
    }
    atomic_compare_exchange_strong(&op->engine_id, &posting, engine);
    return 0;
}

/* OrangeFS dies of any answer but 0, and the operation is reported in any case. */
int shim_cancel(struct shim *s, bmi_op_id_t id)
{
    rme_id engine = s->rme ? engine_id(s, id) : 0;
    if (engine)
        rme_cancel(s->rme, engine);
    return 0;
}

/* Reports one completion; id and user may be NULL. */
static void report(struct shim *s, const struct rme_done *done, bmi_op_id_t *id,
                   bmi_error_code_t *error, bmi_size_t *actual, void **user)
{
    struct shim_op *op = done->user;

    if (id)
        *id = id_of(op);
    if (user)
        *user = op->op.user_ptr;
    *error = shim_error(done->error);
    *actual = done->error ? 0 : done->actual;
    give_op_back(s, op);
}

int shim_test(struct shim *s, bmi_op_id_t id, int *outcount, bmi_error_code_t *error,
              bmi_size_t *actual, void **user, int idle_ms)
{
    struct rme_done done;

    *outcount = 0;
    rme_id engine = s->rme ? engine_id(s, id) : 0;
    int n = engine ? rme_test(s->rme, engine, &done, idle_ms) : 0;
    if (n > 0) {
        report(s, &done, NULL, error, actual, user);
        *outcount = 1;
    }
    return n < 0 ? shim_error(n) : 0;
}

/* testsome for as many ids as the three arrays have room. */
static int test_some(struct shim *s, int incount, const bmi_op_id_t *ids, rme_id *engine,
                     int *index, struct rme_done *done, bmi_error_code_t *error,
                     bmi_size_t *actual, void **user, int idle_ms)
{
    int known = 0;

    for (int i = 0; i < incount; i++) {
        engine[i] = engine_id(s, ids[i]);
        known += engine[i] != 0;
    }
    if (known == 0)
        return 0;
    int n = rme_test_some(s->rme, engine, incount, index, done, idle_ms);
    for (int i = 0; i < n; i++)
        report(s, &done[i], NULL, &error[i], &actual[i], user ? &user[i] : NULL);
    return n < 0 ? shim_error(n) : n;
}

int shim_test_some(struct shim *s, int incount, const bmi_op_id_t *ids, int *outcount,
                   int *index, bmi_error_code_t *error, bmi_size_t *actual, void **user,
                   int idle_ms)
{
    rme_id few_ids[SHIM_AT_ONCE];
    struct rme_done few_done[SHIM_AT_ONCE];
    rme_id *engine = few_ids;
    struct rme_done *done = few_done;
    int n = -BMI_ENOMEM;

    *outcount = 0;
    if (!s->rme || incount <= 0)
        return 0;
    if (incount > SHIM_AT_ONCE) {
        engine = calloc((size_t)incount, sizeof(*engine));
        done = calloc((size_t)incount, sizeof(*done));
    }
    if (engine && done)
        n = test_some(s, incount, ids, engine, index, done, error, actual, user, idle_ms);
    if (incount > SHIM_AT_ONCE) {
        free(engine);
        free(done);
    }
    if (n > 0)
        *outcount = n;
    return n < 0 ? n : 0;
}

/*
 * What the returned number means to OrangeFS: a method that says "active" (1) here or in
 * testunexpected is polled without idle time for the next 10,000 calls, and those that never
 * say it, as bmi_tcp, are left out for as long.  So the answer is 0 whatever happens: alone in
 * its process, a method that says "active" only burns time, since the engine itself spins and
 * then sleeps as its options tell it; beside others it would starve them.  What bmi.c has to
 * know of several methods it sees from their results (patches/orangefs/README.md, "Several
 * networks").
 *
 * A negative number would end OrangeFS's BMI thread for good.  The engine returns errors here
 * only for a wrong context, so an error is no result.
 */
int shim_test_context(struct shim *s, int incount, bmi_op_id_t *ids, int *outcount,
                      bmi_error_code_t *error, bmi_size_t *actual, void **user, int idle_ms,
                      bmi_context_id context)
{
    struct rme_done done[SHIM_AT_ONCE];

    *outcount = 0;
    if (!s->rme || incount <= 0 || context < 0 || context >= BMI_MAX_CONTEXTS)
        return 0;
    int n = rme_test_context(s->rme, (int)context, done,
                             incount < SHIM_AT_ONCE ? incount : SHIM_AT_ONCE, idle_ms);
    for (int i = 0; i < n; i++)
        report(s, &done[i], &ids[i], &error[i], &actual[i], user ? &user[i] : NULL);
    if (n > 0)
        *outcount = n;
    return 0;
}
