/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Regions whose pages come on demand. An adapter with such regions keeps no page in memory: it
 * asks the kernel for one when a request wants it. Here every request goes through the page
 * tables of the process that has the memory, so nothing has to be kept up to date, and such a
 * region is one that is not looked at when it is registered, is not counted as pinned, and is
 * not held to the limit of pinned memory. What it covers may be mapped later, unmapped, and
 * mapped anew, and a region may be all of the address space (IBV_ODP_SUPPORT_IMPLICIT).
 *
 * The failure path: a request that finds no page ends as on an adapter. The requester's own
 * memory is looked at before the peer has any part in the request (resolve_local in exec.c),
 * which then ends with LOC_PROT_ERR; the copy itself finds what is missing at the peer, where a
 * receive ends with LOC_PROT_ERR and its sender with REM_OP_ERR. So no instruction of this
 * library touches such memory: messages from it or to it never wait in the shared segment for
 * ibv_poll_cq to copy them, which could find nothing there and kill the program.
 *
 * What a program asks for in advance (ibv_advise_mr) is done at once, in its own thread.
 */
#include "emul/verbs/memory/memory.h"

#include <errno.h>

void emu_demand_caps(const struct emu_dev *d, struct ibv_odp_caps *caps)
{
    const uint32_t messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;

    caps->general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    caps->per_transport_caps.rc_odp_caps =
        messages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_SRQ_RECV;
    if (d->knobs.atomics)
        caps->per_transport_caps.rc_odp_caps |= IBV_ODP_SUPPORT_ATOMIC;
    caps->per_transport_caps.uc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE;
    caps->per_transport_caps.ud_odp_caps = messages | IBV_ODP_SUPPORT_SRQ_RECV;
}

/* Where a segment of an advice is: 0 or a positive errno. */
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
    if (!d)
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
    /* pages that are there already need nothing */
    for (uint32_t i = 0; i < n && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; i++) {
        if (locate(d, pd->handle, &sge[i], write, &at))
            continue; /* deregistered meanwhile */
        int err = emu_mr_populate(at, sge[i].length, write);
        if (err && (flags & IBV_ADVISE_MR_FLAG_FLUSH))
            return err; /* without the flag it is done behind the program's back */
    }
    return 0;
}
