/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/table.h"
#include "base/timer.h"

#define CHAINS_MAX (1u << 22)

uint64_t rme_draw(void)
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == (ssize_t)sizeof(number))
        return number;
    return (rme_now_ns() ^ (uintptr_t)&number ^ (uint64_t)getpid() << 40) *
           0xff51afd7ed558ccdULL;
}

int rme_table_init(struct rme_table *table, uint32_t chains)
{
    table->chain = calloc(chains, sizeof(struct rme_keyed *));
    table->mask = chains - 1;
    table->used = 0;
    table->factor = rme_draw() | 1;
    return table->chain != NULL ? 0 : -ENOMEM;
}

void rme_table_clear(struct rme_table *table)
{
    free(table->chain);
    table->chain = NULL;
}

/* Reverses a chain. */
static struct rme_keyed *reversed(struct rme_keyed *node)
{
    struct rme_keyed *before = NULL;

    while (node != NULL) {
        struct rme_keyed *next = node->next;

        node->next = before;
        before = node;
        node = next;
    }
    return before;
}

/* Keeps the order of equal keys: they come from one chain, whose last node is inserted first.
 * Touches each node twice, even if all keys are equal, as a peer may choose them. */
void rme_table_grow(struct rme_table *table)
{
    uint32_t mask = table->mask * 2 + 1;
    struct rme_keyed **chain =
        mask < CHAINS_MAX ? calloc((size_t)mask + 1, sizeof(struct rme_keyed *)) : NULL;

    if (chain == NULL)
        return;
    for (uint32_t i = 0; i <= table->mask; i++) {
        struct rme_keyed *node = reversed(table->chain[i]);

        while (node != NULL) {
            struct rme_keyed **head =
                &chain[rme_table_hash(table, node->key, node->kind) & mask];
            struct rme_keyed *next = node->next;

            rme_table_chain(head, node);
            node = next;
        }
    }
    free(table->chain);
    table->chain = chain;
    table->mask = mask;
}
