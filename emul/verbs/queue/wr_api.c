/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ibv_wr_* interface: requests built between wr_start and wr_complete are posted together;
 * none is posted if one is invalid. */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct emu_wr_build {
    struct emu_wr wr;
    struct ibv_sge sge[EMU_MAX_SGE];
    unsigned char *inl;
};

static struct emu_qp *of(struct ibv_qp_ex *ex)
{
    return (struct emu_qp *)ex;
}

static void wr_start(struct ibv_qp_ex *ex)
{
    struct emu_qp *qp = of(ex);

    emu_sq_lock(qp);
    qp->wr_count = 0;
    qp->wr_err = 0;
}

static struct emu_wr_build *add(struct ibv_qp_ex *ex, enum ibv_wr_opcode op)
{
    struct emu_qp *qp = of(ex);

    if (qp->wr_count == qp->wr_max) {
        struct emu_wr_build **v = realloc(qp->wr_build, (qp->wr_max + 1) * sizeof(*v));
        struct emu_wr_build *b = v != NULL ? calloc(1, sizeof(*b)) : NULL;
        unsigned char *inl = b != NULL ? malloc(qp->init.cap.max_inline_data + 1) : NULL;
        if (v != NULL)
            qp->wr_build = v;
        if (inl == NULL) {
            free(b);
            qp->wr_err = ENOMEM;
            return NULL;
        }
        b->inl = inl;
        v[qp->wr_max++] = b;
    }
    struct emu_wr_build *b = qp->wr_build[qp->wr_count++];
    memset(&b->wr, 0, sizeof(b->wr));
    b->wr.wr_id = ex->wr_id;
    b->wr.flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE;
    b->wr.opcode = op;
    b->wr.sge = b->sge;
    return b;
}

static struct emu_wr_build *current(struct ibv_qp_ex *ex)
{
    struct emu_qp *qp = of(ex);

    if (qp->wr_err || qp->wr_count == 0) {
        if (!qp->wr_err)
            qp->wr_err = EINVAL;
        return NULL;
    }
    return qp->wr_build[qp->wr_count - 1];
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t raddr,
                    __be32 imm)
{
    struct emu_wr_build *b = add(ex, op);

    if (b == NULL)
        return;
    b->wr.rkey = rkey;
    b->wr.raddr = raddr;
    b->wr.imm = imm;
}
static void wr_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
    wr_rdma(ex, IBV_WR_RDMA_READ, rkey, raddr, 0);
}
static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey,
                      uint64_t raddr, uint64_t compare_add, uint64_t swap)
{
    struct emu_wr_build *b = add(ex, op);

    if (b == NULL)
        return;
    b->wr.rkey = rkey;
    b->wr.raddr = raddr;
    b->wr.atomic.compare_add = compare_add;
    b->wr.atomic.swap = swap;
}
static void wr_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t compare,
                       uint64_t swap)
{
    wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, raddr, compare, swap);
}
static void wr_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t add_)
{
    wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, raddr, add_, 0);
}
static void wr_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
    wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, raddr, 0);
}
static void wr_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, __be32 imm)
{
    wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, raddr, imm);
}
static void wr_send(struct ibv_qp_ex *ex)
{
    add(ex, IBV_WR_SEND);
}
static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
    struct emu_wr_build *b = add(ex, IBV_WR_SEND_WITH_IMM);

    if (b != NULL)
        b->wr.imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t key)
{
    struct emu_wr_build *b = add(ex, IBV_WR_SEND_WITH_INV);

    if (b != NULL)
        b->wr.imm = key;
}
static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t key)
{
    struct emu_wr_build *b = add(ex, IBV_WR_LOCAL_INV);

    if (b != NULL)
        b->wr.imm = key;
}
static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info)
{
    struct emu_wr_build *b = add(ex, IBV_WR_BIND_MW);

    if (b != NULL && emu_mw_request(&b->wr, mw, rkey, info))
        of(ex)->wr_err = EINVAL;
}

static void wr_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    struct emu_wr_build *b = current(ex);

    if (b != NULL && (of(ex)->qp.qp_type != IBV_QPT_UD || emu_ah_fill(&b->wr, ah, qpn, qkey)))
        of(ex)->wr_err = EINVAL;
}

static void wr_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
    struct emu_wr_build *b = current(ex);

    if (b == NULL)
        return;
    if (n > of(ex)->init.cap.max_send_sge) {
        of(ex)->wr_err = EINVAL;
        return;
    }
    uint64_t length = 0;
    for (size_t i = 0; i < n; i++) {
        b->sge[i] = list[i];
        length += list[i].length;
    }
    if (length > 1u << 30) {
        of(ex)->wr_err = EINVAL;
        return;
    }
    b->wr.nsge = (uint32_t)n;
    b->wr.length = (uint32_t)length;
}
static void wr_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
    struct ibv_sge s = {.addr = addr, .length = length, .lkey = lkey};

    wr_sge_list(ex, 1, &s);
}

static void wr_inline_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
    struct emu_wr_build *b = current(ex);
    uint64_t length = 0;

    if (b == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        if (length + list[i].length > of(ex)->init.cap.max_inline_data) {
            of(ex)->wr_err = EINVAL;
            return;
        }
        if (list[i].length)
            memcpy(b->inl + length, list[i].addr, list[i].length);
        length += list[i].length;
    }
    b->wr.flags |= IBV_SEND_INLINE;
    b->wr.inl = b->inl;
    b->wr.nsge = 0;
    b->wr.length = (uint32_t)length;
}
static void wr_inline(struct ibv_qp_ex *ex, void *addr, size_t length)
{
    struct ibv_data_buf one = {addr, length};

    wr_inline_list(ex, 1, &one);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
    struct emu_qp *qp = of(ex);
    struct emu_dev *d = emu_dev_for(qp->qp.context);
    int err = qp->wr_err;

    if (emu_call(CALL_ibv_post_send))
        err = ENOMEM;
    else if (d == NULL)
        err = EIO;
    if (!err &&
        qp->wr_count > qp->init.cap.max_send_wr - (qp->sq_tail - atomic_load(&qp->sq_freed)))
        err = ENOMEM;
    for (uint32_t i = 0; i < qp->wr_count && !err; i++)
        err = emu_sq_check(d, qp, &qp->wr_build[i]->wr);
    if (!err)
        emu_count(COUNT_doorbells, 1);
    for (uint32_t i = 0; i < qp->wr_count && !err; i++)
        err = emu_sq_post(d, qp, &qp->wr_build[i]->wr);
    qp->wr_count = 0;
    pthread_mutex_unlock(&qp->sq_lock);
    return err;
}
static void wr_abort(struct ibv_qp_ex *ex)
{
    of(ex)->wr_count = 0;
    pthread_mutex_unlock(&of(ex)->sq_lock);
}

void emu_wr_api_init(struct emu_qp *qp)
{
    struct ibv_qp_ex *ex = &qp->ex;

    if (!qp->is_ex)
        return;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
    ex->wr_rdma_read = wr_read;
    ex->wr_rdma_write = wr_write;
    ex->wr_rdma_write_imm = wr_write_imm;
    ex->wr_atomic_cmp_swp = wr_cmp_swp;
    ex->wr_atomic_fetch_add = wr_fetch_add;
    ex->wr_send = wr_send;
    ex->wr_send_imm = wr_send_imm;
    ex->wr_send_inv = wr_send_inv;
    ex->wr_local_inv = wr_local_inv;
    ex->wr_bind_mw = wr_bind_mw;
    ex->wr_set_ud_addr = wr_ud_addr;
    ex->wr_set_sge = wr_sge;
    ex->wr_set_sge_list = wr_sge_list;
    ex->wr_set_inline_data = wr_inline;
    ex->wr_set_inline_data_list = wr_inline_list;
}

void emu_wr_api_fini(struct emu_qp *qp)
{
    for (uint32_t i = 0; i < qp->wr_max; i++) {
        free(qp->wr_build[i]->inl);
        free(qp->wr_build[i]);
    }
    free(qp->wr_build);
}
