/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qp.c - creates, drains and destroys a link's QP.
 *
 * QP operations: the creation, stop or destruction of a QP takes up to a millisecond in the
 * kernel, with the engine's lock held.  Each is counted (qp_ops), and a poll does one at most
 * (ib_cm_events(), ib_link_free_drained()), so that other messages wait for one QP operation
 * only.
 */
#include <errno.h>
#include <string.h>
#include "bmi_ib/link/links.h"
#include "bmi_ib/queue/wr_id.h"

static void release_share(struct rme_link *l)
{
    l->f->cq.used -= l->cq_share;
    l->cq_share = 0;
}

int ib_qp_create(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    f->head->qp_ops++;
    uint32_t share = ib_cq_share(f, 0);
    int error = ib_cq_reserve(f, share);
    if (error) {
        ib_log(
            f, RME_LOG_ERROR,
            "%s: no room in the completion queue (%s): close connections, lower sq_depth, or "
            "set srq=on",
            l->peer, strerror(-error));
        return error;
    }
    l->cq_share = share;
    error = ib_ring_init(&l->ring, f->dev.sq_depth);
    if (error)
        goto undo;
    struct ibv_qp_init_attr attr = {
        .qp_context = f, /* owner of asynchronous events */
        .send_cq = f->cq.cq,
        .recv_cq = f->cq.cq,
        .srq = f->srq,
        .qp_type = IBV_QPT_RC,
        .cap =
            {
                .max_send_wr = f->dev.sq_depth + 1,
                .max_recv_wr = f->srq ? 0 : f->dev.rq_depth + 1, /* + 1: marker */
                .max_send_sge = f->caps.max_sge,
                .max_recv_sge = f->srq ? 0 : 1,
                .max_inline_data = f->dev.max_inline,
            },
    };
    if (rdma_create_qp(l->id, f->dev.pd, &attr)) {
        error = ib_errno();
        ib_log(
            f, RME_LOG_ERROR,
            "%s: no queue pair: %s; close connections, or raise the memlock limit (ulimit -l)",
            l->peer, strerror(-error));
        goto undo;
    }
    l->qp = l->id->qp;
    l->qp_num = l->qp->qp_num;
    l->undrained = IB_DRAIN_ALL;
    rme_table_put(&f->table, &l->by_qp, l->qp_num, IB_BY_QP);
    return 0;

undo:
    ib_ring_fini(&l->ring);
    release_share(l);
    return error;
}

static bool mark_send(struct rme_link *l)
{
    struct ibv_send_wr wr = {
        .wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, l->handle),
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
    };
    struct ibv_send_wr *bad;
    return ibv_post_send(l->qp, &wr, &bad) == 0;
}

static bool mark_recv(struct rme_link *l)
{
    struct ibv_recv_wr wr = {.wr_id = ib_wr_id(IB_WR_MARK_RECV, 0, l->handle)};
    struct ibv_recv_wr *bad;
    return ibv_post_recv(l->qp, &wr, &bad) == 0;
}

/*
 * Starts the drain; ib_link_drained() ends it.
 *
 * In the error state the device completes all posted requests as flushed, in order.  A marker
 * on each queue completes last, for which each queue reserves an entry; after both, nothing of
 * the link is left with the device.  The receive marker is posted before the change of state,
 * because rxe flushes a receive queue only at that change.  The send marker is posted after it,
 * or the marker would be sent.  (A message of a peer that ignores credits may consume the
 * receive marker; everything before it is complete nevertheless.)
 *
 * With an SRQ the QP has no receive queue to mark.  The device raises "last WQE reached" when
 * it takes no more receives from the SRQ for this QP; rxe does not.  Without the event, a
 * receive taken and not completed would be missing from the pool.
 *
 * Only wr_id, status and qp_num of a flushed CQE are used.  A call that fails during the drain
 * counts as done: ib_qp_destroy() ends all access, and the drain only ensures that no CQE is
 * left.
 */
void ib_qp_drain(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    f->head->qp_ops++;
    unsigned done = !f->srq || ib_is_rxe(f) ? IB_DRAIN_LAST : 0;
    if (f->srq || !mark_recv(l))
        done |= IB_DRAIN_RECVS;
    int ret = ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
    if (ret) {
        ib_log(f, RME_LOG_WARN, "%s: cannot stop the queue pair: %s; destroying the queue pair",
               l->peer, strerror(-ib_error(ret)));
        ib_link_drained(l, IB_DRAIN_ALL);
        return;
    }
    if (l->was_up || l->passive)
        rdma_disconnect(l->id); /* notifies the peer, without waiting for a reply */
    if (!mark_send(l))
        done |= IB_DRAIN_SENDS;
    ib_link_drained(l, done);
}

/* Ends all access by the device and frees the resources of the link. */
void ib_qp_destroy(struct rme_link *l)
{
    l->f->head->qp_ops++;
    ib_mws_drop(l);
    rdma_destroy_qp(l->id);
    l->qp = NULL;
    rme_table_take(&l->f->table, &l->by_qp);
    ib_rdma_op_purge(l);
    ib_mws_forget(l);
    ib_ring_fini(&l->ring);
    ib_rx_forget(l);
    release_share(l);
}
