/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rx.c - receive buffers.
 *
 * One pool of registered buffers serves all links, with an SRQ and with per-QP receive queues.
 * The number of buffers posted or held by the engine never falls below the advertised number,
 * per link or, with an SRQ, over all links.  A returned buffer is posted again if the
 * advertised number needs it, else put into the pool.  The advertised number shrinks only as
 * receives are consumed, because posted receives cannot be withdrawn.
 *
 * Order: buffers wait in a chain that is posted before the next send (rdma_op.c), so a receive
 * is posted before the peer gets its credit.  A queue may hold a few receives beyond the
 * promise (slack); a chain that is no longer than the slack need not be posted, which batches
 * receives.  A per-QP queue has its slack once the advertised number is as large, i.e. when the
 * link is in use (common/transport/grant.c).  A listener without SRQ has no slack, because of
 * the memory per connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"

#define SLACK_SHARED 16 /* receives of an SRQ beyond the advertised number */
#define SLACK_OWN                                                                              \
    8 /* the same of each QP of a client, once the advertised number is as large */
#define SRQ_DEPTH       16384 /* receives of an SRQ; each connection has at least one */
#define SRQ_MIN         64    /* minimum receives of an SRQ under a low memlock limit */
#define SRQ_REPLACE_MIN 512 /* receives posted to an SRQ without links that justify a new SRQ */
#define UNUSED_PART     4   /* unused slabs kept: 1 + those in use / UNUSED_PART */

/* ---- The pool ---- */

/* Returns the bytes between buffers of a slab; each buffer starts at a cache line. */
static size_t stride(const struct ib_rail *rail)
{
    return ((size_t)rail->config.rx_size + 63) & ~(size_t)63;
}

static int pool_grow(struct ib_rail *rail)
{
    struct ib_rx_pool *p = &rail->rx;
    uint32_t place = 0;
    struct ib_rx_slab *s;
    int error;
    while (place < p->slabs && p->slab[place] != NULL)
        place++;
    if (place == p->slabs) {
        struct ib_rx_slab **more = realloc(p->slab, (place + 1) * sizeof(*more));
        if (more == NULL)
            return -ENOMEM;
        p->slab = more;
        p->slab[p->slabs++] = NULL;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    error = ib_memory_get(rail, rail->slab * stride(rail), &s->memory);
    if (error) {
        free(s);
        return error;
    }
    list_init(&s->free);
    for (uint32_t i = 0; i < rail->slab; i++) {
        struct ib_rx *rx = &s->rx[i];
        rx->data = (char *)s->memory.base + i * stride(rail);
        rx->sge =
            (struct ibv_sge){(uintptr_t)rx->data, rail->config.rx_size, s->memory.mr->lkey};
        rx->wr.sg_list = &rx->sge;
        rx->wr.num_sge = 1;
        rx->index = place * rail->slab + i;
        rx->rail = rail->number;
        rx->generation = p->generation;
        list_add_tail(&rx->entry, &s->free);
    }
    p->slab[place] = s;
    p->nslab++;
    p->unused++;
    p->nfree += s->nfree = rail->slab;
    list_add_tail(&s->open, &p->open);
    return 0;
}

static void slab_free(struct ib_rx_slab *s)
{
    ib_memory_put(&s->memory);
    free(s);
}

/* Frees unused slabs beyond a fraction of those in use, after a QP is destroyed.  Receives in
 * an SRQ stay posted until the last link is gone; a new SRQ then replaces the old one. */
static void pool_shrink(struct ib_rail *rail)
{
    struct ib_rx_pool *p = &rail->rx;
    while (p->unused > 1 + (p->nslab - p->unused) / UNUSED_PART) {
        struct ib_rx_slab *s = list_last(&p->open, struct ib_rx_slab, open);
        for (uint32_t i = 0; i < rail->slab; i++)
            if (s->rx[i].generation > p->generation)
                p->generation = s->rx[i].generation;
        list_del_init(&s->open);
        p->slab[s->rx[0].index / rail->slab] = NULL;
        p->nslab--;
        p->unused--;
        p->nfree -= rail->slab;
        slab_free(s);
    }
}

__attribute__((noinline)) static void pool_put(struct ib_rail *rail, struct ib_rx *rx)
{
    struct ib_rx_pool *p = &rail->rx;
    struct ib_rx_slab *s = p->slab[rx->index >> __builtin_ctz(rail->slab)];
    bool is_open = s->nfree++ > 0;
    rx->posted = false;
    list_add_head(&rx->entry, &s->free);
    p->nfree++;
    if (s->nfree == rail->slab) {
        if (is_open)
            list_del_init(&s->open);
        list_add_tail(&s->open, &p->open);
        p->unused++;
    } else if (!is_open) {
        list_add_head(&s->open, &p->open);
    }
}

static struct ib_rx *pool_get(struct ib_rail *rail)
{
    struct ib_rx_pool *p = &rail->rx;
    struct ib_rx_slab *s = list_first(&p->open, struct ib_rx_slab, open);
    struct ib_rx *rx = list_first(&s->free, struct ib_rx, entry);
    list_del_init(&rx->entry);
    p->unused -= s->nfree == rail->slab;
    p->nfree--;
    if (--s->nfree == 0)
        list_del_init(&s->open);
    return rx;
}

/* Grows the pool to at least n free buffers. */
static int pool_ensure(struct ib_rail *rail, uint32_t n)
{
    int error = 0;
    while (!error && rail->rx.nfree < n)
        error = pool_grow(rail);
    return error;
}

/* ---- Advertised receives ---- */

static struct ib_rx_queue *queue_of(struct ib_rail *rail, struct rme_link *l)
{
    return rail->srq != NULL ? &rail->rxq : &l->rxq;
}

/* Returns the number of receives that a queue may hold beyond the advertised number. */
static uint32_t slack(const struct ib_rail *rail, const struct ib_rx_queue *q)
{
    return rail->srq != NULL || q->advertised >= rail->rx_slack ? rail->rx_slack : 0;
}

/* Returns the link whose own queue gets its receives; NULL: the rail's shared queue does. */
static struct rme_link *owner(const struct ib_rail *rail, struct rme_link *l)
{
    return rail->srq != NULL ? NULL : l;
}

/* Appends a buffer to the chain of the owner's queue. */
static inline __attribute__((always_inline)) void chain(struct ib_rail *rail,
                                                        struct rme_link *own, struct ib_rx *rx)
{
    struct ib_rx_queue *q = own != NULL ? &own->rxq : &rail->rxq;
    rx->generation++;
    rx->wr.wr_id = ib_wr_id(IB_WR_RECV, rx->generation, rx->index);
    if (own != NULL)
        rx->link = own->handle;
    q->posted++;
    q->chained++;
    list_add_tail(&rx->entry, &q->chain);
    if (own != NULL && ib_rx_must_post(rail, q))
        ib_link_dirty(own);
}

/* Returns the number of buffers that a queue lacks. */
static uint32_t lacking(const struct ib_rail *rail, const struct ib_rx_queue *q)
{
    uint32_t wanted = q->advertised + slack(rail, q), has = q->posted + q->held;
    return wanted > has ? wanted - has : 0;
}

/* Returns true if receives can be posted.  l may be NULL with an SRQ. */
static bool can_post(const struct ib_rail *rail, const struct rme_link *l)
{
    return rail->srq != NULL || (l != NULL && l->qp != NULL && l->state < IB_DRAINING);
}

/* Chains an unused buffer if the advertised number needs it, else puts it into the pool. */
static void recycle(struct ib_rail *rail, struct rme_link *l, struct ib_rx *rx)
{
    if (can_post(rail, l) && lacking(rail, queue_of(rail, l))) {
        chain(rail, owner(rail, l), rx);
        return;
    }
    pool_put(rail, rx);
    if (rail->srq == NULL && l == NULL) /* the link is gone */
        pool_shrink(rail);
}

int ib_rx_reserve(struct rme_link *l, uint32_t n)
{
    struct ib_rail *rail = l->rail;
    struct ib_rx_queue *q = queue_of(rail, l);
    uint32_t limit =
        (rail->srq != NULL ? rail->srq_depth : rail->dev.rq_depth) - rail->rx_slack;
    uint32_t share, lacks;
    int error;
    if (l->qp == NULL)
        return -ENOTCONN;
    if (n > limit || q->advertised > limit - n)
        return -ENOSPC;
    share = ib_cq_share(rail, l->rx_advertised + n);
    if (share > l->cq_share) {
        error = ib_cq_reserve(rail, share - l->cq_share);
        if (error)
            return error;
        l->cq_share = share;
    }
    q->advertised += n;
    l->rx_advertised += n;
    lacks = can_post(rail, l) ? lacking(rail, q) : 0;
    error = pool_ensure(rail, lacks);
    if (error) {
        q->advertised -= n;
        l->rx_advertised -= n;
        return error;
    }
    while (lacks--)
        chain(rail, owner(rail, l), pool_get(rail));
    return 0;
}

void ib_rx_release(struct rme_link *l, uint32_t n)
{
    if (n > l->rx_advertised) /* a PONG may be processed after ib_rx_reclaim() */
        n = l->rx_advertised;
    l->rx_advertised -= n;
    queue_of(l->rail, l)->advertised -= n;
}

/* ---- Posting ---- */

/* Puts receives that the device refused, from `bad` on, into the pool.  A device that does not
 * name one of them has taken none. */
static void undo(struct ib_rail *rail, struct ib_rx_queue *q, struct ibv_recv_wr *first,
                 const struct ibv_recv_wr *bad)
{
    struct ibv_recv_wr *wr = first, *next;
    while (wr != NULL && wr != bad)
        wr = wr->next;
    for (wr = wr != NULL ? wr : first; wr != NULL; wr = next) {
        next = wr->next;
        q->posted--;
        if (rail->srq == NULL)
            list_del_init(&ib_rx_of(wr)->entry);
        pool_put(rail, ib_rx_of(wr));
    }
}

/* Posts the chain of a queue.  Returns 0 or a negative errno.  l may be NULL with an SRQ. */
int ib_rx_post(struct ib_rail *rail, struct rme_link *l)
{
    struct ib_rx_queue *q = queue_of(rail, l);
    struct ib_rx *first = list_first(&q->chain, struct ib_rx, entry), *rx;
    struct ibv_recv_wr *bad = NULL;
    int ret;
    if (first == NULL)
        return 0;
    list_for_each(rx, &q->chain, entry) {
        struct ib_rx *next = list_next(rx, &q->chain, entry);
        rx->posted = true;
        rx->wr.next = next != NULL ? &next->wr : NULL;
    }
    if (rail->srq != NULL)
        list_init(&q->chain);
    else
        list_move_all(&q->chain, &q->at_device);
    q->chained = 0;
    ret = rail->srq != NULL ? ibv_post_srq_recv(rail->srq, &first->wr, &bad)
                            : ibv_post_recv(l->qp, &first->wr, &bad);
    ib_count(rail, RECV_DOORBELLS, 1);
    if (!ret)
        return 0;
    undo(rail, q, &first->wr, bad);
    return ib_error(ret);
}

/* ---- Completions ---- */

/* Returns the buffer of a completed receive; NULL: late CQE of a destroyed QP.  A receive's
 * wr_id has the buffer's index and generation; a CQE that does not match is dropped. */
static inline struct ib_rx *completed(struct ib_rail *rail, uint64_t wr_id)
{
    uint32_t index = ib_wr_low(wr_id), place = index >> __builtin_ctz(rail->slab);
    struct ib_rx *rx;
    if (place >= rail->rx.slabs || rail->rx.slab[place] == NULL)
        return NULL;
    rx = &rail->rx.slab[place]->rx[index & (rail->slab - 1)];
    if (!rx->posted || rx->wr.wr_id != wr_id)
        return NULL;
    rx->posted = false;
    if (rail->srq == NULL)
        list_del_init(&rx->entry);
    return rx;
}

/* Delivers a message or immediate, whose buffer counts as held.  Returns false without room. */
static bool emit(struct ib_rail *rail, struct rme_link *l, struct ib_rx *rx)
{
    struct rme_event *e = ib_event(rail, rx->is_imm ? RME_EV_IMM : RME_EV_RECV, l);
    if (e == NULL)
        return false;
    if (rx->is_imm) {
        e->imm = rx->value;
        queue_of(rail, l)->held--;
        recycle(rail, l, rx);
        return true;
    }
    e->data = rx->data;
    e->length = rx->value;
    e->rx = rx;
    return true;
}

/* Handles a receive that failed or cannot be delivered the short way.  l NULL: no QP. */
__attribute__((noinline)) static void take_slowly(struct ib_rail *rail, struct rme_link *l,
                                                  struct ib_rx *rx, const struct ibv_wc *wc)
{
    struct ib_rx_queue *q;
    bool failed;
    if (l == NULL && rail->srq == NULL)
        return;
    q = queue_of(rail, l);
    failed = wc->status != IBV_WC_SUCCESS;
    q->posted--;
    if (failed || l == NULL || !l->deliver) {
        recycle(rail, l, rx);
        if (failed)
            ib_wc_failed(rail, l, wc, "a receive");
        return;
    }
    if (l->state == IB_ACCEPTING)
        rail->link_ops->established(l);
    q->held++;
    rx->link = l->handle;
    rx->is_imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    rx->value = rx->is_imm ? ntohl(wc->imm_data) : wc->byte_len;
    if (!list_empty(&rail->rx_ready) || (l->events & IB_EVENT_UP) ||
        l->state == IB_CONNECTING || !emit(rail, l, rx)) {
        list_add_tail(&rx->entry, &rail->rx_ready);
        rail->attention = true;
    }
}

void ib_rx_take(struct ib_rail *rail, const struct ibv_wc *wc)
{
    struct ib_rx *rx = completed(rail, wc->wr_id);
    struct rme_link *l;
    struct rme_event *e = NULL;
    struct ib_rx_queue *q;
    if (rx == NULL)
        return;
    l = rail->srq != NULL ? ib_link_by_qp(rail, wc->qp_num) : ib_link_by_handle(rail, rx->link);
    if ((wc->wc_flags & IBV_WC_WITH_INV) && l != NULL && wc->status == IBV_WC_SUCCESS)
        ib_mw_closed_by_peer(l, wc->invalidated_rkey);
    /* the short way: `attention` is set while earlier events wait for delivery */
    if (l != NULL && wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV &&
        l->state == IB_UP && l->deliver && !rail->attention)
        e = ib_event(rail, RME_EV_RECV, l);
    if (e == NULL) {
        take_slowly(rail, l, rx, wc);
        return;
    }
    q = queue_of(rail, l);
    q->posted--;
    q->held++;
    e->data = rx->data;
    e->length = wc->byte_len;
    e->rx = rx;
}

/* Delivers messages that found no room in the caller's array, or came before the reply to this
 * side's request. */
void ib_emit_ready(struct ib_rail *rail)
{
    struct ib_rx *rx;
    while ((rx = list_first(&rail->rx_ready, struct ib_rx, entry)) != NULL &&
           rail->out_used < rail->out_max) {
        struct rme_link *l = ib_link_by_handle(rail, rx->link);
        if (l != NULL && l->state == IB_CONNECTING)
            return;
        list_del_init(&rx->entry);
        if (l != NULL && l->deliver)
            emit(rail, l, rx);
        else
            ib_rx_return(rail, rx);
    }
}

/* Does the work of ib_rx_return() for the own receive queue of a link. */
__attribute__((noinline)) static bool return_own(struct ib_rail *rail, struct ib_rx *rx)
{
    struct rme_link *l = ib_link_by_handle(rail, rx->link);
    if (l != NULL)
        l->rxq.held--;
    recycle(rail, l, rx);
    return l != NULL && l->dirty;
}

bool ib_rx_return(struct ib_rail *rail, void *token)
{
    struct ib_rx *rx = token;
    if (rail->srq == NULL)
        return return_own(rail, rx);
    rail->rxq.held--;
    if (lacking(rail, &rail->rxq))
        chain(rail, NULL, rx);
    else
        pool_put(rail, rx);
    return rail->rxq.chained > rail->rx_slack;
}

/* Puts all receives of a destroyed QP into the pool. */
void ib_rx_reclaim(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    struct ib_rx_queue *q = &l->rxq;
    struct ib_rx *rx;
    ib_rx_release(l, l->rx_advertised);
    while ((rx = list_first(&q->chain, struct ib_rx, entry)) != NULL) {
        list_del_init(&rx->entry);
        pool_put(rail, rx);
    }
    while ((rx = list_first(&q->at_device, struct ib_rx, entry)) != NULL) {
        list_del_init(&rx->entry);
        pool_put(rail, rx);
    }
    q->posted = q->chained = 0;
    pool_shrink(rail);
}

static struct ibv_srq *make_srq(struct ib_rail *rail, uint32_t depth)
{
    struct ibv_srq_init_attr attr = {.srq_context = rail,
                                     .attr = {.max_wr = depth, .max_sge = 1}};
    return ibv_create_srq(rail->dev.pd, &attr);
}

/* Replaces the SRQ, which no QP uses, because posted receives cannot be withdrawn.  On failure
 * the old SRQ stays. */
static int replace_srq(struct ib_rail *rail)
{
    struct ibv_srq *fresh = make_srq(rail, rail->srq_depth);
    int error;
    if (fresh == NULL)
        return ib_errno();
    error = ib_error(ibv_destroy_srq(rail->srq));
    if (error) {
        ibv_destroy_srq(fresh);
        return error;
    }
    rail->srq = fresh;
    rail->srq_broken = false;
    for (uint32_t s = 0; s < rail->rx.slabs; s++)
        for (uint32_t i = 0; rail->rx.slab[s] != NULL && i < rail->slab; i++)
            if (rail->rx.slab[s]->rx[i].posted)
                pool_put(rail, &rail->rx.slab[s]->rx[i]);
    rail->rxq.posted = rail->rxq.chained;
    pool_shrink(rail);
    return 0;
}

void ib_srq_replace(struct ib_rail *rail)
{
    if (rail->srq != NULL && list_empty(&rail->links) &&
        rail->rxq.posted - rail->rxq.chained >= SRQ_REPLACE_MIN)
        (void)replace_srq(rail);
}

/* Receives whose CQEs a failed CQ has lost would stay counted as posted. */
int ib_srq_recover(struct ib_rail *rail)
{
    if (rail->srq == NULL || (!rail->srq_broken && !rail->cq.broken))
        return 0;
    return rail->cq.used > rail->srq_depth ? -EIO : replace_srq(rail);
}

/* ---- Open and close ---- */

static bool want_srq(struct ib_rail *rail)
{
    enum { AUTO, ON }; /* values of the option */
    int64_t mode = ib_option(rail, "srq");
    if (rail->dev.attr.max_srq <= 0) {
        if (mode == ON)
            ib_log(rail, RME_LOG_WARN,
                   "device %s: no shared receive queues: each connection has its own receives",
                   rail->dev.name);
        return false;
    }
    if (mode == AUTO)
        /* a client has few connections; rxe of stable kernels had memory errors in the receive
         * path of SRQs (get_srq_wqe) as late as 2026 */
        return rail->config.listen != NULL && !ib_is_rxe(rail);
    return mode == ON;
}

int ib_rx_open(struct ib_rail *rail)
{
    uint32_t depth;
    uint64_t most;
    rail->rx_slack = rail->config.listen != NULL ? 0 : SLACK_OWN;
    if (rail->rx_slack > rail->dev.rq_depth / 4 || rail->slab < IB_SLAB)
        rail->rx_slack = 0;
    rail->caps.keeps_rx = true;
    if (!want_srq(rail))
        return 0;
    depth = ib_min(SRQ_DEPTH, (uint32_t)rail->dev.attr.max_srq_wr);
    depth = ib_min(depth, (uint32_t)rail->dev.attr.max_cqe / 2); /* the CQ has room for all */
    /* at most a quarter of the lockable memory: each has a buffer, and entries in SRQ and CQ */
    most = rail->config.budget / 4 / (rail->config.rx_size + 2 * IB_QUEUE_ENTRY);
    if (rail->config.budget && depth > most)
        depth = most > SRQ_MIN ? (uint32_t)most : SRQ_MIN;
    rail->srq = make_srq(rail, depth);
    if (rail->srq == NULL) {
        ib_log(rail, RME_LOG_WARN,
               "device %s: no shared receive queue: %s; each connection has its own receives",
               rail->dev.name, strerror(-ib_errno()));
        return 0;
    }
    rail->caps.keeps_rx = false;
    rail->srq_depth = depth;
    rail->rx_slack = depth > 4 * SLACK_SHARED && rail->slab == IB_SLAB ? SLACK_SHARED : 0;
    rail->caps.shared_rx = depth - rail->rx_slack;
    return 0;
}

void ib_rx_close(struct ib_rail *rail)
{
    if (rail->srq != NULL)
        ibv_destroy_srq(rail->srq);
    rail->srq = NULL;
    for (uint32_t i = 0; i < rail->rx.slabs; i++)
        if (rail->rx.slab[i] != NULL)
            slab_free(rail->rx.slab[i]);
    free(rail->rx.slab);
    rail->rx = (struct ib_rx_pool){.slab = NULL};
    list_init(&rail->rx.open);
}
