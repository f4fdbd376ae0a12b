/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Links that begin with a single receive buffer (credit.c): credits of new links, how they grow
 * and shrink; behaviour of a side with one credit. */
#include <errno.h>

#include "engine/engine.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,pool_bytes=64M,rndv=write,early_cts=0,"                      \
    "credits=8,keepalive_ms=0,"

static char memory[64];

static void say(uint8_t type, uint8_t flags, int32_t tag)
{
    scripted_peer_sends((struct rme_wire_message){.type = type, .flags = flags, .tag = tag},
                        NULL);
}

/* Opens an engine with a link to a peer that has a single credit. */
static void open_single(const char *options)
{
    struct rme_hello hello = scripted_hello();

    scripted_open_modest(options, &hello);
}

/* Delivers that many messages of a peer that lacks credits. */
static void stalls(int times)
{
    while (times-- > 0)
        say(RME_WIRE_PONG, RME_WIRE_F_STALLED, 0);
}

/* ---- Passive side ---- */

static void new_link_grows_from_one_credit(void **state)
{
    (void)state;
    open_single(OPTIONS);
    assert_int_equal(script.advertised, 1);
    assert_int_equal(scripted.have, 1); /* one credit, returned after the first message */
    scripted_hush();
    say(RME_WIRE_PONG, RME_WIRE_F_STALLED, 0);
    assert_int_equal(script.advertised, 8);
    /* at once, in one CREDIT message */
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 1);
    assert_int_equal(scripted_word(RME_WIRE_CREDIT, 0)->message.tag, 7);
    assert_int_equal(scripted_word(RME_WIRE_CREDIT, 0)->message.credits, 1);
    assert_int_equal(scripted.have, 8);
    assert_int_equal(scripted_counter("credits_lent"), 7);
    stalls(3);
    assert_int_equal(script.advertised, 64);
    say(RME_WIRE_PONG, 0, 63); /* unrequested, but permitted */
    assert_int_equal(script.advertised, 1);
    assert_int_equal(scripted_counter("credits_lent"), 0);
    assert_int_equal(scripted_counter("credits_reduced"), 63);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

static void first_credit_is_never_returned(void **state)
{
    (void)state;
    open_single(OPTIONS);
    say(RME_WIRE_PONG, RME_WIRE_F_STALLED, 0);
    say(RME_WIRE_PONG, 0, 8);
    assert_int_equal(scripted_counter("protocol_errors"), 1);
    assert_int_equal(script.advertised, 0);
    assert_int_equal(scripted_counter("credits_lent"), 0); /* returned to the pool */
}

static void more_than_one_is_too_many(void **state)
{
    (void)state;
    open_single(OPTIONS);
    scripted_run();
    assert_int_equal(scripted.peer->peer->credit.advertised, 1);
    script.no_tx = true; /* so that no credit is returned */
    say(RME_WIRE_PONG, 0, 0);
    scripted.have = 1;
    say(RME_WIRE_PONG, 0, 0);
    assert_int_equal(scripted_counter("protocol_errors"), 1);
}

static void credit_pool_is_bounded(void **state)
{
    struct rme_hello hello = scripted_hello();

    (void)state;
    scripted_open(OPTIONS "credits_pool=40", &hello);
    stalls(5);
    assert_int_equal(script.advertised, 1 + 3); /* a sixteenth of the pool */
    scripted_arrive(1, &hello);
    assert_int_equal(script.advertised, 4 + 1);
    script_down(1, -ECONNRESET);
    scripted_run();
    assert_int_equal(script.advertised, 4);
    assert_int_equal(scripted_counter("credits_lent"), 3);
}

static void without_a_pool_one_is_all(void **state)
{
    (void)state;
    open_single(OPTIONS "credits_pool=0");
    stalls(5);
    assert_int_equal(script.advertised, 1);
    assert_int_equal(scripted.have, 1);
}

/* ---- Answers ---- */

/* Delivers a request of a peer with a single credit; the host fetches it into `u` unless
 * NULL. */
static void request(struct rme_unexpected *u)
{
    struct rme_hello hello = scripted_hello();

    scripted_open(OPTIONS "credits_pool=0", &hello);
    scripted_run();
    scripted_hush();
    scripted_put(
        (struct rme_wire_message){.type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED},
        NULL);
    if (u)
        assert_int_equal(rme_test_unexpected(scripted.rme, u, 1, 0), 1);
}

static void answer_carries_the_credit(void **state)
{
    struct rme_unexpected u;
    struct posted send;

    (void)state;
    request(&u);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 0);
    scripted_send(&send, memory, 8, 1);
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 1);
    assert_int_equal(scripted_word(RME_WIRE_EAGER, 0)->message.credits, 1);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 0);
    rme_unexpected_free(scripted.rme, u.buffer);
}

static void idle_call_sends_credit(void **state)
{
    struct rme_unexpected u, none;

    (void)state;
    request(&u);
    assert_int_equal(rme_test_unexpected(scripted.rme, &none, 1, 0), 0);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 1);
    rme_unexpected_free(scripted.rme, u.buffer);
}

/* A thread about to sleep has no answer to send, though other threads may. */
static void sleeping_call_sends_credit(void **state)
{
    struct rme_unexpected u;
    struct rme_done done;

    (void)state;
    request(&u);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 0);
    assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 10), 0);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 1);
    rme_unexpected_free(scripted.rme, u.buffer);
}

/* Each call returns because of a message that the host does not fetch: the CREDIT is still sent
 * after some calls. */
static void busy_calls_send_credit_eventually(void **state)
{
    struct rme_done done;
    unsigned calls = 0;

    (void)state;
    request(NULL);
    while (scripted_count(RME_WIRE_CREDIT) == 0 && calls++ < 1000)
        rme_test_context(scripted.rme, 0, &done, 1, 0);
    assert_in_range(calls, 2, 300);
}

/* A sleeping thread may be waiting for the next message of that very peer. */
static void beside_a_sleeper_it_goes_at_once(void **state)
{
    struct rme_waiter sleeper = {.ctx = 1};
    struct rme_unexpected u;
    (void)state;
    open_single(OPTIONS "credits_pool=0");
    scripted_run();
    scripted_hush();
    scripted_put(
        (struct rme_wire_message){.type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED},
        NULL);
    scripted.rme->leader = &sleeper;
    scripted.rme->sleeping = true;
    assert_int_equal(rme_test_unexpected(scripted.rme, &u, 1, 0), 1);
    scripted.rme->sleeping = false;
    scripted.rme->leader = NULL;
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 1);
    rme_unexpected_free(scripted.rme, u.buffer);
}

/* Nothing is left of a peer that disconnects meanwhile. */
static void lost_link_drops_waiting_credit(void **state)
{
    struct rme_unexpected u, none;

    (void)state;
    request(&u);
    assert_non_null(scripted.rme->credit_waiting);
    script_down(0, -ECONNRESET);
    rme_lock(scripted.rme);
    rme_progress(scripted.rme, false);
    rme_unlock(scripted.rme);
    assert_null(scripted.rme->credit_waiting);
    assert_int_equal(rme_test_unexpected(scripted.rme, &none, 1, 0), 0);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 0);
    rme_unexpected_free(scripted.rme, u.buffer);
    scripted_run();
}

/* ---- Receive queues per link ---- */

static void open_own(const char *options)
{
    script.keeps_rx = true;
    open_single(options);
    assert_int_equal(script.advertised, 8);
}

/* New links get the usual number while the pool is full, then one. */
static void own_buffers_come_out_of_the_pool(void **state)
{
    struct rme_hello hello = scripted_hello();

    (void)state;
    open_own(OPTIONS "credits_pool=56");
    scripted_arrive(1, &hello);
    assert_int_equal(script.advertised, 8 + 8);
    assert_int_equal(scripted_counter("credits_lent"), 14);
    scripted_arrive(2, &hello);
    assert_int_equal(script.advertised, 8 + 8 + 1);
    say(RME_WIRE_PONG, RME_WIRE_F_STALLED, 0); /* it has more than its share */
    assert_int_equal(script.advertised, 8 + 8 + 1);
    for (unsigned link = 1; link <= 2; link++)
        script_down(link, -ECONNRESET);
    scripted_run();
    assert_int_equal(script.advertised, 8);
    assert_int_equal(scripted_counter("credits_lent"), 7);
}

/* Where receives cannot be withdrawn, a link keeps its credits until it ends. */
static void own_buffers_stay_until_the_link_ends(void **state)
{
    (void)state;
    open_own(OPTIONS "keepalive_ms=2");
    stalls(3);
    assert_int_equal(script.advertised, 64);
    assert_int_equal(scripted_counter("credits_lent"), 63);
    scripted_hush();
    for (int i = 0; i < 1000 && scripted_count(RME_WIRE_PING) == 0; i++) {
        clock_step_ms(1);
        scripted_run();
    }
    assert_int_equal(scripted_word(RME_WIRE_PING, 0)->message.tag, 0);
    say(RME_WIRE_PONG, 0, 0);
    assert_int_equal(scripted_counter("credits_lent"), 63);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
    say(RME_WIRE_PONG, 0, 1); /* not asked for */
    assert_int_equal(scripted_counter("protocol_errors"), 1);
    assert_int_equal(script.advertised, 0);
    assert_int_equal(scripted_counter("credits_lent"), 0);
}

/* Only one side may advertise that few. */
static void hello_with_few_credits_refused(void **state)
{
    struct rme_hello hello = scripted_hello();

    (void)state;
    scripted_open(OPTIONS, &hello);
    for (hello.credits = 0; hello.credits < RME_HELLO_CREDITS_MIN; hello.credits++)
        scripted_arrive(1, &hello);
    assert_int_equal(scripted_counter("rejects"), RME_HELLO_CREDITS_MIN);
    assert_int_equal(script.links, 1);
    scripted_arrive(1, &hello);
    assert_int_equal(scripted_counter("rejects"), RME_HELLO_CREDITS_MIN);
    script_down(1, -ECONNRESET);
    scripted_run();
}

/* ---- A side with one credit ---- */

static void connect_with(const char *options, uint16_t credits)
{
    struct rme_hello hello = scripted_hello();

    hello.credits = credits;
    scripted_connect(options, &hello);
}

static void connect_to(uint16_t credits)
{
    connect_with(OPTIONS, credits);
}

static void last_credit_message_reports_stall(void **state)
{
    struct posted send[3];

    (void)state;
    connect_to(1);
    assert_int_equal(script.advertised, 8);
    for (int i = 0; i < 3; i++)
        scripted_send(&send[i], memory, 8, i);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 1);
    assert_int_equal(scripted_word(RME_WIRE_EAGER, 0)->message.flags, RME_WIRE_F_STALLED);
    say(RME_WIRE_CREDIT, 0, 0);
    /* without credits of the pool it continues like that */
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 2);
    assert_int_equal(scripted_word(RME_WIRE_EAGER, 1)->message.flags, RME_WIRE_F_STALLED);
    say(RME_WIRE_CREDIT, 0, 7);
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 3);
    assert_int_equal(scripted.peer->peer->credit.have, 7);
    for (int i = 0; i < 3; i++)
        scripted_check(&send[i], 0);
}

/* With four or more credits a reserve is kept. */
static void grown_link_keeps_reserve(void **state)
{
    static struct posted send[20]; /* reported when the link ends */

    (void)state;
    connect_to(1);
    say(RME_WIRE_CREDIT, 0, 7);
    for (int i = 0; i < 20; i++)
        scripted_send(&send[i], memory, 8, i);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 6);
    assert_int_equal(scripted.peer->peer->credit.have, 2);
}

static unsigned slept, byes_at_first;

/* Events while the engine closes: the peer consumes the message, BYE arrives, the link ends. */
static void take_the_last(void)
{
    switch (slept++) {
    case 0:
        byes_at_first = scripted_count(RME_WIRE_BYE);
        scripted_put((struct rme_wire_message){.type = RME_WIRE_CREDIT}, NULL);
        break;
    case 1:
        script_finish(0);
        break;
    default:
        script_cut();
    }
}

/* The engine's message may not have arrived yet: the link ends only after a credit for the BYE
 * that follows it. */
static void close_waits_for_bye_credit(void **state)
{
    struct posted send;
    unsigned byes;

    (void)state;
    connect_to(1);
    slept = 0;
    scripted_send(&send, memory, 8, 1);
    scripted_run();
    scripted_check(&send, 0);
    assert_int_equal(scripted.peer->peer->credit.have, 0);
    script.sleeping = take_the_last;
    rme_close(scripted.rme);
    byes = scripted_count(RME_WIRE_BYE);
    script.sleeping = NULL;
    rme_addr_free(scripted.peer);
    connect_to(1); /* the teardown closes one */
    assert_int_equal(byes_at_first, 0);
    assert_int_equal(byes, 1);
}

/* Keep-alive messages do not count as use and request no credits. */
static void pong_requests_no_credits(void **state)
{
    (void)state;
    connect_to(1);
    say(RME_WIRE_PING, 0, 0);
    assert_int_equal(scripted_count(RME_WIRE_PONG), 1);
    assert_int_equal(scripted_word(RME_WIRE_PONG, 0)->message.flags, 0);
    assert_int_equal(scripted.peer->peer->credit.have, 0);
}

static void idle_link_returns_all_but_one(void **state)
{
    (void)state;
    connect_to(1);
    say(RME_WIRE_CREDIT, 0, 7);
    say(RME_WIRE_PING, 0, 7);
    assert_int_equal(scripted_word(RME_WIRE_PONG, 0)->message.tag, 7);
    assert_int_equal(scripted.peer->peer->credit.have, 0); /* the first is in flight */
    say(RME_WIRE_CREDIT, 0, 0);
    assert_int_equal(scripted.peer->peer->credit.have, 1);
    say(RME_WIRE_PING, 0, 7);
    assert_int_equal(scripted_word(RME_WIRE_PONG, 1)->message.tag, 0);
}

/* ---- Active side, with its own receive queue ---- */

static void ask_with(const char *options)
{
    script.own_rx = true;
    connect_with(options, 8);
    assert_int_equal(script.advertised, 4);
    scripted.have = 4;
    scripted_hush();
}

/* Delivers messages of the peer, each after the answer to the one before. */
static void use(unsigned messages)
{
    while (messages-- > 0)
        say(RME_WIRE_CREDIT, 0, 1); /* returns one more credit, so that a message is sent */
}

/* The active side advertises the minimum at first, and the usual number after some use. */
static void active_side_advertises_minimum_at_first(void **state)
{
    (void)state;
    ask_with(OPTIONS);
    use(15);
    assert_int_equal(script.advertised, 4);
    use(1);
    assert_int_equal(script.advertised, 8);
    assert_int_equal(scripted_word(RME_WIRE_CREDIT, 7)->message.tag, 4);
    use(100);
    assert_int_equal(script.advertised, 8);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* A link that cannot have all its buffers gets the available ones. */
static void link_gets_the_available_credits(void **state)
{
    (void)state;
    ask_with(OPTIONS "credits=200");
    script.most_rx = 119;
    for (int i = 0; i < 20 && script.advertised < 119; i++)
        say(RME_WIRE_CREDIT, RME_WIRE_F_STALLED, 1);
    assert_int_equal(script.advertised, 119);
    say(RME_WIRE_CREDIT, RME_WIRE_F_STALLED, 1);
    assert_int_equal(script.advertised, 119);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
    script.most_rx = 0;
}

static void credits_of_four_stay_four(void **state)
{
    (void)state;
    ask_with(OPTIONS "credits=4");
    use(100);
    assert_int_equal(script.advertised, 4);
}

/* A probe that lacks a credit does not request more. */
static void probe_requests_no_credits(void **state)
{
    static struct posted send, recv; /* the teardown ends them */
    static char got[8];

    (void)state;
    connect_with(OPTIONS "keepalive_ms=2", 1);
    scripted_send(&send, memory, 8, 1);
    scripted_recv(&recv, got, sizeof(got), 2);
    scripted_run();
    assert_int_equal(scripted.peer->peer->credit.have, 0);
    for (int i = 0; i < 300; i++) {
        clock_step_ms(1);
        scripted_run();
    }
    assert_true(scripted.peer->peer->ping_sent); /* tried */
    assert_int_equal(scripted_count(RME_WIRE_PING), 0);
    say(RME_WIRE_PING, 0, 0);
    assert_int_equal(scripted_count(RME_WIRE_PONG), 1);
    assert_int_equal(scripted_word(RME_WIRE_PONG, 0)->message.flags, 0);
}

/* An answer without a credit is invalid. */
static void answer_without_credit_is_invalid(void **state)
{
    (void)state;
    connect_to(1);
    assert_int_equal(scripted_counter("peers"), 1);
    scripted_close();
    connect_to(0);
    assert_int_equal(scripted_counter("peers"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(new_link_grows_from_one_credit),
        SCRIPTED_TEST(first_credit_is_never_returned),
        SCRIPTED_TEST(more_than_one_is_too_many),
        SCRIPTED_TEST(credit_pool_is_bounded),
        SCRIPTED_TEST(without_a_pool_one_is_all),
        SCRIPTED_TEST(answer_carries_the_credit),
        SCRIPTED_TEST(idle_call_sends_credit),
        SCRIPTED_TEST(sleeping_call_sends_credit),
        SCRIPTED_TEST(busy_calls_send_credit_eventually),
        SCRIPTED_TEST(beside_a_sleeper_it_goes_at_once),
        SCRIPTED_TEST(lost_link_drops_waiting_credit),
        SCRIPTED_TEST(own_buffers_come_out_of_the_pool),
        SCRIPTED_TEST(own_buffers_stay_until_the_link_ends),
        SCRIPTED_TEST(hello_with_few_credits_refused),
        SCRIPTED_TEST(last_credit_message_reports_stall),
        SCRIPTED_TEST(grown_link_keeps_reserve),
        SCRIPTED_TEST(close_waits_for_bye_credit),
        SCRIPTED_TEST(pong_requests_no_credits),
        SCRIPTED_TEST(idle_link_returns_all_but_one),
        SCRIPTED_TEST(answer_without_credit_is_invalid),
        SCRIPTED_TEST(active_side_advertises_minimum_at_first),
        SCRIPTED_TEST(link_gets_the_available_credits),
        SCRIPTED_TEST(credits_of_four_stay_four),
        SCRIPTED_TEST(probe_requests_no_credits),
    };

    return cmocka_run_group_tests_name("single_credit", tests, clock_setup, NULL);
}
