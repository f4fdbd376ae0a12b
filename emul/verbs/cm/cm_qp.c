/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The QP of an id: state transitions of connecting, and multicast groups. */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <string.h>

/* Ack time-out of connections, as from a subnet manager's path record: about 1 s. */
#define ACK_TIMEOUT 18

static int fail(int err)
{
    errno = err;
    return -1;
}

static bool connected(const struct cm_id *id)
{
    return id->state >= CM_REQ_SENT && id->state <= CM_TIMEWAIT;
}

/* Fills in the attributes of a transition as the kernel's CM does. Under cm.lock. */
static int qp_attr(struct cm_id *id, struct ibv_qp_attr *a, int *mask)
{
    struct emu_dev *d = emu_dev_peek();

    if (d == NULL)
        return EIO;
    if (cm_is_ud(id)) {
        *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        a->pkey_index = 0;
        a->port_num = EMU_PORT_OF(id->port);
        a->qkey = RDMA_UDP_QKEY;
        return 0;
    }
    switch (a->qp_state) {
    case IBV_QPS_INIT:
        *mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        a->pkey_index = 0;
        a->port_num = EMU_PORT_OF(id->port);
        a->qp_access_flags = connected(id) ? IBV_ACCESS_REMOTE_WRITE : 0;
        if (connected(id) && id->responder_resources)
            a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        return 0;
    case IBV_QPS_RTR:
        if (!connected(id))
            return EINVAL;
        *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        cm_path(d, id, &a->ah_attr);
        a->path_mtu = (enum ibv_mtu)(__builtin_ctzll(d->knobs.mtu) - 7);
        a->dest_qp_num = id->remote_qpn;
        a->rq_psn = id->remote_qpn & 0xffffff;
        a->max_dest_rd_atomic = id->responder_resources;
        a->min_rnr_timer = 0;
        return 0;
    case IBV_QPS_RTS:
        if (!connected(id))
            return EINVAL;
        *mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
        a->timeout = id->ack_timeout ? id->ack_timeout : ACK_TIMEOUT;
        a->retry_cnt = id->retry_count;
        a->rnr_retry = id->rnr_retry;
        a->sq_psn = id->id.qp != NULL ? id->id.qp->qp_num : 0;
        a->max_rd_atomic = id->initiator_depth;
        return 0;
    default:
        return EINVAL;
    }
}

EMU_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *ibid, struct ibv_qp_attr *attr, int *mask)
{
    if (emu_call(CALL_rdma_init_qp_attr))
        return fail(ENOMEM);
    if (!cm_is_ours((struct cm_id *)ibid))
        return fail(EIO);
    pthread_mutex_lock(&cm.lock);
    int err = qp_attr((struct cm_id *)ibid, attr, mask);
    pthread_mutex_unlock(&cm.lock);
    return err ? fail(err) : 0;
}

static int modify(struct cm_id *id, enum ibv_qp_state state, int depth)
{
    struct ibv_qp_attr a = {.qp_state = state};
    int mask = 0;

    pthread_mutex_lock(&cm.lock); /* the peer may withdraw meanwhile */
    int err = qp_attr(id, &a, &mask);
    pthread_mutex_unlock(&cm.lock);
    if (!err && state == IBV_QPS_RTR && depth >= 0)
        a.max_dest_rd_atomic = (uint8_t)depth;
    if (!err && state == IBV_QPS_RTS && depth >= 0)
        a.max_rd_atomic = (uint8_t)depth;
    if (!err)
        err = ibv_modify_qp(id->id.qp, &a, mask);
    return err ? fail(err) : 0;
}

int cm_qp_init(struct cm_id *id)
{
    return modify(id, IBV_QPS_INIT, -1);
}

int cm_qp_datagrams(struct cm_id *id)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};
    int err = cm_qp_init(id) ? errno : ibv_modify_qp(id->id.qp, &a, IBV_QP_STATE);

    a.qp_state = IBV_QPS_RTS;
    if (!err)
        err = ibv_modify_qp(id->id.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
    return err ? fail(err) : 0;
}

int cm_qp_rtr(struct cm_id *id, int responder_resources)
{
    /* INIT again: the access flags are known now */
    if (modify(id, IBV_QPS_INIT, -1))
        return -1;
    return modify(id, IBV_QPS_RTR, responder_resources);
}

int cm_qp_rts(struct cm_id *id, int initiator_depth)
{
    return modify(id, IBV_QPS_RTS, initiator_depth);
}

void cm_qp_err(struct cm_id *id)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

    if (id->id.qp != NULL)
        ibv_modify_qp(id->id.qp, &a, IBV_QP_STATE);
}

int cm_ready_to_use(struct cm_id *id)
{
    struct cm_msg m = {0};

    if (id->state != CM_REP_RCVD)
        return fail(EINVAL);
    cm_send(id, &m, CM_RTU);
    id->state = CM_ESTABLISHED;
    return 0;
}

int cm_process_response(struct cm_id *id)
{
    int ret = cm_qp_rtr(id, -1);

    if (!ret)
        ret = cm_qp_rts(id, -1);
    int err = errno;
    pthread_mutex_lock(&cm.lock);
    if (!ret) {
        ret = cm_ready_to_use(id);
        err = errno;
        if (ret && id->state == CM_DREQ_RCVD)
            ret = 0; /* established and already disconnected; the event follows */
    } else {
        cm_send_rej(id, CM_REJ_CONSUMER, NULL, 0);
        id->state = CM_CLOSED;
    }
    pthread_mutex_unlock(&cm.lock);
    if (ret)
        cm_qp_err(id);
    errno = err;
    return ret;
}

static uint16_t group_lid(void)
{
    return emu_dev_base()->knobs.ethernet ? 0 : CM_GROUP_LID;
}

int cm_group_attach(struct cm_id *id, struct cm_group *g)
{
    return id->id.qp != NULL && !g->send_only
               ? ibv_attach_mcast(id->id.qp, &g->gid, group_lid())
               : 0;
}

void cm_group_detach(struct cm_id *id, struct cm_group *g)
{
    if (id->id.qp != NULL && !g->send_only)
        ibv_detach_mcast(id->id.qp, &g->gid, group_lid());
}
