/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unsignalled writes to an eager ring (eager_rdma.c): which completions are requested, and when
 * places are free. */
#include "engine/engine.h"
#include "scripted.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,spin_us=0,zone_bytes=64M,rndv=write,invite=0,"                         \
    "rx_size=4096,credits=32,keepalive_ms=0,measure_costs=0,"                                  \
    "eager_ring_bytes=128K,eager_ring_pool=256K"

enum { SIZE = 20000, AREA = 128 << 10, CREDITS = 32 };

static char memory[64 << 10], area[AREA];

static uint64_t count_of(const char *name)
{
    return rme_counter_value(scripted.rme, name);
}

static void say(uint8_t type)
{
    scripted_peer_sends((struct rme_wire_message){.type = type}, NULL);
}

static void grant(void)
{
    const struct rme_wire_segment whole = {
        .address = (uintptr_t)area, .key = 7, .length = AREA};

    scripted_peer_sends(
        (struct rme_wire_message){.type = RME_WIRE_GRANT, .from = 1000, .nsegment = 1}, &whole);
}

static int close_unsignalled(void **state)
{
    (void)state;
    script.unsignalled = false;
    scripted_close();
    return 0;
}

static void grant_unsignalled(void)
{
    struct rme_hello hello = scripted_hello();

    script.unsignalled = true;
    script.quieted = 0;
    hello.flags |= RME_HELLO_F_EAGER_RDMA;
    scripted_open(OPTIONS, &hello);
    scripted.have += CREDITS - 8; /* the script assumes 8 */
    grant();
}

/* Sends n messages, which the peer consumes and acknowledges. */
static void send_many(unsigned n, size_t size)
{
    static struct posted send;

    for (unsigned i = 0; i < n; i++) {
        scripted_send(&send, memory, size, 1);
        scripted_run();
        scripted.eager_consumed =
            (uint32_t)(count_of("sends_eager_rdma") * (size + RME_HELD_COST));
        if (i % 4 == 3)
            say(RME_WIRE_PING);
    }
}

/* The peer's credits return the places: one write in 16 is signalled. */
static void few_are_reported(void **state)
{
    (void)state;
    grant_unsignalled();
    send_many(96, SIZE);
    assert_int_equal(count_of("sends_eager_rdma"), 96);
    assert_int_equal(script.rdma_ops, 96); /* no completion yet */
    assert_int_equal(script.quieted, 96 - 96 / 16);
    assert_int_equal(count_of("eager_ring_full"), 0);
}

/* Descriptors of writes are needed until a completion covers them: at most 128. */
static void not_too_many_are_not_reported(void **state)
{
    (void)state;
    grant_unsignalled();
    send_many(140, SIZE);
    assert_int_equal(count_of("sends_eager_rdma"), 128);
    while (script.rdma_ops > 0)
        script_finish(0); /* the newest first */
    scripted_run();
    send_many(20, SIZE);
    assert_true(count_of("sends_eager_rdma") >= 148);
}

/* An unsignalled write does not delay reuse, but a place that the peer has not consumed
 * does. */
static void a_place_waits_for_the_peer(void **state)
{
    static struct posted send[7];

    (void)state;
    grant_unsignalled();
    scripted.keeps = true;
    for (unsigned i = 0; i < 7; i++)
        scripted_send(&send[i], memory, SIZE, 1);
    scripted_run();
    while (script.rdma_ops > 0)
        script_finish(script.rdma_ops - 1);
    scripted_run();
    assert_int_equal(count_of("sends_eager_rdma"), 6);
}

/* RELEASE follows unsignalled writes at once, as a signalled transfer; its completion frees the
 * staging buffer. A ring granted before is returned unused. */
static void returns_behind_unsignalled_writes(void **state)
{
    (void)state;
    grant_unsignalled();
    send_many(2, SIZE);
    say(RME_WIRE_WITHDRAW);
    assert_int_equal(scripted_count(RME_WIRE_RELEASE), 1);
    assert_int_equal(script.rdma_ops, 3);
    assert_int_equal(script.quieted, 2);
    grant();
    assert_int_equal(scripted_count(RME_WIRE_RELEASE), 2);
    while (script.rdma_ops > 0)
        script_finish(0);
    scripted_run();
    grant();
    send_many(3, SIZE);
    assert_int_equal(count_of("sends_eager_rdma"), 5);
    assert_int_equal(scripted_count(RME_WIRE_RELEASE), 2);
    assert_int_equal(count_of("protocol_errors"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(few_are_reported, close_unsignalled),
        cmocka_unit_test_teardown(not_too_many_are_not_reported, close_unsignalled),
        cmocka_unit_test_teardown(a_place_waits_for_the_peer, close_unsignalled),
        cmocka_unit_test_teardown(returns_behind_unsignalled_writes, close_unsignalled),
    };

    return cmocka_run_group_tests_name("unsignalled", tests, NULL, NULL);
}
