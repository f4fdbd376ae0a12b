/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The BMI core with two methods, the shim over an engine inside the process and another one:
 * start and stop, addresses, contexts, options, polling; error codes, log lines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gossip.h"
#include "patches/orangefs/shim/shim-engine.h"
#include "shim_rig.h"

static BMI_addr_t lookup(const char *text)
{
    BMI_addr_t addr;
    assert_int_equal(BMI_addr_lookup(&addr, text, NULL), 0);
    assert_true(addr > 0);
    return addr;
}

static void start_both(int flags)
{
    assert_int_equal(BMI_initialize("bmi_fake,bmi_other", "fake://me:1,other://me",
                                    BMI_INIT_SERVER | flags, "depth=3"),
                     0);
}

static void calls_outside_initialize_fail(void **state)
{
    (void)state;
    BMI_addr_t addr = 5;
    bmi_op_id_t id = 7;
    int n = 3, size = 0;
    bmi_error_code_t error;
    bmi_size_t actual;
    struct BMI_unexpected_info info;

    assert_int_equal(BMI_addr_lookup(&addr, "fake://x:1", NULL), -BMI_ENETDOWN);
    assert_int_equal(addr, 0);
    assert_int_equal(BMI_open_context(&context), -BMI_ENETDOWN);
    assert_int_equal(BMI_post_send(&id, 1, "x", 1, BMI_EXT_ALLOC, 0, NULL, 0, NULL),
                     -BMI_ENETDOWN);
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

static void bad_arguments_of_initialize_refused(void **state)
{
    static const struct {
        const char *methods, *listen;
        int flags, error;
    } row[] = {
        {NULL, "fake://me:1", BMI_INIT_SERVER, -BMI_EINVAL},
        {"bmi_fake", NULL, BMI_INIT_SERVER, -BMI_EINVAL},
        {"bmi_fake", "fake://me:1", 0, -BMI_EINVAL},
        {" , ", "fake://me:1", BMI_INIT_SERVER, -BMI_EINVAL},
        {"bmi_nothing", "nothing://me", BMI_INIT_SERVER, -BMI_ENOPROTOOPT},
        {"bmi_fake", "other://me", BMI_INIT_SERVER, -BMI_EINVAL},
    };
    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(BMI_initialize(row[i].methods, row[i].listen, row[i].flags, NULL),
                         row[i].error);
        assert_int_equal(lines.errors, i + 1);
    }
    assert_int_equal(fake.engines, 0);
}

/* The second method fails to start: the first is stopped again, and nothing is left. */
static void failed_start_undoes_itself(void **state)
{
    (void)state;
    other.initialize_error = -ENODEV;
    assert_int_equal(
        BMI_initialize("bmi_fake,bmi_other", "fake://me:1,other://me", BMI_INIT_SERVER, NULL),
        -BMI_ENODEV);
    assert_string_equal(fake.listening, "fake://me:1");
    assert_int_equal(fake.engines, 0);
    assert_int_equal(fake.addrs, 0);
    assert_int_equal(other.finalized, 0);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_INIT, NULL), -BMI_ENETDOWN);
    other.initialize_error = 0;
    start_both(0);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_INIT, NULL), 0);
    assert_string_equal(other.options, "depth=3");
    assert_string_equal(other.listening, "other://me");
    assert_int_equal(other.flags, BMI_INIT_SERVER | SHIM_LOG_NOTICES);
}

/* A method started by a lookup gets the options of BMI_initialize unless the lookup has
 * some. */
static void options_wait_for_their_method(void **state)
{
    (void)state;
    char all[] = "rndv=v", one[] = "depth=3";
    BMI_addr_t addr;

    assert_int_equal(BMI_initialize(NULL, NULL, 0, all), 0);
    assert_int_equal(BMI_initialize(NULL, NULL, 0, one), 0); /* does nothing */
    memset(all, 'x', 4);
    lookup("fake://x:1");
    assert_string_equal(fake.options, "rndv=v");
    assert_int_equal(BMI_addr_lookup(&addr, "other://x", one), 0);
    assert_string_equal(other.options, "depth=3");
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(BMI_finalize(), 0);

    other.initialize_error = -ENODEV;
    assert_int_equal(BMI_initialize("bmi_other", NULL, 0, one), -BMI_ENODEV);
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    lookup("fake://x:1");
    assert_string_equal(fake.options, "(none)");
}

/* An option is unknown only if no method can have it. */
static void option_that_no_method_has_is_told(void **state)
{
    (void)state;
    char both[] = "depth=3,loud=1", wrong[] = "depth=3, louder=1,quiet=1";
    BMI_addr_t addr;

    assert_int_equal(BMI_initialize(NULL, NULL, 0, wrong), 0);
    assert_int_equal(lines.errors, 0); /* the other one does not list its options */
    assert_int_equal(BMI_finalize(), 0);
    other.knows = "loud";
    assert_int_equal(BMI_initialize(NULL, NULL, 0, both), 0);
    assert_int_equal(lines.errors, 0);
    assert_int_equal(BMI_addr_lookup(&addr, "fake://x:1,other://x", wrong), 0);
    assert_int_equal(lines.errors, 1);
    assert_non_null(strstr(lines.last_error, "unknown option \"louder\" ignored"));
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(BMI_initialize("bmi_fake,bmi_other", NULL, 0, wrong), 0);
    assert_int_equal(lines.errors, 2);
}

/* A lookup starts the method of its scheme, and the next one if that has no device. */
static void lookup_starts_method_of_scheme(void **state)
{
    static const char *const none[] = {"tcp://x:1", "fakeother://x:1", ""};
    (void)state;
    char options[] = "depth=3", too_long[BMI_MAX_ADDR_LEN + 8];
    BMI_addr_t addr;
    void *method_addr;

    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_open_context(&context), 0);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_INIT, NULL), -BMI_ENETDOWN);
    for (int i = 0; i < 3; i++)
        assert_int_equal(BMI_addr_lookup(&addr, none[i], NULL), -BMI_ENOPROTOOPT);
    assert_int_equal(fake.engines + other.initialized, 0);
    fake.open_error = -ENODEV;
    assert_int_equal(BMI_addr_lookup(&addr, "fake://x:1", NULL), -BMI_ENODEV);
    assert_int_equal(BMI_addr_lookup(&addr, "fake://x:1,other://x", options), 0);
    assert_int_equal(BMI_get_info(addr, BMI_GET_METH_ADDR, &method_addr), 0);
    assert_int_equal(((bmi_method_addr_p)method_addr)->method_type, 0);
    assert_string_equal(other.options, "depth=3");
    assert_int_equal(other.contexts, 1u << context);
    fake.open_error = 0;
    lookup("fake://x:1");

    assert_int_equal(lookup("fake://x:1,other://x"), addr);
    assert_string_equal(BMI_addr_rev_lookup(addr), "fake://x:1,other://x");
    assert_int_not_equal(lookup("other://x:2"), addr);
    assert_int_equal(other.initialized, 1);
    memset(too_long, 'x', sizeof(too_long));
    memcpy(too_long, "other://", 8);
    too_long[sizeof(too_long) - 1] = '\0';
    assert_int_equal(BMI_addr_lookup(&addr, too_long, NULL), -BMI_ENAMETOOLONG);
    assert_int_equal(BMI_addr_lookup(&addr, NULL, NULL), -BMI_EINVAL);
}

static void wrong_address_numbers_refused(void **state)
{
    (void)state;
    bmi_op_id_t id;
    int value;

    start_client();
    BMI_addr_t addr = peer;
    const BMI_addr_t wrong[] = {0,
                                -1,
                                1,
                                addr + 1,
                                addr - 1,
                                addr + (INT64_C(1) << 32),
                                addr | INT64_MIN,
                                INT64_MAX,
                                INT64_MIN,
                                (addr & ~INT64_C(0xffffffff)) | 0xffffffff};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(
            BMI_post_send(&id, wrong[i], "x", 1, BMI_EXT_ALLOC, 0, NULL, context, NULL),
            -BMI_EPROTO);
        assert_int_equal(BMI_get_info(wrong[i], BMI_GET_UNEXP_SIZE, &value), -BMI_EINVAL);
        assert_null(BMI_memalloc(wrong[i], 8, BMI_SEND));
        assert_null(BMI_addr_rev_lookup(wrong[i]));
        if (wrong[i] != 0)
            assert_int_equal(BMI_set_info(wrong[i], BMI_INC_ADDR_REF, NULL), -BMI_EINVAL);
    }
}

/* Two names of one peer share the method's object. When one is dropped, messages of that peer
 * use the other. */
static void shared_address_loses_one_name(void **state)
{
    (void)state;
    void *first, *second;
    struct BMI_unexpected_info info;
    bmi_op_id_t id;
    int n;

    start_server(0);
    BMI_addr_t a = lookup("fake://h:1/a"), b = lookup("fake://h:1/b");
    assert_int_not_equal(a, b);
    assert_int_equal(BMI_get_info(a, BMI_GET_METH_ADDR, &first), 0);
    assert_int_equal(BMI_get_info(b, BMI_GET_METH_ADDR, &second), 0);
    assert_ptr_equal(first, second);
    assert_int_equal(BMI_post_send(&id, a, "x", 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), 0);
    fake_peer_dies(fake.last_addr);
    assert_int_equal(BMI_set_info(b, BMI_INC_ADDR_REF, NULL), 0);
    assert_int_equal(BMI_set_info(b, BMI_DEC_ADDR_REF, NULL), 0);
    assert_null(BMI_addr_rev_lookup(b));
    fake_peer_sends(fake.last_addr, 1, 1);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    assert_int_equal(info.addr, a);
    assert_int_equal(BMI_unexpected_free(a, info.buffer), 0);
    BMI_addr_t again = lookup("fake://h:1/b");
    assert_true(again != a && again != b);
}

static void context_ids_are_bounded(void **state)
{
    (void)state;
    bmi_context_id id[BMI_MAX_CONTEXTS + 1];

    start_both(0);
    for (int i = 0; i < BMI_MAX_CONTEXTS; i++) {
        assert_int_equal(BMI_open_context(&id[i]), 0);
        assert_int_equal(id[i], i);
    }
    assert_int_equal(BMI_open_context(&id[BMI_MAX_CONTEXTS]), -BMI_EBUSY);
    assert_int_equal(fake.contexts, 0xffff);
    BMI_close_context(7);
    BMI_close_context(7);
    BMI_close_context(-1);
    BMI_close_context(BMI_MAX_CONTEXTS);
    assert_int_equal(other.contexts, 0xffff & ~(1u << 7));
    /* If the second method refuses, the first closes it again. */
    other.context_error = -ENOMEM;
    assert_int_equal(BMI_open_context(&id[7]), -BMI_ENOMEM);
    assert_int_equal(fake.contexts, 0xffff & ~(1u << 7));
    other.context_error = 0;
    assert_int_equal(BMI_open_context(&id[7]), 0);
    assert_int_equal(id[7], 7);
}

/* Information about all methods, and options that go to all. */
static void information_of_all_methods(void **state)
{
    (void)state;
    int value = 0;
    char *methods;

    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_MAXSIZE, &value), -BMI_ENETDOWN);
    BMI_addr_t a = lookup("other://x");
    lookup("fake://x:1");
    assert_int_equal(BMI_get_info(0, BMI_CHECK_MAXSIZE, &value), 0);
    assert_int_equal(value, 500); /* the smallest */
    assert_int_equal(BMI_get_info(a, 99, &value), -BMI_ENOSYS);
    assert_int_equal(BMI_get_info(0, BMI_TRANSPORT_METHODS_STRING, &methods), 2);
    assert_string_equal(methods, "fake,other,");
    free(methods);
    /* The port is the first listening method's. */
    assert_int_equal(BMI_get_info(0, BMI_TCP_GET_PORT, &value), -BMI_ENODEV);
    fake.listen_port = 9;
    assert_int_equal(BMI_get_info(0, BMI_TCP_GET_PORT, &value), 0);
    assert_int_equal(value, 9);
    other.port = 8;
    assert_int_equal(BMI_get_info(a, BMI_TCP_GET_PORT, &value), 0);
    assert_int_equal(value, 8);
    /* All methods get an option, even if the first refuses. */
    other.set_info_error = -EINVAL;
    assert_int_equal(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), -BMI_EINVAL);
    assert_int_equal(fake.forceful, 1);
    assert_int_equal(BMI_set_info(a, BMI_DROP_ADDR, NULL), -BMI_EINVAL);
    assert_null(BMI_memalloc(a, -1, BMI_RECV));
}

static void bad_arguments_of_calls_refused(void **state)
{
    (void)state;
    bmi_op_id_t id = 4;
    int n = 9, index;
    bmi_error_code_t error;
    bmi_size_t actual, size = 4;
    const void *buffer = "abc";

    start_client();
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

#define REFUSED(call)                                                                          \
    do {                                                                                       \
        id = 4;                                                                                \
        assert_int_equal(call, -BMI_EINVAL);                                                   \
        assert_int_equal(id, 0);                                                               \
    } while (0)
    REFUSED(BMI_post_send(&id, peer, NULL, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL));
    REFUSED(BMI_post_send(&id, peer, buffer, -4, BMI_EXT_ALLOC, 0, NULL, context, NULL));
    REFUSED(BMI_post_send(&id, peer, buffer, 4, BMI_EXT_ALLOC, 0, NULL, -1, NULL));
    REFUSED(BMI_post_send(&id, peer, buffer, 4, BMI_EXT_ALLOC, 0, NULL, 16, NULL));
    REFUSED(BMI_post_send_list(&id, peer, &buffer, &size, -1, 4, BMI_EXT_ALLOC, 0, NULL,
                               context, NULL));
    REFUSED(BMI_post_send_list(&id, peer, NULL, &size, 1, 4, BMI_EXT_ALLOC, 0, NULL, context,
                               NULL));
    REFUSED(BMI_post_recv_list(&id, peer, NULL, NULL, 0, -1, NULL, BMI_EXT_ALLOC, 0, NULL,
                               context, NULL));
    assert_int_equal(
        BMI_post_send(NULL, peer, buffer, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
        -BMI_EINVAL);
}

/* Opens a server of both methods, and an address of each. */
static void start_both_with_addresses(BMI_addr_t addr[2])
{
    start_both(0);
    assert_int_equal(BMI_open_context(&context), 0);
    addr[0] = peer = lookup("fake://x:1");
    addr[1] = lookup("other://x");
}

/* Each method gets its turn, and its results their place in the caller's arrays. */
static void results_of_two_methods(void **state)
{
    (void)state;
    BMI_addr_t addr[2];
    bmi_op_id_t ids[5] = {0}, done[4], sent;
    int n, index[5], of_other = 0;
    bmi_error_code_t error[5];
    bmi_size_t actual[5];
    void *user[5];

    start_both_with_addresses(addr);
    for (int i = 0; i < 4; i++) { /* one at a time */
        if (i % 2) {
            assert_int_equal(
                BMI_post_send(&sent, addr[1], "x", 1, BMI_EXT_ALLOC, 0, NULL, context, NULL),
                0);
        } else {
            post_recv(1, &fake);
            fake_complete(fake.last_id, 0, 1);
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(BMI_testcontext(1, done, &n, error, actual, user, 0, context), 1);
        assert_int_equal(n, 1);
        of_other += user[0] == &other;
        assert_int_equal(of_other, (i + 1) / 2 + (i % 2 == 0 && user[0] == &other));
    }
    /* hole, of ours, wrong id, of the other one, of ours and pending */
    ids[1] = post_recv(1, &ids[1]);
    fake_complete(fake.last_id, 0, 1);
    ids[2] = 0x1234567;
    assert_int_equal(
        BMI_post_send(&ids[3], addr[1], "x", 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), 0);
    ids[4] = post_recv(1, NULL);
    assert_int_equal(BMI_testsome(5, ids, &n, index, error, actual, user, 0, context), 1);
    assert_int_equal(n, 2);
    assert_int_equal(index[0] + index[1], 1 + 3);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(user[i], index[i] == 1 ? (void *)&ids[1] : (void *)&other);
    other.results = 1;
    assert_int_equal(BMI_testcontext(4, done, &n, error, actual, NULL, 0, context), 1);
}

static int test_nothing(int idle_ms)
{
    bmi_op_id_t id;
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;

    return BMI_testcontext(1, &id, &n, &error, &actual, NULL, idle_ms, context);
}

/* The methods' shares of idle time add up to the caller's timeout; both are polled in each
 * call, also if one is always "active". */
static void idle_time_is_shared(void **state)
{
    (void)state;
    BMI_addr_t addr[2];

    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_open_context(&context), 0);
    assert_int_equal(test_nothing(3), 0); /* without a method */
    assert_int_equal(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), 0);
    assert_int_equal(BMI_finalize(), 0);

    start_both_with_addresses(addr);
    for (int i = 0; i < 10; i++)
        assert_int_equal(test_nothing(5), 0);
    assert_int_equal(fake.waited_ms + other.idle_ms, 50);
    assert_int_equal(other.idle_ms, 25); /* the remaining millisecond is in turn */
    for (other.asked = 0; other.asked < 10;) {
        other.active = other.asked > 5;
        assert_int_equal(test_nothing(0), 0);
    }
    post_recv(1, NULL);
    fake_complete(fake.last_id, 0, 1);
    assert_int_equal(test_nothing(0), 1);
}

/* A method that returns early without a result for this call ends the call; the other one does
 * not sleep long meanwhile. */
static void early_return_of_method_ends_call(void **state)
{
    (void)state;
    BMI_addr_t addr[2];

    start_both_with_addresses(addr);
    for (int i = 0; i < 4; i++) /* the engine inside the process sleeps a millisecond at most */
        assert_int_equal(test_nothing(400), 0);
    assert_true(other.idle_ms <= 4 * 16);
}

static void failing_method_does_not_hide_other(void **state)
{
    (void)state;
    BMI_addr_t addr[2];

    start_both_with_addresses(addr);
    other.test_error = -EIO;
    assert_int_equal(test_nothing(0), -BMI_EIO);
    assert_int_equal(lines.errors, 1);
    post_recv(1, NULL);
    fake_complete(fake.last_id, 0, 1);
    assert_int_equal(test_nothing(0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls_outside_initialize_fail),
        TEST(bad_arguments_of_initialize_refused),
        TEST(failed_start_undoes_itself),
        TEST(options_wait_for_their_method),
        TEST(option_that_no_method_has_is_told),
        TEST(lookup_starts_method_of_scheme),
        TEST(wrong_address_numbers_refused),
        TEST(shared_address_loses_one_name),
        TEST(context_ids_are_bounded),
        TEST(information_of_all_methods),
        TEST(bad_arguments_of_calls_refused),
        TEST(results_of_two_methods),
        TEST(idle_time_is_shared),
        TEST(early_return_of_method_ends_call),
        TEST(failing_method_does_not_hide_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
