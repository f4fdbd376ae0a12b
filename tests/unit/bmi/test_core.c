/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The BMI core over two methods inside the process. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bmi.h"
#include "bmi-method-callback.h"
#include "core.h"
#include "gossip.h"
#include "loop_method.h"

struct bmi_method_ops *const bmi_static_methods[] = {&bmi_loopa_ops, &bmi_loopb_ops, NULL};

#define A (&loops[LOOP_A])
#define B (&loops[LOOP_B])

static int error_lines;
static char last_error[1200];

static void count_lines(void *arg, char kind, const char *line)
{
    (void)arg;
    if (kind == 'E') {
        error_lines++;
        snprintf(last_error, sizeof(last_error), "%s", line);
    }
}

static int setup(void **state)
{
    (void)state;
    loop_reset();
    error_lines = 0;
    gossip_set_sink(count_lines, NULL);
    return 0;
}

/* A test that failed in the middle must not spoil the next one. */
static int teardown(void **state)
{
    (void)state;
    while (BMI_finalize() == 0)
        ;
    return 0;
}

static BMI_addr_t lookup(const char *text)
{
    BMI_addr_t addr;
    assert_int_equal(BMI_addr_lookup(&addr, text, NULL), 0);
    assert_true(addr > 0);
    return addr;
}

static void start_client(bmi_context_id *context)
{
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_open_context(context), 0);
}

static void start_server(int flags)
{
    assert_int_equal(BMI_initialize("bmi_loopa,bmi_loopb", "loopa://me,loopb://me", BMI_INIT_SERVER | flags, "k=v"),
                     0);
}

static void calls_outside_initialize_fail(void **state)
{
    (void)state;
    BMI_addr_t addr = 5;
    bmi_context_id context;
    bmi_op_id_t id = 7;
    int n = 3, size = 0;
    bmi_error_code_t error;
    bmi_size_t actual;
    struct BMI_unexpected_info info;

    assert_int_equal(BMI_addr_lookup(&addr, "loopa://x", NULL), -BMI_ENETDOWN);
    assert_int_equal(addr, 0);
    assert_int_equal(BMI_open_context(&context), -BMI_ENETDOWN);
    assert_int_equal(BMI_post_send(&id, 1, "x", 1, BMI_EXT_ALLOC, 0, NULL, 0, NULL), -BMI_ENETDOWN);
    assert_int_equal(BMI_test(1, &n, &error, &actual, NULL, 0, 0), -BMI_ENETDOWN);
    assert_int_equal(n, 0);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), -BMI_ENETDOWN);
    assert_int_equal(BMI_cancel(1, 0), -BMI_ENETDOWN);
    assert_int_equal(BMI_finalize(), -BMI_ENETDOWN);
    assert_int_equal(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), -BMI_ENETDOWN);
    assert_int_equal(BMI_get_info(1, BMI_GET_UNEXP_SIZE, &size), -BMI_ENETDOWN);
    assert_int_equal(BMI_memfree(1, &n, 1, BMI_SEND), -BMI_ENETDOWN);
    assert_null(BMI_memalloc(1, 10, BMI_SEND));
    assert_null(BMI_addr_rev_lookup(1));
    assert_string_equal(BMI_addr_rev_lookup_unexpected(1), "UNKNOWN");
    BMI_close_context(0);
}

static void bad_arguments_of_initialize(void **state)
{
    (void)state;
    assert_int_equal(BMI_initialize(NULL, "loopa://me", BMI_INIT_SERVER, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize("bmi_loopa", NULL, BMI_INIT_SERVER, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize("bmi_loopa", "loopa://me", 0, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize(" , ", "loopa://me", BMI_INIT_SERVER, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize("bmi_nothing", "nothing://me", BMI_INIT_SERVER, NULL), -BMI_ENOPROTOOPT);
    assert_int_equal(BMI_initialize("bmi_loopa", "loopb://me", BMI_INIT_SERVER, NULL), -BMI_EINVAL);
    assert_int_equal(error_lines, 6);
    assert_int_equal(A->initialized, 0);
}

/* The first method has started when the second one fails: it is stopped again, and nothing is left that would count. */
static void initialize_failure_undoes_itself(void **state)
{
    (void)state;
    B->initialize_error = -ENODEV;
    assert_int_equal(BMI_initialize("bmi_loopa,bmi_loopb", "loopa://me,loopb://me", BMI_INIT_SERVER, NULL),
                     -BMI_ENODEV);
    assert_int_equal(A->initialized, 1);
    assert_int_equal(A->finalized, 1);
    assert_int_equal(B->finalized, 0);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_INIT, NULL), -BMI_ENETDOWN);
    B->initialize_error = 0;
    start_server(0);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_INIT, NULL), 0);
    assert_string_equal(A->options, "k=v");
    assert_string_equal(B->listening, "loopb://me");
    assert_int_equal(A->flags, BMI_INIT_SERVER);
}

static void nested_initialize(void **state)
{
    (void)state;
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    lookup("loopa://x");
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(A->finalized, 0);
    lookup("loopa://y");
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(A->finalized, 1);
    assert_int_equal(A->drops, 2);
    assert_int_equal(BMI_finalize(), -BMI_ENETDOWN);
}

static void initialize_finalize_initialize(void **state)
{
    (void)state;
    BMI_addr_t old[3];
    bmi_context_id context;

    for (int round = 0; round < 3; round++) {
        start_client(&context);
        assert_int_equal(context, 0);
        old[round] = lookup("loopa://x");
        for (int i = 0; i < round; i++) {
            assert_int_not_equal(old[i], old[round]);
            assert_null(BMI_addr_rev_lookup(old[i]));
        }
        assert_int_equal(BMI_finalize(), 0);
        assert_int_equal(A->drops, round + 1);
    }
}

static void lookup_activates_by_scheme(void **state)
{
    (void)state;
    BMI_addr_t addr, again;
    char options[] = "depth=3";
    char too_long[BMI_MAX_ADDR_LEN + 8];
    bmi_context_id context;

    start_client(&context);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_INIT, NULL), -BMI_ENETDOWN);
    assert_int_equal(BMI_addr_lookup(&addr, "tcp://x:1", NULL), -BMI_ENOPROTOOPT);
    assert_int_equal(BMI_addr_lookup(&addr, "loopab://x:1", NULL), -BMI_ENOPROTOOPT);
    assert_int_equal(BMI_addr_lookup(&addr, "", NULL), -BMI_ENOPROTOOPT);
    assert_int_equal(A->initialized + B->initialized, 0);

    assert_int_equal(BMI_addr_lookup(&addr, "loopb://x:1", options), 0);
    assert_int_equal(A->initialized, 0);
    assert_int_equal(B->initialized, 1);
    assert_string_equal(B->options, "depth=3");
    assert_int_equal(B->contexts, 1u << context);
    assert_int_equal(BMI_addr_lookup(&again, "loopb://x:1", NULL), 0);
    assert_int_equal(again, addr);
    assert_string_equal(BMI_addr_rev_lookup(addr), "loopb://x:1");
    assert_int_not_equal(lookup("loopb://x:2"), addr);
    assert_int_equal(B->initialized, 1);

    memset(too_long, 'x', sizeof(too_long));
    memcpy(too_long, "loopb://", 8);
    too_long[sizeof(too_long) - 1] = '\0';
    assert_int_equal(BMI_addr_lookup(&addr, too_long, NULL), -BMI_ENAMETOOLONG);
    assert_int_equal(BMI_addr_lookup(&addr, NULL, NULL), -BMI_EINVAL);
}

/* A method without a device does not keep the other one of the string from being used. */
static void lookup_falls_back_to_the_next_scheme(void **state)
{
    (void)state;
    BMI_addr_t addr;
    void *method_addr;
    bmi_context_id context;

    start_client(&context);
    A->initialize_error = -ENODEV;
    assert_int_equal(BMI_addr_lookup(&addr, "loopa://x", NULL), -BMI_ENODEV);
    assert_int_equal(BMI_addr_lookup(&addr, "loopa://x,loopb://x", NULL), 0);
    assert_int_equal(BMI_get_info(addr, BMI_GET_METH_ADDR, &method_addr), 0);
    assert_int_equal(((bmi_method_addr_p)method_addr)->method_type, 0);
    A->initialize_error = 0;
    assert_int_equal(BMI_addr_lookup(&addr, "loopa://x", NULL), 0);
}

static void many_addresses(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static BMI_addr_t addr[COUNT];
    char text[64];
    bmi_context_id context;

    start_client(&context);
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof(text), "loopa://host%d:1", i);
        addr[i] = lookup(text);
    }
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof(text), "loopa://host%d:1", i);
        assert_string_equal(BMI_addr_rev_lookup(addr[i]), text);
        assert_int_equal(lookup(text), addr[i]);
    }
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(A->drops, COUNT);
}

static void wrong_address_numbers(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id;
    int value;

    start_client(&context);
    BMI_addr_t addr = lookup("loopa://x");
    const BMI_addr_t wrong[] = {0, -1, 1, addr + 1, addr - 1, addr + (INT64_C(1) << 32), addr | INT64_MIN,
                                INT64_MAX, INT64_MIN, (addr & ~INT64_C(0xffffffff)) | 0xffffffff};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(BMI_post_send(&id, wrong[i], "x", 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EPROTO);
        assert_int_equal(BMI_get_info(wrong[i], BMI_GET_UNEXP_SIZE, &value), -BMI_EINVAL);
        assert_null(BMI_memalloc(wrong[i], 8, BMI_SEND));
        assert_null(BMI_addr_rev_lookup(wrong[i]));
        if (wrong[i] != 0)
            assert_int_equal(BMI_set_info(wrong[i], BMI_INC_ADDR_REF, NULL), -BMI_EINVAL);
    }
}

static void two_names_of_one_method_address(void **state)
{
    (void)state;
    void *first, *second;
    bmi_context_id context;

    start_client(&context);
    BMI_addr_t a = lookup("loopa://same/1"), b = lookup("loopa://same/2");
    assert_int_not_equal(a, b);
    assert_int_equal(BMI_get_info(a, BMI_GET_METH_ADDR, &first), 0);
    assert_int_equal(BMI_get_info(b, BMI_GET_METH_ADDR, &second), 0);
    assert_ptr_equal(first, second);
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(A->drops, 2);
    assert_null(A->last_lookup);
}

/* When one name of a shared object goes, messages of that peer come under another one. */
static void a_shared_address_loses_one_name(void **state)
{
    (void)state;
    void *object;
    struct BMI_unexpected_info info;
    int n;

    start_server(0);
    BMI_addr_t a = lookup("loopa://same/1"), b = lookup("loopa://same/2");
    assert_int_equal(BMI_get_info(b, BMI_GET_METH_ADDR, &object), 0);
    loop_peer_dies(object);
    assert_int_equal(BMI_set_info(b, BMI_INC_ADDR_REF, NULL), 0);
    assert_int_equal(BMI_set_info(b, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(A->drops, 1);
    assert_null(BMI_addr_rev_lookup(b));
    loop_peer_sends(A, object, 1, 1);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    assert_int_equal(info.addr, a);
    assert_int_equal(BMI_unexpected_free(a, info.buffer), 0);
    BMI_addr_t again = lookup("loopa://same/2");
    assert_true(again != a && again != b);
}

/* Two threads look the same name up: the second one's object goes back to the method. */
static void other_thread_looks_up(void)
{
    bool found;
    bmi_method_addr_p object = bmi_alloc_method_addr(0, 128);
    struct bmi_ref *ref = bmi_refs_add(&bmi_core.refs, &bmi_loopa_ops, object, "loopa://x", &found);
    assert_false(found);
    bmi_refs_unpin(&bmi_core.refs, ref);
}

static void two_lookups_of_one_name_at_once(void **state)
{
    (void)state;
    bmi_context_id context;

    start_client(&context);
    lookup("loopa://w");
    A->on_lookup = other_thread_looks_up;
    BMI_addr_t addr = lookup("loopa://x");
    A->on_lookup = NULL;
    assert_int_equal(A->drops, 1);
    assert_int_equal(lookup("loopa://x"), addr);
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(A->drops, 3);
}

static void contexts(void **state)
{
    (void)state;
    bmi_context_id id[BMI_MAX_CONTEXTS + 1];

    start_server(0);
    for (int i = 0; i < BMI_MAX_CONTEXTS; i++) {
        assert_int_equal(BMI_open_context(&id[i]), 0);
        assert_int_equal(id[i], i);
    }
    assert_int_equal(BMI_open_context(&id[BMI_MAX_CONTEXTS]), -BMI_EBUSY);
    assert_int_equal(A->contexts, 0xffff);
    BMI_close_context(7);
    BMI_close_context(7);
    BMI_close_context(-1);
    BMI_close_context(BMI_MAX_CONTEXTS);
    assert_int_equal(B->contexts, 0xffff & ~(1u << 7));
    /* When the second method refuses, the first is told to close it again. */
    B->context_error = -ENOMEM;
    assert_int_equal(BMI_open_context(&id[7]), -BMI_ENOMEM);
    assert_int_equal(A->contexts, 0xffff & ~(1u << 7));
    B->context_error = 0;
    assert_int_equal(BMI_open_context(&id[7]), 0);
    assert_int_equal(id[7], 7);
}

static void messages_in_two_contexts_of_two_methods(void **state)
{
    (void)state;
    bmi_context_id c0, c1;
    bmi_op_id_t send[2], recv[2], done[4];
    bmi_error_code_t error[4];
    bmi_size_t actual[4];
    void *user[4];
    char in[2][8] = {"", ""};
    int n;

    start_client(&c0);
    assert_int_equal(BMI_open_context(&c1), 0);
    BMI_addr_t addr[2] = {lookup("loopa://x"), lookup("loopb://x")};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(BMI_post_recv(&recv[i], addr[i], in[i], 8, NULL, BMI_EXT_ALLOC, 9, &in[i], c0, NULL), 0);
        assert_int_equal(BMI_post_send(&send[i], addr[i], i ? "two" : "one", 4, BMI_EXT_ALLOC, 9, NULL, c1, NULL), 0);
    }
    /* One at a time: each method comes to its turn. */
    assert_int_equal(BMI_testcontext(1, done, &n, error, actual, user, 0, c0), 1);
    assert_int_equal(n, 1);
    assert_int_equal(BMI_testcontext(1, done + 1, &n, error + 1, actual + 1, user + 1, 0, c0), 1);
    assert_int_equal(n, 1);
    assert_true((done[0] == recv[0] && done[1] == recv[1]) || (done[0] == recv[1] && done[1] == recv[0]));
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(user[i], done[i] == recv[0] ? in[0] : in[1]);
        assert_int_equal(error[i], 0);
        assert_int_equal(actual[i], 4);
    }
    assert_int_equal(BMI_testcontext(4, done, &n, error, actual, user, 0, c0), 0);
    assert_string_equal(in[0], "one");
    assert_string_equal(in[1], "two");
    /* Both at once, without an array for the user's pointers. */
    assert_int_equal(BMI_testcontext(4, done, &n, error, actual, NULL, 5, c1), 1);
    assert_int_equal(n, 2);
}

static void test_and_testsome(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t ids[6] = {0};
    int n, index[6];
    bmi_error_code_t error[6];
    bmi_size_t actual[6];
    void *user[6], *one;
    char in[3][4];

    start_client(&context);
    BMI_addr_t addr[2] = {lookup("loopa://x"), lookup("loopb://x")};
    /* ids: hole, recv a, garbage, recv b, pending recv a, hole */
    assert_int_equal(BMI_post_recv(&ids[1], addr[0], in[0], 4, NULL, BMI_EXT_ALLOC, 1, in[0], context, NULL), 0);
    assert_int_equal(BMI_post_recv(&ids[3], addr[1], in[1], 4, NULL, BMI_EXT_ALLOC, 1, in[1], context, NULL), 0);
    assert_int_equal(BMI_post_recv(&ids[4], addr[0], in[2], 4, NULL, BMI_EXT_ALLOC, 2, in[2], context, NULL), 0);
    ids[2] = 0x1234567;
    assert_int_equal(BMI_testsome(6, ids, &n, index, error, actual, user, 0, context), 0);
    assert_int_equal(n, 0);
    bmi_op_id_t send[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(BMI_post_send(&send[i], addr[i], "abc", 4, BMI_EXT_ALLOC, 1, in, context, NULL), 0);
    assert_int_equal(BMI_testsome(6, ids, &n, index, error, actual, user, 1, context), 1);
    assert_int_equal(n, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(index[i] == 1 || index[i] == 3);
        assert_ptr_equal(user[i], in[index[i] / 2]);
        assert_int_equal(error[i], 0);
    }
    assert_int_not_equal(index[0], index[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(BMI_test(send[i], &n, error, actual, &one, 1, context), 1);
        assert_int_equal(n, 1);
        assert_ptr_equal(one, in);
        /* Reported once. */
        assert_int_equal(BMI_test(send[i], &n, error, actual, NULL, 0, context), 0);
        assert_int_equal(n, 0);
    }
    assert_int_equal(BMI_test(0, &n, error, actual, NULL, 0, context), 0);
    assert_int_equal(BMI_test(-5, &n, error, actual, NULL, 0, context), 0);
    /* cancel: each operation once, whatever the id. */
    assert_int_equal(BMI_cancel(ids[4], context), 0);
    assert_int_equal(BMI_cancel(ids[4], context), 0);
    assert_int_equal(BMI_cancel(0x1234567, context), 0);
    assert_int_equal(A->cancels, 1);
    assert_int_equal(BMI_test(ids[4], &n, error, actual, NULL, 0, context), 1);
    assert_int_equal(error[0], -BMI_ECANCEL);
    assert_int_equal(BMI_cancel(ids[4], context), 0);
}

static void bad_arguments_of_tests_and_posts(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id = 4;
    int n = 9, index;
    bmi_error_code_t error;
    bmi_size_t actual, size = 4;
    const void *buffer = "abc";

    start_client(&context);
    BMI_addr_t addr = lookup("loopa://x");
    assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, -1, context), -BMI_EINVAL);
    assert_int_equal(n, 0);
    assert_int_equal(BMI_testcontext(-1, &id, &n, &error, &actual, NULL, 0, context), -BMI_EINVAL);
    assert_int_equal(BMI_testcontext(0, NULL, &n, NULL, NULL, NULL, 0, context), 0);
    assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 0, context + 1), -BMI_EINVAL);
    assert_int_equal(BMI_testcontext(1, &id, &n, NULL, &actual, NULL, 0, context), -BMI_EINVAL);
    assert_int_equal(BMI_testsome(1, &id, &n, NULL, &error, &actual, NULL, 0, context), -BMI_EINVAL);
    assert_int_equal(BMI_testsome(0, &id, &n, &index, &error, &actual, NULL, 0, context), 0);
    assert_int_equal(BMI_test(1, &n, &error, &actual, NULL, 0, 99), -BMI_EINVAL);
    assert_int_equal(BMI_testunexpected(-1, &n, NULL, 0), -BMI_EINVAL);
    assert_int_equal(BMI_testunexpected(1, &n, NULL, 0), -BMI_EINVAL);
    assert_int_equal(BMI_testunexpected(0, &n, NULL, 0), 0);

    assert_int_equal(BMI_post_send(NULL, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_post_send(&id, addr, NULL, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_post_send(&id, addr, buffer, -4, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_post_send(&id, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, -1, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_post_send(&id, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, 16, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_post_send_list(&id, addr, &buffer, &size, -1, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(BMI_post_send_list(&id, addr, NULL, &size, 1, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(BMI_post_recv_list(&id, addr, NULL, NULL, 0, -1, NULL, BMI_EXT_ALLOC, 0, NULL, context, NULL),
                     -BMI_EINVAL);
    /* What a method answers: complete at once, and an errno. */
    id = 4;
    assert_int_equal(BMI_post_sendunexpected(&id, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL), 1);
    assert_int_equal(id, 0);
    char big[101] = "";
    assert_int_equal(BMI_post_sendunexpected(&id, addr, big, 101, BMI_EXT_ALLOC, 0, NULL, context, NULL),
                     -BMI_EMSGSIZE);
}

static void list_messages(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id[2];
    char in[8] = "";
    void *to[2] = {in, in + 5};
    const void *from[3] = {"ab", "", "cdef"};
    const bmi_size_t to_size[2] = {5, 3}, from_size[3] = {2, 0, 5};
    bmi_error_code_t error[2];
    bmi_size_t actual[2];
    int n, index[2];

    start_client(&context);
    BMI_addr_t addr = lookup("loopb://x");
    assert_int_equal(BMI_post_recv_list(&id[0], addr, to, to_size, 2, 8, NULL, BMI_EXT_ALLOC, 3, NULL, context, NULL),
                     0);
    assert_int_equal(BMI_post_send_list(&id[1], addr, from, from_size, 3, 7, BMI_EXT_ALLOC, 3, NULL, context, NULL),
                     0);
    assert_int_equal(BMI_testsome(2, id, &n, index, error, actual, NULL, 0, context), 1);
    assert_int_equal(n, 2);
    assert_string_equal(in, "abcdef");
    assert_int_equal(actual[0], 7);
}

/* Three methods' worth of time is never spent: the shares add up to what the caller offers. */
static void idle_time_is_shared(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id;
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;
    struct BMI_unexpected_info info;

    start_server(0);
    assert_int_equal(BMI_open_context(&context), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 5, context), 0);
    assert_int_equal(A->slept + B->slept, 50);
    assert_int_equal(A->slept, 25); /* the odd millisecond goes to whose turn it is */
    for (int i = 0; i < 4; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 1), 0);
    assert_int_equal(A->slept + B->slept, 54);
    assert_int_equal(A->slept, 27);
    A->asked = B->asked = 0;
    for (int i = 0; i < 10; i++)
        assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 0, context), 0);
    assert_int_equal(A->asked, 10);
    assert_int_equal(B->asked, 10);
}

/* A method that always says "active" takes no call from the other. */
static void a_busy_method_starves_nobody(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id;
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;

    start_server(0);
    assert_int_equal(BMI_open_context(&context), 0);
    A->report_more = true;
    for (int i = 0; i < 100; i++)
        assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 0, context), 0);
    assert_int_equal(A->asked, 100);
    assert_int_equal(B->asked, 100);
}

static void one_failing_method_does_not_hide_the_other(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id[2], done[2];
    int n;
    bmi_error_code_t error[2];
    bmi_size_t actual[2];
    char in[4];

    start_server(0);
    assert_int_equal(BMI_open_context(&context), 0);
    BMI_addr_t addr = lookup("loopb://x");
    A->test_error = -EIO;
    assert_int_equal(BMI_testcontext(2, done, &n, error, actual, NULL, 0, context), -BMI_EIO);
    assert_int_equal(error_lines, 1);
    assert_int_equal(BMI_post_recv(&id[0], addr, in, 4, NULL, BMI_EXT_ALLOC, 1, NULL, context, NULL), 0);
    assert_int_equal(BMI_post_send(&id[1], addr, "abc", 4, BMI_EXT_ALLOC, 1, NULL, context, NULL), 0);
    assert_int_equal(BMI_testcontext(2, done, &n, error, actual, NULL, 0, context), 1);
    assert_int_equal(n, 2);
}

static void test_without_any_method(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id;
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;

    start_client(&context);
    assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 3, context), 0);
    assert_int_equal(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), 0);
}

static void unexpected_messages_and_references(void **state)
{
    (void)state;
    struct BMI_unexpected_info info[4];
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    bmi_method_addr_p peer = loop_new_peer(A, "first", true);
    loop_peer_sends(A, peer, 11, 20);
    loop_peer_sends(A, peer, 12, 0);
    loop_peer_sends(B, loop_new_peer(B, "second", true), 13, 5);
    assert_int_equal(BMI_testunexpected(4, &n, info, 0), 1);
    assert_int_equal(n, 3);
    BMI_addr_t from = 0;
    int of_peer = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(info[i].error_code, 0);
        if (info[i].tag == 13) {
            assert_int_equal(BMI_unexpected_free(info[i].addr, info[i].buffer), 0);
            continue;
        }
        assert_true(from == 0 || from == info[i].addr);
        from = info[i].addr;
        of_peer++;
        assert_int_equal(info[i].size, info[i].tag == 11 ? 20 : 0);
        assert_int_equal(BMI_unexpected_free(from, info[i].buffer), 0);
    }
    assert_int_equal(of_peer, 2);
    assert_null(BMI_addr_rev_lookup(from));
    assert_string_equal(BMI_addr_rev_lookup_unexpected(from), "first");
    assert_int_equal(BMI_query_addr_range(from, "loopa://first", 32), 1);
    assert_int_equal(BMI_query_addr_range(from, "loopb://first", 32), 0);
    assert_int_equal(BMI_query_addr_range(from, "no scheme", 32), -BMI_EINVAL);

    /* A living peer stays at zero references; a dead one goes. */
    assert_int_equal(BMI_set_info(from, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(A->queries, 0);
    assert_int_equal(BMI_set_info(from, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(A->queries, 1);
    assert_int_equal(A->drops, 0);
    assert_int_equal(BMI_set_info(from, BMI_DEC_ADDR_REF, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_set_info(from, BMI_INC_ADDR_REF, NULL), 0);
    loop_peer_dies(peer);
    assert_int_equal(BMI_set_info(from, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(A->drops, 1);
    assert_int_equal(BMI_set_info(from, BMI_INC_ADDR_REF, NULL), -BMI_EINVAL);
}

static void forgotten_peers_go_when_nobody_needs_them(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    bmi_method_addr_p peer = loop_new_peer(B, "only", true);
    loop_peer_sends(B, peer, 1, 1);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    loop_peer_dies(peer);
    /* It has a reference. */
    assert_int_equal(bmi_method_addr_forget_callback(info.addr), 0);
    assert_int_equal(bmi_method_addr_forget_callback(info.addr), 0);
    assert_int_equal(BMI_testunexpected(0, &n, NULL, 0), 0);
    assert_int_equal(B->queries, 0);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(B->drops, 1);
    assert_int_equal(bmi_method_addr_forget_callback(info.addr), -BMI_EINVAL);

    /* One that never had a reference goes at the next test. */
    peer = bmi_alloc_method_addr(B->method_id, 128);
    BMI_addr_t addr = bmi_method_addr_reg_callback(peer);
    assert_true(addr > 0);
    assert_int_not_equal(addr, info.addr);
    loop_peer_dies(peer);
    assert_int_equal(bmi_method_addr_forget_callback(addr), 0);
    assert_int_equal(bmi_method_addr_forget_callback(addr), 0);
    assert_int_equal(BMI_testunexpected(0, &n, NULL, 0), 0);
    assert_int_equal(B->queries, 2);
    assert_int_equal(B->drops, 2);
}

/* A message comes while the method is asked: its reference saves the address. */
static void another_message_comes(bmi_method_addr_p addr)
{
    struct BMI_unexpected_info info;
    int n;

    A->on_query = NULL;
    loop_peer_sends(A, addr, 2, 1);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
}

static void a_new_reference_saves_a_dying_address(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    bmi_method_addr_p peer = loop_new_peer(A, "late", true);
    loop_peer_dies(peer);
    loop_peer_sends(A, peer, 1, 1);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    A->on_query = another_message_comes;
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(A->drops, 0);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(A->drops, 1);
}

/* 10,000 peers come and go: slots are used again, numbers are not. */
static void addresses_of_dead_peers_are_used_up(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    BMI_addr_t last = 0;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    for (int i = 0; i < 10000; i++) {
        bmi_method_addr_p peer = loop_new_peer(A, "short-lived", true);
        loop_peer_sends(A, peer, 1, 1);
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
        assert_int_not_equal(info.addr, last);
        if (last)
            assert_int_equal(BMI_unexpected_free(last, NULL), -BMI_EINVAL);
        last = info.addr;
        assert_true((last & 0xffffffff) <= 64);
        loop_peer_dies(peer);
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    }
    assert_int_equal(A->drops, 10000);
}

/* A method that forgets to make a peer known loses that message, and nothing else. */
static void message_of_an_unknown_peer(void **state)
{
    (void)state;
    struct BMI_unexpected_info info[2];
    int n;

    start_server(0);
    bmi_method_addr_p peer = loop_new_peer(A, "unknown", false);
    loop_peer_sends(A, peer, 1, 1);
    loop_peer_sends(A, loop_new_peer(A, "known", true), 2, 1);
    assert_int_equal(BMI_testunexpected(2, &n, info, 0), 1);
    assert_int_equal(n, 1);
    assert_int_equal(info[0].tag, 2);
    assert_int_equal(A->freed, 1);
    assert_int_equal(error_lines, 1);
    assert_int_equal(BMI_unexpected_free(info[0].addr, info[0].buffer), 0);
    bmi_dealloc_method_addr(peer);
}

static void many_unexpected_at_once(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct BMI_unexpected_info info[COUNT];
    int n, total = 0;

    start_server(0);
    bmi_method_addr_p peer = loop_new_peer(A, "eager", true);
    for (int i = 0; i < COUNT; i++)
        loop_peer_sends(A, peer, i, 1);
    while (BMI_testunexpected(COUNT - total, &n, info, 0) == 1) {
        for (int i = 0; i < n; i++) {
            assert_int_equal(info[i].tag, total + i);
            assert_int_equal(BMI_unexpected_free(info[i].addr, info[i].buffer), 0);
        }
        total += n;
    }
    assert_int_equal(total, COUNT);
}

static void options_and_memory(void **state)
{
    (void)state;
    int value = 0;
    char *methods;
    bmi_context_id context;

    start_client(&context);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_MAXSIZE, &value), -BMI_ENETDOWN);
    BMI_addr_t a = lookup("loopa://x");
    assert_int_equal(BMI_get_info(0, BMI_CHECK_MAXSIZE, &value), 0);
    assert_int_equal(value, 1000);
    lookup("loopb://x");
    assert_int_equal(BMI_get_info(0, BMI_CHECK_MAXSIZE, &value), 0);
    assert_int_equal(value, 500);
    assert_int_equal(BMI_get_info(a, BMI_GET_UNEXP_SIZE, &value), 0);
    assert_int_equal(value, 100);
    assert_int_equal(BMI_get_info(a, 99, &value), -BMI_ENOSYS);
    assert_int_equal(BMI_get_info(0, BMI_TRANSPORT_METHODS_STRING, &methods), 2);
    assert_string_equal(methods, "loopa,loopb,");
    free(methods);

    /* All methods hear an option, also when the first refuses. */
    A->set_info_error = -EINVAL;
    assert_int_equal(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_set_info(a, BMI_OPTIMISTIC_BUFFER_REG, NULL), -BMI_EINVAL);
    A->set_info_error = 0;
    assert_int_equal(BMI_set_info(a, BMI_OPTIMISTIC_BUFFER_REG, NULL), 0);
    assert_int_equal(BMI_set_info(a, BMI_DROP_ADDR, NULL), -BMI_EINVAL);

    char *memory = BMI_memalloc(a, 100, BMI_RECV);
    assert_non_null(memory);
    for (int i = 0; i < 100; i++)
        assert_int_equal(memory[i], 0);
    assert_int_equal(BMI_memfree(a, memory, 50, BMI_RECV), 0);
    assert_null(BMI_memalloc(a, -1, BMI_RECV));
}

static void error_codes(void **state)
{
    (void)state;
    assert_int_equal(BMI_EPERM, 1 | 1 << 30 | 1 << 7);
    assert_int_equal(BMI_ECONNRESET, 59 | 1 << 30 | 1 << 7);
    assert_int_equal(BMI_ECANCEL, 1 | 1 << 29 | 1 << 30 | 1 << 7);
    assert_int_equal(BMI_ETRYAGAIN, 7 | 1 << 29 | 1 << 30 | 1 << 7);
    assert_int_equal(bmi_errno_to_pvfs(-ENOMEM), -BMI_ENOMEM);
    assert_int_equal(bmi_errno_to_pvfs(ENOMEM), BMI_ENOMEM);
    assert_int_equal(bmi_errno_to_pvfs(-EAGAIN), -BMI_EAGAIN);
    assert_int_equal(bmi_errno_to_pvfs(-EDEADLK), -BMI_EDEADLK);
    assert_int_equal(bmi_errno_to_pvfs(-BMI_EMSGSIZE), -BMI_EMSGSIZE);
    assert_int_equal(bmi_errno_to_pvfs(0), 0);
    assert_int_equal(bmi_errno_to_pvfs(1), BMI_EPERM);
    assert_int_equal(bmi_errno_to_pvfs(12345), 12345);
    assert_int_equal(bmi_errno_to_pvfs(INT32_MIN), INT32_MIN);
    assert_string_equal(bmi_status_string(0), "BMI_SUCCESS");
    assert_string_equal(bmi_status_string(-BMI_ECANCEL), "BMI_ECANCEL");
    assert_string_equal(bmi_status_string(BMI_EHOSTUNREACH), "BMI_EHOSTUNREACH");
    assert_string_equal(bmi_status_string(-ENOMEM), "(UNKNOWN)");
    assert_int_equal(bmi_error_to_errno(-BMI_ETIMEDOUT), ETIMEDOUT);
    assert_int_equal(bmi_error_to_errno(-BMI_ECANCEL), ECANCELED);
    assert_int_equal(bmi_error_to_errno(-BMI_EDEVINIT), EIO);
    assert_int_equal(bmi_error_to_errno(0), 0);
}

static void log_lines(void **state)
{
    (void)state;
    int on;
    uint64_t mask;
    char big[3000];

    gossip_err("one %d\n", 1);
    assert_string_equal(last_error, "one 1");
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    gossip_err("%s\n", big);
    assert_int_equal(strlen(last_error), 1023);
    gossip_debug(1, "not seen");
    gossip_set_debug_mask(1, 6);
    assert_int_equal(gossip_get_debug_mask(&on, &mask), 0);
    assert_int_equal(on, 1);
    assert_int_equal(mask, 6);
    gossip_set_debug_mask(0, 0);
    assert_int_equal(error_lines, 2);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(calls_outside_initialize_fail),
        TEST(bad_arguments_of_initialize),
        TEST(initialize_failure_undoes_itself),
        TEST(nested_initialize),
        TEST(initialize_finalize_initialize),
        TEST(lookup_activates_by_scheme),
        TEST(lookup_falls_back_to_the_next_scheme),
        TEST(many_addresses),
        TEST(wrong_address_numbers),
        TEST(two_names_of_one_method_address),
        TEST(a_shared_address_loses_one_name),
        TEST(two_lookups_of_one_name_at_once),
        TEST(contexts),
        TEST(messages_in_two_contexts_of_two_methods),
        TEST(test_and_testsome),
        TEST(bad_arguments_of_tests_and_posts),
        TEST(list_messages),
        TEST(idle_time_is_shared),
        TEST(a_busy_method_starves_nobody),
        TEST(one_failing_method_does_not_hide_the_other),
        TEST(test_without_any_method),
        TEST(unexpected_messages_and_references),
        TEST(forgotten_peers_go_when_nobody_needs_them),
        TEST(a_new_reference_saves_a_dying_address),
        TEST(addresses_of_dead_peers_are_used_up),
        TEST(message_of_an_unknown_peer),
        TEST(many_unexpected_at_once),
        TEST(options_and_memory),
        TEST(error_codes),
        TEST(log_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
