/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* queue.h - work queues, CQs, buffers, windows, and the table of links.
 *
 * All functions run with the engine's lock.  An int result is 0 or a negative errno.  A *_close
 * function undoes a *_open function, also a failed one.  fabric.h describes the functions of
 * the fabric's table. */
#ifndef BMI_IB_QUEUE_H
#define BMI_IB_QUEUE_H

#include "bmi_ib/device/device.h"

/* ---- cq.c ---- */
int ib_cq_open(struct ib_rail *rail);
void ib_cq_close(struct ib_rail *rail);
/* Returns the CQEs to reserve for a link with `advertised` receives. */
uint32_t ib_cq_share(const struct ib_rail *rail, uint32_t advertised);
/* Reserves n CQEs, in a larger CQ if needed and possible.  Returns 0 or a negative errno. */
int ib_cq_reserve(struct ib_rail *rail, uint32_t n);
/* Handles a failed request of a link.  Only the first failure of a link is logged, not the
 * flushes after it. */
void ib_wc_failed(struct ib_rail *rail, struct rme_link *l, const struct ibv_wc *wc,
                  const char *what);

/* ---- rx.c ---- */
int ib_rx_open(struct ib_rail *rail);
void ib_rx_close(struct ib_rail *rail);
/* Empties a queue, which has no buffers. */
static inline void ib_rx_queue_init(struct ib_rx_queue *q)
{
    *q = (struct ib_rx_queue){.chained = 0};
    list_init(&q->chain);
    list_init(&q->at_device);
}
/* Returns true if the chain of a QP's own receive queue must be posted before the next send.  A
 * queue with few advertised receives has no slack. */
static inline bool ib_rx_must_post(const struct ib_rail *rail, const struct ib_rx_queue *q)
{
    return q->chained != 0 && (q->chained > rail->rx_slack || q->advertised < rail->rx_slack);
}
/* Posts the chain of the link's own queue, or of the SRQ (l NULL). */
int ib_rx_post(struct ib_rail *rail, struct rme_link *l);
/* Returns all receives of a destroyed QP to the pool; no more are advertised. */
void ib_rx_reclaim(struct rme_link *l);
/* Replaces the SRQ when the last link has been freed and many receives are still posted. */
void ib_srq_replace(struct ib_rail *rail);
/* Replaces the SRQ after its failure or that of the CQ, once no QP is left.  Returns 0 or a
 * negative errno. */
int ib_srq_recover(struct ib_rail *rail);
/* Handles the CQE of a receive: delivers the message or immediate, or keeps it for
 * ib_emit_ready(). */
void ib_rx_take(struct ib_rail *rail, const struct ibv_wc *wc);
void ib_emit_ready(struct ib_rail *rail);

int ib_rx_reserve(struct rme_link *l, uint32_t n);
void ib_rx_release(struct rme_link *l, uint32_t n);
bool ib_rx_return(struct ib_rail *rail, void *rx);

/* ---- mw.c ---- */
int ib_mws_open(struct ib_rail *rail);
void ib_mws_close(struct ib_rail *rail);
/* Deallocates windows: those of a QP that is about to be destroyed after their requests were
 * purged. */
void ib_mws_drop(struct ib_rail *rail, struct list_head *list);
/* Builds the WR that binds or invalidates a window. */
void ib_mw_build(struct rme_rdma_op *x, struct ibv_send_wr *wr);
/* Handles a completed invalidation.  Returns true if the engine gets an event; ib_mw_free()
 * frees the window after that. */
bool ib_mw_closed(struct ib_rail *rail, struct rme_rdma_op *x);
void ib_mw_free(struct ib_rail *rail, struct rme_rdma_op *x);
int ib_mw_bind(struct rme_link *l, struct rme_range *range, uint32_t n, unsigned access);
bool ib_mw_invalidate(struct rme_link *l, struct rme_range *range, uint32_t n, void *owner);
/* A message of the link's peer has closed the window with this key. */
void ib_mw_closed_by_peer(struct rme_link *l, uint32_t key);

/* ---- tx.c ---- */
int ib_tx_open(struct ib_rail *rail);
void ib_tx_close(struct ib_rail *rail);
void ib_tx_release(struct ib_rail *rail, struct ib_tx *tx);
/* Reports TX_ROOM to waiting links; if the pool is exhausted, checks for stuck links. */
void ib_tx_rooms(struct ib_rail *rail);
/* Returns the time (ms) of the next check for stuck links; UINT64_MAX: none. */
uint64_t ib_tx_deadline(const struct ib_rail *rail);
/* Removes a link from those that wait for a buffer. */
void ib_tx_cancel_wait(struct rme_link *l);

void *ib_tx_get(struct rme_link *l);
void ib_tx_put(struct rme_link *l, void *tx);

/* ---- rdma_op.c ---- */
void ib_tx_send(struct rme_link *l, void *tx, size_t length);
void ib_tx_send_closing(struct rme_link *l, void *tx, size_t length, uint64_t key);
bool ib_send_now(struct rme_link *l, const void *head, size_t head_length, const void *base,
                 size_t length);
void ib_rdma_op(struct rme_link *l, struct rme_rdma_op *x);
void ib_flush(struct ib_rail *rail);
/* Retires all requests up to a position. */
void ib_rdma_op_completed(struct rme_link *l, uint32_t position);
/* Frees the buffers of all transfers, posted or queued, of a QP that is about to be destroyed.
 * The caller holds the lock until then, so no buffer is used again before the QP is
 * destroyed. */
void ib_rdma_op_purge(struct rme_link *l);
/* Delivers the events of completed transfers that found no room before. */
void ib_emit_done(struct ib_rail *rail);

/* ---- poll.c ---- */
/* Takes CQEs while the caller's array has room. */
void ib_cq_poll(struct ib_rail *rail);

/* ---- Send queues and identifiers of requests ---- */

static inline uint32_t ib_ring_used(const struct ib_ring *r)
{
    return r->head - r->tail;
}

static inline uint32_t ib_ring_room(const struct ib_ring *r)
{
    return r->depth - ib_ring_used(r);
}

/* Fields of a wr_id: kind (4 bits), position or buffer generation (24), link handle or index of
 * a receive buffer (32). */
enum ib_wr_kind { IB_WR_NONE, IB_WR_SEND, IB_WR_RECV, IB_WR_MARK_SEND, IB_WR_MARK_RECV };

#define IB_POSITION_MASK ((1u << 24) - 1)

static inline uint64_t ib_wr_id(enum ib_wr_kind kind, uint32_t position, uint32_t low)
{
    return (uint64_t)kind << 60 | (uint64_t)(position & IB_POSITION_MASK) << 32 | low;
}

static inline enum ib_wr_kind ib_wr_kind(uint64_t id)
{
    return (enum ib_wr_kind)(id >> 60);
}

static inline uint32_t ib_wr_position(uint64_t id)
{
    return (uint32_t)(id >> 32) & IB_POSITION_MASK;
}

static inline uint32_t ib_wr_low(uint64_t id)
{
    return (uint32_t)id;
}

/* ---- Links ---- */

/* Links by handle and by QP number, and windows.  The device and other threads name links by
 * handle, which does not repeat within 2^32 links, so that a late reference finds no link
 * instead of freed memory. */
enum ib_key_kind { IB_BY_HANDLE, IB_BY_QP, IB_BY_WINDOW };

/* Returns the link with this handle, NULL if gone. */
static inline struct rme_link *ib_link_by_handle(const struct ib_rail *rail, uint32_t handle)
{
    struct rme_keyed *k = rme_table_find(&rail->table, handle, IB_BY_HANDLE);
    return k != NULL ? container_of(k, struct rme_link, by_handle) : NULL;
}

/* Returns the link of a QP, NULL if none.  A CQE of an SRQ names only the QP. */
static inline struct rme_link *ib_link_by_qp(const struct ib_rail *rail, uint32_t qp_num)
{
    struct rme_keyed *k = rme_table_find(&rail->table, qp_num, IB_BY_QP);
    return k != NULL ? container_of(k, struct rme_link, by_qp) : NULL;
}

/* Returns the next free event of the caller's array, NULL if full.  The caller sets the fields
 * that its type needs. */
static inline struct rme_event *ib_event(struct ib_rail *rail, enum rme_event_type type,
                                         struct rme_link *l)
{
    struct rme_event *e;
    if (rail->out_used >= rail->out_max)
        return NULL;
    e = &rail->out[rail->out_used++];
    e->type = type;
    e->link = l;
    e->owner = l->owner;
    return e;
}

/* Schedules the link for the next flush. */
static inline void ib_link_dirty(struct rme_link *l)
{
    if (l->dirty)
        return;
    l->dirty = true;
    list_add_tail(&l->dirty_entry, &l->rail->dirty);
}

/* Appends a transfer to the queue of a link that is not lost. */
static inline void ib_link_queue(struct rme_link *l, struct rme_rdma_op *x)
{
    x->fabric.at = 0;
    ib_queue_put(&l->queue, x);
    if (!l->stalled)
        ib_link_dirty(l);
}

/* Sets the events (IB_EVENT_*) that ib_emit_links() has to deliver.  The first event ends a
 * sleep if raised outside its rail's poll, by a call of the engine or by the poll of another
 * rail: no descriptor reports such an event, and the last poll before the sleep may be over. */
static inline void ib_link_events(struct rme_link *l, unsigned events)
{
    if (!events && l->events)
        list_del_init(&l->event_entry);
    if (events && !l->events) {
        list_add_tail(&l->event_entry, &l->rail->eventful);
        l->rail->attention = true;
        if (l->rail->out == NULL && !l->rail->fabric->controlling)
            ib_wake(l->rail->fabric);
    }
    l->events = (uint8_t)events;
}

#endif
