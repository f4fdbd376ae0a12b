/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Devices: opening and querying. */
#include "emul/verbs/device/device.h"
#include "emul/verbs/queue/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

EMU_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
    const struct emu_knobs *k = &emu_dev_base()->knobs;

    if (emu_call(CALL_ibv_query_device) || atomic_load(&emu_hca_of(context)->gone))
        return EIO;
    memset(a, 0, sizeof(*a));
    snprintf(a->fw_ver, sizeof(a->fw_ver), "%u.0", EMU_SHM_VERSION);
    a->node_guid = emu_guid(emu_dev_base(), emu_hca_of(context)->index, 1);
    a->sys_image_guid = emu_dev_base()->guid;
    a->max_mr_size = UINT64_C(1) << 40;
    a->page_size_cap = 0xfffffffffffff000;
    a->vendor_id = 0x02c0de;
    a->vendor_part_id = 1;
    a->hw_ver = 1;
    a->max_qp = (int)k->max_qp;
    a->max_qp_wr = (int)k->max_qp_wr;
    a->device_cap_flags =
        IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_CURR_QP_STATE_MOD;
    if (k->max_mw)
        a->device_cap_flags |= IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
    a->max_mw = (int)k->max_mw;
    a->max_sge = (int)k->max_sge;
    a->max_sge_rd = (int)k->max_sge;
    a->max_cq = (int)emu_cq_max(emu_dev_base());
    a->max_cqe = (int)k->max_cqe;
    a->max_mr = EMU_MAX_MRS - 1;
    a->max_pd = 1 << 20;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = (int)k->max_rd_atom;
    a->max_res_rd_atom = (int)(k->max_rd_atom * k->max_qp);
    a->atomic_cap = IBV_ATOMIC_HCA;
    a->max_srq = k->srq ? (int)EMU_MAX_SRQS : 0;
    a->max_srq_wr = k->srq ? (int)k->max_qp_wr : 0;
    a->max_srq_sge = k->srq ? (int)k->max_sge : 0;
    a->max_ah = 1 << 20;
    a->max_mcast_grp = (int)EMU_MAX_MCASTS;
    a->max_mcast_qp_attach = (int)EMU_MAX_MCASTS;
    a->max_total_mcast_qp_attach = (int)EMU_MAX_MCASTS;
    a->max_pkeys = 1;
    a->local_ca_ack_delay = 15;
    a->phys_port_cnt = (uint8_t)k->ports;
    return 0;
}

static void demand_caps(struct ibv_odp_caps *caps)
{
    const uint32_t messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;

    caps->general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    caps->per_transport_caps.rc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE |
                                           IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_SRQ_RECV |
                                           IBV_ODP_SUPPORT_ATOMIC;
    caps->per_transport_caps.uc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE;
    caps->per_transport_caps.ud_odp_caps = messages | IBV_ODP_SUPPORT_SRQ_RECV;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    struct ibv_device_attr_ex a;
    (void)input;

    memset(&a, 0, sizeof(a));
    int err = ibv_query_device(context, &a.orig_attr);
    if (err)
        return err;
    a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
    a.phys_port_cnt_ex = a.orig_attr.phys_port_cnt;
    if (emu_dev_base()->knobs.odp)
        demand_caps(&a.odp_caps);
    memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
    return 0;
}

static struct emu_ctx *ctx_new(struct emu_dev *d, struct emu_hca *h)
{
    struct emu_ctx *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    struct verbs_context *v = &c->v;
    v->sz = sizeof(*v);
    v->query_port = emu_query_port;
    v->query_device_ex = query_device_ex;
    v->create_qp_ex = emu_create_qp_ex;
    v->create_srq_ex = emu_create_srq_ex;
    struct ibv_context *i = &v->context;
    i->abi_compat = __VERBS_ABI_IS_EXTENDED;
    i->device = &h->ibdev;
    i->num_comp_vectors = 1;
    i->async_fd = emu_events_open(&i->cmd_fd, EFD_NONBLOCK);
    if (i->async_fd < 0) {
        free(c);
        return NULL;
    }
    pthread_mutex_init(&i->mutex, NULL);
    i->ops.poll_cq = emu_poll_cq;
    i->ops.req_notify_cq = emu_req_notify_cq;
    i->ops.post_send = emu_post_send;
    i->ops.alloc_mw = emu_alloc_mw;
    i->ops.dealloc_mw = emu_dealloc_mw;
    i->ops.post_recv = emu_post_recv;
    i->ops.post_srq_recv = emu_post_srq_recv;
    pthread_mutex_init(&c->async_lock, NULL);
    c->async_tail = &c->async_head;
    pthread_mutex_lock(&d->lock);
    c->next = d->contexts;
    d->contexts = c;
    pthread_mutex_unlock(&d->lock);
    emu_count(COUNT_live_context, 1);
    return c;
}

EMU_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device_)
{
    if (emu_call(CALL_ibv_open_device)) {
        errno = ENOMEM;
        return NULL;
    }
    struct emu_dev *d = emu_dev();
    struct emu_hca *h = (struct emu_hca *)device_;
    if (d != NULL && h->dev != d) /* a list made before a fork names devices of the parent */
        h = atomic_load(&d->hca[h->index]);
    if (d != NULL && atomic_load(&h->gone)) {
        errno = ENODEV;
        return NULL;
    }
    struct emu_ctx *c = d != NULL ? ctx_new(d, h) : NULL;
    return c != NULL ? &c->v.context : NULL;
}

EMU_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct emu_ctx *c = emu_ctx_of(context);
    struct emu_dev *d = emu_dev_for(context);

    if (emu_call(CALL_ibv_close_device) || d == NULL)
        return EIO;
    pthread_mutex_lock(&d->lock);
    for (struct emu_ctx **pp = &d->contexts; *pp; pp = &(*pp)->next)
        if (*pp == c) {
            *pp = c->next;
            break;
        }
    pthread_mutex_unlock(&d->lock);
    emu_async_purge(c, NULL);
    emu_events_close(context->async_fd, context->cmd_fd);
    pthread_mutex_destroy(&context->mutex);
    pthread_mutex_destroy(&c->async_lock);
    free(c);
    emu_uncount(COUNT_live_context, 1);
    return 0;
}

void emu_device_raise(struct emu_dev *d, const struct emu_hca *h, enum ibv_event_type type,
                      int port)
{
    struct ibv_async_event event = {.event_type = type, .element.port_num = port};

    pthread_mutex_lock(&d->lock);
    for (struct emu_ctx *c = d->contexts; c; c = c->next)
        if (emu_hca_of(&c->v.context) == h)
            emu_async_raise(c, &event);
    pthread_mutex_unlock(&d->lock);
}

void emu_device_fail(struct emu_dev *d, struct emu_hca *h)
{
    if (atomic_exchange(&h->failed, true))
        return;
    emu_qp_device_failed(d, h);
    emu_device_raise(d, h, IBV_EVENT_DEVICE_FATAL, 0);
}

struct emu_ctx *emu_ctx_get(struct emu_dev *d, struct emu_hca *h)
{
    if (atomic_load(&h->gone)) {
        errno = ENODEV;
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    struct emu_ctx *c = h->cm_ctx;
    pthread_mutex_unlock(&d->lock);
    if (c != NULL)
        return c;
    c = ctx_new(d, h);
    if (c == NULL)
        return NULL;
    emu_uncount(COUNT_live_context, 1); /* rdma_cm never closes its context */
    pthread_mutex_lock(&d->lock);
    if (h->cm_ctx == NULL)
        h->cm_ctx = c;
    c = h->cm_ctx;
    pthread_mutex_unlock(&d->lock);
    return c;
}
