/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Order of sends (send.c): sends of one tag keep their order and do not block other tags. */
#include "scripted.h"

#define LARGE 20000
#define SMALL 8

#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,keepalive_ms=0,pool_bytes=64M,"                              \
    "rndv=read,early_cts=0,pack_threshold=0"

#define HUGE (1 << 20) /* too large to be copied: registered */

static char memory[HUGE];

/* Refuses the message of the n-th RTS. */
static void refuse_rts(unsigned n)
{
    const struct word *rts = scripted_word(RME_WIRE_RTS, n);

    assert_non_null(rts);
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_FIN,
                                                  .to = rts->message.from,
                                                  .status = RME_WIRE_CANCELED},
                        NULL);
}

static int32_t rts_tag(unsigned n)
{
    const struct word *rts = scripted_word(RME_WIRE_RTS, n);

    return rts != NULL ? rts->message.tag : -1;
}

static int32_t eager_tag(unsigned n)
{
    const struct word *eager = scripted_word(RME_WIRE_EAGER, n);

    return eager != NULL ? eager->message.tag : -1;
}

static void open_with(uint32_t rts_max, uint32_t window)
{
    struct rme_hello hello = scripted_hello();

    hello.rts_max = rts_max;
    hello.eager_window = window;
    scripted_open(OPTIONS, &hello);
}

static void unfetched_tags_block_no_other_tags(void **state)
{
    struct posted large[4], small[4];
    void *base = memory;
    int64_t length = SMALL;
    struct rme_list list = {&base, &length, 1};
    rme_id id;

    (void)state;
    open_with(1, 65536);
    scripted_send(&large[0], memory, LARGE, 1);
    scripted_send(&large[1], memory, LARGE, 2);
    scripted_send(&small[0], memory, SMALL, 2);
    scripted_send(&large[2], memory, LARGE, 3);
    scripted_send(&small[1], memory, SMALL, 4); /* has its own tag */
    scripted_send(&small[2], memory, SMALL, 1); /* behind one that was sent */
    assert_int_equal(rme_post_unexpected(scripted.rme, scripted.peer, &list, 2, 0, NULL, &id),
                     1);
    scripted_run();
    assert_int_equal(small[1].rc, 1);
    assert_int_equal(small[2].rc, 1);
    assert_int_equal(small[0].reports, 0);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 2);

    refuse_rts(0);
    assert_int_equal(rts_tag(1), 2);
    assert_int_equal(rts_tag(2), -1);
    assert_int_equal(eager_tag(2), 2);
    assert_true(scripted_word(RME_WIRE_RTS, 1) < scripted_word(RME_WIRE_EAGER, 2));
    scripted_check(&small[0], 0);
    scripted_send(&small[3], memory, SMALL, 2);
    assert_int_equal(small[3].rc, 1); /* the tag is free again */
    refuse_rts(1);
    assert_int_equal(rts_tag(2), 3);
    refuse_rts(2);
    for (int i = 0; i < 3; i++)
        scripted_check(&large[i], -ECANCELED);
}

static struct posted during[8];
static unsigned registered;

/* Another thread posts while this one registers. */
static void post_meanwhile(void)
{
    if (registered++ != 0)
        return;
    scripted_send(&during[0], memory, SMALL, 1);
    scripted_send(&during[1], memory, SMALL, 2);
    scripted_send(&during[2], memory, HUGE, 3);
    scripted_send(&during[3], memory, SMALL, 3);
    /* of tag 3: the second call has made its memory ready */
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
    assert_int_equal(rts_tag(0), 3);
    assert_int_equal(during[0].reports, 0);
    assert_int_equal(during[1].rc, 1);
    assert_int_equal(eager_tag(0), 2);
    assert_int_equal(eager_tag(1), 3);
}

static void registration_delays_its_tag_only(void **state)
{
    struct posted large;

    (void)state;
    registered = 0;
    open_with(64, 65536);
    script.registering = post_meanwhile;
    scripted_send(&large, memory, HUGE, 1);
    scripted_run();
    assert_true(registered >= 2);
    assert_int_equal(rts_tag(1), 1);
    assert_int_equal(eager_tag(2), 1);
    assert_true(scripted_word(RME_WIRE_RTS, 1) < scripted_word(RME_WIRE_EAGER, 2));
    scripted_check(&during[0], 0);
    scripted_check(&during[3], 0);
    refuse_rts(0);
    refuse_rts(1);
    scripted_check(&during[2], -ECANCELED);
    scripted_check(&large, -ECANCELED);
}

/* Lets the peer consume eager messages of this cost. */
static void take(uint32_t cost)
{
    scripted.eager_consumed += cost;
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_PONG}, NULL);
}

static void small_send_waits_for_window_only(void **state)
{
    enum { COST = SMALL + 64 };
    struct posted large[2], small[8];

    (void)state;
    open_with(1, 5 * COST + 40);
    scripted_send(&large[0], memory, LARGE, 1);
    for (int i = 0; i < 5; i++)
        scripted_send(&small[i], memory, SMALL, 2);
    scripted_send(&large[1], memory, LARGE, 3);
    scripted_send(&small[5], memory, 100, 4);
    scripted_send(&small[6], memory, 0, 5);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 5);
    take(COST); /* room for the second, not for the first */
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 5);
    scripted_send(&small[7], memory, 0, 6);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 5);
    take(4 * COST);
    assert_int_equal(eager_tag(5), 4);
    assert_int_equal(eager_tag(6), 5);
    assert_int_equal(eager_tag(7), 6);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
    refuse_rts(0);
    assert_int_equal(rts_tag(1), 3);
    refuse_rts(1);
}

/* A header that returns no credits may bring room in the window: of a message of any type
 * (`received` false), and of one that meets a receive. */
static void a_window_without_credits_lets_it_go(bool received)
{
    static struct posted large, fill, small, answer; /* the end of the engine ends the last */
    static char in[SMALL];

    open_with(1, 4096);
    scripted_send(&large, memory, LARGE, 1);
    scripted_send(&fill, memory, 4000, 2); /* the window is full */
    scripted_send(&small, memory, 100, 3);
    scripted_recv(&answer, in, SMALL, 4);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 1);
    assert_int_equal(scripted_count(RME_WIRE_RTS), 1);
    scripted.keeps = true;
    scripted.eager_consumed += 4000 + 64;
    scripted_peer_sends(
        (struct rme_wire_message){.type = received ? RME_WIRE_EAGER : RME_WIRE_PING,
                                  .tag = received ? 4 : 0},
        NULL);
    assert_int_equal(answer.reports, received);
    assert_int_equal(eager_tag(1), 3);
    scripted_check(&small, 0);
    scripted.keeps = false;
    refuse_rts(0);
    scripted_check(&large, -ECANCELED);
}

static void small_send_passes_window_without_credits(void **state)
{
    (void)state;
    a_window_without_credits_lets_it_go(false);
    scripted_close();
    a_window_without_credits_lets_it_go(true);
}

/* Large and small ones wait for slots of RTS in the order of posting. */
static void sends_wait_for_rts_in_order(void **state)
{
    enum { EACH = 6 };
    struct posted first, fill, large[EACH], small[EACH];

    (void)state;
    open_with(1, 4096);
    scripted_send(&first, memory, LARGE, 1);
    scripted_send(&fill, memory, 4000, 2); /* the window is full */
    for (int i = 0; i < EACH; i++)
        scripted_send(&large[i], memory, LARGE, 10 + i);
    for (int i = 0; i < EACH; i++)
        scripted_send(&small[i], memory, 100, 20 + i);
    scripted_run();
    for (unsigned n = 0; n < 2 * EACH; n++) {
        assert_int_equal(scripted_count(RME_WIRE_RTS), n + 1);
        refuse_rts(n);
        assert_int_equal(rts_tag(n + 1), (int)(n < EACH ? 10 + n : 20 + n - EACH));
    }
    refuse_rts(2 * EACH);
    for (int i = 0; i < EACH; i++) {
        scripted_check(&large[i], -ECANCELED);
        scripted_check(&small[i], -ECANCELED);
    }
}

static void cancelled_send_passes_its_tag_on(void **state)
{
    struct posted first, of[6];

    (void)state;
    open_with(1, 65536);
    scripted_send(&first, memory, LARGE, 1);
    for (int i = 0; i < 6; i++) /* large, small, large … */
        scripted_send(&of[i], memory, i % 2 == 0 ? LARGE : SMALL, 2);
    scripted_run();
    assert_int_equal(scripted_count(RME_WIRE_EAGER), 0);
    rme_cancel(scripted.rme, of[0].id);
    scripted_run();
    scripted_check(&of[0], -ECANCELED);
    scripted_check(&of[1], 0);
    assert_int_equal(of[3].reports, 0);
    rme_cancel(scripted.rme, of[4].id); /* one behind another */
    scripted_run();
    scripted_check(&of[4], -ECANCELED);
    assert_int_equal(of[2].reports + of[3].reports + of[5].reports, 0);
    refuse_rts(0);
    assert_int_equal(rts_tag(1), 2);
    scripted_check(&of[3], 0);
    scripted_check(&of[5], 0);
    refuse_rts(1);
    scripted_check(&of[2], -ECANCELED);
}

/* The oldest send of a tag holds the tag next, and precedes later posts in the queue. */
static void next_of_tag_precedes_later_sends(void **state)
{
    static struct posted first, large, of[2], later; /* reported after the test */

    (void)state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        open_with(1, 65536);
        scripted_send(&first, memory, LARGE, 1);
        scripted_send(&large, memory, LARGE, 2);
        scripted_send(&of[0], memory, SMALL, 2);
        scripted_send(&of[1], memory, SMALL, 2);
        scripted_run();
        script.no_tx = true;
        scripted_send(&later, memory, SMALL, 3);
        if (cancelled)
            rme_cancel(scripted.rme, large.id);
        else
            refuse_rts(0);
        scripted_run();
        assert_int_equal(of[0].reports + of[1].reports + later.reports, 0);
        script_tx_room();
        scripted_run();
        assert_int_equal(eager_tag(0), 2);
        assert_int_equal(eager_tag(1), 2);
        assert_int_equal(eager_tag(2), 3);
        assert_true(of[0].place < of[1].place && of[1].place < later.place);
        if (!cancelled)
            scripted_close(); /* the fixture closes the last one */
    }
}

static void all_that_wait_end_with_the_link(void **state)
{
    static struct posted large[40], small[40];

    (void)state;
    open_with(1, 4096);
    for (int i = 0; i < 40; i++) {
        scripted_send(&large[i], memory, LARGE, i % 7);
        scripted_send(&small[i], memory, 1000, i % 7);
    }
    scripted_run();
    script_down(0, -ECONNRESET);
    scripted_run();
    for (int i = 0; i < 40; i++) {
        scripted_check(&large[i], -ECONNRESET);
        if (small[i].error != 0)
            scripted_check(&small[i], -ECONNRESET);
        assert_int_equal(small[i].reports, 1);
    }
}

/* ---- Requests among data ---- */

static void request(struct posted *p, size_t size, int32_t tag)
{
    void *base = memory;
    int64_t length = (int64_t)size;
    struct rme_list list = {&base, &length, 1};

    *p = (struct posted){.rc = 0};
    p->rc = rme_post_unexpected(scripted.rme, scripted.peer, &list, tag, 0, p, &p->id);
    assert_in_range(p->rc, 0, 1);
    p->reports = p->rc;
}

/* Returns the tags of the messages sent so far, in order, a digit each; requests are 5 and
 * more. */
static uint64_t started(void)
{
    uint64_t tags = 0;

    for (unsigned i = 0; i < scripted.words; i++) {
        const struct rme_wire_message *m = &scripted.word[i].message;

        if (m->type == RME_WIRE_EAGER || m->type == RME_WIRE_RTS)
            tags = tags * 10 + (uint64_t)m->tag;
    }
    return tags;
}

/* Each message of the peer returns two credits. */
static void open_with_two_at_a_time(uint32_t unexpected_window)
{
    struct rme_hello hello = scripted_hello();

    hello.credits = 4;
    hello.unexpected_window = unexpected_window;
    scripted_open(OPTIONS, &hello);
}

static void say_so(void)
{
    scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_PONG}, NULL);
}

/* After its data a peer may request no more from us: requests posted before must be sent
 * first. */
static void data_leaves_credit_to_older_request(void **state)
{
    struct posted data[5], asked[5];

    (void)state;
    open_with_two_at_a_time(65536);
    scripted_send(&data[0], memory, SMALL, 1);
    scripted_send(&data[1], memory, SMALL, 1);
    request(&asked[0], SMALL, 5);
    scripted_send(&data[2], memory, SMALL, 2);
    scripted_send(&data[3], memory, LARGE, 3);
    request(&asked[1], SMALL, 6);
    request(&asked[2], SMALL, 7);
    scripted_send(&data[4], memory, SMALL, 4);
    request(&asked[3], SMALL, 8);
    scripted_run();
    assert_int_equal(started(), 11);
    say_so();
    assert_int_equal(started(), 1152);
    assert_int_equal(asked[0].reports, 1);
    request(&asked[4], SMALL, 9);
    say_so();
    assert_int_equal(started(), 115236);
    say_so();
    assert_int_equal(started(), 11523674);
    say_so();
    assert_int_equal(started(), 1152367489);
    refuse_rts(0);
    scripted_check(&data[3], -ECANCELED);
    for (int i = 0; i < 5; i++)
        scripted_check(&asked[i], 0);
}

/* A request that waits for the peer's host reserves no credits: data may use them. */
static void request_without_room_blocks_no_data(void **state)
{
    enum { COST = SMALL + 64 };
    struct posted data[3], asked[3];

    (void)state;
    open_with_two_at_a_time(COST);
    request(&asked[0], SMALL, 5);
    request(&asked[1], SMALL, 6); /* by RTS */
    scripted_run();
    assert_int_equal(started(), 56);
    request(&asked[2], SMALL, 7);
    for (int i = 0; i < 3; i++)
        scripted_send(&data[i], memory, SMALL, 1 + i);
    say_so();
    assert_int_equal(started(), 5671);
    say_so();
    assert_int_equal(started(), 567123);
    refuse_rts(0);
    refuse_rts(1);
    scripted_check(&asked[1], -ECANCELED);
    scripted_check(&asked[2], -ECANCELED);
    for (int i = 0; i < 3; i++)
        scripted_check(&data[i], 0);
}

/* A request that waits for an RTS blocks no data, for any posts before and after the
 * request. */
static void request_waiting_for_rts_blocks_nothing(void **state)
{
    struct rme_hello hello = scripted_hello();
    struct posted data[3], asked[2];

    (void)state;
    hello.credits = 4;
    hello.unexpected_window = 64;
    hello.rts_max = 1;
    scripted_open(OPTIONS, &hello);
    request(&asked[0], SMALL, 5);
    request(&asked[1], SMALL, 6);
    for (int i = 0; i < 3; i++)
        scripted_send(&data[i], memory, SMALL, 1 + i);
    scripted_run();
    assert_int_equal(started(), 51);
    say_so();
    assert_int_equal(started(), 5123);
    refuse_rts(0);
    assert_int_equal(started(), 51236);
    refuse_rts(1);
    for (int i = 0; i < 3; i++)
        scripted_check(&data[i], 0);
}

/* ---- Random: messages of one tag are sent in posting order ---- */

enum { TAGS = 5, POSTS = 3000, SLOTS = 3 };

static struct posted life[POSTS];
static uint32_t posted, rts_ended, eager_seen;
static unsigned seed;

static unsigned pick(unsigned limit)
{
    return (unsigned)rand_r(&seed) % limit;
}

/* Posts a message whose size is its number. */
static void post_one(void)
{
    uint32_t n = posted; /* another one may be posted during this call */

    if (n >= POSTS)
        return;
    posted++;
    scripted_send(&life[n], memory, (pick(3) == 0 ? LARGE : SMALL) + n, (int32_t)pick(TAGS));
}

static void post_sometimes(void)
{
    if (pick(2) == 0)
        post_one();
}

/* Refuses the next RTS; this ends cancelled ones as well. */
static void refuse_next(void)
{
    if (rts_ended < scripted_count(RME_WIRE_RTS))
        refuse_rts(rts_ended++);
}

static void take_next(void)
{
    const struct word *eager = scripted_word(RME_WIRE_EAGER, eager_seen);

    if (eager == NULL)
        return;
    eager_seen++;
    scripted.eager_consumed += (uint32_t)eager->message.payload_length + 64;
}

static void check_order(void)
{
    int last[TAGS];

    memset(last, -1, sizeof(last));
    for (unsigned i = 0; i < scripted.words; i++) {
        const struct rme_wire_message *m = &scripted.word[i].message;
        uint64_t size = m->type == RME_WIRE_EAGER ? m->payload_length : m->total;
        int which = (int)(size >= LARGE ? size - LARGE : size - SMALL);

        if (m->type != RME_WIRE_EAGER && m->type != RME_WIRE_RTS)
            continue;
        assert_true(which > last[m->tag]);
        last[m->tag] = which;
    }
}

static void tag_keeps_its_order(void **state)
{
    struct rme_hello hello = scripted_hello();

    (void)state;
    hello.rts_max = SLOTS;
    hello.eager_window = 20000;
    hello.credits = 6;
    for (unsigned round = 0; round < 4; round++) {
        seed = round + 1;
        posted = rts_ended = eager_seen = 0;
        scripted_open(OPTIONS, &hello);
        script.registering = post_sometimes;
        while (posted < POSTS) {
            switch (scripted.have > 1 ? pick(8) : 2 + pick(6)) {
            case 0:
                refuse_next();
                break;
            case 1:
                for (unsigned i = pick(12); i > 0; i--)
                    take_next();
                scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_PONG}, NULL);
                break;
            case 2:
                if (posted > 0)
                    rme_cancel(scripted.rme,
                               life[posted - 1 - pick(posted < 20 ? posted : 20)].id);
                break;
            case 3:
                if (script.no_tx)
                    script_tx_room();
                else
                    script.no_tx = pick(4) == 0;
                break;
            default:
                post_one();
            }
            if (pick(16) == 0)
                scripted_run();
        }
        script_tx_room();
        script.registering = NULL;
        scripted_run();
        for (unsigned before = 0; before != scripted.words + rts_ended + eager_seen;) {
            before = scripted.words + rts_ended + eager_seen;
            refuse_next();
            take_next();
            scripted_peer_sends((struct rme_wire_message){.type = RME_WIRE_PONG}, NULL);
        }
        check_order();
        for (unsigned i = 0; i < POSTS; i++)
            assert_int_equal(life[i].reports, 1);
        scripted_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPTED_TEST(unfetched_tags_block_no_other_tags),
        SCRIPTED_TEST(registration_delays_its_tag_only),
        SCRIPTED_TEST(small_send_waits_for_window_only),
        SCRIPTED_TEST(small_send_passes_window_without_credits),
        SCRIPTED_TEST(sends_wait_for_rts_in_order),
        SCRIPTED_TEST(cancelled_send_passes_its_tag_on),
        SCRIPTED_TEST(next_of_tag_precedes_later_sends),
        SCRIPTED_TEST(all_that_wait_end_with_the_link),
        SCRIPTED_TEST(data_leaves_credit_to_older_request),
        SCRIPTED_TEST(request_without_room_blocks_no_data),
        SCRIPTED_TEST(request_waiting_for_rts_blocks_nothing),
        cmocka_unit_test(tag_keeps_its_order),
    };

    return cmocka_run_group_tests_name("sends", tests, NULL, NULL);
}
