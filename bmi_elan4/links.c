/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * links.c - the table of links.
 *
 * Peers know a link by its number, which is another one for each use of a table entry.  A peer
 * that makes and abandons links, each of which is kept for a while, gets at most its share of
 * the table, so that others find entries.  Buffers held by dead processes block new links with
 * their node only.
 */
#include <stdlib.h>

#include "bmi_elan4/elan.h"

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
    f->nonce[index] = (f->nonce[index] + 1) & 0xfffff;
    if (!f->nonce[index])
        f->nonce[index] = 1;
    l->f = f;
    l->state = ELAN_DOWN_STATE; /* until elan_link_step() */
    l->number = f->nonce[index] * ELAN_LINKS + index;
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

bool elan_owner_gone(struct rme_fabric *f, unsigned vp, uint64_t generation)
{
    uint64_t now = 0;
    int node, context;

    if (elan_owner_dead(f, vp, generation))
        return true;
    if (bmi_elan4_place(&f->nic->range, (int)vp, &node, &context) < 0 || node != f->nic->node)
        return false;
    int rc = bmi_elan4_log_owner(f->nic->log, context, &now);
    return rc == 0 || (rc > 0 && now != generation);
}

bool elan_link_orphaned(struct rme_link *l)
{
    return elan_owner_gone(l->f, l->vp, l->generation);
}

static uint32_t beyond(uint32_t n, uint32_t most)
{
    return n > most ? n - most : 0;
}

/* Returns the number of buffers of unfinished DMAs, with spare ones beyond their limit. */
static uint32_t kept_buffers(const struct rme_fabric *f)
{
    return f->norphans + f->kept_moves + beyond(f->tx_spares, f->spares_most) +
           beyond(f->move_spares, f->spares_most);
}

static bool is_of(const struct rme_fabric *f, unsigned vp, int node)
{
    int of, context;

    return bmi_elan4_place(&f->nic->range, (int)vp, &of, &context) == 0 && of == node;
}

/* Returns how many of those belong to one node's processes; spare ones count if beyond their
 * limit. */
static uint32_t kept_for(const struct rme_fabric *f, int node)
{
    const struct elan_tx *tx;
    const struct elan_move *m;
    uint32_t n = 0;

    TAILQ_FOREACH(tx, &f->orphans, next)
        n += is_of(f, tx->vp, node);
    for (uint32_t i = 0; i < f->nmove; i++)
        n += f->move[i]->kept && is_of(f, f->move[i]->vp, node);
    if (f->tx_spares > f->spares_most)
        TAILQ_FOREACH(tx, &f->tx_spare, next)
            n += is_of(f, tx->vp, node);
    if (f->move_spares > f->spares_most)
        TAILQ_FOREACH(m, &f->move_spare, next)
            n += is_of(f, m->vp, node);
    return n;
}

bool elan_kept_full(struct rme_fabric *f, int node, const struct bmi_elan4_card *theirs)
{
    int64_t now = elan_now();
    uint32_t kept = kept_buffers(f) < f->kept_most ? 0 : kept_for(f, node);
    bool all = kept >= f->kept_most;

    if (!all && !(theirs && (elan_place_full(f, theirs->vp) ||
                             elan_owner_full(f, theirs->vp, theirs->generation))))
        return false;
    if (f->kept_said && now - f->kept_said < 1000)
        return true;
    f->kept_said = now;
    if (all)
        elan_log(
            f, RME_LOG_ERROR,
            "node %d: no new connections: %u buffers wait for DMAs to this node, most likely "
            "to processes that are gone; restart this process, or raise elan_tx_buffers",
            node, kept);
    else
        elan_log(f, RME_LOG_WARN,
                 "process %u: no connection: neither this process nor its predecessors in the "
                 "context accept messages",
                 theirs->vp);
    return true;
}
