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
        compat_free_main(f->nic->alloc, tx->at);
        compat_free_sdram(f->nic->alloc, tx->event);
        return -ENOMEM;
    }
    tx->landed = (volatile E4_uint64 *)(void *)(tx->at + all);
    compat_word_event(f->nic->ctx, tx->event, tx->landed);
    return 0;
}

/* Returns true if fewer than `most` exist besides orphans and spare ones. */
static bool may_make(const struct rme_fabric *f, uint32_t most)
{
    return f->tx_count - f->norphans - f->pool[ELAN_TX].spares < most;
}

static size_t tx_room(const struct rme_fabric *f)
{
    return f->config.rx_size > ELAN_HELLO_MAX ? f->config.rx_size : ELAN_HELLO_MAX;
}

/* Takes a buffer for packets to a process, or creates one, and charges it to the process until
 * elan_tx_give(); NULL: none. */
static struct elan_tx *take(struct rme_fabric *f, uint32_t most, unsigned vp,
                            uint64_t generation)
{
    struct elan_tx *tx = (struct elan_tx *)elan_pool_take(f, ELAN_TX, vp);

    if (!tx) {
        if (!may_make(f, most) || !(tx = calloc(1, sizeof(*tx))))
            return NULL;
        if (elan_tx_make(f, tx, tx_room(f)) < 0) {
            free(tx);
            return NULL;
        }
        f->tx_count++;
    }
    tx->d.vp = vp;
    tx->d.generation = generation;
    elan_account_charge(f, &tx->d);
    return tx;
}

/* Returns the index of a process's node in the range. */
static unsigned node_of(const struct rme_fabric *f, unsigned vp)
{
    const struct bmi_elan4_range *r = &f->nic->range;

    return vp / (unsigned)(r->high_context - r->low_context + 1);
}

void elan_tx_give(struct rme_fabric *f, struct elan_tx *tx)
{
    elan_account_give(f, &tx->d);
    if (tx->answer)
        elan_share_give(&f->answers, node_of(f, tx->d.vp));
    tx->answer = false;
    elan_pool_put(f, &tx->d);
}

/* ---- Buffers of the host ---- */

/* Returns true if the limits of the link and of the process permit one more buffer. */
static bool may_have(const struct rme_link *l)
{
    return l->state == ELAN_UP_STATE && l->tx_used < l->f->tx_per_link &&
           !elan_account_full(l->f, l->peer.vp, l->peer.generation);
}

void *elan_op_tx_get(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct elan_tx *tx =
        may_have(l) ? take(f, f->tx_most, l->peer.vp, l->peer.generation) : NULL;

    if (!tx) {
        /* a link that is down never gets a buffer again */
        if (l->state == ELAN_UP_STATE && !l->tx_wanted) {
            l->tx_wanted = true;
            f->wanting++;
            elan_look_soon(f);
        }
        return NULL;
    }
    l->tx_used++;
    TAILQ_INSERT_HEAD(&l->lent, tx, next);
    return tx->at + ELAN_HEADER;
}

void elan_tx_rooms(struct rme_fabric *f)
{
    struct rme_link *l;

    TAILQ_FOREACH(l, &f->links, all)
        if (l->tx_wanted && may_have(l) &&
            (!TAILQ_EMPTY(&f->pool[ELAN_TX].free) ||
             !LIST_EMPTY(&f->account[l->peer.vp].spare[ELAN_TX]) || may_make(f, f->tx_most))) {
            l->tx_wanted = false;
            f->wanting--;
            l->tell_room = true;
            ELAN_ADD(l, eventful);
        }
}

/* Takes a buffer back from the host; NULL: not held by the host. */
struct elan_tx *elan_tx_of(struct rme_link *l, void *data)
{
    struct elan_tx *tx;

    TAILQ_FOREACH(tx, &l->lent, next)
        if (tx->at + ELAN_HEADER == (uint8_t *)data)
            break;
    if (tx)
        TAILQ_REMOVE(&l->lent, tx, next);
    return tx;
}

void elan_op_tx_put(struct rme_link *l, void *data)
{
    struct elan_tx *tx = elan_tx_of(l, data);

    if (tx)
        elan_tx_unuse(l, tx);
}

/* Queues a message in the order of its link. */
static void queue_message(struct rme_link *l, struct elan_tx *tx, enum elan_kind kind,
                          uint32_t arg, size_t length)
{
    tx->kind = (uint8_t)kind;
    tx->length = (uint32_t)length;
    tx->arg = arg;
    tx->x = NULL;
    TAILQ_INSERT_TAIL(&l->queued, tx, next);
    ELAN_ADD(l, dirty);
}

void elan_op_tx_send(struct rme_link *l, void *data, size_t length)
{
    struct elan_tx *tx = elan_tx_of(l, data);

    if (!tx)
        return;
    if (l->state == ELAN_UP_STATE)
        queue_message(l, tx, ELAN_MESSAGE, (uint32_t)length, length);
    else
        elan_tx_unuse(l, tx);
}

/* ---- Packets ---- */

static uint8_t *packet_at(struct rme_link *l, struct elan_tx *tx, uint32_t i)
{
    return i == 0 ? tx->at
                  : tx->at + first_bytes(tx_room(l->f)) + (i - 1) * (size_t)BMI_ELAN4_SLOT;
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
                                .link = l->peer.number,
                                .to = l->peer.generation,
                                .seq = tx->seq + i,
                                .from = l->f->nic->vp,
                                .arg = tx->arg,
                                .offset = i * ELAN_BODY};
        elan_packet_encode(&p, at);
        if (i)
            memcpy(at + ELAN_HEADER, tx->at + ELAN_HEADER + (size_t)i * ELAN_BODY, p.bytes);
    }
}

void elan_tx_dma(struct rme_link *l, struct elan_tx *tx, uint32_t i, E4_Addr event,
                 uint64_t dma[7])
{
    dma[0] = E4_DMA_TYPE_SIZE(ELAN_HEADER + packet_bytes(tx, i), DMA_DataTypeByte,
                              DMA_QueueWrite, 16);
    dma[1] = compat_dma_cookie(l->f->nic->cookies, l->peer.vp);
    dma[2] = l->peer.vp;
    dma[3] = bmi_elan4_at(l->f->nic, packet_at(l, tx, i));
    dma[4] = 0;
    dma[5] = event;
    dma[6] = l->peer.queue;
}

/* Primes the event for the packets of a buffer. */
static void prime(struct rme_fabric *f, struct elan_tx *tx, E4_Addr queue, uint32_t packets)
{
    tx->d.queue = queue;
    tx->d.refused = 0;
    tx->d.since = 0;
    compat_store(0, tx->landed);
    compat_prime(f->nic->ctx, tx->event, (int)packets);
    f->config.stats->value[RME_C_SEND_REQUESTS] += packets;
}

/* Takes a buffer with an optional connection data, and data.  *bytes: of its body. */
static struct elan_tx *filled(struct rme_fabric *f, unsigned vp, uint64_t generation,
                              const struct bmi_elan4_conn_info *conn_info, const void *data,
                              size_t length, size_t *bytes)
{
    struct elan_tx *tx = take(f, UINT32_MAX, vp, generation);

    if (!tx)
        return NULL;
    *bytes = (conn_info ? sizeof(*conn_info) : 0) + length;
    if (conn_info)
        bmi_elan4_conn_info_encode(conn_info, tx->at + ELAN_HEADER);
    if (length)
        memcpy(tx->at + ELAN_HEADER + *bytes - length, data, length);
    return tx;
}

static int send_alone(struct rme_fabric *f, const struct elan_peer *to, enum elan_kind kind,
                      uint32_t arg, const struct bmi_elan4_conn_info *conn_info,
                      const void *data, size_t length, bool answer)
{
    size_t bytes;
    struct elan_tx *tx = filled(f, to->vp, to->generation, conn_info, data, length, &bytes);

    if (!tx)
        return -ENOMEM;
    struct elan_packet p = {.kind = (uint8_t)kind,
                            .bytes = (uint16_t)bytes,
                            .link = to->number,
                            .to = to->generation,
                            .from = f->nic->vp,
                            .arg = arg};
    elan_packet_encode(&p, tx->at);
    prime(f, tx, to->queue, 1);
    bmi_elan4_send(f->nic, to->vp, to->queue, tx->at, ELAN_HEADER + bytes, tx->event);
    bmi_elan4_flush(f->nic);
    tx->kind = p.kind;
    tx->answer = answer;
    elan_orphan(f, &tx->d, false);
    return 0;
}

int elan_tx_alone(struct rme_fabric *f, const struct elan_peer *to, enum elan_kind kind,
                  uint32_t arg, const struct bmi_elan4_conn_info *conn_info, const void *data,
                  size_t length)
{
    if (elan_account_dead(f, to->vp, to->generation))
        return 0;
    return elan_place_full(f, to->vp, 2)
               ? -ENOBUFS
               : send_alone(f, to, kind, arg, conn_info, data, length, false);
}

int elan_tx_answer(struct rme_fabric *f, const struct elan_peer *to, enum elan_kind kind,
                   uint32_t arg, const void *data, size_t length)
{
    if (elan_account_full(f, to->vp, to->generation) || elan_place_full(f, to->vp, 3))
        return -ENOBUFS;
    if (elan_account_dead(f, to->vp, to->generation))
        return 0;
    if (!elan_share_take(&f->answers, node_of(f, to->vp)))
        return -ENOBUFS;
    int rc = send_alone(f, to, kind, arg, NULL, data, length, true);
    if (rc < 0)
        elan_share_give(&f->answers, node_of(f, to->vp));
    return rc;
}

int elan_tx_control(struct rme_link *l, enum elan_kind kind, uint32_t arg,
                    const struct bmi_elan4_conn_info *conn_info, const void *data,
                    size_t length)
{
    size_t bytes;
    struct elan_tx *tx =
        filled(l->f, l->peer.vp, l->peer.generation, conn_info, data, length, &bytes);

    if (!tx)
        return -ENOMEM;
    l->tx_used++;
    queue_message(l, tx, kind, arg, bytes);
    return 0;
}

/* ---- Sending ---- */

void elan_tx_message(struct rme_link *l, struct elan_tx *tx)
{
    elan_tx_number(l, tx);
    prime(l->f, tx, l->peer.queue, tx->packets);
    for (uint32_t i = 0; i < tx->packets; i++)
        bmi_elan4_send(l->f->nic, l->peer.vp, l->peer.queue, packet_at(l, tx, i),
                       ELAN_HEADER + packet_bytes(tx, i), tx->event);
}
