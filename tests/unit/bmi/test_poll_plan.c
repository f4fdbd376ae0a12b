/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The shim beside another method, in a host that polls like OrangeFS's bmi.c.
 *
 * The rule applies to each of the two test functions separately. A method that returned
 * "active" within the last 10,000 rounds is busy; one that was skipped for 100,000 rounds is
 * starving. A round polls only busy and starving methods if there are any, without idle time if
 * one is busy; else it polls all, each with its share of the idle time. A method may fill the
 * room that earlier ones left. bmi_tcp never returns "active".
 *
 * With graft's changes a round polls all, a method with a result is busy for 1,000 rounds
 * whichever value it returns (for both functions if the result is an unexpected message), and a
 * method fills at most its share of the room.
 */
#include "shim_rig.h"

enum rule { AS_RELEASED, AS_GRAFTED };
enum {
    BUSY_ROUNDS = 10000,
    RESULT_ROUNDS = 1000,
    STARVING_ROUNDS = 100000,
    ROOM = 5,
    IDLE_MS = 10
};

/* ---- The host ---- */

enum { METHODS = 2 };

struct usage {
    int quiet;    /* rounds since it was active */
    int left_out; /* rounds since it was polled */
    bool asked;
};

static struct host {
    enum rule rule;
    struct bmi_method_ops *method[METHODS];
    struct usage expected[METHODS], unexpected[METHODS];
    int found[METHODS]; /* results of each, by both functions */
} host;

/* Chooses the methods to poll in this round; returns the idle time of each. */
static int plan(struct usage *u, int idle_ms)
{
    int chosen = 0;

    for (int i = 0; i < METHODS; i++) {
        bool busy = ++u[i].quiet <= BUSY_ROUNDS, starving = ++u[i].left_out >= STARVING_ROUNDS;
        u[i].asked = busy || starving;
        chosen += u[i].asked;
        if (busy)
            idle_ms = 0;
    }
    for (int i = 0; i < METHODS && (chosen == 0 || host.rule == AS_GRAFTED); i++)
        u[i].asked = true;
    return chosen == 0 ? idle_ms / METHODS : idle_ms;
}

static void note(struct usage *u, int i, int ret, int n)
{
    u[i].left_out = 0;
    if (ret)
        u[i].quiet = 0;
    else if (n > 0 && host.rule == AS_GRAFTED)
        u[i].quiet = BUSY_ROUNDS - RESULT_ROUNDS;
    host.found[i] += n;
}

static int room_of(int i, int filled)
{
    int room = ROOM - filled, methods = METHODS - i;
    return host.rule == AS_GRAFTED ? (room + methods - 1) / methods : room;
}

static void test_unexpected(void)
{
    struct bmi_method_unexpected_info info[ROOM];
    int idle_ms = plan(host.unexpected, 0), filled = 0;

    for (int i = 0; i < METHODS && filled < ROOM; i++) {
        int n = 0;
        if (!host.unexpected[i].asked)
            continue;
        int ret = host.method[i]->testunexpected(room_of(i, filled), &n, info, idle_ms);
        note(host.unexpected, i, ret, n);
        if (n > 0 && host.rule == AS_GRAFTED)
            host.expected[i].quiet = BUSY_ROUNDS - RESULT_ROUNDS;
        for (int k = 0; k < n && host.method[i] == &bmi_fake_ops; k++)
            assert_int_equal(bmi_fake_ops.unexpected_free(info[k].buffer), 0);
        filled += n;
    }
}

static void test_context(void)
{
    bmi_op_id_t ids[ROOM];
    bmi_error_code_t error[ROOM];
    bmi_size_t actual[ROOM];
    void *user[ROOM];
    int idle_ms = plan(host.expected, IDLE_MS), filled = 0;

    for (int i = 0; i < METHODS && filled < ROOM; i++) {
        int n = 0;
        if (!host.expected[i].asked)
            continue;
        int ret = host.method[i]->testcontext(room_of(i, filled), ids, &n, error, actual, user,
                                              idle_ms, 0);
        note(host.expected, i, ret, n);
        filled += n;
    }
}

/* One turn of the host's thread. */
static void turn(void)
{
    test_unexpected();
    test_context();
}

/* ---- The tests ---- */

static bmi_method_addr_p fake_peer;

/* Opens both methods, `first` before the other; both have been quiet for long. */
static void begin(enum rule rule, struct bmi_method_ops *first)
{
    bool fake_first = first == &bmi_fake_ops;

    host = (struct host){.rule = rule};
    host.method[0] = first;
    host.method[1] = fake_first ? &other_ops : &bmi_fake_ops;
    for (int i = 0; i < METHODS; i++)
        host.expected[i].quiet = host.unexpected[i].quiet = BUSY_ROUNDS;
    other = (struct other){.results = 0};
    assert_int_equal(bmi_fake_ops.initialize(NULL, fake_first ? 0 : 1, 0, NULL), 0);
    assert_int_equal(bmi_fake_ops.open_context(0), 0);
    fake_peer = bmi_fake_ops.method_addr_lookup("fake://x:1");
    fake.waited_ms = 0;
}

static void finish(void)
{
    assert_int_equal(bmi_fake_ops.finalize(), 0);
    assert_int_equal(bmi_fake_ops.set_info(BMI_DROP_ADDR, fake_peer), 0);
}

static void fake_completes_one(void)
{
    bmi_op_id_t id;
    assert_int_equal(
        bmi_fake_ops.post_send(&id, fake_peer, "x", 1, BMI_EXT_ALLOC, 1, NULL, 0, NULL), 0);
    fake_complete(fake.last_id, 0, 1);
}

static void fake_gets_a_message(void)
{
    fake_completes_one(); /* a post registers the engine's address */
    fake_peer_sends(fake.last_addr, 1, 1);
}

static int number_of(const struct bmi_method_ops *ops)
{
    return host.method[0] == ops ? 0 : 1;
}

/* Runs a test for each rule and order. */
static void for_each_host(void (*body)(void))
{
    for (int rule = AS_RELEASED; rule <= AS_GRAFTED; rule++) {
        begin(rule, &bmi_fake_ops);
        body();
        finish();
        begin(rule, &other_ops);
        body();
        finish();
    }
}

/* Ours has a result in each turn, of either kind; results of the other one are reported in the
 * same turn. */
static void ours_is_busy(void)
{
    enum { TURNS = 200 };
    int of_other = number_of(&other_ops);

    for (int i = 0; i < TURNS; i++) {
        if (i % 2)
            fake_completes_one();
        else
            fake_gets_a_message();
        if (i % 10 == 9)
            other.results++;
        if (i % 10 == 5)
            other.messages++;
        turn();
        assert_int_equal(other.results, 0);
        assert_int_equal(other.messages, 0);
        assert_int_equal(host.found[of_other], i / 10 * 2 + (i % 10 >= 5) + (i % 10 == 9));
    }
    assert_int_equal(other.asked, TURNS);
    assert_true(host.found[!of_other] >= TURNS);
    /* Ours waits for the other one's idle time once, until it is known to be busy. */
    if (host.rule == AS_GRAFTED)
        assert_true(other.idle_ms <= IDLE_MS / METHODS);
}

static void busy_shim_does_not_starve_other(void **state)
{
    (void)state;
    for_each_host(ours_is_busy);
}

/* The other one is busy: ours is polled in each turn, and takes none of its time. */
static void the_other_is_busy(void)
{
    enum { TURNS = 200 };
    int ours = number_of(&bmi_fake_ops);

    for (int i = 0; i < TURNS; i++) {
        other.results += i % 2;
        other.messages += !(i % 2);
        if (i % 10 == 9)
            fake_completes_one();
        turn();
        assert_int_equal(host.found[ours], i / 10 + (i % 10 == 9));
    }
    if (host.rule == AS_GRAFTED)
        assert_true(fake.waited_ms <= IDLE_MS / METHODS);
}

static void quiet_shim_is_not_starved(void **state)
{
    (void)state;
    for_each_host(the_other_is_busy);
}

/* With more results than a turn has room for, each gets its share. */
static void both_are_full(void)
{
    enum { TURNS = 100 };

    for (int i = 0; i < TURNS * ROOM; i++)
        fake_completes_one();
    other.results = TURNS * ROOM;
    for (int i = 0; i < TURNS; i++)
        turn();
    assert_int_equal(host.found[0] + host.found[1], TURNS * ROOM);
    for (int i = 0; i < METHODS && host.rule == AS_GRAFTED; i++)
        assert_true(host.found[i] >= TURNS * (ROOM / METHODS));
}

static void full_ones_share_the_room(void **state)
{
    (void)state;
    for_each_host(both_are_full);
}

/* When nothing happens for long all idle time is passed on: no busy polling. */
static void nothing_happens(void)
{
    fake_completes_one();
    other.messages = 1;
    for (int i = 0; i < RESULT_ROUNDS + 1; i++)
        turn();
    fake.waited_ms = other.idle_ms = 0;
    turn();
    assert_int_equal(fake.waited_ms, IDLE_MS / METHODS);
    assert_int_equal(other.idle_ms, IDLE_MS / METHODS);
}

static void quiet_ones_sleep(void **state)
{
    (void)state;
    begin(AS_GRAFTED, &bmi_fake_ops);
    nothing_happens();
    finish();
    begin(AS_GRAFTED, &other_ops);
    nothing_happens();
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(busy_shim_does_not_starve_other),
        TEST(quiet_shim_is_not_starved),
        TEST(full_ones_share_the_room),
        TEST(quiet_ones_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
