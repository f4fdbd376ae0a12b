/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests that wait in a send queue, while it is drained and while requests are being built;
 * and their completions. */

#include "tests/emul/pair.h"

static void to_state(struct side *s, enum ibv_qp_state state, bool notify)
{
    struct ibv_qp_attr a = {.qp_state = state, .en_sqd_async_notify = notify};

    CHECK_EQ(ibv_modify_qp(s->qp, &a, IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)),
             0);
}

static bool is_draining(struct side *s)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;

    CHECK_EQ(ibv_query_qp(s->qp, &a, IBV_QP_STATE, &i), 0);
    CHECK_EQ(a.qp_state, IBV_QPS_SQD);
    return a.sq_draining;
}

/* A send without a receive is retried, and requests behind it do not start. */
LOOP(retried_send_is_drained)
{
    post_send(a, 1, SEND, 0, 64, 0);
    to_state(a, IBV_QPS_SQD, true);
    post_send(a, 2, WRITE, 0, 64, 0);
    while (counter("rnr_events") < 20) /* the first one's timer expires repeatedly */
        expect_none(a->scq);
    CHECK(!readable(a->ctx->async_fd, 0));
    CHECK(is_draining(a));
    post_recv(b, 3, 0, 64);
    expect_wc(b->rcq, 3, IBV_WC_SUCCESS);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    expect_async(a, IBV_EVENT_SQ_DRAINED, a->qp);
    CHECK(!is_draining(a));
    expect_none(a->scq);
    to_state(a, IBV_QPS_RTS, false);
    expect_wc(a->scq, 2, IBV_WC_SUCCESS);
    CHECK(!readable(a->ctx->async_fd, 0)); /* raised once */
}

/* The event comes when the read in progress is complete. */
LOOP(read_in_flight_is_drained, .a = {.rd_depth = 1}, .b = {.rd_depth = 1},
     .env = "EMUVERBS_READ_DELAY_US=300000")
{
    clock_stop();
    post_send(a, 1, READ, 0, 64, 0);
    post_send(a, 2, READ, 0, 64, 0); /* not started, because of the depth */
    to_state(a, IBV_QPS_SQD, true);
    clock_step_ms(299);
    CHECK(!readable(a->ctx->async_fd, 0));
    CHECK(is_draining(a));
    clock_step_ms(1);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    expect_async(a, IBV_EVENT_SQ_DRAINED, a->qp);
    CHECK(!is_draining(a));
    clock_step_ms(400);
    expect_none(a->scq);
    to_state(a, IBV_QPS_RTS, false);
    expect_none(a->scq);
    clock_step_ms(300);
    expect_wc(a->scq, 2, IBV_WC_SUCCESS);
}

/* No event without the flag, and no wait without requests in progress. */
LOOP(empty_queue_is_drained_immediately)
{
    to_state(a, IBV_QPS_SQD, false);
    CHECK(!readable(a->ctx->async_fd, 0));
    to_state(a, IBV_QPS_RTS, false);
    to_state(a, IBV_QPS_SQD, true);
    expect_async(a, IBV_EVENT_SQ_DRAINED, a->qp);
}

/* A thread polls between ibv_wr_start() and ibv_wr_complete(), while a send waits. */
LOOP(poll_while_requests_are_built, .a = {.send_ops = IBV_QP_EX_WITH_SEND},
     .b = {.min_rnr_timer = 1})
{
    struct ibv_qp_ex *ex = a->qp_ex;

    for (uint64_t i = 0; i < 8; i++) {
        ibv_wr_start(ex);
        ex->wr_id = i;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, a->mr->lkey, (uintptr_t)a->buf, 64);
        for (int k = 0; k < 20; k++) {
            clock_step_ms(1); /* the timer of earlier requests expires */
            expect_none(a->scq);
        }
        CHECK_EQ(ibv_wr_complete(ex), 0);
    }
    for (uint64_t i = 0; i < 8; i++)
        post_recv(b, i, 0, 64);
    clock_step_ms(1000);
    for (uint64_t i = 0; i < 8; i++) {
        expect_wc(a->scq, i, IBV_WC_SUCCESS);
        expect_wc(b->rcq, i, IBV_WC_SUCCESS);
    }
}

/* Completions of a destroyed or reset QP use no room in the CQ. */
LOOP(completions_of_destroyed_qp_free_slots, .a = {.cqe = 4, .max_wr = 4})
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < 4; i++)
            post_send(a, i, WRITE, 0, 8, 0);
        if (round % 2)
            CHECK_EQ(ibv_modify_qp(a->qp, &reset, IBV_QP_STATE), 0);
        else
            renew_qp(a, IBV_QPT_RC);
        join_anew(a, b);
        for (unsigned i = 0; i < 4; i++)
            post_send(a, 10 + i, WRITE, 0, 8, 0);
        for (unsigned i = 0; i < 4; i++)
            expect_wc(a->scq, 10 + i, IBV_WC_SUCCESS);
        expect_none(a->scq);
        CHECK_EQ(qp_state(a), IBV_QPS_RTS);
    }
    CHECK_EQ(counter("cq_overruns"), 0);
}

/* Completions of other QPs stay, in order, and the freed places are usable. */
LOOP(completions_of_other_qps_stay, .a = {.cqe = 16, .max_wr = 16})
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

    struct side c = *a;
    c.qp = new_qp(a, IBV_QPT_RC, 16);
    CHECK_EQ(qp_init(&c), 0);
    CHECK_EQ(qp_rtr(&c, c.qp->qp_num), 0);
    CHECK_EQ(qp_rts(&c), 0);
    c.raddr = (uintptr_t)c.buf;
    c.rkey = c.mr->rkey;
    for (unsigned which = 1; which < 255; which++) { /* a bit for each: which QP's */
        unsigned mine = 0;
        for (unsigned i = 0; i < 8; i++)
            post_send(which >> i & 1 ? a : &c, i, WRITE, 0, 8, 0);
        CHECK_EQ(ibv_modify_qp(a->qp, &reset, IBV_QP_STATE), 0);
        join_anew(a, b);
        for (unsigned i = 0; i < 8; i++)
            mine += which >> i & 1;
        for (unsigned i = 0; i < 8 + mine; i++)
            post_send(a, 100 + i, WRITE, 0, 8, 0);
        for (unsigned i = 0; i < 8; i++)
            if (!(which >> i & 1))
                CHECK_EQ(expect_wc(a->scq, i, IBV_WC_SUCCESS).qp_num, c.qp->qp_num);
        for (unsigned i = 0; i < 8 + mine; i++)
            CHECK_EQ(expect_wc(a->scq, 100 + i, IBV_WC_SUCCESS).qp_num, a->qp->qp_num);
        expect_none(a->scq);
    }
    CHECK_EQ(counter("cq_overruns"), 0);
    CHECK_EQ(ibv_destroy_qp(c.qp), 0);
}
