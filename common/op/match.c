/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A hash table with chains, kept at most as full as it has buckets.  It grows by doubling and never shrinks; when there is
 * no memory to grow, chains get longer and nothing fails.
 */
#include <errno.h>
#include <stdlib.h>

#include "op/match.h"

#define BUCKETS_FIRST 256u
#define BUCKETS_MAX (1u << 22)
#define FREE_MAX 1024u /* slots kept for reuse */

/* Finalizer of a 64-bit mix: all bits of the key reach the low bits. */
static uint32_t hash(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 29;
    return (uint32_t)(key >> 32) ^ (uint32_t)key;
}

int rme_match_init(struct rme_match *match)
{
    match->bucket = calloc(BUCKETS_FIRST, sizeof(struct rme_slot *));
    if (match->bucket == NULL)
        return -ENOMEM;
    match->mask = BUCKETS_FIRST - 1;
    match->used = 0;
    match->free = NULL;
    match->nfree = 0;
    return 0;
}

void rme_match_clear(struct rme_match *match)
{
    while (match->free != NULL) {
        struct rme_slot *slot = match->free;

        match->free = slot->next;
        free(slot);
    }
    free(match->bucket);
    match->bucket = NULL;
}

struct rme_slot *rme_match_find(const struct rme_match *match, uint64_t key)
{
    struct rme_slot *slot = match->bucket[hash(key) & match->mask];

    while (slot != NULL && slot->key != key)
        slot = slot->next;
    return slot;
}

static void grow(struct rme_match *match)
{
    uint32_t buckets = (match->mask + 1) * 2;
    struct rme_slot **bucket;

    if (buckets > BUCKETS_MAX)
        return;
    bucket = calloc(buckets, sizeof(struct rme_slot *));
    if (bucket == NULL)
        return;
    for (uint32_t i = 0; i <= match->mask; i++) {
        struct rme_slot *slot = match->bucket[i];

        while (slot != NULL) {
            struct rme_slot *next = slot->next;
            struct rme_slot **head = &bucket[hash(slot->key) & (buckets - 1)];

            slot->next = *head;
            *head = slot;
            slot = next;
        }
    }
    free(match->bucket);
    match->bucket = bucket;
    match->mask = buckets - 1;
}

struct rme_slot *rme_match_get(struct rme_match *match, uint64_t key)
{
    struct rme_slot *slot = rme_match_find(match, key);
    struct rme_slot **head;

    if (slot != NULL)
        return slot;
    if (match->free != NULL) {
        slot = match->free;
        match->free = slot->next;
        match->nfree--;
    } else {
        slot = malloc(sizeof(*slot));
        if (slot == NULL)
            return NULL;
    }
    if (match->used > match->mask)
        grow(match);
    slot->key = key;
    rme_node_init(&slot->recvs);
    rme_node_init(&slot->messages);
    head = &match->bucket[hash(key) & match->mask];
    slot->next = *head;
    *head = slot;
    match->used++;
    return slot;
}

void rme_match_release(struct rme_match *match, struct rme_slot *slot)
{
    struct rme_slot **at;

    if (!rme_node_alone(&slot->recvs) || !rme_node_alone(&slot->messages))
        return;
    at = &match->bucket[hash(slot->key) & match->mask];
    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    match->used--;
    if (match->nfree >= FREE_MAX) {
        free(slot);
        return;
    }
    slot->next = match->free;
    match->free = slot;
    match->nfree++;
}
