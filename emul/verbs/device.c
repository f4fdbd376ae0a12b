/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The device: what the first call makes, opening it, and what can be asked about it.
 *
 * Listing devices needs nothing but names. Opening one (or making an rdma_cm channel) makes the
 * rest: a slot, the segment, the service thread. After fork the child starts afresh at its next
 * call; what it inherited is turned into a private copy, so that it cannot disturb its parent.
 */
#include "emul/verbs/emu.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_mutex_t make_lock = PTHREAD_MUTEX_INITIALIZER;
static struct emu_dev *base; /* knobs and names */
static _Atomic(struct emu_dev *) device;
static struct emu_dev *inherited; /* the parent's, in a forked child: its objects point there */

static const char *const object_name[] = {
    "context", "pd", "mr",         "mw",    "channel",  "cq",
    "srq",     "qp", "ah", "cm_channel", "cm_id", "cm_event",
};

static void at_exit_report(void)
{
    struct emu_dev *d = base;
    char path[4096], prog[256] = "";

    if (!d || d->pid != getpid())
        return;
    emu_service_stop();
    FILE *f = fopen("/proc/self/comm", "r");
    if (f) {
        if (fgets(prog, sizeof(prog), f))
            prog[strcspn(prog, "\n")] = 0;
        fclose(f);
    }
    if (*d->knobs.counters) {
        snprintf(path, sizeof(path), "%s/emuverbs-%d.json", d->knobs.counters, d->pid);
        f = fopen(path, "w");
        if (f) {
            emu_counters_json(emu_counters, d->pid, prog, f);
            fclose(f);
        } else {
            fprintf(stderr, "emuverbs: cannot write %s: %s\n", path, strerror(errno));
        }
    }
    if (d->knobs.count_calls)
        fprintf(stderr, "emuverbs: %s %s: %llu calls\n", prog, d->knobs.role,
                (unsigned long long)atomic_load(&emu_counters->count[COUNT_sweep_calls]));
    if (d->knobs.census)
        for (unsigned i = 0; i < sizeof(object_name) / sizeof(object_name[0]); i++) {
            int64_t n = (int64_t)atomic_load(&emu_counters->count[COUNT_live_context + i]);
            if (n)
                fprintf(stderr, "emuverbs: %s %s: %lld %s alive at exit\n", prog, d->knobs.role,
                        (long long)n, object_name[i]);
        }
}

static void after_fork_child(void)
{
    struct emu_dev *d = atomic_load(&device);

    pthread_mutex_init(&make_lock, NULL);
    base = NULL;
    atomic_store(&device, NULL);
    if (d) {
        inherited = d;
        mmap(d->seg, d->seg->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, d->seg_fd,
             0);
        close(d->seg_fd);
        close(d->slot_sock);
        emu_mcast_forked(d);
        emu_service_forked();
        emu_cm_forked();
    }
}

__attribute__((constructor)) static void loaded(void)
{
    /* yama scope 1 forbids reaching a process that is no child of ours unless it agrees */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pthread_atfork(NULL, NULL, after_fork_child);
}

__attribute__((destructor)) static void unloaded(void)
{
    at_exit_report();
}

static void make_names(struct emu_dev *d)
{
    struct ibv_device *v = &d->ibdev;

    v->node_type = IBV_NODE_CA;
    v->transport_type = IBV_TRANSPORT_IB;
    snprintf(v->name, sizeof(v->name), "%s", *d->knobs.name ? d->knobs.name : "emu0");
    snprintf(v->dev_name, sizeof(v->dev_name), "uverbs0");
    snprintf(v->dev_path, sizeof(v->dev_path), "/sys/class/infiniband_verbs/uverbs0");
    snprintf(v->ibdev_path, sizeof(v->ibdev_path), "/sys/class/infiniband/%s", v->name);
}

/* An identity for the machine: every process shows the same port. */
static __be64 machine_guid(void)
{
    char id[64] = "";
    uint64_t h = 0xcbf29ce484222325;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (f) {
        if (!fgets(id, sizeof(id), f))
            id[0] = 0;
        fclose(f);
    }
    for (char *p = id; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3;
    return htobe64((h & ~UINT64_C(0xff00000000000000)) | UINT64_C(0x0200000000000000));
}

/* Under make_lock. */
static struct emu_dev *base_locked(void)
{
    if (!base) {
        struct emu_dev *d = calloc(1, sizeof(*d));
        if (!d)
            return NULL;
        d->pid = getpid();
        pthread_mutex_init(&d->lock, NULL);
        pthread_mutex_init(&d->qp_life, NULL);
        emu_knobs_load(&d->knobs);
        emu_fault_init(&d->knobs);
        make_names(d);
        d->guid = machine_guid();
        base = d;
    }
    return base;
}

struct emu_dev *emu_dev_base(void)
{
    pthread_mutex_lock(&make_lock);
    struct emu_dev *d = base_locked();
    pthread_mutex_unlock(&make_lock);
    return d;
}

struct emu_dev *emu_dev_peek(void)
{
    return atomic_load_explicit(&device, memory_order_acquire);
}

struct emu_dev *emu_dev(void)
{
    struct emu_dev *d = emu_dev_peek();
    int err = 0;

    if (d)
        return d;
    pthread_mutex_lock(&make_lock);
    d = base_locked();
    if (!d)
        err = -ENOMEM;
    else if (!d->knobs.devices)
        err = -ENODEV;
    else if (!atomic_load(&device)) {
        err = emu_slot_claim(d);
        if (!err) {
            err = emu_segment_create(d);
            if (err)
                close(d->slot_sock);
        }
        if (!err)
            err = emu_service_start(d);
        if (!err) {
            d->self.seg = d->seg;
            d->self.incarnation = d->seg->incarnation;
            d->self.slot = d->slot;
            d->self.pid = d->pid;
            d->self.self = true;
            d->self.refs = 1;
            d->next_pd = 1;
            d->seg->magic = EMU_SHM_MAGIC;
            atomic_store(&d->seg->ready, 1);
            atomic_store(&device, d);
        } else {
            fprintf(stderr, "emuverbs: cannot set up the device: %s\n", strerror(-err));
        }
    }
    pthread_mutex_unlock(&make_lock);
    if (err) {
        errno = -err;
        return NULL;
    }
    return d;
}

EMU_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
    struct emu_dev *d = emu_dev_base();
    bool none = !d || !d->knobs.devices;

    if (num_devices)
        *num_devices = 0;
    if (emu_call(CALL_ibv_get_device_list) || !d) {
        errno = ENOMEM;
        return NULL;
    }
    struct ibv_device **list = calloc(2, sizeof(*list));
    if (!list)
        return NULL;
    if (!none) {
        list[0] = &d->ibdev;
        if (num_devices)
            *num_devices = 1;
    }
    return list;
}

EMU_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

EMU_EXPORT const char *ibv_get_device_name(struct ibv_device *device_)
{
    return device_->name;
}

EMU_EXPORT int ibv_get_device_index(struct ibv_device *device_)
{
    (void)device_;
    return 0;
}

EMU_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device_)
{
    (void)device_;
    return emu_dev_base()->guid;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t len)
{
    struct emu_dev *d = emu_dev_base();
    struct ibv_port_attr a = {0};
    (void)context;

    if (emu_call(CALL_ibv_query_port))
        return EIO;
    if (port != 1)
        return EINVAL;
    a.state = IBV_PORT_ACTIVE;
    a.max_mtu = a.active_mtu = (enum ibv_mtu)(__builtin_ctzll(d->knobs.mtu) - 7);
    a.gid_tbl_len = 1;
    a.port_cap_flags = IBV_PORT_CM_SUP;
    a.max_msg_sz = 1u << 30;
    a.pkey_tbl_len = 1;
    a.lid = d->knobs.ethernet ? 0 : 1;
    a.sm_lid = a.lid;
    a.max_vl_num = 1;
    a.subnet_timeout = 18;
    a.active_width = 2;  /* 4x */
    a.active_speed = 32; /* EDR */
    a.phys_state = 5;    /* link up */
    a.link_layer = d->knobs.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
    return 0;
}

#undef ibv_query_port
EMU_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                              struct _compat_ibv_port_attr *attr)
{
    /* the old form of the structure ends before link_layer's successors */
    return query_port(context, port, (struct ibv_port_attr *)(void *)attr,
                      offsetof(struct ibv_port_attr, link_layer));
}

EMU_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
    const struct emu_knobs *k = &emu_dev_base()->knobs;
    (void)context;

    if (emu_call(CALL_ibv_query_device))
        return EIO;
    memset(a, 0, sizeof(*a));
    snprintf(a->fw_ver, sizeof(a->fw_ver), "%u.0", EMU_SHM_VERSION);
    a->node_guid = a->sys_image_guid = emu_dev_base()->guid;
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
        a->device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                               IBV_DEVICE_MEM_MGT_EXTENSIONS;
    a->max_mw = (int)k->max_mw;
    a->max_sge = (int)k->max_sge;
    a->max_sge_rd = (int)k->max_sge;
    a->max_cq = EMU_MAX_CQS;
    a->max_cqe = (int)k->max_cqe;
    a->max_mr = (int)k->max_mr;
    a->max_pd = 1 << 20;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = (int)k->max_rd_atom;
    a->max_res_rd_atom = (int)(k->max_rd_atom * k->max_qp);
    a->atomic_cap = k->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
    a->max_srq = k->srq ? (int)EMU_MAX_SRQS : 0;
    a->max_srq_wr = k->srq ? (int)k->max_qp_wr : 0;
    a->max_srq_sge = k->srq ? (int)k->max_sge : 0;
    a->max_pkeys = 1;
    a->local_ca_ack_delay = 15;
    a->phys_port_cnt = 1;
    return 0;
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
    a.phys_port_cnt_ex = 1;
    a.completion_timestamp_mask = UINT64_MAX;
    a.hca_core_clock = 1000000; /* kHz: the clock counts nanoseconds */
    memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
    return 0;
}

void emu_gid(struct emu_dev *d, union ibv_gid *gid)
{
    memset(gid, 0, sizeof(*gid));
    if (d->knobs.ethernet) {
        gid->raw[10] = gid->raw[11] = 0xff; /* RoCE v2, of 127.0.0.1 */
        gid->raw[12] = 127;
        gid->raw[15] = 1;
    } else {
        gid->global.subnet_prefix = htobe64(UINT64_C(0xfe80000000000000));
        gid->global.interface_id = d->guid;
    }
}

EMU_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                             union ibv_gid *gid)
{
    (void)context;
    if (emu_call(CALL_ibv_query_gid) || port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    emu_gid(emu_dev_base(), gid);
    return 0;
}

EMU_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                                 struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    struct ibv_gid_entry e = {0};
    struct emu_dev *d = emu_dev_base();
    (void)context;

    if (emu_call(CALL_ibv_query_gid) || flags)
        return EINVAL;
    if (port != 1 || index != 0)
        return ENODATA;
    emu_gid(d, &e.gid);
    e.port_num = port;
    e.gid_type = d->knobs.ethernet ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
    memcpy(entry, &e, size < sizeof(e) ? size : sizeof(e));
    return 0;
}

EMU_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
                                        struct ibv_gid_entry *entries, size_t max,
                                        uint32_t flags, size_t size)
{
    if (max == 0)
        return -EINVAL;
    int err = _ibv_query_gid_ex(context, 1, 0, entries, flags, size);
    return err ? -err : 1;
}

/* Not in any header; old programs take it from libibverbs's private version. */
EMU_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
                                  int *type);
EMU_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
                                  int *type)
{
    (void)context;
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *type = emu_dev_base()->knobs.ethernet ? 1 : 0; /* RoCE v2; IB or RoCE v1 */
    return 0;
}

EMU_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
                              __be16 *pkey)
{
    (void)context;
    if (emu_call(CALL_ibv_query_pkey) || port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(0xffff);
    return 0;
}

EMU_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    if (port != 1 || be16toh(pkey) != 0xffff) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

static struct emu_ctx *ctx_new(struct emu_dev *d)
{
    struct emu_ctx *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    struct verbs_context *v = &c->v;
    v->sz = sizeof(*v);
    v->query_port = query_port;
    v->query_device_ex = query_device_ex;
    v->create_qp_ex = emu_create_qp_ex;
    v->create_cq_ex = emu_create_cq_ex;
    v->query_rt_values = emu_query_rt_values;
    struct ibv_context *i = &v->context;
    i->abi_compat = __VERBS_ABI_IS_EXTENDED;
    i->device = &d->ibdev;
    i->num_comp_vectors = 1;
    i->cmd_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    i->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (i->async_fd < 0 || i->cmd_fd < 0) {
        int err = errno;
        if (i->async_fd >= 0)
            close(i->async_fd);
        if (i->cmd_fd >= 0)
            close(i->cmd_fd);
        free(c);
        errno = err;
        return NULL;
    }
    pthread_mutex_init(&i->mutex, NULL);
    i->ops.poll_cq = emu_poll_cq;
    i->ops.req_notify_cq = emu_req_notify_cq;
    i->ops.post_send = emu_post_send;
    i->ops.alloc_mw = emu_alloc_mw;
    i->ops.bind_mw = emu_bind_mw;
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
    (void)device_;
    if (emu_call(CALL_ibv_open_device)) {
        errno = ENOMEM;
        return NULL;
    }
    struct emu_dev *d = emu_dev();
    struct emu_ctx *c = d ? ctx_new(d) : NULL;
    return c ? &c->v.context : NULL;
}

EMU_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct emu_ctx *c = emu_ctx_of(context);
    struct emu_dev *d = emu_dev_peek();

    if (emu_call(CALL_ibv_close_device))
        return EIO;
    if (!d)
        return EIO;
    pthread_mutex_lock(&d->lock);
    for (struct emu_ctx **pp = &d->contexts; *pp; pp = &(*pp)->next)
        if (*pp == c) {
            *pp = c->next;
            break;
        }
    pthread_mutex_unlock(&d->lock);
    emu_async_purge(c, NULL);
    close(context->async_fd);
    close(context->cmd_fd);
    pthread_mutex_destroy(&context->mutex);
    pthread_mutex_destroy(&c->async_lock);
    free(c);
    emu_uncount(COUNT_live_context, 1);
    return 0;
}

struct emu_ctx *emu_ctx_get(struct emu_dev *d)
{
    pthread_mutex_lock(&d->lock);
    struct emu_ctx *c = d->cm_ctx;
    pthread_mutex_unlock(&d->lock);
    if (c)
        return c;
    c = ctx_new(d);
    if (!c)
        return NULL;
    emu_uncount(COUNT_live_context, 1); /* rdma_cm keeps its context open for good */
    pthread_mutex_lock(&d->lock);
    if (!d->cm_ctx)
        d->cm_ctx = c;
    c = d->cm_ctx;
    pthread_mutex_unlock(&d->lock);
    return c;
}

/* In-process readers find these by dlsym. */
EMU_EXPORT int64_t emuverbs_counter(const char *name);
EMU_EXPORT int64_t emuverbs_counter(const char *name)
{
    return emu_counters_find(emu_counters, name);
}
