/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * memory.c - registered memory.
 *
 * Memory is registered on each rail, because any may carry the next operation.  The engine's
 * key is the address of all registrations (struct ib_keys), and a link uses the one of its
 * rail.  Dead rails are skipped, because they do not recover.  A failure on a live rail fails
 * the registration.
 *
 * Registration takes no lock of the engine: the PD and the capabilities of a rail are constant,
 * and `dead` is atomic.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "bmi_ib/device/device.h"

/* Returns true if registration failed because of IBV_ACCESS_MW_BIND on read-only memory: the
 * kernel requires writable memory for windows of any access.  Preserves errno. */
static bool read_only(struct rme_fabric *f, void *base, size_t length, int flags)
{
    int error = errno;
    bool readable = false;
    if (flags == IBV_ACCESS_MW_BIND && error == EFAULT) {
        struct ibv_mr *m = ibv_reg_mr(f->dev.pd, base, length, 0);
        readable = m && ibv_dereg_mr(m) == 0;
    }
    errno = error;
    return readable;
}

/* Registers on one rail.  Returns NULL with errno on failure. */
static struct ibv_mr *reg(struct rme_fabric *f, void *base, size_t length, unsigned access)
{
    int flags = 0;
    if (access & RME_ACCESS_LOCAL_WRITE)
        flags |= IBV_ACCESS_LOCAL_WRITE;
    if (access & RME_ACCESS_REMOTE_READ)
        flags |= IBV_ACCESS_REMOTE_READ;
    if (access & RME_ACCESS_REMOTE_WRITE)
        flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if (f->caps.mws && (access & (RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE)))
        flags =
            (flags & IBV_ACCESS_LOCAL_WRITE) | IBV_ACCESS_MW_BIND; /* the MR's own rkey permits
                                                                    * nothing */
    if (access & RME_ACCESS_DEMAND)
        flags |= IBV_ACCESS_ON_DEMAND;
    struct ibv_mr *m = ibv_reg_mr(f->dev.pd, base, length, flags);
    if (!m && read_only(f, base, length, flags))
        errno = EACCES;
    return m;
}

static void dereg(struct rme_fabric *f, struct ibv_mr *m)
{
    uintptr_t base = (uintptr_t)m->addr;
    int ret = ibv_dereg_mr(m);
    if (ret && !f->dev.dead)
        ib_log(f, RME_LOG_WARN, "device %s: memory at %#lx cannot be deregistered: %s",
               f->dev.name, (unsigned long)base, strerror(-ib_error(ret)));
}

static void keys_free(struct rme_fabric *f, struct ib_keys *k)
{
    for (unsigned i = 0; i < f->rails; i++)
        if (k->mr[i])
            dereg(f->rail[i], k->mr[i]);
    free(k);
}

/* Returns true if the device has failed, even if the event is pending. */
static bool is_gone(const struct rme_fabric *f, int error)
{
    return f->dev.dead || error == -EIO || error == -ENODEV;
}

int ib_reg(struct rme_fabric *f, void *base, size_t length, unsigned access, struct rme_mr *mr)
{
    struct ib_keys *k = calloc(1, sizeof(*k));
    int error = -ENODEV;
    bool any = false, failed = false;
    if (!k)
        return -ENOMEM;
    for (unsigned i = 0; i < f->rails && !failed; i++) {
        if (f->rail[i]->dev.dead)
            continue;
        k->mr[i] = reg(f->rail[i], base, length, access);
        any = any || k->mr[i];
        error = k->mr[i] ? error : ib_errno();
        failed = !k->mr[i] && !is_gone(f->rail[i], error);
    }
    if (failed || !any) {
        keys_free(f, k);
        return error;
    }
    *mr = (struct rme_mr){.handle = k,
                          .base = (uintptr_t)base,
                          .length = length,
                          .lkey = (uintptr_t)k,
                          .rkey = (uintptr_t)k};
    return 0;
}

void ib_dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    keys_free(f, mr->handle);
    mr->handle = NULL;
}

/* ---- Paging on demand ---- */

/* Returns true if user memory can be paged on demand; else the reason is in `why`. */
static bool pages_on_demand(struct rme_fabric *f, char *why, size_t size)
{
    const uint32_t needed =
        IBV_ODP_SUPPORT_WRITE | (f->caps.has_read ? IBV_ODP_SUPPORT_READ : 0);
    struct ibv_device_attr_ex attr = {0};
    if (!f->caps.mws && !f->caps.register_each) {
        snprintf(why, size,
                 "expose=region would let a peer access memory that is mapped there later; set "
                 "expose=operation");
        return false;
    }
    int ret = ibv_query_device_ex(f->dev.ctx, NULL, &attr);
    if (ret) {
        snprintf(why, size, "the device query failed: %s", strerror(-ib_error(ret)));
        return false;
    }
    if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT)) {
        snprintf(why, size, "the device lacks on-demand paging");
        return false;
    }
    if ((attr.odp_caps.per_transport_caps.rc_odp_caps & needed) != needed) {
        snprintf(why, size,
                 "the device lacks on-demand paging for RDMA reads and writes over RC");
        return false;
    }
    /* registers a mapped page on trial, with the access of memory for a peer */
    static char page[1];
    struct ibv_mr *m = reg(f, page, sizeof(page), RME_ACCESS_REMOTE_WRITE | RME_ACCESS_DEMAND);
    if (!m) {
        snprintf(why, size, "registration with on-demand paging failed%s: %s",
                 f->caps.mws ? " for windows" : "", strerror(-ib_errno()));
        return false;
    }
    dereg(f, m);
    return true;
}

int ib_demand_open(struct rme_fabric *f)
{
    const char *mode = rme_option_string(f->config.options, "odp");
    bool on = strcmp(mode, "on") == 0;
    char why[160];
    if (strcmp(mode, "off") == 0)
        return 0;
    if (!on && strcmp(mode, "auto") != 0) {
        ib_log(f, RME_LOG_ERROR, "option odp=%s: allowed are off, on and auto", mode);
        return -EINVAL;
    }
    f->caps.on_demand = pages_on_demand(f, why, sizeof(why));
    if (f->caps.on_demand) {
        ib_log(f, RME_LOG_INFO, "device %s: user memory is paged on demand and not pinned",
               f->dev.name);
        return 0;
    }
    ib_log(f, on ? RME_LOG_ERROR : RME_LOG_INFO, "device %s: odp=%s: %s%s", f->dev.name, mode,
           why, on ? "" : "; user memory is pinned");
    return on ? -EOPNOTSUPP : 0;
}

/* Allocates and registers memory for buffers.  Uses whole pages, so that a fork splits none. */
int ib_memory_get(struct rme_fabric *f, size_t length, struct ib_memory *m)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    length = (length + page - 1) / page * page;
    void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -ENOMEM;
    struct ibv_mr *mr = ibv_reg_mr(f->dev.pd, base, length, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) {
        int error = ib_errno();
        munmap(base, length);
        return error;
    }
    *m = (struct ib_memory){base, length, mr};
    return 0;
}

void ib_memory_put(struct ib_memory *m)
{
    if (m->mr)
        ibv_dereg_mr(m->mr);
    if (m->base)
        munmap(m->base, m->length);
    *m = (struct ib_memory){.base = NULL};
}
