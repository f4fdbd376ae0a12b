/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "unit.h"
#include "fake_fabric.h"
#include "plan/plan.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

static const struct rme_costs costs = {.copy_byte = 0.1,
                                       .copy_piece = 20,
                                       .reg_call = 10000,
                                       .reg_page = 200,
                                       .message = 2000,
                                       .post = 100,
                                       .sge = 20,
                                       .read_extra = 1000,
                                       .wire_byte = 0.1};

static struct rme_plan_in base(uint64_t bytes)
{
    return (struct rme_plan_in){.bytes = bytes,
                                .send = {.segments = 1},
                                .recv = {.segments = 1, .server = true},
                                .eager_max = 4000,
                                .unit = MIB,
                                .pack_threshold = 64 * KIB,
                                .heavy_ops = 64,
                                .max_sge = 30,
                                .max_read_sge = 30,
                                .has_read = true,
                                .costs = &costs};
}

static struct rme_plan decide(const struct rme_plan_in *in)
{
    struct rme_plan plan;

    rme_plan(in, &plan);
    assert_non_null(plan.why);
    return plan;
}

static void small_is_eager(void **state)
{
    (void)state;
    for (uint64_t bytes = 0; bytes <= 4000; bytes += 400) {
        struct rme_plan_in in = base(bytes);

        assert_int_equal(decide(&in).proto, RME_PROTO_EAGER);
    }
    struct rme_plan_in in = base(4001);

    assert_int_not_equal(decide(&in).proto, RME_PROTO_EAGER);
}

static void eager_gives_way_where_it_is_slower(void **state)
{
    struct rme_plan_in in = base(1 * MIB);

    (void)state;
    in.eager_max = 2 * MIB;
    in.send.ready = in.recv.ready = true;
    assert_int_not_equal(decide(&in).proto, RME_PROTO_EAGER);
    in.bytes = 16 * KIB;
    assert_int_equal(decide(&in).proto, RME_PROTO_EAGER);
}

/* The flow chart, each of its four ends. */
static void heavy_server_lets_the_client_work(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.recv.load_ops = 65;
    in.send.load_ops = 1000;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    in.recv.load_ops = 64; /* not heavy any more: the less loaded receiver reads */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);

    in = base(MIB);
    in.recv.server = false;
    in.send.server = true;
    in.send.load_ops = 65;
    in.recv.load_ops = 1000;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    in.send.load_ops = 64;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

static void two_servers_go_by_load(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.send.server = true;
    in.send.load_ops = 100;
    in.recv.load_ops = 90;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    in.recv.load_ops = 110;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

static void load_counts_bytes_on_a_tie(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    in.send.load_bytes = 1;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
}

static void options_and_devices_overrule(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.prefer = RME_PREFER_READ;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    in.send.load_ops = 10;
    in.prefer = RME_PREFER_WRITE;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    in.prefer = RME_PREFER_READ;
    in.has_read = false;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

static void slow_reads_are_avoided(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    assert_true(rme_plan_may_read(&in));
    in.slow_read = true;
    in.send.load_ops = 10; /* by load the receiver would read */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    assert_false(rme_plan_may_read(&in));
    in.prefer = RME_PREFER_READ;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    assert_true(rme_plan_may_read(&in));
    in.prefer = RME_PREFER_WRITE;
    assert_false(rme_plan_may_read(&in));
    in.prefer = RME_PREFER_AUTO;
    in.slow_read = in.has_read = false;
    assert_false(rme_plan_may_read(&in));
}

static void the_scattered_side_initiates(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.send.segments = 256;
    in.send.ready = in.recv.ready = true;
    in.send.load_ops = 10; /* by load the receiver would read, in 256 requests */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    assert_int_equal(decide(&in).requests, 9);
    in.send.segments = 1;
    in.recv.segments = 256;
    in.send.load_ops = 0;
    in.recv.load_ops = 10;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_READ);
    in.max_read_sge = 1; /* no gain without scatter */
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

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
        uint64_t requests;

        in.send.segments = cases[i].send;
        in.recv.segments = cases[i].recv;
        in.max_sge = cases[i].max_sge;
        (void)rme_plan_cost(&in, RME_PROTO_RNDV_WRITE, false, false, &requests);
        assert_int_equal(requests, cases[i].writes);
    }
}

static void small_lists_are_packed(void **state)
{
    struct rme_plan_in in = base(64 * KIB - 1);

    (void)state;
    in.send.segments = 32;
    assert_true(decide(&in).send_pack);
    in.bytes = 64 * KIB;
    assert_false(decide(&in).send_pack);
    in.recv.segments = 32;
    in.bytes = 32 * KIB;
    assert_true(decide(&in).recv_pack);
    in.send.ready = true;
    in.send.segments = 8; /* registered and one request: nothing is gained by a copy */
    assert_false(decide(&in).send_pack);
}

static void single_use_registration_must_pay(void **state)
{
    /* copying B bytes: 0.1 B; registering: 10000 + 200 (B / 4096 + 1) = 10200 + 0.0488 B; equal
     * near 199,000 */
    struct rme_plan_in in = base(150000);

    (void)state;
    assert_true(decide(&in).send_pack);
    assert_true(decide(&in).recv_pack);
    in.bytes = 250000;
    assert_false(decide(&in).send_pack);
    in.bytes = 150000;
    in.send.ready = true;
    assert_false(decide(&in).send_pack);
    in.bytes = 10 * MIB;
    in.recv.cannot = true;
    assert_true(decide(&in).recv_pack);
    assert_false(decide(&in).send_pack);
}

static void lists_by_costs(void **state)
{
    struct rme_plan_in in = base(32 * KIB);

    (void)state;
    in.pack_threshold = 0;
    in.send.segments = 8;
    assert_true(decide(&in).send_pack);
    in.bytes = 4 * MIB;
    assert_false(decide(&in).send_pack);
}

static void units(void **state)
{
    struct rme_plan_in in = base(100 * MIB);

    (void)state;
    assert_int_equal(decide(&in).unit, MIB);
    in.bytes = 1500 * KIB;
    assert_int_equal(decide(&in).unit, 750 * KIB);
    in.bytes = 100 * KIB;
    assert_int_equal(decide(&in).unit, 100 * KIB);
    in.bytes = 1 * MIB;
    in.send.ready = in.recv.ready = true;
    assert_int_equal(decide(&in).unit, MIB);
    in.bytes = 1024 * MIB;
    assert_int_equal(decide(&in).unit, 64 * MIB);
}

static void overlap_beats_one_piece(void **state)
{
    struct rme_plan_in in = base(16 * MIB), whole = base(16 * MIB);

    (void)state;
    whole.unit = 1024 * MIB;
    assert_true(rme_plan_cost(&in, RME_PROTO_RNDV_WRITE, false, false, NULL) <
                rme_plan_cost(&whole, RME_PROTO_RNDV_WRITE, false, false, NULL));
}

static void unknown_receiver(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.recv = (struct rme_plan_side){0};
    in.send.segments = 64;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

static void huge_sizes(void **state)
{
    struct rme_plan_in in = base((uint64_t)5 << 40);

    (void)state;
    assert_int_equal(decide(&in).unit, MIB);
    assert_true(decide(&in).ns > 0);
}

static void explains(void **state)
{
    struct rme_plan_in in = base(2 * MIB);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    const char *chosen;

    (void)state;
    in.send.segments = 64;
    rme_plan_explain(out, &in);
    fclose(out);
    chosen = strstr(text, "<- chosen");
    assert_non_null(chosen);
    assert_null(strstr(chosen + 1, "<- chosen"));
    assert_non_null(strstr(text, decide(&in).why));
    assert_non_null(strstr(text, "rendezvous read"));
    free(text);
}

static void measures(void **state)
{
    struct fake fake;
    struct rme_costs got;

    (void)state;
    fake_init(&fake);
    rme_costs_measure(&fake_ops, fake_fabric(&fake), &got);
    assert_true(got.copy_byte > 0);
    assert_true(fake.attempts > 0);
    assert_true(got.reg_call > 0);
    assert_true(got.reg_page >= 0);
    assert_int_equal(fake_live(&fake), 0);
    fake.refuse = ENOMEM;
    rme_costs_measure(&fake_ops, fake_fabric(&fake), &got);
    assert_true(got.reg_call == rme_costs_preset.reg_call);
    fake_destroy(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_is_eager),
        cmocka_unit_test(eager_gives_way_where_it_is_slower),
        cmocka_unit_test(heavy_server_lets_the_client_work),
        cmocka_unit_test(two_servers_go_by_load),
        cmocka_unit_test(load_counts_bytes_on_a_tie),
        cmocka_unit_test(options_and_devices_overrule),
        cmocka_unit_test(slow_reads_are_avoided),
        cmocka_unit_test(the_scattered_side_initiates),
        cmocka_unit_test(request_counts),
        cmocka_unit_test(small_lists_are_packed),
        cmocka_unit_test(single_use_registration_must_pay),
        cmocka_unit_test(lists_by_costs),
        cmocka_unit_test(units),
        cmocka_unit_test(overlap_beats_one_piece),
        cmocka_unit_test(unknown_receiver),
        cmocka_unit_test(huge_sizes),
        cmocka_unit_test(explains),
        cmocka_unit_test(measures),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
