/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * link.c - table and states of links.
 *
 * Peers know a link by its number, which is another one for each use of a table entry.
 *
 * A link of the active side starts as HANDSHAKE, one of the passive side as REQUESTED; both
 * are UP until a side ends them.  In ENDING posted DMAs complete, BYE informs the peer that no
 * DMA to its memory is in flight, and the peer's BYE does the same for this side.  Only then is
 * the link DOWN, because nothing accesses the host's memory any more.
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

#include "bmi_elan4/compat.h"
#include "bmi_elan4/elan.h"
#include "base/probe.h"

struct rme_link *elan_link_new(struct rme_fabric *f)
{
    uint32_t index = 0, tries;

    for (tries = 0; tries < ELAN_LINKS; tries++) {
        index = (f->next_index + tries) % ELAN_LINKS;
        if (!f->table[index])
            break;
    }
    struct rme_link *l = tries < ELAN_LINKS ? calloc(1, sizeof(*l)) : NULL;
    if (!l)
        return NULL;
    f->next_index = index + 1;
    f->uses = f->uses % 0xfffff + 1;
    l->f = f;
    l->state = ELAN_DOWN_STATE; /* until elan_link_step() */
    l->call.fd = -1;
    l->number = f->uses * ELAN_LINKS + index;
    f->table[index] = l;
    TAILQ_INIT(&l->lent);
    TAILQ_INIT(&l->queued);
    TAILQ_INIT(&l->sent);
    TAILQ_INIT(&l->moves);
    LIST_INIT(&l->rx_lent);
    TAILQ_INSERT_TAIL(&f->links, l, all);
    return l;
}

struct rme_link *elan_link_of(struct rme_fabric *f, uint32_t number)
{
    struct rme_link *l = f->table[number % ELAN_LINKS];

    return l && l->number == number ? l : NULL;
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
        TAILQ_REMOVE(&f->ending, l, ending_next);
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
    elan_move_forget(l);
    elan_rx_close(l);
    if (l->reads) /* requests that were not issued are dropped */
        compat_free_cmdq(f->nic->ctx, f->nic->alloc, l->reads);
    compat_free_main(f->nic->alloc, (void *)l->read_mark);
    l->reads = NULL;
    l->read_mark = NULL;
    if (l->tell & ELAN_TELL_REQUEST) { /* not reported to the host */
        elan_op_free(l);
        return;
    }
    l->tell = 0; /* nothing else */
    elan_tell_later(l, ELAN_TELL_DOWN);
}

void elan_link_end(struct rme_link *l, int error)
{
    if (l->state == ELAN_ENDING_STATE || l->state == ELAN_DOWN_STATE)
        return;
    if (l->state != ELAN_UP_STATE) {
        elan_link_down(l, error);
        return;
    }
    l->error = error;
    elan_link_step(l, ELAN_ENDING_STATE);
    l->until = elan_now() + ELAN_DRAIN_MS;
    TAILQ_INSERT_HEAD(&l->f->ending, l, ending_next);
    elan_tx_drop(l, false);
    elan_rx_close(l);
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
    elan_account_died(l->f, &l->peer);
    elan_link_down(l, l->state == ELAN_ENDING_STATE      ? l->error
                      : l->state == ELAN_HANDSHAKE_STATE ? -ECONNREFUSED
                                                         : -ECONNRESET);
}

/* Returns true if the link has carried anything but ACCEPT. */
static bool was_used(const struct rme_link *l)
{
    return l->expected || l->next_seq > 1 || !TAILQ_EMPTY(&l->moves) ||
           l->state == ELAN_ENDING_STATE;
}

void elan_link_nobody(struct rme_link *l)
{
    if (was_used(l))
        elan_link_end(l, -ECONNRESET);
    else
        elan_link_down(l, -ECONNRESET);
}

void elan_op_free(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct elan_tx *tx;

    while ((tx = TAILQ_FIRST(&l->lent)) != NULL) {
        TAILQ_REMOVE(&l->lent, tx, next);
        elan_tx_give(f, tx);
    }
    elan_rx_forget(l);
    ELAN_REMOVE(l, eventful);
    ELAN_REMOVE(l, dirty);
    TAILQ_REMOVE(&f->links, l, all);
    free(l);
}

void elan_accounts_check(struct rme_fabric *f)
{
    struct rme_link *l, *after;

    f->died = false;
    for (l = TAILQ_FIRST(&f->links); l; l = after) {
        after = TAILQ_NEXT(l, all);
        if (l->state != ELAN_DOWN_STATE && elan_account_over(f, &l->peer))
            elan_link_dead(l);
    }
}
