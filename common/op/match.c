/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>

#include "op/match.h"

#define CHAINS_FIRST 256u
#define FREE_MAX     1024u /* slots kept for reuse */

int rme_match_init(struct rme_match *match)
{
    match->free = NULL;
    match->nfree = 0;
    return rme_table_init(&match->slots, CHAINS_FIRST);
}

static struct rme_slot *take_free(struct rme_match *match)
{
    struct rme_keyed *keyed = match->free;

    if (keyed == NULL)
        return NULL;
    match->free = keyed->next;
    match->nfree--;
    return rme_entry(keyed, struct rme_slot, keyed);
}

void rme_match_clear(struct rme_match *match)
{
    struct rme_slot *slot;

    while ((slot = take_free(match)) != NULL)
        free(slot);
    rme_table_clear(&match->slots);
}

struct rme_slot *rme_match_get(struct rme_match *match, uint64_t key)
{
    struct rme_slot *slot = rme_match_find(match, key);

    if (slot != NULL)
        return slot;
    slot = take_free(match);
    if (slot == NULL)
        slot = malloc(sizeof(*slot));
    if (slot == NULL)
        return NULL;
    rme_node_init(&slot->recvs);
    rme_node_init(&slot->messages);
    rme_table_put(&match->slots, &slot->keyed, key, 0);
    return slot;
}

void rme_match_release(struct rme_match *match, struct rme_slot *slot)
{
    if (!rme_node_alone(&slot->recvs) || !rme_node_alone(&slot->messages))
        return;
    rme_table_take(&match->slots, &slot->keyed);
    if (match->nfree >= FREE_MAX) {
        free(slot);
        return;
    }
    slot->keyed.next = match->free;
    match->free = &slot->keyed;
    match->nfree++;
}
