/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The shim: peers that come, send, and die. */
#include <stdlib.h>

#include "shim_rig.h"

/* Starts a server, and a peer with `messages` messages of tags from 0 on. */
static struct rme_addr *serve_peer(int messages)
{
    start_server(BMI_AUTO_REF_COUNT);
    struct rme_addr *a = fake_new_peer("10.0.0.1:5");
    for (int i = 0; i < messages; i++)
        fake_peer_sends(a, i, 10);
    return a;
}

static void messages_of_peers_name_their_sender(void **state)
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
    assert_null(BMI_addr_rev_lookup(info[1].addr));
    assert_string_equal(BMI_addr_rev_lookup_unexpected(info[1].addr), "10.0.0.2:5");
    assert_int_equal(BMI_query_addr_range(info[1].addr, "fake://10.0.0.2:5", 32), 1);
    assert_int_equal(BMI_query_addr_range(info[1].addr, "other://10.0.0.2:5", 32), 0);
    assert_int_equal(BMI_query_addr_range(info[1].addr, "no scheme", 32), -BMI_EINVAL);
    for (int i = 0; i < 3; i++)
        answer(&info[i]);
    assert_int_equal(BMI_unexpected_free(info[0].addr, info[0].buffer), -BMI_EINVAL);
    assert_int_equal(BMI_set_info(info[0].addr, BMI_DEC_ADDR_REF, NULL), -BMI_EINVAL);
    assert_int_equal(fake.addrs, 3); /* live peers stay without references */
}

/* A peer dies while the server still works on its requests. */
static void dead_peer_goes_after_its_last_request(void **state)
{
    (void)state;
    struct BMI_unexpected_info info[2];
    struct rme_addr *a = serve_peer(2);

    for (int i = 0; i < 2; i++)
        receive(&info[i]);
    fake_peer_dies(a);
    find_nothing(2); /* dropped by the engine, but still referenced */
    answer(&info[0]);
    assert_int_equal(fake.addrs, 2);
    answer(&info[1]);
    assert_int_equal(fake.addrs, 1);
    assert_int_equal(BMI_set_info(info[1].addr, BMI_INC_ADDR_REF, NULL), -BMI_EINVAL);
}

/* The last reference is dropped before the buffer is freed: the address must wait for the
 * buffer, and then be dropped. */
static void dead_peer_waits_for_its_buffer(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    struct rme_addr *a = serve_peer(1);

    receive(&info);
    fake_peer_dies(a);
    assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
    find_nothing(5);
    assert_int_equal(fake.addrs, 2);
    assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);
    find_nothing(5);
    assert_int_equal(fake.addrs, 1);
}

/* One thread holds the last message of a dead peer, not counted yet, when another one finds no
 * message. */
static void another_thread_finds_nothing(void)
{
    find_nothing(3);
}

static void message_on_its_way_keeps_its_sender(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    struct rme_addr *a = serve_peer(2);

    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            fake_peer_dies(a);
            fake.on_scan = another_thread_finds_nothing;
        }
        receive(&info);
        assert_int_equal(fake.addrs, 2);
        assert_string_equal(BMI_addr_rev_lookup_unexpected(info.addr), "10.0.0.1:5");
        answer(&info);
    }
    find_nothing(3);
    assert_int_equal(fake.addrs, 1);
}

/* After the answer "drop" the address may be freed at any time, so no thread accesses it; the
 * host is not notified again. A host that got a new reference, also during the query, queries
 * when it drops that. */
static int (*ask_shim)(int option, void *value);
static int said_yes;
static BMI_addr_t in_use; /* gets a reference during the query, unless 0 */

static int host_is_slow(int option, void *value)
{
    struct method_drop_addr_query *query = value;

    assert_int_equal(option, BMI_DROP_ADDR_QUERY);
    assert_int_equal(ask_shim(option, value), 0);
    said_yes += query->response;
    if (in_use)
        assert_int_equal(BMI_set_info(in_use, BMI_INC_ADDR_REF, NULL), 0);
    else
        query->response = 0;
    return 0;
}

static void released_address_is_not_accessed(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;

    ask_shim = bmi_fake_ops.get_info;
    for (int referenced = 0; referenced < 2; referenced++) {
        struct rme_addr *a = serve_peer(1);
        receive(&info);
        fake_peer_dies(a);
        find_nothing(2);
        assert_int_equal(BMI_unexpected_free(info.addr, info.buffer), 0);

        said_yes = 0;
        in_use = referenced ? info.addr : 0;
        bmi_fake_ops.get_info = host_is_slow;
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
        find_nothing(5);
        bmi_fake_ops.get_info = ask_shim;
        assert_int_equal(said_yes, 1);

        if (!referenced)
            assert_int_equal(BMI_set_info(info.addr, BMI_INC_ADDR_REF, NULL), 0);
        assert_int_equal(fake.addrs, 2);
        assert_int_equal(BMI_set_info(info.addr, BMI_DEC_ADDR_REF, NULL), 0);
        assert_int_equal(fake.addrs, 1);
        assert_int_equal(BMI_finalize(), 0);
    }
}

/* Messages of a dead peer are reported before its address is dropped, also those that the
 * engine may report only after another event. */
static void messages_of_a_dead_peer_come_out(void **state)
{
    (void)state;
    struct BMI_unexpected_info info;
    struct rme_addr *a = serve_peer(10);

    for (int i = 0; i < 10; i++) {
        if (i == 1)
            fake_peer_dies(a);
        if (i == 9) {
            fake.keeps_messages = true;
            find_nothing(3);
            fake.keeps_messages = false;
        }
        receive(&info);
        assert_int_equal(info.tag, i);
        answer(&info);
        assert_int_equal(fake.addrs, i < 9 ? 2 : 1);
    }
    find_nothing(3);
    assert_int_equal(fake.addrs, 1);
}

enum { PEERS = 100 };

/* Of 100 peers without a message every `step`-th one dies. All dead ones are dropped after some
 * polls: not one poll each if all have died, also of a server that never catches up with its
 * live clients. */
static void idle_dead_peers_are_dropped(void **state)
{
    static const struct {
        int step, polls;
        bool busy;
    } row[] = {{2, 2 * PEERS, false}, {1, PEERS / 10, false}, {2, 2 * PEERS, true}};
    struct rme_addr *a[PEERS];
    struct BMI_unexpected_info info;

    (void)state;
    for (int r = 0; r < 3; r++) {
        start_server(BMI_AUTO_REF_COUNT);
        for (int i = 0; i < PEERS; i++) {
            a[i] = fake_new_peer("10.0.0.1:5");
            fake_peer_sends(a[i], i, 10);
            receive(&info);
            answer(&info);
        }
        assert_int_equal(fake.addrs, PEERS + 1);
        for (int i = 0; i < PEERS; i += row[r].step)
            fake_peer_dies(a[i]);
        for (int i = 0; i < row[r].polls; i++) {
            if (!row[r].busy) {
                find_nothing(1);
                continue;
            }
            fake_peer_sends(a[PEERS - 1], i, 10);
            receive(&info);
            answer(&info);
        }
        assert_int_equal(fake.addrs, row[r].step == 1 ? 1 : PEERS / 2 + 1);
        assert_int_equal(BMI_finalize(), 0);
    }
}

/* Many buffers held by the host and freed in another order: none is lost in the table. */
static void many_held_buffers_are_freed(void **state)
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
    for (; BMI_testunexpected(MESSAGES - got, &n, info + got, 0) == 1; got += n)
        for (int i = got; i < got + n; i++)
            assert_int_equal(info[i].tag, i);
    assert_int_equal(got, MESSAGES);
    for (int i = 0; i < SENDERS; i++)
        fake_peer_dies(a[i]);
    for (int left = MESSAGES; left > 0; left--) {
        random = random * 1664525u + 1013904223u;
        int i = (int)((random >> 8) % (uint32_t)left);
        answer(&info[i]);
        info[i] = info[left - 1];
    }
    assert_int_equal(fake.addrs, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_of_peers_name_their_sender), TEST(dead_peer_goes_after_its_last_request),
        TEST(dead_peer_waits_for_its_buffer),      TEST(message_on_its_way_keeps_its_sender),
        TEST(released_address_is_not_accessed),    TEST(messages_of_a_dead_peer_come_out),
        TEST(idle_dead_peers_are_dropped),         TEST(many_held_buffers_are_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
