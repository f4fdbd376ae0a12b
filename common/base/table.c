/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdbool.h>
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

/* Appends each node to one of two chains, so equal keys keep their order.  Touches each node
 * once, even if all keys are equal, as a peer may choose them. */
void rme_table_grow(struct rme_table *table)
{
    uint32_t chains = table->mask + 1;
    struct rme_keyed **chain =
        chains < CHAINS_MAX ? calloc(2 * (size_t)chains, sizeof(struct rme_keyed *)) : NULL;

    if (chain == NULL)
        return;
    for (uint32_t i = 0; i < chains; i++) {
        struct rme_keyed **end[] = {&chain[i], &chain[chains + i]};

        for (struct rme_keyed *node = table->chain[i]; node != NULL; node = node->next) {
            bool second = (rme_table_hash(table, node->key, node->kind) & chains) != 0;

            node->at = end[second];
            *end[second] = node;
            end[second] = &node->next;
        }
        *end[0] = *end[1] = NULL;
    }
    free(table->chain);
    table->chain = chain;
    table->mask = 2 * chains - 1;
}
