/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Matches messages with receives by (peer, tag), first in first out, in constant time.
 * Receives and messages are rings of nodes, otherwise opaque to this table. */
#ifndef RME_MATCH_H
#define RME_MATCH_H

#include <stdint.h>
#include "base/list.h"
#include "base/table.h"

struct rme_op;

/* Receives or messages, never both, that wait for one (peer, tag).  The slot is released when
 * both rings are empty. */
struct rme_slot {
    struct rme_keyed keyed; /* in the table or the free list */
    struct rme_node recvs;
    struct rme_node messages;
    /* in rme->protocols->holds only: the send that the sends in `messages` wait for (send.c) */
    struct rme_op *holder;
};

struct rme_match {
    struct rme_table slots;
    struct rme_keyed *free;
    uint32_t nfree;
};

static inline uint64_t rme_match_key(uint32_t peer, int32_t tag)
{
    return (uint64_t)peer << 32 | (uint32_t)tag;
}

/* Returns 0 or -ENOMEM. */
int rme_match_init(struct rme_match *match);
/* Frees the unused slots.  All slots must have been released. */
void rme_match_clear(struct rme_match *match);

/* Returns the slot of a key; NULL: none. */
static inline struct rme_slot *rme_match_find(const struct rme_match *match, uint64_t key)
{
    struct rme_keyed *keyed = rme_table_find(&match->slots, key, 0);

    return keyed != NULL ? rme_entry(keyed, struct rme_slot, keyed) : NULL;
}
/* Returns the slot of a key, and creates a missing one; NULL: no memory. */
struct rme_slot *rme_match_get(struct rme_match *match, uint64_t key);
/* Releases the slot if it is empty.  Called after each removal. */
void rme_match_release(struct rme_match *match, struct rme_slot *slot);

#endif
