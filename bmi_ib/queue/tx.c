/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tx.c - send buffers: one pool for all links, grown by slabs up to the option tx_buffers.
 *
 * A buffer is the engine's from tx_get on, then the queue's, then the device's until a
 * completion says that it was sent; a message that travels inside its work request (inline)
 * gives it back at once.  One link may hold a bounded number, so that a peer that takes nothing
 * does not starve the others.  A link that got none is told as soon as there is one again, in
 * turn.
 *
 * The first slab is made at open: while the fabric lives there is always a buffer that comes
 * back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"

static size_t buffer_size(const struct rme_fabric *f)
{
    return sizeof(struct ib_tx) + (f->config.rx_size + 63u) / 64 * 64;
}

static int pool_grow(struct rme_fabric *f)
{
    struct ib_tx_pool *p = &f->tx;
    if ((p->slabs + 1) * f->slab > (uint64_t)ib_option(f, "tx_buffers"))
        return -ENOSPC;
    struct ib_memory *more = realloc(p->slab, (p->slabs + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    p->slab = more;
    struct ib_memory *m = &more[p->slabs];
    int error = ib_memory_get(f, f->slab * buffer_size(f), m);
    if (error)
        return error;
    p->slabs++;
    for (unsigned i = 0; i < f->slab; i++) {
        struct ib_tx *tx = (struct ib_tx *)((char *)m->base + i * buffer_size(f));
        tx->lkey = m->mr->lkey;
        tx->x.notify = RME_NOTIFY_MSG;
        tx->x.tx = ib_tx_data(tx);
        tx->next = p->free;
        p->free = tx;
    }
    p->nfree += f->slab;
    p->quiet_max = p->slabs * f->slab / 4;
    return 0;
}

int ib_tx_open(struct rme_fabric *f)
{
    f->tx.per_link = (uint32_t)ib_option(f, "tx_per_link");
    int error = pool_grow(f);
    if (error)
        ib_log(f, RME_LOG_ERROR,
               "no memory could be registered for send buffers: %s; raise the memlock limit "
               "(ulimit -l unlimited, or LimitMEMLOCK=infinity in a systemd unit)",
               strerror(-error));
    return error;
}

void ib_tx_close(struct rme_fabric *f)
{
    for (uint32_t i = 0; i < f->tx.slabs; i++)
        ib_memory_put(&f->tx.slab[i]);
    free(f->tx.slab);
    f->tx = (struct ib_tx_pool){.slab = NULL};
}

static bool may_take(const struct rme_link *l)
{
    return l->tx_held < l->f->tx.per_link;
}

void *ib_tx_get(struct rme_link *l)
{
    struct ib_tx_pool *p = &l->f->tx;
    if (may_take(l) && (p->free || pool_grow(l->f) == 0)) {
        struct ib_tx *tx = p->free;
        p->free = tx->next;
        p->nfree--;
        tx->link = l;
        l->tx_held++;
        return ib_tx_data(tx);
    }
    if (!l->want_tx &&
        (l->state == IB_UP || l->state == IB_ACCEPTING || l->state == IB_CONNECTING)) {
        l->want_tx = true;
        TAILQ_INSERT_TAIL(&l->f->tx_waiters, l, room_entry);
    }
    return NULL;
}

/* The buffer is sent, or will never be. */
void ib_tx_release(struct rme_fabric *f, struct ib_tx *tx)
{
    tx->link->tx_held--;
    tx->next = f->tx.free;
    f->tx.free = tx;
    f->tx.nfree++;
}

void ib_tx_put(struct rme_link *l, void *data)
{
    ib_tx_release(l->f, ib_tx_of(data));
}

/* Tells links that wait for a buffer, at most as many as there are buffers. */
void ib_tx_rooms(struct rme_fabric *f)
{
    uint32_t budget = f->tx.nfree;
    struct rme_link *l, *next;
    for (l = TAILQ_FIRST(&f->tx_waiters); l && budget; l = next) {
        next = TAILQ_NEXT(l, room_entry);
        if (!may_take(l))
            continue;
        TAILQ_REMOVE(&f->tx_waiters, l, room_entry);
        l->want_tx = false;
        ib_link_event(l, &l->event_room);
        budget--;
    }
}

void ib_tx_forget(struct rme_link *l)
{
    if (l->want_tx)
        TAILQ_REMOVE(&l->f->tx_waiters, l, room_entry);
    l->want_tx = false;
}
