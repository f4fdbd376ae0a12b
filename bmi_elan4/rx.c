/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rx.c - received packets, in order.
 *
 * A packet is removed from its slot immediately, because all links share the queue.  The next
 * packet of a link is delivered from the slot; a packet that overtook others is copied and held
 * until they arrive.  The bodies of a message are assembled in a receive buffer of the link; a
 * peer that exceeds its credits finds none, and its packets wait until one is returned.
 *
 * Peers write to the memory of slots, so values are copied once before they are checked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bmi_elan4/elan.h"

/* Handles a fragment of a message.  Returns false if the fragment must wait for a buffer, or
 * for room for its event. */
static bool message(struct rme_link *l, const struct elan_packet *p, const uint8_t *body)
{
    bool last = p->offset + p->bytes == p->arg;
    struct elan_rx *rx;
    struct rme_event *e;

    if (l->state != ELAN_UP_STATE)
        return true; /* no longer needed */
    if (last && !elan_room(l->f))
        return false;
    if (p->arg > l->f->config.rx_size || p->offset != (l->filling != NULL ? l->filled : 0) ||
        (p->bytes == 0 && p->arg)) {
        elan_link_broken(l, "a fragment beyond its message");
        return true;
    }
    if (l->filling == NULL) {
        l->filling = list_first(&l->rx_free, struct elan_rx, next);
        if (l->filling == NULL)
            return false;
        list_del_init(&l->filling->next);
        l->filled = 0;
    }
    memcpy(l->filling->data + p->offset, body, p->bytes);
    l->filled += p->bytes;
    if (!last)
        return true;
    rx = l->filling;
    e = elan_emit(l->f, RME_EV_RECV, l);
    e->data = rx->data;
    e->length = p->arg;
    e->rx = rx;
    list_add_head(&rx->next, &l->rx_at_host);
    l->filling = NULL;
    return true;
}

/* Delivers a packet in order.  Returns false if the packet must wait.  Packets that arrive
 * together with the answer to the connection request are delivered after LINK_UP. */
static bool deliver(struct rme_link *l, const struct elan_packet *p, const uint8_t *body)
{
    if (l->reports & ELAN_REPORT_UP)
        elan_report(l);
    if (l->reports & ELAN_REPORT_UP)
        return false;
    switch (p->kind) {
    case ELAN_ACCEPT:
        elan_handshake_packet(l->f, l, p, body);
        return true;
    case ELAN_MESSAGE:
        return message(l, p, body);
    case ELAN_IMM:
        if (l->state != ELAN_UP_STATE)
            return true;
        if (!elan_room(l->f))
            return false;
        elan_emit(l->f, RME_EV_IMM, l)->imm = p->arg;
        return true;
    case ELAN_BREAK:
        elan_link_end(l, -ECONNRESET);
        return true;
    default: /* BYE */
        elan_link_bye(l);
        return true;
    }
}

static void deliver_held(struct rme_link *l)
{
    struct elan_held **at, *h;

    while ((h = *(at = &l->held[l->expected % ELAN_WINDOW])) != NULL) {
        *at = NULL; /* the end of the link frees all others */
        if (!deliver(l, &h->p, h->body)) {
            *at = h;
            if (!elan_room(l->f))
                ELAN_ADD(l, ready);
            return;
        }
        free(h);
        elan_share_give(&l->f->held, l->peer.vp);
        l->expected++;
    }
}

void elan_rx_ready(struct rme_fabric *f)
{
    struct rme_link *l;

    while (elan_room(f) && (l = list_first(&f->ready, struct rme_link, ready_next)) != NULL) {
        ELAN_REMOVE(l, ready);
        deliver_held(l);
    }
}

static void hold(struct rme_link *l, const struct elan_packet *p, const uint8_t *body)
{
    struct elan_held *h;

    if (l->held[p->seq % ELAN_WINDOW] != NULL) {
        elan_link_broken(l, "a duplicate packet");
        return;
    }
    h = elan_share_left(&l->f->held, l->peer.vp) ? malloc(sizeof(*h) + p->bytes) : NULL;
    if (h == NULL) { /* later packets cannot be delivered in order */
        elan_link_end(l, -ENOMEM);
        if (p->kind == ELAN_BYE)
            elan_link_bye(l);
        return;
    }
    elan_share_take(&l->f->held, l->peer.vp);
    l->held[p->seq % ELAN_WINDOW] = h;
    h->p = *p;
    memcpy(h->body, body, p->bytes);
}

static void in_order(struct rme_link *l, const struct elan_packet *p, const uint8_t *body)
{
    uint32_t ahead = p->seq - l->expected;

    if (l->state == ELAN_ENDING_STATE) { /* nothing is delivered */
        if (p->kind == ELAN_BYE)
            elan_link_bye(l);
        return;
    }
    if (ahead >= ELAN_WINDOW) {
        elan_link_broken(l, "a packet with an invalid sequence number");
        return;
    }
    if (ahead == 0 && l->held[p->seq % ELAN_WINDOW] == NULL && deliver(l, p, body)) {
        l->expected++;
        deliver_held(l);
        return;
    }
    hold(l, p, body);
    if (ahead == 0)
        deliver_held(l);
}

static void dispatch(struct rme_fabric *f, const uint8_t *slot)
{
    uint8_t head[ELAN_HEADER];
    struct elan_packet p;
    struct rme_link *l;

    memcpy(head, slot, sizeof(head));
    if (elan_packet_decode(head, &p) < 0) {
        elan_log(f, RME_LOG_WARN, "packet of unknown format dropped");
        return;
    }
    if (p.kind == ELAN_HELLO) {
        elan_handshake_packet(f, NULL, &p, slot + ELAN_HEADER);
        return;
    }
    if (p.to != f->nic->generation)
        return; /* for an earlier owner of the context */
    if (p.kind == ELAN_DONE) {
        if (p.from == f->nic->vp) /* another process's DONE says nothing about transfers here */
            elan_move_done(f, p.arg, p.seq);
        return;
    }
    l = f->table[p.link % ELAN_LINKS];
    if (l != NULL && l->number != p.link)
        l = NULL;
    /* a peer without an answer has no local number; and the host may answer due to the event of
     * this poll */
    if (l != NULL && (p.from != l->peer.vp || l->state == ELAN_REQUESTED_STATE))
        return;
    if (l != NULL && f->norphans + f->kept_moves && l->has_hello &&
        !elan_account_over(f, &l->peer))
        elan_see(f, &l->peer);
    if (l == NULL || !elan_kind_ordered(p.kind))
        elan_handshake_packet(f, l, &p, slot + ELAN_HEADER);
    else
        in_order(l, &p, slot + ELAN_HEADER);
}

void elan_rx_take(struct rme_fabric *f)
{
    const void *slot;

    while (elan_room(f) && (slot = bmi_elan4_inbox_peek(f->inbox)) != NULL) {
        dispatch(f, slot);
        bmi_elan4_inbox_next(f->inbox);
    }
}
