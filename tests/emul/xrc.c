/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/emul/xrc.h"

#include <errno.h>
#include <fcntl.h>

char xrc_inode[] = "/tmp/emul-xrc-XXXXXX";

int xrc_make_inode(void **state)
{
    int fd = mkstemp(xrc_inode);

    (void)state;
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

int xrc_remove_inode(void **state)
{
    (void)state;
    return unlink(xrc_inode);
}

struct ibv_xrcd *domain(struct side *s, int fd, int oflags)
{
    struct ibv_xrcd_init_attr a = {.comp_mask =
                                       IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                   .fd = fd,
                                   .oflags = oflags};

    return ibv_open_xrcd(s->ctx, &a);
}

struct ibv_xrcd *domain_of(struct side *s, const char *path, int oflags)
{
    int fd = open(path, O_RDONLY);

    CHECK(fd >= 0);
    struct ibv_xrcd *x = domain(s, fd, oflags);
    int err = errno;
    close(fd);
    errno = err;
    return x;
}

struct ibv_srq *shared_queue(struct side *s, struct ibv_xrcd *x)
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

struct ibv_qp *sender(struct side *s, uint64_t ops)
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

struct ibv_qp *receiver(struct side *s, struct ibv_xrcd *x)
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

void join(struct ibv_qp *qp, uint32_t dest, uint8_t rnr_retry)
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
    if (!sends)
        CHECK_EQ(ibv_modify_qp(qp, &a, both), EINVAL);
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

void xrc_open(struct xrc *x, struct side *s)
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

void loop(struct xrc *x, struct side *s, uint8_t rnr_retry)
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

void xrc_close(struct xrc *x)
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

int try_post(struct ibv_srq *q, struct side *s, uint64_t id, uint32_t off, uint32_t len)
{
    struct ibv_sge sge = {(uintptr_t)s->buf + off, len, s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    return ibv_post_srq_recv(q, &wr, &bad);
}

void post(struct xrc *x, uint64_t id, uint32_t off, uint32_t len)
{
    CHECK_EQ(try_post(x->srq, x->s, id, off, len), 0);
}

int try_request(struct xrc *x, uint64_t id, enum ibv_wr_opcode op, uint32_t len, uint64_t roff)
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

void request(struct xrc *x, uint64_t id, enum ibv_wr_opcode op, uint32_t len, uint64_t roff,
             enum ibv_wc_status status)
{
    CHECK_EQ(try_request(x, id, op, len, roff), 0);
    expect_wc(x->s->scq, id, status);
}

void expect_failed(struct xrc *x, enum ibv_event_type event)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;

    expect_async(x->s, event, x->receives);
    CHECK_EQ(ibv_query_qp(x->receives, &a, IBV_QP_STATE, &i), 0);
    CHECK_EQ(a.qp_state, IBV_QPS_ERR);
}
