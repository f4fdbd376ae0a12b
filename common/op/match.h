/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Matches messages with receives, and sends with the send that holds their tag, by (peer, tag),
 * first in first out, in constant time. */
#ifndef RME_MATCH_H
#define RME_MATCH_H

#include <stdint.h>
#include "base/list.h"
#include "base/table.h"

/* A receive, message or send.  The oldest one of a key is a node of the table; the others form
 * a ring with it, in order. */
struct rme_match {
    struct rme_keyed keyed; /* at: NULL unless the oldest of its key */
    struct list_head same;
    bool is_message;
};

static inline uint64_t rme_match_key(uint32_t peer, int32_t tag)
{
    return (uint64_t)peer << 32 | (uint32_t)tag;
}

static inline bool rme_match_is_first(const struct rme_match *match)
{
    return match->keyed.at != NULL;
}

static inline bool rme_match_is_in(const struct rme_match *match)
{
    return rme_match_is_first(match) || !list_empty(&match->same);
}

/* Returns the oldest member of a key of RME_BY_TAG or RME_BY_BLOCKED_TAG; NULL: none. */
static inline struct rme_match *rme_match_first(const struct rme_table *table, uint64_t key,
                                                uint32_t kind)
{
    struct rme_keyed *keyed = rme_table_find(table, key, kind);

    return keyed != NULL ? container_of(keyed, struct rme_match, keyed) : NULL;
}

/* Adds a member of the key of `first`, which rme_match_first() has returned for it. */
static inline void rme_match_add(struct rme_table *table, struct rme_match *first, uint64_t key,
                                 uint32_t kind, struct rme_match *match)
{
    if (first == NULL)
        rme_table_put(table, &match->keyed, key, kind);
    else
        list_add_tail(&match->same, &first->same);
}

/* Removes the oldest member of a key that has others.  Returns the next one, now the oldest. */
struct rme_match *rme_match_succeed(struct rme_match *match);

static inline void rme_match_remove(struct rme_table *table, struct rme_match *match)
{
    if (!rme_match_is_first(match)) {
        list_del_init(&match->same);
    } else if (!list_empty(&match->same)) {
        rme_match_succeed(match);
    } else {
        rme_table_take(table, &match->keyed);
    }
}

#endif
