/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations.
 *
 * In OrangeFS the id of an operation is the address of a struct method_op, and bmi.c reads
 * op_id and addr through any id that it gets, even long after the operation has ended.  So the
 * engine stores a copy of op_template with each of its operations.  The address of the copy is
 * the id for engine and host, and the copy stays until finalize.  op_id, the first member, is 0
 * while the operation is free; addr is a constant address object of the method.
 *
 * A test in another thread may report an operation before its post returns, and the caller of
 * that test may free all memory of the operation, with the variable for the id.  The engine
 * writes this variable before other threads can see the operation, and the shim does not write
 * it after an accepted post.
 */
#include <stddef.h>
#include <stdlib.h>

#include "shim.h"

enum shim_kind { SHIM_SEND, SHIM_UNEXPECTED, SHIM_RECV };

_Static_assert(offsetof(struct method_op, op_id) == 0, "the engine writes the id there");
_Static_assert(sizeof(bmi_op_id_t) == sizeof(rme_id), "ids of the engine are ids of BMI");

/* Returns true if no size is negative and their sum is `total`. */
static bool is_sum(const bmi_size_t *sizes, int count, bmi_size_t total)
{
    bmi_size_t sum = 0;

    if (count < 0)
        return false;
    for (int i = 0; i < count; i++)
        if (sizes[i] < 0 || __builtin_add_overflow(sum, sizes[i], &sum))
            return false;
    return sum == total;
}

/* The post functions of BMI.  `buffers` are not written to for sends; `actual` may be NULL. */
static int shim_post(enum shim_kind kind, bmi_op_id_t *id, bmi_method_addr_p host,
                     void *const *buffers, const bmi_size_t *sizes, int count, bmi_size_t total,
                     bmi_size_t *actual, bmi_msg_tag_t tag, void *user, bmi_context_id context)
{
    const struct rme_list list = {.base = buffers, .length = sizes, .count = count};
    struct shim_addr *addr = shim_addr_of(host);
    rme_id *engine_id = (rme_id *)id;
    int ctx = (int)context, ret;

    *id = 0; /* the id if nothing is posted */
    if (self.rme == NULL)
        return -BMI_ENETDOWN;
    if (addr == NULL || !is_sum(sizes, count, total) || context < 0 ||
        context >= BMI_MAX_CONTEXTS)
        return -BMI_EINVAL;
    if (kind == SHIM_SEND)
        ret = rme_post_send(self.rme, addr->peer, &list, tag, ctx, user, engine_id);
    else if (kind == SHIM_UNEXPECTED)
        ret = rme_post_unexpected(self.rme, addr->peer, &list, tag, ctx, user, engine_id);
    else
        ret = rme_post_recv(self.rme, addr->peer, &list, tag, ctx, user, actual, engine_id);
    return ret < 0 ? shim_error(ret) : ret;
}

static int post_send_list(bmi_op_id_t *id, bmi_method_addr_p dest, const void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total,
                          enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                          bmi_context_id context, PVFS_hint hints)
{
    (void)type;
    (void)hints;
    return shim_post(SHIM_SEND, id, dest, (void *const *)buffers, sizes, count, total, NULL,
                     tag, user, context);
}

static int post_sendunexpected_list(bmi_op_id_t *id, bmi_method_addr_p dest,
                                    const void *const *buffers, const bmi_size_t *sizes,
                                    int count, bmi_size_t total, enum bmi_buffer_type type,
                                    bmi_msg_tag_t tag, void *user, bmi_context_id context,
                                    PVFS_hint hints)
{
    (void)type;
    (void)hints;
    return shim_post(SHIM_UNEXPECTED, id, dest, (void *const *)buffers, sizes, count, total,
                     NULL, tag, user, context);
}

static int post_recv_list(bmi_op_id_t *id, bmi_method_addr_p src, void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total,
                          bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                          void *user, bmi_context_id context, PVFS_hint hints)
{
    (void)type;
    (void)hints;
    return shim_post(SHIM_RECV, id, src, buffers, sizes, count, total, actual, tag, user,
                     context);
}

static int post_send(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                     bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                     bmi_context_id context, PVFS_hint hints)
{
    return post_send_list(id, dest, &buffer, &size, 1, size, type, tag, user, context, hints);
}

static int post_sendunexpected(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                               bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                               void *user, bmi_context_id context, PVFS_hint hints)
{
    return post_sendunexpected_list(id, dest, &buffer, &size, 1, size, type, tag, user, context,
                                    hints);
}

static int post_recv(bmi_op_id_t *id, bmi_method_addr_p src, void *buffer, bmi_size_t expected,
                     bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                     void *user, bmi_context_id context, PVFS_hint hints)
{
    return post_recv_list(id, src, &buffer, &expected, 1, expected, actual, type, tag, user,
                          context, hints);
}

/* Returns 0, because OrangeFS exits on errors; the operation is reported in any case. */
static int shim_cancel(bmi_op_id_t id, bmi_context_id context)
{
    (void)context;
    if (self.rme != NULL)
        rme_cancel(self.rme, (rme_id)id);
    return 0;
}

/* Reports completions; ids and user may be NULL. */
static void report(const struct rme_done *done, int n, bmi_op_id_t *ids,
                   bmi_error_code_t *error, bmi_size_t *actual, void **user)
{
    for (int i = 0; i < n; i++) {
        if (ids != NULL)
            ids[i] = (bmi_op_id_t)done[i].id;
        if (user != NULL)
            user[i] = done[i].user;
        error[i] = shim_error(done[i].error);
        actual[i] = done[i].actual;
    }
}

static int shim_test_some(int incount, bmi_op_id_t *ids, int *outcount, int *index,
                          bmi_error_code_t *error, bmi_size_t *actual, void **user, int idle_ms,
                          bmi_context_id context)
{
    struct rme_done few[SHIM_AT_ONCE], *done = few;
    int n = -BMI_ENOMEM;

    (void)context;
    *outcount = 0;
    if (self.rme == NULL || incount <= 0)
        return 0;
    if (incount > SHIM_AT_ONCE)
        done = calloc((size_t)incount, sizeof(*done));
    if (done != NULL) {
        n = rme_test_some(self.rme, (const rme_id *)ids, incount, index, done, idle_ms);
        report(done, n, NULL, error, actual, user);
        n = n < 0 ? shim_error(n) : n;
    }
    if (done != few)
        free(done);
    if (n > 0)
        *outcount = n;
    return n < 0 ? n : 0;
}

static int test(bmi_op_id_t id, int *outcount, bmi_error_code_t *error, bmi_size_t *actual,
                void **user, int idle_ms, bmi_context_id context)
{
    return shim_test_some(1, &id, outcount, NULL, error, actual, user, idle_ms, context);
}

/*
 * Returns 0.  OrangeFS polls a method that returns 1 ("active") here or in testunexpected
 * without idle time for the next 10,000 calls, and skips methods that never do, as bmi_tcp, for
 * as long.  A method alone in its process would only burn processor time by 1, because the
 * engine itself polls and then sleeps according to its options; with other methods in the
 * process it would starve them.  bmi.c balances several methods by their results
 * (patches/orangefs/README.md, "Several networks").
 *
 * A negative number would end OrangeFS's BMI thread.  The engine returns errors here only for a
 * wrong context, so an error counts as no result.
 */
static int shim_test_context(int incount, bmi_op_id_t *ids, int *outcount,
                             bmi_error_code_t *error, bmi_size_t *actual, void **user,
                             int idle_ms, bmi_context_id context)
{
    struct rme_done done[SHIM_AT_ONCE];
    int n;

    *outcount = 0;
    if (self.rme == NULL || incount <= 0 || context < 0 || context >= BMI_MAX_CONTEXTS)
        return 0;
    n = rme_test_context(self.rme, (int)context, done,
                         incount < SHIM_AT_ONCE ? incount : SHIM_AT_ONCE, idle_ms);
    report(done, n, ids, error, actual, user);
    if (n > 0)
        *outcount = n;
    return 0;
}
