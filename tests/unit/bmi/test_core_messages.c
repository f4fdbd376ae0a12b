/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The BMI core: expected and unexpected messages, and their peers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bmi-method-callback.h"
#include "core_rig.h"

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
        assert_int_equal(BMI_post_recv(&recv[i], addr[i], in[i], 8, NULL, BMI_EXT_ALLOC, 9,
                                       &in[i], c0, NULL),
                         0);
        assert_int_equal(BMI_post_send(&send[i], addr[i], i ? "two" : "one", 4, BMI_EXT_ALLOC,
                                       9, NULL, c1, NULL),
                         0);
    }
    /* One at a time: each method gets its turn. */
    assert_int_equal(BMI_testcontext(1, done, &n, error, actual, user, 0, c0), 1);
    assert_int_equal(n, 1);
    assert_int_equal(BMI_testcontext(1, done + 1, &n, error + 1, actual + 1, user + 1, 0, c0),
                     1);
    assert_int_equal(n, 1);
    assert_true((done[0] == recv[0] && done[1] == recv[1]) ||
                (done[0] == recv[1] && done[1] == recv[0]));
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(user[i], done[i] == recv[0] ? in[0] : in[1]);
        assert_int_equal(error[i], 0);
        assert_int_equal(actual[i], 4);
    }
    assert_int_equal(BMI_testcontext(4, done, &n, error, actual, user, 0, c0), 0);
    assert_string_equal(in[0], "one");
    assert_string_equal(in[1], "two");
    /* Both at once, without an array of user pointers. */
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
    assert_int_equal(
        BMI_post_recv(&ids[1], addr[0], in[0], 4, NULL, BMI_EXT_ALLOC, 1, in[0], context, NULL),
        0);
    assert_int_equal(
        BMI_post_recv(&ids[3], addr[1], in[1], 4, NULL, BMI_EXT_ALLOC, 1, in[1], context, NULL),
        0);
    assert_int_equal(
        BMI_post_recv(&ids[4], addr[0], in[2], 4, NULL, BMI_EXT_ALLOC, 2, in[2], context, NULL),
        0);
    ids[2] = 0x1234567;
    assert_int_equal(BMI_testsome(6, ids, &n, index, error, actual, user, 0, context), 0);
    assert_int_equal(n, 0);
    bmi_op_id_t send[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            BMI_post_send(&send[i], addr[i], "abc", 4, BMI_EXT_ALLOC, 1, in, context, NULL), 0);
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
    /* cancel: each operation once, for any id. */
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
    assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, -1, context),
                     -BMI_EINVAL);
    assert_int_equal(n, 0);
    assert_int_equal(BMI_testcontext(-1, &id, &n, &error, &actual, NULL, 0, context),
                     -BMI_EINVAL);
    assert_int_equal(BMI_testcontext(0, NULL, &n, NULL, NULL, NULL, 0, context), 0);
    assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 0, context + 1),
                     -BMI_EINVAL);
    assert_int_equal(BMI_testcontext(1, &id, &n, NULL, &actual, NULL, 0, context), -BMI_EINVAL);
    assert_int_equal(BMI_testsome(1, &id, &n, NULL, &error, &actual, NULL, 0, context),
                     -BMI_EINVAL);
    assert_int_equal(BMI_testsome(0, &id, &n, &index, &error, &actual, NULL, 0, context), 0);
    assert_int_equal(BMI_test(1, &n, &error, &actual, NULL, 0, 99), -BMI_EINVAL);
    assert_int_equal(BMI_testunexpected(-1, &n, NULL, 0), -BMI_EINVAL);
    assert_int_equal(BMI_testunexpected(1, &n, NULL, 0), -BMI_EINVAL);
    assert_int_equal(BMI_testunexpected(0, &n, NULL, 0), 0);

    assert_int_equal(
        BMI_post_send(NULL, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
        -BMI_EINVAL);
    id = 4;
    assert_int_equal(BMI_post_send(&id, addr, NULL, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(id, 0);
    id = 4;
    assert_int_equal(
        BMI_post_send(&id, addr, buffer, -4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
        -BMI_EINVAL);
    assert_int_equal(id, 0);
    id = 4;
    assert_int_equal(BMI_post_send(&id, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, -1, NULL),
                     -BMI_EINVAL);
    assert_int_equal(id, 0);
    id = 4;
    assert_int_equal(BMI_post_send(&id, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, 16, NULL),
                     -BMI_EINVAL);
    assert_int_equal(id, 0);
    id = 4;
    assert_int_equal(BMI_post_send_list(&id, addr, &buffer, &size, -1, 4, BMI_EXT_ALLOC, 0,
                                        NULL, context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(id, 0);
    id = 4;
    assert_int_equal(
        BMI_post_send_list(&id, addr, NULL, &size, 1, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
        -BMI_EINVAL);
    assert_int_equal(id, 0);
    id = 4;
    assert_int_equal(BMI_post_recv_list(&id, addr, NULL, NULL, 0, -1, NULL, BMI_EXT_ALLOC, 0,
                                        NULL, context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(id, 0);
    /* Results of a method: complete at once, and an errno. */
    id = 4;
    assert_int_equal(
        BMI_post_sendunexpected(&id, addr, buffer, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
        1);
    assert_int_equal(id, 0);
    char big[101] = "";
    assert_int_equal(
        BMI_post_sendunexpected(&id, addr, big, 101, BMI_EXT_ALLOC, 0, NULL, context, NULL),
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
    assert_int_equal(BMI_post_recv_list(&id[0], addr, to, to_size, 2, 8, NULL, BMI_EXT_ALLOC, 3,
                                        NULL, context, NULL),
                     0);
    assert_int_equal(BMI_post_send_list(&id[1], addr, from, from_size, 3, 7, BMI_EXT_ALLOC, 3,
                                        NULL, context, NULL),
                     0);
    assert_int_equal(BMI_testsome(2, id, &n, index, error, actual, NULL, 0, context), 1);
    assert_int_equal(n, 2);
    assert_string_equal(in, "abcdef");
    assert_int_equal(actual[0], 7);
}

/* The methods' shares of idle time add up to the caller's timeout. */
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
    assert_int_equal(A->slept, 25); /* the remaining millisecond is the next one's in turn */
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

/* A method that returns early without a result for this call ends the call; the other one does
 * not sleep long meanwhile. */
static void early_return_of_method_ends_call(void **state)
{
    (void)state;
    bmi_context_id context;
    bmi_op_id_t id;
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;

    start_server(0);
    assert_int_equal(BMI_open_context(&context), 0);
    A->called_away = true;
    for (int i = 0; i < 4; i++)
        assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 400, context), 0);
    A->called_away = false;
    assert_int_equal(A->slept, 0);
    assert_true(B->slept <= 4 * 16);
    /* when both sleep, they are polled repeatedly */
    A->asked = B->asked = 0;
    assert_int_equal(BMI_testcontext(1, &id, &n, &error, &actual, NULL, 100, context), 0);
    assert_true(A->asked >= 8 && B->asked >= 8);
}

/* A method that always returns "active" takes no call from the other. */
static void busy_method_does_not_starve_other(void **state)
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

static void failing_method_does_not_hide_other(void **state)
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
    assert_int_equal(lines.errors, 1);
    assert_int_equal(
        BMI_post_recv(&id[0], addr, in, 4, NULL, BMI_EXT_ALLOC, 1, NULL, context, NULL), 0);
    assert_int_equal(
        BMI_post_send(&id[1], addr, "abc", 4, BMI_EXT_ALLOC, 1, NULL, context, NULL), 0);
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

    /* Without references a live peer stays, and a dead one is dropped. */
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
    /* The peer has a reference. */
    assert_int_equal(bmi_method_addr_forget_callback(info.addr), 0);
    assert_int_equal(bmi_method_addr_forget_callback(info.addr), 0);
    assert_int_equal(BMI_testunexpected(0, &n, NULL, 0), 0);
    assert_int_equal(B->queries, 0);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(B->drops, 1);
    assert_int_equal(bmi_method_addr_forget_callback(info.addr), -BMI_EINVAL);

    /* A peer that never had a reference is dropped at the next test. */
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

/* A message arrives during the query: its reference keeps the address. */
static void another_message_comes(bmi_method_addr_p addr)
{
    struct BMI_unexpected_info info;
    int n;

    A->on_query = NULL;
    loop_peer_sends(A, addr, 2, 1);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
}

static void new_reference_keeps_dying_address(void **state)
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

/* 10,000 peers come and go: slots are reused, numbers are not. */
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

/* A method that does not register a peer loses only that message. */
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
    assert_int_equal(lines.errors, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_in_two_contexts_of_two_methods),
        TEST(test_and_testsome),
        TEST(bad_arguments_of_tests_and_posts),
        TEST(list_messages),
        TEST(idle_time_is_shared),
        TEST(early_return_of_method_ends_call),
        TEST(busy_method_does_not_starve_other),
        TEST(failing_method_does_not_hide_other),
        TEST(test_without_any_method),
        TEST(unexpected_messages_and_references),
        TEST(forgotten_peers_go_when_nobody_needs_them),
        TEST(new_reference_keeps_dying_address),
        TEST(addresses_of_dead_peers_are_used_up),
        TEST(message_of_an_unknown_peer),
        TEST(many_unexpected_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
