/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A hash table with chains.  It grows by doubling; when there is no memory to grow, chains get longer and nothing fails. */
#include <errno.h>
#include <stdlib.h>

#include "base/name.h"

#define BUCKETS_FIRST 64u
#define BUCKETS_MAX (1u << 22)

static struct rme_name **bucket_of(struct rme_name **bucket, uint32_t mask, uint32_t peer, uint8_t kind, uint32_t number)
{
    uint64_t key = ((uint64_t)peer << 32 | number) * 4 + kind;

    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 29;
    return &bucket[((uint32_t)(key >> 32) ^ (uint32_t)key) & mask];
}

int rme_names_init(struct rme_names *names)
{
    names->bucket = calloc(BUCKETS_FIRST, sizeof(struct rme_name *));
    names->mask = BUCKETS_FIRST - 1;
    names->used = 0;
    return names->bucket != NULL ? 0 : -ENOMEM;
}

void rme_names_clear(struct rme_names *names)
{
    free(names->bucket);
    names->bucket = NULL;
}

static void grow(struct rme_names *names)
{
    uint32_t mask = names->mask * 2 + 1;
    struct rme_name **bucket = mask < BUCKETS_MAX ? calloc((size_t)mask + 1, sizeof(struct rme_name *)) : NULL;

    if (bucket == NULL)
        return;
    for (uint32_t i = 0; i <= names->mask; i++) {
        while (names->bucket[i] != NULL) {
            struct rme_name *name = names->bucket[i];
            struct rme_name **head = bucket_of(bucket, mask, name->peer, name->kind, name->number);

            names->bucket[i] = name->next;
            name->next = *head;
            *head = name;
        }
    }
    free(names->bucket);
    names->bucket = bucket;
    names->mask = mask;
}

void rme_name_set(struct rme_names *names, struct rme_name *name, uint32_t peer, enum rme_name_kind kind, uint32_t number)
{
    struct rme_name **head;

    rme_name_drop(names, name);
    if (names->used > names->mask)
        grow(names);
    name->peer = peer;
    name->kind = (uint8_t)kind;
    name->number = number;
    name->set = true;
    head = bucket_of(names->bucket, names->mask, peer, (uint8_t)kind, number);
    name->next = *head;
    *head = name;
    names->used++;
}

void rme_name_drop(struct rme_names *names, struct rme_name *name)
{
    struct rme_name **at;

    if (!name->set)
        return;
    at = bucket_of(names->bucket, names->mask, name->peer, name->kind, name->number);
    while (*at != name)
        at = &(*at)->next;
    *at = name->next;
    name->set = false;
    names->used--;
}

struct rme_name *rme_name_find(const struct rme_names *names, uint32_t peer, enum rme_name_kind kind, uint32_t number)
{
    struct rme_name *name = *bucket_of(names->bucket, names->mask, peer, (uint8_t)kind, number);

    while (name != NULL && (name->peer != peer || name->number != number || name->kind != kind))
        name = name->next;
    return name;
}
