/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The shim: peers that come, send, and die; threads. */
#include <pthread.h>
#include <stdlib.h>

#include "shim_rig.h"

static void messages_of_peers(void **state)
{
    (void)state;
    struct BMI_unexpected_info info[8];
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5"), *b = fake_new_peer("10.0.0.2:5");
    fake_peer_sends(a, 1, 16384);
    fake_peer_sends(b, 2, 0);
    fake_peer_sends(a, 3, 8);
    assert_int_equal(BMI_testunexpected(8, &n, info, 0), 1);
    assert_int_equal(n, 3);
    assert_int_equal(info[0].size, 16384);
    assert_int_equal(info[1].size, 0);
    assert_true(info[0].addr == info[2].addr && info[0].addr != info[1].addr);
    assert_string_equal(BMI_addr_rev_lookup_unexpected(info[1].addr), "10.0.0.2:5");
    assert_int_equal(BMI_query_addr_range(info[1].addr, "fake://10.0.0.2:5", 32), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(BMI_unexpected_free(info[i].addr, info[i].buffer), 0);
    assert_int_equal(BMI_unexpected_free(info[0].addr, info[0].buffer), -BMI_EINVAL);
}

/* A peer dies while the server still works on its requests. */
static void dead_peer_goes_after_its_last_request(void **state)
{
    (void)state;
    struct BMI_unexpected_info info[2], none[2];
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    fake_peer_sends(a, 1, 10);
    fake_peer_sends(a, 2, 10);
    assert_int_equal(BMI_testunexpected(2, &n, info, 0), 1);
    assert_int_equal(n, 2);
    fake_peer_dies(a);
    /* dropped by the engine, but still referenced */
    assert_int_equal(BMI_testunexpected(2, &n, none, 0), 0);
    assert_int_equal(BMI_testunexpected(2, &n, none, 0), 0);
    assert_int_equal(BMI_unexpected_free(info[0].addr, info[0].buffer), 0);
    assert_int_equal(BMI_set_info(info[0].addr, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(fake.addrs, 2);
    assert_int_equal(BMI_unexpected_free(info[1].addr, info[1].buffer), 0);
    assert_int_equal(BMI_set_info(info[1].addr, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(fake.addrs, 1);
    assert_int_equal(BMI_set_info(info[1].addr, BMI_INC_ADDR_REF, NULL), -BMI_EINVAL);
}

/* The last reference is dropped before the buffer is freed: the address must wait for the
 * buffer, and then be dropped. */
static void dead_peer_waits_for_its_buffer(void **state)
{
    (void)state;
    struct BMI_unexpected_info info, none;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    fake_peer_sends(a, 1, 10);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    fake_peer_dies(a);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &none, 0), 0);
    assert_int_equal(fake.addrs, 2);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    for (int i = 0; i < 5 && fake.addrs == 2; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &none, 0), 0);
    assert_int_equal(fake.addrs, 1);
}

/* One thread holds the last message of a dead peer, not counted yet, when another one finds no
 * message. */
static void another_thread_finds_nothing(void)
{
    struct BMI_unexpected_info info;
    int n;

    for (int i = 0; i < 3; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
}

static void message_on_its_way_keeps_its_sender(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    for (int i = 0; i < 2; i++) {
        fake_peer_sends(a, i, 10);
        if (i == 1) {
            fake_peer_dies(a);
            fake.on_scan = another_thread_finds_nothing;
        }
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
        assert_int_equal(fake.addrs, 2);
        assert_string_equal(BMI_addr_rev_lookup_unexpected(info.addr), "10.0.0.1:5");
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, 1);
}

/* After the answer "drop" the address may be freed at any time, so no thread accesses it; the
 * host is not notified again. A host that got a new reference queries when it drops that. */
static int (*ask_shim)(int option, void *value);
static int said_yes;

static int host_is_slow(int option, void *value)
{
    struct method_drop_addr_query *query = value;

    assert_int_equal(option, BMI_DROP_ADDR_QUERY);
    assert_int_equal(ask_shim(option, value), 0);
    said_yes += query->response;
    query->response = 0;
    return 0;
}

static void released_address_is_not_accessed(void **state)
{
    (void)state;
    struct BMI_unexpected_info info, none;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    fake_peer_sends(a, 1, 10);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    fake_peer_dies(a);
    for (int i = 0; i < 2; i++) /* dropped by the engine, but still referenced */
        assert_int_equal(BMI_testunexpected(1, &n, &none, 0), 0);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);

    said_yes = 0;
    ask_shim = bmi_fake_ops.get_info;
    bmi_fake_ops.get_info = host_is_slow;
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &none, 0), 0);
    bmi_fake_ops.get_info = ask_shim;
    assert_int_equal(said_yes, 1);

    assert_int_equal(BMI_set_info(info.addr, BMI_INC_ADDR_REF, NULL), 0);
    assert_int_equal(fake.addrs, 2);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    assert_int_equal(fake.addrs, 1);
}

/* Messages of a dead peer are reported before its address is dropped, for any number requested
 * at a time. */
static void messages_of_a_dead_peer_come_out(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    for (int i = 0; i < 10; i++)
        fake_peer_sends(a, i, 10);
    fake_peer_dies(a);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
        assert_int_equal(info.tag, i);
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
        assert_int_equal(fake.addrs, i < 9 ? 2 : 1);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, 1);
}

/* So are messages that the engine may report only after another event. */
static void messages_that_are_late_come_out(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    for (int i = 0; i < 2; i++) {
        fake_peer_sends(a, i, 10);
        if (i == 1) {
            fake_peer_dies(a);
            fake.keeps_messages = true;
            for (int k = 0; k < 3; k++)
                assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
            fake.keeps_messages = false;
        }
        assert_int_equal(fake.addrs, 2);
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
        assert_int_equal(info.tag, i);
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, 1);
}

enum { PEERS = 100 };

/* Lets all peers send a message, and drops the references after an answer. */
static void peers_come(struct rme_addr *a[PEERS])
{
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    for (int i = 0; i < PEERS; i++) {
        a[i] = fake_new_peer("10.0.0.1:5");
        fake_peer_sends(a[i], i, 10);
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    }
    assert_int_equal(fake.addrs, PEERS + 1);
}

static void idle_dead_peers_go_by_themselves(void **state)
{
    (void)state;
    struct rme_addr *a[PEERS];
    struct BMI_unexpected_info info;
    int n;

    peers_come(a);
    for (int i = 0; i < PEERS; i += 2)
        fake_peer_dies(a[i]);
    for (int i = 0; i < 2 * PEERS; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, PEERS / 2 + 1);
}

/* All are dropped after a few polls, not after one poll each. */
static void dead_peers_dropped_in_few_polls(void **state)
{
    (void)state;
    struct rme_addr *a[PEERS];
    struct BMI_unexpected_info info;
    int n;

    peers_come(a);
    for (int i = 0; i < PEERS; i++)
        fake_peer_dies(a[i]);
    for (int i = 0; i < PEERS / 10; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, 1);
}

/* A server that never catches up with its live clients: each call returns as many messages as
 * requested. */
static void dead_peers_of_a_busy_server_go(void **state)
{
    (void)state;
    struct rme_addr *a[PEERS];
    struct BMI_unexpected_info info;
    int n;

    peers_come(a);
    for (int i = 0; i < PEERS / 2; i++)
        fake_peer_dies(a[i]);
    for (int i = 0; i < 2 * PEERS; i++) {
        fake_peer_sends(a[PEERS - 1], i, 10);
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
        assert_int_equal(n, 1);
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    }
    assert_int_equal(fake.addrs, PEERS / 2 + 1);
}

/* Many buffers held by the host and freed in another order: none is lost in the table. */
static void many_held_buffers(void **state)
{
    (void)state;
    enum { SENDERS = 10, MESSAGES = 1000 };
    struct rme_addr *a[SENDERS];
    static struct BMI_unexpected_info info[MESSAGES];
    int n, got = 0;
    uint32_t random = 1;

    start_server(BMI_AUTO_REF_COUNT);
    for (int i = 0; i < SENDERS; i++)
        a[i] = fake_new_peer("10.0.0.1:5");
    for (int i = 0; i < MESSAGES; i++)
        fake_peer_sends(a[i % SENDERS], i, 16);
    while (BMI_testunexpected(MESSAGES - got, &n, info + got, 0) == 1)
        got += n;
    assert_int_equal(got, MESSAGES);
    for (int i = 0; i < SENDERS; i++)
        fake_peer_dies(a[i]);
    for (int left = MESSAGES; left > 0; left--) {
        random = random * 1664525u + 1013904223u;
        int i = (int)((random >> 8) % (uint32_t)left);
        assert_int_equal(BMI_unexpected_free(info[i].addr, info[i].buffer), 0);
        assert_int_equal(BMI_set_info(info[i].addr, BMI_DEC_ADDR_REF, NULL), 0);
        info[i] = info[left - 1];
    }
    assert_int_equal(fake.addrs, 1);
}

static void finalize_with_work_in_hand(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    int n;

    for (int round = 0; round < 3; round++) {
        start_server(BMI_AUTO_REF_COUNT);
        assert_int_equal(BMI_addr_lookup(&peer, "fake://other:1", NULL), 0);
        for (int i = 0; i < 100; i++)
            post_recv(i, NULL);
        fake_peer_sends(fake_new_peer("10.0.0.1:5"), 1, 10);
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
        assert_int_equal(BMI_finalize(), 0);
        assert_int_equal(fake.engines, 0);
        assert_int_equal(fake.addrs, 0);
    }
}

/* ---- Threads ---- */

enum { THREADS = 4, ROUNDS = 5000 };

/* Operations end before their post returns, and the first thread that tests reports them. */
static void *post_and_collect(void *arg)
{
    atomic_int *balance = arg;
    bmi_op_id_t id, done[3];
    bmi_error_code_t error[3];
    bmi_size_t actual[3];
    void *user[3];
    int n;

    for (int i = 0; i < ROUNDS; i++) {
        if (BMI_post_send(&id, peer, "x", 1, BMI_EXT_ALLOC, i, balance, context, NULL) == 0)
            atomic_fetch_add(balance, 1);
        BMI_cancel(id, context);
        BMI_testcontext(3, done, &n, error, actual, user, 0, context);
        for (int k = 0; k < n; k++)
            atomic_fetch_sub((atomic_int *)user[k], error[k] ? 1000000 : 1);
    }
    return NULL;
}

static void operations_end_before_their_post_returns(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    atomic_int balance = 0;
    bmi_op_id_t done[8];
    bmi_error_code_t error[8];
    bmi_size_t actual[8];
    int n;

    start_client();
    fake.finish_at_once = true;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, post_and_collect, &balance), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    while (BMI_testcontext(8, done, &n, error, actual, NULL, 0, context) == 1)
        balance -= n;
    assert_int_equal(balance, 0);
    assert_int_equal(fake.operations, THREADS * ROUNDS);
}

/* Peers appear, send and die while several threads serve. */
static void *serve_the_dying(void *arg)
{
    atomic_int *served = arg;
    struct BMI_unexpected_info info[2];
    int n;

    for (int i = 0; i < ROUNDS / 5; i++) {
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
    pthread_t thread[THREADS];
    atomic_int served = 0;
    struct BMI_unexpected_info info;
    int n;

    start_server(BMI_AUTO_REF_COUNT);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, serve_the_dying, &served), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    while (BMI_testunexpected(1, &n, &info, 0) == 1) {
        served += n;
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    }
    assert_int_equal(served, THREADS * ROUNDS / 5 * 2);
    /* Half of the peers are alive. */
    for (int i = 0; i < 2 * THREADS * ROUNDS / 5; i++)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
    assert_int_equal(fake.addrs, THREADS * ROUNDS / 5 / 2 + 1);
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
    int n, failed[2] = {0, 0};

    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    fake_peer_sends(a, 1, 10);
    assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 1);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_of_peers),
        TEST(dead_peer_goes_after_its_last_request),
        TEST(dead_peer_waits_for_its_buffer),
        TEST(message_on_its_way_keeps_its_sender),
        TEST(released_address_is_not_accessed),
        TEST(messages_of_a_dead_peer_come_out),
        TEST(messages_that_are_late_come_out),
        TEST(idle_dead_peers_go_by_themselves),
        TEST(dead_peers_dropped_in_few_polls),
        TEST(dead_peers_of_a_busy_server_go),
        TEST(many_held_buffers),
        TEST(finalize_with_work_in_hand),
        TEST(operations_end_before_their_post_returns),
        TEST(threads_serve_many_peers),
        TEST(threads_in_turn_keep_no_dead_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
