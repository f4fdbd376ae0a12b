/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protection domains and memory regions.
 *
 * Registration makes all pages present and, for local write, writable; as with pinning, holes
 * and read-only memory are refused. Deregistration clears the key and then waits for remote
 * operations that have already checked it (key.c), so nothing is written after its return.
 *
 * On-demand paging (ODP): a region that is not touched at registration, not counted as pinned
 * and not limited by EMUVERBS_MEMLOCK. All requests use the page tables of the owning process.
 * The requester's memory is checked before the peer is involved (resolve_local in exec.c):
 * LOC_PROT_ERR. Missing pages of the peer are detected by the copy: a receive completes with
 * LOC_PROT_ERR, its sender with REM_OP_ERR. No instruction of this library accesses ODP memory:
 * messages do not wait in the shared segment for ibv_poll_cq, whose copy could crash the
 * program.
 */
#include "emul/verbs/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

struct ibv_pd *emu_pd_new(struct ibv_context *context)
{
    struct emu_dev *d = emu_dev_for(context);
    struct emu_pd *pd = NULL;

    if (d == NULL)
        errno = EIO;
    else
        pd = calloc(1, sizeof(*pd));
    if (pd == NULL)
        return NULL;
    pd->pd.context = context;
    pthread_mutex_lock(&d->lock);
    pd->pd.handle = d->next_pd++;
    pthread_mutex_unlock(&d->lock);
    return &pd->pd;
}

EMU_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    bool unlucky = emu_call(CALL_ibv_alloc_pd);
    if (unlucky || emu_has_failed(context)) {
        errno = unlucky ? ENOMEM : EIO;
        return NULL;
    }
    struct ibv_pd *pd = emu_pd_new(context);
    if (pd != NULL)
        emu_count(COUNT_live_pd, 1);
    return pd;
}

EMU_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
    struct emu_pd *pd = (struct emu_pd *)ibpd;

    if (emu_call(CALL_ibv_dealloc_pd) || emu_dev_for(ibpd->context) == NULL)
        return EIO;
    if (atomic_load(&pd->users))
        return EBUSY;
    free(pd);
    emu_uncount(COUNT_live_pd, 1);
    return 0;
}

int emu_mr_populate(const void *addr, size_t length, bool write)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)addr & ~(page - 1);
    uintptr_t to = ((uintptr_t)addr + length + page - 1) & ~(page - 1);

    if (length == 0)
        return 0;
    if (to < from)
        return EINVAL;
    while (madvise((void *)from, to - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) <
           0) {
        if (errno == EAGAIN || errno == EINTR)
            continue;
        if (errno != EINVAL)
            return EFAULT;
        /* no permission, or a kernel before 5.14: check that everything is mapped */
        size_t pages = (to - from) / page;
        unsigned char *vec = malloc(pages);
        if (vec == NULL)
            return ENOMEM;
        char probe;
        struct iovec l = {&probe, 1}, r = {(void *)from, 1};
        bool old_kernel = madvise((void *)from, 0, MADV_POPULATE_READ) < 0;
        bool mapped = mincore((void *)from, to - from, vec) == 0 &&
                      process_vm_readv(gettid(), &l, 1, &r, 1, 0) == 1;
        free(vec);
        return old_kernel && mapped ? 0 : EFAULT;
    }
    return 0;
}

/* Adds to the pinned bytes if within the limit. */
static bool account(struct emu_dev *d, size_t length)
{
    struct emu_counters *c = emu_counters;
    uint64_t now;

    if (!length)
        return true; /* even while another thread exceeds the limit */
    now = atomic_fetch_add(&c->count[COUNT_pinned_bytes], length) + length;

    if (d->knobs.memlock && now > d->knobs.memlock) {
        emu_uncount(COUNT_pinned_bytes, length);
        return false;
    }
    uint64_t peak = atomic_load(&c->count[COUNT_pinned_peak]);
    while (now > peak &&
           !atomic_compare_exchange_weak(&c->count[COUNT_pinned_peak], &peak, now))
        ;
    return true;
}

#define WRITTEN_BY_OTHERS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* Checks whether memory can be registered; returns 0 or a positive errno. On success the pages
 * are present, unless on demand. */
static int check_region(const struct emu_dev *d, void *addr, size_t length, unsigned access)
{
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | WRITTEN_BY_OTHERS |
                           IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                           IBV_ACCESS_ON_DEMAND | IBV_ACCESS_OPTIONAL_RANGE;

    if ((access & ~known) ||
        ((access & WRITTEN_BY_OTHERS) && !(access & IBV_ACCESS_LOCAL_WRITE)))
        return EINVAL;
    if ((uintptr_t)addr + length < (uintptr_t)addr)
        return EINVAL;
    if (access & IBV_ACCESS_ON_DEMAND)
        return d->knobs.odp ? 0 : EOPNOTSUPP;
    return emu_mr_populate(addr, length, access & (IBV_ACCESS_LOCAL_WRITE | WRITTEN_BY_OTHERS));
}

/* Returns the bytes of a region that count as pinned. */
static size_t pinned(size_t length, unsigned access)
{
    return access & IBV_ACCESS_ON_DEMAND ? 0 : length;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                          unsigned access)
{
    struct emu_dev *d = emu_dev_for(pd->context);
    int err = 0;

    if (!length)
        err = EINVAL;
    else if (emu_call(CALL_ibv_reg_mr))
        err = ENOMEM;
    else if (d == NULL || emu_has_failed(pd->context))
        err = EIO;
    else
        err = check_region(d, addr, length, access);
    struct emu_mr *mr = err ? NULL : calloc(1, sizeof(*mr));
    if (mr == NULL) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    if (!account(d, pinned(length, access))) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    uint32_t lkey = d->live_mr < EMU_MAX_MRS - 1 ? emu_mr_draw_key(d, false) : 0;
    if (!lkey) {
        pthread_mutex_unlock(&d->lock);
        emu_uncount(COUNT_pinned_bytes, pinned(length, access));
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    uint32_t index = shm_key_index(lkey);
    struct shm_mr *s = shm_mr(d->seg, index);
    d->mr[index] = mr;
    d->live_mr++;
    s->pd = pd->handle;
    s->access = access;
    s->addr = (uintptr_t)addr;
    s->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
    s->length = length;
    s->qpn = 0;
    atomic_store(&s->key, lkey);
    pthread_mutex_unlock(&d->lock);

    mr->index = index;
    mr->mr.context = pd->context;
    mr->mr.pd = pd;
    mr->mr.addr = addr;
    mr->mr.length = length;
    mr->mr.handle = index;
    mr->mr.lkey = lkey;
    mr->mr.rkey = d->knobs.equal_keys ? lkey : lkey | EMU_RKEY_BIT;
    atomic_fetch_add(&((struct emu_pd *)pd)->users, 1);
    emu_count(COUNT_live_mr, 1);
    emu_count(COUNT_reg_bytes_total, pinned(length, access));
    return &mr->mr;
}

#undef ibv_reg_mr
EMU_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return reg(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

#undef ibv_reg_mr_iova
EMU_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, int access)
{
    return reg(pd, addr, length, iova, (unsigned)access);
}

EMU_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                           uint64_t iova, unsigned int access)
{
    return reg(pd, addr, length, iova, access);
}

EMU_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                            uint64_t iova, int fd, int access)
{
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    errno = EOPNOTSUPP;
    return NULL;
}

/*
 * Revokes a region's key and waits for users of the memory; EBUSY if a window is bound.
 * Payloads of earlier messages are copied before. A payload pushed meanwhile ends its receive
 * with LOC_PROT_ERR. A copying poll is waited for.
 */
static int retract(struct emu_dev *d, struct emu_mr *mr)
{
    emu_above_settle(d);
    pthread_mutex_lock(&d->lock);
    bool bound = emu_mw_any(d, mr);
    if (!bound)
        atomic_store(&shm_mr(d->seg, mr->index)->key, 0);
    pthread_mutex_unlock(&d->lock);
    if (bound)
        return EBUSY;
    emu_mr_drain(d, mr->index);
    emu_above_settle(d);
    return 0;
}

EMU_EXPORT int ibv_dereg_mr(struct ibv_mr *ibmr)
{
    struct emu_mr *mr = (struct emu_mr *)ibmr;
    struct emu_dev *d = emu_dev_for(ibmr->context);

    if (emu_call(CALL_ibv_dereg_mr) || d == NULL)
        return EIO;
    if (retract(d, mr))
        return EINVAL; /* a window is bound */
    pthread_mutex_lock(&d->lock);
    size_t was_pinned = pinned(mr->mr.length, shm_mr(d->seg, mr->index)->access);
    d->mr[mr->index] = NULL; /* another thread may take the place from now on */
    d->live_mr--;
    pthread_mutex_unlock(&d->lock);
    emu_uncount(COUNT_pinned_bytes, was_pinned);
    emu_uncount(COUNT_live_mr, 1);
    atomic_fetch_sub(&((struct emu_pd *)mr->mr.pd)->users, 1);
    free(mr);
    return 0;
}
