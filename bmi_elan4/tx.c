/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tx.c - packets on their way out.
 *
 * Each link has a queue of messages and transfers in the order of the host's calls. What is at
 * its front is given a number, or as many as it has packets, and given to the interface; then
 * it is among the sent ones until it has landed in the peer's queue, which its event says. The
 * receiver puts packets into the order of their numbers, so it has to keep those that overtook
 * others: at most ELAN_WINDOW of them, as nothing is sent whose number is so far ahead of the
 * oldest that has not landed.
 *
 * Whoever a buffer is for has it in its account (owner.c) from its taking to its giving back.
 *
 * A DMA cannot be taken back. The memory of what has not landed when its link ends belongs to
 * nobody, among the orphans, until it lands or the context is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bmi_elan4/compat.h"
#include "bmi_elan4/elan.h"

uint32_t elan_packets(size_t length)
{
    return length <= ELAN_BODY ? 1 : (uint32_t)((length + ELAN_BODY - 1) / ELAN_BODY);
}

/* Where the packets behind the first are composed, and behind them the word. */
static size_t first_bytes(size_t bytes)
{
    return (ELAN_HEADER + bytes + 63) & ~(size_t)63;
}

int elan_tx_make(struct rme_fabric *f, struct elan_tx *tx, size_t bytes)
{
    size_t all = first_bytes(bytes) + (elan_packets(bytes) - 1) * (size_t)BMI_ELAN4_SLOT;

    tx->at = bmi_elan4_main(f->nic, 128, all + 64);
    tx->event = bmi_elan4_sdram(f->nic, 64, sizeof(E4_Event32));
    if (!tx->at || !tx->event) {
        elan_tx_unmake(f, tx);
        return -ENOMEM;
    }
    tx->landed = (volatile E4_uint64 *)(void *)(tx->at + all);
    compat_word_event(f->nic->ctx, tx->event, tx->landed);
    return 0;
}

void elan_tx_unmake(struct rme_fabric *f, struct elan_tx *tx)
{
    compat_free_main(f->nic->alloc, tx->at);
    compat_free_sdram(f->nic->alloc, tx->event);
}

/* A free one, made if there may be more. */
static struct elan_tx *find(struct rme_fabric *f, uint32_t most)
{
    struct elan_tx *tx = TAILQ_FIRST(&f->tx_free);

    if (tx) {
        TAILQ_REMOVE(&f->tx_free, tx, next);
        return tx;
    }
    if (f->tx_count - f->norphans >= most || !(tx = calloc(1, sizeof(*tx))))
        return NULL;
    if (elan_tx_make(f, tx,
                     f->config.rx_size > ELAN_HELLO_MAX ? f->config.rx_size : ELAN_HELLO_MAX) <
        0) {
        free(tx);
        return NULL;
    }
    f->tx_count++;
    return tx;
}

/* One for that process, which has it until elan_tx_give(). */
static struct elan_tx *take(struct rme_fabric *f, uint32_t most, unsigned vp,
                            uint64_t generation)
{
    struct elan_tx *tx = find(f, most);

    if (!tx)
        return NULL;
    tx->vp = vp;
    tx->generation = generation;
    elan_owner_charge(f, vp, generation);
    return tx;
}

void elan_tx_give(struct rme_fabric *f, struct elan_tx *tx)
{
    elan_owner_give(f, tx->vp, tx->generation);
    f->answers -= tx->answer;
    tx->answer = false;
    tx->link = NULL;
    TAILQ_INSERT_HEAD(&f->tx_free, tx, next);
}

/* ---- Buffers of the host ---- */

/* Whether the link may have one more. */
static bool may_have(const struct rme_link *l)
{
    return l->state == ELAN_UP_STATE && l->tx_used < l->f->tx_per_link &&
           !elan_owner_full(l->f, l->vp, l->generation);
}

void *elan_op_tx_get(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct elan_tx *tx = may_have(l) ? take(f, f->tx_most, l->vp, l->generation) : NULL;

    if (!tx) {
        if (!l->tx_wanted) {
            l->tx_wanted = true;
            f->wanting++;
        }
        return NULL;
    }
    tx->link = l;
    l->tx_used++;
    TAILQ_INSERT_HEAD(&l->lent, tx, next);
    return tx->at + ELAN_HEADER;
}

struct elan_tx *elan_tx_of(struct rme_link *l, void *data)
{
    struct elan_tx *tx;

    TAILQ_FOREACH(tx, &l->lent, next)
        if (tx->at + ELAN_HEADER == (uint8_t *)data)
            break;
    return tx;
}

/* One that belonged to the link is free again. */
static void used_no_more(struct rme_link *l, struct elan_tx *tx)
{
    elan_tx_give(l->f, tx);
    l->tx_used--;
}

/* Those who found none are told when there is one. */
static void tell_rooms(struct rme_fabric *f)
{
    struct rme_link *l;

    TAILQ_FOREACH(l, &f->links, all)
        if (l->tx_wanted && may_have(l) &&
            (!TAILQ_EMPTY(&f->tx_free) || f->tx_count - f->norphans < f->tx_most)) {
            l->tx_wanted = false;
            f->wanting--;
            l->tell_room = true;
            elan_link_eventful(l);
        }
}

void elan_op_tx_put(struct rme_link *l, void *data)
{
    struct elan_tx *tx = elan_tx_of(l, data);

    if (!tx)
        return;
    TAILQ_REMOVE(&l->lent, tx, next);
    used_no_more(l, tx);
}

void elan_op_tx_send(struct rme_link *l, void *data, size_t length)
{
    struct elan_tx *tx = elan_tx_of(l, data);

    if (!tx)
        return;
    TAILQ_REMOVE(&l->lent, tx, next);
    if (l->state != ELAN_UP_STATE) {
        used_no_more(l, tx);
        return;
    }
    tx->kind = ELAN_MESSAGE;
    tx->length = (uint32_t)length;
    tx->arg = (uint32_t)length;
    tx->x = NULL;
    TAILQ_INSERT_TAIL(&l->queued, tx, next);
    elan_link_dirty(l);
}

/* ---- Packets ---- */

static uint8_t *packet_at(struct rme_link *l, struct elan_tx *tx, uint32_t i)
{
    size_t room = l->f->config.rx_size > ELAN_HELLO_MAX ? l->f->config.rx_size : ELAN_HELLO_MAX;

    return i == 0 ? tx->at : tx->at + first_bytes(room) + (i - 1) * (size_t)BMI_ELAN4_SLOT;
}

static uint32_t packet_bytes(const struct elan_tx *tx, uint32_t i)
{
    uint32_t left = tx->length - i * ELAN_BODY;

    return left < ELAN_BODY ? left : ELAN_BODY;
}

void elan_tx_number(struct rme_link *l, struct elan_tx *tx)
{
    tx->packets = elan_packets(tx->length);
    tx->seq = l->next_seq;
    l->next_seq += tx->packets;
    for (uint32_t i = 0; i < tx->packets; i++) {
        uint8_t *at = packet_at(l, tx, i);
        struct elan_packet p = {.kind = tx->kind,
                                .bytes = (uint16_t)packet_bytes(tx, i),
                                .link = l->peer_number,
                                .to = l->generation,
                                .seq = tx->seq + i,
                                .from = l->f->nic->vp,
                                .arg = tx->arg,
                                .offset = i * ELAN_BODY};
        elan_packet_encode(&p, at);
        if (i)
            memcpy(at + ELAN_HEADER, tx->at + ELAN_HEADER + (size_t)i * ELAN_BODY, p.bytes);
    }
}

static void dma_to(struct rme_fabric *f, unsigned vp, E4_Addr queue, const uint8_t *at,
                   size_t bytes, E4_Addr event, uint64_t dma[7])
{
    dma[0] = E4_DMA_TYPE_SIZE(bytes, DMA_DataTypeByte, DMA_QueueWrite, 16);
    dma[1] = compat_dma_cookie(f->nic->cookies, vp);
    dma[2] = vp;
    dma[3] = bmi_elan4_at(f->nic, at);
    dma[4] = 0;
    dma[5] = event;
    dma[6] = queue;
}

void elan_tx_dma(struct rme_link *l, struct elan_tx *tx, uint32_t i, E4_Addr event,
                 uint64_t dma[7])
{
    dma_to(l->f, l->vp, l->queue, packet_at(l, tx, i), ELAN_HEADER + packet_bytes(tx, i), event,
           dma);
}

static void run(struct rme_fabric *f, const uint64_t dma[7])
{
    E4_DMA d = {dma[0], dma[1], dma[2], dma[3], dma[4], dma[5], dma[6]};

    elan4_run_dma_cmd(f->nic->tx, &d);
    f->config.stats->value[RME_C_SEND_REQUESTS]++;
}

static int send_alone(struct rme_fabric *f, unsigned vp, E4_Addr queue, struct elan_packet *p,
                      const struct bmi_elan4_card *card, const void *data, size_t length,
                      bool answer)
{
    size_t before = card ? BMI_ELAN4_CARD_BYTES : 0;
    uint64_t dma[7];

    if (elan_owner_dead(f, vp, p->to))
        return 0;
    struct elan_tx *tx = take(f, UINT32_MAX, vp, p->to);
    if (!tx)
        return -ENOMEM;
    if (card)
        bmi_elan4_card_encode(card, tx->at + ELAN_HEADER);
    if (length)
        memcpy(tx->at + ELAN_HEADER + before, data, length);
    p->bytes = (uint16_t)(before + length);
    p->from = f->nic->vp;
    elan_packet_encode(p, tx->at);
    tx->queue = queue;
    tx->since = elan_now();
    tx->refused = 0;
    elan4_store64(0, tx->landed);
    compat_prime(f->nic->ctx, tx->event, 1);
    MEMBAR_VISIBLE();
    dma_to(f, vp, queue, tx->at, ELAN_HEADER + p->bytes, bmi_elan4_at(f->nic, tx->event), dma);
    run(f, dma);
    bmi_elan4_flush(f->nic);
    tx->link = NULL;
    tx->answer = answer;
    f->answers += answer;
    TAILQ_INSERT_TAIL(&f->orphans, tx, next);
    f->norphans++;
    return 0;
}

int elan_tx_alone(struct rme_fabric *f, unsigned vp, E4_Addr queue, struct elan_packet *p,
                  const struct bmi_elan4_card *card, const void *data, size_t length)
{
    if (elan_place_full(f, vp) && !elan_owner_dead(f, vp, p->to))
        return -ENOBUFS;
    return send_alone(f, vp, queue, p, card, data, length, false);
}

int elan_tx_answer(struct rme_fabric *f, unsigned vp, E4_Addr queue, struct elan_packet *p,
                   const void *data, size_t length)
{
    if (f->answers >= f->kept_most / 2 || elan_owner_full(f, vp, p->to) ||
        elan_place_silent(f, vp))
        return -ENOBUFS;
    return send_alone(f, vp, queue, p, NULL, data, length, true);
}

int elan_tx_control(struct rme_link *l, enum elan_kind kind, uint32_t arg,
                    const struct bmi_elan4_card *card, const void *data, size_t length)
{
    struct elan_tx *tx = take(l->f, UINT32_MAX, l->vp, l->generation);
    size_t before = card ? BMI_ELAN4_CARD_BYTES : 0;

    if (!tx)
        return -ENOMEM;
    if (card)
        bmi_elan4_card_encode(card, tx->at + ELAN_HEADER);
    if (length)
        memcpy(tx->at + ELAN_HEADER + before, data, length);
    tx->link = l;
    tx->kind = (uint8_t)kind;
    tx->length = (uint32_t)(before + length);
    tx->arg = arg;
    tx->x = NULL;
    l->tx_used++;
    TAILQ_INSERT_TAIL(&l->queued, tx, next);
    elan_link_dirty(l);
    return 0;
}

/* ---- Sending ---- */

/* Whether numbers for so many packets may be given out. */
static bool window_open(struct rme_link *l, uint32_t packets)
{
    const struct elan_tx *oldest = TAILQ_FIRST(&l->sent);

    return !oldest || l->next_seq + packets - oldest->seq <= ELAN_WINDOW;
}

void elan_tx_sending(struct rme_link *l)
{
    if (l->sending)
        return;
    l->sending = true;
    TAILQ_INSERT_TAIL(&l->f->sending, l, sending_next);
}

static void sent(struct rme_link *l, struct elan_tx *tx)
{
    TAILQ_REMOVE(&l->queued, tx, next);
    TAILQ_INSERT_TAIL(&l->sent, tx, next);
    elan_tx_sending(l);
}

static void send_message(struct rme_link *l, struct elan_tx *tx)
{
    struct rme_fabric *f = l->f;
    E4_Addr event = bmi_elan4_at(f->nic, tx->event);
    uint64_t dma[7];

    elan_tx_number(l, tx);
    tx->since = 0;
    tx->queue = l->queue;
    tx->refused = 0;
    elan4_store64(0, tx->landed);
    compat_prime(f->nic->ctx, tx->event, (int)tx->packets);
    MEMBAR_VISIBLE();
    for (uint32_t i = 0; i < tx->packets; i++) {
        elan_tx_dma(l, tx, i, event, dma);
        run(f, dma);
    }
    sent(l, tx);
}

/* Packets of a transfer's notification. */
static uint32_t note_packets(const struct rme_xfer *x)
{
    return x->notify == RME_NOTIFY_MSG ? elan_packets(x->tx_length)
                                       : x->notify != RME_NOTIFY_NONE;
}

/* As much as is possible now. False: something is left. */
static bool advance(struct rme_link *l)
{
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->queued)) != NULL) {
        if (!tx->x) {
            if (!window_open(l, elan_packets(tx->length)))
                return false;
            send_message(l, tx);
            continue;
        }
        if (!tx->move && !window_open(l, note_packets(tx->x)))
            return false;
        if (!elan_move_issue(l, tx))
            return false;
        if (tx->x->notify != RME_NOTIFY_NONE) {
            sent(l, tx);
        } else { /* nobody's order waits for it */
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
        if (l->state != ELAN_DOWN_STATE && !advance(l))
            continue;
        TAILQ_REMOVE(&f->dirty, l, dirty_next);
        l->dirty = false;
    }
    if (!any)
        return;
    bmi_elan4_flush(f->nic);
    f->config.stats->value[RME_C_DOORBELLS]++;
}

/* ---- Landing ---- */

/* The library says when a word that is set is to be believed. */
static bool has_landed(const struct rme_fabric *f, const struct elan_tx *tx)
{
    return tx->x ? tx->over
                 : elan4_load64(tx->landed) != 0 &&
                       elan4_pollevent_word(f->nic->ctx, tx->landed, 0);
}

/* Packets that have not landed. */
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
            used_no_more(l, tx);
    }
    if (!tx && l->nmoves == 0) {
        l->sending = false;
        TAILQ_REMOVE(&l->f->sending, l, sending_next);
    }
}

/* It has landed, or was refused where it went, or the next owner of the context has been there
 * for long enough. */
static bool orphan_over(const struct rme_fabric *f, const struct elan_tx *tx, int64_t now)
{
    return has_landed(f, tx) || (tx->refused && tx->refused == under_way(f, tx)) ||
           (now - tx->since >= f->quarantine_ms && elan_succeeded(f, tx->vp, tx->generation));
}

void elan_tx_landed(struct rme_fabric *f)
{
    struct rme_link *l, *after;
    struct elan_tx *tx, *then;
    int64_t now = f->norphans && f->polls % 64 == 0 ? elan_now() : 0;

    for (l = TAILQ_FIRST(&f->sending); l; l = after) {
        after = TAILQ_NEXT(l, sending_next);
        landed_of(l);
    }
    if (f->polls % 64 == 0 || f->wanting)
        for (tx = TAILQ_FIRST(&f->orphans); tx; tx = then) {
            then = TAILQ_NEXT(tx, next);
            if (!orphan_over(f, tx, now))
                continue;
            TAILQ_REMOVE(&f->orphans, tx, next);
            f->norphans--;
            if (tx->kept)
                f->config.stats->value[RME_C_QUARANTINED]--;
            tx->kept = false;
            elan_tx_give(f, tx);
        }
    if (f->wanting)
        tell_rooms(f);
}

/*
 * A message lands when the peer's interface has it, whatever the peer's process does. So one
 * that does not land is one to a process that is not there, or whose queue stays full. A
 * transfer may take its time, and no time says that it will not end; if the peer is on this
 * node, the log does, else the host finds out when the peer answers no message.
 */
static void overdue(struct rme_link *l, int64_t now)
{
    struct elan_move *m = TAILQ_FIRST(&l->moves);
    struct elan_tx *tx;
    int64_t age = 0, move_age = 0;

    TAILQ_FOREACH(tx, &l->sent, next)
        if (!tx->x && !has_landed(l->f, tx))
            break;
    if (tx && !tx->since)
        tx->since = now;
    if (tx)
        age = now - tx->since;
    if (m && !m->since)
        m->since = now;
    if (m)
        move_age = now - m->since;
    if ((age < ELAN_LOOK_MS && move_age < ELAN_LOOK_MS) || now - l->looked < ELAN_LOOK_MS)
        return;
    l->looked = now;
    if (elan_link_orphaned(l))
        elan_link_dead(l);
    else if (age >= l->f->dead_ms)
        elan_link_silent(l, now);
    else if (age >= ELAN_ASK_MS || move_age >= ELAN_ASK_MS)
        elan_greet_ask(l, now);
}

void elan_tx_overdue(struct rme_fabric *f, int64_t now)
{
    struct rme_link *l, *after;

    for (l = TAILQ_FIRST(&f->sending); l; l = after) {
        after = TAILQ_NEXT(l, sending_next);
        overdue(l, now);
    }
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
            used_no_more(l, tx->note);
        if (tx->x)
            free(tx);
        else
            used_no_more(l, tx);
    }
    if (!all)
        return;
    while ((tx = TAILQ_FIRST(&l->sent)) != NULL) {
        TAILQ_REMOVE(&l->sent, tx, next);
        if (tx->x) {
            free(tx);
        } else {
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
    if (l->tx_wanted) {
        l->tx_wanted = false;
        l->f->wanting--;
    }
}

void elan_tx_close(struct rme_fabric *f)
{
    struct elan_txs *lists[] = {&f->tx_free, &f->orphans};
    struct elan_tx *tx;

    /* their memory goes with the context */
    for (unsigned i = 0; i < 2; i++)
        while ((tx = TAILQ_FIRST(lists[i])) != NULL) {
            TAILQ_REMOVE(lists[i], tx, next);
            free(tx);
        }
}
