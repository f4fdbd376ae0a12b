/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Completion queues and their channels, and asynchronous events. */
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
    uint32_t index;
    struct emu_cq *cqs;       /* under dev.lock */
    bool owed;                /* one that died may owe it a wake-up; under dev.lock */
    _Atomic uint32_t settled; /* how many times: written under dev.lock */
};

#define EMU_CQ_RINGS 24u /* each has twice the places of the one before, or more */

/* A ring in the segment with its head, which is never used for anything but a ring's head. */
struct emu_ring {
    struct emu_ring *next;
    struct shm_ring *s;
    uint64_t off_head, off, bytes;
};

struct emu_cq {
    union {
        struct ibv_cq cq;
        struct ibv_cq_ex ex;
    };
    struct emu_chan *chan;
    struct emu_cq *chan_next;
    pthread_mutex_t lock;
    struct shm_cq *s;
    uint32_t index;
    /* the one in use; NULL to who has not the lock while it is exchanged: cq_ring.c */
    _Atomic(struct shm_ring *) ring;
    struct emu_ring *rings[EMU_CQ_RINGS]; /* all that it ever used, the last is in use */
    unsigned nrings;
    /* slots of posters that may still be in its rings although they lost their tokens */
    uint64_t late[EMU_MAX_SLOTS / 64];
    struct emu_cq *late_next; /* dev.late_cqs, when it is destroyed */
    _Atomic int users;
    struct emu_srq *xrc_srqs; /* those of XRC that complete here; under lock */
    uint64_t fetched;         /* events, counted as in shm_cq.armed; under dev.lock */
    uint32_t comp_events;     /* fetched, for acknowledging */
    uint32_t async_events;    /* raised */
    bool overrun_told;        /* its event was raised; under dev.lock */
    pthread_mutex_t ex_turn;  /* at the iterator: cq_ex.c */
    struct ibv_wc ex_wc;
    uint64_t ex_time; /* of the last completion polled */
};

/* cq_ring.c */
/* A ring of at least so many places, of which `cap` may be used; NULL without memory. */
struct emu_ring *emu_cq_ring_new(struct emu_dev *d, uint32_t cap);
void emu_cq_ring_free(struct emu_dev *d, struct emu_ring *r);
/* The i-th unread completion, or NULL. Under cq->lock. */
static inline struct shm_cqe *emu_cq_unread(struct emu_dev *d, struct emu_cq *cq, uint64_t i)
{
    return shm_ring_peek(d->seg, atomic_load_explicit(&cq->ring, memory_order_relaxed), i);
}
/* Whether there is none, for who has not the lock; true is reliable. */
static inline bool emu_cq_empty(struct emu_dev *d, struct emu_cq *cq)
{
    struct shm_ring *r = atomic_load_explicit(&cq->ring, memory_order_acquire);

    return r && !shm_ring_peek(d->seg, r, 0) &&
           atomic_load_explicit(&cq->ring, memory_order_relaxed) == r;
}
/*
 * Adds a completion to a CQ of any process. When the CQ is full the completion is lost, its
 * owner is told, and false is returned.
 */
bool emu_cq_push(struct emu_dev *d, struct emu_peer *owner, uint32_t cq,
                 const struct shm_cqe *c);

/* cq.c */
/* After a push: raises the event if the CQ is armed. `solicited` also for errors. */
void emu_cq_notify(struct emu_dev *d, struct emu_peer *owner, uint32_t cq, bool solicited);
/* Forgets the completions of a QP that is going away. */
void emu_cq_purge(struct emu_dev *d, struct emu_cq *cq, uint32_t qpn, struct emu_srq *srq,
                  struct emu_rq *rq);
/* Copies payloads still in bounce slots to where they belong, before memory is deregistered. */
void emu_cq_settle(struct emu_dev *d);
/*
 * A poster's token was taken away while it may be adding a completion. It is not dead: the
 * queue's rings stay as they are until it is, even when the queue is destroyed. Under cq->lock.
 */
void emu_cq_late(struct emu_cq *cq, uint32_t slot);
void emu_cq_peer_died(struct emu_dev *d, uint32_t slot);
/* A completion found no room in the queue at this place: raises the event, once. */
void emu_cq_overrun(struct emu_dev *d, uint32_t index);
/* Raises events, and wakes for completions, that nobody could tell this process of. */
void emu_cq_untold(struct emu_dev *d);
int emu_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int emu_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* NULL with errno set. `stamps`: each completion bears its time. */
struct emu_cq *emu_cq_create(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector, bool stamps);

/* channel.c */
/* Events of a queue that were raised and not fetched. Under dev.lock. */
static inline uint64_t emu_cq_events(const struct emu_cq *cq)
{
    return (atomic_load(&cq->s->armed) >> CQ_ARMED_TIMES) - cq->fetched;
}
/* Wakes as often as there are events that were not fetched, no more and no less. Under
 * dev.lock. */
void emu_chan_settle(struct emu_chan *c);

/* cq_ex.c */
struct ibv_cq_ex *emu_create_cq_ex(struct ibv_context *context,
                                   struct ibv_cq_init_attr_ex *attr);
int emu_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* inherited.c */
void emu_ctx_forked(struct emu_dev *d); /* in the child: the contexts are its parent's */

/* async.c */
void emu_async_raise(struct emu_ctx *ctx, const struct ibv_async_event *ev);
void emu_async_purge(struct emu_ctx *ctx, const void *element);
void emu_async_cq(struct emu_cq *cq, enum ibv_event_type type);
void emu_async_qp(struct emu_qp *qp, enum ibv_event_type type);
void emu_async_srq(struct emu_srq *srq, enum ibv_event_type type);

#endif
