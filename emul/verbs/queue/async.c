/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Asynchronous events: a list per context, and a counter of its entries (cmd_fd), so that
 * programs may poll the descriptor, set it non-blocking, or sleep in ibv_get_async_event. List
 * and count change together under the lock, so reading the count never blocks, and the
 * descriptor is not readable after destroyed objects have emptied the list.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Increments the count. Lock held. */
static void count_on(struct emu_ctx *ctx)
{
    if (!emu_kick(ctx->v.context.cmd_fd))
        return; /* count at its limit: the descriptor is readable anyway */
}

/* Decrements the count, which was at least 1. Lock held. */
static void count_off(struct emu_ctx *ctx)
{
    uint64_t one;

    if (!emu_is_own(ctx->v.context.cmd_fd) ||
        read(ctx->v.context.cmd_fd, &one, sizeof(one)) < 0)
        return; /* the count was at its limit when the entry was added */
}

void emu_async_raise(struct emu_ctx *ctx, const struct ibv_async_event *ev)
{
    struct emu_async *a = calloc(1, sizeof(*a));

    if (a == NULL)
        return;
    a->ev = *ev;
    pthread_mutex_lock(&ctx->async_lock);
    *ctx->async_tail = a;
    ctx->async_tail = &a->next;
    count_on(ctx);
    pthread_mutex_unlock(&ctx->async_lock);
    emu_count(COUNT_async_events, 1);
}

void emu_async_purge(struct emu_ctx *ctx, const void *element)
{
    pthread_mutex_lock(&ctx->async_lock);
    struct emu_async **pp = &ctx->async_head;
    while (*pp != NULL) {
        struct emu_async *a = *pp;
        if (element == NULL || a->ev.element.cq == element) {
            *pp = a->next;
            free(a);
            count_off(ctx);
        } else {
            pp = &a->next;
        }
    }
    ctx->async_tail = pp;
    pthread_mutex_unlock(&ctx->async_lock);
}

void emu_async_cq(struct emu_cq *cq, enum ibv_event_type type)
{
    struct ibv_async_event ev = {.element.cq = &cq->cq, .event_type = type};

    emu_async_raise(emu_ctx_of(cq->cq.context), &ev);
}

void emu_async_qp(struct emu_qp *qp, enum ibv_event_type type)
{
    struct ibv_async_event ev = {.element.qp = &qp->qp, .event_type = type};

    emu_async_raise(emu_ctx_of(qp->qp.context), &ev);
}

void emu_async_srq(struct emu_srq *srq, enum ibv_event_type type)
{
    struct ibv_async_event ev = {.element.srq = &srq->srq, .event_type = type};

    emu_async_raise(emu_ctx_of(srq->srq.context), &ev);
}

/* Returns the counters of the object whose destruction waits for the event's acknowledgement,
 * or NULL. */
static uint32_t *fetched(const struct ibv_async_event *ev, pthread_mutex_t **lock,
                         pthread_cond_t **cond, uint32_t **acked)
{
    switch (ev->event_type) {
    case IBV_EVENT_CQ_ERR: {
        struct emu_cq *cq = (struct emu_cq *)ev->element.cq;
        *lock = &cq->cq.mutex;
        *cond = &cq->cq.cond;
        *acked = &cq->cq.async_events_completed;
        return &cq->async_events;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
        struct emu_qp *qp = (struct emu_qp *)ev->element.qp;
        *lock = &qp->qp.mutex;
        *cond = &qp->qp.cond;
        *acked = &qp->qp.events_completed;
        return &qp->async_events;
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
        struct emu_srq *srq = (struct emu_srq *)ev->element.srq;
        *lock = &srq->srq.mutex;
        *cond = &srq->srq.cond;
        *acked = &srq->srq.events_completed;
        return &srq->async_events;
    }
    default:
        return NULL;
    }
}

EMU_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct emu_ctx *ctx = emu_ctx_of(context);
    pthread_mutex_t *lock;
    pthread_cond_t *cond;
    uint32_t *acked;

    if (emu_call(CALL_ibv_get_async_event) || emu_dev_for(context) == NULL) {
        errno = EIO;
        return -1;
    }
    for (;;) {
        struct pollfd readable = {.fd = context->async_fd, .events = POLLIN};

        pthread_mutex_lock(&ctx->async_lock);
        struct emu_async *a = ctx->async_head;
        if (a != NULL) {
            count_off(ctx);
            ctx->async_head = a->next;
            if (ctx->async_head == NULL)
                ctx->async_tail = &ctx->async_head;
            *event = a->ev;
            uint32_t *n = fetched(event, &lock, &cond, &acked);
            if (n != NULL)
                ++*n;
        }
        pthread_mutex_unlock(&ctx->async_lock);
        free(a);
        if (a != NULL)
            return 0;
        if (fcntl(context->async_fd, F_GETFL) & O_NONBLOCK) {
            errno = EAGAIN;
            return -1;
        }
        if (poll(&readable, 1, -1) < 0)
            return -1;
    }
}

EMU_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    pthread_mutex_t *lock;
    pthread_cond_t *cond;
    uint32_t *acked;

    emu_call(CALL_ibv_ack_async_event);
    if (fetched(event, &lock, &cond, &acked) == NULL)
        return;
    pthread_mutex_lock(lock);
    ++*acked;
    pthread_cond_signal(cond);
    pthread_mutex_unlock(lock);
}
