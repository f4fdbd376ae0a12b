/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Receive queues: one ring type for those of QPs and for SRQs (shm.h).
 *
 * As on real devices, a place in the queue is freed when the program has polled the completion
 * of its receive, not when a sender has taken the receive.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <string.h>

int emu_rq_init(struct emu_dev *d, struct emu_rq *rq, struct shm_rq *s, uint32_t max_wr,
                uint32_t max_sge)
{
    uint32_t entries = 1;

    rq->s = s;
    rq->max_wr = max_wr;
    rq->max_sge = max_sge;
    rq->posted = 0;
    rq->flushing = false;
    atomic_store(&rq->polled, 0);
    while (entries < max_wr)
        entries <<= 1;
    s->mask = entries - 1;
    s->stride = (uint32_t)(sizeof(struct shm_rwqe) + max_sge * sizeof(struct shm_sge));
    s->max_sge = max_sge;
    rq->bytes = (uint64_t)entries * s->stride;
    s->off = emu_arena_alloc(d, rq->bytes);
    if (!s->off)
        return ENOMEM;
    atomic_store(&s->head, atomic_load(&s->tail));
    atomic_store(&s->limit, 0);
    pthread_mutex_init(&rq->lock, NULL);
    return 0;
}

void emu_rq_fini(struct emu_dev *d, struct emu_rq *rq)
{
    if (rq->s == NULL || !rq->s->off)
        return;
    emu_arena_free(d, rq->s->off, rq->bytes);
    rq->s->off = 0;
    pthread_mutex_destroy(&rq->lock);
}

int emu_rq_post(struct emu_dev *d, struct emu_rq *rq, const struct ibv_recv_wr *wr)
{
    struct shm_rq *s = rq->s;

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
        return EINVAL;
    if (rq->posted - atomic_load(&rq->polled) >= rq->max_wr)
        return ENOMEM;
    uint64_t t = atomic_load_explicit(&s->tail, memory_order_relaxed);
    struct shm_rwqe *e = shm_at(d->seg, s->off + (t & s->mask) * s->stride);
    e->wr_id = wr->wr_id;
    e->nsge = (uint32_t)wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++) {
        e->sge[i].addr = wr->sg_list[i].addr;
        e->sge[i].length = wr->sg_list[i].length;
        e->sge[i].lkey = wr->sg_list[i].lkey;
    }
    atomic_store_explicit(&s->tail, t + 1, memory_order_release);
    rq->posted++;
    return 0;
}

bool emu_rq_peek(struct shm_head *seg, const struct shm_rq *s, uint64_t *at, uint64_t *wr_id,
                 uint32_t *nsge, struct shm_sge *sge)
{
    uint64_t h = atomic_load(&s->head);

    if (h >= atomic_load_explicit(&s->tail, memory_order_acquire))
        return false;
    const struct shm_rwqe *e = shm_at(seg, s->off + (h & s->mask) * s->stride);
    uint32_t n = e->nsge < EMU_MAX_SGE ? e->nsge : EMU_MAX_SGE;
    *at = h;
    *wr_id = e->wr_id;
    *nsge = n;
    memcpy(sge, e->sge, n * sizeof(*sge));
    return true;
}

bool emu_rq_take(struct shm_rq *s, uint64_t at)
{
    return atomic_compare_exchange_strong(&s->head, &at, at + 1);
}

uint64_t emu_rq_wr_id(struct emu_dev *d, const struct emu_rq *rq, uint64_t at)
{
    const struct shm_rwqe *e = shm_at(d->seg, rq->s->off + (at & rq->s->mask) * rq->s->stride);

    return e->wr_id;
}

/*
 * Takes all entries in one step and completes each place not completed before. The number may
 * exceed that of present entries by one: a poster with a revoked token may still take a
 * receive, without completing it. Under the lock, so that nothing is posted meanwhile.
 */
static void flush(struct emu_dev *d, struct emu_qp *qp)
{
    struct shm_cqe c = {.qpn = qp->qp.qp_num, .status = IBV_WC_WR_FLUSH_ERR};
    struct shm_rq *s = qp->rq.s;
    uint64_t tail = atomic_load(&s->tail);

    if (qp->rq.flushed >= tail)
        return;
    atomic_store(&s->head, tail);
    for (; qp->rq.flushed < tail; qp->rq.flushed++) {
        const struct shm_rwqe *e =
            shm_at(d->seg, s->off + (qp->rq.flushed & s->mask) * s->stride);

        c.wr_id = e->wr_id;
        emu_count(COUNT_wr_flushed, 1);
        emu_cq_push(d, &d->self, qp->rcq->index, &c);
    }
    emu_cq_notify(d, &d->self, qp->rcq->index, true);
}

void emu_rq_flush(struct emu_dev *d, struct emu_qp *qp, uint64_t from)
{
    pthread_mutex_lock(&qp->rq.lock);
    qp->rq.flushing = true;
    qp->rq.flushed = from;
    flush(d, qp);
    pthread_mutex_unlock(&qp->rq.lock);
}

/* Counters are not reset: a poster that continues late must not find its place again. */
void emu_rq_reset(struct emu_rq *rq)
{
    pthread_mutex_lock(&rq->lock);
    rq->flushing = false;
    atomic_store(&rq->s->head, atomic_load(&rq->s->tail));
    rq->posted = 0;
    atomic_store(&rq->polled, 0);
    pthread_mutex_unlock(&rq->lock);
}

int emu_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    struct emu_dev *d = emu_dev_peek();
    int err = 0;

    if (emu_call(CALL_ibv_post_recv))
        err = ENOMEM;
    else if (d == NULL)
        err = EIO;
    else if (qp->rq.s == NULL || atomic_load(&qp->s->state) == IBV_QPS_RESET)
        err = EINVAL;
    if (err) {
        *bad = wr;
        return err;
    }
    emu_count(COUNT_doorbells, 1);
    pthread_mutex_lock(&qp->rq.lock);
    for (; wr; wr = wr->next) {
        err = emu_rq_post(d, &qp->rq, wr);
        if (err) {
            *bad = wr;
            break;
        }
        emu_count(COUNT_wr_recv, 1);
        if (__builtin_expect(emu_tracing, false))
            emu_trace_receive("qp", ibqp->qp_num, wr);
    }
    if (qp->rq.flushing)
        flush(d, qp);
    pthread_mutex_unlock(&qp->rq.lock);
    return err;
}
