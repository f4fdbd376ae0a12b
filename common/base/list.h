/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Doubly linked rings of embedded nodes.  A node that is in no ring points at itself. */
#ifndef RME_LIST_H
#define RME_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rme_node {
    struct rme_node *next, *prev;
};

#define rme_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void rme_node_init(struct rme_node *node)
{
    node->next = node;
    node->prev = node;
}

/* Returns true for a ring without members, and for a node that is in no ring. */
static inline bool rme_node_alone(const struct rme_node *node)
{
    return node->next == node;
}

static inline void rme_node_append(struct rme_node *ring, struct rme_node *node)
{
    node->next = ring;
    node->prev = ring->prev;
    ring->prev->next = node;
    ring->prev = node;
}

static inline void rme_node_remove(struct rme_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    rme_node_init(node);
}

/* Removes and returns the first member; NULL: none. */
static inline struct rme_node *rme_node_take(struct rme_node *ring)
{
    struct rme_node *node = ring->next;

    if (node == ring)
        return NULL;
    rme_node_remove(node);
    return node;
}

/* Appends all members of `from` to `to`. */
static inline void rme_node_splice(struct rme_node *to, struct rme_node *from)
{
    if (rme_node_alone(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    rme_node_init(from);
}

/* A pool of unused objects for reuse, at most RME_POOL_KEEP of them. */
#define RME_POOL_KEEP 256u

struct rme_pool {
    struct rme_node free;
    uint32_t count;
};

static inline struct rme_node *rme_pool_take(struct rme_pool *pool)
{
    struct rme_node *node = rme_node_take(&pool->free);

    if (node != NULL)
        pool->count--;
    return node;
}

/* Puts an object into the pool.  False: the pool is full, and the caller frees the object. */
static inline bool rme_pool_keep(struct rme_pool *pool, struct rme_node *node)
{
    if (pool->count >= RME_POOL_KEEP)
        return false;
    rme_node_append(&pool->free, node);
    pool->count++;
    return true;
}

#endif
