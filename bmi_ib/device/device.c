/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * device.c - selection and capabilities of a rail's device.
 *
 * Memory keys are valid in one PD, so a rail uses one device: the one that the option `device`
 * names, else the owner of the listening address, else the first with an active port.  A
 * connection routed over a device that is no rail is refused, and the log names both devices.
 * The log also states why other devices are not used.
 *
 * Contexts come from rdma_get_devices(), because an rdma_cm QP must use the library's context.
 * Queue sizes are tested with a trial QP and lowered until the device grants them.
 *
 * Fork: a child cannot use its parent's engine, nor open one after the parent opened one:
 * librdmacm keeps the parent's contexts, also after the engine is closed.  Their descriptors,
 * asynchronous events and doorbells belong to the parent: some kernels reject the child's
 * commands, others execute them.  So a list with a context of the parent is refused here; the
 * software HCA gives a child contexts of its own.  A daemon forks before it opens an engine, or
 * calls exec.  The parent's memory stays valid after a fork if the kernel copies pinned pages
 * (5.12 and later) or with RDMAV_FORK_SAFE=1 in the environment, by which libibverbs gives all
 * registered memory MADV_DONTFORK.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "bmi_ib/device/device.h"

int ib_errno(void)
{
    return errno > 0 ? -errno : -EIO;
}

int ib_error(int ret)
{
    if (ret == -1)
        return ib_errno();
    return ret > 0 ? -ret : ret;
}

uint64_t ib_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

#define EMUVERBS_VENDOR 0x02c0deu
/* receives per connection without an SRQ; idle connections hold 16 bytes for each */
#define RQ_DEPTH   127
#define READ_DEPTH 16 /* RDMA reads in flight offered per connection */

/* ---- Choice ---- */

static void log_no_device(struct rme_fabric *f, int error)
{
    const char *cause = "the kernel has none";
    const char *limit = rme_remedy(error, NULL);
    if (limit != NULL) {
        ib_log(f, RME_LOG_ERROR, "RDMA devices: cannot be listed: %s; %s", strerror(-error),
               limit);
        return;
    }
    if (access("/dev/infiniband/rdma_cm", F_OK) != 0)
        cause = "/dev/infiniband/rdma_cm does not exist";
    else if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0)
        cause = "no permission to open /dev/infiniband/rdma_cm";
    ib_log(f, RME_LOG_ERROR,
           "no RDMA device: %s (%s); load rdma_ucm and the adapter's driver (or rdma_rxe), "
           "give this user access to "
           "/dev/infiniband, or run under emuverbs",
           cause, strerror(-error));
}

/* Returns a usable port, or 0 with the reason in `why`. */
static unsigned find_port(struct ibv_context *ctx, const struct ibv_device_attr *attr,
                          struct ibv_port_attr *port, char *why, size_t size)
{
    snprintf(why, size, "no port");
    for (unsigned p = 1; p <= attr->phys_port_cnt; p++) {
        int ret = ibv_query_port(ctx, (uint8_t)p, port);
        if (ret)
            snprintf(why, size, "port %u: query failed: %s", p, strerror(-ib_error(ret)));
        else if (port->state == IBV_PORT_ACTIVE)
            return p;
        else
            snprintf(why, size, "port %u is %s", p, ibv_port_state_str(port->state));
    }
    return 0;
}

/* Returns true if the device is usable; fills `attr` and `port`. */
static bool is_usable(struct ib_rail *rail, const char *wanted, struct ibv_context *ctx,
                      struct ibv_device_attr *attr, struct ibv_port_attr *port)
{
    const char *name = ibv_get_device_name(ctx->device);
    char why[128];
    int ret;
    if (wanted[0] && strcmp(wanted, name) != 0) {
        ib_log(rail, rail->number ? RME_LOG_DEBUG : RME_LOG_INFO,
               "device %s not used: the option device names %s", name, wanted);
        return false;
    }
    ret = ibv_query_device(ctx, attr);
    if (ret)
        snprintf(why, sizeof(why), "query failed: %s", strerror(-ib_error(ret)));
    else if (ctx->device->transport_type == IBV_TRANSPORT_IWARP)
        snprintf(why, sizeof(why),
                 "iWARP lacks RDMA write with immediate data; use InfiniBand or RoCE");
    else if (find_port(ctx, attr, port, why, sizeof(why)))
        return true;
    ib_log(rail, RME_LOG_WARN, "device %s not used: %s", name, why);
    return false;
}

int ib_device_choose(struct ib_rail *rail, const char *wanted, struct ibv_context *preferred)
{
    struct ib_device *d = &rail->dev;
    struct ibv_port_attr port = {0};
    bool named = wanted[0] != 0;

    if (preferred != NULL && !named && is_usable(rail, wanted, preferred, &d->attr, &port))
        d->ctx = preferred;
    for (struct ibv_context **c = rail->fabric->all; *c != NULL; c++) {
        if (*c == d->ctx || (*c == preferred && !named))
            continue;
        if (d->ctx != NULL)
            ib_log(rail, named ? RME_LOG_DEBUG : RME_LOG_INFO,
                   "device %s not used: %s was chosen before it",
                   ibv_get_device_name((*c)->device), ibv_get_device_name(d->ctx->device));
        else if (is_usable(rail, wanted, *c, &d->attr, &port))
            d->ctx = *c;
    }
    if (d->ctx == NULL) {
        ib_log(
            rail, RME_LOG_ERROR,
            "no usable RDMA device%s%s: see the lines above; bring a port up, or correct the "
            "option device",
            named ? " " : "", wanted);
        return -ENODEV;
    }
    snprintf(d->name, sizeof(d->name), "%s", ibv_get_device_name(d->ctx->device));
    d->max_msg = port.max_msg_sz ? port.max_msg_sz : 1u << 30;
    return 0;
}

/* ---- Capabilities ---- */

static uint32_t lesser(int64_t wanted, int64_t limit)
{
    int64_t least = wanted < limit ? wanted : limit;
    return least > 0 ? (uint32_t)least : 1;
}

/* Lowers one size after a refusal.  Returns false if none is left to lower. */
static bool lower(struct ibv_qp_cap *cap)
{
    if (cap->max_inline_data)
        cap->max_inline_data = cap->max_inline_data > 64 ? cap->max_inline_data / 2 : 0;
    else if (cap->max_send_sge > 1)
        cap->max_send_sge /= 2;
    else if (cap->max_send_wr > 16)
        cap->max_send_wr /= 2;
    else if (cap->max_recv_wr > 16)
        cap->max_recv_wr /= 2;
    else
        return false;
    return true;
}

/* Creates a trial QP, lowering `cap` until the device grants the sizes. */
static int try_sizes(struct ib_rail *rail, struct ibv_qp_cap *cap)
{
    struct ibv_cq *cq = ibv_create_cq(rail->dev.ctx, 2, NULL, NULL, 0);
    struct ibv_qp *qp;
    int error;
    if (cq == NULL)
        return ib_errno();
    do {
        struct ibv_qp_init_attr attr = {
            .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = *cap};
        qp = ibv_create_qp(rail->dev.pd, &attr);
    } while (qp == NULL && lower(cap));
    error = qp != NULL ? 0 : ib_errno();
    if (qp != NULL)
        ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
    return error;
}

/* The kernel makes the packets of soft-RoCE: a work request costs 5 us, as much as a copy of
 * 64 KiB. */
static const struct rme_limits rxe_limits = {
    .once = {256u << 10, 2u << 10, 64u << 10},
    .list = {16u << 10, 768, 64u << 10},
    .read = 1,
};
/* The software HCA, in memory that copies 30 to 60 bytes in a ns: a registration costs 8 us and
 * 0.12 for each page, a write of a chain 0.3 us, a read 1.2. */
static const struct rme_limits emuverbs_limits = {
    .once = {256u << 10, 4u << 10, 8u << 10},
    .list = {96u << 10, 2560, 10u << 10},
    .read = 4,
};

static int query_limits(struct ib_rail *rail)
{
    struct ib_device *d = &rail->dev;
    const struct ibv_device_attr *a = &d->attr;
    bool rxe = ib_is_rxe(rail), emuverbs = a->vendor_id == EMUVERBS_VENDOR;
    struct ibv_qp_cap cap = {
        .max_send_wr = lesser(ib_option(rail, "sq_depth") + 1, a->max_qp_wr),
        .max_recv_wr = lesser(RQ_DEPTH + 1, a->max_qp_wr),
        .max_send_sge = lesser(IB_SGE_MAX, a->max_sge),
        .max_recv_sge = 1,
        .max_inline_data = (uint32_t)ib_option(rail, "max_inline"),
    };
    int error = try_sizes(rail, &cap);
    uint32_t depth;
    if (error || cap.max_send_wr < 3 || cap.max_recv_wr < 3) {
        ib_log(rail, RME_LOG_ERROR, "device %s: no queue pair: %s; %s", d->name,
               strerror(error ? -error : EINVAL),
               rme_remedy(error,
                          "close other RDMA programs, or raise the memlock limit (ulimit -l)"));
        return error ? error : -ENODEV;
    }
    d->sq_depth = cap.max_send_wr - 1; /* one entry is reserved for the drain marker */
    d->rq_depth = cap.max_recv_wr - 1;
    d->max_inline = cap.max_inline_data;
    d->inline_now = cap.max_send_sge > 1 ? d->max_inline : 0;
    depth = ib_min((uint32_t)a->max_qp_rd_atom, (uint32_t)a->max_qp_init_rd_atom);
    d->read_depth = (uint8_t)ib_min(READ_DEPTH, depth);
    rail->caps = (struct rme_caps){
        .unsignalled = true,
        .max_sge = cap.max_send_sge,
        .max_read_sge = lesser(cap.max_send_sge, a->max_sge_rd),
        .max_piece = d->max_msg < 1u << 30 ? d->max_msg : 1u << 30,
        .max_regs = a->max_mr > 64 ? (uint64_t)a->max_mr - 64 : 1,
        .has_read = d->read_depth > 0,
        /* rxe: a read has half the bandwidth of a write, because responses are generated and
         * consumed one by one */
        .slow_read = rxe,
        .limits = rxe        ? &rxe_limits
                  : emuverbs ? &emuverbs_limits
                             : NULL,
    };
    return 0;
}

/* Returns true for a list with a context that was open before this process was forked. */
static bool inherited(struct ibv_context **all)
{
    /* Several threads may open engines: `owner` is written first and read last, so that a
     * context of this process is never compared. */
    static _Atomic(struct ibv_context *) known;
    static _Atomic pid_t owner;
    struct ibv_context *before = known;
    if (owner != getpid())
        for (struct ibv_context **c = all; before != NULL && *c != NULL; c++)
            if (*c == before)
                return true;
    owner = getpid();
    known = all[0];
    return false;
}

/* Lists the devices; first step of opening. */
int ib_device_list(struct rme_fabric *f)
{
    int n = 0;
    int error;
    f->all = rdma_get_devices(&n);
    if (f->all != NULL && n > 0 && inherited(f->all)) {
        ib_log(
            f, RME_LOG_ERROR,
            "device %s: opened before fork(), and librdmacm opens no device twice; initialize "
            "BMI only after fork(), or execute the program anew",
            ibv_get_device_name(f->all[0]->device));
        return -ENODEV;
    }
    if (f->all != NULL && n > 0)
        return 0;
    error = f->all != NULL ? -ENODEV : ib_errno();
    log_no_device(f, error);
    return rme_remedy(error, NULL) != NULL ? error : -ENODEV;
}

/* Warns where a fork can part the parent from its registered pages: its next write moves it to
 * a new page, and the device keeps the old one. */
static void check_fork(struct ib_rail *rail)
{
    if (rail->place == 0 && ibv_is_fork_initialized() == IBV_FORK_DISABLED)
        ib_log(rail, RME_LOG_WARN,
               "device %s: a program that forks or calls system() can lose received data, as "
               "this kernel does not copy pinned pages; set RDMAV_FORK_SAFE=1, or use Linux "
               "5.12 or later",
               rail->dev.name);
}

/* Opens the selected device.  On failure the caller calls ib_device_close(). */
int ib_device_open(struct ib_rail *rail)
{
    struct ib_device *d = &rail->dev;
    int error;
    d->pd = ibv_alloc_pd(d->ctx);
    if (d->pd == NULL) {
        error = ib_errno();
        ib_log(rail, RME_LOG_ERROR, "device %s: no protection domain: %s", d->name,
               strerror(-error));
        return error;
    }
    error = query_limits(rail);
    if (error)
        return error;
    check_fork(rail);
    ib_log(rail, RME_LOG_INFO,
           "device %s: %u segments, %u inline bytes, %u send requests, read depth %u", d->name,
           rail->caps.max_sge, d->max_inline, d->sq_depth, d->read_depth);
    return 0;
}

void ib_device_close(struct ib_rail *rail)
{
    struct ib_device *d = &rail->dev;
    if (d->pd != NULL) {
        int ret = ibv_dealloc_pd(d->pd);
        if (ret)
            ib_log(rail, RME_LOG_WARN, "device %s: protection domain still in use at close: %s",
                   d->name, strerror(-ib_error(ret)));
    }
    d->pd = NULL;
}

void ib_device_unlist(struct rme_fabric *f)
{
    if (f->all != NULL)
        rdma_free_devices(f->all);
    f->all = NULL;
}

void ib_device_relist(struct rme_fabric *f)
{
    struct ibv_context **all = rdma_get_devices(NULL), **c;
    if (all == NULL)
        return;
    ib_device_unlist(f);
    f->all = all;
    (void)inherited(all); /* keeps a context that exists, for the comparison after a fork */
    for (unsigned i = 0; i < f->rails; i++) {
        struct ib_device *d = &f->rail[i]->dev;
        for (c = all; *c != NULL && *c != d->lost; c++)
            ;
        d->lost = *c;
    }
}

bool ib_device_return(struct ib_rail *rail)
{
    struct ib_device *d = &rail->dev;
    bool named = rme_option_string(rail->config.options, "device")[0] != 0;
    struct ibv_port_attr port = {0};
    char why[128];
    for (struct ibv_context **c = rail->fabric->all; c != NULL && *c != NULL && d->ctx == NULL;
         c++)
        if (*c != d->lost && (!named || !strcmp(d->name, ibv_get_device_name((*c)->device))) &&
            (*c)->device->transport_type != IBV_TRANSPORT_IWARP &&
            !ibv_query_device(*c, &d->attr) && find_port(*c, &d->attr, &port, why, sizeof(why)))
            d->ctx = *c;
    if (d->ctx == NULL)
        return false;
    snprintf(d->name, sizeof(d->name), "%s", ibv_get_device_name(d->ctx->device));
    d->max_msg = port.max_msg_sz ? port.max_msg_sz : 1u << 30;
    return true;
}

void ib_device_query_ports(struct ib_rail *rail)
{
    struct ibv_port_attr port = {0};
    char why[128];
    rail->dev.down = !find_port(rail->dev.ctx, &rail->dev.attr, &port, why, sizeof(why));
}
