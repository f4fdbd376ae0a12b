/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ring (common/ring/) against a peer that the test plays: when a ring is
 * granted, how its owner validates the messages in it, how its user fills it, which completions
 * it requests, and how places are returned.
 */
#include <errno.h>

#include "engine/engine.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,pool_bytes=64M,rndv=write,early_cts=0,"                      \
    "rx_size=4096,credits=32,keepalive_ms=0,"                                                  \
    "eager_ring_bytes=128K,eager_ring_pool=256K,pool_idle_ms=1000"

enum { SIZE = 20000, AREA = 128 << 10, CREDITS = 32 };

static char memory[64 << 10], area[AREA];
static struct rme_wire_segment lent; /* segment of the last GRANT */

static void (*write_down)(const struct rme_wire_message *message);

static void heard(const struct rme_wire_message *message)
{
    if (message->type == RME_WIRE_CREDIT && message->nsegment == 1)
        rme_wire_segment_at(message, 0, &lent);
    write_down(message);
}

static void open_it(uint8_t flags)
{
    struct rme_hello hello = scripted_hello();

    hello.flags |= flags;
    scripted_open(OPTIONS, &hello);
    write_down = script.heard;
    script.heard = heard;
    memset(&lent, 0, sizeof(lent));
}

static void rts(uint32_t from, uint64_t total)
{
    scripted_peer_sends(
        (struct rme_wire_message){
            .type = RME_WIRE_RTS, .tag = -5, .from = from, .total = total, .shape = 1},
        NULL);
}

static void borrow(void)
{
    open_it(RME_HELLO_F_RING);
    rts(1, SIZE);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 0);
    rts(2, SIZE);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 1);
    assert_int_equal(lent.length, AREA);
    assert_int_equal(scripted_counter("eager_ring_bytes"), AREA);
}

/* Writes a message of the peer at offset `at` of the ring. */
static void put(size_t at, uint8_t flags, uint32_t size, uint32_t length)
{
    struct rme_wire_message message = {.type = RME_WIRE_EAGER, .flags = flags, .tag = 3};
    char *place = (char *)(uintptr_t)lent.address + at;

    rme_wire_encode_ring(&message, length, place);
    for (uint32_t i = 0; i < size; i++)
        place[RME_WIRE_RING_SIZE + i] = (char)(i * 7);
}

static uint32_t name_of(size_t at)
{
    return RME_WIRE_RING_NAME + (uint32_t)(at / RME_WIRE_RING_ALIGN);
}

/* ---- The owner ---- */

static void lends_to_who_would_use_it(void **state)
{
    (void)state;
    borrow();
    for (uint32_t i = 3; i < 9; i++)
        rts(i, SIZE); /* the peer has a ring already */
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 1);
}

static void lends_nothing_to_others(void **state)
{
    (void)state;
    open_it(0); /* the peer does not know GRANT */
    rts(1, SIZE);
    rts(2, SIZE);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 0);
    scripted_close();
    open_it(RME_HELLO_F_RING);
    for (uint32_t i = 1; i < 9; i++)
        rts(i, i % 2 ? 100 : 65 << 10); /* too small, too large */
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 0);
    assert_int_equal(scripted_counter("eager_ring_bytes"), 0);
    script.no_regs = true;
    for (uint32_t i = 1; i <= 2 + 4 + 5; i++)
        rts(8 + i, SIZE);
    script.no_regs = false;
    for (uint32_t i = 1; i <= 2; i++)
        rts(19 + i, SIZE); /* the engine does not try each time */
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 0);
    assert_int_equal(scripted_counter("eager_ring_bytes"), 0);
    rts(22, SIZE);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 1);
}

/* The ring has one of two windows and a receive the other; the next receive gets whichever is
 * freed. */
static void freed_ring_window_serves_receives(void **state)
{
    static struct posted recv[2];

    (void)state;
    script.mws = 2;
    borrow();
    for (int i = 0; i < 2; i++)
        scripted_recv(&recv[i], memory, SIZE, -5);
    scripted_run();
    assert_int_equal(script.open, 2);
    assert_int_equal(scripted_count(RME_WIRE_CTS), 1);
    scripted_says(KIND(CREDIT, RELEASE));
    assert_int_equal(scripted_count(RME_WIRE_CTS), 2);
    for (unsigned i = 0; i < 2; i++) {
        scripted_imm(scripted_word(RME_WIRE_CTS, i)->message.from);
        scripted_check(&recv[i], 0);
    }
    assert_int_equal(script.open, 0);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* A ring that is released unused is granted again after growing pauses, a used one soon. */
static void lends_again(void **state)
{
    uint32_t from = 3;

    (void)state;
    borrow();
    for (uint32_t wants = 4; wants <= 16; wants *= 2) {
        scripted_says(KIND(CREDIT, RELEASE));
        scripted_hush();
        for (uint32_t i = 1; i < wants; i++)
            rts(from++, SIZE);
        assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 0);
        rts(from++, SIZE);
        assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 1);
    }
    put(0, 0, SIZE, SIZE);
    scripted_imm(RME_WIRE_RING_NAME);
    scripted_says(KIND(CREDIT, RELEASE));
    scripted_hush();
    rts(from++, SIZE);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 0);
    rts(from++, SIZE);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 1);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

static void look_at(uint64_t ms)
{
    uint64_t due;

    rme_lock(scripted.rme);
    due = rme_ring_idle_due(scripted.rme);
    rme_ring_withdraw_idle(scripted.rme, ms);
    rme_unlock(scripted.rme);
    scripted_run();
    assert_true(due <= ms);
}

/* The ring is withdrawn from a peer that writes nothing between two checks. */
static void unused_ring_is_withdrawn(void **state)
{
    uint64_t now = rme_now() + 10000;

    (void)state;
    borrow();
    look_at(now);
    for (int i = 0; i < 3; i++) {
        put(0, 0, 100, 100);
        scripted_imm(RME_WIRE_RING_NAME);
        look_at(now += 1000);
        assert_int_equal(scripted_count(KIND(CREDIT, WITHDRAW)), 0);
    }
    rts(50, 65 << 10); /* too large for the ring: does not count as use */
    look_at(now += 1000);
    assert_int_equal(scripted_count(KIND(CREDIT, WITHDRAW)), 1);
    assert_true(rme_ring_idle_due(scripted.rme) == UINT64_MAX);
    assert_int_equal(scripted_counter("eager_ring_bytes"), AREA); /* until RELEASE */
    scripted_says(KIND(CREDIT, RELEASE));
    assert_int_equal(scripted_counter("eager_ring_bytes"), 0);
    scripted_hush();
    rts(51, SIZE);
    rts(52, SIZE);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 1);
}

/* WITHDRAW waits while the peer releases the ring: WITHDRAW would withdraw the next ring. */
static void delayed_withdrawal_ends_with_its_ring(void **state)
{
    uint64_t now = rme_now() + 10000;

    (void)state;
    borrow();
    script.no_tx = true;
    look_at(now);
    look_at(now + 1000);
    scripted_says(KIND(CREDIT, RELEASE));
    assert_int_equal(scripted_counter("eager_ring_bytes"), 0);
    for (uint32_t i = 3; i <= 6; i++)
        rts(i, SIZE);
    assert_int_equal(scripted_counter("eager_ring_bytes"), AREA);
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 1); /* of the first ring */
    script_tx_room();
    scripted_run();
    assert_int_equal(scripted_count(KIND(CREDIT, GRANT)), 2);
    assert_int_equal(scripted_count(KIND(CREDIT, WITHDRAW)), 0);
}

static void takes_what_is_written(void **state)
{
    static struct posted recv;

    (void)state;
    borrow();
    scripted_recv(&recv, memory, sizeof(memory), 3);
    put(640, 0, SIZE, SIZE);
    scripted_imm(name_of(640));
    scripted_check(&recv, 0);
    assert_int_equal(recv.actual, SIZE);
    for (int i = 0; i < SIZE; i++)
        assert_int_equal(memory[i], (char)(i * 7));
    assert_int_equal(scripted_counter("recvs_eager_rdma"), 1);
    put(0, RME_WIRE_F_UNEXPECTED, 16384, 16384);
    scripted_imm(name_of(0));
    /* the first one introduced the peer */
    assert_int_equal(scripted_counter("unexpected_received"), 2);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* When half of the ring waits to be returned, a CREDIT message returns it. */
static void gives_places_back_in_time(void **state)
{
    static struct posted recv[4];

    (void)state;
    borrow();
    for (int i = 0; i < 4; i++)
        scripted_recv(&recv[i], memory, sizeof(memory), 3);
    scripted_says(RME_WIRE_PING); /* the answer returns what is unreturned so far */
    scripted_hush();
    put(0, 0, SIZE, SIZE);
    for (int i = 0; i < 3; i++)
        scripted_imm(RME_WIRE_RING_NAME);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 0);
    scripted_imm(RME_WIRE_RING_NAME);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 1);
    assert_int_equal(scripted_word(RME_WIRE_CREDIT, 0)->message.credits, 4);
}

static void meets(int32_t tag)
{
    static struct posted recv;

    memset(memory, 0x55, sizeof(memory));
    scripted_recv(&recv, memory, sizeof(memory), tag);
    scripted_run();
    scripted_check(&recv, 0);
    for (int i = 0; i < SIZE; i++)
        assert_int_equal(memory[i], (char)(i * 7));
}

/* Messages without receives leave the ring at once: their places return to the peer, and the
 * ring may be freed. */
static void early_ones_leave_the_ring(void **state)
{
    (void)state;
    borrow();
    scripted_says(RME_WIRE_PING); /* the answer returns what is unreturned so far */
    scripted_hush();
    put(0, 0, SIZE, SIZE);
    for (int i = 0; i < 4; i++)
        scripted_imm(RME_WIRE_RING_NAME);
    assert_int_equal(scripted_count(RME_WIRE_CREDIT), 1);
    assert_int_equal(scripted_word(RME_WIRE_CREDIT, 0)->message.credits, 4);
    assert_int_equal(scripted_counter("rx_buffered_bytes") / SIZE, 4);
    memset((void *)(uintptr_t)lent.address, 0x55, AREA);
    scripted_says(KIND(CREDIT, RELEASE));
    assert_int_equal(scripted_counter("eager_ring_bytes"), 0);
    for (int i = 0; i < 4; i++)
        meets(3);
    assert_int_equal(scripted_counter("rx_buffered_bytes") / SIZE, 0);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

/* The link ends, and the ring with it. */
static void ring_ends_with_its_link(void **state)
{
    (void)state;
    borrow();
    put(0, 0, SIZE, SIZE);
    scripted_imm(RME_WIRE_RING_NAME);
    scripted_imm(name_of(AREA)); /* a protocol error */
    scripted_run();
    assert_int_equal(scripted_counter("peers"), 0);
    assert_int_equal(scripted_counter("rx_buffered_bytes"), 0);
    assert_int_equal(scripted_counter("eager_ring_bytes"), 0);
}

static void wrong(void (*step)(void))
{
    borrow();
    step();
    scripted_run();
    assert_int_equal(scripted_counter("protocol_errors"), 1);
    assert_int_equal(scripted_counter("peers"), 0);
}

static void too_long(void)
{
    put(AREA - 4096, 0, 0, 4096);
    scripted_imm(name_of(AREA - 4096));
}

static void much_too_long(void)
{
    put(0, 0, 0, UINT32_MAX);
    scripted_imm(name_of(0));
}

static void no_message(void)
{
    put(0, 0, 0, 0);
    *(uint8_t *)(uintptr_t)lent.address = RME_WIRE_PING;
    scripted_imm(name_of(0));
}

static void outside(void)
{
    scripted_imm(name_of(AREA));
}

static void unexpected_too_large(void)
{
    put(0, RME_WIRE_F_UNEXPECTED, 0, 16385);
    scripted_imm(name_of(0));
}

static void beyond_the_window(void)
{
    put(0, 0, 0, 60000);
    for (int i = 0; i < 20 && scripted_counter("protocol_errors") == 0; i++)
        scripted_imm(name_of(0));
}

static void returned_twice(void)
{
    scripted_says(KIND(CREDIT, RELEASE));
    assert_int_equal(scripted_counter("protocol_errors"), 0);
    assert_int_equal(scripted_counter("eager_ring_bytes"), 0);
    scripted_says(KIND(CREDIT, RELEASE));
}

static void used_when_returned(void)
{
    uint32_t name = name_of(0);

    scripted_says(KIND(CREDIT, RELEASE));
    scripted_imm(name);
}

static void impossible_credits(void)
{
    struct rme_wire_message message = {.type = RME_WIRE_EAGER, .credits = 999};

    rme_wire_encode_ring(&message, 10, (void *)(uintptr_t)lent.address);
    scripted_imm(name_of(0));
}

static void wrong_peers_lose_their_link(void **state)
{
    void (*const step[])(void) = {too_long,       much_too_long,        no_message,
                                  outside,        unexpected_too_large, beyond_the_window,
                                  returned_twice, used_when_returned,   impossible_credits};

    (void)state;
    for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
        wrong(step[i]);
        if (i + 1 < sizeof(step) / sizeof(step[0]))
            scripted_close();
    }
}

/* ---- The user ---- */

/* Posts an unexpected send; `result`: 1 if it is complete at once, else 0. */
static void unexpected(struct posted *p, int64_t size, int result)
{
    void *base = memory;
    struct rme_list list = {&base, &size, 1};

    assert_int_equal(rme_post_unexpected(scripted.rme, scripted.peer, &list, 1, 0, p, &p->id),
                     result);
    scripted_run();
}

static const struct rme_wire_segment whole = {.address = 0, .key = 7, .length = AREA};

static void grant(uint64_t length, uint32_t nsegment)
{
    struct rme_wire_segment segment[2] = {whole, whole};

    segment[0].address = segment[1].address = (uintptr_t)area;
    segment[0].length = length;
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_CREDIT,
                                                  .flags = RME_WIRE_F_GRANT,
                                                  .nsegment = nsegment},
                        segment);
}

static void lend_it(void)
{
    open_it(RME_HELLO_F_RING);
    grant(AREA, 1);
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 0);
}

/* Fills the ring, of which the peer consumes nothing; the seventh send waits for room. */
static void fill_it(struct posted send[7])
{
    lend_it();
    scripted.keeps = true;
    for (unsigned i = 0; i < 7; i++) {
        scripted_send(&send[i], memory, SIZE, 1);
        scripted_run();
        if (i < 6)
            scripted_check(&send[i], 0); /* complete at once */
        assert_int_equal(script.rdma_ops, i < 6 ? i + 1 : 6);
    }
    assert_int_equal(scripted_counter("sends_eager_rdma"), 6);
}

static void writes_until_it_is_full(void **state)
{
    static struct posted send[8];

    (void)state;
    fill_it(send);
    while (script.rdma_ops > 0)
        script_finish(0);
    scripted_run(); /* written, not consumed */
    unexpected(&send[7], 100 * 64, 0);
    assert_int_equal(scripted_counter("sends_eager_rdma"), 6);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1); /* the unexpected one does not wait */
    scripted.keeps = false;
    scripted_says(RME_WIRE_PING);
    scripted_check(&send[6], 0);
    assert_int_equal(scripted_counter("sends_eager_rdma"), 7);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
}

/* The send that waits for room is cancelled: the room is for unexpected messages as well. */
static void cancelled_wait_reserves_no_room(void **state)
{
    static struct posted send[8];

    (void)state;
    fill_it(send);
    assert_int_equal(rme_cancel(scripted.rme, send[6].id), 0);
    while (script.rdma_ops > 0)
        script_finish(0);
    scripted.keeps = false;
    scripted_says(RME_WIRE_PING);
    scripted_check(&send[6], -ECANCELED);
    unexpected(&send[7], 100 * 64, 1);
    assert_int_equal(scripted_counter("sends_eager_rdma"), 7);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 0);
}

/* With few messages unacknowledged the peer may send nothing: a send that finds no room does
 * not wait. */
static void waits_for_nothing_uncertain(void **state)
{
    static struct posted send[5];

    (void)state;
    lend_it();
    scripted.keeps = true;
    for (unsigned i = 0; i < 4; i++)
        scripted_send(&send[i], memory, SIZE, 1);
    scripted_send(&send[4], memory, 60000, 1);
    scripted_run();
    assert_int_equal(scripted_counter("sends_eager_rdma"), 4);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
    assert_int_equal(scripted_counter("eager_ring_full"), 1);
}

/* A send that waits for room uses another protocol when the ring is withdrawn. */
static void waits_no_longer_than_it_is_lent(void **state)
{
    static struct posted send[7];

    (void)state;
    lend_it();
    scripted.keeps = true;
    for (unsigned i = 0; i < 7; i++)
        scripted_send(&send[i], memory, SIZE, 1);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_RTS), 0);
    scripted_says(KIND(CREDIT, WITHDRAW));
    scripted_run();
    assert_int_equal(scripted_counter("sends_eager_rdma"), 6);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
}

/* The place of a consumed message is reused only after the device's completion. */
static void ring_slot_waits_for_device(void **state)
{
    static struct posted send;

    (void)state;
    lend_it();
    for (int i = 0; i < 6; i++)
        scripted_send(&send, memory, SIZE, 1);
    scripted_run();
    scripted_says(RME_WIRE_PING); /* all are consumed */
    scripted_send(&send, memory, SIZE, 1);
    scripted_run();
    assert_int_equal(scripted_counter("sends_eager_rdma"), 6);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 0);
    while (script.rdma_ops > 0)
        script_finish(0);
    scripted_run();
    assert_int_equal(scripted_counter("sends_eager_rdma"), 7);
    scripted_send(&send, memory, SIZE, 2);
    scripted_run();
    assert_int_equal(scripted_counter("sends_eager_rdma"), 8);
}

static void returns_what_is_asked_for(void **state)
{
    static struct posted send;

    (void)state;
    lend_it();
    scripted_send(&send, memory, SIZE, 1);
    scripted_run();
    scripted_says(KIND(CREDIT, WITHDRAW));
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 1); /* behind the message */
    scripted_send(&send, memory, SIZE, 2);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
    scripted_says(KIND(CREDIT, WITHDRAW)); /* crossed RELEASE: there is no ring */
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 1);
    grant(AREA, 1); /* the device may still read the staging buffer of the first */
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 2);
    script_finish(0);
    script_finish(0);
    scripted_run();
    grant(AREA, 1);
    scripted_send(&send, memory, SIZE, 3);
    scripted_run();
    assert_int_equal(scripted_counter("sends_eager_rdma"), 2);
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 2);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

static void returns_what_it_cannot_use(void **state)
{
    (void)state;
    open_it(RME_HELLO_F_RING);
    grant(10, 1);
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 1);
    script.no_regs = true;
    grant(4 << 20, 1);
    script.no_regs = false;
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 2);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

static void wrong_grants_end_the_link(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        lend_it();
        if (i == 0) {
            grant(AREA, 1); /* a second one */
        } else {
            scripted_says(KIND(CREDIT, WITHDRAW));
            assert_int_equal(scripted_counter("protocol_errors"), 0);
            grant(AREA, 0);
        }
        assert_int_equal(scripted_counter("protocol_errors"), 1);
        if (i < 1)
            scripted_close();
    }
}

/* ---- The user, with unsignalled writes ---- */

static void lend_unsignalled(void)
{
    script.unsignalled = true;
    script.quieted = 0;
    lend_it();
}

/* Sends n messages, which the peer consumes and acknowledges. */
static void send_many(unsigned n, size_t size)
{
    static struct posted send;

    for (unsigned i = 0; i < n; i++) {
        scripted_send(&send, memory, size, 1);
        scripted_run();
        scripted.eager_consumed =
            (uint32_t)(scripted_counter("sends_eager_rdma") * (size + RME_HELD_COST));
        if (i % 4 == 3)
            scripted_says(RME_WIRE_PING);
    }
}

/* The peer's credits return the places: one write in 16 is signalled. */
static void few_are_reported(void **state)
{
    (void)state;
    lend_unsignalled();
    send_many(96, SIZE);
    assert_int_equal(scripted_counter("sends_eager_rdma"), 96);
    assert_int_equal(script.rdma_ops, 96); /* no completion yet */
    assert_int_equal(script.quieted, 96 - 96 / 16);
    assert_int_equal(scripted_counter("eager_ring_full"), 0);
}

/* Descriptors of writes are needed until a completion covers them: at most 128. */
static void not_too_many_are_not_reported(void **state)
{
    (void)state;
    lend_unsignalled();
    send_many(140, SIZE);
    assert_int_equal(scripted_counter("sends_eager_rdma"), 128);
    while (script.rdma_ops > 0)
        script_finish(0); /* the newest first */
    scripted_run();
    send_many(20, SIZE);
    assert_true(scripted_counter("sends_eager_rdma") >= 148);
}

/* An unsignalled write does not delay reuse, but a place that the peer has not consumed
 * does. */
static void unsignalled_slot_waits_for_peer(void **state)
{
    static struct posted send[7];

    (void)state;
    lend_unsignalled();
    scripted.keeps = true;
    for (unsigned i = 0; i < 7; i++)
        scripted_send(&send[i], memory, SIZE, 1);
    scripted_run();
    while (script.rdma_ops > 0)
        script_finish(script.rdma_ops - 1);
    scripted_run();
    assert_int_equal(scripted_counter("sends_eager_rdma"), 6);
}

/* RELEASE follows unsignalled writes at once, as a signalled transfer; its completion frees the
 * staging buffer. A ring granted before is returned unused. */
static void returns_behind_unsignalled_writes(void **state)
{
    (void)state;
    lend_unsignalled();
    send_many(2, SIZE);
    scripted_says(KIND(CREDIT, WITHDRAW));
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 1);
    assert_int_equal(script.rdma_ops, 3);
    assert_int_equal(script.quieted, 2);
    grant(AREA, 1);
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 2);
    while (script.rdma_ops > 0)
        script_finish(0);
    scripted_run();
    grant(AREA, 1);
    send_many(3, SIZE);
    assert_int_equal(scripted_counter("sends_eager_rdma"), 5);
    assert_int_equal(scripted_count(KIND(CREDIT, RELEASE)), 2);
    assert_int_equal(scripted_counter("protocol_errors"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(lends_to_who_would_use_it),
        SCRIPTED_TEST(lends_nothing_to_others),
        SCRIPTED_TEST(freed_ring_window_serves_receives),
        SCRIPTED_TEST(lends_again),
        SCRIPTED_TEST(unused_ring_is_withdrawn),
        SCRIPTED_TEST(delayed_withdrawal_ends_with_its_ring),
        SCRIPTED_TEST(takes_what_is_written),
        SCRIPTED_TEST(gives_places_back_in_time),
        SCRIPTED_TEST(early_ones_leave_the_ring),
        SCRIPTED_TEST(ring_ends_with_its_link),
        SCRIPTED_TEST(wrong_peers_lose_their_link),
        SCRIPTED_TEST(writes_until_it_is_full),
        SCRIPTED_TEST(cancelled_wait_reserves_no_room),
        SCRIPTED_TEST(waits_for_nothing_uncertain),
        SCRIPTED_TEST(waits_no_longer_than_it_is_lent),
        SCRIPTED_TEST(ring_slot_waits_for_device),
        SCRIPTED_TEST(returns_what_is_asked_for),
        SCRIPTED_TEST(returns_what_it_cannot_use),
        SCRIPTED_TEST(wrong_grants_end_the_link),
        SCRIPTED_TEST(few_are_reported),
        SCRIPTED_TEST(not_too_many_are_not_reported),
        SCRIPTED_TEST(unsignalled_slot_waits_for_peer),
        SCRIPTED_TEST(returns_behind_unsignalled_writes),
    };

    return cmocka_run_group_tests_name("ring", tests, clock_setup, NULL);
}
