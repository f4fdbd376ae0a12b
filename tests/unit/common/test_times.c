/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Durations of operations in their states (op/times.c): which operations are sampled, and the
 * counts. */
#include "op/times.h"
#include "tests/lib/clock.h"
#include "unit.h"

#define LOOKS (2 * CLOCK_TICK_NS) /* most clock readings in one stage */

/* Begins an operation in state QUEUED, which is sampled if it is its turn. */
static struct rme_op *begin(struct rme_times *times, struct rme_op *op)
{
    *op = (struct rme_op){.kind = RME_OP_SEND, .state = RME_OP_QUEUED};
    rme_times_begin(times, op);
    return op;
}

static void step(struct rme_op *op, enum rme_op_state state)
{
    if (op->watch != NULL)
        rme_times_step(op);
    op->state = state;
}

static uint64_t sum(const struct rme_stage *stage)
{
    uint64_t n = 0;

    for (int i = 0; i < RME_TIME_CLASSES; i++)
        n += stage->count[i];
    return n;
}

static void classes_are_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(rme_times_class(0), 0);
    assert_int_equal(rme_times_class(1), 0);
    assert_int_equal(rme_times_class(2), 1);
    assert_int_equal(rme_times_class(3), 1);
    assert_int_equal(rme_times_class(4), 2);
    assert_int_equal(rme_times_class((UINT64_C(1) << 35) - 1), 34);
    assert_int_equal(rme_times_class(UINT64_C(1) << 35), 35);
    assert_int_equal(rme_times_class(UINT64_MAX), 35);
}

static void one_in_so_many_is_watched(void **state)
{
    struct rme_times times;
    struct rme_op op;
    unsigned watched = 0;

    (void)state;
    rme_times_init(&times, 3);
    for (int i = 0; i < 30; i++) {
        begin(&times, &op);
        if (op.watch != NULL) {
            watched++;
            rme_times_end(&times, &op, false);
        }
        assert_null(op.watch);
    }
    assert_int_equal(watched, 10);
    rme_times_init(&times, 0);
    for (int i = 0; i < 1000; i++)
        assert_null(begin(&times, &op)->watch);
    rme_times_clear(&times);
}

static void more_than_can_be_watched_are_not(void **state)
{
    struct rme_op op[RME_TIMES_WATCHED + 1];
    struct rme_times times;

    (void)state;
    rme_times_init(&times, 1);
    for (unsigned i = 0; i < RME_TIMES_WATCHED; i++)
        assert_non_null(begin(&times, &op[i])->watch);
    assert_null(begin(&times, &op[RME_TIMES_WATCHED])->watch);
    rme_times_end(&times, &op[3], true);
    assert_non_null(begin(&times, &op[3])->watch);
    rme_times_clear(&times);
}

/* Receives may stay posted without end: they do not keep others from being sampled, and active
 * ones keep their sample. */
static void who_waits_long_gives_its_watch_away(void **state)
{
    struct rme_op waits[RME_TIMES_WATCHED], works;
    struct rme_times times;
    struct rme_stage stage;

    (void)state;
    rme_times_init(&times, 1);
    for (unsigned i = 0; i < RME_TIMES_WATCHED; i++) {
        begin(&times, &waits[i]);
        waits[i].watch->since -= RME_TIMES_KEPT_NS + (uint64_t)1000000 * ((i + 3) % 7 + 1);
    }
    waits[2].watch->since += RME_TIMES_KEPT_NS;
    assert_non_null(begin(&times, &works)->watch);
    for (unsigned i = 0; i < RME_TIMES_WATCHED; i++)
        assert_int_equal(waits[i].watch == NULL, i == 3); /* the one that has waited longest */
    step(&waits[3], RME_OP_RTS);                          /* continues without a sample */
    rme_times_end(&times, &works, true);
    for (unsigned i = 0; i < 1000; i++) {
        assert_non_null(begin(&times, &works)->watch);
        rme_times_end(&times, &works, true);
    }
    assert_true(rme_times_at(&times, 0, &stage));
    assert_int_equal(sum(&stage), 1001);
    for (unsigned i = 0; i < 7; i++) /* all but the newest are dropped */
        begin(&times, &works);
    assert_non_null(waits[2].watch);
    rme_times_clear(&times);
}

/* A time counts under the protocol of the operation's message; unreported operations do not
 * count. */
static void counts_by_kind_protocol_and_state(void **state)
{
    struct rme_stage stage;
    struct rme_times times;
    struct rme_op op;

    (void)state;
    rme_times_init(&times, 1);
    assert_false(rme_times_at(&times, 0, &stage));
    for (int i = 0; i < 5; i++) {
        begin(&times, &op);
        clock_step_ms(1);
        step(&op, RME_OP_RTS);
        clock_step_ms(70);
        rme_times_went(&op, RME_PROTO_RNDV_READ);
        step(&op, RME_OP_ENDING);
        rme_times_end(&times, &op, i != 2);
    }
    assert_true(rme_times_at(&times, 0, &stage));
    assert_string_equal(stage.kind, "send");
    assert_string_equal(stage.protocol, "rendezvous_read");
    assert_string_equal(stage.stage, "queued");
    assert_int_equal(sum(&stage), 4);
    assert_int_equal(stage.count[rme_times_class(1000000)], 4);
    assert_in_range(stage.spent_ns, 4 * 1000000, 4 * 1000000 + 4 * LOOKS);
    assert_true(rme_times_at(&times, 1, &stage));
    assert_string_equal(stage.stage, "rts");
    assert_int_equal(sum(&stage), 4);
    assert_int_equal(stage.count[rme_times_class(70000000)], 4);
    assert_in_range(stage.spent_ns, 4 * 70000000, 4 * 70000000 + 4 * LOOKS);
    rme_times_clear(&times);
    assert_false(rme_times_at(&times, 0, &stage));
}

/* Each protocol has a row for each kind, and so have operations without one; all rows fit. */
static void each_protocol_has_its_row(void **state)
{
    static const char *const name[] = {"eager", "fast", "rendezvous_write", "rendezvous_read",
                                       "none"};
    struct rme_times times;
    struct rme_stage stage;
    struct rme_op op;
    int rows = 0;

    (void)state;
    rme_times_init(&times, 1);
    for (int i = 0; i < 4 * 5; i++) {
        begin(&times, &op);
        op.kind = (uint8_t)(i / 5);
        if (i % 5 != RME_PROTO_COUNT)
            rme_times_went(&op, (enum rme_proto)(i % 5));
        rme_times_end(&times, &op, true);
    }
    for (; rme_times_at(&times, rows, &stage); rows++) {
        assert_string_equal(stage.kind, rme_op_kind_name((enum rme_op_kind)(rows / 5)));
        assert_string_equal(stage.protocol, name[rows % 5]);
        assert_int_equal(sum(&stage), 1);
    }
    assert_int_equal(rows, 20);
    rme_times_clear(&times);
}

/* Registration is a stage beside the states; its length is the sum over its threads. */
static void registering_is_a_stage(void **state)
{
    struct rme_times times;
    struct rme_stage stage;
    struct rme_op op;

    (void)state;
    rme_times_init(&times, 1);
    begin(&times, &op);
    rme_times_registered(&op, 5000);
    rme_times_registered(&op, 3000);
    rme_times_end(&times, &op, true);
    assert_true(rme_times_at(&times, 1, &stage));
    assert_string_equal(stage.stage, "registering");
    assert_int_equal(sum(&stage), 1);
    assert_int_equal(stage.spent_ns, 8000);
    assert_int_equal(stage.count[12], 1);
    assert_false(rme_times_at(&times, 2, &stage));
    rme_times_registered(&op, 1); /* is not sampled */
    rme_times_clear(&times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_powers_of_two),
        cmocka_unit_test(one_in_so_many_is_watched),
        cmocka_unit_test(more_than_can_be_watched_are_not),
        cmocka_unit_test(who_waits_long_gives_its_watch_away),
        cmocka_unit_test(counts_by_kind_protocol_and_state),
        cmocka_unit_test(each_protocol_has_its_row),
        cmocka_unit_test(registering_is_a_stage),
    };

    return cmocka_run_group_tests(tests, clock_setup, NULL);
}
