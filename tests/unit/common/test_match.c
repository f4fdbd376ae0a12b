/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hash tables with keys that peers choose, ids of operations. */
#include <sys/mman.h>
#include <unistd.h>

#include "op/match.h"
#include "rndv/rndv.h"
#include "op/op.h"
#include "steps.h"
#include "unit.h"

/* ---- Operations ---- */

/* The host reads the id through itself, and 0 when the operation is free; 32 others are used
 * before an id returns. */
static void ids_rest_before_they_come_back(void **state)
{
    const uint64_t host[2] = {0, 77};
    struct rme_op_table *table = malloc(sizeof(*table));
    struct rme_op *op;
    rme_id first;

    (void)state;
    assert_non_null(table);
    rme_op_table_init(table, host, sizeof(host));
    op = rme_op_new(table, 1);
    assert_non_null(op);
    op->state = RME_OP_POSTED;
    first = op->id;
    assert_int_equal(((uint64_t *)first)[0], first);
    assert_int_equal(((uint64_t *)first)[1], 77);
    assert_ptr_equal(rme_op_find(table, first), op);
    assert_null(rme_op_find(table, first + 1));
    assert_null(rme_op_find(table, first + 8));
    rme_op_recycle(table, op);
    assert_int_equal(((uint64_t *)first)[0], 0);
    assert_null(rme_op_find(table, first));
    for (unsigned i = 0; i < RME_OP_RESTING; i++) {
        struct rme_op *other = rme_op_new(table, 1);

        other->state = RME_OP_POSTED;
        assert_true(other->id != first);
        assert_null(rme_op_find(table, first));
        rme_op_recycle(table, other);
    }
    assert_null(rme_op_find(table, 0));
    assert_null(rme_op_find(table, UINT64_MAX));
    rme_op_table_clear(table);
    free(table);
}

/* Returns the pages of a chunk that are in memory. */
static size_t pages_of(const struct rme_op_table *table, uint32_t c)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), resident = 0;
    size_t pages = ((RME_OP_CHUNK << c) * sizeof(struct rme_op) + page - 1) / page;
    unsigned char *in = malloc(pages);

    assert_non_null(in);
    assert_int_equal(mincore(table->chunk[c], pages * page, in), 0);
    for (size_t i = 0; i < pages; i++)
        resident += in[i] & 1;
    free(in);
    return resident;
}

/* The memory of many ops returns to the system when all have ended.  The host still reads their
 * ids, as free. */
static void memory_of_many_ops_returns(void **state)
{
    enum { MANY = 10000, SEGS = 100 };
    const uint64_t host[2] = {0, 77};
    static rme_id id[MANY];
    struct rme_op_table table;

    (void)state;
    rme_op_table_init(&table, host, sizeof(host));
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < MANY; i++) {
            struct rme_op *op = rme_op_new(&table, i % 1000 == 0 ? SEGS : 1);

            assert_non_null(op);
            op->state = RME_OP_POSTED;
            id[i] = op->id;
            for (uint32_t k = 0; k < op->nseg; k++)
                op->seg[k] = (struct rme_seg){NULL, k};
        }
        assert_true(table.nchunk > RME_OP_KEEP_CHUNKS);
        for (uint32_t i = 0; i < MANY; i++) {
            struct rme_op *op = rme_op_find(&table, id[i]);

            assert_non_null(op);
            assert_int_equal(op->seg[op->nseg - 1].length, op->nseg - 1);
            rme_op_recycle(&table, op);
        }
        assert_int_equal(table.nchunk, RME_OP_KEEP_CHUNKS);
        for (uint32_t c = RME_OP_KEEP_CHUNKS; c < RME_OP_CHUNKS && table.chunk[c] != NULL; c++)
            assert_int_equal(pages_of(&table, c), 0);
        for (uint32_t i = 0; i < MANY; i++) {
            assert_null(rme_op_find(&table, id[i]));
            assert_int_equal(((uint64_t *)id[i])[0], 0);
            assert_int_equal(((uint64_t *)id[i])[1], 77);
        }
    }
    rme_op_table_clear(&table);
}

/* ---- Names ---- */

enum { MOST_ALIKE = 256 }; /* a power of 2 */

static uint64_t key_of(uint32_t peer, uint32_t handle)
{
    struct rme_peer named = {.serial = peer};

    return rme_handle_key(&named, handle);
}

/* Of two equal names the later one is found, also after the table has grown, and the other one
 * when that is gone. */
static void later_of_two_keys_is_found(void **state)
{
    enum { OTHERS = 1000 };
    static struct rme_keyed other[OTHERS];
    struct rme_keyed first = {0}, last = {0};
    struct rme_table names;

    (void)state;
    assert_int_equal(rme_table_init(&names, 2), 0);
    rme_table_put(&names, &first, key_of(7, 1), RME_HANDLE_THEIRS);
    rme_table_put(&names, &last, key_of(7, 1), RME_HANDLE_THEIRS);
    for (uint32_t i = 0; i < OTHERS; i++) {
        rme_table_put(&names, &other[i], key_of(7, 2 + i), RME_HANDLE_THEIRS);
        assert_ptr_equal(rme_table_find(&names, key_of(7, 1), RME_HANDLE_THEIRS), &last);
    }
    assert_null(rme_table_find(&names, key_of(7, 1), RME_HANDLE_OWN)); /* of another kind */
    rme_table_drop(&names, &last);
    assert_ptr_equal(rme_table_find(&names, key_of(7, 1), RME_HANDLE_THEIRS), &first);
    rme_table_clear(&names);
}

static void double_it(void *arg)
{
    rme_table_grow(arg);
}

static struct rme_keyed alike[MOST_ALIKE];

static void take_the_first(void *arg)
{
    rme_table_take(arg, &alike[0]);
}

/* Counts the instructions of an action on a table of equal nodes; 0: cannot be counted. */
static long steps_with(uint32_t nodes, void (*act)(void *table))
{
    struct rme_table table;
    long steps;

    assert_int_equal(rme_table_init(&table, nodes), 0);
    for (uint32_t i = 0; i < nodes; i++)
        rme_table_put(&table, &alike[i], 7, RME_HANDLE_MESSAGE);
    steps = steps_of(act, &table);
    rme_table_clear(&table);
    return steps;
}

/* Peers choose names: inserting many equal ones into a growing table costs no more than
 * others. */
static void table_of_equal_keys_grows_linearly(void **state)
{
    long few, many;

    (void)state;
    steps_with(2, double_it); /* resolve symbols, which happens at the first call */
    few = steps_with(MOST_ALIKE / 8, double_it);
    many = steps_with(MOST_ALIKE, double_it);
    if (few == 0)
        skip();
    if (many > 12 * few)
        fail_msg("%ld instructions for 8 times the nodes, %ld for these", many, few);
}

/* Removing any one costs no more, either. */
static void equal_key_removed_in_constant_time(void **state)
{
    long few, many;

    (void)state;
    few = steps_with(MOST_ALIKE / 8, take_the_first);
    many = steps_with(MOST_ALIKE, take_the_first);
    if (few == 0)
        skip();
    if (many > 2 * few)
        fail_msg("%ld instructions among 8 times the nodes, %ld among these", many, few);
}

#define CHAINS 1024u
#define CHOSEN 1000u

/* Keys that share a chain in one table are spread over another table's chains. */
static void no_keys_share_a_chain_everywhere(void **state)
{
    struct rme_table one, other;
    uint32_t used[CHAINS] = {0}, most = 0, chosen = 0;

    (void)state;
    assert_int_equal(rme_table_init(&one, CHAINS), 0);
    assert_int_equal(rme_table_init(&other, CHAINS), 0);
    for (uint64_t tag = 0; chosen < CHOSEN; tag++) {
        uint64_t key = (uint64_t)1 << 32 | tag;
        uint32_t *chain = &used[rme_table_hash(&other, key, RME_HANDLE_THEIRS) & other.mask];

        if ((rme_table_hash(&one, key, RME_HANDLE_THEIRS) & one.mask) != 7)
            continue;
        chosen++;
        if (++*chain > most)
            most = *chain;
    }
    assert_true(one.factor != other.factor); /* fails for one of 2^63 pairs */
    assert_in_range(most, 1, CHOSEN / 4);
    rme_table_clear(&one);
    rme_table_clear(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_rest_before_they_come_back),
        cmocka_unit_test(memory_of_many_ops_returns),
        cmocka_unit_test(later_of_two_keys_is_found),
        cmocka_unit_test(table_of_equal_keys_grows_linearly),
        cmocka_unit_test(equal_key_removed_in_constant_time),
        cmocka_unit_test(no_keys_share_a_chain_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
