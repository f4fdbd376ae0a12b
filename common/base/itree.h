/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A set of ranges of addresses or other numbers that may overlap, with searches by overlap and
 * by cover in O(log n) expected.  Nodes are members of the caller's structures: nothing is
 * allocated, so the set may change where malloc is forbidden.  No lock of its own.
 */
#ifndef RME_ITREE_H
#define RME_ITREE_H

#include <stdbool.h>
#include <stdint.h>

/* The caller sets start and end (exclusive, above start) before the insertion; the tree owns
 * the rest. */
struct rme_inode {
    uint64_t start, end;
    uint64_t max_end; /* largest end in this subtree */
    struct rme_inode *left, *right;
};

struct rme_itree {
    struct rme_inode *root;
};

void rme_itree_insert(struct rme_itree *tree, struct rme_inode *node);

/* Removes a node, which must be in the tree. */
void rme_itree_remove(struct rme_itree *tree, struct rme_inode *node);

/* Returns a range with the lowest start of those that share a byte with [start, end); NULL:
 * none. */
struct rme_inode *rme_itree_overlap(const struct rme_itree *tree, uint64_t start, uint64_t end);

/* Returns a range that contains [start, end) and is accepted by `accept`; NULL: none. */
struct rme_inode *rme_itree_cover(const struct rme_itree *tree, uint64_t start, uint64_t end,
                                  bool (*accept)(const struct rme_inode *node, const void *arg),
                                  const void *arg);

#endif
