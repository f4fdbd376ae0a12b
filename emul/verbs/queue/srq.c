/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shared receive queues: creation, queries, destruction, posting. */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>

/* Creates an SRQ; NULL with errno. */
static struct emu_srq *srq_new(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr)
{
    struct emu_dev *d = emu_dev_for(pd->context);
    struct emu_srq *srq = NULL;
    int err = 0;

    if (emu_call(CALL_ibv_create_srq))
        err = ENOMEM;
    else if (d == NULL || emu_has_failed(pd->context))
        err = EIO;
    else if (!d->knobs.srq)
        err = EOPNOTSUPP;
    else if (attr->max_wr == 0 || attr->max_wr > d->knobs.max_qp_wr ||
             attr->max_sge > d->knobs.max_sge)
        err = EINVAL;
    else if ((srq = calloc(1, sizeof(*srq))) == NULL)
        err = ENOMEM;
    if (err) {
        errno = err;
        return NULL;
    }
    uint32_t max_sge = attr->max_sge ? attr->max_sge : 1;
    pthread_mutex_lock(&d->lock);
    uint32_t n, i = 0;
    for (n = 0; n < EMU_MAX_SRQS; n++) {
        i = (d->next_srq + n) % EMU_MAX_SRQS;
        if (!atomic_load(&shm_srq(d->seg, i)->in_use))
            break;
    }
    if (n < EMU_MAX_SRQS) {
        d->next_srq = i + 1;
        atomic_store(&shm_srq(d->seg, i)->in_use, 1);
    }
    pthread_mutex_unlock(&d->lock);
    struct shm_srq *s = n < EMU_MAX_SRQS ? shm_srq(d->seg, i) : NULL;
    if (s == NULL || emu_rq_init(d, &srq->rq, &s->rq, attr->max_wr, max_sge)) {
        if (s != NULL)
            atomic_store(&s->in_use, 0);
        free(srq);
        errno = ENOMEM;
        return NULL;
    }
    srq->index = i;
    srq->srq.context = pd->context;
    srq->srq.srq_context = srq_context;
    srq->srq.pd = pd;
    srq->srq.handle = i;
    pthread_mutex_init(&srq->srq.mutex, NULL);
    pthread_cond_init(&srq->srq.cond, NULL);
    attr->max_sge = max_sge;
    pthread_mutex_lock(&d->lock);
    d->srq[i] = srq;
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_add(&((struct emu_pd *)pd)->users, 1);
    emu_count(COUNT_live_srq, 1);
    return srq;
}

EMU_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    if (pd == NULL) {
        errno = EINVAL;
        return NULL;
    }
    struct emu_srq *srq = srq_new(pd, init->srq_context, &init->attr);
    return srq != NULL ? &srq->srq : NULL;
}

struct ibv_srq *emu_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *a)
{
    enum ibv_srq_type type =
        a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? a->srq_type : IBV_SRQT_BASIC;
    int err = 0;

    if (type != IBV_SRQT_BASIC)
        err = EOPNOTSUPP;
    else if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || a->pd == NULL ||
             a->pd->context != context)
        err = EINVAL;
    if (err) {
        errno = err;
        return NULL;
    }
    struct emu_srq *srq = srq_new(a->pd, a->srq_context, &a->attr);
    return srq != NULL ? &srq->srq : NULL;
}

EMU_EXPORT int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
    struct emu_srq *srq = (struct emu_srq *)ibsrq;
    struct emu_dev *d = emu_dev_for(ibsrq->context);

    if (emu_call(CALL_ibv_modify_srq))
        return ENOMEM;
    if (d == NULL)
        return EIO;
    if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
        return EINVAL;
    if (mask & IBV_SRQ_MAX_WR)
        return EOPNOTSUPP; /* IBV_DEVICE_SRQ_RESIZE is not advertised */
    if (mask & IBV_SRQ_LIMIT) {
        if (attr->srq_limit > srq->rq.max_wr)
            return EINVAL;
        pthread_mutex_lock(&d->lock);
        bool reached = !atomic_exchange(&srq->rq.s->limit, attr->srq_limit);
        if (srq->limit && reached) /* of the former limit, whose message is on its way */
            emu_async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
        srq->limit = attr->srq_limit;
        pthread_mutex_unlock(&d->lock);
    }
    return 0;
}

EMU_EXPORT int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
    struct emu_srq *srq = (struct emu_srq *)ibsrq;

    if (emu_call(CALL_ibv_query_srq))
        return ENOMEM;
    attr->max_wr = srq->rq.max_wr;
    attr->max_sge = srq->rq.max_sge;
    attr->srq_limit = atomic_load(&srq->rq.s->limit);
    return 0;
}

EMU_EXPORT int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
    struct emu_srq *srq = (struct emu_srq *)ibsrq;
    struct emu_dev *d = emu_dev_for(ibsrq->context);

    if (emu_call(CALL_ibv_destroy_srq) || d == NULL)
        return EIO;
    if (atomic_load(&srq->users))
        return EBUSY;
    pthread_mutex_lock(&d->lock);
    d->srq[srq->index] = NULL;
    pthread_mutex_unlock(&d->lock);
    emu_async_purge(emu_ctx_of(ibsrq->context), ibsrq);
    pthread_mutex_lock(&ibsrq->mutex);
    while (srq->async_events != ibsrq->events_completed)
        pthread_cond_wait(&ibsrq->cond, &ibsrq->mutex);
    pthread_mutex_unlock(&ibsrq->mutex);
    emu_rq_fini(d, &srq->rq);
    atomic_store(&shm_srq(d->seg, srq->index)->in_use, 0);
    atomic_fetch_sub(&((struct emu_pd *)ibsrq->pd)->users, 1);
    pthread_mutex_destroy(&ibsrq->mutex);
    pthread_cond_destroy(&ibsrq->cond);
    free(srq);
    emu_uncount(COUNT_live_srq, 1);
    return 0;
}

/* Loses all receives of the SRQ.  Under rq.lock. */
static void lose(struct emu_srq *srq)
{
    atomic_store(&srq->rq.s->head, atomic_load(&srq->rq.s->tail));
}

/* Called by tests, through dlsym; see doc/emuverbs.md. */
EMU_EXPORT void emuverbs_fail_srq(struct ibv_srq *srq);
EMU_EXPORT void emuverbs_fail_srq(struct ibv_srq *ibsrq)
{
    struct emu_srq *srq = (struct emu_srq *)ibsrq;

    pthread_mutex_lock(&srq->rq.lock);
    srq->failed = true;
    lose(srq);
    pthread_mutex_unlock(&srq->rq.lock);
    emu_async_srq(srq, IBV_EVENT_SRQ_ERR);
}

int emu_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct emu_srq *srq = (struct emu_srq *)ibsrq;
    struct emu_dev *d = emu_dev_peek();
    int err = 0;

    if (emu_call(CALL_ibv_post_srq_recv) || d == NULL) {
        *bad = wr;
        return ENOMEM;
    }
    emu_count(COUNT_doorbells, 1);
    pthread_mutex_lock(&srq->rq.lock);
    for (; wr; wr = wr->next) {
        err = emu_rq_post(d, &srq->rq, wr);
        if (err) {
            *bad = wr;
            break;
        }
        emu_count(COUNT_wr_srq_recv, 1);
        if (__builtin_expect(emu_tracing, false))
            emu_trace_receive("srq", ibsrq->handle, wr);
    }
    if (srq->failed)
        lose(srq);
    pthread_mutex_unlock(&srq->rq.lock);
    return err;
}
