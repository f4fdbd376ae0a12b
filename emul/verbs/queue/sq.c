/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Completion and flushing of send requests, and priority for the lock; post.c executes
 * requests. */
#include "emul/verbs/queue/queue.h"

#include <sched.h>
#include <stdlib.h>

#define LET_BY (EMU_NSEC / 500) /* longest wait of a poster for the service thread */

/*
 * A released mutex is usually taken by the running thread, not by a waiting one. A thread that
 * continuously posts datagrams to a busy QP holds the lock nearly always; if a dead process
 * made the QP busy, this lasts until the service thread gets the lock and clears up. So a
 * poster waits while the service thread wants the lock, but only briefly, because a program's
 * thread may hold the lock between wr_start and wr_complete.
 */
void emu_sq_lock(struct emu_qp *qp)
{
    if (atomic_load_explicit(&qp->sq_wanted, memory_order_relaxed))
        for (uint64_t until = emu_now() + LET_BY;
             atomic_load(&qp->sq_wanted) && emu_now() < until;)
            sched_yield();
    pthread_mutex_lock(&qp->sq_lock);
}

void emu_sq_lock_first(struct emu_qp *qp)
{
    atomic_fetch_add(&qp->sq_wanted, 1);
    pthread_mutex_lock(&qp->sq_lock);
    atomic_fetch_sub(&qp->sq_wanted, 1);
}

static uint8_t wc_opcode(enum ibv_wr_opcode op)
{
    switch (op) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    case IBV_WR_BIND_MW:
        return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
        return IBV_WC_LOCAL_INV;
    default:
        return IBV_WC_SEND;
    }
}

bool emu_sq_complete(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr,
                     enum ibv_wc_status status)
{
    struct shm_cqe c = {.wr_id = wr->wr_id,
                        .sq_index = i,
                        .qpn = qp->qp.qp_num,
                        .src_qp = qp->attr.dest_qp_num,
                        .status = (uint8_t)status,
                        .opcode = wc_opcode(wr->opcode),
                        .from_sq = 1};

    if (status == IBV_WC_SUCCESS) {
        if (wr->opcode == IBV_WR_RDMA_READ || emu_is_atomic(wr->opcode))
            emu_count(COUNT_bytes_read, wr->length);
        else if (c.opcode == IBV_WC_RDMA_WRITE)
            emu_count(COUNT_bytes_write, wr->length);
        else
            emu_count(COUNT_bytes_send, wr->length);
        emu_count_port(qp->source, PORT_COUNT_bytes, wr->length);
        if (!(wr->flags & IBV_SEND_SIGNALED))
            return true;
        c.byte_len = wr->length;
    } else {
        emu_count(status == IBV_WC_WR_FLUSH_ERR ? COUNT_wr_flushed : COUNT_wr_failed, 1);
    }
    if (!emu_cq_push(d, &d->self, qp->scq->index, &c))
        return false;
    emu_cq_notify(d, &d->self, qp->scq->index, status != IBV_WC_SUCCESS);
    return true;
}

void emu_sq_report(struct emu_dev *d, struct emu_qp *qp, uint64_t i, const struct emu_wr *wr)
{
    qp->sq_reported = i + 1;
    qp->sq_reported_ok = emu_sq_complete(d, qp, i, wr, IBV_WC_SUCCESS);
}

void emu_sq_release(struct emu_sqe *e)
{
    free(e->inl);
    e->inl = NULL;
}

void emu_sq_flush(struct emu_dev *d, struct emu_qp *qp)
{
    while (qp->sq_retire < qp->sq_tail) {
        uint64_t i = qp->sq_retire++;
        struct emu_sqe *e = emu_sqe(qp, i);
        emu_sq_complete(d, qp, i, &e->wr,
                        e->state == SQE_DONE ? e->status : IBV_WC_WR_FLUSH_ERR);
        emu_sq_release(e);
    }
    qp->sq_exec = qp->sq_sent = qp->sq_tail;
    qp->reads_out = qp->reads_sent = 0;
}
