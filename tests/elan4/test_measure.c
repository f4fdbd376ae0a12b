/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cost of a list's pieces, as measured by the fabric at its start. */
#include "bmi_elan4/elan.h"
#include "bmi_elan4/nic.h"
#include "tests/elan4/scratch.h"
#include "tests/elan4/sides.h"

/* Time by which each DMA, and each requested one, steps the stopped clock. */
#define WRITE_NS 1000
#define READ_NS  3000

void __real_elan4_run_dma_cmd(E4_CmdQ *q, E4_DMA *dma);
void __wrap_elan4_run_dma_cmd(E4_CmdQ *q, E4_DMA *dma);
void __real_elan4_remote_dma(E4_CmdQ *q, E4_DMA *dma, unsigned vp, E4_uint64 cookie);
void __wrap_elan4_remote_dma(E4_CmdQ *q, E4_DMA *dma, unsigned vp, E4_uint64 cookie);

static bool dmas_take_time;

void __wrap_elan4_run_dma_cmd(E4_CmdQ *q, E4_DMA *dma)
{
    if (dmas_take_time)
        clock_step_ns(WRITE_NS);
    __real_elan4_run_dma_cmd(q, dma);
}

void __wrap_elan4_remote_dma(E4_CmdQ *q, E4_DMA *dma, unsigned vp, E4_uint64 cookie)
{
    if (dmas_take_time)
        clock_step_ns(READ_NS);
    __real_elan4_remote_dma(q, dma, vp, cookie);
}

static void pieces_are_measured(void **state)
{
    struct rme_rdma_seg_costs costs = {.segment_ns = 7};
    struct side s;

    (void)state;
    open_side(&s, NULL, "");
    clock_stop();
    dmas_take_time = true;
    assert_true(ops->measure(s.f, &costs));
    dmas_take_time = false;
    clock_run();
    assert_int_equal(costs.segment_ns, 0);
    assert_int_equal(costs.request_ns, WRITE_NS);
    assert_int_equal(costs.read_ns, READ_NS - WRITE_NS);
    close_side(&s);
}

/* Events do not fire: the measurement ends, changes nothing, and abandons memory with DMAs in
 * flight, which complete later. */
static void a_measurement_does_not_end(void **state)
{
    struct rme_rdma_seg_costs costs = {11, 22, 33};
    struct side s;

    (void)state;
    open_side(&s, NULL, "");
    assert_int_equal(elan4_block_inputter(s.f->nic->ctx, 1), 0);
    clock_stop();
    for (int i = 0; i < 2; i++) {
        uint64_t start = rme_now();
        clock_look_takes(1000000);
        assert_false(ops->measure(s.f, &costs));
        clock_look_takes(0);
        assert_in_range(rme_now() - start, 50, 60);
        assert_int_equal(costs.segment_ns, 11);
        assert_int_equal(costs.request_ns, 22);
        assert_int_equal(costs.read_ns, 33);
    }
    clock_run();
    int64_t before = counter("dma_write");
    assert_int_equal(elan4_block_inputter(s.f->nic->ctx, 0), 0);
    until_counted(&s, &s, "dma_write", before + 2);
    assert_int_equal(atomic_load(&s.f->nic->traps), 0);
    close_side(&s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_measured),
        cmocka_unit_test(a_measurement_does_not_end),
    };

    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
