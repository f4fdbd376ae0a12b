/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Completion queues, completion channels, asynchronous events. */
#ifndef EMUL_VERBS_CQ_H
#define EMUL_VERBS_CQ_H

#include "emul/verbs/process/process.h"

struct emu_qp;
struct emu_rq;
struct emu_srq;

struct emu_async {
    struct emu_async *next;
    struct ibv_async_event ev;
};

struct emu_ctx {
    pthread_mutex_t async_lock;
    struct emu_async *async_head, **async_tail;
    struct emu_ctx *next;   /* dev.contexts */
    struct verbs_context v; /* last: grows upwards */
};

static inline struct emu_ctx *emu_ctx_of(struct ibv_context *c)
{
    return (struct emu_ctx *)((char *)c - offsetof(struct emu_ctx, v.context));
}

struct emu_chan {
    struct ibv_comp_channel ch;
    int counter; /* of its events; see emu_events_open() */
    uint32_t index;
    struct emu_cq *cqs;       /* under dev.lock */
    bool undelivered;         /* a dead poster may owe a wake-up; under dev.lock */
    _Atomic uint32_t settled; /* number of calls of emu_chan_settle(); written under dev.lock */
};

#define EMU_CQ_RINGS 24u /* each ring has at least twice the places of the one before */

/* A ring in the segment, and its head, which is only reused as the head of another ring. */
struct emu_ring {
    struct emu_ring *next;
    struct shm_ring *s;
    uint64_t off_head, off, bytes;
};

struct emu_cq {
    struct ibv_cq cq;
    struct emu_chan *chan;
    struct emu_cq *chan_next;
    pthread_mutex_t lock;
    struct shm_cq *s;
    uint32_t index;
    /* current ring; NULL while it is replaced, for readers without the lock, see cq_ring.c */
    _Atomic(struct shm_ring *) ring;
    struct emu_ring *rings[EMU_CQ_RINGS]; /* all rings so far; the last one is current */
    unsigned nrings;
    /* slots of posters that may still access the rings after revocation of their tokens */
    uint64_t late[EMU_MAX_SLOTS / 64];
    struct emu_cq *late_next; /* list dev.late_cqs after destruction */
    _Atomic int users;
    uint64_t fetched;      /* fetched events, counted as in shm_cq.armed; under dev.lock */
    uint32_t comp_events;  /* fetched events, for acknowledgement */
    uint32_t async_events; /* raised */
    bool overrun_reported; /* event was raised; under dev.lock */
};

/* cq_ring.c */
/* Creates a ring with a limit of `cap` entries; NULL if out of memory. */
struct emu_ring *emu_cq_ring_new(struct emu_dev *d, uint32_t cap);
void emu_cq_ring_free(struct emu_dev *d, struct emu_ring *r);
/* Returns how many CQs of 1,024 entries there can be. */
uint32_t emu_cq_max(const struct emu_dev *d);
/* Returns the i-th unread completion, or NULL. Under cq->lock. */
static inline struct shm_cqe *emu_cq_unread(struct emu_dev *d, struct emu_cq *cq, uint64_t i)
{
    return shm_ring_peek(d->seg, atomic_load_explicit(&cq->ring, memory_order_relaxed), i);
}
/* Returns whether the CQ is empty, without the lock; true is reliable, false is not. */
static inline bool emu_cq_empty(struct emu_dev *d, struct emu_cq *cq)
{
    struct shm_ring *r = atomic_load_explicit(&cq->ring, memory_order_acquire);

    return r != NULL && shm_ring_peek(d->seg, r, 0) == NULL &&
           atomic_load_explicit(&cq->ring, memory_order_relaxed) == r;
}
/* Adds a completion to a CQ of any process. If the CQ is full, the completion is lost, the
 * owner gets an event, and false is returned. */
bool emu_cq_push(struct emu_dev *d, struct emu_peer *owner, uint32_t cq,
                 const struct shm_cqe *c);

/* cq.c */
/* Raises the event after a push if the CQ is armed. `solicited`: also for errors. */
void emu_cq_notify(struct emu_dev *d, struct emu_peer *owner, uint32_t cq, bool solicited);
/* Drops the completions of a QP that is being reset or destroyed. */
void emu_cq_purge(struct emu_dev *d, struct emu_cq *cq, uint32_t qpn, struct emu_srq *srq,
                  struct emu_rq *rq);
/* Copies payloads in bounce slots to their memory, before memory is deregistered. */
void emu_cq_settle(struct emu_dev *d);
/* Marks a poster whose token was revoked while it may be adding a completion: the CQ's rings
 * are kept until that process dies, even if the CQ is destroyed. Under cq->lock. */
void emu_cq_late(struct emu_cq *cq, uint32_t slot);
void emu_cq_peer_died(struct emu_dev *d, uint32_t slot);
/* Raises the event of a full CQ, once. */
void emu_cq_overrun(struct emu_dev *d, uint32_t index);
/* Raises events and wake-ups of which no message arrived. */
void emu_cq_untold(struct emu_dev *d);
int emu_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int emu_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* channel.c */
/* Returns the number of raised events not yet fetched. Under dev.lock. */
static inline uint64_t emu_cq_events(const struct emu_cq *cq)
{
    return (atomic_load(&cq->s->armed) >> CQ_ARMED_TIMES) - cq->fetched;
}
/* Sets the wake-ups to the number of events not fetched. Under dev.lock. */
void emu_chan_settle(struct emu_chan *c);

/* inherited.c */
void emu_ctx_forked(struct emu_dev *d); /* in a forked child: disables the parent's contexts */

/* async.c */
void emu_async_raise(struct emu_ctx *ctx, const struct ibv_async_event *ev);
void emu_async_purge(struct emu_ctx *ctx, const void *element);
void emu_async_cq(struct emu_cq *cq, enum ibv_event_type type);
void emu_async_qp(struct emu_qp *qp, enum ibv_event_type type);
void emu_async_srq(struct emu_srq *srq, enum ibv_event_type type);

#endif
