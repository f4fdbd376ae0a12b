/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "unit.h"
#include "base/itree.h"

#define NODES 400

struct item {
    struct rme_inode node;
    int in;
};

static bool is_even(const struct rme_inode *node, const void *arg)
{
    (void)arg;
    return node->start % 2 == 0;
}

/* Compares the tree with a search through all items. */
static void same_as_a_scan(void **state)
{
    static struct item item[NODES];
    struct rme_itree tree = {0};
    unsigned seed = 7;

    (void)state;
    for (int step = 0; step < 60000; step++) {
        int at = rand_r(&seed) % NODES;
        uintptr_t start = (uintptr_t)rand_r(&seed) % 1000,
                  end = start + 1 + (uintptr_t)rand_r(&seed) % 50;
        const struct rme_inode *found;
        uintptr_t lowest = UINTPTR_MAX;
        bool covered = false;

        if (item[at].in) {
            rme_itree_remove(&tree, &item[at].node);
        } else {
            item[at].node.start = start;
            item[at].node.end = end;
            rme_itree_insert(&tree, &item[at].node);
        }
        item[at].in = !item[at].in;

        start = (uintptr_t)rand_r(&seed) % 1000;
        end = start + 1 + (uintptr_t)rand_r(&seed) % 20;
        for (int i = 0; i < NODES; i++) {
            const struct rme_inode *node = &item[i].node;

            if (!item[i].in)
                continue;
            if (node->start < end && node->end > start && node->start < lowest)
                lowest = node->start;
            covered |= node->start <= start && node->end >= end && node->start % 2 == 0;
        }
        found = rme_itree_overlap(&tree, start, end);
        assert_int_equal(found != NULL ? found->start : UINTPTR_MAX, lowest);
        found = rme_itree_cover(&tree, start, end, is_even, NULL);
        assert_int_equal(found != NULL, covered);
        if (found != NULL)
            assert_true(found->start <= start && found->end >= end && found->start % 2 == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_a_scan)};

    return cmocka_run_group_tests_name("itree", tests, NULL, NULL);
}
