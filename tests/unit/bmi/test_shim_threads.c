/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The shim with threads that post and others that test. The engine completes each operation
 * before its post returns, so a test reports most of them during the post, and its caller frees
 * the operation's owner, like hosts do. For AddressSanitizer and ThreadSanitizer as well as its
 * asserts.
 */
#include <pthread.h>
#include <sched.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(two_post_and_two_test),
                                       TEST(peer_met_by_two_threads_registered_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
