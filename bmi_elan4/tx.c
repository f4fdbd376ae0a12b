/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tx.c - packets: the buffers in which they are composed, and their DMAs.
 *
 * A buffer is charged to the account of its destination (owner.c) from take() to
 * elan_tx_give().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bmi_elan4/compat.h"
#include "bmi_elan4/elan.h"

/* Returns the offset of the second packet.  The word of the event is behind the last packet. */
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

/* Takes a free buffer, or creates one if fewer than `most` exist besides orphans and spare
 * buffers; NULL: none. */
static struct elan_tx *find(struct rme_fabric *f, uint32_t most)
{
    struct elan_tx *tx = TAILQ_FIRST(&f->tx_free);

    if (tx) {
        TAILQ_REMOVE(&f->tx_free, tx, next);
        return tx;
    }
    if (f->tx_count - f->norphans - f->tx_spares >= most || !(tx = calloc(1, sizeof(*tx))))
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

static void unlist_spare(struct rme_fabric *f, struct elan_tx *tx)
{
    TAILQ_REMOVE(&f->tx_spare, tx, next);
    LIST_REMOVE(tx, at_place);
    f->tx_spares--;
}

void elan_tx_spare(struct rme_fabric *f, struct elan_tx *tx)
{
    struct elan_tx *old;

    TAILQ_INSERT_TAIL(&f->tx_spare, tx, next);
    LIST_INSERT_HEAD(&f->owner[tx->vp].tx, tx, at_place);
    if (++f->tx_spares <= f->spares_most)
        return;
    TAILQ_FOREACH(old, &f->tx_spare, next)
        if (elan_succeeded(f, old->vp, old->lost)) {
            unlist_spare(f, old);
            old->bound = false;
            TAILQ_INSERT_HEAD(&f->tx_free, old, next);
            return;
        }
}

/* Takes a buffer for packets to a process and charges it to the process until elan_tx_give();
 * NULL: none. */
static struct elan_tx *take(struct rme_fabric *f, uint32_t most, unsigned vp,
                            uint64_t generation)
{
    struct elan_tx *tx = LIST_FIRST(&f->owner[vp].tx);

    if (tx)
        unlist_spare(f, tx);
    else if (!(tx = find(f, most)))
        return NULL;
    tx->vp = vp;
    tx->generation = generation;
    elan_owner_charge(f, vp, generation);
    return tx;
}

/* ---- Buffers of the host ---- */

/* Returns true if the limits of the link and of the process permit one more buffer. */
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
        /* a link that is down never gets a buffer again */
        if (l->state == ELAN_UP_STATE && !l->tx_wanted) {
            l->tx_wanted = true;
            f->wanting++;
            elan_look_soon(f);
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

void elan_tx_rooms(struct rme_fabric *f)
{
    struct rme_link *l;

    TAILQ_FOREACH(l, &f->links, all)
        if (l->tx_wanted && may_have(l) &&
            (!TAILQ_EMPTY(&f->tx_free) || !LIST_EMPTY(&f->owner[l->vp].tx) ||
             f->tx_count - f->norphans - f->tx_spares < f->tx_most)) {
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
    elan_tx_unuse(l, tx);
}

void elan_op_tx_send(struct rme_link *l, void *data, size_t length)
{
    struct elan_tx *tx = elan_tx_of(l, data);

    if (!tx)
        return;
    TAILQ_REMOVE(&l->lent, tx, next);
    if (l->state != ELAN_UP_STATE) {
        elan_tx_unuse(l, tx);
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

    compat_run_dma(f->nic->tx, &d);
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
    compat_store(0, tx->landed);
    compat_prime(f->nic->ctx, tx->event, 1);
    MEMBAR_VISIBLE();
    dma_to(f, vp, queue, tx->at, ELAN_HEADER + p->bytes, bmi_elan4_at(f->nic, tx->event), dma);
    run(f, dma);
    bmi_elan4_flush(f->nic);
    tx->link = NULL;
    tx->kind = (uint8_t)p->kind;
    tx->answer = answer;
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
    if (elan_owner_full(f, vp, p->to) || elan_place_silent(f, vp))
        return -ENOBUFS;
    if (elan_owner_dead(f, vp, p->to))
        return 0;
    if (!elan_share_take(&f->answers, elan_node_of(f, vp)))
        return -ENOBUFS;
    int rc = send_alone(f, vp, queue, p, NULL, data, length, true);
    if (rc < 0)
        elan_share_give(&f->answers, elan_node_of(f, vp));
    return rc;
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

void elan_tx_message(struct rme_link *l, struct elan_tx *tx)
{
    struct rme_fabric *f = l->f;
    E4_Addr event = bmi_elan4_at(f->nic, tx->event);
    uint64_t dma[7];

    elan_tx_number(l, tx);
    tx->since = 0;
    tx->queue = l->queue;
    tx->refused = 0;
    compat_store(0, tx->landed);
    compat_prime(f->nic->ctx, tx->event, (int)tx->packets);
    MEMBAR_VISIBLE();
    for (uint32_t i = 0; i < tx->packets; i++) {
        elan_tx_dma(l, tx, i, event, dma);
        run(f, dma);
    }
}
