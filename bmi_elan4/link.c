/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * link.c - table and states of links, and their receive buffers.
 *
 * Peers know a link by its number, which is another one for each use of a table entry.
 *
 * A link of the active side starts as HANDSHAKE, one of the passive side as REQUESTED; both
 * are UP until a side ends them.  In ENDING posted DMAs complete, BYE informs the peer that no
 * DMA to its memory is in flight, and the peer's BYE does the same for this side.  Only then is
 * the link DOWN, because nothing accesses the host's memory.
 *
 * BREAK takes the place of a notification whose data is not complete, and ends the link of the
 * peer.
 *
 * A dead peer sends no BYE, and DMAs to it never end.  A silent peer sends none either, and may
 * later write to memory that was opened to it, which cannot be prevented.  After
 * ELAN_DRAIN_MS the link is therefore `kept`: LINK_DOWN is withheld and the host's memory
 * stays in use until the peer sends BYE, is known to be dead, or quarantine_ms are over.
 *
 * Posted DMAs to a dead peer do not end while its context has no owner; their packets, events
 * and chains are orphans until they land.  Orphans are counted, and a node whose processes
 * have too many gets no new links; existing links need only their own.
 */
#include <errno.h>
#include <stdlib.h>

#include "bmi_elan4/elan.h"
#include "base/probe.h"

/* ---- Receive buffers ---- */

/* Frees up to n buffers.  Returns how many there were less. */
static uint32_t free_some(struct rme_link *l, uint32_t n)
{
    struct elan_rx *rx;

    for (; n && (rx = list_first(&l->rx_free, struct elan_rx, next)) != NULL; n--) {
        list_del_init(&rx->next);
        free(rx);
    }
    return n;
}

int elan_op_rx_reserve(struct rme_link *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct elan_rx *rx =
            aligned_alloc(64, (sizeof(*rx) + l->f->config.rx_size + 63) & ~(size_t)63);
        if (rx == NULL) {
            free_some(l, i);
            return -ENOMEM;
        }
        rx->link = l;
        list_add_head(&rx->next, &l->rx_free);
    }
    return 0;
}

void elan_op_rx_release(struct rme_link *l, uint32_t n)
{
    l->rx_debt += free_some(l, n); /* deducted from the buffers that are returned */
}

bool elan_op_rx_return(struct rme_fabric *f, void *token)
{
    struct elan_rx *rx = token;
    struct rme_link *l = rx->link;

    (void)f;
    if (l != NULL)
        list_del_init(&rx->next);
    if (l == NULL || l->state > ELAN_UP_STATE || l->rx_debt) {
        if (l != NULL && l->rx_debt)
            l->rx_debt--;
        free(rx);
        return true;
    }
    list_add_head(&rx->next, &l->rx_free);
    if (l->held[l->expected % ELAN_WINDOW] != NULL)
        ELAN_ADD(l, ready);
    return true;
}

/* Ends delivery, and frees packets and unused receive buffers; those held by the host remain
 * until returned.  Of the packets only BYE counts. */
static void close_rx(struct rme_link *l)
{
    for (unsigned i = 0; i < ELAN_WINDOW; i++) {
        if (l->held[i] == NULL)
            continue;
        l->bye_in |= l->held[i]->p.kind == ELAN_BYE;
        elan_share_give(&l->f->held, l->peer.vp);
        free(l->held[i]);
        l->held[i] = NULL;
    }
    ELAN_REMOVE(l, ready);
    free(l->filling);
    l->filling = NULL;
    free_some(l, UINT32_MAX);
}

/* ---- Links ---- */

struct rme_link *elan_link_new(struct rme_fabric *f)
{
    uint32_t index = 0, tries;
    struct rme_link *l;

    for (tries = 0; tries < ELAN_LINKS; tries++) {
        index = (f->next_index + tries) % ELAN_LINKS;
        if (f->table[index] == NULL)
            break;
    }
    l = tries < ELAN_LINKS ? calloc(1, sizeof(*l)) : NULL;
    if (l == NULL)
        return NULL;
    f->next_index = index + 1;
    f->uses = f->uses % 0xfffff + 1;
    l->f = f;
    l->state = ELAN_DOWN_STATE; /* until elan_link_step() */
    l->call.fd = -1;
    l->number = f->uses * ELAN_LINKS + index;
    f->table[index] = l;
    list_init(&l->at_host);
    list_init(&l->queued);
    list_init(&l->sent);
    list_init(&l->moves);
    list_init(&l->rx_at_host);
    list_init(&l->rx_free);
    list_add_tail(&l->all, &f->links);
    return l;
}

void elan_link_step(struct rme_link *l, enum elan_state state)
{
    rme_probe_fabric_link(l->number, (int)l->state, (int)state);
    l->state = state;
}

void elan_link_down(struct rme_link *l, int error)
{
    struct rme_fabric *f = l->f;
    enum elan_state was = l->state;

    if (was == ELAN_DOWN_STATE)
        return;
    if (was == ELAN_ENDING_STATE)
        list_del_init(&l->ending_next);
    bmi_elan4_query_end(&l->call);
    l->pause = 0;
    if (l->kept) {
        l->kept = false;
        f->config.stats->value[RME_C_QUARANTINED]--;
    }
    elan_link_step(l, ELAN_DOWN_STATE);
    if (!l->error)
        l->error = error;
    f->table[l->number % ELAN_LINKS] = NULL;
    if (l->passive && was != ELAN_REQUESTED_STATE)
        elan_share_give(&f->places, l->peer.vp);
    elan_tx_drop(l, true);
    close_rx(l);
    if (l->reads != NULL) /* requests that were not issued are dropped */
        compat_free_cmdq(f->nic->ctx, f->nic->alloc, l->reads);
    l->reads = NULL;
    if (l->reports & ELAN_REPORT_REQUEST) { /* not reported to the host */
        elan_op_free(l);
        return;
    }
    l->reports = 0; /* nothing else */
    elan_report_later(l, ELAN_REPORT_DOWN);
}

void elan_link_end(struct rme_link *l, int error)
{
    if (l->state == ELAN_ENDING_STATE || l->state == ELAN_DOWN_STATE)
        return;
    if (l->state == ELAN_REQUESTED_STATE)
        elan_tx_alone(l->f, &l->peer, ELAN_REJECT, 0, NULL, 0);
    if (l->state != ELAN_UP_STATE) {
        elan_link_down(l, error); /* a late answer finds no link */
        return;
    }
    l->error = error;
    elan_link_step(l, ELAN_ENDING_STATE);
    l->until = (int64_t)rme_now() + ELAN_DRAIN_MS;
    list_add_head(&l->ending_next, &l->f->ending);
    elan_tx_drop(l, false);
    close_rx(l);
}

void elan_link_bye(struct rme_link *l)
{
    l->bye_in = true;
    atomic_store(&l->f->hint, 1); /* the link may be down now */
    elan_link_end(l, -ECONNRESET);
}

void elan_link_broken(struct rme_link *l, const char *why)
{
    if (l->state == ELAN_ENDING_STATE) /* the peer may still write to local memory */
        return;
    elan_link_log(l, RME_LOG_WARN, "%s; connection aborted", why);
    elan_link_end(l, -EPROTO);
}

void elan_link_dead(struct rme_link *l)
{
    struct elan_account *o = &l->f->account[l->peer.vp];

    if (l->peer.generation && l->peer.generation == o->generation && !o->dead)
        o->dead = l->f->died = true;
    elan_link_down(l, l->state == ELAN_HANDSHAKE_STATE ? -ECONNREFUSED : -ECONNRESET);
}

void elan_op_free(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct elan_tx *tx;
    struct elan_rx *rx;

    while ((tx = list_first(&l->at_host, struct elan_tx, next)) != NULL) {
        list_del_init(&tx->next);
        elan_tx_give(f, tx);
    }
    while ((rx = list_first(&l->rx_at_host, struct elan_rx, next)) !=
           NULL) { /* held by the host */
        list_del_init(&rx->next);
        rx->link = NULL;
    }
    ELAN_REMOVE(l, eventful);
    ELAN_REMOVE(l, dirty);
    list_del_init(&l->all);
    free(l);
}
