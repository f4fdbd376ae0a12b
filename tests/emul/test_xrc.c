/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended reliable connections: domains that processes share by an inode, shared receive
 * queues (SRQs) that requests name by number, and who learns of what goes wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

#define SIMM   IBV_WR_SEND_WITH_IMM
#define PLACES 4u

static char inode[] = "/tmp/emul-xrc-XXXXXX"; /* whose domain all processes of a test open */

/* A side has a domain, an SRQ in it, and, of each connection, the half that it needs. */
struct xrc {
    struct side *s;
    struct ibv_xrcd *domain;
    struct ibv_srq *srq;
    struct ibv_qp *sends, *receives;
    uint32_t number, to; /* of its SRQ, and of the one that its requests name */
};

static struct ibv_xrcd *domain(struct side *s, int fd, int oflags)
{
    struct ibv_xrcd_init_attr a = {.comp_mask =
                                       IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                   .fd = fd,
                                   .oflags = oflags};

    return ibv_open_xrcd(s->ctx, &a);
}

/* The same by name. */
static struct ibv_xrcd *domain_of(struct side *s, const char *path, int oflags)
{
    int fd = open(path, O_RDONLY);

    CHECK(fd >= 0);
    struct ibv_xrcd *x = domain(s, fd, oflags);
    int err = errno;
    close(fd);
    errno = err;
    return x;
}

static struct ibv_srq *shared_queue(struct side *s, struct ibv_xrcd *x)
{
    struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = PLACES, .max_sge = 1},
                                     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
                                                  IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                                                  IBV_SRQ_INIT_ATTR_XRCD,
                                     .srq_type = IBV_SRQT_XRC,
                                     .pd = s->pd,
                                     .cq = s->rcq,
                                     .xrcd = x};

    return ibv_create_srq_ex(s->ctx, &a);
}

static struct ibv_qp *sender(struct side *s, uint64_t ops)
{
    struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_SEND,
                                    .send_cq = s->scq,
                                    .pd = s->pd,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD,
                                    .cap = {.max_send_wr = 16, .max_send_sge = 1}};

    if (ops) {
        a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        a.send_ops_flags = ops;
    }
    return ibv_create_qp_ex(s->ctx, &a);
}

static struct ibv_qp *receiver(struct side *s, struct ibv_xrcd *x)
{
    struct ibv_qp_init_attr_ex a = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x};

    return ibv_create_qp_ex(s->ctx, &a);
}

static void init(struct ibv_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qp_access_flags = qp->qp_type == IBV_QPT_XRC_SEND
                                                   ? 0
                                                   : IBV_ACCESS_REMOTE_WRITE |
                                                         IBV_ACCESS_REMOTE_READ |
                                                         IBV_ACCESS_REMOTE_ATOMIC};

    CHECK_EQ(ibv_modify_qp(
                 qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
}

/* Connects one half to the other of a number. */
static void join(struct ibv_qp *qp, uint32_t dest, uint8_t rnr_retry)
{
    const int both =
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const int back = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int out = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    bool sends = qp->qp_type == IBV_QPT_XRC_SEND;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = dest,
                            .max_dest_rd_atomic = 4,
                            .min_rnr_timer = 12,
                            .ah_attr = {.dlid = 1, .port_num = 1}};

    init(qp);
    CHECK_EQ(ibv_modify_qp(qp, &a, sends ? both | back : both), EINVAL);
    CHECK_EQ(ibv_modify_qp(qp, &a, sends ? both : both | back), 0);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = 14,
                             .retry_cnt = 7,
                             .rnr_retry = rnr_retry,
                             .max_rd_atomic = 4};
    CHECK_EQ(ibv_modify_qp(qp, &a,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | (sends ? out : 0)),
             0);
}

/* Opens a side, without its own queue pair, and gives it a domain and an SRQ. */
static void xrc_open(struct xrc *x, struct side *s)
{
    s->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                IBV_ACCESS_REMOTE_ATOMIC;
    side_open(s);
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    s->qp = NULL;
    x->s = s;
    x->domain = domain_of(s, inode, O_CREAT);
    CHECK(x->domain);
    x->srq = shared_queue(s, x->domain);
    CHECK(x->srq);
    CHECK_EQ(ibv_get_srq_num(x->srq, &x->number), 0);
    x->to = x->number;
}

/* Both halves of a connection in one process, to its own SRQ. */
static void loop(struct xrc *x, struct side *s, uint8_t rnr_retry)
{
    xrc_open(x, s);
    x->sends = sender(s, 0);
    x->receives = receiver(s, x->domain);
    CHECK(x->sends && x->receives);
    join(x->receives, x->sends->qp_num, 0);
    join(x->sends, x->receives->qp_num, rnr_retry);
    s->raddr = (uintptr_t)s->buf;
    s->rkey = s->mr->rkey;
    pattern(s->buf, 4096, 9);
}

static void xrc_close(struct xrc *x)
{
    if (x->sends)
        CHECK_EQ(ibv_destroy_qp(x->sends), 0);
    if (x->receives)
        CHECK_EQ(ibv_destroy_qp(x->receives), 0);
    if (x->srq)
        CHECK_EQ(ibv_destroy_srq(x->srq), 0);
    if (x->domain)
        CHECK_EQ(ibv_close_xrcd(x->domain), 0);
    CHECK_EQ(counter("live_xrcd"), 0);
    side_close(x->s);
}

static int try_post(struct ibv_srq *q, struct side *s, uint64_t id, uint32_t off, uint32_t len)
{
    struct ibv_sge sge = {(uintptr_t)s->buf + off, len, s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    return ibv_post_srq_recv(q, &wr, &bad);
}

static void post(struct xrc *x, uint64_t id, uint32_t off, uint32_t len)
{
    CHECK_EQ(try_post(x->srq, x->s, id, off, len), 0);
}

/* Posts a request to the SRQ x->to. */
static int try_request(struct xrc *x, uint64_t id, enum ibv_wr_opcode op, uint32_t len,
                       uint64_t roff)
{
    struct side *s = x->s;
    struct ibv_sge sge = {(uintptr_t)s->buf, len, s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = 77,
                             .qp_type.xrc.remote_srqn = x->to},
                       *bad;

    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = s->raddr + roff;
        wr.wr.atomic.rkey = s->rkey;
        wr.wr.atomic.compare_add = 5;
    } else {
        wr.wr.rdma.remote_addr = s->raddr + roff;
        wr.wr.rdma.rkey = s->rkey;
    }
    return ibv_post_send(x->sends, &wr, &bad);
}

static void request(struct xrc *x, uint64_t id, enum ibv_wr_opcode op, uint32_t len,
                    uint64_t roff, enum ibv_wc_status status)
{
    CHECK_EQ(try_request(x, id, op, len, roff), 0);
    expect_wc(x->s->scq, id, status);
}

/* The responder has failed, and its owner was told by this event. */
static void expect_failed(struct xrc *x, enum ibv_event_type event)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;

    expect_async(x->s, event, x->receives);
    CHECK_EQ(ibv_query_qp(x->receives, &a, IBV_QP_STATE, &i), 0);
    CHECK_EQ(a.qp_state, IBV_QPS_ERR);
}

TEST(a_domain_of_an_inode)
{
    struct side s = {0};
    struct ibv_xrcd_init_attr half = {.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1};

    side_open(&s);
    CHECK(!ibv_open_xrcd(s.ctx, &half) && errno == EINVAL);
    CHECK(!domain(&s, 1000, O_CREAT) && errno == EBADF);
    CHECK(!domain(&s, -1, 0) && errno == EINVAL);
    CHECK(!domain(&s, -1, O_CREAT | O_APPEND) && errno == EINVAL);
    CHECK(!domain_of(&s, inode, 0) && errno == EAGAIN);
    struct ibv_xrcd *a = domain_of(&s, inode, O_CREAT | O_EXCL);
    CHECK(a);
    CHECK(!domain_of(&s, inode, O_CREAT | O_EXCL) && errno == EINVAL);
    struct ibv_xrcd *b = domain_of(&s, inode, 0);
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
    a = domain_of(&s, inode, 0); /* the last one has not closed it yet */
    CHECK(a);
    CHECK_EQ(ibv_close_xrcd(a), 0);
    CHECK_EQ(ibv_close_xrcd(b), 0);
    CHECK(!domain_of(&s, inode, 0) && errno == EAGAIN);
    CHECK_EQ(counter("live_xrcd"), 0);
    side_close(&s);
}

PAIR(a_domain_ends_with_the_last_process, run_two_kill)
ACTIVE(a_domain_ends_with_the_last_process)
{
    char c;

    side_open(s);
    meet(s); /* it has the domain */
    struct ibv_xrcd *x = domain_of(s, inode, 0);
    CHECK(x);
    CHECK(!domain_of(s, inode, O_CREAT | O_EXCL) && errno == EINVAL);
    CHECK_EQ(ibv_close_xrcd(x), 0);
    x = domain_of(s, inode, 0);
    CHECK(x);
    CHECK_EQ(ibv_close_xrcd(x), 0);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(read(s->sock, &c, 1) <= 0);
    for (uint64_t end = now_ms() + 20000; (x = domain_of(s, inode, 0)) != NULL;) {
        CHECK_EQ(ibv_close_xrcd(x), 0); /* the kernel may still be at it */
        CHECK(now_ms() < end);
    }
    CHECK_EQ(errno, EAGAIN);
    side_close(s);
}
PASSIVE(a_domain_ends_with_the_last_process)
{
    side_open(s);
    CHECK(domain_of(s, inode, O_CREAT));
    meet(s);
    for (;;)
        pause();
}

TEST(what_cannot_be_made)
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
    /* the one receives nothing of its own, the other sends nothing */
    CHECK_EQ(ibv_post_recv(x.sends, &rwr, &rbad), EINVAL);
    CHECK_EQ(ibv_post_recv(x.receives, &rwr, &rbad), EINVAL);
    swr.opcode = IBV_WR_SEND;
    CHECK_EQ(ibv_post_send(x.receives, &swr, &sbad), EINVAL);
    CHECK_EQ(try_request(&x, 1, IBV_WR_SEND_WITH_INV, 8, 0), EINVAL);
    CHECK_EQ(ibv_destroy_cq(s.rcq), EBUSY); /* the SRQ's */
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
    for (uint32_t i = 0; i < 10 * PLACES;
         i++) { /* places are free again when they were polled */
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

TEST(the_number_chooses)
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
    request(&x, 2, SEND, 64, 0, IBV_WC_RNR_RETRY_EXC_ERR); /* the other one has something */
    expect_none(s.rcq);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    xrc_close(&x);
}

/* Sends one message to the SRQ, which is refused as a wrong number is. */
static void refused(struct xrc *x, uint32_t to)
{
    x->to = to;
    request(x, 1, SEND, 64, 0, IBV_WC_REM_INV_REQ_ERR);
    expect_failed(x, IBV_EVENT_QP_REQ_ERR);
    expect_none(x->s->rcq);
}

TEST(a_number_of_nothing)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    refused(&x, x.number ^ 1);
    xrc_close(&x);
}

TEST(a_number_of_no_process)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s, 7);
    refused(&x, x.number ^ 1023 << 11);
    xrc_close(&x);
}

/* Two that only send are connected to each other: no answer comes. */
TEST(a_sender_answers_nothing)
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

TEST(a_queue_that_was_destroyed)
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

TEST(a_queue_of_another_domain)
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
    /* nor is one domain without an inode another */
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

/* The memory must be of the SRQ's protection domain: the queue pair that receives has none. */
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
    request(&x, 1, WRITE, 64, 0, IBV_WC_SUCCESS); /* whatever domain the sender has */
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
    expect_none(s.rcq); /* the other receive is the queue's, and nobody's mistake */
    xrc_close(&x);
}

/* A completion of a queue that is gone gives no place to the one that came after it. */
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
    for (int i = 0; i < 2048; i++) { /* until it has the same number */
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
    for (uint64_t i = 0; i < PLACES; i++) { /* what the first one had is not there any more */
        request(&x, 2, SEND, 64, 0, IBV_WC_SUCCESS);
        expect_wc(s.rcq, 10 + i, IBV_WC_SUCCESS);
    }
    xrc_close(&x);
}

struct numbers {
    uint32_t sends, receives, srq, rkey;
    uint64_t addr;
};

/* Each sends to the other's queue pair; both tell what they have. */
static void connect_two(struct xrc *x, struct numbers *theirs)
{
    struct side *s = x->s;
    struct numbers mine = {x->sends->qp_num, x->receives->qp_num, x->number, s->mr->rkey,
                           (uintptr_t)s->buf};

    CHECK_EQ(write(s->sock, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(s->sock, theirs, sizeof(*theirs)), sizeof(*theirs));
    join(x->receives, theirs->sends, 0);
    join(x->sends, theirs->receives, 7);
    x->to = theirs->srq;
    s->raddr = theirs->addr;
    s->rkey = theirs->rkey;
    meet(s);
}

static void open_two(struct xrc *x, struct side *s, struct numbers *theirs)
{
    xrc_open(x, s);
    x->sends = sender(s, 0);
    x->receives = receiver(s, x->domain);
    CHECK(x->sends && x->receives);
    connect_two(x, theirs);
}

/* A queue pair of one process, with the SRQ of the other: that of who sends. */
PAIR(the_queue_of_another_process, run_two)
ACTIVE(the_queue_of_another_process)
{
    struct xrc x = {0};
    struct numbers theirs;
    uint64_t theirs_addr;
    uint32_t theirs_key;

    s->use_chan = true;
    open_two(&x, s, &theirs);
    theirs_addr = s->raddr;
    theirs_key = s->rkey;
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    pattern(s->buf, 4096, 9);
    for (uint64_t i = 0; i < 3 * PLACES; i++) { /* to its SRQ and ours in turn */
        x.to = i % 2 ? theirs.srq : x.number;
        if (x.to == x.number)
            post(&x, i, 8192, 4096);
        else
            meet(s);
        request(&x, i, SEND, i % 3 ? 4096 : 64, 0, IBV_WC_SUCCESS);
        if (x.to != x.number) {
            meet(s);
            continue;
        }
        struct ibv_wc wc = expect_wc(s->rcq, i, IBV_WC_SUCCESS);
        CHECK_EQ(wc.qp_num, theirs.receives);
        CHECK(is_pattern(s->buf + 8192, i % 3 ? 4096 : 64, 9));
    }
    CHECK(readable(s->chan->fd, 20000));
    struct ibv_cq *cq;
    void *context;
    CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    /* memory is reached as the SRQ's, whose process it is of */
    x.to = x.number;
    s->raddr = (uintptr_t)s->buf;
    s->rkey = s->mr->rkey;
    request(&x, 1, WRITE, 100, 20000, IBV_WC_SUCCESS);
    CHECK(is_pattern(s->buf + 20000, 100, 9));
    x.to = theirs.srq;
    s->raddr = theirs_addr;
    s->rkey = theirs_key;
    request(&x, 1, WRITE, 100, 20000, IBV_WC_SUCCESS);
    meet(s);
    x.to = x.number; /* their key is none of ours, even where their queue pair takes it */
    request(&x, 2, WRITE, 100, 30000, IBV_WC_REM_ACCESS_ERR);
    meet(s);
    xrc_close(&x);
}
PASSIVE(the_queue_of_another_process)
{
    struct xrc x = {0};
    struct numbers theirs;

    open_two(&x, s, &theirs);
    for (uint64_t i = 1; i < 3 * PLACES; i += 2) {
        post(&x, i, 8192, 4096);
        meet(s);
        meet(s);
        CHECK_EQ(expect_wc(s->rcq, i, IBV_WC_SUCCESS).qp_num, x.receives->qp_num);
    }
    meet(s);
    CHECK(is_pattern(s->buf + 20000, 100, 9));
    expect_async(s, IBV_EVENT_QP_ACCESS_ERR, x.receives);
    expect_none(s->rcq);
    meet(s);
    xrc_close(&x);
}

/* The queue pair's process lives, the SRQ's is killed. */
PAIR(the_queues_process_dies, run_two_kill)
ACTIVE(the_queues_process_dies)
{
    struct xrc x = {0};
    char c;

    loop(&x, s, 7);
    CHECK_EQ(read(s->sock, &x.to, sizeof(x.to)), sizeof(x.to));
    request(&x, 1, SEND, 4096, 0, IBV_WC_SUCCESS);
    meet(s);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(read(s->sock, &c, 1) <= 0);
    /* its death is noticed a little later; until then its last receive is there */
    for (int i = 0;; i++) {
        CHECK_EQ(try_request(&x, 1, SEND, 64, 0), 0);
        struct ibv_wc wc = wait_wc(s->scq);
        if (wc.status != IBV_WC_SUCCESS) {
            CHECK_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
            break;
        }
        CHECK(i == 0);
    }
    expect_failed(&x, IBV_EVENT_QP_REQ_ERR);
    xrc_close(&x);
}
PASSIVE(the_queues_process_dies)
{
    struct xrc x = {0};

    xrc_open(&x, s);
    post(&x, 1, 0, 4096);
    post(&x, 2, 0, 4096);
    CHECK_EQ(write(s->sock, &x.number, sizeof(x.number)), sizeof(x.number));
    meet(s);
    for (;;)
        pause();
}

/* The sender stops for good with a receive in its hand: that one is flushed, once. */
PAIR(a_sender_that_stops, run_two)
ACTIVE(a_sender_that_stops)
{
    struct xrc x = {0};
    struct numbers theirs;
    struct ibv_srq_attr limit = {.srq_limit = 2};

    open_two(&x, s, &theirs);
    post(&x, 1, 0, 64);
    post(&x, 2, 0, 64);
    CHECK_EQ(ibv_modify_srq(x.srq, &limit, IBV_SRQ_LIMIT), 0);
    meet(s);
    expect_async(s, IBV_EVENT_SRQ_LIMIT_REACHED, x.srq); /* it has one, and sleeps */
    CHECK(process_stop(s->peer));
    CHECK_EQ(ibv_destroy_qp(x.receives), 0);
    x.receives = NULL;
    expect_wc(s->rcq, 1, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    meet(s);
    expect_none(s->rcq);
    meet(s);
    xrc_close(&x);
}
PASSIVE(a_sender_that_stops)
{
    struct xrc x = {0};
    struct numbers theirs;

    setenv("EMUVERBS_TAKE_LATE_US", "1000000", 1);
    open_two(&x, s, &theirs);
    meet(s);
    request(&x, 1, SEND, 64, 0, IBV_WC_RETRY_EXC_ERR);
    meet(s);
    meet(s);
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
        cmocka_set_test_filter(argv[1]); /* a pattern: only these tests */
    const struct CMUnitTest tests[] = {
        T(a_domain_of_an_inode),
        T(a_domain_ends_with_the_last_process),
        T(what_cannot_be_made),
        T(requests_of_all_kinds),
        T(the_number_chooses),
        T(a_number_of_nothing),
        T(a_number_of_no_process),
        T(a_sender_answers_nothing),
        T(a_queue_that_was_destroyed),
        T(a_queue_of_another_domain),
        T(memory_of_another_protection_domain),
        T(completions_outlive_the_queue_pair),
        T(places_are_not_mixed_up),
        T(the_queue_of_another_process),
        T(the_queues_process_dies),
        T(a_sender_that_stops),
        T(requests_by_the_other_interface),
    };
    int fd = mkstemp(inode);
    if (fd < 0)
        return 99;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(inode);
    return failed;
}
