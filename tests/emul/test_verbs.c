/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Conformance of the software HCA: data, queues, states, errors, events. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/emul/files.h"
#include "tests/emul/pair.h"

LOOP(every_size_arrives_by_send_write_read)
{
    static const uint32_t sizes[] = {0, 1, 7, 64, 255, 256, 4095, 4096, 4097, 65536, 300000};

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t n = sizes[i];
        pattern(a->buf, n, i);
        post_recv(b, 100 + i, 0, n);
        post_send(a, i, SEND, 0, n, 0);
        CHECK_EQ(expect_wc(a->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        struct ibv_wc wc = expect_wc(b->rcq, 100 + i, IBV_WC_SUCCESS);
        CHECK_EQ(wc.opcode, IBV_WC_RECV);
        CHECK_EQ(wc.byte_len, n);
        CHECK_EQ(wc.qp_num, b->qp->qp_num);
        CHECK_EQ(wc.src_qp, a->qp->qp_num);
        CHECK_EQ(wc.wc_flags, 0);
        CHECK(is_pattern(b->buf, n, i));

        pattern(a->buf, n, i + 50);
        post_send(a, i, WRITE, 0, n, 400000);
        CHECK_EQ(expect_wc(a->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
        CHECK(is_pattern(b->buf + 400000, n, i + 50));

        memset(a->buf, 0, n);
        post_send(a, i, READ, 0, n, 400000);
        CHECK_EQ(expect_wc(a->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_READ);
        CHECK(is_pattern(a->buf, n, i + 50));
    }
}

LOOP(receive_queue_overflow, .b = {.max_wr = 4})
{
    struct ibv_recv_wr wr = {.wr_id = 9}, *bad;

    for (unsigned i = 0; i < 4; i++)
        post_recv(b, i, 0, 64);
    CHECK_EQ(ibv_post_recv(b->qp, &wr, &bad), ENOMEM);
    CHECK(bad == &wr);
    post_send(a, 1, SEND, 0, 8, 0);
    CHECK_EQ(ibv_post_recv(b->qp, &wr, &bad), ENOMEM); /* its completion is not polled yet */
    expect_wc(b->rcq, 0, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_post_recv(b->qp, &wr, &bad), 0);
}

LOOP(rnr_retry_count_is_kept, .a = {.rnr_retry = 3}, .b = {.min_rnr_timer = 1})
{
    post_send(a, 1, SEND, 0, 8, 0);
    expect_wc(a->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK_EQ(counter("rnr_events"), 4);
}

LOOP(queued_work_proceeds_while_program_sleeps, .a = {.use_chan = true})
{
    CHECK_EQ(ibv_req_notify_cq(a->scq, 0), 0);
    post_send(a, 1, SEND, 0, 8, 0);
    post_send(a, 2, WRITE, 0, 8, 0);  /* waits behind it */
    while (counter("rnr_events") < 3) /* the service thread retries */
        sched_yield();
    CHECK(!readable(a->chan->fd, 0));
    post_recv(b, 5, 0, 64);
    CHECK(take_event(a->chan) == a->scq); /* without a poll the service thread must retry */
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    expect_wc(a->scq, 2, IBV_WC_SUCCESS);
}

LOOP(fence_waits_for_reads, .env = "EMUVERBS_READ_DELAY_US=200000")
{
    clock_stop();
    memset(b->buf, 1, 8);
    memset(a->buf + 4096, 2, 8);
    post_recv(b, 50, 8192, 64);
    post_recv(b, 51, 8192, 64);
    post_send(a, 1, READ, 0, 8, 0);
    post_send(a, 2, WRITE, 4096, 8, 0); /* overwrites data that the read has not fetched yet */
    post_send(a, 3, SEND, 0, 8, 0);
    CHECK_EQ(b->buf[0], 2);
    expect_wc(b->rcq, 50, IBV_WC_SUCCESS); /* arrived while the read is outstanding */
    expect_none(a->scq);                   /* but completions stay in order */
    CHECK_EQ(try_send(a, 4, SEND, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE, 0, 0), 0);
    clock_step_ms(199);
    expect_none(b->rcq);
    expect_none(a->scq);
    clock_step_ms(1);
    expect_wc(a->scq, 1, IBV_WC_SUCCESS);
    expect_wc(a->scq, 2, IBV_WC_SUCCESS);
    expect_wc(a->scq, 3, IBV_WC_SUCCESS);
    expect_wc(a->scq, 4, IBV_WC_SUCCESS);
    CHECK_EQ(a->buf[0], 2); /* proves that the read was late */
    expect_wc(b->rcq, 51, IBV_WC_SUCCESS);
}

LOOP(read_depth_holds_back_what_is_behind, .a = {.rd_depth = 2}, .b = {.rd_depth = 2},
     .env = "EMUVERBS_READ_DELAY_US=100000 EMUVERBS_READ_REVERSE=1")
{
    clock_stop();
    pattern(b->buf, 4096, 5);
    post_recv(b, 50, 8192, 64);
    for (unsigned i = 0; i < 6; i++)
        post_send(a, i, READ, 512 * i, 512, 512 * i);
    post_send(a, 6, SEND, 0, 8, 0);
    for (unsigned i = 0; i < 6; i += 2) {
        expect_none(a->scq);
        if (i < 4)
            expect_none(b->rcq); /* the send waits behind reads that have not started */
        else
            expect_wc(b->rcq, 50, IBV_WC_SUCCESS);
        clock_step_ms(100);
        expect_wc(a->scq, i, IBV_WC_SUCCESS);
        expect_wc(a->scq, i + 1, IBV_WC_SUCCESS);
    }
    expect_wc(a->scq, 6, IBV_WC_SUCCESS);
    CHECK(is_pattern(a->buf, 3072, 5));
}

LOOP(read_depth_zero_cannot_read, .a = {.rd_depth = -1}, .b = {.rd_depth = -1})
{
    post_send(a, 1, READ, 0, 8, 0);
    expect_wc(a->scq, 1, IBV_WC_LOC_QP_OP_ERR);
    struct ibv_qp_attr at = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_INIT};
    CHECK_EQ(ibv_modify_qp(b->qp, &at, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
    at.qp_state = IBV_QPS_RESET;
    CHECK_EQ(ibv_modify_qp(b->qp, &at, IBV_QP_STATE), 0);
    b->rd_depth = 200; /* more than the device has */
    CHECK_EQ(qp_init(b), 0);
    CHECK_EQ(qp_rtr(b, a->qp->qp_num), EINVAL);
}

/* The calls ibv_wr_* of each kind, in one batch; what is begun and aborted is not posted. */
#define ALL_OPS                                                                                \
    (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |     \
     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |                 \
     IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV)

LOOP(extended_post_interface,
     .a = {.access = RIGHTS | IBV_ACCESS_MW_BIND, .qp_access = QP_RIGHTS, .send_ops = ALL_OPS},
     .b = {.access = RIGHTS, .qp_access = QP_RIGHTS})
{
    struct ibv_qp_ex *ex = a->qp_ex;
    uint64_t word = 5, got[2];

    CHECK(!ibv_qp_to_qp_ex(b->qp));
    post_recv(b, 1, 0, 64);
    post_recv(b, 2, 0, 64);
    pattern(a->buf, 64, 1);
    memcpy(b->buf + 8192, &word, 8);
    struct ibv_mw *mw = ibv_alloc_mw(a->pd, IBV_MW_TYPE_2);
    CHECK(mw);
    struct ibv_mw_bind_info info = {a->mr, (uintptr_t)a->buf, 4096, IBV_ACCESS_REMOTE_WRITE};
    uint32_t key = ibv_inc_rkey(mw->rkey);
    ibv_wr_start(ex);
    ex->wr_id = 10;
    ex->wr_flags = 0;
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, a->mr->lkey, (uintptr_t)a->buf, 64);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ex->wr_id = 11;
    ibv_wr_rdma_write_imm(ex, b->mr->rkey, (uintptr_t)b->buf + 4096, 7);
    ibv_wr_set_inline_data(ex, "hello", 5);
    ex->wr_id = 12;
    ibv_wr_atomic_fetch_add(ex, b->mr->rkey, (uintptr_t)b->buf + 8192, 3);
    ibv_wr_set_sge(ex, a->mr->lkey, (uintptr_t)a->buf + 8192, 8);
    ex->wr_id = 13;
    ibv_wr_atomic_cmp_swp(ex, b->mr->rkey, (uintptr_t)b->buf + 8192, 8, 77);
    ibv_wr_set_sge(ex, a->mr->lkey, (uintptr_t)a->buf + 8200, 8);
    ex->wr_id = 14;
    ibv_wr_bind_mw(ex, mw, key, &info);
    CHECK_EQ(ibv_wr_complete(ex), 0);
    for (uint64_t id = 11; id <= 14; id++)
        expect_wc(a->scq, id, IBV_WC_SUCCESS);
    expect_wc(b->rcq, 1, IBV_WC_SUCCESS);
    CHECK_EQ(expect_wc(b->rcq, 2, IBV_WC_SUCCESS).imm_data, 7);
    CHECK(is_pattern(b->buf, 64, 1));
    CHECK(memcmp(b->buf + 4096, "hello", 5) == 0);
    memcpy(got, a->buf + 8192, sizeof(got));
    memcpy(&word, b->buf + 8192, 8);
    CHECK(got[0] == 5 && got[1] == 8 && word == 77);
    post_to(b, 3, WRITE, 0, 64, (uintptr_t)a->buf, key);
    expect_wc(b->scq, 3, IBV_WC_SUCCESS);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    expect_none(a->scq);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, a->buf, 65);
    CHECK_EQ(ibv_wr_complete(ex), EINVAL);
    ibv_wr_start(ex);
    ibv_wr_bind_mw(ex, NULL, key, &info);
    CHECK_EQ(ibv_wr_complete(ex), EINVAL);
    post_recv(b, 3, 0, 64);
    ibv_wr_start(ex);
    ex->wr_id = 15;
    ibv_wr_local_inv(ex, key);
    ex->wr_id = 16;
    ibv_wr_send_inv(ex, key); /* nothing of the peer's */
    CHECK_EQ(ibv_wr_complete(ex), 0);
    expect_wc(a->scq, 15, IBV_WC_SUCCESS);
    expect_wc(a->scq, 16, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

static struct side *failing;

/* Handles the fault at an attribute structure: fails the QP before the rest is read. */
static void fail_it(int signal, siginfo_t *info, void *context)
{
    void *page = (void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);
    (void)signal, (void)context;

    CHECK_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
    post_to(failing, 1, WRITE, 0, 16, failing->raddr, failing->rkey ^ 0x80000000);
    expect_wc(failing->scq, 1, IBV_WC_REM_ACCESS_ERR);
}

/* A QP that its peer fails during ibv_modify_qp, by a local key, has failed. */
TEST(qp_failure_survives_modify)
{
    struct sigaction fault = {.sa_sigaction = fail_it, .sa_flags = SA_SIGINFO};

    CHECK_EQ(sigaction(SIGSEGV, &fault, NULL), 0);
    for (int to_err = 0; to_err < 2; to_err++) {
        struct side a = {0}, b = {0};
        struct ibv_qp_attr drain = {.qp_state = IBV_QPS_SQD};
        unsigned char *pages =
            mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct ibv_qp_attr *attr =
            (void *)(pages + 4096 - offsetof(struct ibv_qp_attr, qp_access_flags));

        loop_open(&a, &b);
        failing = &a;
        CHECK_EQ(ibv_modify_qp(b.qp, &drain, IBV_QP_STATE), 0);
        attr->qp_state = to_err ? IBV_QPS_ERR : IBV_QPS_RTS;
        CHECK_EQ(mprotect(pages + 4096, 4096, PROT_NONE), 0);
        if (to_err)
            CHECK_EQ(mprotect(pages, 4096, PROT_NONE), 0);
        CHECK_EQ(ibv_modify_qp(b.qp, attr,
                               to_err ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_ACCESS_FLAGS),
                 to_err ? 0 : EINVAL);
        CHECK_EQ(qp_state(&b), IBV_QPS_ERR);
        expect_async(&b, IBV_EVENT_QP_ACCESS_ERR, b.qp);
        CHECK_EQ(munmap(pages, 8192), 0);
        loop_close(&a, &b);
    }
}

TEST(no_device)
{
    int n = 5;

    setenv("EMUVERBS_DEVICES", "0", 1);
    struct ibv_device **list = ibv_get_device_list(&n);
    CHECK(list && !list[0]);
    CHECK_EQ(n, 0);
    ibv_free_device_list(list);
}

SIDE(device_limits_follow_the_knobs,
     .env = "EMUVERBS_MAX_SGE=5 EMUVERBS_SRQ=0 EMUVERBS_MTU=1024 EMUVERBS_MAX_RD_ATOM=4")
{
    struct ibv_device_attr da;
    struct ibv_port_attr pa;
    struct ibv_srq_init_attr si = {.attr = {4, 1, 0}};

    CHECK_EQ(ibv_query_device(s->ctx, &da), 0);
    CHECK_EQ(da.max_sge, 5);
    CHECK_EQ(da.max_srq, 0);
    CHECK_EQ(da.max_qp_rd_atom, 4);
    CHECK(!ibv_create_srq(s->pd, &si));
    CHECK_EQ(ibv_query_port(s->ctx, 1, &pa), 0);
    CHECK_EQ(pa.active_mtu, IBV_MTU_1024);
    CHECK_EQ(pa.state, IBV_PORT_ACTIVE);
}

SIDE(faults_by_name_and_number, .env = "EMUVERBS_FAIL=ibv_alloc_pd:2,completion:1")
{
    CHECK(!ibv_alloc_pd(s->ctx));
    CHECK_EQ(errno, ENOMEM);
    struct ibv_pd *pd = ibv_alloc_pd(s->ctx);
    CHECK(pd);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(qp_rtr(s, s->qp->qp_num), 0);
    CHECK_EQ(qp_rts(s), 0);
    CHECK_EQ(try_send(s, 1, WRITE, 0, 8, 0, (uintptr_t)s->buf, s->mr->rkey), 0);
    expect_wc(s->scq, 1, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQ(counter("faults_injected"), 2);
}

SIDE(four_thousand_queue_pairs, .a = {.max_wr = 4})
{
    enum { N = 4096 };
    static struct ibv_qp *qp[N];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            struct ibv_qp_init_attr qi = {.send_cq = s->scq,
                                          .recv_cq = s->rcq,
                                          .qp_type = IBV_QPT_RC,
                                          .cap = {4, 16, 1, 1, 0}};
            qp[i] = ibv_create_qp(s->pd, &qi);
            CHECK(qp[i]);
            CHECK(qp[i]->qp_num < 1u << 24);
        }
        for (int i = 0; i < N; i++)
            CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
    }
}

/* The granted amount of inline data is rounded up, and usable. */
TEST(inline_data_is_rounded_up)
{
    const uint32_t asked[] = {0, 1, 64, 65, 193, 200}, granted[] = {64, 64, 64, 128, 200, 200};

    setenv("EMUVERBS_INLINE_STEP", "64", 1);
    setenv("EMUVERBS_MAX_INLINE", "200", 1);
    for (unsigned i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        struct side a = {.max_inline = asked[i] ? (int)asked[i] : -1}, b = {0};
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        loop_open(&a, &b);
        CHECK_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init), 0);
        CHECK_EQ(init.cap.max_inline_data, granted[i]);
        CHECK_EQ(attr.cap.max_inline_data, granted[i]);
        unsigned flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
        CHECK_EQ(try_send(&a, 1, WRITE, 0, granted[i] + 1, flags, a.raddr, a.rkey), EINVAL);
        CHECK_EQ(try_send(&a, 2, WRITE, 0, granted[i], flags, a.raddr, a.rkey), 0);
        expect_wc(a.scq, 2, IBV_WC_SUCCESS);
        loop_close(&a, &b);
    }
}

/* Data that is not moved is checked nevertheless. Smaller messages move, and so does the head
 * of a write with immediate. */
LOOP(large_data_may_stay_where_it_is, .env = "EMUVERBS_STILL_FROM=4096")
{
    unsigned char expected[4096];

    for (uint32_t n = 4095; n <= 4096; n++) {
        bool moves = n < 4096;
        pattern(a->buf, n, 1);
        pattern(b->buf, n, 2);
        post_recv(b, 3, 0, 0);
        post_done(a, WIMM, 0, n, 0);
        CHECK_EQ(expect_wc(b->rcq, 3, IBV_WC_SUCCESS).byte_len, n);
        pattern(expected, n, 2);
        pattern(expected, moves ? n : 64, 1);
        CHECK(memcmp(b->buf, expected, n) == 0);
        pattern(b->buf, n, 4);
        post_done(a, READ, 0, n, 0);
        CHECK(is_pattern(a->buf, n, moves ? 4 : 1));
    }
    post_to(a, 5, WRITE, 0, 4096, a->raddr, a->rkey + 1);
    expect_wc(a->scq, 5, IBV_WC_REM_ACCESS_ERR);
}

static void count_segments(unsigned least)
{
    unsigned all, dumped;

    segments_mapped("memfd:emuverbs-", &all, &dumped);
    CHECK(all >= least);
    CHECK_EQ(dumped, 0);
}

/* A dump of a segment would populate the sparse file: own segment, peer's, a child's copy. */
PAIR(segments_mapped_left_out_of_dumps, run_two)
ACTIVE(segments_mapped_left_out_of_dumps)
{
    int status;

    side_join(s);
    count_segments(2);
    pid_t child = fork();
    if (child == 0) {
        count_segments(2);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    side_leave(s);
}
PASSIVE(segments_mapped_left_out_of_dumps)
{
    side_join(s);
    count_segments(2);
    side_leave(s);
}

/* A child asks for what its parent's device is, before it has opened one. */
TEST(device_of_parent_answers_in_child)
{
    struct side own = {0}, *s = &own;
    struct ibv_device_attr_ex attr;
    struct ibv_port_attr port;
    union ibv_gid gid;
    __be16 pkey;
    int status;
    pid_t child;

    side_open(s);
    child = fork();
    if (child == 0) {
        CHECK_EQ(ibv_query_device_ex(s->ctx, NULL, &attr), 0);
        CHECK(attr.orig_attr.max_cq > 0);
        CHECK_EQ(ibv_query_port(s->ctx, 1, &port), 0);
        CHECK_EQ(ibv_query_gid(s->ctx, 1, 0, &gid), 0);
        CHECK_EQ(ibv_query_pkey(s->ctx, 1, 0, &pkey), 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    side_close(s);
}

static int answer_of(const void *object)
{
    return object != NULL ? 0 : errno;
}

/* What the device does not have (doc/emuverbs.md) is not advertised, and answers EOPNOTSUPP. */
SIDE(unsupported_features_answer_eopnotsupp)
{
    struct ibv_device_attr_ex attr;
    struct ibv_xrcd_init_attr xrcd = {.fd = -1};
    struct ibv_alloc_dm_attr dm = {.length = 64};
    struct ibv_td_init_attr td = {0};
    struct ibv_parent_domain_init_attr parent = {.pd = s->pd};
    struct ibv_cq_init_attr_ex cq = {.cqe = 4};
    struct ibv_flow_attr flow = {.type = IBV_FLOW_ATTR_NORMAL, .port = 1};
    struct ibv_srq_init_attr_ex srq = {.attr = {.max_wr = 1, .max_sge = 1},
                                       .comp_mask =
                                           IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
                                       .srq_type = IBV_SRQT_XRC,
                                       .pd = s->pd};
    struct ibv_sge sge = {(uintptr_t)s->buf, 64, s->mr->lkey};
    const enum ibv_qp_type types[] = {IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET};

    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = s->scq, .recv_cq = s->rcq, .qp_type = types[i], .cap = {1, 1, 1, 1, 0}};
        CHECK_EQ(answer_of(ibv_create_qp(s->pd, &init)), EOPNOTSUPP);
    }
    CHECK_EQ(answer_of(ibv_open_xrcd(s->ctx, &xrcd)), EOPNOTSUPP);
    CHECK_EQ(answer_of(ibv_create_srq_ex(s->ctx, &srq)), EOPNOTSUPP);
    CHECK_EQ(answer_of(ibv_create_cq_ex(s->ctx, &cq)), EOPNOTSUPP);
    CHECK_EQ(answer_of(ibv_create_flow(s->qp, &flow)), EOPNOTSUPP);
    CHECK_EQ(answer_of(ibv_alloc_dm(s->ctx, &dm)), EOPNOTSUPP);
    CHECK_EQ(answer_of(ibv_alloc_td(s->ctx, &td)), EOPNOTSUPP);
    CHECK_EQ(answer_of(ibv_alloc_parent_domain(s->ctx, &parent)), EOPNOTSUPP);
    CHECK_EQ(answer_of(ibv_alloc_mw(s->pd, IBV_MW_TYPE_1)), EOPNOTSUPP);
    CHECK_EQ(ibv_advise_mr(s->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EOPNOTSUPP);
    CHECK_EQ(ibv_rereg_mr(s->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS),
             IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK_EQ(ibv_query_device_ex(s->ctx, NULL, &attr), 0);
    CHECK_EQ(attr.max_dm_size, 0);
    CHECK_EQ(attr.completion_timestamp_mask, 0);
    CHECK_EQ(attr.xrc_odp_caps, 0);
    CHECK_EQ(attr.orig_attr.device_cap_flags &
                 (IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MANAGED_FLOW_STEERING),
             0);
}
