/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Connect, accept, reject, disconnect. */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <string.h>

static int fail(int err)
{
    errno = err;
    return -1;
}

static uint8_t device_depth(void)
{
    return (uint8_t)emu_dev_base()->knobs.max_rd_atom;
}

static uint8_t depth_of(uint8_t asked, uint8_t max)
{
    return asked == 0xff || asked > max ? max : asked;
}

#define RETRIES_MAX 7 /* limit of a QP's retry counter; for RNR: unlimited */

static uint8_t retries_of(uint8_t count)
{
    return count < RETRIES_MAX ? count : RETRIES_MAX;
}

static void fill(struct cm_msg *m, struct cm_id *id, const struct rdma_conn_param *p)
{
    m->qkey = RDMA_UDP_QKEY;
    m->qpn = id->id.qp != NULL ? id->id.qp->qp_num : p != NULL ? p->qp_num : 0;
    id->local_qpn = m->qpn;
    m->responder_resources = id->responder_resources;
    m->initiator_depth = id->initiator_depth;
    m->retry_count = m->rnr_retry_count = RETRIES_MAX;
    if (p != NULL) {
        m->flow_control = p->flow_control;
        m->retry_count = retries_of(p->retry_count);
        m->rnr_retry_count = retries_of(p->rnr_retry_count);
        m->srq = id->id.qp != NULL ? id->id.qp->srq != NULL : p->srq;
        m->private_len = p->private_data_len;
        if (p->private_data_len)
            memcpy(m->private_data, p->private_data, p->private_data_len);
    }
}

/* Checks parameters of connect and accept: required unless the id has its own QP; read
 * depths are limited by the device. */
static bool is_bad_param(const struct rdma_cm_id *id, const struct rdma_conn_param *p,
                         size_t max_private)
{
    uint8_t max = device_depth();

    if (p == NULL)
        return id->qp == NULL;
    return p->private_data_len > max_private ||
           (p->private_data_len && p->private_data == NULL) ||
           (p->responder_resources != 0xff && p->responder_resources > max) ||
           (p->initiator_depth != 0xff && p->initiator_depth > max);
}

EMU_EXPORT int rdma_connect(struct rdma_cm_id *ibid, struct rdma_conn_param *p)
{
    struct cm_id *id = (struct cm_id *)ibid;
    struct emu_dev *d = emu_dev_peek();
    uint8_t max = device_depth();

    if (emu_call(CALL_rdma_connect))
        return fail(ENOMEM);
    if (!cm_is_ours(id) || d == NULL)
        return fail(EIO);
    if (is_bad_param(ibid, p, cm_is_ud(id) ? CM_SIDR_REQ_PRIVATE : CM_REQ_PRIVATE))
        return fail(EINVAL);
    pthread_mutex_lock(&cm.lock);
    if (id->state != CM_ROUTE_RESOLVED) {
        pthread_mutex_unlock(&cm.lock);
        return fail(EINVAL);
    }
    id->responder_resources = depth_of(p != NULL ? p->responder_resources : 0xff, max);
    id->initiator_depth = depth_of(p != NULL ? p->initiator_depth : 0xff, max);
    id->retry_count = p != NULL ? retries_of(p->retry_count) : RETRIES_MAX;
    memset(&id->req, 0, sizeof(id->req));
    fill(&id->req, id, p);
    id->req.retry_count = id->retry_count;
    id->req.ps = (uint16_t)ibid->ps;
    id->req.sl = id->sl;
    id->req.traffic_class = id->traffic_class;
    cm_addr_copy(&id->req.src, &ibid->route.addr.src_addr);
    cm_addr_copy(&id->req.dst, &ibid->route.addr.dst_addr);
    id->state = CM_REQ_SENT;
    id->req_delivered = false;
    id->late = CM_PUNCTUAL;
    id->refuse_at = emu_now() + d->knobs.listen_wait_ms * (EMU_NSEC / 1000);
    id->refuse_by = id->refuse_at + CM_LATE_MAX;
    cm_set_deadline(id, d->knobs.cm_timeout_ms);
    cm_try_request(id);
    pthread_mutex_unlock(&cm.lock);
    return cm_complete(id);
}

EMU_EXPORT int rdma_establish(struct rdma_cm_id *ibid)
{
    if (emu_call(CALL_rdma_establish))
        return fail(ENOMEM);
    if (!cm_is_ours((struct cm_id *)ibid))
        return fail(EIO);
    if (ibid->qp != NULL)
        return fail(EINVAL);
    pthread_mutex_lock(&cm.lock);
    int ret = cm_ready_to_use((struct cm_id *)ibid);
    pthread_mutex_unlock(&cm.lock);
    return ret;
}

EMU_EXPORT int rdma_accept(struct rdma_cm_id *ibid, struct rdma_conn_param *p)
{
    struct cm_id *id = (struct cm_id *)ibid;
    struct emu_dev *d = emu_dev_peek();
    uint8_t max = device_depth();
    struct cm_msg m = {0};

    if (emu_call(CALL_rdma_accept))
        return fail(ENOMEM);
    if (!cm_is_ours(id) || d == NULL)
        return fail(EIO);
    if (is_bad_param(ibid, p, cm_is_ud(id) ? CM_SIDR_REP_PRIVATE : CM_REP_PRIVATE))
        return fail(EINVAL);
    pthread_mutex_lock(&cm.lock);
    if (id->state == CM_REP_RCVD) { /* active side without a QP: the old form of establish */
        int ret = cm_ready_to_use(id);
        pthread_mutex_unlock(&cm.lock);
        return ret;
    }
    if (id->state != CM_REQ_RCVD) {
        pthread_mutex_unlock(&cm.lock);
        return fail(EINVAL);
    }
    if (cm_is_ud(id)) { /* a UD QP needs nothing from the peer */
        fill(&m, id, p);
        cm_send_sidr(id, &m, 0);
        id->state = CM_ESTABLISHED;
        pthread_mutex_unlock(&cm.lock);
        if (id->sync && ibid->event != NULL) { /* the request's event; no further events */
            rdma_ack_cm_event(ibid->event);
            ibid->event = NULL;
        }
        return 0;
    }
    id->responder_resources =
        depth_of(p != NULL && p->responder_resources != 0xff ? p->responder_resources
                                                             : id->responder_resources,
                 max);
    id->initiator_depth = depth_of(
        p != NULL && p->initiator_depth != 0xff ? p->initiator_depth : id->initiator_depth,
        max);
    pthread_mutex_unlock(&cm.lock);

    if (ibid->qp != NULL &&
        (cm_qp_rtr(id, id->responder_resources) || cm_qp_rts(id, id->initiator_depth)))
        return -1;
    pthread_mutex_lock(&cm.lock);
    int ret = 0;
    if (id->state == CM_REQ_RCVD) {
        fill(&m, id, p);
        cm_send(id, &m, CM_REP);
        id->state = CM_REP_SENT;
        cm_set_deadline(id, d->knobs.cm_timeout_ms);
    } else {
        ret = fail(EINVAL); /* the peer withdrew meanwhile */
    }
    pthread_mutex_unlock(&cm.lock);
    if (ret) {
        cm_qp_err(id);
        errno = EINVAL;
        return ret;
    }
    return cm_complete(id);
}

EMU_EXPORT int rdma_reject(struct rdma_cm_id *ibid, const void *data, uint8_t len)
{
    struct cm_id *id = (struct cm_id *)ibid;
    int ret = 0;

    if (emu_call(CALL_rdma_reject))
        return fail(ENOMEM);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (len > CM_REJ_PRIVATE || (len && data == NULL))
        return fail(EINVAL);
    pthread_mutex_lock(&cm.lock);
    if (id->state == CM_REQ_RCVD || id->state == CM_REP_RCVD) {
        cm_send_rej(id, CM_REJ_CONSUMER, data, len);
        id->state = CM_CLOSED;
    } else {
        ret = fail(EINVAL);
    }
    pthread_mutex_unlock(&cm.lock);
    return ret;
}

EMU_EXPORT int rdma_reject_ece(struct rdma_cm_id *ibid, const void *data, uint8_t len)
{
    return rdma_reject(ibid, data, len);
}

EMU_EXPORT int rdma_disconnect(struct rdma_cm_id *ibid)
{
    struct cm_id *id = (struct cm_id *)ibid;
    struct emu_dev *d = emu_dev_peek();
    struct cm_msg m = {0};
    int ret = 0;

    if (emu_call(CALL_rdma_disconnect))
        return fail(EIO);
    if (!cm_is_ours(id) || d == NULL)
        return fail(EIO);
    cm_qp_err(id);
    if (cm_is_ud(id))
        return 0; /* no connection */
    pthread_mutex_lock(&cm.lock);
    switch (id->state) {
    case CM_ESTABLISHED:
    case CM_REP_SENT:
        cm_send(id, &m, CM_DREQ);
        id->state = CM_DREQ_SENT;
        cm_set_deadline(id, d->knobs.cm_timeout_ms);
        break;
    case CM_DREQ_RCVD:
        cm_send(id, &m, CM_DREP);
        cm_enter_timewait(id);
        break;
    case CM_REQ_SENT:
    case CM_REQ_RCVD:
    case CM_REP_RCVD:
    case CM_DREQ_SENT:
    case CM_TIMEWAIT:
    case CM_CLOSED:
        break; /* no message due, or not yet */
    case CM_IDLE:
    case CM_BOUND:
    case CM_ADDR_RESOLVED:
    case CM_ROUTE_RESOLVED:
    case CM_LISTEN:
        ret = fail(EINVAL);
        break;
    }
    bool wait = !ret && id->state == CM_DREQ_SENT;
    pthread_mutex_unlock(&cm.lock);
    return wait ? cm_complete(id) : ret;
}

EMU_EXPORT int rdma_notify(struct rdma_cm_id *ibid, enum ibv_event_type event)
{
    struct cm_id *id = (struct cm_id *)ibid;

    if (!cm_is_ours(id))
        return fail(EIO);
    if (event != IBV_EVENT_COMM_EST)
        return fail(EINVAL);
    pthread_mutex_lock(&cm.lock);
    if (id->state == CM_REP_SENT) {
        id->state = CM_ESTABLISHED;
        cm_set_deadline(id, 0);
        cm_event_post(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
    }
    pthread_mutex_unlock(&cm.lock);
    return 0;
}

EMU_EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id, (void)ece;
    return fail(EOPNOTSUPP);
}

EMU_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id;
    memset(ece, 0, sizeof(*ece));
    return 0;
}
