/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * out.c - send queues of links.
 *
 * Each link has a queue of messages and transfers, in the order of the host's calls.  The first
 * entry gets sequence numbers, one per packet, and is posted; it is then in `sent` until its
 * event shows that it has landed in the peer's queue.  The receiver orders packets by number
 * and holds those that overtook others: at most ELAN_WINDOW of them, because no packet is sent
 * whose number is further ahead of the oldest one that has not landed.
 *
 * A DMA cannot be withdrawn.  A buffer that has not landed at the end of its link is an orphan
 * until it lands or the context is released.  Only reports from its place show that it will not
 * land: a peer reports what it refused, or that it is a successor.  A report may be false, and
 * the DMA may end when the buffer is in use again; such a buffer is therefore reused for that
 * place only, where no other place is harmed.  If there are very many, the oldest become free
 * for all, once another process has been seen there for long.
 */
#include <stdlib.h>

#include "bmi_elan4/elan.h"

/* Returns true if this number of packets may get sequence numbers. */
static bool window_open(struct rme_link *l, uint32_t packets)
{
    const struct elan_tx *oldest = TAILQ_FIRST(&l->sent);

    return !oldest || l->next_seq + packets - oldest->seq <= ELAN_WINDOW;
}

static void sent(struct rme_link *l, struct elan_tx *tx)
{
    TAILQ_REMOVE(&l->queued, tx, next);
    TAILQ_INSERT_TAIL(&l->sent, tx, next);
    elan_tx_sending(l);
}

/* Returns the number of packets of a transfer's notification. */
static uint32_t note_packets(const struct rme_xfer *x)
{
    return x->notify == RME_NOTIFY_MSG ? elan_packets(x->tx_length)
                                       : x->notify != RME_NOTIFY_NONE;
}

/* Posts as much as possible.  Returns false if something is left. */
static bool advance(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->queued)) != NULL) {
        if (!tx->x) {
            if (!window_open(l, elan_packets(tx->length)))
                return false;
            elan_tx_message(l, tx);
            sent(l, tx);
            continue;
        }
        if (!tx->move && !window_open(l, note_packets(tx->x)))
            return false;
        if (!elan_move_issue(l, tx))
            return false;
        if (tx->x->notify != RME_NOTIFY_NONE) {
            sent(l, tx);
        } else { /* no order depends on it */
            tx->move->place = NULL;
            TAILQ_REMOVE(&l->queued, tx, next);
            free(tx);
        }
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
        TAILQ_REMOVE(&f->dirty, l, dirty_next);
        l->dirty = false;
    }
    if (!any)
        return;
    bmi_elan4_flush(f->nic);
    f->config.stats->value[RME_C_DOORBELLS]++;
}

/* ---- Landing ---- */

/* Returns true if it has landed.  The library decides whether a set word is valid. */
static bool has_landed(const struct rme_fabric *f, const struct elan_tx *tx)
{
    return tx->x ? tx->over
                 : compat_load(tx->landed) != 0 && compat_poll_word(f->nic->ctx, tx->landed, 0);
}

/* Returns the number of packets that have not landed. */
static uint32_t under_way(const struct rme_fabric *f, const struct elan_tx *tx)
{
    int32_t count = EVENT_COUNT(tx->event);

    return has_landed(f, tx) || count >= 0 ? 0 : (uint32_t)(-count / 32);
}

static bool refuse_one(const struct rme_fabric *f, struct elan_txs *list, unsigned vp,
                       E4_Addr queue)
{
    struct elan_tx *tx;

    TAILQ_FOREACH(tx, list, next)
        if (!tx->x && tx->vp == vp && tx->queue == queue && tx->refused < under_way(f, tx)) {
            tx->refused++;
            return true;
        }
    return false;
}

bool elan_tx_refused(struct rme_fabric *f, unsigned vp, E4_Addr queue)
{
    struct rme_link *l;

    if (refuse_one(f, &f->orphans, vp, queue))
        return true;
    TAILQ_FOREACH(l, &f->links, all)
        if (l->vp == vp && refuse_one(f, &l->sent, vp, queue))
            return true;
    return false;
}

bool elan_tx_waits(const struct rme_fabric *f, unsigned vp, E4_Addr queue, int64_t now)
{
    const struct elan_tx *tx;

    TAILQ_FOREACH(tx, &f->orphans, next)
        if (tx->vp == vp && tx->queue == queue && now - tx->since >= ELAN_ASK_MS &&
            !has_landed(f, tx))
            return true;
    return false;
}

bool elan_tx_over(const struct rme_fabric *f, const struct elan_tx *tx)
{
    return has_landed(f, tx) || (tx->x && tx->move && elan_move_stuck(tx->move));
}

static void landed_of(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->sent)) != NULL && has_landed(l->f, tx)) {
        TAILQ_REMOVE(&l->sent, tx, next);
        if (tx->x)
            free(tx);
        else
            elan_tx_unuse(l, tx);
    }
    if (!tx && l->nmoves == 0) {
        l->sending = false;
        TAILQ_REMOVE(&l->f->sending, l, sending_next);
    }
}

/* Returns true if an orphan has landed, was refused at its destination, or the next owner of
 * that context has been there for long enough. */
static bool orphan_over(const struct rme_fabric *f, const struct elan_tx *tx, int64_t now)
{
    return has_landed(f, tx) || (tx->refused && tx->refused == under_way(f, tx)) ||
           (now - tx->since >= f->quarantine_ms && elan_succeeded(f, tx->vp, tx->generation));
}

void elan_tx_sweep(struct rme_fabric *f, int64_t now)
{
    struct elan_tx *tx, *then;

    for (tx = TAILQ_FIRST(&f->orphans); tx; tx = then) {
        then = TAILQ_NEXT(tx, next);
        if (!orphan_over(f, tx, now))
            continue;
        if (has_landed(f, tx))
            elan_owner_resumed(f, tx->vp, tx->generation);
        else
            elan_bind(&tx->bound, &tx->lost, tx->generation);
        TAILQ_REMOVE(&f->orphans, tx, next);
        f->norphans--;
        if (tx->kept)
            f->config.stats->value[RME_C_QUARANTINED]--;
        tx->kept = false;
        elan_tx_give(f, tx);
    }
}

void elan_tx_landed(struct rme_fabric *f)
{
    struct rme_link *l, *after;

    for (l = TAILQ_FIRST(&f->sending); l; l = after) {
        after = TAILQ_NEXT(l, sending_next);
        landed_of(l);
    }
    if (f->norphans && (f->polls % 64 == 0 || f->wanting))
        elan_tx_sweep(f, f->polls % 64 == 0 ? elan_now() : 0);
    if (f->wanting)
        elan_tx_rooms(f);
}

bool elan_tx_restless(const struct rme_fabric *f)
{
    return f->wanting || !TAILQ_EMPTY(&f->dirty);
}

void elan_tx_drop(struct rme_link *l, bool all)
{
    struct elan_tx *tx, *after;

    for (tx = TAILQ_FIRST(&l->queued); tx; tx = after) {
        after = TAILQ_NEXT(tx, next);
        if (tx->x && tx->move) {
            elan_move_cut(l, tx);
            continue;
        }
        TAILQ_REMOVE(&l->queued, tx, next);
        if (tx->x && tx->note)
            elan_tx_unuse(l, tx->note);
        if (tx->x)
            free(tx);
        else
            elan_tx_unuse(l, tx);
    }
    if (l->tx_wanted) {
        l->tx_wanted = false;
        l->f->wanting--;
    }
    if (!all)
        return;
    while ((tx = TAILQ_FIRST(&l->sent)) != NULL) {
        TAILQ_REMOVE(&l->sent, tx, next);
        if (tx->x) {
            free(tx);
        } else {
            if (tx->since && !has_landed(l->f, tx))
                elan_owner_stalled(l->f, tx->vp, tx->generation,
                                   elan_now() - (l->f->watched - tx->since));
            tx->link = NULL;
            tx->kept = true;
            tx->since = elan_now();
            l->f->config.stats->value[RME_C_QUARANTINED]++;
            l->tx_used--;
            TAILQ_INSERT_TAIL(&l->f->orphans, tx, next);
            l->f->norphans++;
        }
    }
    if (l->sending) {
        l->sending = false;
        TAILQ_REMOVE(&l->f->sending, l, sending_next);
    }
}

void elan_tx_close(struct rme_fabric *f)
{
    struct elan_txs *lists[] = {&f->tx_free, &f->tx_spare, &f->orphans};
    struct elan_tx *tx;

    /* the context frees their memory */
    for (unsigned i = 0; i < 3; i++)
        while ((tx = TAILQ_FIRST(lists[i])) != NULL) {
            TAILQ_REMOVE(lists[i], tx, next);
            free(tx);
        }
}
