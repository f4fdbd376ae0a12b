/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The BMI core: start and stop, addresses, contexts, options, error codes, log lines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "core_rig.h"
#include "gossip.h"
#include "patches/orangefs/shim/shim-engine.h"

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

static void bad_arguments_of_initialize(void **state)
{
    (void)state;
    assert_int_equal(BMI_initialize(NULL, "loopa://me", BMI_INIT_SERVER, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize("bmi_loopa", NULL, BMI_INIT_SERVER, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize("bmi_loopa", "loopa://me", 0, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize(" , ", "loopa://me", BMI_INIT_SERVER, NULL), -BMI_EINVAL);
    assert_int_equal(BMI_initialize("bmi_nothing", "nothing://me", BMI_INIT_SERVER, NULL),
                     -BMI_ENOPROTOOPT);
    assert_int_equal(BMI_initialize("bmi_loopa", "loopb://me", BMI_INIT_SERVER, NULL),
                     -BMI_EINVAL);
    assert_int_equal(lines.errors, 6);
    assert_int_equal(A->initialized, 0);
}

/* The second method fails to start after the first one: the first is stopped again, and nothing
 * is left. */
static void initialize_failure_undoes_itself(void **state)
{
    (void)state;
    B->initialize_error = -ENODEV;
    assert_int_equal(
        BMI_initialize("bmi_loopa,bmi_loopb", "loopa://me,loopb://me", BMI_INIT_SERVER, NULL),
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
    assert_int_equal(A->flags, BMI_INIT_SERVER | SHIM_LOG_NOTICES);
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

/* A method started by a lookup gets the options of BMI_initialize unless the lookup has
 * some. */
static void options_wait_for_their_method(void **state)
{
    (void)state;
    char all[] = "k=v", one[] = "depth=3";
    BMI_addr_t addr;

    assert_int_equal(BMI_initialize(NULL, NULL, 0, all), 0);
    assert_int_equal(BMI_initialize(NULL, NULL, 0, one), 0); /* does nothing */
    memset(all, 'x', 3);
    assert_int_equal(BMI_addr_lookup(&addr, "loopa://x", NULL), 0);
    assert_string_equal(A->options, "k=v");
    assert_int_equal(BMI_addr_lookup(&addr, "loopb://x", one), 0);
    assert_string_equal(B->options, "depth=3");
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(BMI_finalize(), 0);

    B->initialize_error = -ENODEV;
    assert_int_equal(BMI_initialize("bmi_loopb", NULL, 0, one), -BMI_ENODEV);
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_addr_lookup(&addr, "loopa://x", NULL), 0);
    assert_string_not_equal(A->options, "k=v");
    assert_string_not_equal(A->options, "depth=3");
}

/* An option is unknown only if no method can have it. */
static void option_that_no_method_has_is_told(void **state)
{
    (void)state;
    char both[] = "depth=3,loud=1", wrong[] = "depth=3, louder=1,quiet=1";
    BMI_addr_t addr;

    A->knows = "depth";
    assert_int_equal(BMI_initialize(NULL, NULL, 0, wrong), 0);
    assert_int_equal(lines.errors, 0); /* B does not list its options */
    assert_int_equal(BMI_finalize(), 0);
    B->knows = "loud";
    assert_int_equal(BMI_initialize(NULL, NULL, 0, both), 0);
    assert_int_equal(lines.errors, 0);
    assert_int_equal(BMI_addr_lookup(&addr, "loopa://x,loopb://x", wrong), 0);
    assert_int_equal(lines.errors, 1);
    assert_non_null(strstr(lines.last_error, "unknown option \"louder\" ignored"));
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(BMI_initialize("bmi_loopa,bmi_loopb", NULL, 0, wrong), 0);
    assert_int_equal(lines.errors, 2);
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(BMI_initialize("bmi_loopb", NULL, 0, wrong), 0);
    assert_int_equal(lines.errors, 3);
    assert_int_equal(BMI_finalize(), 0);
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

/* If a method has no device the next scheme of the string is used. */
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

/* When one name of a shared object is dropped, messages of that peer use another one. */
static void shared_address_loses_one_name(void **state)
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

/* Two threads look up the same name: the second one's object is returned to the method. */
static void other_thread_looks_up(void)
{
    bool found;
    bmi_method_addr_p object = bmi_alloc_method_addr(0, 128);
    struct bmi_ref *ref =
        bmi_refs_add(&bmi_core.refs, &bmi_loopa_ops, object, "loopa://x", &found);
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

static void context_ids_are_bounded(void **state)
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
    /* If the second method refuses, the first closes it again. */
    B->context_error = -ENOMEM;
    assert_int_equal(BMI_open_context(&id[7]), -BMI_ENOMEM);
    assert_int_equal(A->contexts, 0xffff & ~(1u << 7));
    B->context_error = 0;
    assert_int_equal(BMI_open_context(&id[7]), 0);
    assert_int_equal(id[7], 7);
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

    /* The port is the first listening method's. */
    assert_int_equal(BMI_get_info(0, BMI_TCP_GET_PORT, &value), -BMI_ENODEV);
    B->port = 9;
    assert_int_equal(BMI_get_info(0, BMI_TCP_GET_PORT, &value), 0);
    assert_int_equal(value, 9);
    A->port = 8;
    assert_int_equal(BMI_get_info(a, BMI_TCP_GET_PORT, &value), 0);
    assert_int_equal(value, 8);

    /* All methods get an option, even if the first refuses. */
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
    assert_int_equal(bmi_error_to_errno(-BMI_EHOSTNTFD), ENONET);
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
    assert_string_equal(lines.last_error, "one 1");
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    gossip_err("%s\n", big);
    assert_int_equal(strlen(lines.last_error), 1023);
    gossip_debug(1, "not seen");
    gossip_set_debug_mask(1, 6);
    assert_int_equal(gossip_get_debug_mask(&on, &mask), 0);
    assert_int_equal(on, 1);
    assert_int_equal(mask, 6);
    gossip_set_debug_mask(0, 0);
    assert_int_equal(lines.errors, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls_outside_initialize_fail),
        TEST(bad_arguments_of_initialize),
        TEST(initialize_failure_undoes_itself),
        TEST(nested_initialize),
        TEST(initialize_finalize_initialize),
        TEST(options_wait_for_their_method),
        TEST(option_that_no_method_has_is_told),
        TEST(lookup_activates_by_scheme),
        TEST(lookup_falls_back_to_the_next_scheme),
        TEST(many_addresses),
        TEST(wrong_address_numbers),
        TEST(two_names_of_one_method_address),
        TEST(shared_address_loses_one_name),
        TEST(two_lookups_of_one_name_at_once),
        TEST(context_ids_are_bounded),
        TEST(options_and_memory),
        TEST(error_codes),
        TEST(log_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
