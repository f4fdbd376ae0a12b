/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Polling time of a wait before it sleeps, and its offers of the processor (wait.c). */
#include <sched.h>

#include "engine/engine.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define SPIN_US  50
#define OPTIONS  "regcache_entries=0,poll_us=50,keepalive_ms=0"
#define VAIN     8    /* FAILS_MAX */
#define TRIES    4    /* polls after a pause */
#define PAUSE    16   /* PAUSE_MIN */
#define SKIP     15   /* YIELD_SKIP_MAX */
#define ALONE_NS 2000 /* duration of an offer that no other thread takes */
#define TAKEN_NS 20000
#define KEPT_NS  4000000 /* duration of one that a process uses for its time slice */

static struct {
    unsigned offers;
    uint64_t first; /* nanosecond of the first offer; 0: not yet */
    bool taken;     /* another thread takes the processor */
    bool kept;      /* and keeps it */
    uint64_t slept; /* time of the first sleep of a wait; 0: not yet */
} cpu;

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    cpu.offers++;
    if (cpu.first == 0)
        cpu.first = rme_now_ns();
    clock_step_ns(cpu.kept ? KEPT_NS : cpu.taken ? TAKEN_NS : ALONE_NS);
    return 0;
}

/* Sleeps for longer than any wait here, so that each wait polls once. */
static void sleep_on(void)
{
    if (cpu.slept == 0)
        cpu.slept = rme_now();
    clock_step_ms(200);
}

static void sleeper_open(const char *options)
{
    struct rme_hello hello = scripted_hello();

    cpu.taken = cpu.kept = false;
    scripted_open(options, &hello);
    script.sleeping = sleep_on;
}

static int open_it(void **state)
{
    (void)state;
    sleeper_open(OPTIONS);
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
    scripted_put(
        (struct rme_wire_message){.type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED},
        NULL);
    assert_int_equal(rme_test_unexpected(scripted.rme, &u, 1, 1000), 1);
    rme_unexpected_free(scripted.rme, u.buffer);
}

/* Makes failed waits until the next one polls `us`; returns their number. */
static unsigned waits_until(uint64_t us)
{
    unsigned n = 0;

    for (; polls_us() != us; n++) {
        assert_in_range(n, 0, 1000);
        wait_in_vain(1);
    }
    return n;
}

struct wait {
    unsigned vain, got; /* waits in vain, then successful ones */
    uint64_t polls_us;  /* of the next wait */
    unsigned pause;     /* least number of waits until polling resumes; 0: no pause */
};

static void play(const struct wait *row, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        wait_in_vain(row[i].vain);
        for (unsigned n = 0; n < row[i].got; n++)
            wait_and_get();
        assert_int_equal(polls_us(), row[i].polls_us);
        if (row[i].pause > 0)
            assert_in_range(waits_until(SPIN_US), row[i].pause, 2 * row[i].pause - 1);
    }
}
#define PLAY(...)                                                                              \
    play((const struct wait[]){__VA_ARGS__},                                                   \
         sizeof((const struct wait[]){__VA_ARGS__}) / sizeof(struct wait))

/* After a pause a few waits try again; when these fail, after a longer pause. */
static void failed_polling_pauses(void **state)
{
    (void)state;
    PLAY({VAIN - 1, 0, SPIN_US, 0}, {1, 0, 0, PAUSE}, {TRIES - 1, 0, SPIN_US, 0},
         {1, 0, 0, 2 * PAUSE}, {TRIES - 1, 0, SPIN_US, 0}, {1, 0, 0, 0});
}

/* A single delay does not stop polling, and neither do two failures in three. */
static void successful_polling_continues(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * VAIN; i++)
        PLAY({2, 1, SPIN_US, 0});
    PLAY({VAIN - 1, 0, SPIN_US, 0});
}

/* One successful try suffices, and the next pause is short again. */
static void successful_try_shortens_pause(void **state)
{
    (void)state;
    PLAY({VAIN, 0, 0, PAUSE}, {TRIES - 1, 1, SPIN_US, 0}, {2, 0, SPIN_US, 0}, {1, 0, 0, PAUSE},
         {TRIES - 1, 1, SPIN_US, 0}, {3, 0, 0, PAUSE});
}

static void offers_that_nobody_takes_are_rare(void **state)
{
    struct rme_polling *polling = &rme_engine(scripted.rme)->polling;

    (void)state;
    for (int i = 0; i < 100 && polling->yield_skip < SKIP; i++)
        wait_in_vain(1);
    assert_int_equal(polling->yield_skip, SKIP);
    cpu.taken = true;
    cpu.offers = 0;
    for (int i = 0; i < 200 && cpu.offers == 0; i++)
        wait_in_vain(1);
    assert_int_equal(polling->yield_skip, 0);
}

/* Returns the nanoseconds that a wait polls before it offers the processor.  The wait may last
 * for longer than polling: 10 ms. */
static uint64_t polls_before_offer(void)
{
    struct rme_done done;
    uint64_t begin = rme_now_ns();

    cpu.first = 0;
    assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 10), 0);
    assert_int_not_equal(cpu.first, 0);
    return cpu.first - begin;
}

/* A 16th of the polling time; a 64th if another thread ran during the last offer. */
static void wanted_processor_is_offered_sooner(void **state)
{
    const uint64_t spin_ns = 8000000;

    (void)state;
    sleeper_open(OPTIONS ",poll_us=8000");
    polls_before_offer();
    assert_in_range(polls_before_offer(), spin_ns / 16, spin_ns / 8);
    cpu.taken = true;
    polls_before_offer();
    assert_in_range(polls_before_offer(), spin_ns / 64, spin_ns / 32);
    cpu.taken = false;
    polls_before_offer();
    assert_in_range(polls_before_offer(), spin_ns / 16, spin_ns / 8);
    scripted_close();
}

/* Returns the milliseconds after which a wait that polls for 100 ms at most first sleeps.
 * `before`: another thread takes the processor at the first offers, too. */
static uint64_t slept_after(bool before, bool taken)
{
    struct rme_done done;
    uint64_t begin;

    sleeper_open(OPTIONS ",poll_us=100000");
    cpu.taken = before;
    for (int i = 0; i < (before ? 2 : 1); i++) {
        /* learns the duration of an offer */
        assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 10), 0);
        cpu.taken = false;
    }
    cpu.taken = taken;
    cpu.slept = 0;
    begin = rme_now();
    assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 150), 0);
    scripted_close();
    return cpu.slept - begin;
}

/* A wait whose offers of the processor are taken stops polling after a quarter of its time. */
static void wanted_processor_is_left_sooner(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        assert_in_range(slept_after(before != 0, true), 25, 26);
        assert_in_range(slept_after(before != 0, false), 100, 101);
    }
}

/* One offer that takes longer than the polling limit ends polling. */
static void kept_processor_ends_polling(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        waits_until(SPIN_US);
        cpu.offers = 0;
        cpu.kept = true;
        for (int j = 0; j < 100 && cpu.offers == 0; j++)
            wait_in_vain(1);
        cpu.kept = false;
        assert_int_equal(cpu.offers, 1);
        assert_int_equal(polls_us(), 0);
    }
    assert_in_range(waits_until(SPIN_US), PAUSE << 2, 2 * (PAUSE << 2) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(failed_polling_pauses, open_it, scripted_teardown),
        cmocka_unit_test_setup_teardown(successful_polling_continues, open_it,
                                        scripted_teardown),
        cmocka_unit_test_setup_teardown(successful_try_shortens_pause, open_it,
                                        scripted_teardown),
        cmocka_unit_test_setup_teardown(offers_that_nobody_takes_are_rare, open_it,
                                        scripted_teardown),
        cmocka_unit_test_setup_teardown(kept_processor_ends_polling, open_it,
                                        scripted_teardown),
        cmocka_unit_test(wanted_processor_is_offered_sooner),
        cmocka_unit_test(wanted_processor_is_left_sooner),
    };
    return cmocka_run_group_tests(tests, clock_setup, NULL);
}
