/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>

#include "base/table.h"

#define CHAINS_MAX (1u << 22)

int rme_table_init(struct rme_table *table, uint32_t chains)
{
    table->chain = calloc(chains, sizeof(struct rme_keyed *));
    table->mask = chains - 1;
    table->used = 0;
    return table->chain != NULL ? 0 : -ENOMEM;
}

void rme_table_clear(struct rme_table *table)
{
    free(table->chain);
    table->chain = NULL;
}

/* Keeps the order of those that are alike. */
void rme_table_grow(struct rme_table *table)
{
    uint32_t mask = table->mask * 2 + 1;
    struct rme_keyed **chain = mask < CHAINS_MAX ? calloc((size_t)mask + 1, sizeof(struct rme_keyed *)) : NULL;

    if (chain == NULL)
        return;
    for (uint32_t i = 0; i <= table->mask; i++) {
        while (table->chain[i] != NULL) {
            struct rme_keyed *node = table->chain[i];
            struct rme_keyed **at = &chain[rme_table_hash(node->key, node->kind) & mask];

            table->chain[i] = node->next;
            while (*at != NULL)
                at = &(*at)->next;
            node->next = NULL;
            *at = node;
        }
    }
    free(table->chain);
    table->chain = chain;
    table->mask = mask;
}
