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

/* Posts as much as possible.  Returns false if something is left that no packet announces. */
static bool advance(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->queued)) != NULL) {
        if (!tx->move && !window_open(l, is_silent(tx) ? 0 : elan_packets(tx->length)))
            return false;
        if (!tx->x)
            elan_tx_message(l, tx);
        else if (!elan_move_issue(l, tx))
            return elan_move_waits(l, tx);
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
bool elan_tx_over(const struct rme_fabric *f, const struct elan_tx *tx)
{
    return !tx->move && elan4_load64(tx->landed) != 0 &&
           elan4_pollevent_word(f->nic->ctx, tx->landed, 0);
}

struct elan_tx *elan_tx_flying(const struct rme_link *l)
{
    struct elan_tx *tx;

    TAILQ_FOREACH(tx, &l->sent, next)
        if (!tx->move && !elan_tx_over(l->f, tx))
            break;
    return tx;
}

bool elan_tx_waits(const struct rme_fabric *f, const struct elan_peer *to, int64_t now)
{
    const struct elan_dma *d;

    TAILQ_FOREACH(d, &f->orphans, next)
        if (!d->is_move && d->to.vp == to->vp && d->to.queue == to->queue &&
            now - d->since >= ELAN_ASK_MS && !elan_tx_over(f, (const struct elan_tx *)d))
            return true;
    return false;
}

static void landed_of(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->sent)) != NULL && elan_tx_over(l->f, tx)) {
        TAILQ_REMOVE(&l->sent, tx, next);
        elan_tx_release(l, tx);
    }
    if (!tx && TAILQ_EMPTY(&l->moves))
        ELAN_REMOVE(l, sending);
}

/* Returns true if no DMA of an orphan is in flight any more: it has landed, another process has
 * been in that context for long enough, or a dead process's interface was to run its reads. */
static bool is_over(const struct rme_fabric *f, const struct elan_dma *d, int64_t now)
{
    return (!d->is_move && elan_tx_over(f, (const struct elan_tx *)d)) ||
           (now - d->since >= f->quarantine_ms &&
            (d->ended || elan_succeeded(f, d->to.vp, d->to.generation)));
}

void elan_sweep(struct rme_fabric *f, int64_t now)
{
    struct elan_dma *d, *then;

    for (d = TAILQ_FIRST(&f->orphans); d; d = then) {
        then = TAILQ_NEXT(d, next);
        if (!is_over(f, d, now))
            continue;
        elan_orphan_over(f, d);
        if (d->is_move)
            elan_move_free(f, (struct elan_move *)d);
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
            elan_move_cut(l->f, tx->move);
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
    struct elan_dmas *lists[] = {&f->free[ELAN_TX], &f->orphans};
    struct elan_dma *d;

    /* the context frees their memory */
    for (unsigned i = 0; i < 2; i++)
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
