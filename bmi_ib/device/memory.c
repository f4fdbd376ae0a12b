/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * memory.c - registered memory.
 *
 * Memory is registered on each rail, because any may carry the next operation.  The engine's
 * key is the address of all registrations (struct ib_keys), and a link uses the one of its
 * rail.  Dead rails are skipped, and get all registrations when they are opened again (rail.c).
 * A failure on a live rail fails the registration.
 *
 * Registration takes no lock of the engine: the PD and the capabilities of a rail change only
 * while regs.rails is held for writing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "bmi_ib/device/device.h"

int ib_relaxed_ordering(const struct ib_rail *rail)
{
    enum { OFF, ON }; /* values of the option; else auto */
    int64_t mode = ib_option(rail, "relaxed_ordering");
    bool on = mode == ON;
#if defined(__x86_64__)
    if (mode != OFF && mode != ON) {
        __builtin_cpu_init();
        on = __builtin_cpu_is("amd");
    }
#endif
    return on ? IBV_ACCESS_RELAXED_ORDERING : 0;
}

/* Returns true if registration failed because of IBV_ACCESS_MW_BIND on read-only memory: the
 * kernel requires writable memory for windows of any access.  Preserves errno. */
static bool read_only(struct ib_rail *rail, void *base, size_t length, int flags)
{
    int error = errno;
    bool readable = false;
    if (flags == IBV_ACCESS_MW_BIND && error == EFAULT) {
        struct ibv_mr *m = ibv_reg_mr(rail->dev.pd, base, length, 0);
        readable = m != NULL && ibv_dereg_mr(m) == 0;
    }
    errno = error;
    return readable;
}

/* Registers on one rail.  Returns NULL with errno on failure. */
static struct ibv_mr *reg(struct ib_rail *rail, void *base, size_t length, unsigned access)
{
    int flags = 0;
    struct ibv_mr *m;
    if (access & RME_ACCESS_LOCAL_WRITE)
        flags |= IBV_ACCESS_LOCAL_WRITE;
    if (access & RME_ACCESS_REMOTE_READ)
        flags |= IBV_ACCESS_REMOTE_READ;
    if (access & RME_ACCESS_REMOTE_WRITE)
        flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if (rail->caps.mws && (access & (RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE)))
        flags =
            (flags & IBV_ACCESS_LOCAL_WRITE) | IBV_ACCESS_MW_BIND; /* the MR's own rkey permits
                                                                    * nothing */
    if (access & RME_ACCESS_DEMAND)
        flags |= IBV_ACCESS_ON_DEMAND;
    m = ibv_reg_mr(rail->dev.pd, base, length, flags | rail->ordering);
    if (m == NULL && read_only(rail, base, length, flags))
        errno = EACCES;
    return m;
}

static void dereg(struct ib_rail *rail, struct ibv_mr *m)
{
    uintptr_t base = (uintptr_t)m->addr;
    int ret = ibv_dereg_mr(m);
    if (ret && !rail->dev.dead)
        ib_log(rail, RME_LOG_WARN, "device %s: memory at %#lx cannot be deregistered: %s",
               rail->dev.name, (unsigned long)base, strerror(-ib_error(ret)));
}

/* Registers on the live rails.  Returns 0, also if no rail is live, or a negative errno. */
static int keys_reg(struct rme_fabric *f, struct ib_keys *k)
{
    int error = 0;
    bool any = false;
    for (unsigned i = 0; i < f->rails; i++) {
        struct ib_rail *rail = f->rail[i];
        if (rail->dev.dead)
            continue;
        k->mr[i] = reg(rail, k->base, k->length, k->access);
        any = any || k->mr[i] != NULL;
        error = k->mr[i] != NULL ? error : ib_errno();
        /* a failed device is skipped, even if its event is pending */
        if (k->mr[i] == NULL && !rail->dev.dead && error != -EIO && error != -ENODEV)
            return error;
    }
    return any ? 0 : error;
}

static void keys_dereg(struct rme_fabric *f, struct ib_keys *k)
{
    for (unsigned i = 0; i < f->rails; i++)
        if (k->mr[i] != NULL)
            dereg(f->rail[i], k->mr[i]);
    free(k);
}

int ib_reg(struct rme_fabric *f, void *base, size_t length, unsigned access, struct rme_mr *mr)
{
    struct ib_regs *r = &f->regs;
    struct ib_keys *k = calloc(1, sizeof(*k));
    int error;
    if (k == NULL)
        return -ENOMEM;
    k->base = base;
    k->length = length;
    k->access = access;
    pthread_rwlock_rdlock(&r->rails);
    error = keys_reg(f, k);
    if (error) {
        keys_dereg(f, k);
    } else {
        pthread_mutex_lock(&r->lock);
        list_add_head(&k->entry, &r->keys);
        pthread_mutex_unlock(&r->lock);
    }
    pthread_rwlock_unlock(&r->rails);
    if (error)
        return error;
    *mr = (struct rme_mr){.handle = k,
                          .base = (uintptr_t)base,
                          .length = length,
                          .lkey = (uintptr_t)k,
                          .rkey = (uintptr_t)k};
    return 0;
}

void ib_dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    struct ib_regs *r = &f->regs;
    struct ib_keys *k = mr->handle;
    pthread_rwlock_rdlock(&r->rails);
    pthread_mutex_lock(&r->lock);
    list_del_init(&k->entry);
    pthread_mutex_unlock(&r->lock);
    keys_dereg(f, k);
    pthread_rwlock_unlock(&r->rails);
    mr->handle = NULL;
}

void ib_regs_remove_rail(struct ib_rail *rail)
{
    struct ib_keys *k;
    list_for_each(k, &rail->fabric->regs.keys, entry)
        if (k->mr[rail->number] != NULL) {
            dereg(rail, k->mr[rail->number]);
            k->mr[rail->number] = NULL;
        }
}

void ib_regs_add_rail(struct ib_rail *rail)
{
    struct ib_keys *k;
    unsigned failed = 0;
    int error = 0;
    list_for_each(k, &rail->fabric->regs.keys, entry) {
        k->mr[rail->number] = reg(rail, k->base, k->length, k->access);
        if (k->mr[rail->number] != NULL)
            continue;
        error = ib_errno();
        failed++;
    }
    if (failed)
        ib_log(rail, RME_LOG_WARN,
               "device %s: %u ranges of memory could not be registered again: %s; connections "
               "that use them fail",
               rail->dev.name, failed, strerror(-error));
}

/* ---- Paging on demand ---- */

/* Returns NULL if user memory can be paged on demand, else the reason, with the device's error
 * in *error if there is one. */
static const char *no_paging(struct ib_rail *rail, int *error)
{
    const uint32_t needed =
        IBV_ODP_SUPPORT_WRITE | (rail->caps.has_read ? IBV_ODP_SUPPORT_READ : 0);
    struct ibv_device_attr_ex attr = {0};
    static char page[1];
    struct ibv_mr *m;
    if (!rail->caps.mws && !rail->caps.register_each)
        return "rkey_scope=region would let a peer access memory that is mapped there later; "
               "set rkey_scope=operation";
    *error = ib_error(ibv_query_device_ex(rail->dev.ctx, NULL, &attr));
    if (*error)
        return "the device query failed";
    if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
        return "the device lacks on-demand paging";
    if ((attr.odp_caps.per_transport_caps.rc_odp_caps & needed) != needed)
        return "the device lacks on-demand paging for RDMA reads and writes over RC";
    /* registers a mapped page on trial, with the access of memory for a peer */
    m = reg(rail, page, sizeof(page), RME_ACCESS_REMOTE_WRITE | RME_ACCESS_DEMAND);
    if (m == NULL) {
        *error = ib_errno();
        return rail->caps.mws ? "registration with on-demand paging failed for windows"
                              : "registration with on-demand paging failed";
    }
    dereg(rail, m);
    return NULL;
}

int ib_demand_open(struct ib_rail *rail)
{
    enum { OFF, ON }; /* values of the option */
    int64_t mode = ib_option(rail, "odp");
    int error = 0;
    const char *why;
    if (mode == OFF)
        return 0;
    why = no_paging(rail, &error);
    rail->caps.on_demand = why == NULL;
    if (why == NULL) {
        ib_log(rail, RME_LOG_INFO, "device %s: user memory is paged on demand and not pinned",
               rail->dev.name);
        return 0;
    }
    ib_log(rail, mode == ON ? RME_LOG_ERROR : RME_LOG_INFO, "device %s: odp=%s: %s%s%s%s",
           rail->dev.name, mode == ON ? "on" : "auto", why, error ? ": " : "",
           error ? strerror(-error) : "", mode == ON ? "" : "; user memory is pinned");
    return mode == ON ? -EOPNOTSUPP : 0;
}

/*
 * Allocates and registers memory for buffers.  A child of the process does not get these pages:
 * where the kernel does not copy pinned pages at a fork, its parent would write to copies, and
 * the device to the pages.  libibverbs does the same for registered memory of the program, if
 * RDMAV_FORK_SAFE is set (device.c).
 */
int ib_memory_get(struct ib_rail *rail, size_t length, struct ib_memory *m)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *base;
    struct ibv_mr *mr;
    length = (length + page - 1) / page * page;
    base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -ENOMEM;
    (void)madvise(base, length, MADV_DONTFORK); /* a hint */
    mr = ibv_reg_mr(rail->dev.pd, base, length, IBV_ACCESS_LOCAL_WRITE | rail->ordering);
    if (mr == NULL) {
        int error = ib_errno();
        munmap(base, length);
        return error;
    }
    *m = (struct ib_memory){base, length, mr};
    return 0;
}

void ib_memory_put(struct ib_memory *m)
{
    if (m->mr != NULL)
        ibv_dereg_mr(m->mr);
    if (m->base != NULL)
        munmap(m->base, m->length);
    *m = (struct ib_memory){.base = NULL};
}
