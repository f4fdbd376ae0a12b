/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The BMI core with many threads, for ThreadSanitizer as well as its asserts. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "bmi.h"
#include "bmi-method-callback.h"
#include "loop_method.h"

enum { THREADS = 4, ROUNDS = 2000 };

struct job {
    pthread_t thread;
    int number;
    bmi_context_id context;
    atomic_int *failures;
};

#define EXPECT(job, what)                                                                      \
    do {                                                                                       \
        if (!(what))                                                                           \
            atomic_fetch_add((job)->failures, 1);                                              \
    } while (0)

static void run(void *(*body)(void *), atomic_int *failures)
{
    struct job job[THREADS];

    atomic_store(failures, 0);
    for (int i = 0; i < THREADS; i++) {
        job[i] = (struct job){.number = i, .failures = failures};
        assert_int_equal(BMI_open_context(&job[i].context), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&job[i].thread, NULL, body, &job[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(job[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        BMI_close_context(job[i].context);
    assert_int_equal(atomic_load(failures), 0);
}

/* Every thread looks up the same names, sends to itself over both methods and receives its
 * messages. */
static void *look_up_and_send(void *arg)
{
    struct job *job = arg;
    char text[32], in[2][4];
    bmi_op_id_t ids[4], done[4];
    bmi_error_code_t error[4];
    bmi_size_t actual[4];
    void *user[4];

    for (int round = 0; round < ROUNDS; round++) {
        BMI_addr_t addr[2];
        for (int i = 0; i < 2; i++) {
            snprintf(text, sizeof(text), "loop%c://host%d", 'a' + i, round % 50);
            EXPECT(job, BMI_addr_lookup(&addr[i], text, NULL) == 0);
            EXPECT(job, BMI_post_recv(&ids[2 * i], addr[i], in[i], 4, NULL, BMI_EXT_ALLOC,
                                      job->number, job, job->context, NULL) == 0);
            EXPECT(job, BMI_post_send(&ids[2 * i + 1], addr[i], "abc", 4, BMI_EXT_ALLOC,
                                      job->number, job, job->context, NULL) == 0);
        }
        int total = 0, n;
        while (total < 4) {
            EXPECT(job,
                   BMI_testcontext(4, done, &n, error, actual, user, 0, job->context) >= 0);
            for (int i = 0; i < n; i++)
                EXPECT(job, error[i] == 0 && actual[i] == 4 && user[i] == job);
            total += n;
        }
        EXPECT(job, total == 4 && strcmp(in[0], "abc") == 0);
        EXPECT(job, BMI_cancel(ids[0], job->context) == 0);
    }
    return NULL;
}

static void threads_look_up_and_send(void **state)
{
    (void)state;
    atomic_int failures;

    loop_reset();
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    run(look_up_and_send, &failures);
    assert_int_equal(loops[LOOP_A].initialized, 1);
    assert_int_equal(loops[LOOP_B].initialized, 1);
    int lookups = loops[LOOP_A].drops; /* objects of lookups that lost the race for a name */
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(loops[LOOP_A].drops, lookups + 50);
}

/* Every thread plays peers that come, send and die, and a server that takes the next message of
 * any. */
static void *come_and_go(void *arg)
{
    struct job *job = arg;
    struct BMI_unexpected_info info[3];
    int n;

    for (int round = 0; round < ROUNDS; round++) {
        bmi_method_addr_p peer = loop_new_peer(&loops[round & 1], "short-lived", true);
        loop_peer_dies(peer);
        loop_peer_sends(&loops[round & 1], peer, job->number, 8);
        EXPECT(job, BMI_testunexpected(3, &n, info, 0) >= 0);
        for (int i = 0; i < n; i++) {
            EXPECT(job, BMI_addr_rev_lookup(info[i].addr) == NULL);
            EXPECT(job, BMI_unexpected_free(info[i].addr, info[i].buffer) == 0);
            EXPECT(job, bmi_method_addr_forget_callback(info[i].addr) == 0);
            EXPECT(job, BMI_set_info(info[i].addr, BMI_DEC_ADDR_REF, NULL) == 0);
        }
    }
    return NULL;
}

static void threads_serve_peers_that_die(void **state)
{
    (void)state;
    atomic_int failures;

    loop_reset();
    assert_int_equal(BMI_initialize("bmi_loopa,bmi_loopb", "loopa://me,loopb://me",
                                    BMI_INIT_SERVER | BMI_AUTO_REF_COUNT, NULL),
                     0);
    run(come_and_go, &failures);
    assert_int_equal(BMI_finalize(), 0);
    assert_int_equal(loops[LOOP_A].drops + loops[LOOP_B].drops, THREADS * ROUNDS);
}

/* Every thread starts and stops BMI, overlapping with the others. */
static void *start_and_stop(void *arg)
{
    struct job *job = arg;
    BMI_addr_t addr;

    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(job, BMI_initialize(NULL, NULL, 0, NULL) == 0);
        EXPECT(job, BMI_addr_lookup(&addr, "loopa://x", NULL) == 0);
        EXPECT(job, BMI_addr_rev_lookup(addr) != NULL);
        EXPECT(job, BMI_finalize() == 0);
    }
    return NULL;
}

static void threads_start_and_stop(void **state)
{
    (void)state;
    struct job job[THREADS];
    atomic_int failures = 0;

    loop_reset();
    for (int i = 0; i < THREADS; i++) {
        job[i] = (struct job){.number = i, .failures = &failures};
        assert_int_equal(pthread_create(&job[i].thread, NULL, start_and_stop, &job[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(job[i].thread, NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(BMI_finalize(), -BMI_ENETDOWN);
    assert_int_equal(loops[LOOP_A].initialized, loops[LOOP_A].finalized);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_look_up_and_send),
        cmocka_unit_test(threads_serve_peers_that_die),
        cmocka_unit_test(threads_start_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
