/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Polling time of a wait before it sleeps, and its offers of the processor (wait.c). */
#include <sched.h>

#include "engine/engine.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define SPIN_US  50
#define OPTIONS  "regcache_entries=0,poll_us=50,keepalive_ms=0"
#define VAIN     8       /* FAILS_MAX */
#define TRIES    4       /* polls after a pause */
#define PAUSE    16      /* PAUSE_MIN */
#define ALONE_NS 2000    /* duration of an offer that no other thread takes */
#define KEPT_NS  4000000 /* duration of one that a process uses for its time slice */

static struct {
    unsigned offers;
    bool kept; /* another thread takes the processor, and keeps it */
} cpu;

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    cpu.offers++;
    clock_step_ns(cpu.kept ? KEPT_NS : ALONE_NS);
    return 0;
}

/* Sleeps for longer than any wait here, so that each wait polls once. */
static void sleep_on(void)
{
    clock_step_ms(200);
}

static void sleeper_open(const char *options)
{
    struct rme_hello hello = scripted_hello();

    cpu.kept = false;
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
        cmocka_unit_test_setup_teardown(kept_processor_ends_polling, open_it,
                                        scripted_teardown),
    };
    return cmocka_run_group_tests(tests, clock_setup, NULL);
}
