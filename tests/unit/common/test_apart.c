/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fabric with `reports_apart` (fabric.h), against a peer that the test plays: returned
 * credits count the consumed messages and reports, without identifying them. The engine
 * attributes a credit to an item whose consumption frees memory or ends an operation only if no
 * other is possible; an answer is deferred if its cause is uncertain.
 */
#include <errno.h>

#include "engine/engine.h"
#include "scripted.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,spin_us=0,zone_bytes=64M,rndv=write,invite=0,"                         \
    "rx_size=4096,credits=32,keepalive_ms=0,"                                                  \
    "eager_ring_bytes=128K,eager_ring_pool=256K"

enum {
    SIZE = 20000,
    SMALL = 100,
    AREA = 128 << 10,
    FULL = 6, /* messages of SIZE that fill the ring */
    TAG = 1,
    ANSWER = 2,
    LARGE = 3 /* and higher tags */
};

static char memory[SIZE], area[AREA];

static int open_it(void **state)
{
    struct rme_hello hello = scripted_hello();

    (void)state;
    hello.flags |= RME_HELLO_F_EAGER_RDMA;
    script.reports_apart = true;
    scripted_open(OPTIONS, &hello);
    return 0;
}

/* Sets what the peer acknowledges explicitly from now on. */
static void send_consumed(uint8_t type, int32_t tag, uint16_t consumed)
{
    scripted.keeps = true;
    scripted_peer_sends(
        (struct rme_wire_message){.type = type, .tag = tag, .credits = consumed}, NULL);
}

static void send_one(struct posted *p, size_t size, int32_t tag)
{
    scripted_send(p, memory, size, tag);
    scripted_run();
}

/* Answers an RTS: the data is in flight with its report behind it. */
static void write_one(unsigned rts, uint16_t consumed)
{
    const struct rme_wire_segment to = {(uintptr_t)area, 7, SIZE};

    scripted.keeps = true;
    scripted_peer_sends(
        (struct rme_wire_message){.type = RME_WIRE_CTS,
                                  .credits = consumed,
                                  .to = scripted_word(RME_WIRE_RTS, rts)->message.from,
                                  .from = 50 + rts,
                                  .nsegment = 1},
        &to);
}

static void finish_all(void)
{
    while (script.rdma_ops > 0)
        script_finish(0);
    scripted_run();
}

/* ---- Eager ring ---- */

/* Sends messages that fill the ring, followed by `reports` reports; all are complete at our
 * device. */
static void fill(struct posted *large, unsigned reports)
{
    struct rme_wire_segment lent = {(uintptr_t)area, 7, AREA};
    static struct posted send[FULL];

    for (unsigned i = 0; i < reports; i++)
        send_one(&large[i], SIZE, LARGE + (int32_t)i);
    assert_int_equal(scripted_count(RME_WIRE_RTS), reports);
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_CREDIT,
                                                  .flags = RME_WIRE_F_GRANT,
                                                  .nsegment = 1},
                        &lent);
    scripted.keeps = true;
    for (unsigned i = 0; i < FULL; i++)
        send_one(&send[i], SIZE, TAG);
    assert_int_equal(scripted_counter("sends_eager_rdma"), FULL);
    for (unsigned i = 0; i < reports; i++)
        write_one(i, 0);
    assert_int_equal(script.rdma_ops, FULL + reports);
    finish_all();
    for (unsigned i = 0; i < reports; i++)
        scripted_check(&large[i], 0);
}

/* The peer has consumed one item, the report: all messages keep their places. */
static void a_report_frees_no_place(void **state)
{
    static struct posted large, send;

    (void)state;
    fill(&large, 1);
    send_consumed(RME_WIRE_PING, 0, 1);
    send_one(&send, SIZE, TAG);
    assert_int_equal(scripted_counter("sends_eager_rdma"), FULL);
    send_consumed(RME_WIRE_PING, 0, 1); /* one of the messages */
    send_one(&send, SIZE, ANSWER);
    assert_int_equal(scripted_counter("sends_eager_rdma"), FULL + 1);
}

/* The peer has acknowledged all messages. The engine cannot know that, and the peer may send
 * nothing more. */
static void nobody_waits_for_a_place(void **state)
{
    static struct posted large[FULL], send;

    (void)state;
    fill(large, FULL);
    send_consumed(RME_WIRE_CREDIT, 0, FULL);
    send_one(&send, SIZE, TAG);
    assert_int_equal(scripted_counter("sends_eager_rdma"), FULL);
    assert_int_equal(scripted_count(RME_WIRE_RTS), FULL + 1);
    send_consumed(RME_WIRE_PING, 0, FULL);
    send_one(&send, SIZE, ANSWER);
    assert_int_equal(scripted_counter("sends_eager_rdma"), FULL + 1);
}

/* ---- Answers ---- */

/* Sends a small message and a large one whose report may overtake it. */
static void two_under_way(struct posted *small, struct posted *large)
{
    send_one(large, SIZE, LARGE);
    send_one(small, SMALL, TAG);
    write_one(0, 1);
    assert_int_equal(script.rdma_ops, 1);
    assert_int_equal(large->reports, 0);
}

/* The peer has consumed the report, but not the message before it. */
static void an_answer_waits_for_what_it_may_follow(void **state)
{
    static struct posted small, large, recv;
    char got[SMALL];

    (void)state;
    scripted_recv(&recv, got, sizeof(got), ANSWER);
    two_under_way(&small, &large);
    send_consumed(RME_WIRE_EAGER, ANSWER, 1);
    assert_int_equal(recv.reports, 0);
    assert_int_equal(scripted_counter("deferred"), 1);
    finish_all();
    scripted_check(&large, 0);
    scripted_check(&recv, 0);
    assert_true(large.place < recv.place);
}

static void link_ends(uint16_t consumed, int error)
{
    static struct posted small, large;

    two_under_way(&small, &large);
    send_consumed(RME_WIRE_CREDIT, 0, consumed);
    script_cut();
    scripted_run();
    scripted_check(&large, error);
}

/* One of the two was consumed, perhaps the message. */
static void an_end_is_not_believed(void **state)
{
    (void)state;
    link_ends(1, -ECONNRESET);
}

static void an_end_is_believed_of_all(void **state)
{
    (void)state;
    link_ends(2, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_report_frees_no_place, open_it, scripted_teardown),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_place, open_it, scripted_teardown),
        cmocka_unit_test_setup_teardown(an_answer_waits_for_what_it_may_follow, open_it,
                                        scripted_teardown),
        cmocka_unit_test_setup_teardown(an_end_is_not_believed, open_it, scripted_teardown),
        cmocka_unit_test_setup_teardown(an_end_is_believed_of_all, open_it, scripted_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
