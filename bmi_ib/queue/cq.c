/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cq.c - the completion queue and its space, and failed completions.
 *
 * A rail has one CQ.  Space is reserved before a QP is created: for its send queue, its
 * receives and two markers; the CQ also has room for all receives of an SRQ.  Therefore the CQ
 * does not overrun.  The CQ is small at first and is resized to four times its size when all of
 * it is reserved.  A device that cannot resize a CQ (hns, for example) gets a large one at
 * once.  The first size takes at most an eighth of the lockable memory, because a device pins
 * its queues.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "bmi_ib/queue/queue.h"

#define CQ_FIRST 8192 /* CQEs for links at first: 300 connections */
#define CQ_FIXED                                                                               \
    262144 /* the same if the CQ cannot be resized: 15,000 connections with an SRQ */

/* Stores the capacity that the device granted, at most `wanted`. */
static void size_set(struct ib_cq *c, uint64_t wanted)
{
    c->size = (uint64_t)c->cq->cqe < wanted ? (uint32_t)c->cq->cqe : (uint32_t)wanted;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Spreads the interrupts of the machine's processes over the device's completion vectors. */
static int vector_of(const struct ib_rail *rail)
{
    int vectors = rail->dev.ctx->num_comp_vectors;
    return vectors > 1 ? getpid() % vectors : 0;
}

static void cq_destroy(struct ib_cq *c)
{
    if (c->unacked)
        ibv_ack_cq_events(c->cq, c->unacked);
    if (c->cq != NULL)
        ibv_destroy_cq(c->cq);
    c->cq = NULL;
}

/* Replaces the CQ, which has no links, by one with room for n CQEs of links beside the receives
 * of an SRQ, or for as many as the device permits.  On failure the old CQ stays. */
static int cq_replace(struct ib_rail *rail, uint64_t n)
{
    uint64_t size = lesser(n + rail->srq_depth, (uint32_t)rail->dev.attr.max_cqe);
    struct ibv_cq *cq =
        ibv_create_cq(rail->dev.ctx, (int)size, rail, rail->comp, vector_of(rail));
    if (cq == NULL)
        return ib_errno();
    cq_destroy(&rail->cq);
    rail->cq = (struct ib_cq){.cq = cq, .used = rail->srq_depth};
    size_set(&rail->cq, size);
    return 0;
}

static bool is_fixed(const struct ib_cq *c)
{
    int error = ib_error(ibv_resize_cq(c->cq, (int)c->size));
    return error == -EOPNOTSUPP || error == -ENOSYS;
}

/* Enlarges the CQ for n more CQEs. */
static int cq_grow(struct ib_rail *rail, uint32_t n)
{
    struct ib_cq *c = &rail->cq;
    uint64_t least = (uint64_t)c->used + n, size = (uint64_t)c->size * 4;
    int ret;
    size = lesser(size > least ? size : least, (uint32_t)rail->dev.attr.max_cqe);
    if (size < least)
        return -ENOSPC;
    ret = ibv_resize_cq(c->cq, (int)size);
    if (ret)
        return ib_error(ret);
    c->armed = false; /* no document says that arming outlasts the resize */
    size_set(c, size);
    return c->size < least ? -ENOSPC : 0;
}

int ib_cq_open(struct ib_rail *rail)
{
    uint64_t most = rail->config.budget ? rail->config.budget / 8 / IB_QUEUE_ENTRY : CQ_FIXED;
    int error;
    rail->comp = ibv_create_comp_channel(rail->dev.ctx);
    error = rail->comp != NULL ? ib_nonblocking(rail->comp->fd) : ib_errno();
    if (!error)
        error = cq_replace(rail, lesser(CQ_FIRST, most));
    if (!error && is_fixed(&rail->cq))
        error = cq_replace(rail, lesser(CQ_FIXED, most));
    if (error)
        ib_log(rail, RME_LOG_ERROR, "device %s: no completion queue: %s; %s", rail->dev.name,
               strerror(-error), rme_remedy(error, "close other RDMA programs"));
    return error;
}

void ib_cq_close(struct ib_rail *rail)
{
    cq_destroy(&rail->cq);
    if (rail->comp != NULL)
        ibv_destroy_comp_channel(rail->comp);
    rail->comp = NULL;
}

/* Returns the number of CQEs that a link may produce at once: its sends, both markers, and its
 * own receives. */
uint32_t ib_cq_share(const struct ib_rail *rail, uint32_t advertised)
{
    return rail->dev.sq_depth + 2 + (rail->srq != NULL ? 0 : advertised + rail->rx_slack);
}

int ib_cq_reserve(struct ib_rail *rail, uint32_t n)
{
    struct ib_cq *c = &rail->cq;
    int error = 0;
    if (c->broken)
        error = c->used > rail->srq_depth ? -EIO : cq_replace(rail, c->size - rail->srq_depth);
    if (!error && (uint64_t)c->used + n > c->size)
        error = cq_grow(rail, n);
    if (!error)
        c->used += n;
    return error;
}

/* ---- Failures ---- */

/* Maps the status of a CQE to a negative errno for the link. */
static int wc_error(enum ibv_wc_status status)
{
    switch (status) {
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

void ib_wc_failed(struct ib_rail *rail, struct rme_link *l, const struct ibv_wc *wc,
                  const char *what)
{
    if (wc->status == IBV_WC_RNR_RETRY_EXC_ERR)
        ib_count(rail, RNR, 1);
    if (l == NULL || l->state >= IB_DRAINING)
        return;
    ib_log(rail, RME_LOG_WARN, "%s: %s failed: %s", l->peer, what,
           ibv_wc_status_str(wc->status));
    l->rail->link_ops->fail(l, wc_error(wc->status), true);
}
