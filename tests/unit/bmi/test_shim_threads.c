/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The BMI core and the shim with threads, for AddressSanitizer and ThreadSanitizer as well as
 * the asserts. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "bmi-method-callback.h"
#include "shim_rig.h"
#include "tests/lib/asleep.h"

enum { POSTERS = 2, TESTERS = 2, POSTS = 5000, AT_ONCE = 4 };

struct job {
    bmi_op_id_t id;
    char buffer[8];
};

static atomic_int posted, reported, failures;

#define EXPECT(what)                                                                           \
    do {                                                                                       \
        if (!(what))                                                                           \
            atomic_fetch_add(&failures, 1);                                                    \
    } while (0)

static void note(struct job *job, bmi_op_id_t id, bmi_error_code_t error)
{
    EXPECT(error == 0);
    EXPECT(job->id == id);
    free(job);
    atomic_fetch_add(&reported, 1);
}

/* The engine completes each operation before its post returns, so a test reports most of them
 * during the post, and its caller frees the operation's owner, like hosts do. */
static void *post(void *arg)
{
    (void)arg;
    for (int i = 0; i < POSTS; i++) {
        struct job *job = calloc(1, sizeof(*job));
        bmi_size_t actual;
        int ret = i % 2 ? BMI_post_recv(&job->id, peer, job->buffer, 8, &actual, BMI_EXT_ALLOC,
                                        i, job, context, NULL)
                        : BMI_post_send(&job->id, peer, job->buffer, 8, BMI_EXT_ALLOC, i, job,
                                        context, NULL);
        EXPECT(ret == 0);
        atomic_fetch_add(&posted, 1);
        while (atomic_load(&posted) - atomic_load(&reported) >
               50) /* the engine's list is slow */
            sched_yield();
    }
    return NULL;
}

static void *test(void *arg)
{
    bmi_op_id_t ids[AT_ONCE];
    bmi_error_code_t error[AT_ONCE];
    bmi_size_t actual[AT_ONCE];
    void *user[AT_ONCE];
    int n;

    (void)arg;
    while (atomic_load(&reported) < POSTERS * POSTS) {
        EXPECT(BMI_testcontext(AT_ONCE, ids, &n, error, actual, user, 0, context) >= 0);
        for (int i = 0; i < n; i++)
            note(user[i], ids[i], error[i]);
        if (n == 0)
            sched_yield();
    }
    return NULL;
}

static void two_post_and_two_test(void **state)
{
    (void)state;
    pthread_t thread[POSTERS + TESTERS];

    start_client();
    fake.finish_at_once = true;
    for (int i = 0; i < POSTERS + TESTERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, i < POSTERS ? post : test, NULL), 0);
    for (int i = 0; i < POSTERS + TESTERS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(atomic_load(&reported), POSTERS * POSTS);
}

/* ---- A new peer met by two threads ---- */

static struct {
    pthread_t thread;
    atomic_int tid, done, registered;
    struct BMI_unexpected_info info;
} second;

static void *take_second(void *arg)
{
    int n = 0;

    (void)arg;
    asleep_announce(&second.tid);
    EXPECT(BMI_testunexpected(1, &n, &second.info, 0) >= 0 && n == 1);
    atomic_store(&second.done, 1);
    return NULL;
}

BMI_addr_t __real_bmi_method_addr_reg_callback(bmi_method_addr_p map);
BMI_addr_t __wrap_bmi_method_addr_reg_callback(bmi_method_addr_p map);

/* Lets another thread take the peer's second message during the registration for the first. */
BMI_addr_t __wrap_bmi_method_addr_reg_callback(bmi_method_addr_p map)
{
    if (atomic_fetch_add(&second.registered, 1) == 0) {
        EXPECT(pthread_create(&second.thread, NULL, take_second, NULL) == 0);
        while (!atomic_load(&second.done) && !asleep_now(&second.tid, 'S'))
            sched_yield();
    }
    return __real_bmi_method_addr_reg_callback(map);
}

static void peer_met_by_two_threads_registered_once(void **state)
{
    (void)state;
    struct rme_addr *from = fake_new_peer("fake://newcomer:1");
    struct BMI_unexpected_info first;
    int n = 0;

    start_server(0);
    fake_peer_sends(from, 1, 8);
    fake_peer_sends(from, 2, 8);
    assert_true(BMI_testunexpected(1, &n, &first, 0) >= 0);
    assert_int_equal(pthread_join(second.thread, NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(atomic_load(&second.registered), 1);
    assert_int_equal(n, 1);
    assert_int_equal(first.tag + second.info.tag, 3);
    assert_int_equal(first.addr, second.info.addr);
    BMI_unexpected_free(first.addr, first.buffer);
    BMI_unexpected_free(first.addr, second.info.buffer);
    fake_peer_dies(from);
}

/* ---- Many peers ---- */

enum { THREADS = 4, ROUNDS = 1000 };

static void run(void *(*body)(void *), void *arg)
{
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, body, arg), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
}

/* Peers appear, send and die while several threads serve. */
static void *serve_the_dying(void *arg)
{
    atomic_int *served = arg;
    struct BMI_unexpected_info info[2];
    int n;

    for (int i = 0; i < ROUNDS; i++) {
        struct rme_addr *a = fake_new_peer("10.0.0.1:5");
        fake_peer_sends(a, i, 8);
        fake_peer_sends(a, i, 8);
        if (i % 2)
            fake_peer_dies(a);
        BMI_testunexpected(2, &n, info, i % 50 == 0);
        for (int k = 0; k < n; k++) {
            int good = BMI_addr_rev_lookup_unexpected(info[k].addr)[0] == '1';
            good &= BMI_unexpected_free(info[k].addr, info[k].buffer) == 0;
            good &= BMI_set_info(info[k].addr, BMI_DEC_ADDR_REF, NULL) == 0;
            atomic_fetch_add(served, good);
        }
    }
    return NULL;
}

static void threads_serve_many_peers(void **state)
{
    (void)state;
    atomic_int served = 0;
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    run(serve_the_dying, &served);
    while (BMI_testunexpected(1, &n, &info, 0) == 1) {
        served += n;
        answer(&info);
    }
    assert_int_equal(served, THREADS * ROUNDS * 2);
    /* Half of the peers are alive. */
    find_nothing(2 * THREADS * ROUNDS);
    assert_int_equal(fake.addrs, THREADS * ROUNDS / 2 + 1);
}

/* Two threads wait for messages in turn: each leaves when the other has come, so one is always
 * waiting. A peer that died before is dropped when the last one comes. */
enum { TURNS = 20 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int come, addrs_at_last;
} turns = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_for_the_other(void)
{
    pthread_mutex_lock(&turns.lock);
    int mine = ++turns.come;
    if (mine == TURNS)
        turns.addrs_at_last = fake.addrs;
    pthread_cond_broadcast(&turns.changed);
    while (mine < TURNS && turns.come == mine)
        pthread_cond_wait(&turns.changed, &turns.lock);
    pthread_mutex_unlock(&turns.lock);
}

static bool turns_are_over(void)
{
    pthread_mutex_lock(&turns.lock);
    bool over = turns.come >= TURNS;
    pthread_mutex_unlock(&turns.lock);
    return over;
}

static void *wait_in_turn(void *arg)
{
    struct BMI_unexpected_info info;
    int n, *failed = arg;

    while (!turns_are_over())
        if (BMI_testunexpected(1, &n, &info, 0) != 0)
            *failed = 1;
    return NULL;
}

static void threads_in_turn_keep_no_dead_peer(void **state)
{
    (void)state;
    pthread_t thread[2];
    struct BMI_unexpected_info info;
    int failed[2] = {0, 0};

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    fake_peer_sends(a, 1, 10);
    receive(&info);
    answer(&info);
    fake_peer_dies(a);
    turns.come = turns.addrs_at_last = 0;
    fake.on_none = wait_for_the_other;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, wait_in_turn, &failed[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(failed[0] + failed[1], 0);
    assert_int_equal(turns.addrs_at_last, 1);
    assert_int_equal(fake.addrs, 1);
}

/* ---- Start and stop ---- */

/* Starts and stops BMI, overlapping with the others, and looks up the same names. */
static void *start_and_stop(void *arg)
{
    BMI_addr_t addr, again;
    char text[32];

    (void)arg;
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(text, sizeof(text), "fake://host%d:1", round % 50);
        EXPECT(BMI_initialize(NULL, NULL, 0, NULL) == 0);
        EXPECT(BMI_addr_lookup(&addr, text, NULL) == 0);
        EXPECT(BMI_addr_lookup(&again, text, NULL) == 0 && again == addr);
        EXPECT(BMI_addr_rev_lookup(addr) != NULL);
        EXPECT(BMI_finalize() == 0);
    }
    return NULL;
}

static void threads_start_and_stop(void **state)
{
    (void)state;
    run(start_and_stop, NULL);
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(BMI_finalize(), -BMI_ENETDOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_post_and_two_test),    TEST(peer_met_by_two_threads_registered_once),
        TEST(threads_serve_many_peers), TEST(threads_in_turn_keep_no_dead_peer),
        TEST(threads_start_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
