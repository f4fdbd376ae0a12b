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
 * Events of a QP go to its link, of the CQ, SRQ or device to all links.  Other events of the
 * device are logged.
 *
 * The program may use librdmacm itself, and so the same context.  An event of the program's
 * objects cannot be put back, and blocks their destruction until acknowledged.  Such an event
 * is therefore acknowledged, and its loss is logged.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/link/links.h"

struct ib_async_note {
    struct list_head next;
    enum ibv_event_type type;
    bool is_qp, is_device; /* neither: the CQ or SRQ */
    uint32_t number;       /* of the QP or port */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_head users = LIST_EMPTY_RING(users);

int ib_async_open(struct ib_rail *rail)
{
    int error = ib_nonblocking(rail->dev.ctx->async_fd);
    if (error)
        return error;
    list_init(&rail->async.notes);
    pthread_mutex_lock(&lock);
    list_add_tail(&rail->async.users, &users);
    pthread_mutex_unlock(&lock);
    rail->async.open = true;
    return 0;
}

/* Removes the engine from the list, so that no notes arrive. */
void ib_async_close(struct ib_rail *rail)
{
    struct ib_async_note *n;
    if (!rail->async.open)
        return;
    pthread_mutex_lock(&lock);
    list_del_init(&rail->async.users);
    pthread_mutex_unlock(&lock);
    while ((n = list_first(&rail->async.notes, struct ib_async_note, next)) != NULL) {
        list_del_init(&n->next);
        free(n);
    }
    rail->async.open = false;
}

/* Handles an event of a link's QP. */
static void qp_event(struct rme_link *l, enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_COMM_EST: /* data before ESTABLISHED; rdma_cm must be notified */
        if (l->id != NULL && l->state == IB_ACCEPTING)
            rdma_notify(l->id, type);
        return;
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
        return;
    case IBV_EVENT_QP_LAST_WQE_REACHED: /* of a QP in the error state, whatever the cause */
        ib_link_drained(l, IB_DRAIN_LAST);
        break;
    default:
        break;
    }
    if (l->state >= IB_DRAINING)
        return;
    ib_log(l->rail, RME_LOG_WARN, "%s: %s", l->peer, ibv_event_type_str(type));
    ib_link_fail(l,
                 type == IBV_EVENT_QP_FATAL ? -EIO
                 : type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR
                     ? -EPROTO /* a malformed or forbidden request of the peer */
                     : -ECONNRESET,
                 true);
}

static void handle(struct ib_rail *rail, const struct ib_async_note *n)
{
    struct rme_link *l = n->is_qp ? ib_link_by_qp(rail, n->number) : NULL;
    bool changed;
    if (l != NULL)
        qp_event(l, n->type);
    if (n->is_qp)
        return;
    if (n->type == IBV_EVENT_CQ_ERR || n->type == IBV_EVENT_SRQ_ERR) {
        *(n->type == IBV_EVENT_CQ_ERR ? &rail->cq.broken : &rail->srq_broken) = true;
        ib_link_fail_all(rail, -EIO, ibv_event_type_str(n->type));
        return;
    }
    if (n->type == IBV_EVENT_DEVICE_FATAL) {
        ib_link_device_lost(rail, ibv_event_type_str(n->type));
        return;
    }
    changed = n->type == IBV_EVENT_PORT_ERR || n->type == IBV_EVENT_PORT_ACTIVE;
    if (changed) /* connections detect loss themselves */
        ib_device_query_ports(rail);
    if (n->type == IBV_EVENT_GID_CHANGE || n->type == IBV_EVENT_PORT_ACTIVE)
        (void)ib_rails_addresses(rail->fabric);
    ib_log(rail, changed ? RME_LOG_WARN : RME_LOG_INFO, "device %s port %u: %s", rail->dev.name,
           n->number, ibv_event_type_str(n->type));
}

/* ---- From the device to the engines ---- */

/* Copies an event.  Returns the context of its QP, CQ or SRQ, which is the rail that created
 * the object, if an engine did.  The object exists, because the event is not acknowledged. */
static const void *subject(const struct ibv_async_event *e, struct ib_async_note *n)
{
    enum ibv_event_type type = n->type = e->event_type;
    n->is_qp = (type >= IBV_EVENT_QP_FATAL && type <= IBV_EVENT_PATH_MIG_ERR) ||
               type == IBV_EVENT_QP_LAST_WQE_REACHED;
    if (n->is_qp) {
        n->number = e->element.qp->qp_num;
        return e->element.qp->qp_context;
    }
    if (type == IBV_EVENT_CQ_ERR)
        return e->element.cq->cq_context;
    if (type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED)
        return e->element.srq->srq_context;
    n->is_device = true;
    n->number = (uint32_t)e->element.port_num;
    return NULL;
}

/* Queues a copy of a note for an engine; wakes the engine unless it is the reading one. */
static void note(struct ib_rail *rail, struct ib_rail *reading, const struct ib_async_note *n)
{
    struct ib_async_note *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        ib_log(reading, RME_LOG_WARN, "asynchronous event %s lost: out of memory",
               ibv_event_type_str(n->type));
        return;
    }
    *copy = *n;
    list_add_tail(&copy->next, &rail->async.notes);
    if (rail == reading)
        return;
    atomic_fetch_or(&rail->fabric->hint, IB_HINT_ASYNC(rail->number));
    ib_wake(rail->fabric);
}

/* Distributes an event to the engines concerned. */
static void distribute(struct ib_rail *reading, const struct ibv_async_event *e)
{
    struct ib_async_note n = {.number = 0};
    const void *owner = subject(e, &n);
    struct ib_rail *rail;
    bool ours = false;
    list_for_each(rail, &users, async.users)
        if (n.is_device ? rail->dev.ctx == reading->dev.ctx : rail == owner) {
            ours = true;
            note(rail, reading, &n);
        }
    if (!ours)
        ib_log(reading, RME_LOG_INFO,
               "device %s: %s: event of another user of the device in this process, lost",
               reading->dev.name, ibv_event_type_str(n.type));
}

void ib_async_events(struct ib_rail *rail)
{
    struct ibv_async_event e;
    struct ib_async_note *n;
    bool more = true;
    for (int i = 0; i < 64 && more; i++) {
        /* an event is distributed before another engine reads the next one */
        pthread_mutex_lock(&lock);
        more = ibv_get_async_event(rail->dev.ctx, &e) == 0;
        if (more) {
            distribute(rail, &e);
            ibv_ack_async_event(&e);
        }
        pthread_mutex_unlock(&lock);
    }
    if (more)
        atomic_fetch_or(&rail->fabric->hint,
                        IB_HINT_ASYNC(rail->number)); /* continue at the next poll */
    do {
        pthread_mutex_lock(&lock);
        n = list_first(&rail->async.notes, struct ib_async_note, next);
        if (n != NULL)
            list_del_init(&n->next);
        pthread_mutex_unlock(&lock);
        if (n != NULL)
            handle(rail, n);
        free(n);
    } while (n != NULL);
}
