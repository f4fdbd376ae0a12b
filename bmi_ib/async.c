/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * async.c - asynchronous events of the device.
 *
 * Each is noted, acknowledged (an object with an unacknowledged event cannot be destroyed),
 * then handled: those of a queue pair by its link, those of a completion queue by all its
 * links, those of the device or the shared receive queue by every link.  The rest is told to
 * the log.
 */
#include <errno.h>
#include <string.h>
#include "ib.h"

int ib_async_open(struct rme_fabric *f)
{
    return ib_nonblocking(f->dev.ctx->async_fd);
}

static struct rme_link *link_of(struct rme_fabric *f, const struct ibv_qp *qp)
{
    struct rme_link *l;
    TAILQ_FOREACH(l, &f->links, all_entry)
    if (l->qp == qp)
        return l;
    return NULL;
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
static void handle(struct rme_fabric *f, const struct ibv_async_event *e)
{
    struct rme_link *l;
    struct ib_cq *c;

    switch (e->event_type) {
    case IBV_EVENT_QP_FATAL:
        qp_failed(f, link_of(f, e->element.qp), e->event_type, -EIO);
        return;
    case IBV_EVENT_QP_REQ_ERR: /* the peer asked for something malformed, or not allowed */
    case IBV_EVENT_QP_ACCESS_ERR:
        qp_failed(f, link_of(f, e->element.qp), e->event_type, -EPROTO);
        return;
    case IBV_EVENT_PATH_MIG_ERR:
        qp_failed(f, link_of(f, e->element.qp), e->event_type, -ECONNRESET);
        return;
    case IBV_EVENT_COMM_EST: /* data before the confirmation; rdma_cm wants to hear of it */
        l = link_of(f, e->element.qp);
        if (l && l->id && l->state == IB_ACCEPTING)
            rdma_notify(l->id, e->event_type);
        return;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        l = link_of(f, e->element.qp);
        if (l) {
            l->last_wqe = true;
            ib_link_drained(l);
        }
        return;
    case IBV_EVENT_CQ_ERR:
        c = cq_of(f, e->element.cq);
        ib_log(f, RME_LOG_ERROR, "device %s: %s: its connections fail", f->dev.name,
               ibv_event_type_str(e->event_type));
        if (c) {
            c->broken = true;
            ib_link_fail_all(f, c, -EIO);
        }
        return;
    case IBV_EVENT_SRQ_ERR:
        all_failed(f, e->event_type, -EIO);
        return;
    case IBV_EVENT_DEVICE_FATAL:
        f->dev.dead = true;
        all_failed(f, e->event_type, -ENODEV);
        return;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE: /* the connections find out by themselves whether they survived
                                 */
        ib_log(f, RME_LOG_WARN, "device %s port %d: %s", f->dev.name, e->element.port_num,
               ibv_event_type_str(e->event_type));
        return;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
        ib_log(f, RME_LOG_INFO, "device %s port %d: %s", f->dev.name, e->element.port_num,
               ibv_event_type_str(e->event_type));
        return;
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_SRQ_LIMIT_REACHED: /* never asked for */
    case IBV_EVENT_WQ_FATAL:
        ib_log(f, RME_LOG_DEBUG, "device %s: %s ignored", f->dev.name,
               ibv_event_type_str(e->event_type));
        return;
    }
    ib_log(f, RME_LOG_WARN, "device %s: asynchronous event %d is unknown and ignored",
           f->dev.name, (int)e->event_type);
}

void ib_async_events(struct rme_fabric *f)
{
    struct ibv_async_event e;
    for (int i = 0; i < 64; i++) {
        if (ibv_get_async_event(f->dev.ctx, &e))
            return;
        ibv_ack_async_event(&e);
        handle(f, &e);
    }
    atomic_fetch_or(&f->hint,
                    IB_HINT_ASYNC); /* there may be more: come back at the next poll */
}
