/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unsignalled writes to an eager ring (fast.c), and writes from the host's memory: which completions are requested, and when a send is complete. */
#include "engine/engine.h"
#include "scripted.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,spin_us=0,zone_bytes=64M,dont_fork=off,rndv=write,invite=0,"           \
    "rx_size=4096,credits=32,keepalive_ms=0,idle_keepalive_ms=0,measure_costs=0,"              \
    "fast_bytes=128K,fast_pool=256K"

enum { SIZE = 20000, AREA = 128 << 10, CREDITS = 32 };

static char memory[64 << 10], area[AREA];

static uint64_t count_of(const char *name)
{
    return rme_counter_value(scripted.rme, name);
}

static void say(uint8_t type)
{
    scripted_say((struct rme_wire_message){.type = type}, NULL);
}

static void grant(void)
{
    const struct rme_wire_segment whole = {
        .address = (uintptr_t)area, .key = 7, .length = AREA};

    scripted_say((struct rme_wire_message){.type = RME_WIRE_GRANT, .from = 1000, .nsegment = 1},
                 &whole);
}

static int close_quiet(void **state)
{
    (void)state;
    script.quiet = false;
    scripted_close();
    return 0;
}

static void lend_with(const char *options)
{
    struct rme_hello hello = scripted_hello();

    script.quiet = true;
    script.quieted = 0;
    hello.flags |= RME_HELLO_F_FAST;
    scripted_open(options, &hello);
    scripted.have += CREDITS - 8; /* the script assumes 8 */
    grant();
}

static void lend_quietly(void)
{
    lend_with(OPTIONS);
}

/* Sends n messages, which the peer consumes and acknowledges. */
static void send_many(unsigned n, size_t size)
{
    static struct posted send;

    for (unsigned i = 0; i < n; i++) {
        scripted_send(&send, memory, size, 1);
        scripted_run();
        scripted.eager_taken = (uint32_t)(count_of("sends_fast") * (size + RME_HELD_COST));
        if (i % 4 == 3)
            say(RME_WIRE_PING);
    }
}

/* The peer's credits return the places: one write in 16 is signalled. */
static void few_are_reported(void **state)
{
    (void)state;
    lend_quietly();
    send_many(96, SIZE);
    assert_int_equal(count_of("sends_fast"), 96);
    assert_int_equal(script.xfers, 96); /* no completion yet */
    assert_int_equal(script.quieted, 96 - 96 / 16);
    assert_int_equal(count_of("fast_full"), 0);
}

/* Descriptors of writes are needed until a completion covers them: at most 128. */
static void not_too_many_are_not_reported(void **state)
{
    (void)state;
    lend_quietly();
    send_many(140, SIZE);
    assert_int_equal(count_of("sends_fast"), 128);
    while (script.xfers > 0)
        script_finish(0); /* the newest first */
    scripted_run();
    send_many(20, SIZE);
    assert_true(count_of("sends_fast") >= 148);
}

/* An unsignalled write does not delay reuse, but a place that the peer has not consumed
 * does. */
static void a_place_waits_for_the_peer(void **state)
{
    static struct posted send[7];

    (void)state;
    lend_quietly();
    scripted.keeps = true;
    for (unsigned i = 0; i < 7; i++)
        scripted_send(&send[i], memory, SIZE, 1);
    scripted_run();
    while (script.xfers > 0)
        script_finish(script.xfers - 1);
    scripted_run();
    assert_int_equal(count_of("sends_fast"), 6);
}

/* RELEASE follows unsignalled writes at once, as a signalled transfer; its completion frees the
 * staging buffer. A ring granted before is returned unused. */
static void returns_behind_quiet_writes(void **state)
{
    (void)state;
    lend_quietly();
    send_many(2, SIZE);
    say(RME_WIRE_WITHDRAW);
    assert_int_equal(scripted_count(RME_WIRE_RELEASE), 1);
    assert_int_equal(script.xfers, 3);
    assert_int_equal(script.quieted, 2);
    grant();
    assert_int_equal(scripted_count(RME_WIRE_RELEASE), 2);
    while (script.xfers > 0)
        script_finish(0);
    scripted_run();
    grant();
    send_many(3, SIZE);
    assert_int_equal(count_of("sends_fast"), 5);
    assert_int_equal(scripted_count(RME_WIRE_RELEASE), 2);
    assert_int_equal(count_of("protocol_errors"), 0);
}

/* ---- The user, with registered host memory ---- */

/* Makes a list of memory from rme_memory_alloc. */
static struct rme_list piece(void **base, int64_t *length)
{
    base[0] = rme_memory_alloc(scripted.rme, SIZE);
    assert_non_null(base[0]);
    length[0] = SIZE;
    return (struct rme_list){base, length, 1};
}

static void send_list(struct posted *p, const struct rme_list *list, int32_t tag)
{
    *p = (struct posted){.rc = 0};
    p->rc = rme_post_send(scripted.rme, scripted.peer, list, tag, 0, p, &p->id);
    assert_in_range(p->rc, 0, 1);
    p->reports = p->rc;
    scripted_run();
}

/* A gathered message is not copied, and complete when the write is. */
static void gathers_what_is_registered(void **state)
{
    static struct posted send;
    int64_t length[8];
    void *base[8];
    struct rme_list list;
    uint64_t copied, regs;

    (void)state;
    lend_quietly();
    list = piece(base, length);
    copied = count_of("bytes_copied");
    regs = count_of("registrations");
    send_list(&send, &list, 1);
    assert_int_equal(count_of("fast_gathered"), 1);
    assert_int_equal(count_of("bytes_copied"), copied);
    assert_int_equal(script.segments, 2);
    assert_int_equal(script.quieted, 0); /* signalled: its host waits */
    assert_int_equal(send.reports, 0);
    assert_int_equal(rme_cancel(scripted.rme, send.id), 0); /* too late to cancel */
    scripted_run();
    assert_int_equal(send.reports, 0);
    script_finish(0);
    scripted_run();
    scripted_check(&send, 0);
    assert_int_equal(count_of("registrations"), regs);
    list.count = 2; /* a list */
    base[1] = base[0];
    length[1] = 100;
    send_list(&send, &list, 1);
    scripted_check(&send, 0);
    assert_int_equal(count_of("fast_gathered"), 1);
    assert_int_equal(count_of("bytes_copied"), copied + SIZE + 100);
    assert_int_equal(rme_memory_free(scripted.rme, base[0]), 0);
}

/* The header is a segment, too. */
static void copies_with_a_single_segment(void **state)
{
    static struct posted send;
    int64_t length[1];
    void *base[1];
    struct rme_list list;

    (void)state;
    script.max_sge = 1;
    lend_quietly();
    script.max_sge = 0;
    list = piece(base, length);
    send_list(&send, &list, 1);
    scripted_check(&send, 0);
    assert_int_equal(count_of("sends_fast"), 1);
    assert_int_equal(count_of("fast_gathered"), 0);
    assert_int_equal(rme_memory_free(scripted.rme, base[0]), 0);
}

/* Small messages are copied; so are unregistered ones, which are not registered for it. */
static void copies_where_that_costs_less(void **state)
{
    static struct posted send;
    int64_t length[1];
    void *base[1];
    struct rme_list list;

    (void)state;
    lend_quietly();
    list = piece(base, length);
    length[0] = 5000;
    send_list(&send, &list, 1);
    scripted_check(&send, 0);
    scripted_send(&send, memory, SIZE, 1);
    scripted_check(&send, 0);
    assert_int_equal(count_of("sends_fast"), 2);
    assert_int_equal(count_of("fast_gathered"), 0);
    assert_int_equal(rme_memory_free(scripted.rme, base[0]), 0);
}

/* The peer gets the message before our completion: the send is reported first, then the
 * answer. */
static void the_answer_proves_it(void **state)
{
    static struct posted send, other, answer;
    int64_t length[1];
    void *base[1];
    struct rme_list list;

    (void)state;
    lend_quietly();
    list = piece(base, length);
    scripted_recv(&answer, memory, sizeof(memory), 9);
    send_list(&send, &list, 1);
    scripted.keeps = true;
    scripted_say((struct rme_wire_message){.type = RME_WIRE_PING}, NULL);
    assert_int_equal(send.reports, 0);
    scripted.keeps = false;
    scripted_say((struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = 9}, NULL);
    scripted_check(&send, 0);
    scripted_check(&answer, 0);
    assert_true(send.place < answer.place);
    send_list(&other, &list, 1);
    script_finish(1);
    scripted_run();
    scripted_check(&send, 0);
    assert_int_equal(other.reports, 0);
    script_finish(0);
    scripted_run();
    scripted_check(&other, 0);
    assert_int_equal(rme_memory_free(scripted.rme, base[0]), 0);
}

/* The peer has the message, and the host frees the memory; our device, still without the
 * network's acknowledgement, may read it once more. */
static void what_is_gathered_stays_registered(void **state)
{
    static struct posted send[2];
    int64_t length[1];
    void *base[1];
    struct rme_list list;
    uint64_t deregs;

    (void)state;
    lend_with(OPTIONS ",zone_keep_bytes=0");
    for (int i = 0; i < 2; i++) {
        list = piece(base, length);
        send_list(&send[i], &list, 1);
        say(RME_WIRE_PING);
        scripted_check(&send[i], 0);
        deregs = count_of("deregistrations");
        assert_int_equal(rme_memory_free(scripted.rme, base[0]), 0);
        scripted_run();
        assert_int_equal(count_of("fast_gathered"), i + 1);
        assert_int_equal(script.xfers, 1);
        assert_int_equal(count_of("deregistrations"), deregs);
        if (i == 0)
            script_finish(0);
        else
            script_cut();
        scripted_run();
        assert_int_equal(script.xfers, 0);
        assert_true(count_of("deregistrations") > deregs);
    }
}

/* Other memory than a zone's is copied, although its registration is cached. */
static void what_is_cached_is_copied(void **state)
{
    struct rme_mseg host = {.base = memory, .length = SIZE};
    static struct posted send;
    struct rme_mreg_hold *hold;

    (void)state;
    lend_with(OPTIONS ",regcache_entries=16");
    assert_int_equal(rme_mreg_acquire(scripted.rme->mreg, &host, 1, RME_ACCESS_LOCAL, &hold),
                     0);
    if (rme_mreg_release(scripted.rme->mreg, hold))
        rme_mreg_reap(scripted.rme->mreg);
    scripted_send(&send, memory, SIZE, 1);
    scripted_check(&send, 0);
    assert_int_equal(count_of("sends_fast"), 1);
    assert_int_equal(count_of("fast_gathered"), 0);
}

/* RELEASE follows the gathered write, whose send ends as without; the end of the link ends the
 * next one. */
static void what_is_gathered_ends_with_its_link(void **state)
{
    static struct posted send[2];
    int64_t length[1];
    void *base[1];
    struct rme_list list;

    (void)state;
    lend_quietly();
    list = piece(base, length);
    send_list(&send[0], &list, 1);
    scripted.keeps = true;
    say(RME_WIRE_WITHDRAW);
    assert_int_equal(scripted_count(RME_WIRE_RELEASE), 1);
    assert_int_equal(send[0].reports, 0);
    script_finish(1);
    script_finish(0);
    scripted_run();
    scripted_check(&send[0], 0);
    grant();
    send_list(&send[1], &list, 1);
    assert_int_equal(count_of("fast_gathered"), 2);
    say(RME_WIRE_RELEASE); /* without a ring: a protocol error */
    scripted_run();
    assert_int_equal(count_of("peers"), 0);
    script_cut();
    scripted_run();
    assert_int_equal(send[1].reports, 1);
    assert_int_equal(rme_memory_free(scripted.rme, base[0]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(few_are_reported, close_quiet),
        cmocka_unit_test_teardown(not_too_many_are_not_reported, close_quiet),
        cmocka_unit_test_teardown(a_place_waits_for_the_peer, close_quiet),
        cmocka_unit_test_teardown(returns_behind_quiet_writes, close_quiet),
        cmocka_unit_test_teardown(gathers_what_is_registered, close_quiet),
        cmocka_unit_test_teardown(copies_with_a_single_segment, close_quiet),
        cmocka_unit_test_teardown(copies_where_that_costs_less, close_quiet),
        cmocka_unit_test_teardown(the_answer_proves_it, close_quiet),
        cmocka_unit_test_teardown(what_is_gathered_stays_registered, close_quiet),
        cmocka_unit_test_teardown(what_is_cached_is_copied, close_quiet),
        cmocka_unit_test_teardown(what_is_gathered_ends_with_its_link, close_quiet),
    };

    return cmocka_run_group_tests_name("quiet", tests, NULL, NULL);
}
