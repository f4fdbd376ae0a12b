/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hash tables with keys that peers choose, ids of operations, timers. */
#include <sys/mman.h>
#include <unistd.h>

#include "op/match.h"
#include "rndv/rndv.h"
#include "op/op.h"
#include "base/timer.h"
#include "steps.h"
#include "unit.h"

/* ---- Matching ---- */

/* Adds a member; returns true if it is the first of its key. */
static bool add(struct rme_table *table, struct rme_match *match, uint64_t key)
{
    match->keyed.at = NULL;
    list_init(&match->same);
    rme_match_add(table, rme_match_first(table, key, RME_BY_TAG), key, RME_BY_TAG, match);
    return rme_match_is_first(match);
}

/* Many keys: all are found, and chains stay short, for any factor. */
static void chains_stay_short_for(uint64_t factor)
{
    enum { N = 20000 };
    static struct rme_match match[N];
    struct rme_table table;
    unsigned longest = 0;

    assert_int_equal(rme_table_init(&table, 256), 0);
    table.factor = factor;
    for (int i = 0; i < N; i++)
        assert_true(add(&table, &match[i], rme_match_key((uint32_t)i / 100, i % 100 - 50)));
    for (uint32_t b = 0; b <= table.mask; b++) {
        unsigned length = 0;

        for (struct rme_keyed *node = table.chain[b]; node != NULL; node = node->next)
            length++;
        longest = length > longest ? length : longest;
    }
    assert_in_range(longest, 1, 12);
    for (int i = 0; i < N; i++) {
        struct rme_match *first =
            rme_match_first(&table, rme_match_key((uint32_t)i / 100, i % 100 - 50), RME_BY_TAG);

        assert_ptr_equal(first, &match[i]);
        rme_match_remove(&table, first);
    }
    assert_int_equal(table.used, 0);
    rme_table_clear(&table);
}

static void chains_stay_short(void **state)
{
    uint64_t factor = 1;

    (void)state;
    for (int i = 0; i < 100; i++) {
        chains_stay_short_for(factor | 1);
        factor = factor * 6364136223846793005 + 1442695040888963407;
    }
    chains_stay_short_for(0x9e3779b97f4a7c15);
    chains_stay_short_for(UINT64_MAX);
    chains_stay_short_for(1ull << 32 | 1);
}

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

static uint64_t key_of(uint32_t peer, uint32_t handle)
{
    struct rme_peer named = {.serial = peer};

    return rme_handle_key(&named, handle);
}

enum { MOST_ALIKE = 256 }; /* a power of 2 */

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

/* In any order of removal the others are found. */
static void equal_keys_removed_in_any_order(void **state)
{
    struct rme_table table;
    uint32_t left = 64;
    bool there[64];

    (void)state;
    assert_int_equal(rme_table_init(&table, 2), 0);
    for (uint32_t i = 0; i < left; i++) {
        rme_table_put(&table, &alike[i], 7, RME_HANDLE_MESSAGE);
        there[i] = true;
    }
    for (uint32_t at = 5; left > 0; at = (at + 37) % 64) {
        const struct rme_keyed *last = NULL;

        if (there[at]) {
            rme_table_take(&table, &alike[at]);
            there[at] = false;
            left--;
        }
        for (uint32_t i = 0; i < 64; i++)
            last = there[i] ? &alike[i] : last;
        assert_ptr_equal(rme_table_find(&table, 7, RME_HANDLE_MESSAGE), last);
        assert_int_equal(table.used, left);
    }
    rme_table_clear(&table);
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

/* In the order of their times, and of their settings within a time. */
static void timers_come_in_order(void **state)
{
    enum { N = 500 };
    static struct rme_timer timer[N];
    struct rme_timers timers = {0};
    struct rme_timer *due;
    uint64_t seed = 99, last = 0;
    int set_at[N], last_set = -1, left = 0;

    (void)state;
    assert_int_equal(rme_timers_next(&timers), UINT64_MAX);
    assert_null(rme_timers_first(&timers));
    for (int round = 0; round < 5000; round++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        int i = (int)((seed >> 33) % N);
        if (seed >> 60 < 11)
            rme_timer_set(&timers, &timer[i], 1 + (seed >> 13) % 50);
        else
            rme_timer_stop(&timers, &timer[i]);
        set_at[i] = round;
    }
    for (int i = 0; i < N; i++)
        left += rme_timer_is_set(&timer[i]);
    assert_null(rme_timers_due(&timers, rme_timers_next(&timers) - 1));
    while ((due = rme_timers_due(&timers, 50)) != NULL) {
        int set = set_at[due - timer];
        assert_true(due->node.start > last || (due->node.start == last && set > last_set));
        assert_false(rme_timer_is_set(due));
        last = due->node.start;
        last_set = set;
        left--;
    }
    assert_int_equal(left, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_stay_short),
        cmocka_unit_test(ids_rest_before_they_come_back),
        cmocka_unit_test(memory_of_many_ops_returns),
        cmocka_unit_test(later_of_two_keys_is_found),
        cmocka_unit_test(table_of_equal_keys_grows_linearly),
        cmocka_unit_test(equal_key_removed_in_constant_time),
        cmocka_unit_test(equal_keys_removed_in_any_order),
        cmocka_unit_test(no_keys_share_a_chain_everywhere),
        cmocka_unit_test(timers_come_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
