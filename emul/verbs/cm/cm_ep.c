/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Convenience functions of librdmacm: QPs and SRQs of an id, rdma_getaddrinfo, endpoints. */
#include "emul/verbs/cm/cm.h"

#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

static int fail(int err)
{
    errno = err;
    return -1;
}

static void destroy_cqs(struct rdma_cm_id *id)
{
    if (id->recv_cq != NULL)
        ibv_destroy_cq(id->recv_cq);
    if (id->recv_cq_channel != NULL)
        ibv_destroy_comp_channel(id->recv_cq_channel);
    if (id->send_cq != NULL && id->send_cq != id->recv_cq)
        ibv_destroy_cq(id->send_cq);
    if (id->send_cq_channel != NULL && id->send_cq_channel != id->recv_cq_channel)
        ibv_destroy_comp_channel(id->send_cq_channel);
    id->recv_cq = id->send_cq = NULL;
    id->recv_cq_channel = id->send_cq_channel = NULL;
}

static int create_cqs(struct rdma_cm_id *id, uint32_t send, uint32_t recv)
{
    if (send) {
        id->send_cq_channel = ibv_create_comp_channel(id->verbs);
        if (id->send_cq_channel != NULL)
            id->send_cq = ibv_create_cq(id->verbs, (int)send, id, id->send_cq_channel, 0);
        if (id->send_cq == NULL)
            return -1;
    }
    if (recv) {
        id->recv_cq_channel = ibv_create_comp_channel(id->verbs);
        if (id->recv_cq_channel != NULL)
            id->recv_cq = ibv_create_cq(id->verbs, (int)recv, id, id->recv_cq_channel, 0);
        if (id->recv_cq == NULL)
            return -1;
    }
    return 0;
}

EMU_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *ibid, struct ibv_qp_init_attr_ex *attr)
{
    struct cm_id *id = (struct cm_id *)ibid;
    struct ibv_qp *qp;

    if (emu_call(CALL_rdma_create_qp))
        return fail(ENOMEM);
    if (!cm_is_ours(id))
        return fail(EIO);
    if (ibid->qp != NULL || ibid->verbs == NULL)
        return fail(EINVAL);
    if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
        if (ibid->pd == NULL)
            ibid->pd = cm_default_pd(ibid->verbs);
        if (ibid->pd == NULL)
            return -1;
        attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr->pd = ibid->pd;
    } else if (attr->pd == NULL || attr->pd->context != ibid->verbs) {
        return fail(EINVAL);
    }
    id->own_cqs = attr->send_cq == NULL || attr->recv_cq == NULL;
    if (id->own_cqs && create_cqs(ibid,
                                  attr->send_cq != NULL   ? 0
                                  : attr->cap.max_send_wr ? attr->cap.max_send_wr
                                                          : 1,
                                  attr->recv_cq != NULL   ? 0
                                  : attr->cap.max_recv_wr ? attr->cap.max_recv_wr
                                                          : 1))
        goto no_qp;
    if (attr->send_cq == NULL)
        attr->send_cq = ibid->send_cq;
    if (attr->recv_cq == NULL)
        attr->recv_cq = ibid->recv_cq;
    if (ibid->srq != NULL && attr->srq == NULL)
        attr->srq = ibid->srq;
    qp = ibv_create_qp_ex(ibid->verbs, attr);
    if (qp == NULL)
        goto no_qp;
    ibid->qp = qp;
    ibid->pd = qp->pd;
    if ((cm_is_ud(id) ? cm_qp_datagrams(id) : cm_qp_init(id)) == 0)
        return 0;
    int err = errno;
    ibv_destroy_qp(qp);
    ibid->qp = NULL;
    errno = err;
no_qp:
    err = errno;
    if (id->own_cqs)
        destroy_cqs(ibid);
    errno = err;
    return -1;
}

EMU_EXPORT int rdma_create_qp(struct rdma_cm_id *ibid, struct ibv_pd *pd,
                              struct ibv_qp_init_attr *init)
{
    struct ibv_qp_init_attr_ex a = {0};

    /* exclude padding, where the longer structure has a member */
    memcpy(&a, init, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    if (pd != NULL) {
        a.comp_mask = IBV_QP_INIT_ATTR_PD;
        a.pd = pd;
    }
    int ret = rdma_create_qp_ex(ibid, &a);
    if (!ret)
        memcpy(init, &a, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    return ret;
}

EMU_EXPORT void rdma_destroy_qp(struct rdma_cm_id *ibid)
{
    struct cm_id *id = (struct cm_id *)ibid;

    emu_call(CALL_rdma_destroy_qp);
    if (ibid->qp == NULL || !cm_is_ours(id))
        return;
    ibv_destroy_qp(ibid->qp);
    ibid->qp = NULL;
    if (id->own_cqs)
        destroy_cqs(ibid);
}

EMU_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
                               struct ibv_srq_init_attr *attr)
{
    if (emu_call(CALL_rdma_create_srq))
        return fail(ENOMEM);
    if (id->verbs == NULL)
        return fail(EINVAL);
    if (pd == NULL)
        pd = id->pd != NULL ? id->pd : cm_default_pd(id->verbs);
    if (pd == NULL)
        return -1;
    id->srq = ibv_create_srq(pd, attr);
    if (id->srq == NULL)
        return -1;
    if (id->pd == NULL)
        id->pd = pd;
    return 0;
}

EMU_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)
        return fail(EOPNOTSUPP);
    return rdma_create_srq(id, attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL,
                           (struct ibv_srq_init_attr *)attr);
}

EMU_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
    if (id->srq != NULL)
        ibv_destroy_srq(id->srq);
    id->srq = NULL;
}

static bool copy_addr(struct sockaddr **to, socklen_t *to_len, const struct sockaddr *from,
                      socklen_t len)
{
    if (from == NULL || !len)
        return true;
    *to = malloc(len);
    if (*to == NULL)
        return false;
    memcpy(*to, from, len);
    *to_len = len;
    return true;
}

/* Builds one result from a resolved name; `ai` is NULL if only the hints contain addresses. */
static struct rdma_addrinfo *make_info(const struct addrinfo *ai,
                                       const struct rdma_addrinfo *hints)
{
    static const struct rdma_addrinfo none;
    struct rdma_addrinfo *r = calloc(1, sizeof(*r));
    bool ok;

    if (r == NULL)
        return NULL;
    if (hints == NULL)
        hints = &none;
    r->ai_flags = hints->ai_flags;
    r->ai_family = ai != NULL ? ai->ai_family : hints->ai_family;
    r->ai_qp_type = hints->ai_qp_type                     ? hints->ai_qp_type
                    : hints->ai_port_space == RDMA_PS_UDP ? IBV_QPT_UD
                                                          : IBV_QPT_RC;
    r->ai_port_space = hints->ai_port_space          ? hints->ai_port_space
                       : r->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP
                                                     : RDMA_PS_TCP;
    if (ai != NULL && (hints->ai_flags & RAI_PASSIVE))
        ok = copy_addr(&r->ai_src_addr, &r->ai_src_len, ai->ai_addr, ai->ai_addrlen);
    else if (ai != NULL)
        ok = copy_addr(&r->ai_dst_addr, &r->ai_dst_len, ai->ai_addr, ai->ai_addrlen);
    else
        ok = copy_addr(&r->ai_dst_addr, &r->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
    if (ok && r->ai_src_addr == NULL)
        ok = copy_addr(&r->ai_src_addr, &r->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
    if (!ok) {
        rdma_freeaddrinfo(r);
        return NULL;
    }
    if (!r->ai_family && (r->ai_dst_addr != NULL || r->ai_src_addr != NULL))
        r->ai_family = (r->ai_dst_addr != NULL ? r->ai_dst_addr : r->ai_src_addr)->sa_family;
    return r;
}

EMU_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
                                const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
    struct addrinfo h = {.ai_socktype = SOCK_STREAM}, *list;

    if (emu_call(CALL_rdma_getaddrinfo))
        return fail(ENOMEM);
    if (node == NULL && service == NULL) {
        if (hints == NULL)
            return fail(EINVAL);
        *res = make_info(NULL, hints);
        return *res != NULL ? 0 : fail(ENOMEM);
    }
    if (hints != NULL) {
        if (hints->ai_flags & RAI_PASSIVE)
            h.ai_flags |= AI_PASSIVE;
        if (hints->ai_flags & RAI_NUMERICHOST)
            h.ai_flags |= AI_NUMERICHOST;
        if (hints->ai_flags & RAI_FAMILY)
            h.ai_family = hints->ai_family;
    }
    int err = getaddrinfo(node, service, &h, &list);
    if (err) {
        errno = err == EAI_MEMORY ? ENOMEM : err == EAI_SYSTEM ? errno : ENODATA;
        return err;
    }
    *res = NULL;
    struct rdma_addrinfo **tail = res;
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        *tail = make_info(ai, hints);
        if (*tail == NULL)
            break;
        tail = &(*tail)->ai_next;
    }
    freeaddrinfo(list);
    return *res != NULL ? 0 : fail(ENOMEM);
}

EMU_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
    while (res != NULL) {
        struct rdma_addrinfo *next = res->ai_next;
        free(res->ai_src_addr);
        free(res->ai_dst_addr);
        free(res->ai_src_canonname);
        free(res->ai_dst_canonname);
        free(res->ai_route);
        free(res->ai_connect);
        free(res);
        res = next;
    }
}

EMU_EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res,
                              struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct rdma_cm_id *ibid;

    if (emu_call(CALL_rdma_create_ep))
        return fail(ENOMEM);
    if (rdma_create_id(NULL, &ibid, NULL, (enum rdma_port_space)res->ai_port_space))
        return -1;
    struct cm_id *id = (struct cm_id *)ibid;
    int ret;
    if (res->ai_flags & RAI_PASSIVE) {
        ret = rdma_bind_addr(ibid, res->ai_src_addr);
        if (!ret && init != NULL) {
            id->ep_attr = *init;
            id->ep_attr.qp_type = (enum ibv_qp_type)res->ai_qp_type;
            id->has_ep_attr = true;
        }
        ibid->pd = pd;
    } else {
        ret = rdma_resolve_addr(ibid, res->ai_src_addr, res->ai_dst_addr, 2000);
        if (!ret)
            ret = rdma_resolve_route(ibid, 2000);
        if (!ret && init != NULL) {
            init->qp_type = (enum ibv_qp_type)res->ai_qp_type;
            ret = rdma_create_qp(ibid, pd, init);
        }
    }
    if (ret) {
        int err = errno;
        rdma_destroy_ep(ibid);
        errno = err;
        return -1;
    }
    *out = ibid;
    return 0;
}

EMU_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
    if (id->qp != NULL)
        rdma_destroy_qp(id);
    if (id->srq != NULL)
        rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

EMU_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
    struct cm_id *l = (struct cm_id *)listen;
    struct rdma_cm_event *e;
    int err = 0;

    if (!l->sync)
        return fail(EINVAL);
    if (listen->event != NULL) {
        rdma_ack_cm_event(listen->event);
        listen->event = NULL;
    }
    if (rdma_get_cm_event(listen->channel, &e))
        return -1;
    if (e->status || e->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
        err = e->status < 0 ? -e->status : EINVAL;
    } else if (l->has_ep_attr) {
        struct ibv_qp_init_attr attr = l->ep_attr;
        if (rdma_create_qp(e->id, listen->pd, &attr))
            err = errno;
    }
    if (err) {
        if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            rdma_reject(e->id, NULL, 0);
            rdma_destroy_id(e->id);
        }
        listen->event = e;
        return fail(err);
    }
    *out = e->id;
    (*out)->event = e;
    return 0;
}
