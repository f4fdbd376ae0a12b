/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cq.c - completion queues and their space, and failed completions.
 *
 * Space is reserved before a QP is created: for its send queue, its receives and two markers;
 * with an SRQ each CQ also has room for all receives of the SRQ.  Therefore no CQ overruns.
 * When the last CQ is fully reserved, the CQ is resized to four times its size if the device
 * can, else a larger one is added; the number of CQs grows with the logarithm of the
 * connections at most.  The first CQ is small and takes at most an eighth of the lockable
 * memory, because a device pins its queues.
 */
#include <errno.h>
#include <string.h>
#include "base/remedy.h"
#include "bmi_ib/queue/queue.h"

#define CQ_FIRST 8192 /* CQEs of the first CQ: 60 connections */

static uint32_t granted(const struct ib_cq *c, uint64_t wanted)
{
    return (uint64_t)c->cq->cqe < wanted ? (uint32_t)c->cq->cqe : (uint32_t)wanted;
}

/* Returns the size for a CQ of n CQEs beside the receives of the SRQ, at least `wanted`; 0 if
 * the device has no such size. */
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
    uint64_t first = CQ_FIRST;
    if (f->config.budget && first > f->config.budget / 8 / IB_QUEUE_ENTRY)
        first = f->config.budget / 8 / IB_QUEUE_ENTRY;
    f->comp = ibv_create_comp_channel(f->dev.ctx);
    int error = f->comp ? ib_nonblocking(f->comp->fd) : ib_errno();
    if (!error)
        error = cq_create(f, first + (f->srq ? f->srq_depth : 0), 1);
    if (error)
        ib_log(f, RME_LOG_ERROR, "device %s: no completion queue: %s; %s", f->dev.name,
               strerror(-error), rme_remedy(error, "close other RDMA programs"));
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

/* Returns the number of CQEs that a link may produce at once: its sends, both markers, and its
 * own receives, at least 64, so that small reservations need no extension. */
uint32_t ib_cq_share(const struct rme_fabric *f, uint32_t advertised)
{
    uint32_t own = (advertised > 64 ? advertised : 64) + f->rx_slack;
    return f->dev.sq_depth + 2 + (f->srq ? 0 : own);
}

int ib_cq_extend(struct ib_cq *c, uint32_t n)
{
    if (c->broken || c->size - c->used < n)
        return -ENOSPC;
    c->used += n;
    return 0;
}

/* Reserves n CQEs in a CQ, growing or adding one if needed.  Returns 0 or a negative errno. */
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

/* ---- Failures ---- */

/* Maps the status of a CQE to a negative errno for the link. */
static int wc_error(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return 0;
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR: /* the peer does not answer */
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR:
        return -ECONNRESET;
    case IBV_WC_RNR_RETRY_EXC_ERR: /* the peer's credits were exceeded */
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

void ib_wc_failed(struct rme_fabric *f, struct rme_link *l, const struct ibv_wc *wc,
                  const char *what)
{
    if (wc->status == IBV_WC_RNR_RETRY_EXC_ERR)
        ib_count(f, RNR, 1);
    if (!l || l->state >= IB_DRAINING)
        return;
    ib_log(f, RME_LOG_WARN, "%s: %s failed: %s", l->peer, what, ibv_wc_status_str(wc->status));
    ib_link_fail(l, wc_error(wc->status), true);
}
