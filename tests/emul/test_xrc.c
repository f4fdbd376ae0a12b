/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended reliable connections: domains that processes share by an inode, shared receive
 * queues (SRQs) that requests name by number, which side gets errors, and senders that are
 * stopped or killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/emul/pair.h"
#include "tests/emul/stop.h"

#define PLACES 4u /* of an SRQ */

/* A side's domain, SRQ (s->srq) in it, and one half of each connection (sends: s->qp). */
struct xrc {
    struct side *s;
    struct ibv_xrcd *domain;
    struct ibv_qp *receives;
    uint32_t number; /* of its SRQ; requests name s->srqn */
};

/* A file whose domain all processes of a test open. */
static int xrc_file;

static void make_file(void)
{
    xrc_file = memfd_create("xrc", 0);
    CHECK(xrc_file >= 0);
}

__attribute__((constructor)) static void before(void)
{
    emul_before(make_file);
}

static struct ibv_xrcd *domain(struct side *s, int fd, int oflags)
{
    struct ibv_xrcd_init_attr a = {.comp_mask =
                                       IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                   .fd = fd,
                                   .oflags = oflags};

    return ibv_open_xrcd(s->ctx, &a);
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

/* Connects one half to the other half with number `dest`. Each takes RC's attributes, also
 * those that are the other half's. */
static void join(struct side *s, struct ibv_qp *qp, uint32_t dest)
{
    struct side half = *s;

    half.qp = qp;
    half.qp_access = qp->qp_type == IBV_QPT_XRC_SEND ? -1 : QP_RIGHTS;
    CHECK_EQ(qp_init(&half), 0);
    CHECK_EQ(qp_rtr(&half, dest), 0);
    CHECK_EQ(qp_rts(&half), 0);
}

static void xrc_open(struct xrc *x, struct side *s)
{
    s->access = RIGHTS;
    side_open(s);
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    x->s = s;
    x->domain = domain(s, xrc_file, O_CREAT);
    CHECK(x->domain);
    s->srq = shared_queue(s, x->domain);
    CHECK(s->srq);
    CHECK_EQ(ibv_get_srq_num(s->srq, &x->number), 0);
    s->srqn = x->number;
    s->qp = sender(s);
    x->receives = receiver(s, x->domain);
    CHECK(s->qp && x->receives);
}

/* A connection of the process with itself. */
static void loop(struct xrc *x, struct side *s)
{
    xrc_open(x, s);
    join(s, x->receives, s->qp->qp_num);
    join(s, s->qp, x->receives->qp_num);
    s->raddr = (uintptr_t)s->buf;
    s->rkey = s->mr->rkey;
    pattern(s->buf, 4096, 9);
}

static void xrc_close(struct xrc *x)
{
    if (x->receives != NULL)
        CHECK_EQ(ibv_destroy_qp(x->receives), 0);
    CHECK_EQ(ibv_destroy_qp(x->s->qp), 0);
    CHECK_EQ(ibv_destroy_srq(x->s->srq), 0);
    x->s->qp = NULL;
    x->s->srq = NULL;
    CHECK_EQ(ibv_close_xrcd(x->domain), 0);
    CHECK_EQ(counter("live_xrcd"), 0);
    side_close(x->s);
}

static void post_to_queue(struct ibv_srq *q, const struct side *s, uint64_t id)
{
    struct side other = *s;

    other.srq = q;
    post_recv(&other, id, 8192, 64);
}

static void expect_failed(struct xrc *x, enum ibv_event_type event)
{
    struct side half = *x->s;

    expect_async(x->s, event, x->receives);
    half.qp = x->receives;
    CHECK_EQ(qp_state(&half), IBV_QPS_ERR);
}

SIDE(domain_belongs_to_inode)
{
    struct ibv_xrcd_init_attr half = {.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1};
    const struct {
        int fd, oflags, err;
    } refused[] = {{1000, O_CREAT, EBADF},
                   {-1, 0, EINVAL},
                   {-1, O_CREAT | O_APPEND, EINVAL},
                   {xrc_file, 0, EAGAIN},
                   {xrc_file, O_CREAT | O_EXCL, EINVAL}, /* it is open by then */
                   {memfd_create("other", 0), 0, EAGAIN}};
    struct ibv_xrcd *a = NULL;

    CHECK(!ibv_open_xrcd(s->ctx, &half) && errno == EINVAL);
    for (unsigned i = 0; i < 6; i++) {
        if (i == 4)
            CHECK((a = domain(s, xrc_file, O_CREAT | O_EXCL)));
        CHECK(!domain(s, refused[i].fd, refused[i].oflags));
        CHECK_EQ(errno, refused[i].err);
    }
    struct ibv_xrcd *b = domain(s, xrc_file, 0);
    CHECK(b);
    struct ibv_qp *qp = receiver(s, a);
    CHECK(qp);
    CHECK_EQ(ibv_close_xrcd(a), EBUSY);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    struct ibv_srq *q = shared_queue(s, a);
    CHECK(q);
    CHECK_EQ(ibv_close_xrcd(a), EBUSY);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    CHECK_EQ(ibv_close_xrcd(a), 0);
    a = domain(s, xrc_file, 0); /* not closed by the last user yet */
    CHECK(a);
    CHECK_EQ(ibv_close_xrcd(a), 0);
    CHECK_EQ(ibv_close_xrcd(b), 0);
    CHECK(!domain(s, xrc_file, 0) && errno == EAGAIN);
    CHECK_EQ(counter("live_xrcd"), 0);
}

TEST(requests_of_all_kinds)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s);
    for (uint32_t i = 0; i < 10 * PLACES; i++) { /* places are free again after polling */
        uint32_t len = i % 2 ? 4096 : 64;
        memset(s.buf + 8192, 0, 4096);
        post_recv(&s, i, 8192, 4096);
        post_done(&s, i % 3 ? SEND : SIMM, 0, len, 0);
        struct ibv_wc wc = expect_wc(s.rcq, i, IBV_WC_SUCCESS);
        CHECK_EQ(wc.byte_len, len);
        CHECK_EQ(wc.qp_num, x.receives->qp_num);
        CHECK_EQ(wc.src_qp, s.qp->qp_num);
        CHECK_EQ(wc.wc_flags, i % 3 ? 0 : IBV_WC_WITH_IMM);
        CHECK(is_pattern(s.buf + 8192, len, 9));
    }
    post_done(&s, WRITE, 0, 4096, 16384);
    CHECK(is_pattern(s.buf + 16384, 4096, 9));
    post_recv(&s, 2, 8192, 4096);
    post_done(&s, WIMM, 0, 100, 32768);
    CHECK_EQ(expect_wc(s.rcq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(is_pattern(s.buf + 32768, 100, 9));
    memset(s.buf, 0, 100);
    post_done(&s, READ, 0, 100, 32768);
    CHECK(is_pattern(s.buf, 100, 9));
    s.operand = 5;
    post_done(&s, FADD, 0, 8, 65536);
    post_done(&s, FADD, 0, 8, 65536);
    CHECK(s.buf[0] == 5 && s.buf[65536] == 10);
    expect_none(s.rcq);
    xrc_close(&x);
}

TEST(srq_number_chooses_queue)
{
    struct side s = {.rnr_retry = -1};
    struct xrc x = {0};
    uint32_t second;

    loop(&x, &s);
    struct ibv_srq *q = shared_queue(&s, x.domain);
    CHECK(q);
    CHECK_EQ(ibv_get_srq_num(q, &second), 0);
    CHECK(second != x.number);
    for (uint64_t i = 0; i < 2 * PLACES; i++)
        post_to_queue(i % 2 ? q : s.srq, &s, i);
    for (uint64_t i = 0; i < 2 * PLACES; i++) {
        s.srqn = i % 2 ? second : x.number;
        post_done(&s, SEND, 0, 64, 0);
        expect_wc(s.rcq, i, IBV_WC_SUCCESS);
    }
    post_to_queue(q, &s, 9);
    s.srqn = x.number;
    post_send(&s, 2, SEND, 0, 64, 0);
    expect_wc(s.scq, 2, IBV_WC_RNR_RETRY_EXC_ERR); /* the other SRQ has a receive */
    expect_none(s.rcq);
    CHECK_EQ(ibv_destroy_srq(q), 0);
    xrc_close(&x);
}

/* Nor do two domains without an inode match. */
TEST(srq_of_other_domain_refused)
{
    struct side s = {0};
    struct xrc x = {0};

    loop(&x, &s);
    struct ibv_xrcd *own = domain(&s, -1, O_CREAT), *other = domain(&s, -1, O_CREAT);
    CHECK(own && other);
    struct ibv_srq *q = shared_queue(&s, own);
    CHECK(q);
    CHECK_EQ(ibv_get_srq_num(q, &s.srqn), 0);
    post_to_queue(q, &s, 1);
    for (int i = 0; i < 2; i++) {
        if (i) {
            CHECK_EQ(ibv_destroy_qp(x.receives), 0);
            CHECK_EQ(ibv_destroy_qp(s.qp), 0);
            x.receives = receiver(&s, other);
            s.qp = sender(&s);
            join(&s, x.receives, s.qp->qp_num);
            join(&s, s.qp, x.receives->qp_num);
        }
        post_send(&s, 1, SEND, 0, 64, 0);
        expect_wc(s.scq, 1, IBV_WC_REM_INV_REQ_ERR);
        expect_failed(&x, IBV_EVENT_QP_REQ_ERR);
        expect_none(s.rcq);
    }
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
static void open_two(struct xrc *x, struct side *s, struct numbers *theirs)
{
    xrc_open(x, s);
    struct numbers mine = {s->qp->qp_num, x->receives->qp_num, x->number, s->mr->rkey,
                           (uintptr_t)s->buf};

    CHECK_EQ(write(s->sock, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(s->sock, theirs, sizeof(*theirs)), sizeof(*theirs));
    join(s, x->receives, theirs->sends);
    join(s, s->qp, theirs->receives);
    s->srqn = theirs->srq;
    s->raddr = theirs->addr;
    s->rkey = theirs->rkey;
    meet(s);
}

/* Requests to a QP of one process name the SRQ of another, here the sender's. */
PAIR(srq_of_other_process_receives, run_two)
ACTIVE(srq_of_other_process_receives)
{
    struct xrc x = {0};
    struct numbers theirs;

    s->use_chan = true;
    open_two(&x, s, &theirs);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    pattern(s->buf, 4096, 9);
    for (uint64_t i = 0; i < 3 * PLACES; i++) { /* to the other's SRQ and ours in turn */
        bool own = i % 2 == 0;
        s->srqn = own ? x.number : theirs.srq;
        if (own)
            post_recv(s, i, 8192, 4096);
        else
            meet(s);
        post_done(s, SEND, 0, i % 3 ? 4096 : 64, 0);
        if (!own) {
            meet(s);
            continue;
        }
        CHECK_EQ(expect_wc(s->rcq, i, IBV_WC_SUCCESS).qp_num, theirs.receives);
        CHECK(is_pattern(s->buf + 8192, i % 3 ? 4096 : 64, 9));
    }
    take_event(s->chan);
    /* memory is that of the SRQ's process */
    post_done(s, WRITE, 0, 100, 20000);
    s->srqn = x.number;
    post_to(s, 1, WRITE, 0, 100, (uintptr_t)s->buf + 20000, s->mr->rkey);
    expect_wc(s->scq, 1, IBV_WC_SUCCESS);
    CHECK(is_pattern(s->buf + 20000, 100, 9));
    meet(s);
    /* the other's key is not valid here, even through the other's QP */
    post_send(s, 2, WRITE, 0, 100, 30000);
    expect_wc(s->scq, 2, IBV_WC_REM_ACCESS_ERR);
    meet(s);
    xrc_close(&x);
}
PASSIVE(srq_of_other_process_receives)
{
    struct xrc x = {0};
    struct numbers theirs;

    open_two(&x, s, &theirs);
    for (uint64_t i = 1; i < 3 * PLACES; i += 2) {
        post_recv(s, i, 8192, 4096);
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

    loop(&x, s);
    CHECK_EQ(read(s->sock, &s->srqn, sizeof(s->srqn)), sizeof(s->srqn));
    post_done(s, SEND, 0, 4096, 0);
    meet(s);
    kill_peer_and_wait(s);
    post_send(s, 1, SEND, 0, 64, 0);
    expect_wc(s->scq, 1, IBV_WC_REM_INV_REQ_ERR);
    expect_failed(&x, IBV_EVENT_QP_REQ_ERR);
    xrc_close(&x);
}
PASSIVE(dead_srq_owner_fails_requests)
{
    struct xrc x = {0};

    xrc_open(&x, s);
    post_recv(s, 1, 0, 4096);
    post_recv(s, 2, 0, 4096);
    CHECK_EQ(write(s->sock, &x.number, sizeof(x.number)), sizeof(x.number));
    meet(s);
    pause_forever();
}

/* The sender stops forever while it holds a receive: that receive is flushed, once. */
PAIR(stopped_senders_receive_is_flushed_once, run_two)
ACTIVE(stopped_senders_receive_is_flushed_once)
{
    struct xrc x = {0};
    struct numbers theirs;
    struct ibv_srq_attr limit = {.srq_limit = 2};

    open_two(&x, s, &theirs);
    post_recv(s, 1, 0, 64);
    post_recv(s, 2, 0, 64);
    CHECK_EQ(ibv_modify_srq(s->srq, &limit, IBV_SRQ_LIMIT), 0);
    meet(s);
    wait_stopped(s->stop); /* holds one */
    expect_async(s, IBV_EVENT_SRQ_LIMIT_REACHED, s->srq);
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
    post_send(s, 1, SEND, 0, 64, 0);
    expect_wc(s->scq, 1, IBV_WC_RETRY_EXC_ERR);
    meet(s);
    meet(s);
    xrc_close(&x);
}
