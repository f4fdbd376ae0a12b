/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* State machine of QPs: tables of transitions with required and optional attributes, of which a
 * type has all or some. Any state may change to RESET or ERR. */
#include "emul/verbs/queue/queue.h"

#include <errno.h>

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
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0}, /* end of table */
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

/* Attributes of the table of connections that UC does not have. */
#define NOT_UC                                                                                 \
    (IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT |          \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

static bool allowed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
                    int mask)
{
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return !(mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE));
    const struct transition *t = type == IBV_QPT_UD ? datagrams : connected;
    int without = type == IBV_QPT_UC ? NOT_UC : 0;
    for (; t->to != IBV_QPS_RESET; t++)
        if (t->from == from && t->to == to) {
            int required = t->required & ~without;
            int all = required | (t->optional & ~without) | IBV_QP_STATE;
            return (mask & required) == required && !(mask & ~all);
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
        if (!emu_port_there(d, av->port_num) ||
            (av->is_global && av->grh.sgid_index >= emu_gids(d)) ||
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
    if (mask & IBV_QP_AV) {
        q->ah_attr = a->ah_attr;
        qp->s->gid_type = (uint8_t)emu_gid_type(emu_dev_base(), a->ah_attr.grh.sgid_index);
    }
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

/* Finds the process of the destination QP. A missing process is not an error: requests get no
 * answer. */
static void bind_peer(struct emu_dev *d, struct emu_qp *qp, struct emu_peer *peer)
{
    struct emu_peer *old = qp->peer;

    qp->peer = peer;
    qp->s->dest_qpn = qp->attr.dest_qp_num;
    qp->s->dest_inc = peer != NULL ? peer->incarnation : 0;
    emu_peer_put(d, old);
}

/* Changes the state, unless a peer fails the QP meanwhile. Under sq_lock. */
static bool go(struct emu_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
    uint32_t seen = from;

    if (from == to)
        return true;
    if (!atomic_compare_exchange_strong(&qp->s->state, &seen, to))
        return false;
    qp->qp.state = qp->attr.qp_state = to;
    return true;
}

EMU_EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
    struct emu_qp *qp = (struct emu_qp *)ibqp;
    struct emu_dev *d = emu_dev_for(ibqp->context);
    struct emu_peer *peer = NULL;

    if (emu_call(CALL_ibv_modify_qp))
        return ENOMEM;
    if (d == NULL)
        return EIO;
    enum ibv_qp_state now = (enum ibv_qp_state)atomic_load(&qp->s->state);
    enum ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : now;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    bool uses = to > IBV_QPS_RESET && to < IBV_QPS_ERR; /* needs a working device */
    if (uses && emu_has_failed(ibqp->context))
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
    bool pair = ibqp->qp_type != IBV_QPT_UD;
    if (to == IBV_QPS_RTR && pair && emu_reachable(d, &attr->ah_attr))
        peer = emu_peer_get(d, attr->dest_qp_num >> EMU_QP_BITS);
    pthread_mutex_lock(&qp->sq_lock);
    if (to != IBV_QPS_ERR && atomic_load(&qp->s->state) != now) { /* a peer failed it */
        pthread_mutex_unlock(&qp->sq_lock);
        emu_peer_put(d, peer);
        return EINVAL;
    }
    /* checked again under the lock: a device that fails later sees the new state */
    if (uses && emu_has_failed(ibqp->context)) {
        pthread_mutex_unlock(&qp->sq_lock);
        emu_peer_put(d, peer);
        return EIO;
    }
    if (to == IBV_QPS_ERR) {
        emu_qp_to_error(d, qp, -1);
    } else {
        apply(qp, attr, mask);
        if (to == IBV_QPS_RTR && pair)
            bind_peer(d, qp, peer);
        if (!go(qp, now, to)) {
            err = EINVAL;
        } else if (to == IBV_QPS_RTS) {
            emu_sq_progress(d, qp, 0);
        } else if (to == IBV_QPS_SQD && now != to) {
            qp->drain_asked = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && attr->en_sqd_async_notify;
            emu_sq_progress(d, qp, 0);
        }
    }
    pthread_mutex_unlock(&qp->sq_lock);
    return err;
}
