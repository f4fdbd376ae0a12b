/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * out.c - send queues of links.
 *
 * Each link has a queue of messages and transfers, in the order of the host's calls.  The first
 * entry gets sequence numbers, one per packet, and is posted; it is then in `sent` until its
 * event shows that it has landed in the peer's queue.  The receiver orders packets by number
 * and holds those that overtook others: at most ELAN_WINDOW of them, because no packet is sent
 * whose number is further ahead of the oldest one that has not landed.
 */
#include <stdlib.h>

#include "bmi_elan4/elan.h"

/* Returns true if this number of packets may get sequence numbers. */
static bool window_open(struct rme_link *l, uint32_t packets)
{
    const struct elan_tx *oldest = TAILQ_FIRST(&l->sent);

    return !oldest || l->next_seq + packets - oldest->seq <= ELAN_WINDOW;
}

/* Returns true for a transfer without notification, on which no order depends. */
static bool is_silent(const struct elan_tx *tx)
{
    return tx->x && tx->x->notify == RME_NOTIFY_NONE;
}

/* Removes an entry that is posted from the queue. */
static void posted(struct rme_link *l, struct elan_tx *tx)
{
    TAILQ_REMOVE(&l->queued, tx, next);
    if (is_silent(tx)) {
        elan_tx_release(l, tx);
        return;
    }
    TAILQ_INSERT_TAIL(&l->sent, tx, next);
    ELAN_ADD(l, sending);
}

/* Posts as much as possible.  Returns false if something is left. */
static bool advance(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->queued)) != NULL) {
        if (!tx->move && !window_open(l, is_silent(tx) ? 0 : elan_packets(tx->length)))
            return false;
        if (!tx->x)
            elan_tx_message(l, tx);
        else if (!elan_move_issue(l, tx))
            return false;
        posted(l, tx);
    }
    return true;
}

void elan_op_flush(struct rme_fabric *f)
{
    struct rme_link *l, *after;
    bool any = false;

    for (l = TAILQ_FIRST(&f->dirty); l; l = after) {
        after = TAILQ_NEXT(l, dirty_next);
        any = true;
        if (l->state != ELAN_DOWN_STATE && !advance(l)) {
            elan_look_soon(f);
            continue;
        }
        ELAN_REMOVE(l, dirty);
    }
    if (!any)
        return;
    bmi_elan4_flush(f->nic);
    f->config.stats->value[RME_C_DOORBELLS]++;
}

/* ---- Landing ---- */

/* Returns true if it has landed; DONE removes the message of a transfer.  The library decides
 * whether a set word is valid. */
static bool has_landed(const struct rme_fabric *f, const struct elan_tx *tx)
{
    return !tx->move && elan4_load64(tx->landed) != 0 &&
           elan4_pollevent_word(f->nic->ctx, tx->landed, 0);
}

/* Returns the number of packets that have not landed. */
static uint32_t under_way(const struct rme_fabric *f, const struct elan_tx *tx)
{
    int32_t count = EVENT_COUNT(tx->event);

    return has_landed(f, tx) || count >= 0 ? 0 : (uint32_t)(-count / 32);
}

/* Counts a refusal if a packet of the buffer is under way to that queue. */
static bool refuse(const struct rme_fabric *f, struct elan_tx *tx, unsigned vp, E4_Addr queue)
{
    if (tx->move || tx->d.to.vp != vp || tx->d.to.queue != queue ||
        tx->d.refused >= under_way(f, tx))
        return false;
    tx->d.refused++;
    return true;
}

void elan_tx_refused(struct rme_fabric *f, unsigned vp, E4_Addr at)
{
    struct elan_dma *d;
    struct elan_tx *tx;
    struct rme_link *l;

    TAILQ_FOREACH(d, &f->orphans, next)
        if (d->is_move ? d->to.vp == vp && elan_move_refused((struct elan_move *)d, at)
                       : refuse(f, (struct elan_tx *)d, vp, at)) {
            elan_sweep(f, 0);
            return;
        }
    TAILQ_FOREACH(l, &f->links, all)
        if (l->peer.vp == vp)
            TAILQ_FOREACH(tx, &l->sent, next)
                if (refuse(f, tx, vp, at))
                    return;
}

bool elan_tx_waits(const struct rme_fabric *f, const struct elan_peer *to, int64_t now)
{
    const struct elan_dma *d;

    TAILQ_FOREACH(d, &f->orphans, next)
        if (!d->is_move && d->to.vp == to->vp && d->to.queue == to->queue &&
            now - d->since >= ELAN_ASK_MS && !has_landed(f, (const struct elan_tx *)d))
            return true;
    return false;
}

bool elan_tx_over(const struct rme_fabric *f, const struct elan_tx *tx)
{
    return has_landed(f, tx) || (tx->move && elan_move_stuck(tx->move));
}

static void landed_of(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->sent)) != NULL && has_landed(l->f, tx)) {
        TAILQ_REMOVE(&l->sent, tx, next);
        elan_tx_release(l, tx);
    }
    if (!tx && TAILQ_EMPTY(&l->moves))
        ELAN_REMOVE(l, sending);
}

/* Returns 1 if an orphan has landed, -1 if it was refused at its destination, or 0. */
static int tx_over(const struct rme_fabric *f, const struct elan_tx *tx)
{
    if (has_landed(f, tx))
        return 1;
    return tx->d.refused && tx->d.refused == under_way(f, tx) ? -1 : 0;
}

void elan_sweep(struct rme_fabric *f, int64_t now)
{
    struct elan_dma *d, *then;

    for (d = TAILQ_FIRST(&f->orphans); d; d = then) {
        int over = d->is_move ? elan_move_over((struct elan_move *)d, now)
                              : tx_over(f, (struct elan_tx *)d);
        then = TAILQ_NEXT(d, next);
        /* the next owner of that context has been there for long enough */
        if (!over && now - d->since >= f->quarantine_ms &&
            elan_succeeded(f, d->to.vp, d->to.generation))
            over = -1;
        if (!over)
            continue;
        elan_orphan_over(f, d, over < 0);
        if (d->is_move)
            elan_move_free(f, (struct elan_move *)d, over < 0);
        else
            elan_tx_give(f, (struct elan_tx *)d);
    }
}

void elan_tx_landed(struct rme_fabric *f)
{
    struct rme_link *l, *after;

    for (l = TAILQ_FIRST(&f->sending); l; l = after) {
        after = TAILQ_NEXT(l, sending_next);
        landed_of(l);
    }
    if (f->polls % 64 == 0 || !TAILQ_EMPTY(&f->wanting))
        elan_sweep(f, f->polls % 64 == 0 ? elan_now() : 0);
    elan_tx_rooms(f);
}

void elan_tx_drop(struct rme_link *l, bool all)
{
    struct elan_tx *tx, *after;

    for (tx = TAILQ_FIRST(&l->queued); tx; tx = after) {
        after = TAILQ_NEXT(tx, next);
        if (tx->move) {
            elan_move_cut(l, tx->move);
            posted(l, tx);
            continue;
        }
        TAILQ_REMOVE(&l->queued, tx, next);
        elan_tx_release(l, tx);
    }
    ELAN_REMOVE(l, wanting);
    if (!all)
        return;
    while ((tx = TAILQ_FIRST(&l->sent)) != NULL) {
        TAILQ_REMOVE(&l->sent, tx, next);
        if (tx->move) /* it keeps the message until DONE */
            continue;
        l->tx_used--;
        elan_orphan(l->f, &tx->d, true);
    }
    ELAN_REMOVE(l, sending);
}

void elan_tx_close(struct rme_fabric *f)
{
    struct elan_dmas *lists[] = {&f->pool[ELAN_TX].free, &f->pool[ELAN_TX].spare, &f->orphans};
    struct elan_dma *d;

    /* the context frees their memory */
    for (unsigned i = 0; i < 3; i++)
        while ((d = TAILQ_FIRST(lists[i])) != NULL) {
            TAILQ_REMOVE(lists[i], d, next);
            if (!d->is_move)
                free(d);
        }
    for (uint32_t i = 0; i < f->nmove; i++) {
        free(f->move[i]->note);
        free(f->move[i]);
    }
    free(f->move);
}
