/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages of a peer that come late, early, or after a long silence: CANCEL for an ended
 * operation, immediates of an old peer after our data, messages before the link is up, ends of
 * operations that wait for a window, credits reclaimed from idle peers.
 */
#include <errno.h>

#include "engine/engine.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define LARGE 200000 /* one fragment, by write and by read */
#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,pool_bytes=64M,pack_threshold=0,"                            \
    "fragment_bytes=1M,rndv=write,credits=8,"                                                  \
    "keepalive_ms=0,connect_timeout_ms=600000,"
#define NO_INVITE OPTIONS "early_cts=0,"

static char memory[LARGE];
static const struct rme_wire_segment target = {.address = 4096, .key = 7, .length = LARGE};

static void open_usual(const char *options)
{
    struct rme_hello hello = scripted_hello();

    scripted_open(options, &hello);
}

static void say_header(uint8_t type, int32_t tag)
{
    scripted_peer_sends((struct rme_wire_message){.type = type, .tag = tag}, NULL);
}

/* ---- CANCEL for ended operations ---- */

#define OLD_MAX 16
#define LIVES   8300 /* enough operations to reuse slots and names */

/* An ended operation: our handle of it, and the peer's handle of its other end. */
static struct name {
    uint32_t ours, theirs;
} old[OLD_MAX];
static unsigned nold;

static void remember(uint32_t n, uint32_t ours, uint32_t theirs)
{
    if ((n & (n - 1)) == 0 && nold < OLD_MAX)
        old[nold++] = (struct name){ours, theirs};
}

/* Returns whether the distance to a remembered handle is 0 or a power of two. */
static bool is_time(uint32_t ours)
{
    for (unsigned i = 0; i < nold; i++)
        if (((ours - old[i].ours) & (ours - old[i].ours - 1)) == 0)
            return true;
    return false;
}

static void cancel(uint32_t to, uint32_t from, bool by_sender)
{
    scripted_peer_sends(
        (struct rme_wire_message){.type = RME_WIRE_CANCEL,
                                  .flags = by_sender ? RME_WIRE_F_FROM_SENDER : 0,
                                  .to = to,
                                  .from = from},
        NULL);
}

/* Delivers every CANCEL that a peer may have sent for ended operations, while the operation
 * with these handles is in progress. */
static void cancel_old_ones(uint32_t ours, uint32_t theirs, bool by_sender)
{
    for (unsigned i = 0; i < nold; i++) {
        cancel(old[i].ours, old[i].theirs, by_sender);
        cancel(old[i].ours, theirs, by_sender);
        cancel(ours, old[i].theirs, by_sender); /* as if the handle were reused */
        if (by_sender)
            cancel(0, old[i].theirs, true);
        scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_FIN,
                                                      .status = RME_WIRE_CANCELED,
                                                      .to = old[i].ours},
                            NULL);
    }
    cancel(ours, theirs, !by_sender); /* of the other end */
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_FIN,
                                                  .status = RME_WIRE_CANCELED,
                                                  .to = ours},
                        NULL);
}

static uint32_t received_from(struct posted *recv, uint32_t theirs)
{
    scripted_hush();
    scripted_recv(recv, memory, LARGE, 1);
    scripted_peer_sends(
        (struct rme_wire_message){
            .type = RME_WIRE_RTS, .tag = 1, .from = theirs, .total = LARGE, .shape = 1},
        NULL);
    assert_int_equal(scripted_count(RME_WIRE_CTS), 1);
    assert_int_equal(scripted_word(RME_WIRE_CTS, 0)->message.to, theirs);
    return scripted_word(RME_WIRE_CTS, 0)->message.from;
}

static void late_cancel_meets_no_other_receive(void **state)
{
    struct posted recv;
    uint32_t ours = 0, n;

    (void)state;
    nold = 0;
    open_usual(NO_INVITE);
    for (n = 1; n <= LIVES; n++) {
        ours = received_from(&recv, n);
        if (is_time(ours))
            cancel_old_ones(ours, n, true);
        assert_int_equal(recv.reports, 0);
        scripted_imm(ours);
        scripted_check(&recv, 0);
        remember(n, ours, n);
    }
    assert_true(nold > 12); /* 1 to 4,096, and later ones */
    ours = received_from(&recv, n);
    cancel(ours, n, true); /* not late */
    scripted_check(&recv, -ECANCELED);
    assert_int_equal(scripted_count(RME_WIRE_FIN), 1);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

static uint32_t sent_to(struct posted *send, uint32_t theirs)
{
    uint32_t ours;

    scripted_hush();
    scripted_send(send, memory, LARGE, 1);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
    ours = scripted_word(RME_WIRE_RTS, 0)->message.from;
    scripted_peer_sends(
        (struct rme_wire_message){
            .type = RME_WIRE_CTS, .to = ours, .from = theirs, .nsegment = 1},
        &target);
    assert_int_equal(script.rdma_ops, 1);
    scripted.keeps = true; /* the report in flight is not consumed */
    return ours;
}

static void finish(void)
{
    script_finish(0);
    scripted_run();
    scripted.keeps = false;
}

static void late_cancel_meets_no_other_send(void **state)
{
    struct posted send;
    uint32_t ours = 0, n;

    (void)state;
    nold = 0;
    open_usual(NO_INVITE);
    for (n = 1; n <= LIVES; n++) {
        ours = sent_to(&send, n);
        if (is_time(ours))
            cancel_old_ones(ours, n, false);
        assert_int_equal(send.reports, 0);
        finish();
        scripted_check(&send, 0);
        remember(n, ours, n);
    }
    assert_true(nold > 12);
    assert_int_equal(scripted_count(RME_WIRE_FIN), 0);
    assert_int_equal(scripted_counter("cancels"), 0);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* Handles repeat after 2^32, but skip 0 and those in use. */
static void handles_in_use_are_not_reused(void **state)
{
    struct posted long_one, recv;
    uint32_t in_use;

    (void)state;
    open_usual(NO_INVITE);
    in_use = received_from(&long_one, 1000000);
    scripted.peer->peer->last_handle = UINT32_MAX - 3;
    for (uint32_t n = 1; n < 20; n++) {
        uint32_t ours = received_from(&recv, n);

        assert_int_not_equal(ours, 0);
        assert_int_not_equal(ours, in_use);
        scripted_imm(ours);
        scripted_check(&recv, 0);
    }
    assert_int_equal(long_one.reports, 0);
    scripted_imm(in_use);
    scripted_check(&long_one, 0);
}

/* ---- Immediates ---- */

/* The peer's host gets our data and answers into memory that an invitation opened. Tests which
 * of the two completions is reported first. */
static void answer_invited(struct posted *send, struct posted *recv, void *room)
{
    uint32_t invited;

    scripted_recv(recv, room, LARGE, 9);
    scripted_run();
    assert_int_equal(scripted_count(KIND(CTS, UNSOLICITED)), 1);
    invited = scripted_word(KIND(CTS, UNSOLICITED), 0)->message.from;
    sent_to(send, 5);
    scripted_imm(invited);
}

/* A peer acknowledges consumed messages with CREDIT; here it had consumed none. */
static void early_cts_message_waits_for_completion(void **state)
{
    struct posted send, recv;
    void *room;

    (void)state;
    open_usual(OPTIONS);
    room = rme_memory_alloc(scripted.rme, LARGE);
    answer_invited(&send, &recv, room);
    scripted_check(&recv, 0);
    assert_int_equal(send.reports, 0);
    finish();
    scripted_check(&send, 0);
    assert_int_equal(rme_memory_free(scripted.rme, room), 0);
}

/* ---- Before the link is up ---- */

static void early(struct rme_wire_message message)
{
    uint8_t buffer[256] = {0};

    rme_wire_encode(&message, buffer);
    script_early_message(0, buffer, rme_wire_length(message.type, 0));
    scripted_run();
}

/* A second peer, whose messages arrive before the fabric reports its link as up. */
static void request_second(void)
{
    struct rme_hello hello = scripted_hello();
    uint8_t out[RME_HELLO_MAX] = {0};

    rme_addr_free(scripted.peer);
    script_down(0, -ECONNRESET);
    scripted_run();
    scripted_hush();
    rme_hello_encode(&hello, out);
    scripted.back = script.spent;
    scripted.have = 8;
    script_request(out, sizeof(out)); /* replaces the first */
    scripted_run();
}

static void window_opens_after_link_is_up(void **state)
{
    struct posted recv, invited;
    uint32_t ours;
    void *room;

    (void)state;
    script.mws = 16;
    script.own_rx = true; /* for more than one early message */
    open_usual(OPTIONS);
    room = rme_memory_alloc(scripted.rme, LARGE);
    for (int goes = 0; goes < 2; goes++) {
        request_second();
        scripted_run();
        early(
            (struct rme_wire_message){.type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED});
        early((struct rme_wire_message){
            .type = RME_WIRE_RTS, .tag = 1, .from = 5, .total = LARGE, .shape = 1});
        scripted_recv(&recv, memory, LARGE, 1);
        scripted_recv(&invited, room, LARGE, 2);
        scripted_run();
        assert_int_equal(script.open, 0);
        assert_int_equal(scripted.words, 0);
        assert_int_equal(scripted_counter("windows") + scripted_counter("protocol_errors"), 0);
        if (goes) {
            script_down(0, -ETIMEDOUT);
            scripted_run();
            scripted_check(&recv, -ETIMEDOUT);
            scripted_check(&invited, -ETIMEDOUT);
            break;
        }
        script_up(0, NULL, 0);
        scripted_run();
        assert_int_equal(script.open, 1);
        ours = scripted_word(RME_WIRE_CTS, 0)->message.from;
        scripted_imm(ours);
        scripted_check(&recv, 0);
        assert_int_equal(script.open, 0);
        rme_cancel(scripted.rme, invited.id);
        scripted_run();
    }
    assert_int_equal(rme_memory_free(scripted.rme, room), 0);
}

/* A large unexpected message announced early is pulled when the link is up, and ends with the
 * link. */
static void early_rts_is_pulled(void **state)
{
    struct rme_unexpected got;
    uint32_t ours;

    (void)state;
    script.own_rx = true; /* for more than one early message */
    open_usual(OPTIONS);
    for (int comes_up = 0; comes_up < 2; comes_up++) {
        request_second();
        early((struct rme_wire_message){
            .type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED}); /* introduces the peer */
        early((struct rme_wire_message){.type = RME_WIRE_RTS,
                                        .flags = RME_WIRE_F_UNEXPECTED,
                                        .tag = 1,
                                        .from = 5,
                                        .total = 10000,
                                        .shape = 1});
        assert_int_equal(scripted.words, 0);
        if (!comes_up) {
            script_down(0, -ETIMEDOUT);
            scripted_run();
            continue;
        }
        script_up(0, NULL, 0);
        scripted_run();
        assert_int_equal(scripted_count(RME_WIRE_CTS), 1);
        ours = scripted_word(RME_WIRE_CTS, 0)->message.from;
        script_imm(0, ours);
        assert_int_equal(rme_test_unexpected(scripted.rme, &got, 1, 0), 1);
        assert_int_equal(got.size, 10000);
        assert_int_equal(rme_unexpected_free(scripted.rme, got.buffer), 0);
    }
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* The end of an unanswered request ends nothing else. */
static void unanswered_request_ends_nothing_else(void **state)
{
    struct posted recv;

    (void)state;
    open_usual(OPTIONS);
    scripted_recv(&recv, memory, 100, 1);
    script_unanswered(-ECONNRESET);
    scripted_run();
    assert_int_equal(recv.reports, 0);
    assert_int_equal(scripted_counter("link_failures") + scripted_counter("protocol_errors"),
                     0);
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = 1}, NULL);
    scripted_check(&recv, 0);
}

static struct rme_peer *peer_in(enum rme_peer_state state)
{
    struct list_head *ring = &scripted.rme->peers;

    for (struct list_head *node = ring->next; node != ring; node = node->next)
        if (container_of(node, struct rme_peer, of_engine)->state == state)
            return container_of(node, struct rme_peer, of_engine);
    return NULL;
}

/* The engine never opens memory before the link is up. An attempt reports failure, to be
 * repeated later. */
static void opening_looks_whether_the_link_is_up(void **state)
{
    struct rme_frag *frag = calloc(1, sizeof(*frag) + sizeof(frag->mseg[0]));
    struct rme_range range;
    struct rme_peer *peer;

    (void)state;
    assert_non_null(frag);
    frag->nmseg = 1;
    frag->access = RME_ACCESS_REMOTE_WRITE;
    frag->range = &range;
    frag->mseg[0] = (struct rme_mseg){.base = memory, .length = LARGE, .rkey = 7};
    list_init(&frag->invalidating);
    script.mws = 16;
    open_usual(OPTIONS);
    request_second();
    scripted_run();
    early((struct rme_wire_message){.type = RME_WIRE_EAGER,
                                    .flags = RME_WIRE_F_UNEXPECTED}); /* introduces the peer */
    peer = peer_in(RME_PEER_ACCEPTING);
    assert_non_null(peer);
    assert_int_equal(rme_frag_bind(peer, frag, true), -EAGAIN);
    assert_int_equal(rme_frag_bind(peer, frag, false), -EAGAIN);
    assert_int_equal(script.open + frag->nrange + scripted.rme->offered, 0);
    assert_int_equal(peer->state, RME_PEER_ACCEPTING);
    script_up(0, NULL, 0);
    scripted_run();
    assert_int_equal(peer->state, RME_PEER_UP);
    assert_int_equal(rme_frag_bind(peer, frag, false), 0);
    assert_int_equal(script.open, 1);
    free(frag);
}

/* ---- CTS that waits for a window ---- */

static void offers(uint32_t from, int32_t tag)
{
    scripted_peer_sends(
        (struct rme_wire_message){
            .type = RME_WIRE_RTS, .tag = tag, .from = from, .total = LARGE, .shape = 1},
        NULL);
}

/* Opens with one window, which the first receive has; the second one's CTS waits for it. */
static uint32_t open_with_one_window(struct posted recv[2])
{
    script.mws = 1;
    open_usual(NO_INVITE);
    for (int i = 0; i < 2; i++) {
        scripted_recv(&recv[i], memory, LARGE, 1 + i);
        offers(1 + (uint32_t)i, 1 + i);
    }
    assert_int_equal(scripted_count(RME_WIRE_CTS), 1);
    assert_int_equal(script.open, 1);
    return scripted_word(RME_WIRE_CTS, 0)->message.from;
}

/* Checks that the second has got the window, and completes it. */
static void the_second_goes_on(struct posted recv[2])
{
    assert_int_equal(scripted_count(RME_WIRE_CTS), 2);
    scripted_imm(scripted_word(RME_WIRE_CTS, 1)->message.from);
    scripted_check(&recv[1], 0);
    assert_int_equal(script.open, 0);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

static void cancel_does_not_wait_for_window(void **state)
{
    struct posted recv[2];
    uint32_t ours = open_with_one_window(recv);

    (void)state;
    rme_cancel(scripted.rme, recv[0].id);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_CANCEL), 1);
    assert_int_equal(recv[0].reports, 0);
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_FIN,
                                                  .status = RME_WIRE_CANCELED,
                                                  .to = ours},
                        NULL);
    scripted_check(&recv[0], -ECANCELED);
    the_second_goes_on(recv);
}

/* Lets time pass, and polls often enough that timers are looked at. */
static void pass(uint64_t ms)
{
    clock_step_ms(ms);
    for (int i = 0; i < 100; i++)
        scripted_run();
}

/* Each cancel waits for its own answer.  The answer of an earlier one comes; the link ends when
 * the later one has had none for a tenth of connect_timeout_ms. */
static void unanswered_cancel_has_own_timeout(void **state)
{
    struct posted send[2];

    (void)state;
    open_usual(NO_INVITE);
    for (int i = 0; i < 2; i++)
        scripted_send(&send[i], memory, LARGE, 5 + i);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 2);
    for (int i = 0; i < 2; i++) {
        rme_cancel(scripted.rme, send[i].id);
        pass(20000);
    }
    scripted_peer_sends(
        (struct rme_wire_message){.type = RME_WIRE_FIN,
                                  .status = RME_WIRE_CANCELED,
                                  .to = scripted_word(RME_WIRE_RTS, 0)->message.from},
        NULL);
    scripted_check(&send[0], -ECANCELED);
    assert_int_equal(scripted_counter("peers"), 1);
    pass(39998); /* the deadline of the first has passed, that of the second not */
    assert_int_equal(scripted_counter("peers"), 1);
    pass(3);
    assert_int_equal(scripted_counter("peers"), 0);
    scripted_check(&send[1], -ECANCELED);
}

static void cancel_answer_does_not_wait(void **state)
{
    struct posted recv[2];
    uint32_t ours = open_with_one_window(recv);

    (void)state;
    offers(3, 3); /* without a receive */
    cancel(0, 3, true);
    assert_int_equal(scripted_count(RME_WIRE_FIN), 1);
    cancel(ours, 1, true);
    assert_int_equal(scripted_count(RME_WIRE_FIN), 2);
    scripted_check(&recv[0], -ECANCELED);
    the_second_goes_on(recv);
}

/* A receive that ends before its CTS was sent refuses, like one that reads. */
static void refusal_does_not_wait_for_window(void **state)
{
    struct posted recv[2], third;
    uint32_t ours = open_with_one_window(recv);

    (void)state;
    scripted_recv(&third, memory, LARGE, 3);
    offers(3, 3);
    rme_cancel(scripted.rme, third.id);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_FIN), 1);
    assert_int_equal(scripted_word(RME_WIRE_FIN, 0)->message.to, 3);
    scripted_check(&third, -ECANCELED);
    scripted_imm(ours);
    scripted_check(&recv[0], 0);
    the_second_goes_on(recv);
}

/* One of two windows is open for a send of ours, whose receiver may wait for our FIN as we do
 * for its message. */
static void nor_where_a_send_has_the_window(void **state)
{
    struct posted send, first, recv, refused;
    void *block;

    (void)state;
    script.mws = 2;
    open_usual(NO_INVITE "rndv=read,");
    block = rme_memory_alloc(scripted.rme, LARGE);
    assert_non_null(block);
    scripted_send(&send, block, LARGE, 9);
    assert_int_equal(scripted_word(RME_WIRE_RTS, 0)->message.nsegment, 1);
    assert_int_equal(script.open, 1);
    scripted_recv(&first, memory, LARGE, 8);
    offers(8, 8);
    scripted_recv(&recv, memory, LARGE, 1);
    offers(1, 1);
    assert_int_equal(scripted_count(RME_WIRE_CTS), 1);
    scripted_recv(&refused, memory, LARGE, 2);
    offers(2, 2);
    rme_cancel(scripted.rme, refused.id);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_FIN), 1);
    scripted_check(&refused, -ECANCELED);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
    script_down(0, -ETIMEDOUT);
    scripted_run();
    scripted_check(&send, -ETIMEDOUT);
    scripted_check(&first, -ETIMEDOUT);
    scripted_check(&recv, -ETIMEDOUT);
    assert_int_equal(rme_memory_free(scripted.rme, block), 0);
}

/* ---- Credits of idle peers ---- */

/* Requests more credits: the peer's number doubles each time, up to 64. */
static void let_it_grow(void)
{
    for (int i = 0; i < 3; i++)
        scripted_peer_sends(
            (struct rme_wire_message){.type = RME_WIRE_PONG, .flags = RME_WIRE_F_STALLED},
            NULL);
}

static int32_t buffers_of(enum rme_wire_type type, unsigned n)
{
    return scripted_word(type, n)->message.tag;
}

/* Lets time pass until the next PING; returns the number of credits that it asks for. */
static int32_t next_ping(void)
{
    unsigned before = scripted_count(RME_WIRE_PING);
    struct rme_done done;

    for (int i = 0; i < 1000 && scripted_count(RME_WIRE_PING) == before; i++) {
        clock_step_ms(1);
        assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 0), 0);
    }
    assert_int_equal(scripted_count(RME_WIRE_PING), before + 1);
    return buffers_of(RME_WIRE_PING, before);
}

static void idle_peer_returns_granted_credits(void **state)
{
    (void)state;
    open_usual(NO_INVITE "keepalive_ms=2");
    assert_int_equal(script.advertised, 8);
    let_it_grow();
    assert_int_equal(script.advertised, 64);
    assert_int_equal(next_ping(), 63);
    say_header(RME_WIRE_PONG, 40);
    assert_int_equal(script.advertised, 24);
    assert_int_equal(scripted_counter("credits_reduced"), 40);
    assert_int_equal(next_ping(), 23);
    say_header(RME_WIRE_PONG, 23);
    assert_int_equal(script.advertised, 1);
    assert_int_equal(next_ping(), 0);
    scripted.have = 1;
    let_it_grow();
    let_it_grow();
    assert_int_equal(script.advertised, 64);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
    say_header(RME_WIRE_PONG, 64);
    assert_int_equal(scripted_counter("protocol_errors"), 1);
    assert_int_equal(script.advertised, 0);
}

static void granted_credits_are_returned(void **state)
{
    int32_t sum = 0;

    (void)state;
    open_usual(NO_INVITE);
    scripted.back = script.spent;
    say_header(RME_WIRE_CREDIT, 100);
    let_it_grow();
    scripted_hush();
    for (unsigned i = 0; i < 4; i++) {
        say_header(RME_WIRE_PING, 60);
        assert_int_equal(scripted_count(RME_WIRE_PONG), i + 1);
        sum += buffers_of(RME_WIRE_PONG, i);
    }
    assert_int_equal(buffers_of(RME_WIRE_PONG, 0), 60);
    assert_int_equal(sum, 100); /* the hello's credits stay */
    say_header(RME_WIRE_PING, INT32_MIN);
    assert_int_equal(buffers_of(RME_WIRE_PONG, 4), 0);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* A message that a receive waits for is judged as any other one. */
static void unspent_credits_end_link(void **state)
{
    struct posted recv;

    (void)state;
    open_usual(NO_INVITE);
    scripted_recv(&recv, memory, 8, 3);
    scripted.keeps = true;
    scripted_peer_sends(
        (struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = 3, .credits = UINT16_MAX},
        NULL);
    scripted.keeps = false;
    assert_int_equal(scripted_counter("protocol_errors"), 1);
    scripted_check(&recv, -EPROTO);
}

/* A peer with few unused credits keeps those that it needs. */
static void enough_is_kept_to_go_on(void **state)
{
    struct rme_hello hello = scripted_hello();
    struct posted send[50];

    (void)state;
    hello.credits = 4;
    scripted_open(NO_INVITE, &hello);
    scripted.keeps = true;
    say_header(RME_WIRE_CREDIT, 60);
    for (int i = 0; i < 50; i++)
        scripted_send(&send[i], memory, 8, i);
    assert_in_range(scripted.peer->peer->credit.have, 8, 14);
    say_header(RME_WIRE_PING, 1000);
    assert_in_range(buffers_of(RME_WIRE_PONG, 0), 1, 10);
    assert_int_equal(scripted.peer->peer->credit.have, RME_CREDIT_DATA);
    say_header(RME_WIRE_PING, 1000);
    assert_int_equal(buffers_of(RME_WIRE_PONG, 1), 0);
    scripted.keeps = false;
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* No credit is left for a probe. A live peer would return some unasked, so a silent one is
 * dead. */
static void silent_peer_without_credits_is_dead(void **state)
{
    struct rme_hello hello = scripted_hello();
    struct posted send[4];

    (void)state;
    hello.credits = 4;
    scripted_open(NO_INVITE "keepalive_ms=20,peer_timeout_ms=100", &hello);
    scripted.keeps = true;
    for (int i = 0; i < 4; i++)
        scripted_send(&send[i], memory, 8, i);
    scripted_run();
    assert_true(scripted.peer->peer->credit.have < RME_CREDIT_DATA);
    scripted_hush();
    for (int i = 0; i < 200 && scripted_counter("peers") != 0; i++) {
        clock_step_ms(1);
        scripted_run();
    }
    assert_int_equal(scripted_counter("peers"), 0);
    assert_int_equal(scripted_count(RME_WIRE_PING), 0);
    scripted_run();
    scripted_check(&send[3], -ETIMEDOUT);
}

/* A cancelled RTS, expected without a receive or unexpected behind a pull, is answered, and no
 * longer counts against the limit. */
static void cancelled_rts_leave_their_room(void **state)
{
    enum { PULLED = 16384 };
    uint32_t most;

    (void)state;
    open_usual(NO_INVITE "eager_window=64K,");
    most = scripted.rme->tuning.rts_max;
    for (uint32_t from = 1; from <= 2 * most + 16; from++) {
        uint8_t flags = from % 2 || from < 8 ? RME_WIRE_F_UNEXPECTED : 0;

        scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_RTS,
                                                      .flags = flags,
                                                      .tag = 1,
                                                      .from = from,
                                                      .total = PULLED,
                                                      .shape = 1},
                            NULL);
        if (from < 8) /* the first ones are pulled, or wait */
            continue;
        scripted_hush();
        scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_CANCEL,
                                                      .flags = flags | RME_WIRE_F_FROM_SENDER,
                                                      .from = from},
                            NULL);
        assert_int_equal(scripted_count(RME_WIRE_FIN), 1);
    }
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(late_cancel_meets_no_other_receive),
        SCRIPTED_TEST(late_cancel_meets_no_other_send),
        SCRIPTED_TEST(handles_in_use_are_not_reused),
        SCRIPTED_TEST(cancelled_rts_leave_their_room),
        SCRIPTED_TEST(early_cts_message_waits_for_completion),
        SCRIPTED_TEST(window_opens_after_link_is_up),
        SCRIPTED_TEST(early_rts_is_pulled),
        SCRIPTED_TEST(unanswered_request_ends_nothing_else),
        SCRIPTED_TEST(opening_looks_whether_the_link_is_up),
        SCRIPTED_TEST(cancel_does_not_wait_for_window),
        SCRIPTED_TEST(unanswered_cancel_has_own_timeout),
        SCRIPTED_TEST(cancel_answer_does_not_wait),
        SCRIPTED_TEST(refusal_does_not_wait_for_window),
        SCRIPTED_TEST(nor_where_a_send_has_the_window),
        SCRIPTED_TEST(idle_peer_returns_granted_credits),
        SCRIPTED_TEST(granted_credits_are_returned),
        SCRIPTED_TEST(unspent_credits_end_link),
        SCRIPTED_TEST(enough_is_kept_to_go_on),
        SCRIPTED_TEST(silent_peer_without_credits_is_dead),
    };

    return cmocka_run_group_tests_name("words", tests, clock_setup, NULL);
}
