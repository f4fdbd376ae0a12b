/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tx.c - packets: the buffers in which they are composed, and their DMAs.
 *
 * A buffer is charged to the account of its destination (account.c) from take() to
 * elan_tx_give().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bmi_elan4/elan.h"

/* Returns the offset of the second packet.  The word of the event is behind the last packet. */
static size_t first_bytes(size_t bytes)
{
    return (ELAN_HEADER + bytes + 63) & ~(size_t)63;
}

/* Makes a buffer; NULL: no memory. */
static struct elan_tx *make(struct rme_fabric *f)
{
    size_t all = first_bytes(f->tx_bytes) + (f->packets_max - 1) * (size_t)BMI_ELAN4_SLOT;
    struct elan_tx *tx = calloc(1, sizeof(*tx));

    if (tx == NULL)
        return NULL;
    tx->at = bmi_elan4_main(f->nic, 128, all + 64);
    tx->event = bmi_elan4_sdram(f->nic, 64, sizeof(E4_Event32));
    if (tx->at == NULL || tx->event == NULL) {
        compat_free_main(f->nic->alloc, tx->at);
        compat_free_sdram(f->nic->alloc, tx->event);
        free(tx);
        return NULL;
    }
    tx->landed = (volatile E4_uint64 *)(void *)(tx->at + all);
    elan4_initevent_write(f->nic->ctx, tx->event, tx->landed);
    f->tx_count++;
    return tx;
}

/* Takes a buffer for packets to a process, or creates one, and charges it to the process until
 * elan_tx_give(), and to the share, if any, which has one left; NULL: none. */
static struct elan_tx *take(struct rme_fabric *f, struct elan_share *share,
                            const struct elan_peer *to)
{
    struct elan_tx *tx = (struct elan_tx *)list_first(&f->free[ELAN_TX], struct elan_dma, next);

    if (tx != NULL)
        list_del_init(&tx->d.next);
    else if ((tx = make(f)) == NULL)
        return NULL;
    tx->kind = ELAN_MESSAGE;
    tx->x = NULL;
    tx->move = NULL;
    tx->d.to = *to;
    tx->d.share = share;
    if (share != NULL)
        elan_share_take(share, to->vp);
    elan_account_charge(f, &tx->d);
    return tx;
}

void elan_tx_unshare(struct elan_tx *tx)
{
    if (tx->d.share != NULL)
        elan_share_give(tx->d.share, tx->d.to.vp);
    tx->d.share = NULL;
}

void elan_tx_give(struct rme_fabric *f, struct elan_tx *tx)
{
    if (tx->event == NULL) {
        free(tx);
        return;
    }
    elan_account_give(f, &tx->d);
    elan_tx_unshare(tx);
    list_add_head(&tx->d.next, &f->free[ELAN_TX]);
}

/* ---- Buffers of the host ---- */

/* Returns true if the limits of the process and its node permit one more buffer. */
static bool may_have(const struct rme_link *l)
{
    return l->state == ELAN_UP_STATE && !elan_account_full(l->f, &l->peer) &&
           elan_share_left(&l->f->messages, l->peer.vp);
}

void *elan_op_tx_get(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct elan_tx *tx = may_have(l) ? take(f, &f->messages, &l->peer) : NULL;

    if (tx != NULL) {
        list_add_head(&tx->next, &l->at_host);
        return tx->at + ELAN_HEADER;
    }
    if (l->state == ELAN_UP_STATE) { /* a link that is down never gets a buffer again */
        ELAN_ADD(l, wanting);
        elan_check_soon(f);
    }
    return NULL;
}

void elan_tx_rooms(struct rme_fabric *f)
{
    struct rme_link *l, *after;

    list_for_each_safe(l, &f->wanting, wanting_next, after)
        if (may_have(l)) {
            ELAN_REMOVE(l, wanting);
            elan_report_later(l, ELAN_REPORT_ROOM);
        }
}

struct elan_tx *elan_tx_of(struct rme_link *l, const void *data, size_t length)
{
    struct elan_tx *tx = list_first(&l->at_host, struct elan_tx, next);

    while (tx->at + ELAN_HEADER != (const uint8_t *)data)
        tx = list_next(tx, &l->at_host, next);
    list_del_init(&tx->next);
    tx->length = tx->arg = (uint32_t)length;
    return tx;
}

void elan_op_tx_put(struct rme_link *l, void *data)
{
    elan_tx_give(l->f, elan_tx_of(l, data, 0));
}

void elan_tx_queue(struct rme_link *l, struct elan_tx *tx)
{
    if (l->state != ELAN_UP_STATE) {
        elan_tx_give(l->f, tx);
        return;
    }
    list_add_tail(&tx->next, &l->queued);
    ELAN_ADD(l, dirty);
}

void elan_op_tx_send(struct rme_link *l, void *data, size_t length)
{
    elan_tx_queue(l, elan_tx_of(l, data, length));
}

/* ---- Packets ---- */

static uint8_t *packet_at(const struct rme_fabric *f, struct elan_tx *tx, uint32_t i)
{
    return i == 0 ? tx->at
                  : tx->at + first_bytes(f->tx_bytes) + (i - 1) * (size_t)BMI_ELAN4_SLOT;
}

static uint32_t packet_bytes(const struct elan_tx *tx, uint32_t i)
{
    uint32_t left = tx->length - i * ELAN_BODY;

    return left < ELAN_BODY ? left : ELAN_BODY;
}

/* Writes the headers of a message's packets, from this sequence number on. */
static void compose(struct rme_fabric *f, const struct elan_peer *to, struct elan_tx *tx,
                    uint32_t seq)
{
    tx->packets = elan_packets(tx->length);
    tx->seq = seq;
    for (uint32_t i = 0; i < tx->packets; i++) {
        uint8_t *at = packet_at(f, tx, i);
        struct elan_packet p = {.kind = tx->kind,
                                .bytes = (uint16_t)packet_bytes(tx, i),
                                .link = to->number,
                                .to = to->generation,
                                .seq = seq + i,
                                .from = f->nic->vp,
                                .arg = tx->arg,
                                .offset = i * ELAN_BODY};
        elan_packet_encode(&p, at);
        if (i)
            memcpy(at + ELAN_HEADER, tx->at + ELAN_HEADER + (size_t)i * ELAN_BODY, p.bytes);
    }
}

void elan_tx_number(struct rme_link *l, struct elan_tx *tx)
{
    compose(l->f, &l->peer, tx, l->next_seq);
    l->next_seq += tx->packets;
}

void elan_tx_dma(struct rme_fabric *f, const struct elan_peer *to, struct elan_tx *tx,
                 uint32_t i, const volatile void *event, E4_DMA *dma)
{
    bmi_elan4_packet_dma(f->nic, to->vp, to->queue, packet_at(f, tx, i),
                         ELAN_HEADER + packet_bytes(tx, i), event, dma);
}

void elan_tx_break(struct rme_fabric *f, struct elan_tx *tx)
{
    for (uint32_t i = 0; i < tx->packets; i++)
        packet_at(f, tx, i)[offsetof(struct elan_packet, kind)] = ELAN_BREAK;
}

/* Posts a message's packets, from this sequence number on. */
static void post(struct rme_fabric *f, const struct elan_peer *to, struct elan_tx *tx,
                 uint32_t seq)
{
    E4_DMA dma;

    compose(f, to, tx, seq);
    tx->d.since = 0;
    compat_store(0, tx->landed);
    elan4_primeevent_write(f->nic->ctx, tx->event, (int)tx->packets);
    f->config.stats->value[RME_C_SEND_REQUESTS] += tx->packets;
    MEMBAR_VISIBLE();
    for (uint32_t i = 0; i < tx->packets; i++) {
        elan_tx_dma(f, to, tx, i, tx->event, &dma);
        elan4_run_dma_cmd(f->nic->tx, &dma);
    }
}

void elan_tx_message(struct rme_link *l, struct elan_tx *tx)
{
    post(l->f, &l->peer, tx, l->next_seq);
    l->next_seq += tx->packets;
}

/* Takes a buffer for a packet with data; HELLO and ACCEPT have the connection data before. */
static struct elan_tx *filled(struct rme_fabric *f, const struct elan_peer *to,
                              enum elan_kind kind, uint32_t arg, const void *data,
                              size_t length)
{
    struct elan_tx *tx = take(f, kind == ELAN_REJECT ? &f->answers : NULL, to);
    struct bmi_elan4_conn_info mine = f->conn_info;
    size_t bytes = kind == ELAN_HELLO || kind == ELAN_ACCEPT ? sizeof(mine) : 0;

    if (tx == NULL)
        return NULL;
    mine.wanted = to->vp;
    memcpy(tx->at + ELAN_HEADER, &mine, bytes);
    if (length)
        memcpy(tx->at + ELAN_HEADER + bytes, data, length);
    tx->kind = (uint8_t)kind;
    tx->length = (uint32_t)(bytes + length);
    tx->arg = arg;
    return tx;
}

int elan_tx_alone(struct rme_fabric *f, const struct elan_peer *to, enum elan_kind kind,
                  uint32_t arg, const void *data, size_t length)
{
    const struct elan_account *o = &f->account[to->vp];
    bool answer = kind == ELAN_REJECT;
    struct elan_tx *tx;

    if (o->dead && o->generation == to->generation)
        return -ECONNREFUSED;
    if (elan_place_full(f, to->vp, answer ? 3 : 2) ||
        (answer && (elan_account_full(f, to) || !elan_share_left(&f->answers, to->vp))))
        return -ENOBUFS;
    if ((tx = filled(f, to, kind, arg, data, length)) == NULL)
        return -ENOMEM;
    post(f, to, tx, 0);
    bmi_elan4_flush(f->nic);
    elan_orphan(f, &tx->d, false);
    return 0;
}

int elan_tx_control(struct rme_link *l, enum elan_kind kind, uint32_t arg, const void *data,
                    size_t length)
{
    struct elan_tx *tx = filled(l->f, &l->peer, kind, arg, data, length);
    const struct elan_tx *first = list_first(&l->queued, struct elan_tx, next);

    if (tx == NULL)
        return -ENOMEM;
    if (elan_kind_ordered(kind)) {
        list_add_tail(&tx->next, &l->queued);
        ELAN_ADD(l, dirty);
    } else {
        /* `sent` stays in the order of numbers, of which a notification that waits has one */
        post(l->f, &l->peer, tx,
             first != NULL && first->move != NULL && first->move->note != NULL ? first->seq
                                                                               : l->next_seq);
        bmi_elan4_flush(l->f->nic);
        list_add_tail(&tx->next, &l->sent);
        ELAN_ADD(l, sending);
    }
    return 0;
}
