/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * async.c - asynchronous events of the device.
 *
 * librdmacm opens a device once per process, so all engines share its event queue, and an
 * engine may read another one's event.  An event is therefore copied to a note and acknowledged
 * at once, because an object with an unacknowledged event cannot be destroyed.  The note goes
 * to the engine of the QP, CQ or SRQ, or, for events of the device, to all engines that use the
 * device.  These engines are woken and handle their notes with their own lock held.
 *
 * The list of all engines of the process has a lock that is held while events are read and
 * distributed, never while a note is handled.
 *
 * Events of a QP go to its link, of a CQ to all its links, of the device or SRQ to all links.
 * Others of the device are logged.
 *
 * The program may use librdmacm itself, and so the same context.  An event of its objects
 * cannot be put back, and blocks their destruction until acknowledged: the event is
 * acknowledged, and the loss is logged.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/link/links.h"

enum subject { OF_DEVICE, OF_QP, OF_CQ, OF_SRQ };

struct ib_async_note {
    STAILQ_ENTRY(ib_async_note) next;
    enum ibv_event_type type;
    uint32_t number;         /* of the QP or port */
    const struct ibv_cq *cq; /* events of a CQ; compared, never dereferenced */
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

/* Removes the engine from the list, so that no notes arrive. */
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

static void all_failed(struct rme_fabric *f, enum ibv_event_type type, int error)
{
    ib_log(f, RME_LOG_ERROR, "device %s: %s: all its connections fail", f->dev.name,
           ibv_event_type_str(type));
    ib_link_fail_all(f, NULL, error);
}

static void cq_failed(struct rme_fabric *f, const struct ibv_cq *cq)
{
    ib_log(f, RME_LOG_ERROR, "device %s: %s: its connections fail", f->dev.name,
           ibv_event_type_str(IBV_EVENT_CQ_ERR));
    for (unsigned i = 0; i < f->cqs; i++)
        if (f->cq[i].cq == cq) {
            f->cq[i].broken = true;
            ib_link_fail_all(f, &f->cq[i], -EIO);
        }
}

/* Handles an event of a link's QP. */
static void qp_event(struct rme_link *l, enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_COMM_EST: /* data before ESTABLISHED; rdma_cm must be notified */
        if (l->id && l->state == IB_ACCEPTING)
            rdma_notify(l->id, type);
        return;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        l->last_wqe = true;
        ib_link_drained(l);
        return;
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
        return;
    default:
        if (l->state >= IB_DRAINING)
            return;
        ib_log(l->f, RME_LOG_WARN, "%s: %s", l->peer, ibv_event_type_str(type));
        ib_link_fail(l,
                     type == IBV_EVENT_QP_FATAL       ? -EIO
                     : type == IBV_EVENT_PATH_MIG_ERR ? -ECONNRESET
                                                      : -EPROTO, /* a malformed or forbidden
                                                                  * request of the peer */
                     true);
    }
}

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
    default:
        return OF_DEVICE;
    }
}

static void handle(struct rme_fabric *f, const struct ib_async_note *n)
{
    struct rme_link *l;

    switch (subject(n->type)) {
    case OF_QP:
        l = ib_link_by_qp(f, n->number);
        if (l)
            qp_event(l, n->type);
        return;
    case OF_CQ:
        cq_failed(f, n->cq);
        return;
    case OF_SRQ:
        if (n->type == IBV_EVENT_SRQ_ERR)
            all_failed(f, n->type, -EIO);
        return;
    case OF_DEVICE:
        break;
    }
    if (n->type == IBV_EVENT_DEVICE_FATAL) {
        f->dev.dead = true;
        all_failed(f, n->type, -ENODEV);
        return;
    }
    bool changed = n->type == IBV_EVENT_PORT_ERR || n->type == IBV_EVENT_PORT_ACTIVE;
    if (changed) /* connections detect loss themselves */
        ib_device_look(f);
    ib_log(f, changed ? RME_LOG_WARN : RME_LOG_INFO, "device %s port %u: %s", f->dev.name,
           n->number, ibv_event_type_str(n->type));
}

/* ---- From the device to the engines ---- */

/* Returns true if the event is this engine's.  Its object exists, because the event is not
 * acknowledged. */
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

/* Queues a note of an event for an engine; wakes the engine unless it is the reading one. */
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
    if (subject(n->type) == OF_QP)
        n->number = e->element.qp->qp_num;
    else if (subject(n->type) == OF_CQ)
        n->cq = e->element.cq;
    else if (subject(n->type) == OF_DEVICE)
        n->number = (uint32_t)e->element.port_num;
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

void ib_async_events(struct rme_fabric *f)
{
    struct ibv_async_event e;
    struct ib_async_note *n;
    bool more = true;
    for (int i = 0; i < 64 && more; i++) {
        /* an event is distributed before another engine reads the next one */
        pthread_mutex_lock(&lock);
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
                ib_log(
                    f, RME_LOG_INFO,
                    "device %s: %s: event of another user of the device in this process, lost",
                    f->dev.name, ibv_event_type_str(e.event_type));
            ibv_ack_async_event(&e);
        }
        pthread_mutex_unlock(&lock);
    }
    if (more)
        atomic_fetch_or(&f->hint, IB_HINT_ASYNC); /* continue at the next poll */
    while ((n = next_note(f))) {
        handle(f, n);
        free(n);
    }
}
