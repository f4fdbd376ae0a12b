/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * async.c - asynchronous events of the device.
 *
 * librdmacm opens a device once for a process, so all engines of a process share its queue of
 * events, and whichever looks first takes what may be another's.  So an event is read into a
 * note, acknowledged at once (an object with an unacknowledged event cannot be destroyed), and
 * the note goes to the engine that it concerns: the one that is the context of the queue pair
 * or of the shared receive queue, the one whose completion queue it is, and all that use the
 * device for what concerns the device.  That engine is woken, and acts on its notes with its
 * own lock held.
 *
 * This needs the one list that all engines of a process share, as they share what the library
 * keeps; its lock is held for list work and a wake-up only, never while a note is acted on.
 *
 * Events of a queue pair are acted on by its link, those of a completion queue by all its
 * links, those of the device or the shared receive queue by every link.  The rest is told to
 * the log.
 *
 * A program may use librdmacm beside its engines, and so the same context.  An event of a queue
 * of that user cannot be put back, and its queue cannot be destroyed before the event is
 * acknowledged: the event is acknowledged, and the log tells what was lost.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/link/links.h"

struct ib_async_note {
    STAILQ_ENTRY(ib_async_note) next;
    enum ibv_event_type type;
    uint32_t qp_num;         /* of an event of a queue pair */
    const struct ibv_cq *cq; /* of one of a completion queue; never looked into */
    int port;                /* of one of a port */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD(, rme_fabric) users = TAILQ_HEAD_INITIALIZER(users);

int ib_async_open(struct rme_fabric *f)
{
    int error = ib_nonblocking(f->dev.ctx->async_fd);
    if (error)
        return error;
    STAILQ_INIT(&f->async.notes);
    pthread_mutex_lock(&lock);
    TAILQ_INSERT_TAIL(&users, f, async.users);
    pthread_mutex_unlock(&lock);
    f->async.open = true;
    return 0;
}

/* From here on nobody knows this engine. */
void ib_async_close(struct rme_fabric *f)
{
    struct ib_async_note *n;
    if (!f->async.open)
        return;
    pthread_mutex_lock(&lock);
    TAILQ_REMOVE(&users, f, async.users);
    pthread_mutex_unlock(&lock);
    while ((n = STAILQ_FIRST(&f->async.notes))) {
        STAILQ_REMOVE_HEAD(&f->async.notes, next);
        free(n);
    }
    f->async.open = false;
}

static struct ib_cq *cq_of(struct rme_fabric *f, const struct ibv_cq *cq)
{
    for (unsigned i = 0; i < f->cqs; i++)
        if (f->cq[i].cq == cq)
            return &f->cq[i];
    return NULL;
}

static void qp_failed(struct rme_fabric *f, struct rme_link *l, enum ibv_event_type type,
                      int error)
{
    if (!l || l->state >= IB_DRAINING)
        return;
    ib_log(f, RME_LOG_WARN, "%s: %s", l->peer, ibv_event_type_str(type));
    ib_link_fail(l, error, true);
}

static void all_failed(struct rme_fabric *f, enum ibv_event_type type, int error)
{
    ib_log(f, RME_LOG_ERROR, "device %s: %s: all its connections fail", f->dev.name,
           ibv_event_type_str(type));
    ib_link_fail_all(f, NULL, error);
}

/* No default: the compiler names an event that has no case. */
static void handle(struct rme_fabric *f, const struct ib_async_note *n)
{
    struct rme_link *l;
    struct ib_cq *c;

    switch (n->type) {
    case IBV_EVENT_QP_FATAL:
        qp_failed(f, ib_link_by_qp(f, n->qp_num), n->type, -EIO);
        return;
    case IBV_EVENT_QP_REQ_ERR: /* the peer asked for something malformed, or not allowed */
    case IBV_EVENT_QP_ACCESS_ERR:
        qp_failed(f, ib_link_by_qp(f, n->qp_num), n->type, -EPROTO);
        return;
    case IBV_EVENT_PATH_MIG_ERR:
        qp_failed(f, ib_link_by_qp(f, n->qp_num), n->type, -ECONNRESET);
        return;
    case IBV_EVENT_COMM_EST: /* data before the confirmation; rdma_cm wants to hear of it */
        l = ib_link_by_qp(f, n->qp_num);
        if (l && l->id && l->state == IB_ACCEPTING)
            rdma_notify(l->id, n->type);
        return;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        l = ib_link_by_qp(f, n->qp_num);
        if (l) {
            l->last_wqe = true;
            ib_link_drained(l);
        }
        return;
    case IBV_EVENT_CQ_ERR:
        c = cq_of(f, n->cq);
        ib_log(f, RME_LOG_ERROR, "device %s: %s: its connections fail", f->dev.name,
               ibv_event_type_str(n->type));
        if (c) {
            c->broken = true;
            ib_link_fail_all(f, c, -EIO);
        }
        return;
    case IBV_EVENT_SRQ_ERR:
        all_failed(f, n->type, -EIO);
        return;
    case IBV_EVENT_DEVICE_FATAL:
        f->dev.dead = true;
        all_failed(f, n->type, -ENODEV);
        return;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE: /* the connections find out by themselves whether they survived
                                 */
        ib_device_look(f);
        ib_log(f, RME_LOG_WARN, "device %s port %d: %s", f->dev.name, n->port,
               ibv_event_type_str(n->type));
        return;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
        ib_log(f, RME_LOG_INFO, "device %s port %d: %s", f->dev.name, n->port,
               ibv_event_type_str(n->type));
        return;
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_SRQ_LIMIT_REACHED: /* never asked for */
    case IBV_EVENT_WQ_FATAL:
        ib_log(f, RME_LOG_DEBUG, "device %s: %s ignored", f->dev.name,
               ibv_event_type_str(n->type));
        return;
    }
    ib_log(f, RME_LOG_WARN, "device %s: unknown asynchronous event %d ignored", f->dev.name,
           (int)n->type);
}

/* ---- From the device to the engines ---- */

/* What an event is of.  No default, as above; an unknown one is of the device. */
enum subject { OF_QP, OF_CQ, OF_SRQ, OF_DEVICE };

static enum subject subject(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return OF_QP;
    case IBV_EVENT_CQ_ERR:
        return OF_CQ;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return OF_SRQ;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_WQ_FATAL:
        return OF_DEVICE;
    }
    return OF_DEVICE;
}

/* Is the event this engine's?  The object that it is of lives: the event is not acknowledged.
 */
static bool concerns(const struct rme_fabric *f, const struct ibv_context *ctx,
                     const struct ibv_async_event *e)
{
    switch (subject(e->event_type)) {
    case OF_QP:
        return e->element.qp->qp_context == f;
    case OF_CQ:
        for (unsigned i = 0; i < IB_CQS_MAX; i++)
            if (e->element.cq->cq_context == &f->cq[i])
                return true;
        return false;
    case OF_SRQ:
        return e->element.srq->srq_context == f;
    case OF_DEVICE:
        break;
    }
    return f->dev.ctx == ctx;
}

/* Takes note of an event for an engine, and wakes it if it is another than the one that looks.
 */
static void note(struct rme_fabric *f, struct rme_fabric *looking,
                 const struct ibv_async_event *e)
{
    struct ib_async_note *n = calloc(1, sizeof(*n));
    if (!n) {
        ib_log(looking, RME_LOG_WARN, "asynchronous event %s lost: out of memory",
               ibv_event_type_str(e->event_type));
        return;
    }
    n->type = e->event_type;
    switch (subject(e->event_type)) {
    case OF_QP:
        n->qp_num = e->element.qp->qp_num;
        break;
    case OF_CQ:
        n->cq = e->element.cq;
        break;
    case OF_DEVICE:
        n->port = e->element.port_num;
        break;
    case OF_SRQ:
        break;
    }
    STAILQ_INSERT_TAIL(&f->async.notes, n, next);
    if (f == looking)
        return;
    atomic_fetch_or(&f->hint, IB_HINT_ASYNC);
    ib_wake(f);
}

static struct ib_async_note *next_note(struct rme_fabric *f)
{
    pthread_mutex_lock(&lock);
    struct ib_async_note *n = STAILQ_FIRST(&f->async.notes);
    if (n)
        STAILQ_REMOVE_HEAD(&f->async.notes, next);
    pthread_mutex_unlock(&lock);
    return n;
}

static void log_lost(struct rme_fabric *f, enum ibv_event_type type)
{
    ib_log(f, RME_LOG_INFO,
           "device %s: %s: event of another user of the device in this process, lost",
           f->dev.name, ibv_event_type_str(type));
}

void ib_async_events(struct rme_fabric *f)
{
    struct ibv_async_event e;
    struct ib_async_note *n;
    bool more = true;
    for (int i = 0; i < 64 && more; i++) {
        pthread_mutex_lock(
            &lock); /* who takes an event also hands it on, before it is asked again */
        more = ibv_get_async_event(f->dev.ctx, &e) == 0;
        if (more) {
            struct rme_fabric *user;
            bool ours = false;
            TAILQ_FOREACH(user, &users, async.users)
                if (concerns(user, f->dev.ctx, &e)) {
                    ours = true;
                    note(user, f, &e);
                }
            if (!ours)
                log_lost(f, e.event_type);
            ibv_ack_async_event(&e);
        }
        pthread_mutex_unlock(&lock);
    }
    if (more)
        atomic_fetch_or(&f->hint, IB_HINT_ASYNC); /* come back at the next poll */
    while ((n = next_note(f))) {
        handle(f, n);
        free(n);
    }
}
