/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Matching of messages with receives by (peer, tag), first in first out, in constant time
 * whatever the number of peers, receives and messages.  Receives and messages are rings of
 * nodes; this table knows nothing else of them.
 */
#ifndef RME_MATCH_H
#define RME_MATCH_H

#include <stdint.h>
#include "base/list.h"
#include "base/table.h"

struct rme_op;

/* What waits for one (peer, tag): receives or messages, never both.  It exists only while
 * something waits. */
struct rme_slot {
    struct rme_keyed keyed; /* in the table, or in the free list */
    struct rme_node recvs;
    struct rme_node messages;
    /* only in rme->holds: the send that those in `messages` wait for (send.c) */
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

/* -ENOMEM. */
int rme_match_init(struct rme_match *match);
/* The slots must be empty. */
void rme_match_clear(struct rme_match *match);

/* The slot of a key, or NULL. */
static inline struct rme_slot *rme_match_find(const struct rme_match *match, uint64_t key)
{
    struct rme_keyed *keyed = rme_table_find(&match->slots, key, 0);

    return keyed != NULL ? rme_entry(keyed, struct rme_slot, keyed) : NULL;
}
/* The same, made when it is not there; NULL: no memory. */
struct rme_slot *rme_match_get(struct rme_match *match, uint64_t key);
/* Call after taking something out: gives the slot back when it is empty. */
void rme_match_release(struct rme_match *match, struct rme_slot *slot);

#endif
