/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The planner on memory in several segments. */
#include "plan_base.h"

static void request_counts(void **state)
{
    static const struct {
        uint64_t send, recv;
        uint32_t max_sge;
        uint64_t writes;
    } cases[] = {{1, 1, 30, 1},   {64, 64, 30, 64}, {64, 1, 30, 3}, {64, 1, 1, 64},
                 {1, 64, 30, 64}, {30, 1, 30, 1},   {31, 1, 30, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rme_plan_in in = base(MIB);

        in.send.segments = cases[i].send;
        in.recv.segments = cases[i].recv;
        in.max_sge = cases[i].max_sge;
        in.prefer = RME_PREFER_WRITE;
        in.lists = RME_LISTS_GROUP;
        in.send.ready = in.recv.ready = true;
        assert_int_equal(decide(&in).requests, cases[i].writes);
    }
}

static void scattered_side_initiates(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.send.segments = 256;
    in.send.ready = in.recv.ready = true;
    in.send.load.ops = 10; /* by load the receiver would read, in 256 requests */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    assert_int_equal(decide(&in).requests, 9);
    in.send.segments = 1;
    in.recv.segments = 256;
    in.send.load.ops = 0;
    in.recv.load.ops = 10;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    in.max_read_sge = 1; /* no gain without scatter */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

/* Checks whether rme_plan_explain prints this text for the message, for both of its ends. */
static void explains(const struct rme_plan_in *in, const char *what, bool said)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    rme_plan_explain(out, in, in);
    fclose(out);
    assert_int_equal(strstr(text, what) != NULL, said);
    free(text);
}

/* Each segment is a request, and a read costs more than a write. */
static void dear_reads_are_written(void **state)
{
    struct rme_limits dear = limits;
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.max_sge = in.max_read_sge = 1;
    in.send.ready = in.recv.ready = true;
    in.recv.segments = 64;
    in.send.load.ops = 10; /* by load the receiver reads */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    dear.read = 2;
    in.limits = &dear;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    dear.read = 4;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    assert_string_equal(decide(&in).why, "the work requests of writing cost far less");
    explains(&in, "because   the work requests of writing cost far less", true);
    explains(&in, "a read request counts as 4 to write", true);
    in.recv.segments = 1; /* a difference of one request is ignored */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    /* 16000 + 63 * 700 + 63 requests of 4 or 1 times 1000 */
    in.recv.segments = 64;
    in.prefer = RME_PREFER_READ;
    in.recv.ready = false;
    in.recv.kept = true;
    in.bytes = 300000;
    assert_true(decide(&in).recv_pack);
    dear.read = 1;
    assert_false(decide(&in).recv_pack);
}

static void lists_by_limits(void **state)
{
    struct rme_plan_in in = base(32 * KIB);

    (void)state;
    in.pack_threshold = 0;
    in.send.segments = 8;
    assert_true(decide(&in).send_pack);
    in.bytes = 4 * MIB;
    assert_false(decide(&in).send_pack);
}

/* A list whose registration is kept has a lower limit: 16000 + 63 * 700 + 2 * 1000. */
static void kept_lists_by_limits(void **state)
{
    struct rme_plan_in in = base(62100);

    (void)state;
    in.send.segments = 64;
    in.send.kept = true;
    assert_true(decide(&in).send_pack);
    assert_string_equal(decide(&in).why_send, "within the limit of copies");
    in.bytes++;
    assert_false(decide(&in).send_pack);
    assert_string_equal(decide(&in).why_send, "above the limit of copies");
    in.send.kept = false; /* the whole registration */
    assert_true(decide(&in).send_pack);
    in.send.ready = true;
    in.bytes = 16 * KIB;
    assert_false(decide(&in).send_pack);
}

/* A receiver's pieces are written one by one, and opened; a read scatters to them. */
static void receivers_lists_by_protocol(void **state)
{
    struct rme_plan_in in = base(150000);

    (void)state;
    in.recv.segments = 64;
    in.recv.kept = true;
    in.prefer = RME_PREFER_READ;
    assert_false(decide(&in).recv_pack);
    in.prefer = RME_PREFER_WRITE; /* 63 requests: 123100 */
    assert_false(decide(&in).recv_pack);
    in.opens = true; /* and 126 */
    assert_true(decide(&in).recv_pack);
    in.prefer = RME_PREFER_READ;
    assert_false(decide(&in).recv_pack);
    in.prefer = RME_PREFER_WRITE;
    in.bytes = 300000;
    assert_false(decide(&in).recv_pack);
}

/* A receiver that copies reads the message itself, unless it is more loaded. */
static void copying_receiver_reads(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.send.ready = true;
    in.recv.segments = 64;
    in.lists = RME_LISTS_PACK;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    explains(&in, "receiver reads: receiver copies, receiver load <= sender load", true);
    in.recv.load.ops = 1;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    in.send.load.ops = 1;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    in.slow_read = true;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    in.slow_read = false;
    in.nothing_to_read = true;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    in.nothing_to_read = false;
    in.recv.segments = 1; /* in place */
    in.recv.ready = true;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

/* 64 pieces that three requests can write are not read one by one, unless the sender is heavily
 * loaded. */
static void lists_are_not_offered_in_vain(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    assert_true(decide(&in).offer);
    in.send.segments = 64;
    assert_false(decide(&in).send_pack);
    assert_false(decide(&in).offer);
    explains(&in, "RTS advertises nothing: the work requests of writing cost far less", true);
    in.prefer = RME_PREFER_READ;
    assert_true(decide(&in).offer);
    in.prefer = RME_PREFER_AUTO;
    in.lists = RME_LISTS_PACK;
    assert_true(decide(&in).offer);
    in.lists = RME_LISTS_GROUP;
    assert_false(decide(&in).offer);
    in.send.server = true;
    in.recv.server = false;
    in.send.load.ops = RME_HEAVY_OPS + 1;
    assert_true(decide(&in).offer);
    in.send.load.ops = 0;
    in.send.segments = 8;
    assert_true(decide(&in).offer);
}

/* A copied list sends no invitation for unregistered memory. */
static void packed_lists_do_not_invite(void **state)
{
    struct rme_plan_in in = base(1 * MIB);

    (void)state;
    in.has_early_cts = true;
    in.recv.segments = 64;
    in.recv.kept = true;
    in.prefer = RME_PREFER_WRITE;
    in.lists = RME_LISTS_GROUP;
    assert_true(decide(&in).early_cts);
    in.lists = RME_LISTS_PACK;
    assert_false(decide(&in).early_cts);
    in.lists = RME_LISTS_AUTO; /* by the limit, though its registration would be kept */
    in.bytes = 128 * KIB;
    in.opens = true;
    assert_true(decide(&in).recv_pack);
    assert_false(decide(&in).early_cts);
}

/* For any size and cost, kept or not; one segment is not a list. */
static void lists_by_option(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct rme_plan_in in = base(i & 1 ? 16 * MIB : 8 * KIB), flat = in;

        in.pack_threshold = flat.pack_threshold = i & 2 ? 64 * KIB : 0;
        in.send.segments = in.recv.segments = 64;
        in.send.kept = in.recv.kept = flat.send.kept = i & 4;
        for (int lists = RME_LISTS_PACK; lists <= RME_LISTS_GROUP; lists++) {
            bool pack = lists == RME_LISTS_PACK;
            struct rme_plan plan, before = decide(&flat);

            in.lists = flat.lists = (enum rme_lists)lists;
            plan = decide(&in);
            assert_int_equal(plan.send_pack, pack);
            assert_int_equal(plan.recv_pack, pack);
            assert_string_equal(plan.why_send, "option list_mode");
            assert_int_equal(decide(&flat).send_pack, before.send_pack);
            assert_int_equal(decide(&flat).recv_pack, before.recv_pack);
            flat.lists = RME_LISTS_AUTO;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_counts),
        cmocka_unit_test(scattered_side_initiates),
        cmocka_unit_test(dear_reads_are_written),
        cmocka_unit_test(lists_by_limits),
        cmocka_unit_test(kept_lists_by_limits),
        cmocka_unit_test(receivers_lists_by_protocol),
        cmocka_unit_test(copying_receiver_reads),
        cmocka_unit_test(lists_are_not_offered_in_vain),
        cmocka_unit_test(packed_lists_do_not_invite),
        cmocka_unit_test(lists_by_option),
    };

    return cmocka_run_group_tests_name("lists", tests, NULL, NULL);
}
