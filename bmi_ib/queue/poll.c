/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * poll.c - takes CQEs from the CQ and dispatches them.
 *
 * A wr_id names its link or buffer by handle, so that a late CQE finds nothing.  In a failed
 * CQE only wr_id, status and qp_num are valid.
 */
#include <errno.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"

__attribute__((noinline)) static void dispatch(struct ib_rail *rail, const struct ibv_wc *wc)
{
    enum ib_wr_kind kind = ib_wr_kind(wc->wr_id);
    struct rme_link *l = ib_link_by_handle(rail, ib_wr_low(wc->wr_id));
    if (kind == IB_WR_SEND && l != NULL && l->qp != NULL) {
        if (wc->status == IBV_WC_SUCCESS)
            ib_rdma_op_completed(l, ib_wr_position(wc->wr_id));
        else
            ib_wc_failed(rail, l, wc, "a send, write or read");
    } else if (kind == IB_WR_MARK_SEND || kind == IB_WR_MARK_RECV) {
        if (l != NULL && l->state == IB_DRAINING)
            rail->link_ops->drained(l,
                                    kind == IB_WR_MARK_SEND ? IB_DRAIN_SENDS : IB_DRAIN_RECVS);
    } else if (kind != IB_WR_SEND) {
        ib_log(rail, RME_LOG_WARN, "device %s: completion with unknown id %#llx ignored",
               rail->dev.name, (unsigned long long)wc->wr_id);
    }
}

/* Returns how many CQEs to read: as many as the caller's array has room for, because a CQE
 * makes at most one event that cannot wait. */
static inline int wanted(const struct ib_rail *rail, const struct ib_cq *c)
{
    int room = c->broken ? 0 : rail->out_max - rail->out_used;
    return room < IB_POLL_BATCH ? room : IB_POLL_BATCH;
}

/* Handles the result of a poll, and CQEs behind those. */
__attribute__((noinline)) static void take(struct ib_rail *rail, struct ib_cq *c,
                                           struct ibv_wc *wc, int got, int want)
{
    for (;;) {
        if (got < 0) {
            c->broken = true;
            rail->link_ops->fail_all(rail, -EIO, "cannot poll the completion queue");
            return;
        }
        ib_count(rail, CQ_ENTRIES, (unsigned)got);
        c->polled += (unsigned)got;
        for (int i = 0; i < got; i++)
            if (ib_wr_kind(wc[i].wr_id) == IB_WR_RECV)
                ib_rx_take(rail, &wc[i]);
            else
                dispatch(rail, &wc[i]);
        if (got < want)
            break;
        want = wanted(rail, c);
        if (want <= 0)
            return;
        ib_count(rail, CQ_POLLS, 1);
        got = ibv_poll_cq(c->cq, want, wc);
    }
    c->emptied++;
}

void ib_cq_poll(struct ib_rail *rail)
{
    struct ib_cq *c = &rail->cq;
    struct ibv_wc wc[IB_POLL_BATCH];
    int want = wanted(rail, c), got;
    if (want <= 0)
        return;
    ib_count(rail, CQ_POLLS, 1);
    got = ibv_poll_cq(c->cq, want, wc);
    if (got != 0)
        take(rail, c, wc, got, want);
    else
        c->emptied++;
}
