/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queue pairs: creation, queries, destruction, and messages of peers. */
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEND_OPS                                                                               \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ)
#define UC_OPS                                                                                 \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
     IBV_QP_EX_WITH_SEND_WITH_IMM)
#define ATOMIC_OPS (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define UD_OPS     (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define WINDOW_OPS                                                                             \
    (IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)

static uint64_t send_ops(const struct emu_knobs *k, enum ibv_qp_type type)
{
    if (type == IBV_QPT_UD)
        return UD_OPS;
    if (type == IBV_QPT_UC)
        return UC_OPS;
    return SEND_OPS | ATOMIC_OPS | (k->max_mw ? WINDOW_OPS : 0);
}

/* Checks the parts of a QP to be created; returns 0 or a positive errno. */
static int check_parts(const struct ibv_context *context, const struct ibv_qp_init_attr_ex *a)
{
    if (a->qp_type != IBV_QPT_RC && a->qp_type != IBV_QPT_UC && a->qp_type != IBV_QPT_UD)
        return EOPNOTSUPP;
    if (a->pd == NULL || a->send_cq == NULL || a->recv_cq == NULL)
        return EINVAL;
    /* handles of another context are invalid */
    return a->pd->context != context || a->send_cq->context != context ||
                   a->recv_cq->context != context ||
                   (a->srq != NULL && a->srq->context != context)
               ? EINVAL
               : 0;
}

static int check_caps(struct emu_dev *d, struct ibv_context *context,
                      const struct ibv_qp_init_attr_ex *a)
{
    const struct emu_knobs *k = &d->knobs;
    int err = check_parts(context, a);

    if (err)
        return err;
    if (a->cap.max_send_wr > k->max_qp_wr || a->cap.max_send_sge > k->max_sge ||
        a->cap.max_inline_data > k->max_inline)
        return EINVAL;
    if (a->srq == NULL &&
        (a->cap.max_recv_wr > k->max_qp_wr || a->cap.max_recv_sge > k->max_sge))
        return EINVAL;
    if (((a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && a->create_flags) ||
        (a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)))
        return EOPNOTSUPP;
    if ((a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
        (a->send_ops_flags & ~send_ops(k, a->qp_type)))
        return EOPNOTSUPP;
    return 0;
}

/* Reserves a table entry; returns its index, or -1. */
static int take_index(struct emu_dev *d, struct emu_qp *qp)
{
    int found = -1;

    pthread_mutex_lock(&d->lock);
    for (uint32_t n = 0; n < d->knobs.max_qp && found < 0; n++) {
        uint32_t i = 1 + (d->next_qp + n) % (uint32_t)d->knobs.max_qp;
        if (d->qp[i] == NULL)
            found = (int)i;
    }
    if (found >= 0) {
        d->next_qp = (uint32_t)found;
        d->qp[found] = qp;
    }
    pthread_mutex_unlock(&d->lock);
    return found;
}

static int alloc_sq(struct emu_qp *qp)
{
    uint32_t n = 1;

    while (n < qp->init.cap.max_send_wr)
        n <<= 1;
    qp->sq_mask = n - 1;
    qp->sq = calloc(n, sizeof(*qp->sq));
    qp->sq_sge = calloc((size_t)n * qp->init.cap.max_send_sge, sizeof(*qp->sq_sge));
    return qp->sq != NULL && qp->sq_sge != NULL ? 0 : ENOMEM;
}

/* Returns the inline data granted for a request of `n` bytes, at most the device's limit. */
static uint32_t inline_granted(const struct emu_knobs *k, uint32_t n)
{
    uint64_t asked = n || k->inline_step == 1 ? n : 1; /* with rounding, one step at least */
    uint64_t up = (asked + k->inline_step - 1) / k->inline_step * k->inline_step;

    return (uint32_t)(up < k->max_inline ? up : k->max_inline);
}

static int build(struct emu_dev *d, struct emu_qp *qp, struct ibv_qp_init_attr_ex *a)
{
    struct ibv_qp_cap *cap = &qp->init.cap;

    memcpy(&qp->init, a, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    cap->max_inline_data = inline_granted(&d->knobs, cap->max_inline_data);
    if (!cap->max_send_sge)
        cap->max_send_sge = 1;
    if (a->srq != NULL) {
        cap->max_recv_wr = 0;
        cap->max_recv_sge = 0;
    } else {
        if (!cap->max_recv_sge)
            cap->max_recv_sge = 1;
        if (!cap->max_recv_wr)
            cap->max_recv_wr = 1;
    }
    if (alloc_sq(qp))
        return ENOMEM;
    int index = take_index(d, qp);
    if (index < 0)
        return ENOMEM;
    qp->index = (uint32_t)index;
    qp->s = shm_qp(d->seg, qp->index);
    memset(&qp->s->rq, 0, sizeof(qp->s->rq));
    if (a->srq == NULL &&
        emu_rq_init(d, &qp->rq, &qp->s->rq, cap->max_recv_wr, cap->max_recv_sge)) {
        d->qp[index] = NULL;
        return ENOMEM;
    }
    return 0;
}

static struct emu_qp *create(struct ibv_context *context, struct ibv_qp_init_attr_ex *a)
{
    struct emu_dev *d = emu_dev_for(context);
    struct emu_qp *qp = NULL;
    int err = 0;

    if (emu_call(CALL_ibv_create_qp))
        err = ENOMEM;
    else if (d == NULL || emu_has_failed(context))
        err = EIO;
    else
        err = check_caps(d, context, a);
    if (!err && (qp = calloc(1, sizeof(*qp))) == NULL)
        err = ENOMEM;
    if (!err)
        err = build(d, qp, a);
    if (err) {
        if (qp != NULL) {
            free(qp->sq);
            free(qp->sq_sge);
        }
        free(qp);
        errno = err;
        return NULL;
    }
    uint32_t qpn = d->slot << EMU_QP_BITS | qp->index;
    a->cap = qp->init.cap;
    qp->qp.context = context;
    qp->qp.qp_context = a->qp_context;
    qp->qp.pd = a->pd;
    qp->qp.send_cq = qp->init.send_cq;
    qp->qp.recv_cq = qp->init.recv_cq;
    qp->qp.srq = qp->init.srq;
    qp->qp.handle = qp->index;
    qp->qp.qp_num = qpn;
    qp->qp.state = IBV_QPS_RESET;
    qp->qp.qp_type = a->qp_type;
    pthread_mutex_init(&qp->qp.mutex, NULL);
    pthread_cond_init(&qp->qp.cond, NULL);
    pthread_mutex_init(&qp->sq_lock, NULL);
    qp->timer.fn = emu_sq_timer;
    qp->scq = (struct emu_cq *)qp->init.send_cq;
    qp->rcq = (struct emu_cq *)qp->init.recv_cq;
    qp->srq = (struct emu_srq *)qp->init.srq;
    qp->is_ex = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    emu_wr_api_init(qp);

    struct shm_qp *s = qp->s;
    atomic_store(&s->busy, 0);
    atomic_store(&s->taken, 0);
    atomic_store(&s->taking, 0);
    atomic_store(&s->comm_est, 0);
    atomic_store(&s->why, 0);
    s->dest_qpn = 0;
    s->dest_inc = 0;
    s->user.pd = qp->qp.pd->handle;
    s->access = 0;
    s->type = a->qp_type;
    s->device = (uint8_t)emu_hca_of(qp->qp.context)->index;
    s->qkey = 0;
    s->recv_cq = qp->rcq->index;
    s->srq = qp->srq != NULL ? qp->srq->index + 1 : 0;
    atomic_store(&s->state, IBV_QPS_RESET);
    atomic_store(&s->user.qpn, qpn);

    atomic_fetch_add(&((struct emu_pd *)qp->qp.pd)->users, 1);
    atomic_fetch_add(&qp->scq->users, 1);
    atomic_fetch_add(&qp->rcq->users, 1);
    if (qp->srq != NULL)
        atomic_fetch_add(&qp->srq->users, 1);
    emu_count(COUNT_live_qp, 1);
    return qp;
}

EMU_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct ibv_qp_init_attr_ex a = {0};

    memcpy(&a, init, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    a.comp_mask = IBV_QP_INIT_ATTR_PD;
    a.pd = pd;
    if (pd == NULL) {
        errno = EINVAL;
        return NULL;
    }
    struct emu_qp *qp = create(pd->context, &a);
    if (qp == NULL)
        return NULL;
    init->cap = a.cap;
    return &qp->qp;
}

struct ibv_qp *emu_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || attr->pd == NULL ||
        attr->pd->context != context) {
        errno = EINVAL;
        return NULL;
    }
    struct emu_qp *qp = create(context, attr);
    return qp != NULL ? &qp->qp : NULL;
}

EMU_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibqp)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;

    return qp->is_ex ? &qp->ex : NULL;
}

EMU_EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
                            struct ibv_qp_init_attr *init)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    (void)mask;

    if (emu_call(CALL_ibv_query_qp))
        return ENOMEM;
    pthread_mutex_lock(&qp->sq_lock);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)atomic_load(&qp->s->state);
    attr->sq_draining = emu_sq_draining(qp);
    attr->cap = qp->init.cap;
    *init = qp->init;
    pthread_mutex_unlock(&qp->sq_lock);
    return 0;
}

EMU_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
                                          uint32_t flags)
{
    (void)qp, (void)op, (void)flags;
    return 0;
}

EMU_EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    struct emu_dev *d = emu_dev_for(ibqp->context);

    if (emu_call(CALL_ibv_destroy_qp) || d == NULL)
        return EIO;
    pthread_mutex_lock(&d->lock);
    bool in_group = qp->groups > 0;
    pthread_mutex_unlock(&d->lock);
    if (in_group)
        return EBUSY;
    /* no poster executes here, queues are empty, completions are dropped */
    emu_qp_reset(d, qp);
    emu_timer_cancel(&qp->timer);
    emu_mw_qp_destroyed(d, &qp->windows);
    atomic_store(&qp->s->user.qpn, 0);
    pthread_mutex_lock(&d->qp_life);
    emu_rq_fini(d, &qp->rq); /* before the place, with its shared part, can be reused */
    pthread_mutex_lock(&d->lock);
    d->qp[qp->index] = NULL;
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_unlock(&d->qp_life);
    emu_async_purge(emu_ctx_of(ibqp->context), ibqp);
    pthread_mutex_lock(&ibqp->mutex);
    while (qp->async_events != ibqp->events_completed)
        pthread_cond_wait(&ibqp->cond, &ibqp->mutex);
    pthread_mutex_unlock(&ibqp->mutex);

    atomic_fetch_sub(&((struct emu_pd *)ibqp->pd)->users, 1);
    atomic_fetch_sub(&qp->scq->users, 1);
    atomic_fetch_sub(&qp->rcq->users, 1);
    if (qp->srq != NULL)
        atomic_fetch_sub(&qp->srq->users, 1);
    emu_wr_api_fini(qp);
    free(qp->gathered);
    free(qp->sq);
    free(qp->sq_sge);
    pthread_mutex_destroy(&ibqp->mutex);
    pthread_cond_destroy(&ibqp->cond);
    pthread_mutex_destroy(&qp->sq_lock);
    free(qp);
    emu_uncount(COUNT_live_qp, 1);
    return 0;
}

/* Returns the QP with this number, kept alive by qp_life, or NULL. */
static struct emu_qp *lookup(struct emu_dev *d, uint32_t index, uint32_t qpn)
{
    struct emu_qp *qp = index < EMU_MAX_QPS ? d->qp[index] : NULL;

    return qp != NULL && qp->s != NULL && atomic_load(&qp->s->user.qpn) == qpn ? qp : NULL;
}

bool emu_qp_unseen(struct emu_dev *d, uint32_t qpn)
{
    if (pthread_mutex_trylock(&d->qp_life))
        return true; /* the holder may be waiting for a peer */
    struct emu_qp *qp = lookup(d, qpn & (EMU_MAX_QPS - 1), qpn);
    /* an active poster may be adding a completion: checked first */
    bool unseen = qp != NULL && atomic_load(&qp->s->busy);
    if (qp != NULL && !unseen) {
        /* completions are ordered: if the last one was polled, all were */
        uint64_t last = atomic_load(&qp->s->taken) & ~(uint64_t)RX_DONE;
        pthread_mutex_lock(&qp->rcq->lock);
        unseen = last && qp->reported != last;
        pthread_mutex_unlock(&qp->rcq->lock);
    }
    pthread_mutex_unlock(&d->qp_life);
    return unseen;
}

/* Handles the failure of the QP by a peer; raises `event` unless already raised. Under qp_life.
 * Service thread. */
static void failed(struct emu_dev *d, struct emu_qp *qp, int event)
{
    emu_sq_lock_first(qp);
    if (atomic_load(&qp->s->state) == IBV_QPS_ERR) {
        bool known = qp->qp.state == IBV_QPS_ERR;
        bool undelivered = atomic_exchange(&qp->s->why, 0) != 0;
        emu_qp_to_error(d, qp, event);
        if (known && undelivered)
            emu_async_qp(qp, (enum ibv_event_type)event);
    }
    pthread_mutex_unlock(&qp->sq_lock);
}

/* Raises COMM_EST after the first message since RTR. Under qp_life. */
static void established(struct emu_qp *qp)
{
    emu_sq_lock_first(qp);
    if (!qp->est_reported && atomic_load(&qp->s->comm_est)) {
        qp->est_reported = true;
        emu_async_qp(qp, IBV_EVENT_COMM_EST);
    }
    pthread_mutex_unlock(&qp->sq_lock);
}

/* Returns whether a peer may raise this event for a QP: events of other kinds of objects would
 * be misinterpreted. */
static bool may_raise(uint32_t event)
{
    return event == IBV_EVENT_QP_FATAL || event == IBV_EVENT_QP_REQ_ERR ||
           event == IBV_EVENT_QP_ACCESS_ERR;
}

static void qp_was_changed(struct emu_dev *d, const struct shm_msg *m)
{
    uint32_t qpn;

    memcpy(&qpn, m->payload, sizeof(qpn));
    pthread_mutex_lock(&d->qp_life);
    struct emu_qp *qp = lookup(d, m->index, qpn);
    if (qp != NULL && m->kind == INBOX_COMM_EST)
        established(qp);
    else if (qp != NULL && may_raise(m->arg))
        failed(d, qp, (int)m->arg);
    pthread_mutex_unlock(&d->qp_life);
}

/* Raises the limit event of an SRQ, unless already raised, or a new limit was set meanwhile:
 * messages may be late. Under d->lock. */
static void report_limit(struct emu_srq *srq)
{
    if (!srq->limit || atomic_load(&srq->rq.s->limit))
        return;
    srq->limit = 0;
    emu_async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
}

static void told(struct emu_dev *d, const struct shm_msg *m)
{
    switch (m->kind) {
    case INBOX_QP_ERROR:
    case INBOX_COMM_EST:
        qp_was_changed(d, m);
        break;
    case INBOX_SRQ_LIMIT:
        pthread_mutex_lock(&d->lock);
        if (m->index < EMU_MAX_SRQS && d->srq[m->index] != NULL)
            report_limit(d->srq[m->index]);
        pthread_mutex_unlock(&d->lock);
        break;
    case INBOX_CQ_OVERRUN:
        emu_cq_overrun(d, m->index);
        break;
    }
}

/* Checks all objects for events whose messages found the inbox full. */
static void untold(struct emu_dev *d)
{
    pthread_mutex_lock(&d->qp_life);
    for (uint32_t i = 0; i < EMU_MAX_QPS; i++) {
        pthread_mutex_lock(&d->lock);
        struct emu_qp *qp = d->qp[i];
        pthread_mutex_unlock(&d->lock);
        /* the number is set last, after creation */
        if (qp == NULL || !atomic_load(&shm_qp(d->seg, i)->user.qpn))
            continue;
        uint32_t event = atomic_load(&qp->s->why);
        if (event)
            failed(d, qp, may_raise(event) ? (int)event : IBV_EVENT_QP_FATAL);
        established(qp);
    }
    pthread_mutex_unlock(&d->qp_life);
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < EMU_MAX_SRQS; i++)
        if (d->srq[i] != NULL)
            report_limit(d->srq[i]);
    pthread_mutex_unlock(&d->lock);
    emu_cq_untold(d);
}

static void slot_died(struct emu_dev *d, uint32_t slot)
{
    emu_qp_peer_died(d, slot);
    emu_cq_peer_died(d, slot);
}

static void forked(struct emu_dev *d)
{
    emu_ctx_forked(d);
    emu_mcast_forked(d);
}

__attribute__((constructor)) static void loaded(void)
{
    static const struct emu_above row = {.told = told,
                                         .untold = untold,
                                         .slot_died = slot_died,
                                         .settle = emu_cq_settle,
                                         .forked = forked};

    emu_above_is(EMU_ABOVE_QUEUE, &row);
}
