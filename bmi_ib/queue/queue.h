/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* queue.h - work queues, completion queues, buffers, windows, and the table of links. */
#ifndef BMI_IB_QUEUE_H
#define BMI_IB_QUEUE_H

#include "bmi_ib/device/device.h"

/* ---- table.c: links by handle, and by the number of their queue pair ---- */
int ib_table_put(struct rme_link *l);     /* gives it its handle */
void ib_table_remove(struct rme_link *l); /* it is known by neither any more */
void ib_table_free(struct rme_fabric *f);
int ib_table_put_qp(struct rme_link *l);
void ib_table_remove_qp(struct rme_link *l);
/* A completion of the shared queue names nothing else. */
struct rme_link *ib_link_by_qp(const struct rme_fabric *f, uint32_t qp_num);

/* ---- cq.c ---- */
int ib_cq_open(struct rme_fabric *f);
void ib_cq_close(struct rme_fabric *f);
uint32_t ib_cq_share(const struct rme_fabric *f, uint32_t promised);
int ib_cq_reserve(struct rme_fabric *f, uint32_t n, struct ib_cq **out);
int ib_cq_extend(struct ib_cq *cq, uint32_t n);
void ib_cq_release(struct ib_cq *cq, uint32_t n);

/* ---- rx.c ---- */
int ib_rx_open(struct rme_fabric *f);
void ib_rx_close(struct rme_fabric *f);
int ib_rx_fill(struct rme_link *l);
/* Has the chain of a link's own queue to go to the device before anything is sent?  One that
 * promises few has no slack. */
static inline bool ib_rx_must_post(const struct rme_fabric *f, const struct ib_rx_queue *q)
{
    return q->chained != 0 && (q->chained > f->rx_slack || q->promised < f->rx_slack);
}
int ib_rx_post(struct rme_fabric *f, struct rme_link *l);
struct ib_rx *ib_rx_completed(struct rme_fabric *f, uint64_t wr_id);
void ib_rx_forget(struct rme_link *l);
/* A link has been freed; acts when it was the last. */
void ib_rx_renew(struct rme_fabric *f);
void ib_rx_received(struct rme_fabric *f, struct rme_link *l, struct ib_rx *rx, bool is_imm,
                    uint32_t value);
void ib_rx_failed(struct rme_fabric *f, struct rme_link *l, struct ib_rx *rx);
void ib_emit_ready(struct rme_fabric *f);

int ib_rx_reserve(struct rme_link *l, uint32_t n);
uint32_t ib_rx_release(struct rme_link *l, uint32_t n);
void ib_rx_return(struct rme_fabric *f, void *rx);

/* ---- window.c ---- */
int ib_windows_open(struct rme_fabric *f);
void ib_windows_close(struct rme_fabric *f);
void ib_windows_drop(struct rme_link *l);
void ib_windows_forget(struct rme_link *l);
int ib_windows_ensure(struct rme_fabric *f, uint32_t n); /* n of them are free */
/* The request that opens or closes. */
void ib_window_build(struct rme_xfer *x, struct ibv_send_wr *wr);
/* A request to close is complete: the window is free, and the engine is told. */
void ib_window_closed(struct rme_link *l, struct rme_xfer *x);
/* Tells it; false: no room.  l NULL: there is nobody any more. */
bool ib_window_emit(struct rme_fabric *f, struct rme_link *l, struct rme_xfer *x);

/* ---- tx.c ---- */
int ib_tx_open(struct rme_fabric *f);
void ib_tx_close(struct rme_fabric *f);
void ib_tx_release(struct rme_fabric *f, struct ib_tx *tx);
/* Tells who waits for a buffer; where there is none, sees to it that there will be. */
void ib_tx_rooms(struct rme_fabric *f);
/* When that is looked at again; UINT64_MAX: nobody waits. */
uint64_t ib_tx_deadline(const struct rme_fabric *f);
void ib_tx_forget(struct rme_link *l);

void *ib_tx_get(struct rme_link *l);
void ib_tx_put(struct rme_link *l, void *tx);

/* ---- xfer.c ---- */
void ib_tx_send(struct rme_link *l, void *tx, size_t length);
void ib_xfer(struct rme_link *l, struct rme_xfer *x);
void ib_flush(struct rme_fabric *f);
void ib_xfer_completed(struct rme_link *l, uint32_t position);
void ib_xfer_purge(struct rme_link *l);
void ib_emit_done(struct rme_fabric *f);
/* Fills f->batch from the head of the link's queue; the pure part of posting.  True: more could
 * follow at once. */
bool ib_xfer_build(struct rme_link *l);

/* ---- held.c ---- */
/* Puts a transfer at the end of the link's queue, or where it waits for the side. */
void ib_xfer_enqueue(struct rme_link *l, struct rme_xfer *x);
/* Gives back what something that will not be posted, or was lost, has of ours. */
void ib_xfer_drop(struct rme_fabric *f, struct rme_xfer *x);
/* The side has passed some: what waited for them goes on. */
void ib_stripe_passed(struct rme_link *side);
/* Has a side something to pass of what had entered when there were so many? */
static inline bool ib_is_before(const struct rme_link *side, uint32_t entered)
{
    return (int32_t)(entered - side->passed) > 0;
}

/* ---- stripe.c ---- */
/* Do transfers of so many bytes go over two rails, as it is now? */
static inline bool ib_is_striped(const struct rme_link *l, uint64_t bytes)
{
    return l->side && l->side->state == IB_UP && bytes >= l->f->stripe_bytes;
}
/* May the link use its side, for memory of so many bytes?  The first who asks for them makes
 * it come. */
bool ib_stripe_wanted(struct rme_link *l, uint64_t bytes);
/* Takes a transfer if it is to be striped. */
bool ib_stripe(struct rme_link *l, struct rme_xfer *x);
/* Queues something of the side's own. */
void ib_stripe_put(struct rme_link *side, struct rme_xfer *x);

/* ---- expose.c ---- */
int ib_expose(struct rme_link *l, struct rme_range *range, uint32_t n, unsigned access);
void ib_unexpose(struct rme_link *l, struct rme_range *range, uint32_t n, void *owner);

/* ---- poll.c ---- */
void ib_cq_poll(struct rme_fabric *f);

/* The link that has this handle, NULL when it is gone. */
static inline struct rme_link *ib_link_by_handle(const struct rme_fabric *f, uint32_t handle)
{
    uint32_t i = handle & IB_SLOT_MASK;
    struct rme_link *l = i < f->nslots ? f->slots[i].link : NULL;
    return l && l->handle == handle ? l : NULL;
}

/* The next free event of the caller's array, or NULL.  (A compound literal would be cleared
 * with a slow string instruction.) */
static inline struct rme_event *ib_event(struct rme_fabric *f, enum rme_event_type type,
                                         struct rme_link *l)
{
    if (f->out_used >= f->out_max)
        return NULL;
    struct rme_event *e = &f->out[f->out_used++];
    e->type = type;
    e->link = l;
    e->owner = l->owner;
    e->error = 0;
    e->hello = NULL;
    e->hello_length = e->length = 0;
    e->data = e->rx = NULL;
    e->imm = 0;
    e->xfer = NULL;
    e->closed = NULL;
    return e;
}

/* The link has something to hand to the device at the next flush. */
static inline void ib_link_dirty(struct rme_link *l)
{
    if (l->dirty)
        return;
    l->dirty = true;
    TAILQ_INSERT_TAIL(&l->f->dirty, l, dirty_entry);
}

/* A link of this rail has something to tell, which the rail's own poll does.  Made outside of
 * it, by a call of the engine's or by the head's look at rdma_cm, it may come after the last
 * poll before a sleep, or during one, and no descriptor has it: so it ends the sleep. */
static inline void ib_tells(struct rme_fabric *f)
{
    if (!f->out)
        ib_wake(f);
}

/* Has a link something to tell?  `which` is one of its event_* flags; link/ delivers it. */
static inline void ib_link_event(struct rme_link *l, bool *which)
{
    *which = true;
    if (!l->in_events) {
        l->in_events = true;
        TAILQ_INSERT_TAIL(&l->f->eventful, l, event_entry);
        ib_tells(l->f);
    }
}

#endif
