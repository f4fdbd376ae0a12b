/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Doubly linked rings of embedded nodes.  A node that is in no ring points at itself. */
#ifndef RME_BASE_LIST_H
#define RME_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list_head {
    struct list_head *next, *prev;
};

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list_head *node)
{
    node->next = node;
    node->prev = node;
}

/* Returns true for a ring without members, and for a node that is in no ring. */
static inline bool list_empty(const struct list_head *node)
{
    return node->next == node;
}

static inline void list_add_head(struct list_head *node, struct list_head *ring)
{
    node->next = ring->next;
    node->prev = ring;
    ring->next->prev = node;
    ring->next = node;
}

static inline void list_add_tail(struct list_head *node, struct list_head *ring)
{
    node->next = ring;
    node->prev = ring->prev;
    ring->prev->next = node;
    ring->prev = node;
}

static inline void list_del_init(struct list_head *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Removes and returns the first member; NULL: none. */
static inline struct list_head *list_pop(struct list_head *ring)
{
    struct list_head *node = ring->next;

    if (node == ring)
        return NULL;
    list_del_init(node);
    return node;
}

/* Moves all members of a ring to the end of another. */
static inline void list_move_all(struct list_head *from, struct list_head *to)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    from->prev->next = to;
    to->prev->next = from->next;
    to->prev = from->prev;
    list_init(from);
}

/* Initializer of an empty ring. */
#define LIST_EMPTY_RING(ring)                                                                  \
    {                                                                                          \
        &(ring), &(ring)                                                                       \
    }

/* Structures of which `member` is in a ring; NULL: none. */
#define list_object(node, ring, type, member)                                                  \
    ((node) == (ring) ? NULL : container_of(node, type, member))
#define list_first(ring, type, member) list_object((ring)->next, ring, type, member)
#define list_last(ring, type, member)  list_object((ring)->prev, ring, type, member)
#define list_next(object, ring, member)                                                        \
    list_object((object)->member.next, ring, __typeof__(*(object)), member)

/* Iterates over a ring; the body removes nothing. */
#define list_for_each(object, ring, member)                                                    \
    for ((object) = list_first(ring, __typeof__(*(object)), member); (object) != NULL;         \
         (object) = list_next(object, ring, member))
/* The same; the body may remove the current structure.  `after` is the next one. */
#define list_for_each_safe(object, ring, member, after)                                        \
    for ((object) = list_first(ring, __typeof__(*(object)), member);                           \
         (object) != NULL && ((after) = list_next(object, ring, member), true);                \
         (object) = (after))

#endif
