/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Jobs of many origins alternate: many jobs of one origin do not delay another's. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/workers.h"

#include <semaphore.h>

#define CROWD 1000

static struct numbered {
    struct job job;
    int number;
} job[CROWD + 3];
static int order[CROWD + 3], ran;
static sem_t hold, stands;

static void stand(struct job *j)
{
    (void)j;
    sem_post(&stands);
    assert_int_equal(sem_wait(&hold), 0);
}

static void note(struct job *j)
{
    order[ran++] = ((struct numbered *)j)->number;
}

static void add(struct workers *w, int number, struct turn *turn)
{
    job[number] = (struct numbered){{.run = note, .turn = turn}, number};
    workers_add(w, &job[number].job);
}

/* One worker is blocked until all jobs wait. */
static void crowd_of_one_delays_no_other(void **state)
{
    struct turn greedy = {0}, modest = {0};
    struct workers *w;
    struct job first = {.run = stand};

    (void)state;
    ran = 0;
    assert_int_equal(sem_init(&hold, 0, 0), 0);
    assert_int_equal(workers_start(1, &w), 0);
    workers_add(w, &first);
    for (int i = 0; i < CROWD; i++)
        add(w, i, &greedy);
    add(w, CROWD, &modest);
    add(w, CROWD + 1, &modest);
    add(w, CROWD + 2, NULL);
    sem_post(&hold);
    workers_stop(w);
    assert_int_equal(ran, CROWD + 3);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], CROWD);
    assert_int_equal(order[2], CROWD + 2);
    assert_int_equal(order[3], 1);
    assert_int_equal(order[4], CROWD + 1);
    for (int i = 5; i < CROWD + 3; i++)
        assert_int_equal(order[i], i - 3);
    sem_destroy(&hold);
}

static struct workers *again;
static int left;

static void add_more(struct job *j)
{
    if (--left > 0)
        workers_add(again, j);
}

static void nested_jobs_run_before_the_end(void **state)
{
    struct turn turn = {0};
    struct job more = {.run = add_more, .turn = &turn};

    (void)state;
    left = 100;
    assert_int_equal(workers_start(4, &again), 0);
    workers_add(again, &more);
    workers_stop(again);
    assert_int_equal(left, 0);
}

static void note_and_go_on(struct job *j)
{
    note(j);
    sem_post(&hold);
}

/* One long job is blocked until a short one, added last, has run. */
static void long_jobs_leave_threads_to_others(void **state)
{
    struct turn greedy = {0}, modest = {0};
    struct job first = {.run = stand, .turn = &greedy, .is_long = true};
    struct workers *w;

    (void)state;
    ran = 0;
    assert_int_equal(sem_init(&hold, 0, 0), 0);
    assert_int_equal(workers_start(2, &w), 0);
    workers_add(w, &first);
    assert_int_equal(sem_wait(&stands), 0);
    job[0] = (struct numbered){{.run = note_and_go_on, .turn = &greedy, .is_long = true}, 0};
    workers_add(w, &job[0].job);
    job[1] = (struct numbered){{.run = note_and_go_on, .turn = &modest}, 1};
    workers_add(w, &job[1].job);
    workers_stop(w);
    assert_int_equal(ran, 2);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 0);
    sem_destroy(&hold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowd_of_one_delays_no_other),
        cmocka_unit_test(long_jobs_leave_threads_to_others),
        cmocka_unit_test(nested_jobs_run_before_the_end),
    };

    sem_init(&stands, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
