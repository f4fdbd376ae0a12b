/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended reliable connections: domains that processes share by an inode, shared receive
 * queues (SRQs) that requests name by number, which side gets errors, and senders that are
 * stopped or killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

#define SIMM   IBV_WR_SEND_WITH_IMM
#define PLACES 4u /* of an SRQ */

/* A side has a domain, an SRQ in it, and one half of each connection. */
struct xrc {
    struct side *s;
    struct ibv_xrcd *domain;
    struct ibv_srq *srq;
    struct ibv_qp *sends, *receives;
    uint32_t number, to; /* number of its SRQ, and of the one that its requests name */
};

/* A file whose domain all processes of a test open; exists while tests run. */
static char xrc_inode[] = "/tmp/emul-xrc-XXXXXX";

static pid_t maker;

static void remove_inode(void)
{
    if (getpid() == maker) /* not in a test's process */
        unlink(xrc_inode);
}

static void make_inode(void)
{
    int fd = mkstemp(xrc_inode);

    CHECK(fd >= 0);
    close(fd);
    maker = getpid();
    CHECK_EQ(atexit(remove_inode), 0);
}

__attribute__((constructor)) static void before(void)
{
    emul_before(make_inode);
}

static struct ibv_xrcd *domain(struct side *s, int fd, int oflags)
{
    struct ibv_xrcd_init_attr a = {.comp_mask =
                                       IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                   .fd = fd,
                                   .oflags = oflags};

    return ibv_open_xrcd(s->ctx, &a);
}

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

static struct ibv_qp *sender(struct side *s)
{
    struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_SEND,
                                    .send_cq = s->scq,
                                    .pd = s->pd,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD,
                                    .cap = {.max_send_wr = 16, .max_send_sge = 1}};

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

/* Connects one half to the other half with number `dest`. Each takes RC's attributes, also
 * those that are the other half's. */
static void join(struct ibv_qp *qp, uint32_t dest, uint8_t rnr_retry)
{
    const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT |
                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = dest,
                            .max_dest_rd_atomic = 4,
                            .min_rnr_timer = 12,
                            .ah_attr = {.dlid = 1, .port_num = 1}};

    init(qp);
    if (qp->qp_type == IBV_QPT_XRC_RECV)
        CHECK_EQ(ibv_modify_qp(qp, &a, rtr & ~IBV_QP_MIN_RNR_TIMER), EINVAL);
    CHECK_EQ(ibv_modify_qp(qp, &a, rtr), 0);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = 14,
                             .retry_cnt = 7,
                             .rnr_retry = rnr_retry,
                             .max_rd_atomic = 4};
    CHECK_EQ(ibv_modify_qp(qp, &a, rts), 0);
}

static void xrc_open(struct xrc *x, struct side *s)
{
    s->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                IBV_ACCESS_REMOTE_ATOMIC;
    side_open(s);
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    s->qp = NULL;
    x->s = s;
    x->domain = domain_of(s, xrc_inode, O_CREAT);
    CHECK(x->domain);
    x->srq = shared_queue(s, x->domain);
    CHECK(x->srq);
    CHECK_EQ(ibv_get_srq_num(x->srq, &x->number), 0);
    x->to = x->number;
}

static void loop(struct xrc *x, struct side *s, uint8_t rnr_retry)
{
    xrc_open(x, s);
    x->sends = sender(s);
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

static void expect_failed(struct xrc *x, enum ibv_event_type event)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;

    expect_async(x->s, event, x->receives);
    CHECK_EQ(ibv_query_qp(x->receives, &a, IBV_QP_STATE, &i), 0);
    CHECK_EQ(a.qp_state, IBV_QPS_ERR);
}

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
    x.sends = sender(&s);
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

struct numbers {
    uint32_t sends, receives, srq, rkey;
    uint64_t addr;
};

/* Connects each process to the other's QP; both exchange their numbers. */
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
    x->sends = sender(s);
    x->receives = receiver(s, x->domain);
    CHECK(x->sends && x->receives);
    connect_two(x, theirs);
}

/* Requests to a QP of one process name the SRQ of another, here the sender's. */
PAIR(srq_of_other_process_receives, run_two)
ACTIVE(srq_of_other_process_receives)
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
    for (uint64_t i = 0; i < 3 * PLACES; i++) { /* to the other's SRQ and ours in turn */
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
    CHECK(readable(s->chan->fd, 60000));
    struct ibv_cq *cq;
    void *context;
    CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    /* memory is that of the SRQ's process */
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
    x.to = x.number; /* the other's key is not valid here, even through the other's QP */
    request(&x, 2, WRITE, 100, 30000, IBV_WC_REM_ACCESS_ERR);
    meet(s);
    xrc_close(&x);
}
PASSIVE(srq_of_other_process_receives)
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

/* The QP's process lives, the SRQ's is killed. */
PAIR(dead_srq_owner_fails_requests, run_two_kill)
ACTIVE(dead_srq_owner_fails_requests)
{
    struct xrc x = {0};
    char c;

    loop(&x, s, 7);
    CHECK_EQ(read(s->sock, &x.to, sizeof(x.to)), sizeof(x.to));
    request(&x, 1, SEND, 4096, 0, IBV_WC_SUCCESS);
    meet(s);
    CHECK_EQ(kill(s->peer, SIGKILL), 0);
    CHECK(read(s->sock, &c, 1) <= 0);
    /* its death is noticed a little later; until then its last receive is used */
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
PASSIVE(dead_srq_owner_fails_requests)
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

/* An SRQ and memory of another process, for a connection within one process. */
struct queue_there {
    uint64_t addr;
    uint32_t number, rkey;
};

/* The sender stops forever while it holds a receive: that receive is flushed, once. */
PAIR(stopped_senders_receive_is_flushed_once, run_two)
ACTIVE(stopped_senders_receive_is_flushed_once)
{
    struct xrc x = {0};
    struct numbers theirs;
    struct ibv_srq_attr limit = {.srq_limit = 2};

    open_two(&x, s, &theirs);
    post(&x, 1, 0, 64);
    post(&x, 2, 0, 64);
    CHECK_EQ(ibv_modify_srq(x.srq, &limit, IBV_SRQ_LIMIT), 0);
    meet(s);
    wait_stopped(s->stop); /* holds one */
    expect_async(s, IBV_EVENT_SRQ_LIMIT_REACHED, x.srq);
    CHECK(process_stop(s->peer));
    CHECK_EQ(ibv_destroy_qp(x.receives), 0);
    x.receives = NULL;
    expect_wc(s->rcq, 1, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(kill(s->peer, SIGCONT), 0);
    go_on(s->stop, 0);
    meet(s);
    expect_none(s->rcq);
    meet(s);
    xrc_close(&x);
}
PASSIVE(stopped_senders_receive_is_flushed_once)
{
    struct xrc x = {0};
    struct numbers theirs;

    stop_at(s, "claim");
    open_two(&x, s, &theirs);
    meet(s);
    request(&x, 1, SEND, 64, 0, IBV_WC_RETRY_EXC_ERR);
    meet(s);
    meet(s);
    xrc_close(&x);
}
