/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "tests/emul/datagrams.h"

union ibv_gid gid_of(struct side *s)
{
    union ibv_gid gid;

    CHECK_EQ(ibv_query_gid(s->ctx, 1, 0, &gid), 0);
    return gid;
}

struct ibv_qp *ud_qp(struct side *s, struct ibv_srq *srq, uint64_t ops)
{
    struct ibv_qp_init_attr_ex qi = {.send_cq = s->scq,
                                     .recv_cq = s->rcq,
                                     .srq = srq,
                                     .qp_type = IBV_QPT_UD,
                                     .cap = {.max_send_wr = 64,
                                             .max_recv_wr = srq != NULL ? 0 : 1024,
                                             .max_send_sge = 4,
                                             .max_recv_sge = srq != NULL ? 0 : 4,
                                             .max_inline_data = 64},
                                     .comp_mask = IBV_QP_INIT_ATTR_PD,
                                     .pd = s->pd};
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

    if (ops) {
        qi.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        qi.send_ops_flags = ops;
    }
    struct ibv_qp *qp = ibv_create_qp_ex(s->ctx, &qi);
    CHECK(qp);
    CHECK_EQ(
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    a.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    a.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

/* Opens a side with a QP for datagrams. */
void open_ud(struct side *s)
{
    s->cqe = s->cqe ? s->cqe : 4096;
    side_open(s);
    CHECK_EQ(ibv_destroy_qp(s->qp), 0);
    s->qp = ud_qp(s, s->srq, 0);
}

struct ibv_ah *handle(struct side *s, union ibv_gid to, uint16_t lid)
{
    struct ibv_ah_attr a = {
        .port_num = 1,
        .dlid = lid,
        .is_global = 1,
        .sl = 3,
        .grh = {.dgid = to, .hop_limit = 9, .traffic_class = 0xa5, .flow_label = 0x54321}};
    struct ibv_ah *ah = ibv_create_ah(s->pd, &a);

    CHECK(ah);
    return ah;
}

int try_from(struct side *s, struct ibv_qp *qp, uint64_t id, struct ibv_ah *ah, uint32_t qpn,
             uint32_t off, uint32_t len, unsigned flags)
{
    struct ibv_sge sge = {(uintptr_t)s->buf + off, len, s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = SEND,
                             .send_flags = flags},
                       *bad;

    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = QKEY;
    return ibv_post_send(qp, &wr, &bad);
}

void datagram(struct side *s, uint64_t id, struct ibv_ah *ah, uint32_t qpn, uint32_t off,
              uint32_t len)
{
    CHECK_EQ(try_from(s, s->qp, id, ah, qpn, off, len, IBV_SEND_SIGNALED), 0);
    CHECK_EQ(expect_wc(s->scq, id, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
}

struct address meet_address(struct side *s)
{
    struct address mine = {.gid = gid_of(s), .qpn = s->qp->qp_num}, theirs;

    CHECK(write(s->sock, &mine, sizeof(mine)) == sizeof(mine));
    CHECK(read(s->sock, &theirs, sizeof(theirs)) == sizeof(theirs));
    return theirs;
}

union ibv_gid group(void)
{
    return (union ibv_gid){.raw = {0xff, 0x12, 0x40, 1, 0xff, 0xff, [14] = 9, [15] = 9}};
}
