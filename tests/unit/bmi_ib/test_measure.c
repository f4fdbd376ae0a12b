/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cost of segments: the requests posted to measure it. Where it cannot be measured the presets
 * stay, after a short time, and nothing is left behind. */
#include <errno.h>
#include "base/timer.h"
#include "tests/lib/clock.h"
#include "rig.h"

#define LATE_MS 50      /* LATE_NS of measure.c */
#define ROUNDS  9       /* one that is not counted, and the measured ones */
#define FEW     3       /* when time is short */
#define SLOW_NS 1000000 /* duration of a clock reading then */

/* Checks that the measurement fails without a log line or resources left. */
static void nothing_comes_of_it(void)
{
    struct rme_rdma_seg_costs out = {11, 22, 33};
    unsigned mrs = rig.mrs;
    assert_false(ib_measure(rig.f, &out));
    assert_int_equal(out.segment_ns, 11);
    assert_int_equal(out.request_ns, 22);
    assert_int_equal(out.read_ns, 33);
    assert_int_equal(rig.mrs, mrs);
    assert_int_equal(rig.qps, rig.qps_gone);
    assert_string_equal(rig.lines, "");
}

/* Opens a device whose port is `up`. */
static void begin(bool up)
{
    rig_open(NULL, 16, 0);
    rig.f->dev.attr.phys_port_cnt = 1;
    rig.port_down = !up;
}

/* All requests are posted, and no completion comes: the wait is bounded. */
static void a_completion_does_not_come(void **state)
{
    (void)state;
    begin(true);
    uint64_t start = rme_now();
    nothing_comes_of_it();
    assert_in_range(rme_now() - start, LATE_MS, LATE_MS + 1);
    assert_int_equal(rig.nposted, 1);
    assert_int_equal(rig.qps, 1);
    rig_close();
}

/* Creating or connecting the QP, or posting, fails; or no port is up. */
static void a_call_fails(void **state)
{
    (void)state;
    for (int what = 0; what < 5; what++) {
        begin(what != 0);
        rig.fail_qp = what == 1;
        rig.fail_modify = what == 2;
        rig.fail_post = what == 3 ? ENOMEM : 0;
        if (what == 4)
            rig.f->caps.max_sge = 1; /* no gathering */
        nothing_comes_of_it();
        assert_int_equal(rig.nposted, 0);
        assert_int_equal(rig.qps, what != 1 && what != 4);
        assert_int_equal(rig.doorbells, what == 3); /* stops there */
        rig_close();
    }
}

/* The same bytes each time, in turn: one write, one that gathers, one for each piece; and if
 * the device reads, one read, and one for each piece. */
static void shapes_are_taken_in_turn(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct rme_rdma_seg_costs out;
        bool reads = kind & 1, slow = kind & 2;
        begin(true);
        clock_tick_ns(slow ? SLOW_NS : CLOCK_TICK_NS);
        rig.f->dev.sq_depth = 64; /* room for all pieces */
        rig.completes = true;
        if (!reads)
            rig.f->dev.read_depth = 0;
        assert_true(ib_measure(rig.f, &out));
        unsigned round = reads ? 1 + 1 + 16 + 1 + 16 : 1 + 1 + 16;
        assert_int_equal(rig.nposted % round, 0);
        assert_int_equal(rig.nposted / round, slow ? FEW : ROUNDS);
        for (unsigned i = 0; i < rig.nposted; i++) {
            unsigned at = i % round;
            const struct rig_posted *p = &rig.posted[i];
            bool whole = at < 2 || at == 18;
            assert_int_equal(p->opcode, at < 18 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
            assert_int_equal(p->nsge, at == 1 ? 16 : 1);
            assert_int_equal(p->bytes, whole ? 16 * 2048 : 2048);
            assert_int_equal(p->flags, whole || at == 17 || at == 34 ? IBV_SEND_SIGNALED : 0);
        }
        if (!reads)
            assert_int_equal(out.read_ns, 0);
        assert_int_equal(rig.qps, rig.qps_gone);
        rig_close();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_does_not_come),
        cmocka_unit_test(a_call_fails),
        cmocka_unit_test(shapes_are_taken_in_turn),
    };
    return cmocka_run_group_tests(tests, clock_setup, NULL);
}
