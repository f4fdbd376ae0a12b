/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A hash table with chains, of nodes that are kept inside what they find.  It grows by doubling
 * when it has more nodes than chains; when there is no memory to grow, chains get longer and
 * nothing fails.
 */
#ifndef RME_TABLE_H
#define RME_TABLE_H

#include <stdint.h>
#include <stddef.h>

/* What is found by (key, kind). */
struct rme_keyed {
    struct rme_keyed *next; /* in its chain */
    struct rme_keyed **at;  /* what points to this one */
    uint64_t key;
    uint32_t kind;
};

struct rme_table {
    struct rme_keyed **chain;
    uint32_t mask;   /* chains - 1 */
    uint32_t used;   /* nodes */
    uint64_t factor; /* odd, and drawn: nobody can choose keys that share a chain */
};

/* -ENOMEM.  `chains` is a power of 2. */
int rme_table_init(struct rme_table *table, uint32_t chains);
/* The nodes are the caller's. */
void rme_table_clear(struct rme_table *table);

/* More chains, if there is memory for them. */
void rme_table_grow(struct rme_table *table);

/* Its chain.  For a drawn odd factor the bits above the 32nd of the product are a universal
 * hash: any two keys share one of N chains with a probability of 2/N at most. */
static inline uint32_t rme_table_hash(const struct rme_table *table, uint64_t key,
                                      uint32_t kind)
{
    key += (uint64_t)kind << 62;
    key ^= key >> 32;
    return (uint32_t)(key * table->factor >> 32);
}

/* NULL: it is not there. */
static inline struct rme_keyed *rme_table_find(const struct rme_table *table, uint64_t key,
                                               uint32_t kind)
{
    struct rme_keyed *node = table->chain[rme_table_hash(table, key, kind) & table->mask];

    while (node != NULL && (node->key != key || node->kind != kind))
        node = node->next;
    return node;
}

/* Makes it the first of a chain. */
static inline void rme_table_chain(struct rme_keyed **head, struct rme_keyed *node)
{
    node->next = *head;
    node->at = head;
    if (node->next != NULL)
        node->next->at = &node->next;
    *head = node;
}

/* Puts it in with this key and kind.  Where two are alike, the last one is found. */
static inline void rme_table_put(struct rme_table *table, struct rme_keyed *node, uint64_t key,
                                 uint32_t kind)
{
    struct rme_keyed **head;

    if (table->used > table->mask)
        rme_table_grow(table);
    head = &table->chain[rme_table_hash(table, key, kind) & table->mask];
    node->key = key;
    node->kind = kind;
    rme_table_chain(head, node);
    table->used++;
}

/* Takes out one that is in it.  It does not look at others: a peer may choose names that are
 * all alike. */
static inline void rme_table_take(struct rme_table *table, const struct rme_keyed *node)
{
    *node->at = node->next;
    if (node->next != NULL)
        node->next->at = node->at;
    table->used--;
}

#endif
