/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cq.c - completion queues: space, polling, dispatch.
 *
 * Space is booked before a queue pair is made: everything it could ever complete at once (its
 * send queue, its receives, two markers) fits, and with shared receives each queue also has
 * room for all of those.  So no queue overruns.  When the last is booked out it is made four
 * times as large where the device can do that, else a larger one is added: their number grows
 * with the logarithm of the connections at most.  The first is small, and takes at most an
 * eighth of what may be locked: a device locks the memory of its queues.
 *
 * A server of many connections has several queues, and what comes comes through one of them for
 * a while.  So a queue that brought something is asked alone for CQ_ALONE polls.  Then all are
 * asked, and before that when the device is to wake us, or when a poll left something behind:
 * nobody waits longer than for so many polls and what they take.
 *
 * A completion's id leads to its link or buffer by handle, so that a late one finds nothing. Of
 * a failed completion only id, status and queue pair number mean anything.
 */
#include <errno.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"
#include "bmi_ib/queue/wr_id.h"

#define CQ_FIRST 8192 /* completions of the first queue: 60 connections */
#define CQ_ALONE 16   /* polls of the queue that brings, between two of all */

/* ---- Space ---- */

static uint32_t granted(const struct ib_cq *c, uint64_t wanted)
{
    return (uint64_t)c->cq->cqe < wanted ? (uint32_t)c->cq->cqe : (uint32_t)wanted;
}

/* The size for a queue that shall hold n completions beside the shared receives, at least
 * `wanted`; 0: impossible. */
static uint64_t fitting(const struct rme_fabric *f, uint64_t wanted, uint32_t n)
{
    uint64_t least = (uint64_t)(f->srq ? f->srq_depth : 0) + n,
             most = (uint32_t)f->dev.attr.max_cqe;
    uint64_t size = wanted > least ? wanted : least;
    if (size > most)
        size = most;
    return size < least ? 0 : size;
}

static int cq_create(struct rme_fabric *f, uint64_t wanted, uint32_t n)
{
    uint32_t base = f->srq ? f->srq_depth : 0;
    uint64_t size = fitting(f, wanted, n);
    if (f->cqs == IB_CQS_MAX || !size)
        return -ENOSPC;
    struct ib_cq *c = &f->cq[f->cqs];
    *c = (struct ib_cq){.used = base};
    TAILQ_INIT(&c->drained);
    c->cq = ibv_create_cq(f->dev.ctx, (int)size, c, f->comp, 0);
    if (!c->cq)
        return ib_errno();
    c->size = granted(c, size);
    f->cqs++;
    return 0;
}

static int cq_grow(struct rme_fabric *f, struct ib_cq *c, uint32_t n)
{
    uint64_t size =
        fitting(f, (uint64_t)c->size * 4, c->used - (f->srq ? f->srq_depth : 0) + n);
    if (c->broken || size <= c->size)
        return -ENOSPC;
    int ret = ibv_resize_cq(c->cq, (int)size);
    if (ret)
        return ib_error(ret);
    c->size = granted(c, size);
    return 0;
}

int ib_cq_open(struct rme_fabric *f)
{
    uint64_t first = (uint64_t)ib_option(f, "cq_depth");
    if (!first)
        first = CQ_FIRST;
    if (f->config.budget && first > f->config.budget / 8 / IB_QUEUE_ENTRY)
        first = f->config.budget / 8 / IB_QUEUE_ENTRY;
    f->comp = ibv_create_comp_channel(f->dev.ctx);
    int error = f->comp ? ib_nonblocking(f->comp->fd) : ib_errno();
    if (!error)
        error = cq_create(f, first + (f->srq ? f->srq_depth : 0), 1);
    if (error)
        ib_log(f, RME_LOG_ERROR, "device %s gives no completion queue: %s", f->dev.name,
               strerror(-error));
    return error;
}

void ib_cq_close(struct rme_fabric *f)
{
    for (unsigned i = 0; i < f->cqs; i++) {
        if (f->cq[i].unacked)
            ibv_ack_cq_events(f->cq[i].cq, f->cq[i].unacked);
        ibv_destroy_cq(f->cq[i].cq);
    }
    f->cqs = 0;
    if (f->comp)
        ibv_destroy_comp_channel(f->comp);
    f->comp = NULL;
}

/* Completions a link may produce at once: its sends, both markers, its own receives (a few
 * without asking again). */
uint32_t ib_cq_share(const struct rme_fabric *f, uint32_t promised)
{
    uint32_t own = (promised > 64 ? promised : 64) + f->rx_slack;
    return f->dev.sq_depth + 2 + (f->srq ? 0 : own);
}

int ib_cq_extend(struct ib_cq *c, uint32_t n)
{
    if (c->broken || c->size - c->used < n)
        return -ENOSPC;
    c->used += n;
    return 0;
}

/* Books room for n completions. */
int ib_cq_reserve(struct rme_fabric *f, uint32_t n, struct ib_cq **out)
{
    for (unsigned i = 0; i < f->cqs; i++)
        if (ib_cq_extend(&f->cq[i], n) == 0) {
            *out = &f->cq[i];
            return 0;
        }
    struct ib_cq *last = &f->cq[f->cqs - 1];
    int error = cq_grow(f, last, n);
    if (error) {
        error = cq_create(f, (uint64_t)last->size * 4, n);
        last = &f->cq[f->cqs - 1];
    }
    if (error)
        return error;
    *out = last;
    return ib_cq_extend(last, n);
}

void ib_cq_release(struct ib_cq *c, uint32_t n)
{
    c->used -= n;
}

/* ---- Dispatch ---- */

/* What a completion's failure means for the link. */
int ib_wc_error(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return 0;
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR: /* the peer does not answer any more */
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR:
        return -ECONNRESET;
    case IBV_WC_RNR_RETRY_EXC_ERR: /* flow control is broken */
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_LOC_LEN_ERR:
        return -EPROTO;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
        return -EFAULT;
    default:
        return -EIO;
    }
}

/* A request failed.  The first failure says why; the flushes that follow say nothing. */
static void wc_failed(struct rme_fabric *f, struct rme_link *l, const struct ibv_wc *wc,
                      const char *what)
{
    if (wc->status == IBV_WC_RNR_RETRY_EXC_ERR)
        ib_count(f, RNR, 1);
    if (!l || l->state >= IB_DRAINING)
        return;
    ib_log(f, RME_LOG_WARN, "%s: %s failed: %s", l->peer, what, ibv_wc_status_str(wc->status));
    f->reports->failed(l, ib_wc_error(wc->status), true);
}

static void wc_send(struct rme_fabric *f, const struct ibv_wc *wc)
{
    struct rme_link *l = ib_link_by_handle(f, ib_wr_low(wc->wr_id));
    if (!l || !l->qp)
        return;
    if (wc->status == IBV_WC_SUCCESS)
        ib_xfer_completed(l, ib_wr_position(wc->wr_id));
    else
        wc_failed(f, l, wc, "a send, write or read");
}

static void wc_recv(struct rme_fabric *f, const struct ibv_wc *wc)
{
    struct ib_rx *rx = ib_rx_completed(f, wc->wr_id);
    if (!rx)
        return;
    struct rme_link *l = f->srq ? ib_link_by_qp(f, wc->qp_num) : ib_link_by_handle(f, rx->link);
    if (!l && !f->srq)
        return;
    if (wc->status != IBV_WC_SUCCESS) {
        ib_rx_failed(f, l, rx);
        wc_failed(f, l, wc, "a receive");
        return;
    }
    bool imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    ib_rx_received(f, l, rx, imm, imm ? ntohl(wc->imm_data) : wc->byte_len);
}

static void wc_mark(struct rme_fabric *f, const struct ibv_wc *wc, bool send)
{
    struct rme_link *l = ib_link_by_handle(f, ib_wr_low(wc->wr_id));
    if (!l || !l->draining)
        return;
    if (send)
        l->send_drained = true;
    else
        l->recv_drained = true;
    f->reports->marked(l);
}

static void dispatch(struct rme_fabric *f, const struct ibv_wc *wc)
{
    switch (ib_wr_kind(wc->wr_id)) {
    case IB_WR_SEND:
        wc_send(f, wc);
        return;
    case IB_WR_RECV:
        wc_recv(f, wc);
        return;
    case IB_WR_MARK_SEND:
        wc_mark(f, wc, true);
        return;
    case IB_WR_MARK_RECV:
        wc_mark(f, wc, false);
        return;
    case IB_WR_NONE:
        break;
    }
    ib_log(f, RME_LOG_WARN, "device %s: a completion with the unknown id %#llx is ignored",
           f->dev.name, (unsigned long long)wc->wr_id);
}

static void cq_broken(struct rme_fabric *f, struct ib_cq *c, int error)
{
    c->broken = true;
    ib_log(f, RME_LOG_ERROR,
           "device %s: a completion queue cannot be polled: %s; its connections fail",
           f->dev.name, strerror(-error));
    f->reports->all_failed(f, c, -EIO);
}

/* Takes completions while the caller has room for their events: each makes at most one of those
 * that cannot wait.  False: there may be more. */
static bool poll_one(struct rme_fabric *f, struct ib_cq *c)
{
    struct ibv_wc wc[IB_POLL_BATCH];
    int want, got;
    do {
        want = f->out_max - f->out_used;
        if (want > IB_POLL_BATCH)
            want = IB_POLL_BATCH;
        if (want <= 0 || c->broken)
            return false;
        got = ibv_poll_cq(c->cq, want, wc);
        ib_count(f, CQ_POLLS, 1);
        if (got < 0) {
            cq_broken(f, c, ib_error(got));
            return false;
        }
        ib_count(f, CQ_ENTRIES, (unsigned)got);
        c->polled += (unsigned)got;
        for (int i = 0; i < got; i++)
            dispatch(f, &wc[i]);
    } while (got == want);
    c->emptied++;
    return true;
}

/* All are asked, each first in its turn; the last that brought is asked alone next. */
static void poll_all(struct rme_fabric *f)
{
    bool left = false;
    unsigned brings = f->cqs;
    for (unsigned i = 0; i < f->cqs; i++) {
        unsigned k = (f->cq_first + i) % f->cqs;
        uint64_t before = f->cq[k].polled;
        if (!poll_one(f, &f->cq[k]))
            left = true;
        if (f->cq[k].polled != before)
            brings = k;
    }
    f->cq_first = (f->cq_first + 1) % f->cqs;
    if (brings < f->cqs && !left) {
        f->cq_brings = brings;
        f->cq_alone = CQ_ALONE;
    }
}

void ib_cq_poll(struct rme_fabric *f)
{
    if (f->cqs == 1) {
        (void)poll_one(f, &f->cq[0]);
    } else if (f->cq_alone == 0) {
        poll_all(f);
    } else {
        f->cq_alone--;
        if (!poll_one(f, &f->cq[f->cq_brings]))
            f->cq_alone = 0;
    }
}
