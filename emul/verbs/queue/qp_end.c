/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Error state and RESET of a QP. Queues are flushed or emptied when no poster executes at the
 * QP, or only posters with revoked tokens. */
#include "emul/verbs/queue/queue.h"

#include <sched.h>
#include <string.h>

/* BUSY_CHECK: time until a poster that executes at a failing QP is examined; BUSY_WAIT: until
 * the wait ends. */
#define BUSY_CHECK (EMU_NSEC / 50)
#define BUSY_WAIT  (EMU_NSEC * 5)

/* Under sq_lock. */
static void set_state(struct emu_qp *qp, enum ibv_qp_state state)
{
    qp->qp.state = state;
    qp->attr.qp_state = state;
    atomic_store(&qp->s->state, state);
}

/*
 * Revokes the token `t` of a poster that does not continue. The receive that the poster had
 * taken is flushed, unless it was completed; later completions of the poster are dropped. The
 * lock keeps polls from seeing intermediate states. False if the poster has left meanwhile.
 * *from: first place of the QP's own queue that posters no longer complete.
 *
 * The poster may still run, so its progress is checked twice: whether its completion counts,
 * and again after revocation, because it may have taken a receive in between.
 */
static bool revoke(struct emu_dev *d, struct emu_qp *qp, uint64_t t, uint64_t *from)
{
    struct shm_qp *s = qp->s;
    struct shm_cqe c = {
        .qpn = qp->qp.qp_num, .srq = qp->srq != NULL, .status = IBV_WC_WR_FLUSH_ERR};
    uint64_t *revoked = &d->revoked[qp->index], old = *revoked, busy = t;
    bool ok, done;

    *from = 0;
    pthread_mutex_lock(&qp->rcq->lock);
    done = qp->reported == t || atomic_load(&s->taken) == (t | RX_DONE);
    if (!done)
        *revoked = t;
    ok = atomic_compare_exchange_strong(&s->busy, &busy, 0);
    if (!ok)
        *revoked = old;
    else
        emu_cq_late(qp->rcq, RX_SLOT(t));
    pthread_mutex_unlock(&qp->rcq->lock);
    if (!ok)
        return false;
    *from = atomic_load(&s->rq.head);
    if (!done && qp->srq == NULL && atomic_load(&s->taking) == t)
        *from = atomic_load(&s->taking_at);
    if (!done && qp->srq != NULL && (atomic_load(&s->taken) & ~(uint64_t)RX_DONE) == t) {
        c.wr_id = s->taken_wr_id;
        emu_count(COUNT_wr_flushed, 1);
        emu_cq_push(d, &d->self, qp->rcq->index, &c);
        emu_cq_notify(d, &d->self, qp->rcq->index, true);
    }
    return true;
}

/* Waits until no running poster executes at the QP; stopped and dead posters are revoked.
 * Returns the first place of the QP's own queue that posters no longer complete. */
static uint64_t quiesce(struct emu_dev *d, struct emu_qp *qp)
{
    uint64_t since = emu_now(), check_at = since + BUSY_CHECK, t, from;

    atomic_thread_fence(memory_order_seq_cst);
    for (; (t = atomic_load(&qp->s->busy)) != 0; sched_yield()) {
        uint64_t now = emu_now();
        bool pair = qp->qp.qp_type != IBV_QPT_UD;
        bool gone = pair && qp->peer != NULL && atomic_load(&qp->peer->dead);
        if (!gone && now > check_at) {
            struct emu_peer *p = pair ? qp->peer : emu_peer_get(d, RX_SLOT(t));
            gone = p == NULL || emu_peer_stopped(p);
            if (!gone && now - since > BUSY_WAIT) {
                emu_count(COUNT_posters_given_up, 1);
                gone = true;
            }
            if (!pair)
                emu_peer_put(d, p);
            check_at = now + BUSY_CHECK;
        }
        if (gone && revoke(d, qp, t, &from))
            return from;
    }
    return atomic_load(&qp->s->rq.head);
}

/*
 * Clears the state of a dead poster with the token `t`. While the token is set no other poster
 * takes receives, so the dead poster's receive is known, and is flushed. Its unseen completion
 * is dropped.
 */
static void clear_dead(struct emu_dev *d, struct emu_qp *qp, uint64_t t)
{
    struct shm_qp *s = qp->s;
    struct shm_cqe c = {
        .qpn = qp->qp.qp_num, .srq = qp->srq != NULL, .status = IBV_WC_WR_FLUSH_ERR};
    bool had = false;

    pthread_mutex_lock(&qp->rcq->lock);
    if (qp->reported != t && atomic_load(&s->taken) != (t | RX_DONE)) {
        d->revoked[qp->index] = t;
        if (qp->srq != NULL)
            had = atomic_load(&s->taken) == t;
        else
            had = atomic_load(&s->taking) == t &&
                  atomic_load(&s->rq.head) == atomic_load(&s->taking_at) + 1;
    }
    pthread_mutex_unlock(&qp->rcq->lock);
    if (had) {
        c.wr_id = qp->srq != NULL ? s->taken_wr_id : emu_rq_wr_id(d, &qp->rq, s->taking_at);
        emu_count(COUNT_wr_flushed, 1);
        emu_cq_push(d, &d->self, qp->rcq->index, &c);
        emu_cq_notify(d, &d->self, qp->rcq->index, true);
    }
    atomic_compare_exchange_strong(&s->busy, &t, 0);
}

static struct emu_qp *qp_at(struct emu_dev *d, uint32_t index)
{
    pthread_mutex_lock(&d->lock);
    struct emu_qp *qp = d->qp[index];
    pthread_mutex_unlock(&d->lock);
    return qp;
}

/* Returns the fully created QP at this place, or NULL. Under qp_life. */
static struct emu_qp *made_at(struct emu_dev *d, uint32_t index)
{
    if (qp_at(d, index) == NULL) /* reading the segment would allocate a page */
        return NULL;
    /* the number is set last: QPs being created are not found */
    return atomic_load(&shm_qp(d->seg, index)->user.qpn) ? qp_at(d, index) : NULL;
}

void emu_qp_peer_died(struct emu_dev *d, uint32_t slot)
{
    pthread_mutex_lock(&d->qp_life);
    for (uint32_t i = 0; i < EMU_MAX_QPS; i++) {
        struct emu_qp *qp = made_at(d, i);
        if (qp == NULL || qp->s->type != IBV_QPT_UD)
            continue;
        emu_sq_lock_first(qp); /* the state does not change meanwhile */
        uint64_t t = atomic_load(&qp->s->busy);
        if (t && RX_SLOT(t) == slot)
            clear_dead(d, qp, t);
        pthread_mutex_unlock(&qp->sq_lock);
    }
    pthread_mutex_unlock(&d->qp_life);
}

void emu_qp_to_error(struct emu_dev *d, struct emu_qp *qp, int event)
{
    if (qp->qp.state == IBV_QPS_ERR)
        return;
    enum ibv_qp_state old = qp->qp.state;
    set_state(qp, IBV_QPS_ERR);
    uint64_t from = quiesce(d, qp);
    emu_sq_flush(d, qp);
    if (qp->rq.s != NULL)
        emu_rq_flush(d, qp, from);
    if (event >= 0)
        emu_async_qp(qp, (enum ibv_event_type)event);
    if (qp->srq != NULL && old != IBV_QPS_RESET)
        emu_async_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void emu_qp_device_failed(struct emu_dev *d, const struct emu_hca *h)
{
    pthread_mutex_lock(&d->qp_life);
    for (uint32_t i = 0; i < EMU_MAX_QPS; i++) {
        struct emu_qp *qp = made_at(d, i);
        if (qp == NULL || emu_hca_of(qp->qp.context) != h)
            continue;
        emu_sq_lock_first(qp);
        if (qp->qp.state != IBV_QPS_RESET)
            emu_qp_to_error(d, qp, -1);
        pthread_mutex_unlock(&qp->sq_lock);
    }
    pthread_mutex_unlock(&d->qp_life);
}

void emu_qp_reset(struct emu_dev *d, struct emu_qp *qp)
{
    pthread_mutex_lock(&qp->sq_lock);
    set_state(qp, IBV_QPS_RESET);
    quiesce(d, qp);
    emu_sq_flush(d, qp);
    atomic_store(&qp->s->taken, 0); /* its completions are dropped */
    emu_cq_purge(d, qp->scq, qp->qp.qp_num, qp->srq, &qp->rq);
    if (qp->rcq != qp->scq)
        emu_cq_purge(d, qp->rcq, qp->qp.qp_num, qp->srq, &qp->rq);
    if (qp->rq.s != NULL)
        emu_rq_reset(&qp->rq);
    struct emu_peer *peer = qp->peer;
    qp->peer = NULL;
    qp->sq_tail = qp->sq_exec = qp->sq_retire = qp->sq_reported = qp->sq_sent = 0;
    atomic_store(&qp->sq_freed, 0);
    qp->rnr_due = qp->retry_until = 0;
    qp->est_reported = false;
    qp->s->dest_inc = 0;
    atomic_store(&qp->s->comm_est, 0);
    atomic_store(&qp->s->why, 0);
    memset(&qp->attr, 0, sizeof(qp->attr));
    pthread_mutex_unlock(&qp->sq_lock);
    emu_peer_put(d, peer);
}
