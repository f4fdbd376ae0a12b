/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A thread forks while another one holds any of BMI's locks: the fork returns, in the child
 * each call returns, and BMI can be started again. The program is linked with --wrap for
 * pthread_mutex_lock: the other thread stops with its lock until the fork is done, or until the
 * forking thread waits for that lock. The result is therefore independent of timing.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim_rig.h"

enum { PATIENCE_S = 600 }; /* timeout of a child that hangs, and of a fork */

static _Thread_local bool forks, stops;
/* the other thread's locks: number of the one at which it stops; number so far */
static int stop_at, taken;
static sem_t stopped, go_on;

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (forks) {
        if (pthread_mutex_trylock(lock) == 0)
            return 0;
        sem_post(&go_on);
    }
    int ret = __real_pthread_mutex_lock(lock);
    if (stops && ++taken == stop_at) {
        sem_post(&stopped);
        while (sem_wait(&go_on) != 0)
            ;
    }
    return ret;
}

/* A peer comes, sends and dies; an operation is posted and reported. Returns true if all
 * succeeded. */
static bool live(void)
{
    static char buffer[8];
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    struct BMI_unexpected_info info;
    bmi_op_id_t id;
    bmi_error_code_t error;
    bmi_size_t actual;
    int n, result = 0;

    fake_peer_sends(a, 1, 8);
    result |= BMI_testunexpected(1, &n, &info, 0) != 1;
    result |= BMI_unexpected_free(info.addr, info.buffer);
    result |= BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL);
    fake_peer_dies(a);
    for (int i = 0; i < 2; i++)
        result |= BMI_testunexpected(1, &n, &info, 0);
    result |= BMI_post_recv(&id, peer, buffer, 8, NULL, BMI_EXT_ALLOC, 1, NULL, context, NULL);
    fake_complete(fake.last_id, 0, 8);
    result |= BMI_testcontext(1, &id, &n, &error, &actual, NULL, 0, context) != 1;
    return result == 0;
}

static void *live_and_stop(void *arg)
{
    bool *well = arg;
    stops = true;
    *well = live();
    stops = false;
    if (taken < stop_at)
        sem_post(&stopped);
    return NULL;
}

static void start(void)
{
    start_server(BMI_AUTO_REF_COUNT);
    assert_int_equal(BMI_addr_lookup(&peer, "fake://host:1", NULL), 0);
}

/* Returns 0, or the number of the call that failed. */
static int call_in_child(void)
{
    BMI_addr_t again;
    struct BMI_unexpected_info info;
    bmi_op_id_t id;
    bmi_error_code_t error;
    bmi_size_t actual;
    int n;

    fake.forked = true;
    if (BMI_post_send(&id, peer, "x", 1, BMI_EXT_ALLOC, 1, NULL, context, NULL) != -BMI_ENODEV)
        return 1;
    if (BMI_testcontext(1, &id, &n, &error, &actual, NULL, 0, context) != 0)
        return 2;
    if (BMI_testunexpected(1, &n, &info, 0) != 0)
        return 3;
    if (BMI_addr_lookup(&again, "fake://host:1", NULL) != 0 || again != peer)
        return 4;
    if (BMI_set_info(peer, BMI_INC_ADDR_REF, NULL) != 0)
        return 5;
    if (BMI_finalize() != 0)
        return 6;
    fake.forked = false;
    if (BMI_initialize("bmi_fake", "fake://me:1", BMI_INIT_SERVER | BMI_AUTO_REF_COUNT, NULL) !=
        0)
        return 7;
    if (BMI_open_context(&context) != 0 || BMI_addr_lookup(&peer, "fake://host:1", NULL) != 0)
        return 8;
    int addrs = fake.addrs;
    if (!live() || BMI_testunexpected(1, &n, &info, 0) != 0 || fake.addrs != addrs)
        return 9;
    return BMI_finalize() == 0 ? 0 : 10;
}

/* Forks. The child writes its result to a pipe, and the parent kills it, so that no tool
 * reports inherited memory as leaked. */
static void fork_now(void)
{
    int result[2], status;
    char answer;

    assert_int_equal(pipe(result), 0);
    forks = true;
    alarm(PATIENCE_S); /* for locks that the two threads take in different orders */
    pid_t child = fork();
    alarm(0);
    forks = false;
    if (child == 0) {
        alarm(PATIENCE_S);
        answer = (char)call_in_child();
        (void)!write(result[1], &answer, 1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    sem_post(&go_on);
    close(result[1]);
    ssize_t answers = read(result[0], &answer, 1); /* 0: the child hung */
    close(result[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (answers != 1 || answer != 0)
        print_message("lock %d of the other thread\n", stop_at);
    assert_int_equal(answers, 1);
    assert_int_equal(answer, 0);
}

/* Forks while the other thread holds its `stop_at`th lock; returns false if it takes fewer. */
static bool fork_at_lock(void)
{
    pthread_t thread;
    bool well = false;

    taken = 0;
    assert_int_equal(sem_init(&stopped, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, live_and_stop, &well), 0);
    while (sem_wait(&stopped) != 0)
        ;
    bool reached = taken >= stop_at;
    if (reached)
        fork_now();
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(well);
    return reached;
}

static void child_finds_no_lock_taken(void **state)
{
    (void)state;
    start();
    for (stop_at = 1; fork_at_lock(); stop_at++)
        ;
    assert_true(stop_at > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(child_finds_no_lock_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
