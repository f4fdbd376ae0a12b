/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The shim: start and stop, addresses, options, operations. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "gossip.h"
#include "patches/orangefs/shim/shim-engine.h"
#include "pvfs2-debug.h"
#include "shim_rig.h"

static void server_start(void **state)
{
    (void)state;
    start_server(BMI_TCP_BIND_SPECIFIC);
    assert_string_equal(fake.options, "depth=3");
    assert_string_equal(fake.listening, "fake://me:1");
    assert_true(fake.bind_specific);
    assert_int_equal(fake.contexts, 1);
    /* The server's own address can be looked up and stays the same. */
    BMI_addr_t self;
    assert_int_equal(BMI_addr_lookup(&self, "fake://me:1/fs", NULL), 0);
    assert_int_equal(fake.addrs, 1);
    BMI_close_context(context);
    assert_int_equal(fake.contexts, 0);
}

static void strings_of_one_peer_share_an_address(void **state)
{
    (void)state;
    static const char *const same[] = {"fake://h:1,fake://h:2", "fake://h:1/a,fake://h:2/b",
                                       "tcp://x:1,fake://h:1,fake://h:2",
                                       " fake://h:1 , fake://h:2\n"};
    static const char *const different[] = {"fake://h:1", "fake://h:2,fake://h:1",
                                            "fake://h:11,fake://h:2",
                                            "fake://h:1,fake://h:2,fake://h:3"};
    struct bmi_method_ops *ops = &bmi_fake_ops;
    bmi_method_addr_p a[4], b[4];

    for (int i = 0; i < 4; i++) {
        a[i] = ops->method_addr_lookup(same[i]);
        assert_ptr_equal(a[i], a[0]);
    }
    for (int i = 0; i < 4; i++) {
        b[i] = ops->method_addr_lookup(different[i]);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(b[i], b[j]);
        assert_ptr_not_equal(b[i], a[0]);
    }
    assert_int_equal(fake.addrs, 5);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ops->set_info(BMI_DROP_ADDR, b[i]), 0);
        assert_int_equal(ops->set_info(BMI_DROP_ADDR, a[i]), 0);
        assert_int_equal(fake.addrs, i < 3 ? 4 - i : 0);
    }
}

/* OrangeFS tries four times. */
static void why_it_cannot_start_is_said_once(void **state)
{
    (void)state;
    BMI_addr_t addr;

    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    fake.open_error = -ENODEV;
    lines_count();
    for (int i = 0; i < 4; i++)
        assert_int_equal(bmi_fake_ops.initialize(NULL, 0, 0, NULL), -BMI_ENODEV);
    assert_int_equal(lines.errors, 1);
    fake.open_error = -ENOMEM;
    assert_int_equal(bmi_fake_ops.initialize(NULL, 0, 0, NULL), -BMI_ENOMEM);
    assert_int_equal(lines.errors, 2);
    fake.open_error = 0;
    assert_int_equal(BMI_addr_lookup(&addr, "fake://host:1", NULL), 0);
    fake_log(RME_LOG_ERROR, strerror(ENOMEM)); /* not an error of the start */
    assert_int_equal(lines.errors, 3);
    assert_int_equal(BMI_finalize(), 0);
    fake.open_error = -ENOMEM; /* after a success in between */
    assert_int_equal(bmi_fake_ops.initialize(NULL, 0, 0, NULL), -BMI_ENOMEM);
    assert_int_equal(lines.errors, 4);
}

/* Until a client has found its first server, a lookup fails if no server listens. */
static void first_lookup_needs_server(void **state)
{
    (void)state;
    BMI_addr_t addr;

    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    fake.reach_result = -ECONNREFUSED;
    lines_count();
    assert_int_equal(BMI_addr_lookup(&addr, "fake://host:1", NULL), -BMI_ENOPROTOOPT);
    assert_int_equal(BMI_addr_lookup(&addr, "fake://host:1", NULL), -BMI_ENOPROTOOPT);
    assert_int_equal(lines.errors, 1); /* logged once */
    assert_int_equal(fake.addrs, 0);
    fake.reach_result = -EINPROGRESS; /* a slow server may exist */
    assert_int_equal(BMI_addr_lookup(&addr, "fake://host:1", NULL), 0);
    assert_int_equal(fake.reaches, 3);
    fake.reach_result = -EHOSTUNREACH;
    assert_int_equal(BMI_addr_lookup(&addr, "fake://host:2", NULL), -BMI_ENOPROTOOPT);
    fake.reach_result = 0;
    assert_int_equal(BMI_addr_lookup(&addr, "fake://host:2", NULL), 0);
    assert_int_equal(fake.reaches, 5);
    fake.reach_result = -ECONNREFUSED; /* not checked any more */
    assert_int_equal(BMI_addr_lookup(&addr, "fake://host:3", NULL), 0);
    assert_int_equal(fake.reaches, 5);
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(fake.addrs, 0);

    fake.reaches = 0;
    start_server(0); /* a server looks up its peers whether they are up or not */
    assert_int_equal(BMI_addr_lookup(&addr, "fake://friend:1", NULL), 0);
    assert_int_equal(fake.reaches, 0);
}

/* OrangeFS lets bmi_tcp read our method data as its own struct. */
static void guard_and_foreign_addresses(void **state)
{
    (void)state;
    void *method_addr;
    struct bmi_method_addr foreign = {.method_type = 1};

    start_client();
    assert_int_equal(BMI_get_info(peer, BMI_GET_METH_ADDR, &method_addr), 0);
    const int *data = ((bmi_method_addr_p)method_addr)->method_data;
    for (int i = 0; i < 16; i++)
        assert_int_equal(data[i], -1);
    assert_int_equal(BMI_query_addr_range(peer, "fake://host:1", 32), 1);
    assert_int_equal(BMI_query_addr_range(peer, "fake://host:1", 24), 0);
    assert_int_equal(BMI_query_addr_range(peer, "fake://guest:1", 32), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(BMI_query_addr_range(peer, "fake://name", 32), 0);
        assert_int_equal(lines.errors, 1);
    }
    assert_string_equal(lines.last_error, "bmi_fake: rule \"fake://name\": selects no client: "
                                          "host names are not resolved; use addresses");
    assert_int_equal(bmi_fake_ops.query_addr_range(&foreign, "fake://host:1", 32), 0);
    assert_string_equal(bmi_fake_ops.rev_lookup_unexpected(&foreign), "UNKNOWN");
    bmi_op_id_t id;
    assert_int_equal(
        bmi_fake_ops.post_send(&id, &foreign, "x", 1, BMI_EXT_ALLOC, 1, NULL, 0, NULL),
        -BMI_EINVAL);
}

static void info_options(void **state)
{
    (void)state;
    int value = 0;
    char memory[10];
    struct bmi_optimistic_buffer_info hint = {.buffer = memory, .len = 10, .rw = BMI_IO_READ};

    start_client();
    assert_int_equal(BMI_get_info(peer, BMI_GET_UNEXP_SIZE, &value), 0);
    assert_int_equal(value, 16384);
    assert_int_equal(BMI_get_info(0, BMI_CHECK_MAXSIZE, &value), 0);
    assert_int_equal(value, INT_MAX);
    assert_int_equal(BMI_get_info(0, BMI_TCP_GET_PORT, &value), -BMI_ENODEV);
    fake.listen_port = 3335;
    assert_int_equal(BMI_get_info(0, BMI_TCP_GET_PORT, &value), 0);
    assert_int_equal(value, 3335);
    fake.listen_port = 0;
    assert_int_equal(bmi_fake_ops.get_info(SHIM_KNOWS_OPTION, "rndv"), 0);
    assert_int_equal(bmi_fake_ops.get_info(SHIM_KNOWS_OPTION, "rndvv"), -BMI_ENOENT);
    assert_int_equal(bmi_fake_ops.get_info(77, &value), -BMI_ENOSYS);
    assert_int_equal(BMI_get_info(peer, 77, &value), -BMI_ENOSYS);
    struct bmi_method_addr foreign = {.method_type = 99};
    struct shim_attribute a = {.index = 0};
    assert_int_equal(BMI_get_info(peer, SHIM_GET_ATTRIBUTE, &a),
                     -BMI_ECONNRESET); /* no address given */
    assert_int_equal(BMI_get_info(peer, BMI_GET_METH_ADDR, &a.addr), 0);
    assert_int_equal(BMI_get_info(peer, SHIM_GET_ATTRIBUTE, &a), 0);
    assert_string_equal(a.name, "eager_bytes");
    assert_string_equal(a.unit, "bytes");
    assert_int_equal(a.value, 4444);
    a.index = 1;
    assert_int_equal(bmi_fake_ops.get_info(SHIM_GET_ATTRIBUTE, &a), 0);
    assert_string_equal(a.text, "sent");
    a.index = 2;
    assert_int_equal(BMI_get_info(peer, SHIM_GET_ATTRIBUTE, &a), -BMI_ENOENT);
    a = (struct shim_attribute){.addr = a.addr, .index = -1, .name = "sends_eager"};
    assert_int_equal(BMI_get_info(peer, SHIM_GET_ATTRIBUTE, &a), 0);
    assert_int_equal(a.value, 7);
    a.name = "nothing";
    assert_int_equal(BMI_get_info(peer, SHIM_GET_ATTRIBUTE, &a), -BMI_ENOENT);
    a.addr = &foreign;
    assert_int_equal(BMI_get_info(peer, SHIM_GET_ATTRIBUTE, &a), -BMI_ECONNRESET);
    struct rme *engine = NULL;
    assert_int_equal(BMI_get_info(peer, SHIM_GET_ENGINE, &engine), 0);
    assert_non_null(engine);
    for (int option = BMI_CHECK_INIT; option < 40; option++)
        if (option != BMI_INC_ADDR_REF && option != BMI_DEC_ADDR_REF &&
            option != BMI_OPTIMISTIC_BUFFER_REG)
            assert_int_equal(BMI_set_info(0, option, NULL), 0);
    assert_int_equal(fake.forceful, 1);
    assert_int_equal(BMI_set_info(peer, BMI_OPTIMISTIC_BUFFER_REG, &hint), 0);
    assert_int_equal(fake.hints, 1);
    assert_int_equal(fake.hinted, 10);
    /* the host reads, so the engine writes there */
    assert_int_equal(fake.hint_direction, RME_TO_RECEIVE);
    hint.rw = BMI_IO_WRITE;
    assert_int_equal(BMI_set_info(peer, BMI_OPTIMISTIC_BUFFER_REG, &hint), 0);
    assert_int_equal(fake.hints, 2);
    assert_int_equal(fake.hint_direction, RME_TO_SEND);
    hint.buffer = NULL;
    assert_int_equal(BMI_set_info(peer, BMI_OPTIMISTIC_BUFFER_REG, &hint), 0);
    assert_int_equal(BMI_set_info(peer, BMI_OPTIMISTIC_BUFFER_REG, NULL), 0);
    assert_int_equal(fake.hints, 2);
}

static void posts_reach_the_engine(void **state)
{
    (void)state;
    bmi_op_id_t id;
    const void *pieces[2] = {"ab", "cde"};
    const bmi_size_t sizes[2] = {2, 3}, wrong[2] = {6, -1}, huge[2] = {INT64_MAX, 1};
    char big[10];

    start_client();
    assert_int_equal(BMI_post_send_list(&id, peer, pieces, sizes, 2, 5, BMI_EXT_ALLOC, -8, NULL,
                                        context, NULL),
                     0);
    assert_int_equal(fake.last_list.count, 2);
    assert_ptr_equal(fake.last_list.base, pieces);
    assert_ptr_equal(fake.last_list.length, sizes);
    assert_int_equal(fake.last_tag, -8);
    assert_int_equal(BMI_post_send_list(&id, peer, pieces, sizes, 2, 6, BMI_EXT_ALLOC, 1, NULL,
                                        context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(BMI_post_send_list(&id, peer, pieces, wrong, 2, 5, BMI_EXT_ALLOC, 1, NULL,
                                        context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(BMI_post_send_list(&id, peer, pieces, huge, 2, INT64_MAX, BMI_EXT_ALLOC, 1,
                                        NULL, context, NULL),
                     -BMI_EINVAL);
    assert_int_equal(fake.operations, 1);

    fake.post_result = 1;
    id = 5;
    assert_int_equal(BMI_post_send(&id, peer, big, 10, BMI_EXT_ALLOC, 1, NULL, context, NULL),
                     1);
    assert_int_equal(id, 0);
    fake.post_result = -ECONNRESET;
    assert_int_equal(BMI_post_send(&id, peer, big, 10, BMI_EXT_ALLOC, 1, NULL, context, NULL),
                     -BMI_ECONNRESET);
    assert_int_equal(id, 0);
}

static void completions_and_error_codes(void **state)
{
    (void)state;
    static const struct {
        int engine;
        bmi_error_code_t bmi;
    } map[] = {{0, 0},
               {-ECANCELED, -BMI_ECANCEL},
               {-ETIMEDOUT, -BMI_ETIMEDOUT},
               {-ECONNREFUSED, -BMI_ECONNREFUSED},
               {-ECONNRESET, -BMI_ECONNRESET},
               {-ESHUTDOWN, -BMI_ECONNRESET},
               {-EHOSTUNREACH, -BMI_EHOSTUNREACH},
               {-ENONET, -BMI_EHOSTNTFD},
               {-EMSGSIZE, -BMI_EMSGSIZE},
               {-EPROTO, -BMI_EPROTO},
               {-ENOMEM, -BMI_ENOMEM},
               {-EACCES, -BMI_EACCES},
               {-EOWNERDEAD, -BMI_EIO},
               {-99999, -BMI_EIO}};
    int n, marker[sizeof(map) / sizeof(map[0])];
    bmi_op_id_t done;
    bmi_error_code_t error;
    bmi_size_t actual;
    void *user;

    start_client();
    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++) {
        bmi_op_id_t id = post_recv(4, &marker[i]);
        assert_int_equal(BMI_testcontext(1, &done, &n, &error, &actual, &user, 0, context), 0);
        fake_complete(fake.last_id, map[i].engine, 5);
        assert_int_equal(
            BMI_testcontext(1, &done, &n, &error, &actual, i % 2 ? &user : NULL, 0, context),
            1);
        assert_int_equal(n, 1);
        assert_true(done == id);
        if (i % 2)
            assert_ptr_equal(user, &marker[i]);
        assert_int_equal(error, map[i].bmi);
        assert_int_equal(actual, map[i].engine ? 0 : 5);
        if (error) /* errors that OrangeFS retries */
            assert_true(-error & BMI_ERROR);
    }
}

/* OrangeFS's bmi.c reads through an id at any time before finalize. */
static void operation_ids_stay_readable(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static bmi_op_id_t ids[COUNT];
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;
    void *user;

    start_client();
    for (int i = 0; i < COUNT; i++) {
        ids[i] = post_recv(i, &ids[i]);
        const struct method_op *op = (const struct method_op *)(uintptr_t)ids[i];
        assert_true(op->op_id == ids[i]);
        assert_int_equal(op->addr->method_type, 0);
        fake_complete(fake.last_id, 0, 1);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(BMI_test(ids[i], &n, &error, &actual, &user, 0, context), 1);
        assert_ptr_equal(user, &ids[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        const struct method_op *op = (const struct method_op *)(uintptr_t)ids[i];
        assert_int_equal(op->op_id, 0);
        assert_int_equal(op->addr->method_type, 0);
        assert_int_equal(BMI_test(ids[i], &n, &error, &actual, &user, 0, context), 0);
        assert_int_equal(BMI_cancel(ids[i], context), 0);
    }
    assert_int_equal(fake.cancels, 0);
}

/* An id rests while 32 others are used, for any number of free operations. */
static void ids_rest_before_they_come_back(void **state)
{
    (void)state;
    bmi_op_id_t last[32] = {0};
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;

    start_client();
    for (int i = 0; i < 60; i++)
        post_recv(1, NULL);
    for (int i = 0; i < 500; i++) {
        bmi_op_id_t id = post_recv(2, NULL);
        for (int k = 0; k < 32; k++)
            assert_true(last[k] != id);
        last[i % 32] = id;
        fake_complete(fake.last_id, 0, 1);
        assert_int_equal(BMI_test(id, &n, &error, &actual, NULL, 0, context), 1);
    }
}

static void wrong_ids_are_nobodys(void **state)
{
    (void)state;
    int n, index[2];
    bmi_error_code_t error[2];
    bmi_size_t actual[2];

    start_client();
    bmi_op_id_t good = post_recv(1, NULL);
    bmi_op_id_t wrong[] = {0,        1,         -1,        good + 1,        good + 8,
                           good - 1, INT64_MAX, INT64_MIN, good ^ (1 << 20)};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(BMI_test(wrong[i], &n, error, actual, NULL, 0, context), 0);
        assert_int_equal(bmi_fake_ops.cancel(wrong[i], context), 0);
        assert_int_equal(BMI_testsome(1, &wrong[i], &n, index, error, actual, NULL, 5, context),
                         0);
    }
    assert_int_equal(fake.cancels, 0);
    assert_int_equal(fake.waited_ms, 0);
}

/* An operation is reported before its post returns. The poster's variable has the id by then
 * and is not written later, because the receiver of the report may free it; the id is
 * invalid. */
static bmi_op_id_t reported, *variable;

static void report_it(void)
{
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;
    assert_int_equal(BMI_testcontext(1, &reported, &n, &error, &actual, NULL, 0, context), 1);
    assert_true(*variable == reported);
    *variable = 77;
}

static void reported_before_the_post_returns(void **state)
{
    (void)state;
    int n;
    bmi_error_code_t error;
    bmi_size_t actual;

    start_client();
    fake.finish_at_once = true;
    fake.on_post = report_it;
    char buffer[8];
    bmi_op_id_t id = 5;
    variable = &id;
    assert_int_equal(
        BMI_post_recv(&id, peer, buffer, 8, NULL, BMI_EXT_ALLOC, 1, NULL, context, NULL), 0);
    assert_int_equal(id, 77);
    assert_int_equal(BMI_cancel(reported, context), 0);
    assert_int_equal(fake.cancels, 0);
    assert_int_equal(BMI_test(reported, &n, &error, &actual, NULL, 5, context), 0);
    assert_int_equal(fake.waited_ms, 0);
}

static void testsome_small_and_large(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    static bmi_op_id_t ids[COUNT];
    static rme_id engine_ids[COUNT];
    static int index[COUNT];
    static bmi_error_code_t error[COUNT];
    static bmi_size_t actual[COUNT];
    static void *user[COUNT];
    bool seen[COUNT] = {false};
    int n;

    start_client();
    for (int count = 2; count <= COUNT; count += 198) {
        memset(seen, 0, sizeof(seen));
        for (int i = 0; i < count; i++) {
            ids[i] = post_recv(i, &ids[i]);
            engine_ids[i] = fake.last_id;
        }
        assert_int_equal(BMI_testsome(count, ids, &n, index, error, actual, user, 0, context),
                         0);
        for (int i = 0; i < count; i += 2)
            fake_complete(engine_ids[i], 0, i);
        assert_int_equal(BMI_testsome(count, ids, &n, index, error, actual, user, 0, context),
                         1);
        assert_int_equal(n, count / 2);
        for (int i = 0; i < n; i++) {
            assert_int_equal(index[i] % 2, 0);
            assert_false(seen[index[i]]);
            seen[index[i]] = true;
            assert_ptr_equal(user[i], &ids[index[i]]);
            assert_int_equal(actual[i], index[i]);
            ids[index[i]] = 0;
        }
        for (int i = 1; i < count; i += 2)
            fake_complete(engine_ids[i], 0, i);
        assert_int_equal(BMI_testsome(count, ids, &n, index, error, actual, NULL, 0, context),
                         1);
        assert_int_equal(n, count / 2);
    }
}

/* The returned numbers never mean "active": OrangeFS's bmi.c would not poll a quiet method
 * beside a busy one. */
static void activity_is_not_told(void **state)
{
    (void)state;
    struct bmi_method_ops *ops = &bmi_fake_ops;
    bmi_op_id_t id;
    bmi_error_code_t error;
    bmi_size_t actual;
    struct bmi_method_unexpected_info info;
    int n;

    for (int number = 0; number < 2; number++) { /* alone, or the second of several */
        assert_int_equal(ops->initialize(NULL, number, 0, NULL), 0);
        assert_int_equal(ops->open_context(0), 0);
        bmi_method_addr_p a = ops->method_addr_lookup("fake://x:1");
        assert_int_equal(ops->testcontext(1, &id, &n, &error, &actual, NULL, 5, 0), 0);
        assert_int_equal(ops->post_send(&id, a, "x", 1, BMI_EXT_ALLOC, 1, NULL, 0, NULL), 0);
        fake_complete(fake.last_id, 0, 1);
        assert_int_equal(ops->testcontext(1, &id, &n, &error, &actual, NULL, 0, 0), 0);
        assert_int_equal(n, 1);
        fake_peer_sends(fake.last_addr, 1, 1);
        assert_int_equal(ops->testunexpected(1, &n, &info, 0), 0);
        assert_int_equal(n, 1);
        assert_ptr_equal(info.addr, a);
        assert_int_equal(ops->unexpected_free(info.buffer), 0);
        assert_int_equal(ops->finalize(), 0);
        assert_int_equal(ops->set_info(BMI_DROP_ADDR, a), 0);
    }
}

/* OrangeFS logs each operation's error itself; the core's programs show the reason from the
 * log. */
static void reason_reported_by_host_is_debug(void **state)
{
    (void)state;
    start_client();
    fake_log(RME_LOG_NOTICE, "cannot connect");
    assert_string_equal(lines.last_error, "bmi_fake: cannot connect");
    fake_log(RME_LOG_INFO, "not seen");
    assert_int_equal(lines.debug, 0);
    assert_int_equal(BMI_finalize(), 0);
    lines_count();
    assert_int_equal(bmi_fake_ops.initialize(NULL, 0, 0, NULL), 0); /* like OrangeFS */
    gossip_set_debug_mask(1, GOSSIP_BMI_DEBUG_IB);
    fake_log(RME_LOG_NOTICE, "cannot connect");
    gossip_set_debug_mask(0, 0);
    assert_int_equal(lines.errors, 0);
    assert_int_equal(lines.debug, 1);
    fake.reach_result = -ECONNREFUSED; /* the first server: OrangeFS does not log the reason */
    assert_null(bmi_fake_ops.method_addr_lookup("fake://host:1"));
    assert_int_equal(lines.errors, 1);
    assert_int_equal(bmi_fake_ops.finalize(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(server_start),
        TEST(reason_reported_by_host_is_debug),
        TEST(strings_of_one_peer_share_an_address),
        TEST(why_it_cannot_start_is_said_once),
        TEST(first_lookup_needs_server),
        TEST(guard_and_foreign_addresses),
        TEST(info_options),
        TEST(posts_reach_the_engine),
        TEST(completions_and_error_codes),
        TEST(operation_ids_stay_readable),
        TEST(ids_rest_before_they_come_back),
        TEST(wrong_ids_are_nobodys),
        TEST(reported_before_the_post_returns),
        TEST(testsome_small_and_large),
        TEST(activity_is_not_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
