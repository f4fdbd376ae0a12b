/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tx.c - send buffers: one pool for all links, grown in slabs.
 *
 * A buffer belongs to the engine from tx_get() on, then to the queue, then to the device until
 * its CQE; an inline message frees its buffer at once.  A limit per link keeps a peer that
 * accepts nothing from starving the others.  A link that got no buffer gets TX_ROOM, in turn,
 * when one is free.
 *
 * The first slab is allocated at open, so a buffer always exists.
 *
 * Stuck peers: several peers that accept nothing could hold all buffers.  The last eighth is
 * therefore reserved for links with nothing in flight, which get one buffer each.  While a link
 * waits that may have a buffer, all links are checked periodically.  A link is stuck if its QP
 * has completed nothing for STUCK_MS although requests are outstanding, and the link holds
 * at least half of an equal share of the buffers.  A check closes only the link that is stuck
 * longest, because its buffers may suffice.  No check runs while no link waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"

#define BUFFERS  1024
#define PER_LINK (BUFFERS / 8) /* so that a dead peer does not take all */
#define STUCK_MS 20000

static size_t buffer_size(const struct ib_rail *rail)
{
    return sizeof(struct ib_tx) + (rail->config.rx_size + 63u) / 64 * 64;
}

static int pool_grow(struct ib_rail *rail)
{
    struct ib_tx_pool *p = &rail->tx;
    struct ib_memory *more, *m;
    int error;
    if ((p->slabs + 1) * rail->slab > p->max)
        return -ENOSPC;
    more = realloc(p->slab, (p->slabs + 1) * sizeof(*more));
    if (more == NULL)
        return -ENOMEM;
    p->slab = more;
    m = &more[p->slabs];
    error = ib_memory_get(rail, rail->slab * buffer_size(rail), m);
    if (error)
        return error;
    p->slabs++;
    for (unsigned i = 0; i < rail->slab; i++) {
        struct ib_tx *tx = (struct ib_tx *)((char *)m->base + i * buffer_size(rail));
        tx->lkey = m->mr->lkey;
        tx->x.notify = RME_NOTIFY_MSG;
        tx->x.tx = ib_tx_data(tx);
        tx->next = p->free;
        p->free = tx;
    }
    p->nfree += rail->slab;
    p->unsignalled_max = p->slabs * rail->slab / 4;
    p->kept_free = p->slabs * rail->slab / 8;
    return 0;
}

int ib_tx_open(struct ib_rail *rail)
{
    int error;
    rail->tx.max = BUFFERS; /* tests set other numbers */
    rail->tx.per_link = PER_LINK;
    rail->tx.stuck_ms = STUCK_MS;
    error = pool_grow(rail);
    if (error)
        ib_log(
            rail, RME_LOG_ERROR,
            "send buffers: memory registration failed: %s; raise the memlock limit (ulimit -l "
            "unlimited, or LimitMEMLOCK=infinity in a systemd unit)",
            strerror(-error));
    return error;
}

void ib_tx_close(struct ib_rail *rail)
{
    for (uint32_t i = 0; i < rail->tx.slabs; i++)
        ib_memory_put(&rail->tx.slab[i]);
    free(rail->tx.slab);
    rail->tx = (struct ib_tx_pool){.slab = NULL};
}

/* Returns the number of buffers that pending CQEs will free.  Excludes requests that no
 * signalled one covers; an idle link may have some. */
static uint32_t pending_frees(const struct rme_link *l)
{
    return l->state == IB_UP ? l->tx_held - l->tx_unsignalled : 0;
}

/* Returns the number of buffers that must stay free when this link takes one. */
static uint32_t reserve_for(const struct rme_link *l)
{
    bool alone = l->all_entry.next == l->all_entry.prev;
    return alone || pending_frees(l) == 0 ? 0 : l->rail->tx.kept_free;
}

/* Returns true if the link may take a buffer; `notified`: links that got TX_ROOM in this
 * round. */
static bool may_take(const struct rme_link *l, uint32_t notified)
{
    const struct ib_tx_pool *p = &l->rail->tx;
    return l->tx_held < p->per_link &&
           (p->nfree > p->kept_free + notified || p->nfree > reserve_for(l) + notified);
}

void *ib_tx_get(struct rme_link *l)
{
    struct ib_tx_pool *p = &l->rail->tx;
    if (may_take(l, 0) || (l->tx_held < p->per_link && pool_grow(l->rail) == 0)) {
        struct ib_tx *tx = p->free;
        p->free = tx->next;
        p->nfree--;
        tx->link = l;
        l->tx_held++;
        return ib_tx_data(tx);
    }
    if (!l->want_tx &&
        (l->state == IB_UP || l->state == IB_ACCEPTING || l->state == IB_CONNECTING)) {
        l->want_tx = l->rail->attention = true;
        list_add_tail(&l->room_entry, &l->rail->tx_waiters);
    }
    return NULL;
}

/* Returns a buffer that was sent, or will not be, to the pool. */
void ib_tx_release(struct ib_rail *rail, struct ib_tx *tx)
{
    tx->link->tx_held--;
    tx->next = rail->tx.free;
    rail->tx.free = tx;
    rail->tx.nfree++;
}

void ib_tx_put(struct rme_link *l, void *data)
{
    ib_tx_release(l->rail, ib_tx_of(data));
}

/* ---- Links that are stuck ---- */

#define CHECKS 8 /* checks in STUCK_MS */

/* Returns true if a link below its limit waits for a buffer, and none is free for it. */
static bool is_starved(const struct ib_rail *rail)
{
    const struct rme_link *l;
    if (rail->tx.nfree > rail->tx.kept_free)
        return false;
    list_for_each(l, &rail->tx_waiters, room_entry)
        if (l->tx_held < rail->tx.per_link && rail->tx.nfree <= reserve_for(l))
            return true;
    return false;
}

/* Samples the progress of a link.  Returns true if more than CHECKS samples saw none. */
static bool is_stuck(struct rme_link *l)
{
    bool still = l->ring.tail == l->tx_seen;
    l->tx_seen = l->ring.tail;
    l->tx_still = still && pending_frees(l) ? l->tx_still + (l->tx_still < UINT8_MAX) : 0;
    return l->tx_still > CHECKS;
}

/* Checks for stuck links, when due. */
static void check_stuck(struct ib_rail *rail)
{
    struct rme_link *l, *worst = NULL;
    uint64_t now = ib_now_ms(), links = 0, all = (uint64_t)rail->tx.slabs * rail->slab;
    if (now < rail->tx.check_at)
        return;
    rail->tx.check_at = now + (rail->tx.stuck_ms + CHECKS - 1) / CHECKS;
    list_for_each(l, &rail->links, all_entry)
        links++;
    list_for_each(l, &rail->links, all_entry)
        if (is_stuck(l) && pending_frees(l) * links * 2 >= all &&
            (worst == NULL || l->tx_still > worst->tx_still))
            worst = l;
    if (worst == NULL)
        return;
    ib_log(
        rail, RME_LOG_WARN,
        "%s: connection closed: the peer has accepted nothing for %u ms or more and holds %u "
        "of %llu send buffers while others wait",
        worst->peer, rail->tx.stuck_ms, worst->tx_held, (unsigned long long)all);
    worst->rail->link_ops->fail(worst, -ETIMEDOUT, true);
}

uint64_t ib_tx_deadline(const struct ib_rail *rail)
{
    return is_starved(rail) ? rail->tx.check_at : UINT64_MAX;
}

/* Reports TX_ROOM to waiting links, at most to as many as find a buffer. */
void ib_tx_rooms(struct ib_rail *rail)
{
    uint32_t notified = 0;
    struct rme_link *l, *next;
    if (is_starved(rail))
        check_stuck(rail);
    for (l = list_first(&rail->tx_waiters, struct rme_link, room_entry);
         l != NULL && notified < rail->tx.nfree; l = next) {
        next = list_next(l, &rail->tx_waiters, room_entry);
        if (!may_take(l, notified))
            continue;
        list_del_init(&l->room_entry);
        l->want_tx = false;
        ib_link_events(l, l->events | IB_EVENT_ROOM);
        notified++;
    }
}

void ib_tx_cancel_wait(struct rme_link *l)
{
    if (l->want_tx)
        list_del_init(&l->room_entry);
    l->want_tx = false;
}
