/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * move.c - send queues of links, and transfers: many DMAs, one event, one notification.
 *
 * Each link has a queue of messages and transfers, in the order of the host's calls.  The first
 * entry gets sequence numbers, one per packet, and is posted; it is then in `sent` until its
 * event shows that it has landed in the peer's queue.  The receiver orders packets by number
 * and holds those that overtook others: at most ELAN_WINDOW of them, because no packet is sent
 * whose number is further ahead of the oldest one that has not landed.
 *
 * All DMAs of a transfer set one event, which is primed with their number plus one.  After the
 * last set the interface continues without the host: the event copies commands to a command
 * port, which send the notification to the peer; when that has landed, a second event sends a
 * packet to the own queue in the same way (DONE).  A silent transfer, without notification, has
 * the second chain only.  One packet thus notifies the peer and one this process, for any
 * number of pieces and without a processor in between.
 *
 * This process does the additional set when all DMAs are posted.  A notification covers the
 * data of earlier silent transfers as well.  The set therefore waits until these are complete.
 * Meanwhile the transfer stays first in the queue of its link, because the receiver would hold
 * packets behind the missing notification.  Earlier transfers with notifications need not be
 * complete, for the same reason.
 *
 * Writes are DMAs of this process.  Reads are DMAs of the peer, requested by packets, and a
 * request that the peer refuses blocks its command queue.  Each link with reads therefore has
 * its own queue, with at most as many requests as fit.
 */
#include <errno.h>
#include <stdlib.h>

#include "bmi_elan4/elan.h"

#define CHAIN 64 /* bytes of a DMA command with padding */

static int make(struct rme_fabric *f, struct elan_move *m)
{
    uint32_t most = f->packets_max;

    m->sdram = bmi_elan4_sdram(f->nic, 64, 128 + (size_t)CHAIN * (1 + most));
    m->unasked = bmi_elan4_main(f->nic, 64, 128 + ELAN_HEADER);
    m->note_port = compat_port(f->nic->ctx, 8 * most);
    m->self_port = compat_port(f->nic->ctx, 8);
    if (m->sdram == NULL || m->unasked == NULL || !m->note_port || !m->self_port)
        return -ENOMEM;
    m->data = (E4_Event *)(void *)m->sdram;
    m->notified = (E4_Event *)(void *)(m->sdram + 64);
    m->self_chain = m->sdram + 128;
    m->note_chain = m->self_chain + CHAIN;
    m->self = (uint8_t *)(uintptr_t)m->unasked + 64;
    m->imm = m->self + 64;
    return 0;
}

static void unmake(struct rme_fabric *f, struct elan_move *m)
{
    compat_free_sdram(f->nic->alloc, m->sdram);
    compat_free_main(f->nic->alloc, (void *)(uintptr_t)m->unasked);
    compat_free_port(f->nic->ctx, m->note_port, 8 * f->packets_max);
    compat_free_port(f->nic->ctx, m->self_port, 8);
    free(m);
}

/* Returns a free transfer; NULL: no memory. */
static struct elan_move *take(struct rme_fabric *f)
{
    struct elan_move *m =
        (struct elan_move *)list_first(&f->free[ELAN_MOVE], struct elan_dma, next);
    struct elan_move **more;

    if (m != NULL) {
        list_del_init(&m->d.next);
        return m;
    }
    more = realloc(f->move, (f->nmove + 1) * sizeof(*more));
    if (more == NULL)
        return NULL;
    f->move = more;
    if ((m = calloc(1, sizeof(*m))) == NULL)
        return NULL;
    m->d.is_move = true;
    if (make(f, m) < 0) {
        unmake(f, m);
        return NULL;
    }
    m->index = f->nmove;
    f->move[f->nmove++] = m;
    return m;
}

/* ---- Chains ---- */

static void chain_dma(uint8_t *block, const E4_DMA *dma)
{
    uint64_t w[8] = {dma->dma_typeSize | RUN_DMA_CMD,
                     dma->dma_cookie,
                     dma->dma_vproc,
                     dma->dma_srcAddr,
                     dma->dma_dstAddr,
                     dma->dma_srcEvent,
                     dma->dma_dstEvent,
                     NOP_CMD};

    for (unsigned i = 0; i < 8; i++)
        compat_store(w[i], block + 8 * i);
}

static void prime_copy(struct rme_fabric *f, E4_Event *event, uint32_t sets,
                       const uint8_t *block, E4_Addr port, uint32_t dwords)
{
    compat_store(bmi_elan4_at(f->nic, block), &event->ev_CopySource);
    compat_store(port, &event->ev_CopyDest);
    compat_store(
        E4_EVENT_INIT_VALUE(-32 * (int32_t)sets, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, dwords),
        &event->ev_CountAndType);
}

/* Builds the packet to this process, and the command that sends it. */
static void self_chain(struct rme_fabric *f, struct elan_move *m)
{
    struct elan_packet p = {.kind = ELAN_DONE,
                            .to = f->nic->generation,
                            .seq = m->use,
                            .from = f->nic->vp,
                            .arg = m->index};
    E4_DMA dma;

    elan_packet_encode(&p, m->self);
    bmi_elan4_packet_dma(f->nic, f->nic->vp, bmi_elan4_inbox_queue(f->inbox), m->self,
                         ELAN_HEADER, NULL, &dma);
    chain_dma(m->self_chain, &dma);
}

static uint32_t count_dmas(const struct rme_rdma_op *x)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < x->npiece; i++)
        for (uint32_t s = 0; s < x->piece[i].nseg; s++)
            n += x->piece[i].seg[s].length > 0;
    return n;
}

static bool begin(struct rme_link *l, struct elan_tx *tx)
{
    struct rme_fabric *f = l->f;
    struct rme_rdma_op *x = tx->x;
    struct elan_move *m;
    E4_DMA dma;

    if (!elan_share_left(&f->active, l->peer.vp) || (m = take(f)) == NULL)
        return false;
    elan_share_take(&f->active, l->peer.vp);
    list_add_tail(&m->next, &l->moves);
    ELAN_ADD(l, sending);
    m->use++;
    m->link = l;
    m->d.since = 0;
    m->d.to = l->peer;
    m->refused = 0;
    m->reported = false;
    m->x = x;
    m->unposted = count_dmas(x);
    m->note = x->notify == RME_NOTIFY_NONE ? NULL : tx;
    m->let = false;
    compat_store(0, m->unasked);
    tx->move = m;
    self_chain(f, m);
    if (x->notify == RME_NOTIFY_IMM) {
        tx->at = m->imm;
        tx->kind = ELAN_IMM;
        tx->arg = x->imm;
    }
    if (m->note != NULL) {
        elan_tx_number(l, tx);
        for (uint32_t i = 0; i < tx->packets; i++) {
            elan_tx_dma(f, &l->peer, tx, i, m->notified, &dma);
            chain_dma(m->note_chain + (size_t)i * CHAIN, &dma);
        }
        prime_copy(f, m->notified, tx->packets, m->self_chain, m->self_port, 8);
        prime_copy(f, m->data, m->unposted + 1, m->note_chain, m->note_port, 8 * tx->packets);
    } else {
        prime_copy(f, m->data, m->unposted + 1, m->self_chain, m->self_port, 8);
    }
    MEMBAR_STORESTORE();
    return true;
}

/* ---- Data ---- */

/* Returns the number of DMAs that are not complete, from the sets that the event awaits. */
static uint32_t outstanding(const struct elan_move *m)
{
    return (uint32_t)(-EVENT_COUNT(m->data) / 32 - !m->let);
}

/* Returns the number of requested reads that are not complete. */
static uint32_t reading(const struct rme_link *l)
{
    const struct elan_move *m;
    uint32_t n = 0;

    list_for_each(m, &l->moves, next)
        if (m->x->read)
            n += outstanding(m) - m->unposted;
    return n;
}

/* Takes over the command queue of a link without transfers.  An ending link keeps its queue,
 * which may hold requests that the peer has falsely reported as refused. */
static E4_CmdQ *borrow(struct rme_fabric *f)
{
    struct rme_link *l;

    list_for_each(l, &f->links, all)
        if (l->reads != NULL && l->state == ELAN_UP_STATE && list_empty(&l->moves)) {
            E4_CmdQ *q = l->reads;
            l->reads = NULL;
            return q;
        }
    return NULL;
}

_Static_assert(ELAN_READS *COMPAT_ASK_DWORDS <= 1024, "a queue of 8 KiB holds fewer reads");

/* Returns true if the link has a queue for reads. */
static bool can_read(struct rme_link *l)
{
    struct rme_fabric *f = l->f;

    if (l->reads == NULL)
        l->reads = compat_cmdq(f->nic->ctx, f->nic->alloc, CQ_Size8K, COMPAT_ASK_PERMISSIONS);
    if (l->reads == NULL)
        l->reads = borrow(f);
    return l->reads != NULL;
}

static void run(struct rme_link *l, const struct elan_move *m, E4_Addr remote, E4_Addr local,
                uint64_t bytes)
{
    struct bmi_elan4_nic *nic = l->f->nic;
    uint64_t *count = l->f->config.stats->value;
    E4_DMA d = {.dma_typeSize = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, 0, 16)};

    if (m->x->read) {
        d.dma_vproc = nic->vp;
        d.dma_srcAddr = remote;
        d.dma_dstAddr = local;
        d.dma_dstEvent = bmi_elan4_at(nic, m->data);
        compat_ask_dma(l->reads, nic->cookies, &d, l->peer.vp, bmi_elan4_at(nic, m->unasked));
        count[RME_C_RDMA_READS]++;
        return;
    }
    d.dma_cookie = compat_dma_cookie(nic->cookies, l->peer.vp);
    d.dma_vproc = l->peer.vp;
    d.dma_srcAddr = local;
    d.dma_dstAddr = remote;
    d.dma_srcEvent = bmi_elan4_at(nic, m->data);
    elan4_run_dma_cmd(nic->tx, &d);
    count[RME_C_RDMA_WRITES]++;
}

/* Posts the next DMA.  Returns false if there is none. */
static bool next_dma(struct rme_link *l, struct elan_tx *at)
{
    const struct rme_rdma_op *x = at->x;

    for (; at->piece < x->npiece; at->piece++, at->seg = 0, at->ahead = 0) {
        const struct rme_rdma_seg *piece = &x->piece[at->piece];
        while (at->seg < piece->nseg) {
            const struct rme_sge *seg = &piece->seg[at->seg++];
            if (seg->length == 0)
                continue;
            run(l, at->move, piece->raddr + piece->rkey + at->ahead,
                bmi_elan4_at(l->f->nic, seg->base), seg->length);
            at->ahead += seg->length;
            at->move->unposted--;
            return true;
        }
    }
    return false;
}

/* Starts or continues a transfer.  Returns false if DMAs are left. */
static bool post(struct rme_link *l, struct elan_tx *tx)
{
    bool read = tx->x->read && tx->x->npiece;
    uint32_t n;

    if (read && !can_read(l))
        return false;
    if (tx->move == NULL && !begin(l, tx))
        return false;
    MEMBAR_VISIBLE();
    n = read ? reading(l) : 0;
    for (; (!read || n < ELAN_READS) && next_dma(l, tx); n++)
        if (!read && n % 512 == 511)
            bmi_elan4_flush(l->f->nic);
    if (read)
        compat_flush(l->reads);
    return tx->move->unposted == 0;
}

/* Returns true if all data of a transfer is posted, and its notification waits for earlier
 * transfers without one, whose DONE continues the queue. */
static bool waits(const struct rme_link *l, const struct elan_tx *tx)
{
    const struct elan_move *m;

    if (tx->move == NULL || tx->move->note == NULL || tx->move->unposted)
        return false;
    list_for_each(m, &l->moves, next)
        if (m->note == NULL)
            return true;
    return false;
}

/* Starts or continues a transfer.  Returns false if the transfer must wait. */
static bool issue(struct rme_link *l, struct elan_tx *tx)
{
    if (!post(l, tx) || waits(l, tx))
        return false;
    tx->move->let = true;
    elan4_set_event_cmd(l->f->nic->tx, bmi_elan4_at(l->f->nic, tx->move->data));
    return true;
}

/* ---- Completion ---- */

/* Replaces the notification by BREAK, and does the missing sets, without which the notification
 * has not been sent. */
static void complete(struct rme_fabric *f, struct elan_move *m, uint32_t missing)
{
    if (m->note != NULL)
        elan_tx_break(f, m->note);
    MEMBAR_VISIBLE();
    m->let = true;
    for (; missing; missing--)
        elan4_set_event_cmd(f->nic->tx, bmi_elan4_at(f->nic, m->data));
    bmi_elan4_flush(f->nic);
}

uint32_t elan_move_stuck(const struct elan_move *m)
{
    uint32_t refused = m->refused + (uint32_t)elan4_load64(m->unasked);

    return outstanding(m) == refused ? refused : 0;
}

void elan_moves_complete(struct rme_link *l)
{
    struct elan_move *m;

    list_for_each(m, &l->moves, next) {
        uint32_t refused = elan_move_stuck(m);
        if (refused) {
            m->refused = 0;
            compat_store(0, m->unasked);
            complete(l->f, m, refused);
        }
    }
}

/* Frees a transfer, nothing of which is in flight. */
static void free_move(struct rme_fabric *f, struct elan_move *m)
{
    m->let = false;
    if (m->note != NULL)
        elan_tx_give(f, m->note);
    m->note = NULL;
    list_add_head(&m->d.next, &f->free[ELAN_MOVE]);
}

void elan_move_done(struct rme_fabric *f, uint32_t index, uint32_t use)
{
    struct elan_move *m = index < f->nmove ? f->move[index] : NULL;
    struct rme_link *l = m != NULL ? m->link : NULL;

    if (m == NULL || !m->let || m->use != use)
        return;
    if (l != NULL) {
        list_del_init(&m->next);
        elan_share_give(&f->active, l->peer.vp);
        if (m->note != NULL)
            list_del_init(&m->note->next);
        else if (!list_empty(&l->queued))
            ELAN_ADD(l, dirty); /* a notification may have waited */
        if (l->state == ELAN_UP_STATE)
            elan_emit(f, RME_EV_RDMA_DONE, l)->rdma_op = m->x;
        else
            atomic_store(&f->hint, 1); /* the link may be down now */
    }
    m->let = false;
    m->link = NULL;
    if (m->reported) { /* perhaps falsely: a late set must not count for another transfer */
        if (l != NULL)
            elan_orphan(f, &m->d, false);
        return;
    }
    if (l == NULL)
        elan_orphan_over(f, &m->d);
    free_move(f, m);
}

/* Puts all transfers of a link that is down into quarantine. */
static void release_moves(struct rme_link *l)
{
    struct elan_move *m;

    elan_moves_complete(l);
    while ((m = list_first(&l->moves, struct elan_move, next)) != NULL) {
        list_del_init(&m->next);
        m->d.ended = m->x->read && elan_account_over(l->f, &l->peer);
        if (m->note != NULL)
            elan_tx_unshare(m->note);
        m->d.since = 0;
        m->link = NULL;
        m->x = NULL;
        elan_orphan(l->f, &m->d, true);
        elan_share_give(&l->f->active, l->peer.vp); /* in quarantine until DONE, if ever */
    }
}

/* ---- Queues ---- */

/* Returns true if this number of packets may get sequence numbers. */
static bool window_open(struct rme_link *l, uint32_t packets)
{
    const struct elan_tx *oldest = list_first(&l->sent, struct elan_tx, next);

    return oldest == NULL || l->next_seq + packets - oldest->seq <= ELAN_WINDOW;
}

/* Returns true for a transfer without notification, on which no order depends. */
static bool is_silent(const struct elan_tx *tx)
{
    return tx->x != NULL && tx->x->notify == RME_NOTIFY_NONE;
}

/* Removes an entry that is posted from the queue. */
static void posted(struct rme_link *l, struct elan_tx *tx)
{
    list_del_init(&tx->next);
    if (is_silent(tx)) {
        elan_tx_give(l->f, tx);
        return;
    }
    list_add_tail(&tx->next, &l->sent);
    ELAN_ADD(l, sending);
}

/* Posts as much as possible.  Returns false if something is left that no packet announces. */
static bool advance(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = list_first(&l->queued, struct elan_tx, next)) != NULL) {
        if (tx->move == NULL && !window_open(l, is_silent(tx) ? 0 : elan_packets(tx->length)))
            return false;
        if (tx->x == NULL)
            elan_tx_message(l, tx);
        else if (!issue(l, tx))
            return waits(l, tx);
        posted(l, tx);
    }
    return true;
}

void elan_op_flush(struct rme_fabric *f)
{
    struct rme_link *l, *after;

    if (list_empty(&f->dirty))
        return;
    list_for_each_safe(l, &f->dirty, dirty_next, after) {
        if (l->state != ELAN_DOWN_STATE && !advance(l)) {
            elan_check_soon(f);
            continue;
        }
        ELAN_REMOVE(l, dirty);
    }
    bmi_elan4_flush(f->nic);
    f->config.stats->value[RME_C_DOORBELLS]++;
}

/* ---- Landing ---- */

/* Returns true if the message has landed; DONE removes the message of a transfer.  The library
 * decides whether a set word is valid. */
bool elan_tx_over(const struct rme_fabric *f, const struct elan_tx *tx)
{
    return tx->move == NULL && elan4_load64(tx->landed) != 0 &&
           elan4_pollevent_word(f->nic->ctx, tx->landed, 0);
}

struct elan_tx *elan_tx_flying(const struct rme_link *l)
{
    struct elan_tx *tx;

    list_for_each(tx, &l->sent, next)
        if (tx->move == NULL && !elan_tx_over(l->f, tx))
            break;
    return tx;
}

bool elan_tx_waits(const struct rme_fabric *f, const struct elan_peer *to, int64_t then)
{
    const struct elan_dma *d;

    list_for_each(d, &f->orphans, next)
        if (!d->is_move && d->to.vp == to->vp && d->to.queue == to->queue && d->since <= then &&
            !elan_tx_over(f, (const struct elan_tx *)d))
            return true;
    return false;
}

static void landed_of(struct rme_link *l)
{
    struct elan_tx *tx, *after;

    list_for_each_safe(tx, &l->sent, next, after) {
        if (tx->move != NULL) /* it may never end, and what was sent after it has landed */
            continue;
        if (!elan_tx_over(l->f, tx))
            break;
        list_del_init(&tx->next);
        elan_tx_give(l->f, tx);
    }
    if (tx == NULL && list_empty(&l->moves))
        ELAN_REMOVE(l, sending);
}

/* Returns true if another process has been seen at that place for quarantine_ms: the interface
 * has retried everything for the predecessor meanwhile, so nothing of it is in flight. */
static bool succeeded(const struct rme_fabric *f, const struct elan_peer *p)
{
    const struct elan_account *o = &f->account[p->vp];

    return p->generation && o->generation != p->generation &&
           o->last - o->first >= f->quarantine_ms;
}

/* Returns true if no DMA of an orphan is in flight: the packet has landed, another
 * process has been in the context for long enough, or the reads were left to the interface of a
 * process that is dead. */
static bool is_over(const struct rme_fabric *f, const struct elan_dma *d, int64_t now)
{
    return (!d->is_move && elan_tx_over(f, (const struct elan_tx *)d)) ||
           (now - d->since >= f->quarantine_ms && (d->ended || succeeded(f, &d->to)));
}

/* Frees orphans that are over. */
static void sweep(struct rme_fabric *f, int64_t now)
{
    struct elan_dma *d, *then;

    list_for_each_safe(d, &f->orphans, next, then) {
        if (!is_over(f, d, now))
            continue;
        elan_orphan_over(f, d);
        if (d->is_move)
            free_move(f, (struct elan_move *)d);
        else
            elan_tx_give(f, (struct elan_tx *)d);
    }
}

void elan_tx_landed(struct rme_fabric *f)
{
    struct rme_link *l, *after;

    list_for_each_safe(l, &f->sending, sending_next, after)
        landed_of(l);
    if (f->polls % 64 == 0 || !list_empty(&f->wanting))
        sweep(f, (int64_t)rme_now());
    elan_tx_rooms(f);
}

void elan_tx_drop(struct rme_link *l, bool all)
{
    struct elan_tx *tx, *after;

    list_for_each_safe(tx, &l->queued, next, after) {
        if (tx->move != NULL) {
            complete(l->f, tx->move, tx->move->unposted + 1); /* with what is posted */
            posted(l, tx);
            continue;
        }
        list_del_init(&tx->next);
        elan_tx_give(l->f, tx);
    }
    ELAN_REMOVE(l, wanting);
    if (!all)
        return;
    while ((tx = list_first(&l->sent, struct elan_tx, next)) != NULL) {
        list_del_init(&tx->next);
        if (tx->move != NULL) /* it keeps the message until DONE */
            continue;
        elan_tx_unshare(tx);
        elan_orphan(l->f, &tx->d, true);
    }
    ELAN_REMOVE(l, sending);
    release_moves(l);
}

void elan_tx_close(struct rme_fabric *f)
{
    struct elan_dma *d, *then;

    /* the context frees their memory */
    list_move_all(&f->free[ELAN_TX], &f->orphans);
    list_for_each_safe(d, &f->orphans, next, then)
        if (!d->is_move)
            free(d);
    for (uint32_t i = 0; i < f->nmove; i++) {
        free(f->move[i]->note);
        free(f->move[i]);
    }
    free(f->move);
}
