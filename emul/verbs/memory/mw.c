/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory windows: keys for a part of a region, bound and invalidated without a system call.
 *
 * A window has an entry in the table of regions, so a peer's access is checked and pinned in
 * the same way (key.c). The key of the entry is zero while the window is not bound. Binding
 * fills in the entry and stores the key last. Invalidation stores zero and then waits for
 * accesses that checked the key before, so nothing is written after its completion.
 *
 * A window is of type 2B: it belongs to the QP that bound it. Only the peer of that QP passes
 * the check, and only that peer can invalidate it by a message. The peer's process then clears
 * the key in the entry; no other access of that QP runs meanwhile. The owner's lists of windows
 * per region and QP are corrected at their next use. The upper 24 bits of a window's key are
 * drawn at allocation; the binder chooses the last eight.
 */
#include "emul/verbs/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* local write has no meaning for a window, but programs request it */
#define WINDOW_RIGHTS                                                                          \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED)
#define WRITING (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static struct shm_mr *entry(struct emu_dev *d, const struct emu_mw *mw)
{
    return shm_mr(d->seg, mw->index);
}

static void link_to(struct emu_mw_link *l, struct emu_mw_link **head)
{
    l->next = *head;
    if (l->next != NULL)
        l->next->pprev = &l->next;
    l->pprev = head;
    *head = l;
}

static void unlink_from(struct emu_mw_link *l)
{
    if (l->pprev == NULL)
        return;
    *l->pprev = l->next;
    if (l->next != NULL)
        l->next->pprev = l->pprev;
    l->pprev = NULL;
}

/* Revokes the key, so that no new access begins; returns whether it was bound. Under
 * d->lock. */
static bool unbind(struct emu_dev *d, struct emu_mw *mw)
{
    bool bound = atomic_exchange(&entry(d, mw)->key, 0) != 0;

    unlink_from(&mw->of_mr);
    unlink_from(&mw->of_qp);
    return bound;
}

struct ibv_mw *emu_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    struct emu_dev *d = emu_dev_for(pd->context);
    struct emu_mw *mw = NULL;
    int err = 0;

    if (emu_call(CALL_ibv_alloc_mw))
        err = ENOMEM;
    else if (d == NULL || emu_has_failed(pd->context))
        err = EIO;
    else if (!d->knobs.max_mw)
        err = EOPNOTSUPP;
    else if (type != IBV_MW_TYPE_2)
        err = type == IBV_MW_TYPE_1 ? EOPNOTSUPP : EINVAL;
    else if ((mw = calloc(1, sizeof(*mw))) == NULL)
        err = ENOMEM;
    if (!err) {
        pthread_mutex_lock(&d->lock);
        mw->key = d->live_mw < d->knobs.max_mw ? emu_mr_draw_key(d, true) : 0;
        if (mw->key) {
            mw->index = shm_key_index(mw->key);
            d->mw[mw->index - EMU_MAX_MRS] = mw;
            d->live_mw++;
        } else {
            err = ENOMEM;
        }
        pthread_mutex_unlock(&d->lock);
    }
    if (err) {
        free(mw);
        errno = err;
        return NULL;
    }
    mw->mw.context = pd->context;
    mw->mw.pd = pd;
    mw->mw.rkey = mw->key | EMU_RKEY_BIT;
    mw->mw.handle = mw->index;
    mw->mw.type = type;
    atomic_fetch_add(&((struct emu_pd *)pd)->users, 1);
    emu_count(COUNT_live_mw, 1);
    return &mw->mw;
}

int emu_dealloc_mw(struct ibv_mw *ibmw)
{
    struct emu_mw *mw = (struct emu_mw *)ibmw;
    struct emu_dev *d = emu_dev_for(ibmw->context);

    if (emu_call(CALL_ibv_dealloc_mw) || d == NULL)
        return EIO;
    pthread_mutex_lock(&d->lock);
    unbind(d, mw);
    pthread_mutex_unlock(&d->lock);
    emu_mr_drain(d, mw->index);
    pthread_mutex_lock(&d->lock);
    d->mw[mw->index - EMU_MAX_MRS] = NULL;
    d->live_mw--;
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_sub(&((struct emu_pd *)ibmw->pd)->users, 1);
    free(mw);
    emu_uncount(COUNT_live_mw, 1);
    return 0;
}

/* Returns the window with the key in this process, or NULL. Under d->lock. */
static struct emu_mw *lookup(struct emu_dev *d, uint32_t key)
{
    struct emu_mw *mw = key & EMU_WINDOW_BIT ? d->mw[shm_key_index(key) - EMU_MAX_MRS] : NULL;

    return mw != NULL && mw->key == key ? mw : NULL;
}

/* Returns the region below a window to be bound, if permitted; or NULL. */
static struct shm_mr *region_below(struct emu_dev *d, const struct emu_bind *b, uint64_t addr,
                                   uint32_t pd)
{
    struct shm_mr *s = shm_mr(d->seg, shm_key_index(b->mr_key));
    uint64_t off = addr - s->iova;

    if (b->mr_key == 0 || (b->mr_key & EMU_WINDOW_BIT) || atomic_load(&s->key) != b->mr_key ||
        s->pd != pd)
        return NULL;
    if (!(s->access & IBV_ACCESS_MW_BIND) || (s->access & IBV_ACCESS_ZERO_BASED) ||
        ((b->access & WRITING) && !(s->access & IBV_ACCESS_LOCAL_WRITE)) ||
        (b->access & ~(unsigned)WINDOW_RIGHTS))
        return NULL;
    return off <= s->length && b->length <= s->length - off ? s : NULL;
}

enum ibv_wc_status emu_mw_bind(struct emu_dev *d, const struct emu_binder *by,
                               const struct emu_bind *b, uint64_t addr, uint32_t rkey)
{
    enum ibv_wc_status status = IBV_WC_MW_BIND_ERR;

    pthread_mutex_lock(&d->lock);
    struct emu_mw *mw = lookup(d, b->mw_key);
    struct shm_mr *s = mw != NULL ? entry(d, mw) : NULL, *mr = NULL;
    if (s == NULL || atomic_load(&s->key) || mw->mw.pd->handle != by->pd)
        goto out;
    if (b->length)
        mr = region_below(d, b, addr, by->pd);
    if (mr == NULL)
        goto out;
    unlink_from(&mw->of_mr); /* invalidated by a message */
    unlink_from(&mw->of_qp);
    mw->key = (mw->key & ~0xffu) | (rkey & 0xff);
    s->pd = by->pd;
    s->access = b->access;
    s->addr = mr->addr + (addr - mr->iova);
    s->iova = b->access & IBV_ACCESS_ZERO_BASED ? 0 : addr;
    s->length = b->length;
    s->qpn = by->qpn;
    link_to(&mw->of_mr, &d->mr[shm_key_index(b->mr_key)]->windows);
    link_to(&mw->of_qp, by->windows);
    atomic_store(&s->key, mw->key);
    status = IBV_WC_SUCCESS;
out:
    pthread_mutex_unlock(&d->lock);
    return status;
}

enum ibv_wc_status emu_mw_invalidate(struct emu_dev *d, uint32_t qpn, uint32_t key)
{
    uint32_t index = 0;

    pthread_mutex_lock(&d->lock);
    struct emu_mw *mw = lookup(d, key & ~EMU_RKEY_BIT);
    if (mw != NULL && (key & EMU_RKEY_BIT) && entry(d, mw)->qpn == qpn && unbind(d, mw))
        index = mw->index;
    pthread_mutex_unlock(&d->lock);
    if (!index)
        return IBV_WC_LOC_QP_OP_ERR;
    emu_mr_drain(d, index);
    return IBV_WC_SUCCESS;
}

bool emu_mw_invalidate_remote(struct emu_peer *p, uint32_t qpn, uint32_t rkey)
{
    uint32_t key = rkey & ~EMU_RKEY_BIT;
    struct shm_mr *s = shm_mr(p->seg, shm_key_index(key));

    return (rkey & EMU_RKEY_BIT) && (key & EMU_WINDOW_BIT) && atomic_load(&s->key) == key &&
           s->qpn == qpn && atomic_compare_exchange_strong(&s->key, &key, 0);
}

bool emu_mw_any(struct emu_dev *d, struct emu_mr *mr)
{
    while (mr->windows != NULL) {
        struct emu_mw *mw =
            (struct emu_mw *)((char *)mr->windows - offsetof(struct emu_mw, of_mr));
        if (atomic_load(&entry(d, mw)->key))
            return true;
        unbind(d, mw);
    }
    return false;
}

void emu_mw_qp_destroyed(struct emu_dev *d, struct emu_mw_link **windows)
{
    pthread_mutex_lock(&d->lock);
    while (*windows != NULL)
        unbind(d, (struct emu_mw *)((char *)*windows - offsetof(struct emu_mw, of_qp)));
    pthread_mutex_unlock(&d->lock);
}
