/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test.c - test functions: collect results of the active methods.
 *
 * With one method the call is passed through.  With several, each is first tested without
 * waiting, starting with another one each time, so that no method can always fill the caller's
 * arrays.  If none has a result, the idle time is spent in slices, in turn, until one has;
 * slices start small and grow, because a result of one method waits for the slice of another.
 * If a method returns long before the end of its slice without a result, it has something that
 * this call does not fetch, such as an unexpected message, and the call ends.
 *
 * An id does not name its method, and a method ignores the ids of others.  The core does not
 * interpret ids, so a wrong id is harmless.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "core.h"
#include "gossip.h"

#define UNEXPECTED_AT_ONCE   32
#define SLICE_MAX_MS         8 /* longest slice; delays results of other methods */
#define SLICE_SIGNIFICANT_MS 4 /* an early return from a shorter slice is not significant */

/* Tests one method, waiting up to idle_ms.  Returns the number of results added, or a negative
 * error. */
typedef int (*ask_fn)(struct bmi_method_ops *ops, int idle_ms, void *call);

/* Waits up to idle_ms for a method to become active. */
static void wait_for_a_method(int idle_ms)
{
    const struct timespec one_ms = {.tv_nsec = 1000000};
    while (idle_ms-- > 0 && bmi_active_count() == 0)
        nanosleep(&one_ms, NULL);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns the number of results, or an error if there are none and a method failed. */
static int ask_all(ask_fn ask, void *call, int idle_ms)
{
    int methods = bmi_active_count();
    if (methods == 0) {
        wait_for_a_method(idle_ms);
        return 0;
    }
    if (methods == 1)
        return ask(bmi_core.active[0], idle_ms, call);

    unsigned turn = atomic_fetch_add_explicit(&bmi_core.turn, 1, memory_order_relaxed);
    int found = 0, error = 0;
    for (int i = 0; i < methods; i++) {
        int n = ask(bmi_core.active[(turn + i) % methods], 0, call);
        if (n >= 0)
            found += n;
        else
            error = n;
    }
    for (int i = 0, slice = 1; found == 0 && error == 0 && idle_ms > 0; i++) {
        int share = slice < idle_ms ? slice : idle_ms;
        int64_t begin = now_ms();
        int n = ask(bmi_core.active[(turn + (unsigned)i) % methods], share, call);
        if (n >= 0)
            found += n;
        else
            error = n;
        idle_ms -= share;
        if (n == 0 && share >= SLICE_SIGNIFICANT_MS && now_ms() - begin < share / 2)
            break;
        if (i % methods == methods - 1 && slice < SLICE_MAX_MS)
            slice *= 2;
    }
    return found > 0 ? found : error;
}

/* Converts the result of ask_all() to that of a test function; logs an error. */
static int result(const char *what, int found)
{
    if (found < 0)
        gossip_err("BMI: a method failed to %s: %s\n", what, bmi_status_string(found));
    return found > 0 ? 1 : found;
}

struct test_call {
    int incount;
    bmi_op_id_t *ids;
    int *outcount;
    int *index;
    bmi_error_code_t *error;
    bmi_size_t *actual;
    void **user;
    bmi_context_id context;
};

static struct test_call call_of(int incount, bmi_op_id_t *ids, int *outcount, int *index,
                                bmi_error_code_t *error, bmi_size_t *actual, void **user,
                                bmi_context_id context)
{
    return (struct test_call){incount, ids, outcount, index, error, actual, user, context};
}

static void **user_at(const struct test_call *c)
{
    return c->user != NULL ? c->user + *c->outcount : NULL;
}

static int finish_ask(const struct test_call *c, int ret, int n)
{
    if (n > 0)
        *c->outcount += n;
    return ret < 0 ? bmi_result(ret) : n;
}

static int ask_test(struct bmi_method_ops *ops, int idle_ms, void *call)
{
    const struct test_call *c = call;
    int n = 0;
    if (*c->outcount > 0)
        return 0;
    int ret = ops->test(c->ids[0], &n, c->error, c->actual, c->user, idle_ms, c->context);
    return finish_ask(c, ret, n);
}

static int ask_testsome(struct bmi_method_ops *ops, int idle_ms, void *call)
{
    const struct test_call *c = call;
    int done = *c->outcount, n = 0;
    if (done == c->incount)
        return 0;
    int ret = ops->testsome(c->incount, c->ids, &n, c->index + done, c->error + done,
                            c->actual + done, user_at(c), idle_ms, c->context);
    return finish_ask(c, ret, n);
}

static int ask_testcontext(struct bmi_method_ops *ops, int idle_ms, void *call)
{
    const struct test_call *c = call;
    int done = *c->outcount, n = 0;
    if (done == c->incount)
        return 0;
    int ret = ops->testcontext(c->incount - done, c->ids + done, &n, c->error + done,
                               c->actual + done, user_at(c), idle_ms, c->context);
    return finish_ask(c, ret, n);
}

/* Checks the arguments of the three functions above.  Returns 0 or a negative error. */
static int check_call(const struct test_call *c, int idle_ms)
{
    if (c->outcount == NULL)
        return -BMI_EINVAL;
    *c->outcount = 0;
    if (!bmi_is_up())
        return -BMI_ENETDOWN;
    if (c->incount < 0 || idle_ms < 0 || !bmi_context_is_open(c->context))
        return -BMI_EINVAL;
    if (c->incount > 0 && (c->ids == NULL || c->error == NULL || c->actual == NULL))
        return -BMI_EINVAL;
    return 0;
}

int BMI_test(bmi_op_id_t id, int *outcount, bmi_error_code_t *error_code,
             bmi_size_t *actual_size, void **user_ptr, int max_idle_time_ms,
             bmi_context_id context_id)
{
    struct test_call c =
        call_of(1, &id, outcount, NULL, error_code, actual_size, user_ptr, context_id);
    int ret = check_call(&c, max_idle_time_ms);
    if (ret < 0 || id == 0)
        return ret;
    return result("test", ask_all(ask_test, &c, max_idle_time_ms));
}

int BMI_testsome(int incount, bmi_op_id_t *id_array, int *outcount, int *index_array,
                 bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                 void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id)
{
    struct test_call c = call_of(incount, id_array, outcount, index_array, error_code_array,
                                 actual_size_array, user_ptr_array, context_id);
    int ret = check_call(&c, max_idle_time_ms);
    if (ret < 0 || incount == 0)
        return ret;
    if (index_array == NULL)
        return -BMI_EINVAL;
    return result("test some operations", ask_all(ask_testsome, &c, max_idle_time_ms));
}

int BMI_testcontext(int incount, bmi_op_id_t *out_id_array, int *outcount,
                    bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                    void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id)
{
    struct test_call c = call_of(incount, out_id_array, outcount, NULL, error_code_array,
                                 actual_size_array, user_ptr_array, context_id);
    int ret = check_call(&c, max_idle_time_ms);
    if (ret < 0 || incount == 0)
        return ret;
    bmi_check_forgotten();
    return result("test a context", ask_all(ask_testcontext, &c, max_idle_time_ms));
}

struct unexpected_call {
    int incount;
    int outcount;
    struct BMI_unexpected_info *info;
};

/*
 * Converts a method's unexpected message for the program.  The method has registered the
 * sender, except without memory; the message cannot be answered then and is freed.
 */
static bool deliver(struct bmi_method_ops *ops, const struct bmi_method_unexpected_info *from,
                    struct BMI_unexpected_info *to)
{
    struct bmi_ref *ref = bmi_refs_pin_method_addr(&bmi_core.refs, from->addr);
    if (ref == NULL) {
        gossip_err("BMI: %s: message of an unregistered peer lost\n", ops->method_name);
        ops->unexpected_free(from->buffer);
        return false;
    }
    *to = (struct BMI_unexpected_info){.error_code = from->error_code,
                                       .addr = ref->id,
                                       .buffer = from->buffer,
                                       .size = from->size,
                                       .tag = from->tag};
    if (atomic_load_explicit(&bmi_core.flags, memory_order_relaxed) & BMI_AUTO_REF_COUNT)
        bmi_refs_count(&bmi_core.refs, ref, 1);
    bmi_refs_unpin(&bmi_core.refs, ref);
    return true;
}

static int ask_unexpected(struct bmi_method_ops *ops, int idle_ms, void *call)
{
    struct unexpected_call *c = call;
    struct bmi_method_unexpected_info info[UNEXPECTED_AT_ONCE];
    int room = c->incount - c->outcount, n = 0, added = 0;

    if (room == 0)
        return 0;
    int ret = ops->testunexpected(room < UNEXPECTED_AT_ONCE ? room : UNEXPECTED_AT_ONCE, &n,
                                  info, idle_ms);
    for (int i = 0; i < n; i++)
        if (deliver(ops, &info[i], &c->info[c->outcount + added]))
            added++;
    c->outcount += added;
    return ret < 0 ? bmi_result(ret) : added;
}

int BMI_testunexpected(int incount, int *outcount, struct BMI_unexpected_info *info_array,
                       int max_idle_time_ms)
{
    if (outcount == NULL)
        return -BMI_EINVAL;
    *outcount = 0;
    if (!bmi_is_up())
        return -BMI_ENETDOWN;
    if (incount < 0 || max_idle_time_ms < 0 || (incount > 0 && info_array == NULL))
        return -BMI_EINVAL;
    bmi_check_forgotten();
    if (incount == 0)
        return 0;
    struct unexpected_call c = {.incount = incount, .info = info_array};
    int found = ask_all(ask_unexpected, &c, max_idle_time_ms);
    *outcount = c.outcount;
    return result("test for unexpected messages", found);
}
