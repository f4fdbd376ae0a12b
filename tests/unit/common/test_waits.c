/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Polling time of a wait before it sleeps, and its offers of the processor (wait.c). */
#include <sched.h>

#include "engine/engine.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define SPIN_US  50
#define OPTIONS  "regcache_entries=0,spin_us=50,measure_costs=0,keepalive_ms=0"
#define MISSES   5    /* long waits after which none polls */
#define ALONE_NS 2000 /* duration of an offer that no other thread takes */
#define TAKEN_NS 20000
#define KEPT_NS  4000000 /* duration of one that a process uses for its time slice */

static struct {
    unsigned offers;
    bool taken;     /* another thread takes the processor */
    bool kept;      /* and keeps it */
    uint64_t slept; /* time of the first sleep of a wait; 0: not yet */
} cpu;

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    cpu.offers++;
    clock_step_ns(cpu.kept ? KEPT_NS : cpu.taken ? TAKEN_NS : ALONE_NS);
    return 0;
}

/* Sleeps for the whole timeout, so that the wait polls once. */
static void sleep_on(void)
{
    if (cpu.slept == 0)
        cpu.slept = rme_now();
    clock_step_ms(2);
}

/* A message ends the sleep soon. */
static void sleep_shortly(void)
{
    clock_step_ns(1000);
    scripted_put((struct rme_wire_message){.type = RME_WIRE_UNEXPECTED}, NULL);
}

static void sleeper_open(const char *options)
{
    struct rme_hello hello = scripted_hello();

    cpu.taken = cpu.kept = false;
    cpu.offers = 0;
    scripted_open(options, &hello);
    script.sleeping = sleep_on;
}

static int open_it(void **state)
{
    (void)state;
    sleeper_open(OPTIONS);
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    scripted_close();
    return 0;
}

static uint64_t polls_us(void)
{
    struct rme_counter c;

    for (int i = 0; rme_session_get(scripted.rme, scripted.peer, i, &c) == 0; i++)
        if (strcmp(c.name, "polls_us") == 0)
            return c.value;
    fail_msg("polls_us is no attribute");
    return 0;
}

static void wait_in_vain(unsigned times)
{
    struct rme_done done;

    while (times-- > 0)
        assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 1), 0);
}

/* Waits; a message comes while the wait polls: two events, of which the first poll takes
 * one. */
static void wait_and_get(void)
{
    struct rme_unexpected u;

    scripted_put((struct rme_wire_message){.type = RME_WIRE_PING}, NULL);
    scripted_put((struct rme_wire_message){.type = RME_WIRE_UNEXPECTED}, NULL);
    assert_int_equal(rme_test_unexpected(scripted.rme, &u, 1, 1000), 1);
    rme_unexpected_free(scripted.rme, u.buffer);
}

static void what_is_in_vain_stops(void **state)
{
    uint64_t before = SPIN_US;

    (void)state;
    for (int i = 1; i < MISSES; i++) {
        wait_in_vain(1);
        assert_int_equal(polls_us(), before / 2);
        before /= 2;
    }
    wait_in_vain(1);
    assert_int_equal(polls_us(), 0);
}

/* A single delay does not stop polling, and the next success makes up for it. */
static void what_pays_goes_on(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * MISSES; i++) {
        wait_in_vain(1);
        wait_and_get();
        assert_int_equal(polls_us(), SPIN_US);
    }
}

/* A process that sleeps, but briefly, polls again. */
static void short_sleeps_bring_it_back(void **state)
{
    struct rme_unexpected u;

    (void)state;
    wait_in_vain(MISSES);
    for (int i = 0; i < 3; i++) {
        uint64_t before = polls_us();

        script.sleeping = sleep_shortly;
        assert_int_equal(rme_test_unexpected(scripted.rme, &u, 1, 1000), 1);
        rme_unexpected_free(scripted.rme, u.buffer);
        script.sleeping = sleep_on;
        assert_true(polls_us() > before);
    }
}

/* Returns the milliseconds after which a wait that polls for 100 ms at most first sleeps.
 * `before`: another thread takes the processor at the first offers, too. */
static uint64_t slept_after(bool before, bool taken)
{
    struct rme_done done;
    uint64_t begin;

    sleeper_open(OPTIONS ",spin_us=100000");
    cpu.taken = before;
    for (int i = 0; i < (before ? 2 : 1); i++) {
        /* learns the duration of an offer */
        assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 10), 0);
        cpu.taken = false;
    }
    for (int i = 0; i < MISSES; i++)
        wait_and_get();
    cpu.taken = taken;
    cpu.slept = 0;
    begin = rme_now();
    assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 150), 0);
    scripted_close();
    return cpu.slept - begin;
}

/* A wait whose offers of the processor are taken stops polling after a quarter of its time. */
static void a_wanted_processor_is_left_sooner(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        assert_in_range(slept_after(before != 0, true), 25, 26);
        assert_in_range(slept_after(before != 0, false), 100, 101);
    }
}

/* One offer that takes longer than the polling limit ends polling, for a multiple of its
 * time. */
static void a_processor_that_others_keep_ends_polling(void **state)
{
    struct rme_done done;

    (void)state;
    cpu.kept = true;
    assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 100), 0);
    assert_int_equal(cpu.offers, 1);
    cpu.kept = false;
    for (int i = 0; i < MISSES; i++)
        wait_and_get();
    assert_int_equal(polls_us(), 0);
    clock_step_ns(64 * KEPT_NS);
    assert_int_equal(polls_us(), SPIN_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_in_vain_stops, open_it, close_it),
        cmocka_unit_test_setup_teardown(what_pays_goes_on, open_it, close_it),
        cmocka_unit_test_setup_teardown(short_sleeps_bring_it_back, open_it, close_it),
        cmocka_unit_test_setup_teardown(a_processor_that_others_keep_ends_polling, open_it,
                                        close_it),
        cmocka_unit_test(a_wanted_processor_is_left_sooner),
    };
    return cmocka_run_group_tests(tests, clock_setup, NULL);
}
