/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qp.c - a link's queue pair: made, drained, destroyed.
 *
 * Drain.  In the error state the device completes everything that was posted, in order, as
 * flushed.  A marker request on each queue therefore completes last, and when both have come in
 * nothing of this link is left with the device. Both queues keep one slot free for it.  The
 * receive marker is posted before the state changes, because rxe flushes a receive queue only
 * when the state is set.  (Should a message of a peer that knows no credits take the marker,
 * everything before it is complete all the same.)  The send marker must come after, or it would
 * be sent.
 *
 * With shared receives there is no receive queue of the pair to mark: the device then raises
 * "last WQE reached" once it takes no more from the shared queue for this pair.  That event is
 * waited for only briefly: some devices do not raise it (a quirk says which).
 * Without it a receive that the device had taken for this pair and not completed would be
 * missing from the pool; the pair is gone all the same.
 *
 * Of a flushed completion only id, status and queue pair number are looked at.
 *
 * A call that fails during the drain counts as done: ib_qp_destroy ends all access by itself,
 * the drain before it only makes sure that no completion is left behind.
 *
 * Strides.  To make, to stop or to destroy a queue pair goes through the kernel to the device
 * and may take most of a millisecond, with the engine's lock held.  So each counts as a stride,
 * and what would take the next one in the same poll is left to the next poll (ib_cm_events,
 * ib_link_reap): messages of others wait for one stride, however many connections come or go at
 * once.
 */
#include <errno.h>
#include <string.h>
#include "bmi_ib/link/links.h"
#include "bmi_ib/queue/wr_id.h"

/* Does it receive into the shared queue?  A side receives nothing. */
static bool shares(const struct rme_link *l)
{
    return l->f->srq && !l->is_side;
}

/* Receives that its own queue has room for, the mark among them. */
static uint32_t receives(const struct rme_link *l)
{
    if (shares(l))
        return 0;
    return l->is_side ? 1 : l->f->dev.rq_depth + 1;
}

int ib_qp_create(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    f->head->strides++;
    uint32_t share = ib_cq_share(f, l->rx_promised);
    int error = ib_cq_reserve(f, share, &l->cq);
    if (error) {
        ib_log(
            f, RME_LOG_ERROR,
            "%s: no room in the completion queues (%s): close connections, or lower sq_depth",
            l->peer, strerror(-error));
        return error;
    }
    l->cq_share = share;
    error = l->ring.slot ? 0 : ib_ring_init(&l->ring, f->dev.sq_depth);
    if (error)
        goto undo_share;
    struct ibv_qp_init_attr attr = {
        .qp_context = f, /* whose events are this queue pair's */
        .send_cq = l->cq->cq,
        .recv_cq = l->cq->cq,
        .srq = shares(l) ? f->srq : NULL,
        .qp_type = IBV_QPT_RC,
        .cap =
            {
                .max_send_wr = f->dev.sq_depth + 1,
                .max_recv_wr = receives(l),
                .max_send_sge = f->caps.max_sge,
                .max_recv_sge = shares(l) ? 0 : 1,
                .max_inline_data = f->dev.max_inline,
            },
    };
    if (rdma_create_qp(l->id, f->dev.pd, &attr)) {
        error = ib_errno();
        ib_log(
            f, RME_LOG_ERROR,
            "%s: no queue pair: %s; close connections, or raise the memlock limit (ulimit -l)",
            l->peer, strerror(-error));
        goto undo_share;
    }
    l->qp = l->id->qp;
    l->qp_num = l->qp->qp_num;
    l->send_drained = l->recv_drained = l->last_wqe = false;
    error = ib_table_put_qp(l);
    if (error)
        ib_qp_destroy(l);
    return error;

undo_share:
    ib_cq_release(l->cq, l->cq_share);
    l->cq = NULL;
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

/* Starts the drain; its end comes by ib_link_drained. */
void ib_qp_drain(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    f->head->strides++;
    l->last_wqe = l->last_wqe || !shares(l) || ib_quirk_no_last_wqe(f);
    l->recv_drained = shares(l) || !mark_recv(l);
    int ret = ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
    if (ret) {
        ib_log(f, RME_LOG_WARN, "%s: cannot stop the queue pair: %s; destroying the queue pair",
               l->peer, strerror(-ib_error(ret)));
        l->send_drained = l->recv_drained = l->last_wqe = true;
        return;
    }
    if (l->was_up || l->passive)
        rdma_disconnect(l->id); /* tells the peer; a silent one is not waited for */
    l->send_drained = !mark_send(l);
}

/* Ends all access by the device and returns what the link held. */
void ib_qp_destroy(struct rme_link *l)
{
    l->f->head->strides++;
    ib_windows_drop(l);
    rdma_destroy_qp(l->id);
    l->qp = NULL;
    ib_table_remove_qp(l);
    ib_xfer_purge(l);
    ib_windows_forget(l);
    ib_rx_forget(l);
    ib_cq_release(l->cq, l->cq_share);
    l->cq = NULL;
}
