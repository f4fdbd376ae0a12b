/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A treap: ordered by (start, end, address of the node), a heap by a hash of the node's
 * address.  Each node has the largest end of its subtree, which limits a search to branches
 * that can succeed.
 */
#include <stddef.h>

#include "base/itree.h"

static uint64_t priority(const struct rme_inode *node)
{
    uint64_t x = (uint64_t)(uintptr_t)node;

    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
    return x ^ (x >> 33);
}

static bool before(const struct rme_inode *a, const struct rme_inode *b)
{
    return a->start != b->start ? a->start < b->start
           : a->end != b->end   ? a->end < b->end
                                : (uintptr_t)a < (uintptr_t)b;
}

static void update(struct rme_inode *node)
{
    node->max_end = node->end;
    if (node->left != NULL && node->left->max_end > node->max_end)
        node->max_end = node->left->max_end;
    if (node->right != NULL && node->right->max_end > node->max_end)
        node->max_end = node->right->max_end;
}

/* Splits a subtree into the nodes before `key` and the rest. */
static void split(struct rme_inode *tree, const struct rme_inode *key, struct rme_inode **low,
                  struct rme_inode **high)
{
    if (tree == NULL) {
        *low = *high = NULL;
    } else if (before(tree, key)) {
        split(tree->right, key, &tree->right, high);
        update(tree);
        *low = tree;
    } else {
        split(tree->left, key, low, &tree->left);
        update(tree);
        *high = tree;
    }
}

/* Joins two subtrees, all of `low` before all of `high`. */
static struct rme_inode *join(struct rme_inode *low, struct rme_inode *high)
{
    if (low == NULL)
        return high;
    if (high == NULL)
        return low;
    if (priority(low) > priority(high)) {
        low->right = join(low->right, high);
        update(low);
        return low;
    }
    high->left = join(low, high->left);
    update(high);
    return high;
}

static struct rme_inode *without(struct rme_inode *tree, const struct rme_inode *node)
{
    if (tree == NULL)
        return NULL;
    if (tree == node)
        return join(tree->left, tree->right);
    if (before(node, tree))
        tree->left = without(tree->left, node);
    else
        tree->right = without(tree->right, node);
    update(tree);
    return tree;
}

void rme_itree_insert(struct rme_itree *tree, struct rme_inode *node)
{
    struct rme_inode *low, *high;

    node->left = node->right = NULL;
    update(node);
    split(tree->root, node, &low, &high);
    tree->root = join(join(low, node), high);
}

void rme_itree_remove(struct rme_itree *tree, struct rme_inode *node)
{
    tree->root = without(tree->root, node);
}

struct rme_inode *rme_itree_overlap(const struct rme_itree *tree, uint64_t start, uint64_t end)
{
    struct rme_inode *node = tree->root;

    while (node != NULL && node->max_end > start) {
        if (node->left != NULL && node->left->max_end > start) {
            /* A range on the left ends behind `start`.  If that range begins too late, so do
             * all on the right. */
            node = node->left;
        } else if (node->start >= end) {
            return NULL;
        } else if (node->end > start) {
            return node;
        } else {
            node = node->right;
        }
    }
    return NULL;
}

struct rme_inode *rme_itree_cover(const struct rme_itree *tree, uint64_t start, uint64_t end,
                                  bool (*accept)(const struct rme_inode *node, const void *arg),
                                  const void *arg)
{
    struct rme_inode *node = tree->root, *found;

    while (node != NULL && node->max_end >= end) {
        if (node->start > start) {
            node = node->left;
            continue;
        }
        if (node->end >= end && accept(node, arg))
            return node;
        found = rme_itree_cover(&(struct rme_itree){node->right}, start, end, accept, arg);
        if (found != NULL)
            return found;
        node = node->left;
    }
    return NULL;
}
