/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The BMI core and the shim out of memory: every allocation in a short use of BMI fails once.
 * The program is linked with --wrap for the allocating calls, and for the locks: a test may act
 * as another thread whenever no lock is held. Results must be true: failed calls had no effect,
 * successful ones work, and the next use of BMI is not affected.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shim_rig.h"

static bool armed;
static unsigned long calls, fail_at;

/* Makes allocations of the BMI call count, and not those of the test. */
#define BMI(call) (armed = true, result = (call), armed = false, result)

static bool fails(void)
{
    return armed && ++calls == fail_at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* Runs when a BMI call that holds no lock takes one, as if another thread ran there. This
 * program has one thread. */
static void (*on_gap)(void);
static int locks_held;

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    void (*act)(void) = on_gap;
    if (act != NULL && armed && locks_held == 0) {
        armed = false;
        act();
        armed = true;
    }
    locks_held++;
    return __real_pthread_mutex_lock(lock);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    locks_held--;
    return __real_pthread_mutex_unlock(lock);
}

/* Posts operations until one fails, and collects all reports. */
static void exchange(void)
{
    enum { COUNT = 150 };
    static char buffer[COUNT];
    bmi_op_id_t id, done[COUNT], ids[COUNT];
    int result, n, posted = 0, index[COUNT];
    bmi_error_code_t error[COUNT];
    bmi_size_t actual[COUNT];

    for (int i = 0; i < COUNT; i++) {
        result =
            BMI(BMI_post_send(&id, peer, buffer + i, 1, BMI_EXT_ALLOC, i, NULL, context, NULL));
        if (result < 0) {
            assert_int_equal(result, -BMI_ENOMEM);
            assert_int_equal(id, 0);
            continue;
        }
        ids[posted++] = id;
        fake_complete(fake.last_id, 0, 1);
    }
    result = BMI(BMI_testsome(posted, ids, &n, index, error, actual, NULL, 0, context));
    assert_true(result == 1 || result == -BMI_ENOMEM);
    int reported = n;
    while (BMI(BMI_testcontext(COUNT, done, &n, error, actual, NULL, 0, context)) == 1)
        reported += n;
    assert_int_equal(reported, posted);
}

/* Three messages of two peers: all arrive, in order, for any number of failed allocations. */
static void unexpected(void)
{
    struct BMI_unexpected_info info;
    struct rme_addr *a = fake_new_peer("10.0.0.1:5"), *b = fake_new_peer("10.0.0.2:5");
    int result, n, next[2] = {0, 100}, got = 0;

    fake_peer_sends(a, 0, 8);
    fake_peer_sends(a, 1, 8);
    fake_peer_sends(b, 100, 8);
    fake_peer_sends(a, 2, 8);
    for (int i = 0; i < 10 && got < 4; i++) {
        if (BMI(BMI_testunexpected(1, &n, &info, 0)) != 1)
            continue;
        int *expected = &next[info.tag >= 100];
        assert_int_equal(info.tag, *expected);
        ++*expected;
        got++;
        assert_int_equal(BMI(BMI_unexpected_free(info.addr, info.buffer)), 0);
        assert_int_equal(BMI(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL)), 0);
    }
    assert_int_equal(got, 4);
}

/* Uses BMI once; returns false if it could not be started for lack of memory. */
static bool live(void)
{
    int result = BMI(BMI_initialize("bmi_fake", "fake://me:1",
                                    BMI_INIT_SERVER | BMI_AUTO_REF_COUNT, "depth=3"));
    if (result < 0) {
        assert_true(result == -BMI_ENOMEM ||
                    result == -BMI_EINVAL); /* a lookup cannot return the reason */
        assert_int_equal(BMI_finalize(), -BMI_ENETDOWN);
        assert_int_equal(fake.engines, 0);
        assert_int_equal(fake.addrs, 0);
        return false;
    }
    result = BMI(BMI_open_context(&context));
    assert_int_equal(result, 0);
    result = BMI(BMI_addr_lookup(&peer, "fake://other:1", NULL));
    if (result == 0) {
        exchange();
    } else {
        assert_true(result == -BMI_ENOMEM || result == -BMI_ENOPROTOOPT);
        assert_int_equal(peer, 0);
    }
    unexpected();
    assert_int_equal(BMI(BMI_finalize()), 0);
    assert_int_equal(fake.engines, 0);
    assert_int_equal(fake.addrs, 0);
    return true;
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    unsigned long total;

    calls = fail_at = 0;
    assert_true(live());
    total = calls;
    assert_int_equal(total, 13); /* each allocation fails once */
    for (unsigned long k = 1; k <= total; k++) {
        calls = 0;
        fail_at = k;
        live();
        assert_true(calls >= k);
        fail_at = 0;
        assert_true(live());
    }
}

/* Messages still wait for memory when BMI ends. */
static void finalize_with_parked_messages(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n;

    for (int parked = 1; parked <= 3; parked++) {
        calls = fail_at = 0;
        start_server(0);
        struct rme_addr *a = fake_new_peer("10.0.0.1:5"), *b = fake_new_peer("10.0.0.2:5");
        fake_peer_sends(a, 1, 8);
        fake_peer_sends(a, 2, 8);
        fake_peer_sends(b, 3, 8);
        for (int i = 0; i < parked; i++) {
            int result;
            calls = 0;
            fail_at = 1;
            /* Only the first message of a sender fails; later ones wait without an attempt. */
            assert_int_equal(BMI(BMI_testunexpected(1, &n, &info, 0)), 0);
        }
        fail_at = 0;
        rme_addr_free(b); /* never reported to the host: the test's */
        assert_int_equal(BMI_finalize(), 0);
        assert_int_equal(fake.addrs, 0);
    }
}

/* Messages that wait for memory keep their order, for any number requested at a time. */
static void parked_messages_stay_in_order(void **state)
{
    (void)state;
    struct BMI_unexpected_info info[4];
    int n, result;

    start_server(0);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    for (int i = 0; i < 4; i++)
        fake_peer_sends(a, i, 8);
    static const int asked[] = {4, 2, 3, 1};
    for (int i = 0; i < 4; i++) {
        calls = 0;
        fail_at = 1;
        assert_int_equal(BMI(BMI_testunexpected(asked[i], &n, info, 0)), 0);
    }
    fail_at = 0;
    assert_int_equal(BMI(BMI_testunexpected(4, &n, info, 0)), 1);
    assert_int_equal(n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(info[i].tag, i);
        assert_int_equal(BMI_unexpected_free(info[i].addr, info[i].buffer), 0);
    }
    assert_int_equal(BMI_finalize(), 0);
}

/* One thread has no memory for a peer that another one registers at once, by the peer's next
 * message. Then the peer dies, before any of its messages is reported to the host. */
static struct rme_addr *early_dead;
static BMI_addr_t early_number;
static int asked_in_hand;

static void other_makes_it_known(void)
{
    struct BMI_unexpected_info info;
    int n;

    if (calls == 0) /* after the first thread's attempt */
        return;
    on_gap = NULL;
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    assert_int_equal(info.tag, 2);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    early_number = info.addr;
    fake_peer_dies(early_dead);
    for (int i = 0; i < 2; i++) /* the host is notified, and queries */
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, 2);
}

/* The host queries whether the address may be dropped, also while a thread holds its
 * message. */
static void host_asks(void)
{
    assert_int_equal(BMI_set_info(early_number, BMI_INC_ADDR_REF, NULL), 0);
    assert_int_equal(BMI_set_info(early_number, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(fake.addrs, 2);
    asked_in_hand++;
}

static void parked_message_keeps_its_sender(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n, result;

    start_server(BMI_AUTO_REF_COUNT);
    early_dead = fake_new_peer("10.0.0.1:5");
    fake_peer_sends(early_dead, 1, 8);
    fake_peer_sends(early_dead, 2, 8);
    calls = 0;
    fail_at = 1;
    on_gap = other_makes_it_known;
    assert_int_equal(BMI(BMI_testunexpected(1, &n, &info, 0)), 0);
    assert_null(on_gap);
    fail_at = 0;

    host_asks();
    asked_in_hand = 0;
    on_gap = host_asks;
    assert_int_equal(BMI(BMI_testunexpected(1, &n, &info, 0)), 1);
    on_gap = NULL;
    assert_true(asked_in_hand >= 3);
    assert_int_equal(info.tag, 1);
    assert_true(info.addr == early_number);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, 1);
    assert_int_equal(BMI_finalize(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_allocation_fails_once),
        TEST(finalize_with_parked_messages),
        TEST(parked_messages_stay_in_order),
        TEST(parked_message_keeps_its_sender),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
