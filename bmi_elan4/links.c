/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * links.c - the table of links.
 *
 * Links are known to peers by a number, of which each use of a place in the table has another.
 * A peer that makes links and leaves them, each of which is kept for a while, takes no more
 * than its share of the table, so that others find places.
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
    l->state = ELAN_DOWN_STATE; /* until elan_link_step */
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
    struct bmi_elan4_owner owner;
    int node, context;

    if (elan_owner_dead(f, vp, generation))
        return true;
    if (bmi_elan4_place(&f->nic->range, (int)vp, &node, &context) < 0 || node != f->nic->node)
        return false;
    int rc = bmi_elan4_log_owner(f->nic->log, context, &owner);
    return rc == 0 || (rc > 0 && owner.generation != generation);
}

bool elan_link_orphaned(struct rme_link *l)
{
    return elan_owner_gone(l->f, l->vp, l->generation);
}

static uint32_t beyond(uint32_t n, uint32_t most)
{
    return n > most ? n - most : 0;
}

/* Of DMAs that have not ended, with spare ones beyond what there may be of them. */
static uint32_t kept_buffers(const struct rme_fabric *f)
{
    return f->norphans + f->kept_moves + beyond(f->tx_spares, f->spares_most) +
           beyond(f->move_spares, f->spares_most);
}

bool elan_kept_full(struct rme_fabric *f, const struct bmi_elan4_card *theirs)
{
    int64_t now = elan_now();
    uint32_t kept = kept_buffers(f);
    bool all = kept >= f->kept_most;

    if (!all && !(theirs && (elan_place_full(f, theirs->vp) ||
                             elan_owner_full(f, theirs->vp, theirs->generation))))
        return false;
    if (f->kept_said && now - f->kept_said < 1000)
        return true;
    f->kept_said = now;
    if (all)
        elan_log(f, RME_LOG_ERROR,
                 "no new connections: %u buffers wait for DMAs, most likely to processes that "
                 "are gone; start this process anew, or raise elan_tx_buffers",
                 kept);
    else
        elan_log(f, RME_LOG_WARN,
                 "no connection with process %u: it, and those that had its context before, "
                 "take no messages",
                 theirs->vp);
    return true;
}
