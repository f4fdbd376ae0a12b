/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The state machine of a queue pair, as one table of transitions for each type with the
 * attributes each needs and allows; any state may go to RESET or to ERR.
 */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

/* A poster that executes into a failing QP is looked at after the first, given up after the
 * other. */
#define BUSY_LOOK (EMU_NSEC / 50)
#define BUSY_WAIT (EMU_NSEC * 5)

#define OPT_RTS                                                                                \
    (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |        \
     IBV_QP_MIN_RNR_TIMER)
#define OPT_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)

struct transition {
    enum ibv_qp_state from, to;
    int required, optional;
};
static const struct transition connected[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, OPT_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, OPT_INIT},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC,
     OPT_RTS},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_RTS},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_RTS},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     OPT_RTS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0}, /* the end */
};
#define OPT_UC                                                                                 \
    (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
static const struct transition unacknowledged[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, OPT_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, OPT_INIT},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, OPT_UC},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_UC},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_UC},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, OPT_UC | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
};
#define OPT_UD (IBV_QP_CUR_STATE | IBV_QP_QKEY)
static const struct transition datagrams[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, OPT_UD},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_UD},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_UD},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
};
static const struct transition frames[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PORT},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, 0},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
};
/* Of XRC each half has what it needs of a connection's. */
static const struct transition xrc_sends[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, OPT_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, OPT_INIT},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC,
     OPT_UC},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_UC},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_UC},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     OPT_UC | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
};
static const struct transition xrc_receives[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, OPT_INIT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, OPT_INIT},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, OPT_RTS},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_RTS},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_RTS},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     OPT_RTS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_TIMEOUT},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
};

static const struct transition *table_of(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_UD:
        return datagrams;
    case IBV_QPT_RAW_PACKET:
        return frames;
    case IBV_QPT_UC:
        return unacknowledged;
    case IBV_QPT_XRC_SEND:
        return xrc_sends;
    case IBV_QPT_XRC_RECV:
        return xrc_receives;
    default:
        return connected;
    }
}

static bool allowed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
                    int mask)
{
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return !(mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE));
    for (const struct transition *t = table_of(type); t->to != IBV_QPS_RESET; t++)
        if (t->from == from && t->to == to) {
            int all = t->required | t->optional | IBV_QP_STATE;
            return (mask & t->required) == t->required && !(mask & ~all);
        }
    return false;
}

static int check_values(struct emu_dev *d, const struct ibv_qp_attr *a, int mask)
{
    uint64_t depth = d->knobs.max_rd_atom;

    if ((mask & IBV_QP_PORT) && !emu_port_there(d, a->port_num))
        return EINVAL;
    if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index != 0)
        return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) &&
        (a->path_mtu < IBV_MTU_256 || (128u << a->path_mtu) > d->knobs.mtu))
        return EINVAL;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > depth)
        return EINVAL;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > depth)
        return EINVAL;
    if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31)
        return EINVAL;
    if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31)
        return EINVAL;
    if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7)
        return EINVAL;
    if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7)
        return EINVAL;
    if ((mask & IBV_QP_DEST_QPN) && a->dest_qp_num >= 1u << 24)
        return EINVAL;
    if ((mask & IBV_QP_ALT_PATH))
        return EINVAL; /* automatic path migration is not advertised */
    if (mask & IBV_QP_AV) {
        const struct ibv_ah_attr *av = &a->ah_attr;
        if (!emu_port_there(d, av->port_num) || (av->is_global && av->grh.sgid_index != 0) ||
            (d->knobs.ethernet && !av->is_global))
            return EINVAL;
    }
    return 0;
}

static void apply(struct emu_qp *qp, const struct ibv_qp_attr *a, int mask)
{
    struct ibv_qp_attr *q = &qp->attr;

    if (mask & IBV_QP_ACCESS_FLAGS) {
        q->qp_access_flags = a->qp_access_flags;
        qp->s->access = a->qp_access_flags;
    }
    if (mask & IBV_QP_PKEY_INDEX)
        q->pkey_index = a->pkey_index;
    if (mask & IBV_QP_PORT) {
        q->port_num = a->port_num;
        qp->source = (uint8_t)EMU_PORT(emu_hca_of(qp->qp.context)->index, a->port_num);
    }
    if (mask & IBV_QP_AV)
        q->ah_attr = a->ah_attr;
    if (mask & IBV_QP_PATH_MTU)
        q->path_mtu = a->path_mtu;
    if (mask & IBV_QP_TIMEOUT)
        q->timeout = a->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        q->retry_cnt = a->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) {
        q->rnr_retry = a->rnr_retry;
        qp->rnr_left = a->rnr_retry;
    }
    if (mask & IBV_QP_RQ_PSN)
        q->rq_psn = a->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN)
        q->sq_psn = a->sq_psn & 0xffffff;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
        q->max_rd_atomic = a->max_rd_atomic;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) {
        q->max_dest_rd_atomic = a->max_dest_rd_atomic;
        qp->s->max_dest_rd = a->max_dest_rd_atomic;
    }
    if (mask & IBV_QP_MIN_RNR_TIMER) {
        q->min_rnr_timer = a->min_rnr_timer;
        qp->s->min_rnr_timer = a->min_rnr_timer;
    }
    if (mask & IBV_QP_DEST_QPN)
        q->dest_qp_num = a->dest_qp_num;
    if (mask & IBV_QP_QKEY) {
        q->qkey = a->qkey;
        qp->s->qkey = a->qkey;
    }
}

static void set_state(struct emu_qp *qp, enum ibv_qp_state state)
{
    qp->qp.state = state;
    qp->attr.qp_state = state;
    atomic_store(&qp->s->state, state);
}

/*
 * Takes the token `t` away from a poster that does not come back. What it had taken is flushed,
 * unless it got as far as the completion; a completion that it pushes from now on is dropped.
 * The lock keeps polls from seeing a half of this. False when the poster has come back
 * meanwhile. *from: the first place of the QP's own queue that nobody completes any more.
 *
 * The poster may still run. It is asked twice how far it came: first whether its completion
 * counts, and once more when the token is gone, as it may have taken a receive in between.
 */
static bool revoke(struct emu_dev *d, struct emu_qp *qp, uint64_t t, uint64_t *from)
{
    struct shm_qp *s = qp->s;
    struct shm_cqe c = {
        .qpn = qp->qp.qp_num, .srq = qp->srq != NULL, .status = IBV_WC_WR_FLUSH_ERR};
    uint64_t *revoked = &d->revoked[qp->index], old = *revoked, busy = t;
    bool ok, done;

    *from = 0;
    if (emu_is_xrc(qp->qp.qp_type))
        return emu_xrc_revoke(d, qp, t);
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
    if (!done && !qp->srq && atomic_load(&s->taking) == t)
        *from = atomic_load(&s->taking_at);
    if (!done && qp->srq && (atomic_load(&s->taken) & ~(uint64_t)RX_DONE) == t) {
        c.wr_id = s->taken_wr_id;
        emu_count(COUNT_wr_flushed, 1);
        emu_cq_push(d, &d->self, qp->rcq->index, &c);
        emu_cq_notify(d, &d->self, qp->rcq->index, true);
    }
    return true;
}

/*
 * Waits until no poster executes into the QP, but not for one that is stopped or dead. The
 * first place of the QP's own queue that nobody completes any more.
 */
static uint64_t quiesce(struct emu_dev *d, struct emu_qp *qp)
{
    uint64_t since = emu_now(), look = since + BUSY_LOOK, t, from;

    atomic_thread_fence(memory_order_seq_cst);
    for (; (t = atomic_load(&qp->s->busy)) != 0; sched_yield()) {
        uint64_t now = emu_now();
        bool pair = !emu_is_datagram(qp->qp.qp_type);
        bool gone = pair && qp->peer && atomic_load(&qp->peer->dead);
        if (!gone && now > look) {
            struct emu_peer *p = pair ? qp->peer : emu_peer_get(d, RX_SLOT(t));
            gone = !p || now - since > BUSY_WAIT || emu_peer_stopped(p);
            if (!pair)
                emu_peer_put(d, p);
            look = now + BUSY_LOOK;
        }
        if (gone && revoke(d, qp, t, &from))
            return from;
    }
    return atomic_load(&qp->s->rq.head);
}

/*
 * Clears up behind the poster with the token `t`, which died. While the token is there nobody
 * else takes receives, so it is certain whether it had one: that one is flushed. If it was of a
 * completion that nobody has seen, then that is dropped.
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
        if (qp->srq)
            had = atomic_load(&s->taken) == t;
        else
            had = atomic_load(&s->taking) == t &&
                  atomic_load(&s->rq.head) == atomic_load(&s->taking_at) + 1;
    }
    pthread_mutex_unlock(&qp->rcq->lock);
    if (had) {
        c.wr_id = qp->srq ? s->taken_wr_id : emu_rq_wr_id(d, &qp->rq, s->taking_at);
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

void emu_qp_peer_died(struct emu_dev *d, uint32_t slot)
{
    pthread_mutex_lock(&d->qp_life);
    for (uint32_t i = 0; i < EMU_MAX_QPS; i++) {
        struct shm_qp *shared = shm_qp(d->seg, i);
        struct emu_qp *qp;

        if (!qp_at(d, i)) /* to look into the segment would give it a page */
            continue;
        /* its number is set last: one that is being made is not found by posters, nor here */
        if (atomic_load(&shared->user.qpn) == 0 ||
            !emu_is_datagram((enum ibv_qp_type)shared->type))
            continue;
        qp = qp_at(d, i);
        if (!qp)
            continue;
        pthread_mutex_lock(&qp->sq_lock); /* its state does not change meanwhile */
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
    if (qp->rq.s)
        emu_rq_flush(d, qp, from);
    if (event >= 0)
        emu_async_qp(qp, (enum ibv_event_type)event);
    if (qp->srq && old != IBV_QPS_RESET)
        emu_async_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void emu_qp_device_failed(struct emu_dev *d, uint32_t device)
{
    pthread_mutex_lock(&d->qp_life);
    for (uint32_t i = 0; i < EMU_MAX_QPS; i++) {
        struct emu_qp *qp = qp_at(d, i);
        if (!qp || emu_hca_of(qp->qp.context)->index != device)
            continue;
        pthread_mutex_lock(&qp->sq_lock);
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
    if (emu_is_xrc(qp->qp.qp_type))
        emu_xrc_settle(d, qp);
    else
        atomic_store(&qp->s->taken, 0); /* its completions are forgotten */
    if (qp->scq)
        emu_cq_purge(d, qp->scq, qp->qp.qp_num, qp->srq, &qp->rq);
    if (qp->rcq && qp->rcq != qp->scq)
        emu_cq_purge(d, qp->rcq, qp->qp.qp_num, qp->srq, &qp->rq);
    if (qp->rq.s)
        emu_rq_reset(&qp->rq);
    struct emu_peer *peer = qp->peer, *srq_peer = qp->srq_peer;
    qp->peer = qp->srq_peer = NULL;
    qp->sq_tail = qp->sq_exec = qp->sq_retire = qp->sq_told = qp->sq_sent = 0;
    atomic_store(&qp->sq_freed, 0);
    qp->rnr_due = qp->retry_until = 0;
    qp->lost = false;
    qp->s->dest_inc = 0;
    atomic_store(&qp->s->comm_est, 0);
    memset(&qp->attr, 0, sizeof(qp->attr));
    pthread_mutex_unlock(&qp->sq_lock);
    emu_peer_put(d, peer);
    emu_peer_put(d, srq_peer);
}

/* Finds the process of the destination QP. Not finding it is no error: nobody will answer. */
static void bind_peer(struct emu_dev *d, struct emu_qp *qp, struct emu_peer *peer)
{
    struct emu_peer *old = qp->peer;

    qp->peer = peer;
    qp->s->dest_qpn = qp->attr.dest_qp_num;
    qp->s->dest_inc = peer ? peer->incarnation : 0;
    emu_peer_put(d, old);
}

EMU_EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    struct emu_dev *d = emu_dev_for(ibqp->context);
    struct emu_peer *peer = NULL;

    if (emu_call(CALL_ibv_modify_qp))
        return ENOMEM;
    if (!d)
        return EIO;
    enum ibv_qp_state now = (enum ibv_qp_state)atomic_load(&qp->s->state);
    enum ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : now;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    if (to > IBV_QPS_RESET && to < IBV_QPS_ERR && emu_has_failed(ibqp->context))
        return EIO;
    if (from != now || !allowed(ibqp->qp_type, from, to, mask))
        return EINVAL;
    int err = check_values(d, attr, mask);
    if (err)
        return err;
    if (to == IBV_QPS_RESET) {
        emu_qp_reset(d, qp);
        return 0;
    }
    bool pair = !emu_is_datagram(ibqp->qp_type);
    if (to == IBV_QPS_RTR && pair &&
        emu_reachable(d, emu_hca_of(ibqp->context)->index, &attr->ah_attr))
        peer = emu_peer_get(d, attr->dest_qp_num >> EMU_QP_BITS);
    pthread_mutex_lock(&qp->sq_lock);
    if (atomic_load(&qp->s->state) != now) { /* a peer failed it meanwhile */
        pthread_mutex_unlock(&qp->sq_lock);
        emu_peer_put(d, peer);
        return EINVAL;
    }
    if (to == IBV_QPS_ERR) {
        emu_qp_to_error(d, qp, -1);
    } else {
        apply(qp, attr, mask);
        if (to == IBV_QPS_RTR && pair)
            bind_peer(d, qp, peer);
        if (to != now)
            set_state(qp, to);
        if (to == IBV_QPS_RTS)
            emu_sq_progress(d, qp, 0);
        if (to == IBV_QPS_SQD && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
            attr->en_sqd_async_notify)
            emu_async_qp(qp, IBV_EVENT_SQ_DRAINED);
    }
    pthread_mutex_unlock(&qp->sq_lock);
    return 0;
}
