/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Flow control arithmetic: checks the proof of doc/design/credits.md by exploring a model of
 * two peers. */
#include "base/hash.h"
#include "transport/credit.h"
#include "unit.h"

static uint16_t give_all(struct rme_credit *credit)
{
    uint16_t give = rme_credit_gives(credit);

    rme_credit_gave(credit, give);
    return give;
}

/* A peer cannot give up credits that it has used. */
static void used_credits_cannot_be_released(void **state)
{
    struct rme_credit c;

    (void)state;
    rme_credit_start(&c, 4, 8);
    c.grown = 12;
    assert_int_equal(rme_credit_give_more(&c), 12);
    for (int i = 0; i < 11; i++)
        assert_int_equal(rme_credit_used(&c), 0);
    assert_int_equal(rme_credit_reduced(&c, 6), -EPROTO);
    assert_int_equal(rme_credit_reduced(&c, 5), 0);
}

/* ---- Peers with fewer credits than a reserve ---- */

/* A message of the side with one credit is answered by CREDIT; the exchange ends. */
static void credit_exchange_ends(void **state)
{
    (void)state;
    for (uint32_t reserve = RME_CREDITS_RESERVE; reserve <= 9; reserve++) {
        struct rme_credit side[2];
        /* in flight to that side: a CREDIT message, or at first another one */
        bool flight[2] = {true, false};
        uint16_t credits = 0;
        int messages = 1;

        rme_credit_start(&side[0], 1, reserve);
        rme_credit_start(&side[1], reserve, 1);
        for (uint32_t i = 0; i + 1 < reserve; i++) {
            rme_credit_spend(&side[0]);
            assert_int_equal(rme_credit_used(&side[1]), 0);
        }
        rme_credit_spend(&side[1]);
        for (int to = 0; flight[to]; to = 1 - to) {
            flight[to] = false;
            assert_int_equal(rme_credit_gain(&side[to], credits, 0), 0);
            assert_int_equal(rme_credit_used(&side[to]), 0);
            if (!rme_credit_due(&side[to]))
                break;
            assert_true(rme_credit_may(&side[to], RME_CREDIT_RETURN));
            credits = give_all(&side[to]);
            rme_credit_spend(&side[to]);
            flight[1 - to] = true;
            messages++;
            assert_in_range(messages, 1, 6);
        }
    }
}

/* ---- Two peers, every order of events ---- */

/*
 * One side of the model: its credit account; the data, control messages and immediates still to
 * send; how often it may still advertise more, give up credits, or return credits only through
 * control messages; and the messages in flight to it. The whole state space is explored. In no
 * state does a message arrive without a buffer, acknowledged messages were always consumed, and
 * a state without a possible step has nothing left to send, except data to a side that
 * withholds credits, possibly without end.
 */
#define IN_FLIGHT 8
#define GROWTH    2

struct work {
    uint8_t data, control, reports; /* still to send */
    uint8_t growth, reduces, holds;
};

struct message {
    uint8_t credits, more, back;
    uint8_t consumed; /* consumed by its sender at the time of sending */
    bool report;      /* an immediate, which carries none of these */
    bool starts;      /* data to a side that withholds credits */
};

struct side {
    struct rme_credit credit;
    struct work work;
    uint8_t consumed;
    uint8_t nflight;
    struct message flight[IN_FLIGHT]; /* to this side, oldest first */
};

struct model {
    struct side side[2];
};

#define MODELS_MAX 700000

static struct model *seen;
static size_t nseen;
static size_t *table;
#define TABLE (1u << 20)

/* Subtracts from monotonic counters the value that both sides know, to keep the state
 * finite. */
static void reduce(struct model *m)
{
    for (int s = 0; s < 2; s++) {
        struct side *me = &m->side[s], *peer = &m->side[1 - s];
        uint32_t known = me->credit.acked;

        me->credit.spent -= known;
        me->credit.acked = 0;
        peer->consumed -= (uint8_t)known;
        for (int i = 0; i < me->nflight; i++)
            me->flight[i].consumed =
                me->flight[i].report ? 0 : (uint8_t)(me->flight[i].consumed - known);
        me->credit.consumed = 0;
        if (!me->credit.throttled)
            me->credit.starts_left = 0;
    }
}

/* The sum of the credits from one side to the other is the number advertised. */
static void sum_is_kept(const struct side *from, const struct side *to)
{
    uint32_t sum = from->credit.have + to->nflight + to->credit.unreturned;

    for (int i = 0; i < to->nflight; i++)
        sum += to->flight[i].back;
    for (int i = 0; i < from->nflight; i++)
        sum += from->flight[i].credits + from->flight[i].more;
    assert_int_equal(sum, to->credit.advertised);
}

static void visit(struct model *m)
{
    size_t at;

    for (int s = 0; s < 2; s++)
        sum_is_kept(&m->side[s], &m->side[1 - s]);
    reduce(m);
    at = rme_hash(RME_HASH_NONE, m, sizeof(*m)) % TABLE;
    while (table[at] != 0 && memcmp(&seen[table[at] - 1], m, sizeof(*m)) != 0)
        at = (at + 1) % TABLE;
    if (table[at] != 0)
        return;
    assert_true(nseen < MODELS_MAX);
    seen[nseen++] = *m;
    table[at] = nseen;
}

/* Sends a message with a header. */
static void put(struct side *me, struct side *peer, struct message message)
{
    message.credits = (uint8_t)give_all(&me->credit);
    message.consumed = (uint8_t)(me->consumed - me->credit.unreturned);
    rme_credit_spend(&me->credit);
    peer->flight[peer->nflight++] = message;
}

static bool may(const struct side *me, enum rme_credit_class class)
{
    return rme_credit_may(&me->credit, class) ||
           rme_credit_may_last(&me->credit, rme_credit_ready(&me->credit));
}

static bool send_one(const struct model *from, int s, enum rme_credit_class class)
{
    struct model m = *from;
    struct side *me = &m.side[s], *peer = &m.side[1 - s];
    uint8_t *left = class == RME_CREDIT_DATA ? &me->work.data : &me->work.control;
    struct message message = {0};

    if (peer->nflight == IN_FLIGHT)
        return false;
    if (class == RME_CREDIT_RETURN) {
        if (!rme_credit_may(&me->credit, class) || !rme_credit_due(&me->credit))
            return false;
        message.more = (uint8_t)rme_credit_give_more(&me->credit);
    } else if (*left == 0 || !may(me, class)) {
        return false;
    } else {
        --*left;
        /* data to a side that withholds or may withhold credits */
        message.starts =
            class == RME_CREDIT_DATA && (peer->credit.throttled || peer->work.holds != 0);
    }
    put(me, peer, message);
    visit(&m);
    return true;
}

static bool report_one(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s], *peer = &m.side[1 - s];

    if (me->work.reports == 0 || peer->nflight == IN_FLIGHT ||
        !(rme_credit_may(&me->credit, RME_CREDIT_CONTROL) ||
          rme_credit_may_last(&me->credit, 0)))
        return false;
    me->work.reports--;
    rme_credit_spend(&me->credit);
    peer->flight[peer->nflight++] = (struct message){.report = true};
    visit(&m);
    return true;
}

static bool reduce_one(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s], *peer = &m.side[1 - s];
    struct message *message = &peer->flight[peer->nflight];

    if (me->work.reduces == 0 || !may(me, RME_CREDIT_CONTROL) || peer->nflight == IN_FLIGHT)
        return false;
    me->work.reduces--;
    put(me, peer, (struct message){0});
    message->back = (uint8_t)rme_credit_reduce(&me->credit, GROWTH, message->credits);
    visit(&m);
    return true;
}

/* Delivers the oldest message in flight. */
static bool receive_one(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s];
    struct message message = me->flight[0];

    if (me->nflight == 0)
        return false;
    assert_int_equal(rme_credit_gain(&me->credit, message.credits, message.more), 0);
    if (!message.report)
        assert_int_equal(me->credit.acked, message.consumed);
    if (message.back != 0)
        assert_int_equal(rme_credit_reduced(&me->credit, message.back), 0);
    memmove(me->flight, me->flight + 1, --me->nflight * sizeof(me->flight[0]));
    memset(&me->flight[me->nflight], 0, sizeof(me->flight[0]));
    assert_true(me->credit.unreturned < me->credit.advertised); /* a buffer was free */
    me->consumed++;
    if (message.starts)
        rme_credit_started(&me->credit);
    assert_true(!me->credit.throttled || me->credit.starts_left != 0);
    assert_int_equal(rme_credit_used(&me->credit), 0);
    visit(&m);
    return true;
}

static bool grow_one(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s];

    if (me->work.growth == 0)
        return false;
    me->work.growth--;
    me->credit.grown += GROWTH;
    visit(&m);
    return true;
}

/* Lets a side begin or stop withholding; one that begins has advertised enough for a
 * reserve. */
static void withhold_or_not(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s];
    uint32_t advertised = me->credit.advertised + me->credit.grown;

    if (!me->credit.throttled && me->work.holds == 0)
        return;
    me->work.holds -= !me->credit.throttled;
    rme_credit_throttle(&me->credit, !me->credit.throttled);
    if (me->credit.throttled && advertised < RME_CREDITS_RESERVE)
        me->credit.grown += RME_CREDITS_RESERVE - advertised;
    visit(&m);
}

/* Explores all states; advertised[s] is the number of credits that side s advertises at
 * first. */
static void explore(const uint32_t advertised[2], const struct work work[2])
{
    struct model start;

    memset(&start, 0, sizeof(start));
    for (int s = 0; s < 2; s++) {
        rme_credit_start(&start.side[s].credit, advertised[s], advertised[1 - s]);
        start.side[s].work = work[s];
    }
    nseen = 0;
    memset(table, 0, TABLE * sizeof(*table));
    visit(&start);
    for (size_t i = 0; i < nseen; i++) {
        struct model m = seen[i];
        bool stepped = false;

        for (int s = 0; s < 2; s++) {
            stepped |= send_one(&m, s, RME_CREDIT_DATA);
            stepped |= send_one(&m, s, RME_CREDIT_CONTROL);
            stepped |= send_one(&m, s, RME_CREDIT_RETURN);
            stepped |= report_one(&m, s);
            stepped |= receive_one(&m, s);
            stepped |= grow_one(&m, s);
            stepped |= reduce_one(&m, s);
        }
        for (int s = 0; s < 2; s++)
            withhold_or_not(&m, s);
        if (!stepped) {
            for (int s = 0; s < 2; s++) {
                if (!m.side[1 - s].credit.throttled && !m.side[s].credit.throttled)
                    assert_int_equal(m.side[s].work.data, 0);
                assert_int_equal(m.side[s].work.control, 0);
                assert_int_equal(m.side[s].work.reports, 0);
            }
        }
    }
}

static void explore_alike(uint32_t credits, struct work work)
{
    explore((uint32_t[]){credits, credits}, (struct work[]){work, work});
}

static int make_tables(void **state)
{
    (void)state;
    seen = malloc(MODELS_MAX * sizeof(*seen));
    table = malloc(TABLE * sizeof(*table));
    return seen != NULL && table != NULL ? 0 : -1;
}

static int free_tables(void **state)
{
    (void)state;
    free(seen);
    free(table);
    return 0;
}

static void no_order_of_events_blocks(void **state)
{
    (void)state;
    explore_alike(4, (struct work){.data = 5, .control = 2});
    explore_alike(4, (struct work){.data = 2, .control = 4});
    explore_alike(5, (struct work){.data = 4, .control = 3});
    explore_alike(8, (struct work){.data = 4, .control = 2});
    explore_alike(4, (struct work){.data = 3, .control = 1, .growth = 1});
    for (uint32_t credits = 4; credits <= 5; credits++)
        explore((uint32_t[]){credits, 4}, (struct work[]){{.data = 2, .control = 2, .holds = 1},
                                                          {.data = 4, .control = 3}});
    explore_alike(4, (struct work){.data = 1, .growth = 1, .reduces = 1});
}

/* Side 0 has advertised one to three credits: side 1 spends its last. */
static void nor_with_a_single_credit(void **state)
{
    (void)state;
    for (uint32_t few = 1; few < RME_CREDITS_RESERVE; few++)
        for (uint32_t reserve = RME_CREDITS_RESERVE; reserve <= 5; reserve++) {
            const uint32_t advertised[2] = {few, reserve};

            const struct work pairs[][2] = {
                {{.data = 4, .control = 1}, {.data = 2, .control = 1, .reports = 2}},
                {{.data = 5, .reports = 1}, {.reports = 4}},
                {{.data = 3, .control = 3}, {.reports = 3}},
                {{.data = 4, .control = 3}, {.reports = 2}},
                {{.data = 3, .control = 3}, {.data = 3, .holds = 1}},
                {{.data = 2, .holds = 1}, {.data = 2, .reports = 1}},
                {{.data = 2, .control = 1, .growth = 2}, {.reports = 2, .reduces = 2}},
                {{.data = 1, .growth = 1, .reduces = 1},
                 {.reports = 1, .growth = 1, .reduces = 1}},
            };

            for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
                explore(advertised, pairs[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(used_credits_cannot_be_released),
        cmocka_unit_test(credit_exchange_ends),
        cmocka_unit_test(no_order_of_events_blocks),
        cmocka_unit_test(nor_with_a_single_credit),
    };

    return cmocka_run_group_tests(tests, make_tables, free_tables);
}
