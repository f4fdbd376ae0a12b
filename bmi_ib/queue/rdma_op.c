/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rdma_op.c - builds and posts WRs of queued messages and transfers, and handles their CQEs.
 *
 * Each link has one FIFO for both: a message is a transfer without pieces whose notification is
 * the message.  Binds and invalidates of windows are transfers of their own (mw.c).  The
 * order of queueing holds also when the send queue is full.
 * A flush builds a chain of WRs from the head of the queue and rings one doorbell.  A message
 * that the engine posts while the FIFO is empty bypasses it (ib_send_now).
 *
 * link.h has the rule of signalling (struct ib_ring); the option signal_each signals all WRs,
 * for comparison [002 V-D, fig. 7].  The last WR of a batch is also signalled if work remains
 * in the queue, because its CQE resumes the queue.
 *
 * Failure: WRs count as posted even if the device refused them.  The link then fails, and
 * ib_rdma_op_purge() frees the buffers of all.  Transfers are not reported: the
 * engine counts them off at LINK_DOWN.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"

/* ---- Building ---- */

static bool is_inline(const struct ib_rail *rail, const struct rme_rdma_op *x)
{
    return x->tx_length <= rail->dev.max_inline;
}

/*
 * Returns the number of WRs of a transfer: one per piece, then the notification: the last write
 * carries the immediate; a message is one more send.  Sends and writes of a QP take effect in
 * order.  Reads have no notification: its fence would hold later reads back.
 */
static uint32_t requests_of(const struct rme_rdma_op *x)
{
    bool apart = x->notify == RME_NOTIFY_MSG || (x->notify == RME_NOTIFY_IMM && !x->npiece);
    return x->npiece + apart;
}

static inline void add_segment(struct ib_batch *b, struct ibv_send_wr *wr, const void *base,
                               uint64_t length, uint32_t lkey)
{
    b->sge[b->sges++] = (struct ibv_sge){(uintptr_t)base, (uint32_t)length, lkey};
    wr->num_sge++;
}

/* Builds the WR of piece `at`, or the bare immediate of a transfer without pieces. */
static void build_rdma(struct rme_link *l, struct ib_batch *b, struct ibv_send_wr *wr,
                       const struct rme_rdma_op *x, bool last)
{
    bool imm = last && x->notify == RME_NOTIFY_IMM;
    wr->opcode = x->read ? IBV_WR_RDMA_READ
                 : imm   ? IBV_WR_RDMA_WRITE_WITH_IMM
                         : IBV_WR_RDMA_WRITE;
    if (imm)
        wr->imm_data = htonl(x->imm);
    wr->wr.rdma.remote_addr = wr->wr.rdma.rkey = 0;
    if (x->fabric.at < x->npiece) {
        const struct rme_rdma_seg *p = &x->piece[x->fabric.at];
        wr->wr.rdma.remote_addr = p->raddr;
        wr->wr.rdma.rkey = (uint32_t)p->rkey;
        for (uint32_t i = 0; i < p->nseg; i++) {
            const struct ibv_mr *m = ib_key_mr(l->rail, p->seg[i].lkey);
            /* 0 is invalid: the device was dead at registration */
            add_segment(b, wr, p->seg[i].base, p->seg[i].length, m != NULL ? m->lkey : 0);
        }
    }
    if (x->read)
        ib_count(l->rail, RDMA_READS, 1);
    else
        ib_count(l->rail, RDMA_WRITES, 1);
}

/* Builds the send of a message or notification, inline if it fits. */
static void build_send(struct rme_link *l, struct ib_batch *b, struct ibv_send_wr *wr,
                       const struct rme_rdma_op *x)
{
    struct ib_tx *tx = ib_tx_of(x->tx);
    wr->opcode = x->closes ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
    wr->invalidate_rkey = (uint32_t)x->closes;
    add_segment(b, wr, x->tx, x->tx_length, tx->lkey);
    if (is_inline(l->rail, x)) {
        wr->send_flags |= IBV_SEND_INLINE;
        b->inlined[b->inlines++] = tx;
    }
}

static void signal_request(struct rme_link *l, struct ibv_send_wr *wr)
{
    if (wr->send_flags & IBV_SEND_SIGNALED)
        return;
    wr->send_flags |= IBV_SEND_SIGNALED;
    l->ring.unsignalled = 0;
    l->rail->tx.unsignalled -= l->tx_unsignalled;
    l->tx_unsignalled = 0;
    ib_count(l->rail, SIGNALLED, 1);
}

/* Numbers a WR.  `ends`: transfer that its completion ends; `holds`: the WR holds a send buffer
 * until then. */
static inline void number_wr(struct rme_link *l, struct ibv_send_wr *wr,
                             struct rme_rdma_op *ends, bool holds, bool signal)
{
    struct ib_rail *rail = l->rail;
    struct ib_ring *r = &l->ring;
    wr->wr_id = ib_wr_id(IB_WR_SEND, ++r->head, l->handle);
    r->unsignalled++;
    signal = signal || rail->signal_each || r->unsignalled >= (r->depth + 1) / 2;
    if (ends != NULL) {
        ends->fabric.mark = r->head;
        ib_queue_put(&r->posted, ends);
    }
    if (holds) {
        l->tx_unsignalled++;
        rail->tx.unsignalled++;
        signal = signal || rail->tx.unsignalled > rail->tx.unsignalled_max ||
                 l->tx_unsignalled > rail->tx.per_link / 4 ||
                 rail->tx.nfree <= rail->tx.kept_free;
    }
    if (signal)
        signal_request(l, wr);
}

/* Builds the next WR of the message or transfer at the head of the queue.  A message needs no
 * signal of its own.  The completion of an inline message ends nothing. */
static void build_transfer(struct rme_link *l, struct ibv_send_wr *wr, struct rme_rdma_op *x)
{
    struct ib_batch *b = &l->rail->batch;
    bool message = ib_is_message(x);
    bool last = x->fabric.at + 1 == requests_of(x);
    bool send = x->fabric.at >= x->npiece && x->notify == RME_NOTIFY_MSG;
    bool holds = send && !is_inline(l->rail, x);
    if (send)
        build_send(l, b, wr, x);
    else
        build_rdma(l, b, wr, x, last);
    x->fabric.at++;
    if (last)
        ib_queue_get(&l->queue);
    number_wr(l, wr, last && (holds || !message) ? x : NULL, holds,
              last && !message && !x->unsignalled);
}

/* Builds a bind or invalidate.  Of several invalidates the last one is signalled. */
static void build_mw(struct rme_link *l, struct ibv_send_wr *wr, struct rme_rdma_op *x)
{
    bool close = x->fabric.what == IB_RDMA_CLOSE;
    ib_mw_build(x, wr);
    ib_queue_get(&l->queue);
    number_wr(l, wr, close ? x : NULL, false, close && x->owner != NULL);
}

static struct ibv_send_wr *next_request(struct ib_batch *b)
{
    struct ibv_send_wr *wr = &b->wr[b->wrs];
    wr->next = NULL;
    wr->sg_list = &b->sge[b->sges];
    wr->num_sge = 0;
    wr->send_flags = 0;
    if (b->wrs++)
        wr[-1].next = wr;
    return wr;
}

/* Keeps the event of a completed transfer for the next poll. */
static void keep_done(struct rme_link *l, struct rme_rdma_op *x)
{
    x->fabric.mark = l->handle;
    ib_queue_put(&l->rail->done, x);
    l->rail->attention = true;
}

/* Fills f->batch from the head of the link's queue, without posting.  Returns true if more
 * could follow at once. */
static bool build(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    struct ib_batch *b = &rail->batch;
    struct rme_rdma_op *x;
    bool full = false;
    unsigned first;

    b->wrs = b->sges = b->inlines = 0;
    while ((x = l->queue.head) != NULL) {
        bool window = x->fabric.what != IB_RDMA_DATA;
        if (!window && requests_of(x) == 0) {
            ib_queue_get(&l->queue);
            keep_done(l, x);
            continue;
        }
        full = b->wrs == IB_BATCH;
        l->stalled = !full && !ib_ring_room(&l->ring);
        if (full || l->stalled)
            break;
        if (window)
            build_mw(l, next_request(b), x);
        else
            build_transfer(l, next_request(b), x);
    }
    /* Signals the last WR of the batch, because more are queued.  All WRs of a link that holds
     * many buffers are signalled, so that the progress of its peer is visible (tx.c). */
    first = l->tx_held > rail->tx.per_link / 2 ? 0 : b->wrs - 1;
    for (unsigned i = first; x != NULL && i < b->wrs; i++)
        signal_request(l, &b->wr[i]);
    return full;
}

/* ---- Posting ---- */

__attribute__((noinline)) static int post_failed(struct rme_link *l,
                                                 const struct ibv_send_wr *wr, unsigned wrs,
                                                 const struct ibv_send_wr *bad, int ret)
{
    ib_log(l->rail, RME_LOG_ERROR, "%s: posting %u requests failed at number %u: %s", l->peer,
           wrs, bad >= wr && bad < wr + wrs ? (unsigned)(bad - wr) : 0,
           strerror(-ib_error(ret)));
    return ib_error(ret);
}

static inline int post(struct rme_link *l, struct ibv_send_wr *wr, unsigned wrs)
{
    struct ibv_send_wr *bad = NULL;
    int ret = ibv_post_send(l->qp, wr, &bad);
    ib_count(l->rail, DOORBELLS, 1);
    ib_count(l->rail, SEND_REQUESTS, wrs);
    return ret ? post_failed(l, wr, wrs, bad, ret) : 0;
}

/* Posts receives before sends, because a message may grant their credits. */
static void flush_link(struct rme_link *l)
{
    int error = l->qp != NULL && ib_rx_must_post(l->rail, &l->rxq) ? ib_rx_post(l->rail, l) : 0;
    struct ib_batch *b = &l->rail->batch;
    bool more = true;
    while (!error && more && l->state == IB_UP && l->queue.head != NULL) {
        more = build(l);
        if (b->wrs)
            error = post(l, b->wr, b->wrs);
        for (unsigned i = 0; i < b->inlines; i++)
            ib_tx_release(l->rail, b->inlined[i]);
    }
    if (error)
        l->rail->link_ops->fail(l, error, true);
}

void ib_flush(struct ib_rail *rail)
{
    struct rme_link *l;
    if (rail->rxq.chained > rail->rx_slack) {
        int error = ib_rx_post(rail, NULL);
        if (error) {
            rail->srq_broken = true;
            rail->link_ops->fail_all(rail, error, "cannot post shared receives");
        }
    }
    while ((l = list_first(&rail->dirty, struct rme_link, dirty_entry)) != NULL) {
        list_del_init(&l->dirty_entry);
        l->dirty = false;
        flush_link(l);
    }
}

/* Frees the buffer of a transfer that will not be posted or was lost. */
static void drop_op(struct ib_rail *rail, struct rme_rdma_op *x)
{
    if (x->notify == RME_NOTIFY_MSG)
        ib_tx_release(rail, ib_tx_of(x->tx));
}

static void enqueue(struct rme_link *l, struct rme_rdma_op *x)
{
    if (l->state >= IB_DRAINING) /* lost; LINK_DOWN is pending */
        drop_op(l->rail, x);
    else
        ib_link_queue(l, x);
}

void ib_tx_send_closing(struct rme_link *l, void *data, size_t length, uint64_t key)
{
    struct ib_tx *tx = ib_tx_of(data);
    tx->x.tx_length = length;
    tx->x.closes = key;
    enqueue(l, &tx->x);
}

void ib_tx_send(struct rme_link *l, void *data, size_t length)
{
    ib_tx_send_closing(l, data, length, 0);
}

/* Returns true if a message may be posted at once: no queued work that the message would
 * overtake, and no receive to be posted before a message that grants its credit. */
static bool may_post(const struct rme_link *l)
{
    const struct ib_rail *rail = l->rail;
    return l->state == IB_UP && l->queue.head == NULL && ib_ring_room(&l->ring) &&
           rail->rxq.chained <= rail->rx_slack && !ib_rx_must_post(rail, &l->rxq);
}

/* Queues a copy of a message and posts the queue.  Returns false without a buffer. */
__attribute__((noinline)) static bool send_copy(struct rme_link *l, const void *head,
                                                size_t head_length, const void *base,
                                                size_t length)
{
    char *data = ib_tx_get(l);
    if (data == NULL)
        return false;
    memcpy(data, head, head_length);
    memcpy(data + head_length, base, length);
    ib_tx_send(l, data, head_length + length);
    flush_link(l);
    return true;
}

bool ib_send_now(struct rme_link *l, const void *head, size_t head_length, const void *base,
                 size_t length)
{
    struct ibv_send_wr wr;
    struct ibv_sge sge[2];
    int error;
    if (!may_post(l))
        return false;
    if (head_length + length > l->rail->dev.inline_now)
        return send_copy(l, head, head_length, base, length);
    sge[0] = (struct ibv_sge){(uintptr_t)head, (uint32_t)head_length, 0};
    sge[1] = (struct ibv_sge){(uintptr_t)base, (uint32_t)length, 0};
    wr.next = NULL;
    wr.sg_list = sge;
    wr.num_sge = length ? 2 : 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    number_wr(l, &wr, NULL, false, false);
    error = post(l, &wr, 1);
    if (error)
        l->rail->link_ops->fail(l, error, true);
    return true;
}

void ib_rdma_op(struct rme_link *l, struct rme_rdma_op *x)
{
    uint32_t most = x->read ? l->rail->caps.max_read_sge : l->rail->caps.max_sge;
    /* a read that the peer does not permit, or a transfer that would exceed the arrays */
    int error = x->read && !l->read_depth && l->state == IB_UP ? -EOPNOTSUPP : 0;
    for (uint32_t i = 0; i < x->npiece && !error; i++)
        error = x->piece[i].nseg > most ? -EINVAL : 0;
    if (error) {
        ib_log(l->rail, RME_LOG_ERROR, "%s: a transfer of %u pieces cannot be done: %s",
               l->peer, x->npiece, strerror(-error));
        drop_op(l->rail, x);
        l->rail->link_ops->fail(l, error, true);
        return;
    }
    x->fabric.what = IB_RDMA_DATA;
    enqueue(l, x);
}

/* ---- Completion ---- */

/* Reports a completed transfer or invalidation.  Returns false if the caller's array is full.
 * l NULL: the link is gone, no event. */
static bool report(struct ib_rail *rail, struct rme_link *l, struct rme_rdma_op *x)
{
    bool window = x->fabric.what == IB_RDMA_CLOSE;
    if (l != NULL) {
        struct rme_event *e =
            ib_event(rail, window ? RME_EV_MW_INVALIDATED : RME_EV_RDMA_DONE, l);
        if (e == NULL)
            return false;
        e->rdma_op = x;
        e->closed = x->owner;
    }
    if (window)
        ib_mw_free(rail, x);
    return true;
}

/* Frees the buffer of a message that the device has sent or dropped; an inline one is free. */
static void release_sent(struct ib_rail *rail, const struct rme_rdma_op *x)
{
    if (x->notify == RME_NOTIFY_MSG && !is_inline(rail, x))
        ib_tx_release(rail, ib_tx_of(x->tx));
}

/* Ends all transfers whose last request is retired.  Ignores a position that is not in the
 * queue. */
void ib_rdma_op_completed(struct rme_link *l, uint32_t position)
{
    struct ib_ring *r = &l->ring;
    struct rme_rdma_op *x;
    uint32_t n = (position - r->tail) & IB_POSITION_MASK;
    if (n <= ib_ring_used(r))
        r->tail += n;
    while ((x = r->posted.head) != NULL && (int32_t)((uint32_t)x->fabric.mark - r->tail) <= 0) {
        bool reports;
        ib_queue_get(&r->posted);
        release_sent(l->rail, x);
        reports =
            x->fabric.what == IB_RDMA_CLOSE ? ib_mw_closed(l->rail, x) : !ib_is_message(x);
        if (reports && (l->rail->done.head != NULL || !report(l->rail, l, x)))
            keep_done(l, x); /* in order, at the next poll */
    }
    if (l->stalled) {
        l->stalled = false;
        l->rail->resume = l->rail->attention = true;
        ib_link_dirty(l);
    }
}

void ib_emit_done(struct ib_rail *rail)
{
    while (rail->done.head != NULL && rail->out_used < rail->out_max) {
        struct rme_rdma_op *x = ib_queue_get(&rail->done);
        report(rail, ib_link_by_handle(rail, (uint32_t)x->fabric.mark), x);
    }
}

void ib_rdma_op_purge(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    struct rme_rdma_op *x;
    while ((x = ib_queue_get(&l->ring.posted)) != NULL)
        release_sent(rail, x);
    while ((x = ib_queue_get(&l->queue)) != NULL)
        drop_op(rail, x);
    rail->tx.unsignalled -= l->tx_unsignalled;
    l->tx_unsignalled = 0;
    l->stalled = false;
}
