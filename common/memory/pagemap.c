/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A hash table with linear probing, at most half full; removal closes the gap, so there are no
 * marks of the dead. */
#include <errno.h>
#include <stdlib.h>

#include "memory/pagemap.h"

struct rme_pagemap_slot {
    uintptr_t page;
    void *owner; /* NULL: free */
};

static uintptr_t page_of(const void *address)
{
    return (uintptr_t)address / RME_PAGEMAP_PAGE;
}

static size_t home(const struct rme_pagemap *map, uintptr_t page)
{
    return (size_t)((uint64_t)page * 0x9e3779b97f4a7c15u >> 20) & (map->capacity - 1);
}

/* The slot of a page, or the free one where it would go. */
static size_t probe(const struct rme_pagemap *map, uintptr_t page)
{
    size_t at = home(map, page);

    while (map->slot[at].owner != NULL && map->slot[at].page != page)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static void put(struct rme_pagemap *map, uintptr_t page, void *owner)
{
    struct rme_pagemap_slot *slot = &map->slot[probe(map, page)];

    if (slot->owner == NULL)
        map->used++;
    slot->page = page;
    slot->owner = owner;
}

static int reserve(struct rme_pagemap *map, size_t more)
{
    struct rme_pagemap bigger = {.capacity = map->capacity > 0 ? map->capacity : 64};

    while (2 * (map->used + more) > bigger.capacity)
        bigger.capacity *= 2;
    if (bigger.capacity == map->capacity)
        return 0;
    bigger.slot = calloc(bigger.capacity, sizeof(bigger.slot[0]));
    if (bigger.slot == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slot[i].owner != NULL)
            put(&bigger, map->slot[i].page, map->slot[i].owner);
    free(map->slot);
    *map = bigger;
    return 0;
}

static size_t pages(size_t length)
{
    return (length + RME_PAGEMAP_PAGE - 1) / RME_PAGEMAP_PAGE;
}

int rme_pagemap_add(struct rme_pagemap *map, const void *base, size_t length, void *owner)
{
    int ret = reserve(map, pages(length));

    if (ret != 0)
        return ret;
    for (size_t i = 0; i < pages(length); i++)
        put(map, page_of(base) + i, owner);
    return 0;
}

/* Frees a slot and moves later entries of its run into the gap where they can still be found.
 */
static void remove_slot(struct rme_pagemap *map, size_t gap)
{
    size_t mask = map->capacity - 1;

    for (size_t at = (gap + 1) & mask; map->slot[at].owner != NULL; at = (at + 1) & mask) {
        size_t distance = (at - home(map, map->slot[at].page)) & mask;

        if (distance >= ((at - gap) & mask)) {
            map->slot[gap] = map->slot[at];
            gap = at;
        }
    }
    map->slot[gap].owner = NULL;
    map->used--;
}

void rme_pagemap_remove(struct rme_pagemap *map, const void *base, size_t length)
{
    for (size_t i = 0; map->capacity > 0 && i < pages(length); i++) {
        size_t at = probe(map, page_of(base) + i);

        if (map->slot[at].owner != NULL)
            remove_slot(map, at);
    }
}

void *rme_pagemap_find(const struct rme_pagemap *map, const void *address)
{
    return map->capacity > 0 ? map->slot[probe(map, page_of(address))].owner : NULL;
}

void rme_pagemap_clear(struct rme_pagemap *map)
{
    free(map->slot);
    *map = (struct rme_pagemap){0};
}
