/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Completion queues of the software HCA: the time of completions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <time.h>

#include "tests/emul/pair.h"

#define RAW  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
#define WALL IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;

    CHECK_EQ(clock_gettime(id, &ts), 0);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Puts an extended queue in the place of one that the QP does not use yet. */
static struct ibv_cq_ex *extended(struct side *s, uint64_t wc_flags)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = wc_flags};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(s->ctx, &attr);

    CHECK(ex);
    struct ibv_qp_init_attr qi = {.send_cq = ibv_cq_ex_to_cq(ex),
                                  .recv_cq = s->rcq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {16, 16, 1, 1, 0}};
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    CHECK_EQ(ibv_destroy_cq(s->scq), 0);
    s->scq = ibv_cq_ex_to_cq(ex);
    s->qp = ibv_create_qp(s->pd, &qi);
    CHECK(s->qp);
    CHECK_EQ(qp_init(s), 0);
    return ex;
}

static void joined(struct side *a, struct side *b)
{
    CHECK_EQ(qp_rtr(a, b->qp->qp_num), 0);
    CHECK_EQ(qp_rtr(b, a->qp->qp_num), 0);
    CHECK_EQ(qp_rts(a), 0);
    CHECK_EQ(qp_rts(b), 0);
    a->raddr = (uintptr_t)b->buf;
    a->rkey = b->mr->rkey;
}

/* Each completion tells when it came, not when it was polled, on the device's clock. */
TEST(completions_tell_when_they_came)
{
    struct side a = {0}, b = {0};
    struct ibv_poll_cq_attr none = {0};
    uint64_t t[4], wall[4];

    side_open(&a);
    side_open(&b);
    struct ibv_cq_ex *ex = extended(&a, IBV_WC_STANDARD_FLAGS | RAW | WALL);
    joined(&a, &b);
    for (int i = 0; i < 3; i++) {
        t[i] = clock_ns(CLOCK_MONOTONIC);
        wall[i] = clock_ns(CLOCK_REALTIME);
        post_send(&a, (uint64_t)i, WRITE, 0, 8, 0);
        usleep(1000);
    }
    t[3] = clock_ns(CLOCK_MONOTONIC);
    wall[3] = clock_ns(CLOCK_REALTIME);
    CHECK_EQ(ibv_start_poll(ex, &none), 0);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(ex->wr_id, i);
        CHECK_EQ(ex->status, IBV_WC_SUCCESS);
        CHECK(ibv_wc_read_completion_ts(ex) >= t[i] &&
              ibv_wc_read_completion_ts(ex) <= t[i + 1]);
        /* the two clocks are read one after the other, by a process that may be held up */
        uint64_t w = ibv_wc_read_completion_wallclock_ns(ex);
        CHECK(w + 20000000000 > wall[i] && w < wall[i + 1] + 20000000000);
        CHECK_EQ(ibv_next_poll(ex), i < 2 ? 0 : ENOENT);
    }
    ibv_end_poll(ex);
    side_close(&a);
    side_close(&b);
}

/* The clock and its unit can be asked. */
TEST(the_clock_can_be_asked)
{
    struct side a = {0};
    struct ibv_device_attr_ex attr;
    struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

    side_open(&a);
    CHECK_EQ(ibv_query_device_ex(a.ctx, NULL, &attr), 0);
    CHECK_EQ(attr.hca_core_clock, 1000000); /* kHz */
    CHECK(attr.completion_timestamp_mask == UINT64_MAX);
    uint64_t before = clock_ns(CLOCK_MONOTONIC);
    CHECK_EQ(ibv_query_rt_values_ex(a.ctx, &v), 0);
    uint64_t told = (uint64_t)v.raw_clock.tv_sec * 1000000000 + (uint64_t)v.raw_clock.tv_nsec;
    CHECK_EQ(v.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    CHECK(told >= before && told <= clock_ns(CLOCK_MONOTONIC));
    v.comp_mask = 0;
    CHECK_EQ(ibv_query_rt_values_ex(a.ctx, &v), 0);
    CHECK_EQ(v.comp_mask, 0);
    side_close(&a);
}

TEST(what_an_extended_queue_has_not_is_refused)
{
    struct side a = {0};

    side_open(&a);
    struct ibv_cq_init_attr_ex attr = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_TM_INFO};
    CHECK(!ibv_create_cq_ex(a.ctx, &attr));
    CHECK_EQ(errno, EOPNOTSUPP);
    attr = (struct ibv_cq_init_attr_ex){.cqe = 4,
                                        .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                        .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
    CHECK(!ibv_create_cq_ex(a.ctx, &attr));
    CHECK_EQ(errno, EOPNOTSUPP);
    attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    struct ibv_cq_ex *ex = ibv_create_cq_ex(a.ctx, &attr);
    CHECK(ex);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
    side_close(&a);
}

#define T(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    run_under_emuverbs(argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]); /* a pattern: only these tests */
    const struct CMUnitTest tests[] = {
        T(completions_tell_when_they_came),
        T(the_clock_can_be_asked),
        T(what_an_extended_queue_has_not_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
