/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * On-demand paging (ODP). An adapter with ODP requests pages from the kernel when they are
 * needed. Here all requests use the page tables of the owning process. So an ODP region is not
 * touched at registration, not counted as pinned and not limited by EMUVERBS_MEMLOCK; its
 * memory may be mapped later, unmapped, and mapped again. A region may cover the whole address
 * space (IBV_ODP_SUPPORT_IMPLICIT).
 *
 * A request that meets a missing page fails as on an adapter. The requester's memory is checked
 * before the peer is involved (resolve_local in exec.c): LOC_PROT_ERR. Missing pages of the
 * peer are detected by the copy: a receive completes with LOC_PROT_ERR, its sender with
 * REM_OP_ERR. No instruction of this library accesses ODP memory: messages do not wait in the
 * shared segment for ibv_poll_cq, whose copy could crash the program.
 *
 * Advice (ibv_advise_mr) is carried out synchronously in the program's thread.
 */
#include "emul/verbs/memory/memory.h"

#include <errno.h>

void emu_demand_caps(struct ibv_odp_caps *caps)
{
    const uint32_t messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;

    caps->general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    caps->per_transport_caps.rc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE |
                                           IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_SRQ_RECV |
                                           IBV_ODP_SUPPORT_ATOMIC;
    caps->per_transport_caps.uc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE;
    caps->per_transport_caps.ud_odp_caps = messages | IBV_ODP_SUPPORT_SRQ_RECV;
}

/* Locates a segment of an advice; returns 0 or a positive errno. */
static int locate(struct emu_dev *d, uint32_t pd, const struct ibv_sge *sge, bool write,
                  const void **at)
{
    const struct shm_mr *s = shm_mr(d->seg, shm_key_index(sge->lkey));
    int err = 0;

    if (sge->lkey & EMU_WINDOW_BIT)
        return EINVAL;
    pthread_mutex_lock(&d->lock);
    uint64_t off = sge->addr - s->iova;
    if (sge->lkey == 0 || atomic_load(&s->key) != sge->lkey ||
        !(s->access & IBV_ACCESS_ON_DEMAND))
        err = ENOENT;
    else if (s->pd != pd || (write && !(s->access & IBV_ACCESS_LOCAL_WRITE)))
        err = EPERM;
    else if (off > s->length || sge->length > s->length - off)
        err = EFAULT;
    else
        *at = (const void *)(uintptr_t)(s->addr + off);
    pthread_mutex_unlock(&d->lock);
    return err;
}

int emu_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                  struct ibv_sge *sge, uint32_t n)
{
    struct emu_dev *d = emu_dev_for(pd->context);
    bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    const void *at = NULL;

    if (emu_call(CALL_ibv_advise_mr))
        return ENOMEM;
    if (d == NULL)
        return EIO;
    if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && !write &&
        advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
        return EOPNOTSUPP;
    if ((flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH) || !n)
        return EINVAL;
    for (uint32_t i = 0; i < n; i++) {
        int err = locate(d, pd->handle, &sge[i], write, &at);
        if (err)
            return err;
    }
    /* present pages need nothing */
    for (uint32_t i = 0; i < n && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; i++) {
        if (locate(d, pd->handle, &sge[i], write, &at))
            continue; /* deregistered meanwhile */
        int err = emu_mr_populate(at, sge[i].length, write);
        if (err && (flags & IBV_ADVISE_MR_FLAG_FLUSH))
            /* without the flag the prefetch is asynchronous: errors are not reported */
            return err;
    }
    return 0;
}
