/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended reliable connections: domains that processes share by an inode, shared receive
 * queues (SRQs) that requests name by number, and which side gets errors. In one process;
 * test_xrc_peers has two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>

#include "tests/emul/xrc.h"

#define SIMM IBV_WR_SEND_WITH_IMM

TEST(domain_belongs_to_inode)
{
    struct side s = {0};
    struct ibv_xrcd_init_attr half = {.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1};

    side_open(&s);
    CHECK(!ibv_open_xrcd(s.ctx, &half) && errno == EINVAL);
    CHECK(!domain(&s, 1000, O_CREAT) && errno == EBADF);
    CHECK(!domain(&s, -1, 0) && errno == EINVAL);
    CHECK(!domain(&s, -1, O_CREAT | O_APPEND) && errno == EINVAL);
    CHECK(!domain_of(&s, xrc_inode, 0) && errno == EAGAIN);
    struct ibv_xrcd *a = domain_of(&s, xrc_inode, O_CREAT | O_EXCL);
    CHECK(a);
    CHECK(!domain_of(&s, xrc_inode, O_CREAT | O_EXCL) && errno == EINVAL);
    struct ibv_xrcd *b = domain_of(&s, xrc_inode, 0);
    CHECK(b);
    CHECK(!domain_of(&s, "/", 0) && errno == EAGAIN); /* another inode */
    struct ibv_qp *qp = receiver(&s, a);
    CHECK(qp);
    CHECK_EQ(ibv_close_xrcd(a), EBUSY);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    struct ibv_srq *q = shared_queue(&s, a);
    CHECK(q);
    CHECK_EQ(ibv_close_xrcd(a), EBUSY);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    CHECK_EQ(ibv_close_xrcd(a), 0);
    a = domain_of(&s, xrc_inode, 0); /* not closed by the last user yet */
    CHECK(a);
    CHECK_EQ(ibv_close_xrcd(a), 0);
    CHECK_EQ(ibv_close_xrcd(b), 0);
    CHECK(!domain_of(&s, xrc_inode, 0) && errno == EAGAIN);
    CHECK_EQ(counter("live_xrcd"), 0);
    side_close(&s);
}

TEST(invalid_xrc_objects_refused)
{
    struct side s = {0}, other = {0};
    struct xrc x = {0};
    struct ibv_qp_init_attr plain = {.qp_type = IBV_QPT_XRC_RECV};
    struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = 1},
                                     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
                                     .srq_type = IBV_SRQT_XRC};
    struct ibv_srq_init_attr basic = {.attr = {.max_wr = 1}};
    struct ibv_recv_wr rwr = {0}, *rbad;
    struct ibv_send_wr swr = {0}, *sbad;
    struct ibv_device_attr dev;
    uint32_t number;

    loop(&x, &s, 7);
    side_open(&other);
    CHECK_EQ(ibv_query_device(s.ctx, &dev), 0);
    CHECK(dev.device_cap_flags & IBV_DEVICE_XRC);
    a.pd = s.pd;
    CHECK(!ibv_create_srq_ex(s.ctx, &a) && errno == EINVAL);
    CHECK(!shared_queue(&other, x.domain) && errno == EINVAL);
    a.srq_type = IBV_SRQT_TM;
    CHECK(!ibv_create_srq_ex(s.ctx, &a) && errno == EOPNOTSUPP);
    CHECK(!receiver(&other, x.domain) && errno == EINVAL);
    plain.send_cq = plain.recv_cq = s.scq;
    CHECK(!ibv_create_qp(s.pd, &plain) && errno == EINVAL);
    plain.qp_type = IBV_QPT_XRC_SEND;
    plain.srq = x.srq;
    CHECK(!ibv_create_qp(s.pd, &plain) && errno == EINVAL);
    CHECK(!sender(&s, IBV_QP_EX_WITH_SEND_WITH_INV) && errno == EOPNOTSUPP);
    struct ibv_srq *q = ibv_create_srq(s.pd, &basic);
    CHECK(q);
    CHECK_EQ(ibv_get_srq_num(q, &number), EINVAL);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    /* one half receives nothing, the other sends nothing */
    CHECK_EQ(ibv_post_recv(x.sends, &rwr, &rbad), EINVAL);
    CHECK_EQ(ibv_post_recv(x.receives, &rwr, &rbad), EINVAL);
    swr.opcode = IBV_WR_SEND;
    CHECK_EQ(ibv_post_send(x.receives, &swr, &sbad), EINVAL);
    CHECK_EQ(try_request(&x, 1, IBV_WR_SEND_WITH_INV, 8, 0), EINVAL);
    CHECK_EQ(ibv_destroy_cq(s.rcq), EBUSY); /* used by the SRQ */
    CHECK_EQ(ibv_dealloc_pd(s.pd), EBUSY);
    side_close(&other);
    xrc_close(&x);
}

TEST(requests_of_all_kinds)
{
    struct side s = {0};
    struct xrc x = {0};
    uint64_t word = 40;

    loop(&x, &s, 7);
    for (uint32_t i = 0; i < 10 * PLACES; i++) { /* places are free again after polling */
        uint32_t len = i % 2 ? 4096 : 64;
        memset(s.buf + 8192, 0, 4096);
        post(&x, i, 8192, 4096);
        request(&x, i, i % 3 ? SEND : SIMM, len, 0, IBV_WC_SUCCESS);
        struct ibv_wc wc = expect_wc(s.rcq, i, IBV_WC_SUCCESS);
        CHECK_EQ(wc.byte_len, len);
        CHECK_EQ(wc.qp_num, x.receives->qp_num);
        CHECK_EQ(wc.src_qp, x.sends->qp_num);
        CHECK_EQ(wc.wc_flags, i % 3 ? 0 : IBV_WC_WITH_IMM);
        CHECK(is_pattern(s.buf + 8192, len, 9));
    }
    request(&x, 1, WRITE, 4096, 16384, IBV_WC_SUCCESS);
    CHECK(is_pattern(s.buf + 16384, 4096, 9));
    post(&x, 2, 8192, 4096);
    request(&x, 2, WIMM, 100, 32768, IBV_WC_SUCCESS);
    CHECK_EQ(expect_wc(s.rcq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(is_pattern(s.buf + 32768, 100, 9));
    memset(s.buf, 0, 100);
    request(&x, 3, READ, 100, 32768, IBV_WC_SUCCESS);
    CHECK(is_pattern(s.buf, 100, 9));
    memcpy(s.buf + 65536, &word, 8);
    request(&x, 4, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 65536, IBV_WC_SUCCESS);
    CHECK_EQ(*(uint64_t *)(void *)s.buf, 40);
    CHECK_EQ(*(uint64_t *)(void *)(s.buf + 65536), 45);
    expect_none(s.rcq);
    xrc_close(&x);
}

/* Takes a half through its states with RC's attributes; those of `not_meant` have values that
 * the other half would refuse. */
static void walk(struct ibv_qp *qp, uint32_t dest, struct ibv_qp_attr a, int not_meant)
{
    static const struct {
        enum ibv_qp_state to;
        int mask;
    } step[] = {
        {IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
        {IBV_QPS_INIT, 0},
        {IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
        {IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC},
        {IBV_QPS_RTS, 0},
        {IBV_QPS_SQD, 0},
        {IBV_QPS_SQD, 0},
        {IBV_QPS_RTS, 0},
        {IBV_QPS_ERR, 0},
    };

    a.port_num = a.ah_attr.port_num = 1;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = dest;
    for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
        a.qp_state = step[i].to;
        CHECK_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | step[i].mask | not_meant), 0);
        CHECK_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_QKEY), EINVAL);
    }
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

TEST(attributes_of_rc_are_taken)
{
    struct side s = {0};
    struct xrc x = {0};

    xrc_open(&x, &s);
    struct ibv_qp *sends = sender(&s, 0), *receives = receiver(&s, x.domain);
    CHECK(sends && receives);
    walk(sends, receives->qp_num,
         (struct ibv_qp_attr){.max_dest_rd_atomic = 255, .min_rnr_timer = 255},
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    walk(receives, 1,
         (struct ibv_qp_attr){.max_rd_atomic = 255, .retry_cnt = 255, .rnr_retry = 255},
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    xrc_close(&x);
}

TEST(srq_number_chooses_queue)
{
    struct side s = {0};
    struct xrc x = {0};
    uint32_t second;

    loop(&x, &s, 0);
    struct ibv_srq *q = shared_queue(&s, x.domain);
    CHECK(q);
    CHECK_EQ(ibv_get_srq_num(q, &second), 0);
    CHECK(second != x.to);
    for (uint64_t i = 0; i < PLACES; i++) {
        CHECK_EQ(try_post(q, &s, 100 + i, 8192, 64), 0);
        post(&x, i, 4096, 64);
    }
    for (uint64_t i = 0; i < PLACES; i++) {
        x.to = second;
        request(&x, 1, SEND, 64, 0, IBV_WC_SUCCESS);
        expect_wc(s.rcq, 100 + i, IBV_WC_SUCCESS);
        x.to = x.number;
        request(&x, 1, SEND, 64, 0, IBV_WC_SUCCESS);
        expect_wc(s.rcq, i, IBV_WC_SUCCESS);
    }
    CHECK_EQ(try_post(q, &s, 9, 8192, 64), 0);
    request(&x, 2, SEND, 64, 0, IBV_WC_RNR_RETRY_EXC_ERR); /* the other SRQ has a receive */
    expect_none(s.rcq);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    xrc_close(&x);
}

/* Sends one message to an SRQ number that must be refused. */
static void refused(struct xrc *x, uint32_t to)
{
    x->to = to;
    request(x, 1, SEND, 64, 0, IBV_WC_REM_INV_REQ_ERR);
    expect_failed(x, IBV_EVENT_QP_REQ_ERR);
    expect_none(x->s->rcq);
}

TEST(unused_srq_number_refused)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    refused(&x, x.number ^ 1);
    xrc_close(&x);
}

TEST(srq_number_of_no_process_refused)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    refused(&x, x.number ^ 1023 << 11);
    xrc_close(&x);
}

/* Two sending QPs are connected to each other: no answer comes. */
TEST(sending_qp_answers_nothing)
{
    struct side s = {0};
    struct xrc x = {0};

    xrc_open(&x, &s);
    x.sends = sender(&s, 0);
    x.receives = sender(&s, 0);
    CHECK(x.sends && x.receives);
    join(x.receives, x.sends->qp_num, 0);
    join(x.sends, x.receives->qp_num, 0);
    post(&x, 1, 4096, 64);
    request(&x, 1, SEND, 64, 0, IBV_WC_RETRY_EXC_ERR);
    expect_none(s.rcq);
    xrc_close(&x);
}

TEST(destroyed_srq_refused)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    post(&x, 1, 4096, 64);
    CHECK_EQ(ibv_destroy_srq(x.srq), 0);
    x.srq = NULL;
    refused(&x, x.to);
    xrc_close(&x);
}

TEST(srq_of_other_domain_refused)
{
    struct side s = {0};
    struct xrc x = {0};
    uint32_t number;

    loop(&x, &s, 7);
    struct ibv_xrcd *own = domain(&s, -1, O_CREAT), *other = domain(&s, -1, O_CREAT);
    CHECK(own && other);
    struct ibv_srq *q = shared_queue(&s, own);
    CHECK(q);
    CHECK_EQ(ibv_get_srq_num(q, &number), 0);
    CHECK_EQ(try_post(q, &s, 1, 0, 64), 0);
    refused(&x, number);
    /* nor do two domains without an inode match */
    CHECK_EQ(ibv_destroy_qp(x.receives), 0);
    CHECK_EQ(ibv_destroy_qp(x.sends), 0);
    x.receives = receiver(&s, other);
    x.sends = sender(&s, 0);
    join(x.receives, x.sends->qp_num, 0);
    join(x.sends, x.receives->qp_num, 7);
    refused(&x, number);
    CHECK_EQ(ibv_destroy_qp(x.receives), 0);
    x.receives = NULL;
    CHECK_EQ(ibv_destroy_srq(q), 0);
    CHECK_EQ(ibv_close_xrcd(own), 0);
    CHECK_EQ(ibv_close_xrcd(other), 0);
    xrc_close(&x);
}

/* Memory must be in the SRQ's protection domain: the receiving QP has none. */
TEST(memory_of_another_protection_domain)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    struct ibv_pd *pd = ibv_alloc_pd(s.ctx);
    CHECK(pd);
    struct ibv_mr *mr =
        ibv_reg_mr(pd, s.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(mr);
    struct side there = s;
    there.pd = pd;
    struct ibv_srq *q = shared_queue(&there, x.domain);
    CHECK(q);
    CHECK_EQ(ibv_get_srq_num(q, &x.to), 0);
    s.rkey = mr->rkey;
    request(&x, 1, WRITE, 64, 0, IBV_WC_SUCCESS); /* for any domain of the sender */
    x.to = x.number;
    request(&x, 1, WRITE, 64, 0, IBV_WC_REM_ACCESS_ERR);
    expect_failed(&x, IBV_EVENT_QP_ACCESS_ERR);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    xrc_close(&x);
}

TEST(completions_outlive_the_queue_pair)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    post(&x, 1, 8192, 4096);
    post(&x, 2, 8192, 4096);
    request(&x, 1, SEND, 4096, 0, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_destroy_qp(x.receives), 0);
    x.receives = NULL;
    expect_wc(s.rcq, 1, IBV_WC_SUCCESS);
    CHECK(is_pattern(s.buf + 8192, 4096, 9));
    expect_none(s.rcq); /* the other receive stays in the queue */
    xrc_close(&x);
}

/* A completion of a destroyed SRQ frees no place of its successor. */
TEST(places_are_not_mixed_up)
{
    struct side s = {0};
    struct xrc x = {0};
    uint32_t second;

    loop(&x, &s, 7);
    post(&x, 1, 8192, 64);
    post(&x, 2, 8192, 64);
    request(&x, 1, SEND, 64, 0, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_destroy_srq(x.srq), 0);
    for (int i = 0; i < 2048; i++) { /* until one has the same number */
        x.srq = shared_queue(&s, x.domain);
        CHECK(x.srq);
        CHECK_EQ(ibv_get_srq_num(x.srq, &second), 0);
        if (second == x.number)
            break;
        CHECK_EQ(ibv_destroy_srq(x.srq), 0);
    }
    CHECK_EQ(second, x.number);
    for (uint64_t i = 0; i < PLACES; i++)
        post(&x, 10 + i, 8192, 64);
    expect_wc(s.rcq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(try_post(x.srq, &s, 20, 8192, 64), ENOMEM);
    for (uint64_t i = 0; i < PLACES; i++) { /* receives of the first one are gone */
        request(&x, 2, SEND, 64, 0, IBV_WC_SUCCESS);
        expect_wc(s.rcq, 10 + i, IBV_WC_SUCCESS);
    }
    xrc_close(&x);
}

TEST(requests_by_the_other_interface)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    CHECK_EQ(ibv_destroy_qp(x.sends), 0);
    x.sends = sender(&s, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
    CHECK(x.sends);
    CHECK_EQ(ibv_destroy_qp(x.receives), 0);
    x.receives = receiver(&s, x.domain);
    join(x.receives, x.sends->qp_num, 0);
    join(x.sends, x.receives->qp_num, 7);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(x.sends);
    CHECK(ex);
    post(&x, 5, 8192, 64);
    ibv_wr_start(ex);
    ex->wr_id = 6;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_xrc_srqn(ex, x.number);
    ibv_wr_set_sge(ex, s.mr->lkey, (uintptr_t)s.buf, 64);
    CHECK_EQ(ibv_wr_complete(ex), 0);
    expect_wc(s.scq, 6, IBV_WC_SUCCESS);
    expect_wc(s.rcq, 5, IBV_WC_SUCCESS);
    CHECK(is_pattern(s.buf + 8192, 64, 9));
    xrc_close(&x);
}

#define T(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    run_under_emuverbs(argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]); /* a pattern: run only these tests */
    const struct CMUnitTest tests[] = {
        T(domain_belongs_to_inode),
        T(invalid_xrc_objects_refused),
        T(requests_of_all_kinds),
        T(attributes_of_rc_are_taken),
        T(srq_number_chooses_queue),
        T(unused_srq_number_refused),
        T(srq_number_of_no_process_refused),
        T(sending_qp_answers_nothing),
        T(destroyed_srq_refused),
        T(srq_of_other_domain_refused),
        T(memory_of_another_protection_domain),
        T(completions_outlive_the_queue_pair),
        T(places_are_not_mixed_up),
        T(requests_by_the_other_interface),
    };
    return cmocka_run_group_tests(tests, xrc_make_inode, xrc_remove_inode);
}
