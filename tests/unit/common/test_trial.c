/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "unit.h"
#include "base/trial.h"

/* Runs of a trial and their scripted times. */
struct script {
    const uint64_t *took;
    uint32_t runs;
    uint32_t fails; /* this run; UINT32_MAX: none */
    char order[32];
};

static uint64_t play(void *arg, uint32_t thing)
{
    struct script *s = arg;

    s->order[s->runs] = (char)('a' + thing);
    if (s->runs == s->fails)
        return 0;
    return s->took[s->runs++];
}

static const uint64_t took[] = {1, 2, 30, 50, 20, 60, 25, 40, 9, 9};

static void things_are_taken_in_turn_and_the_best_counts(void **state)
{
    struct rme_trial trial = {2, 1, 1, 3, UINT64_MAX};
    struct script s = {.took = took, .fails = UINT32_MAX};
    uint64_t best[2];

    (void)state;
    assert_true(rme_trial(&trial, play, &s, best));
    assert_string_equal(s.order, "abababab");
    assert_int_equal(best[0], 20); /* the first round, 1 and 2, is ignored */
    assert_int_equal(best[1], 40);
}

static void without_time_only_the_least_is_run(void **state)
{
    struct rme_trial trial = {2, 1, 2, 3, 0};
    struct script s = {.took = took, .fails = UINT32_MAX};
    uint64_t best[2];

    (void)state;
    assert_true(rme_trial(&trial, play, &s, best));
    assert_string_equal(s.order, "ababab");
    assert_int_equal(best[0], 20);
    assert_int_equal(best[1], 50);
}

static void a_run_that_fails_ends_it(void **state)
{
    struct rme_trial trial = {2, 1, 2, 3, UINT64_MAX};
    uint64_t best[2];

    (void)state;
    for (uint32_t fails = 0; fails < 8; fails++) {
        struct script s = {.took = took, .fails = fails};

        assert_false(rme_trial(&trial, play, &s, best));
        assert_int_equal(strlen(s.order), fails + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(things_are_taken_in_turn_and_the_best_counts),
        cmocka_unit_test(without_time_only_the_least_is_run),
        cmocka_unit_test(a_run_that_fails_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
