/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Flow control as arithmetic: the claims at the head of credit.c, by exploring a model of two peers. */
#include "transport/credit.h"
#include "unit.h"

static void reserves(void **state)
{
    struct rme_credit c;

    (void)state;
    rme_credit_start(&c, 8, 3);
    assert_true(rme_credit_may(&c, RME_CREDIT_DATA));
    rme_credit_spend(&c);
    assert_false(rme_credit_may(&c, RME_CREDIT_DATA));
    assert_true(rme_credit_may(&c, RME_CREDIT_CONTROL));
    rme_credit_spend(&c);
    assert_false(rme_credit_may(&c, RME_CREDIT_CONTROL));
    assert_true(rme_credit_may(&c, RME_CREDIT_RETURN));
    rme_credit_spend(&c);
    assert_false(rme_credit_may(&c, RME_CREDIT_RETURN));
}

static void returns_at_half(void **state)
{
    struct rme_credit c;

    (void)state;
    rme_credit_start(&c, 8, 8);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rme_credit_used(&c), 0);
    assert_false(rme_credit_due(&c));
    assert_int_equal(rme_credit_used(&c), 0);
    assert_true(rme_credit_due(&c));
    assert_int_equal(rme_credit_give(&c), 4);
    assert_false(rme_credit_due(&c));
    assert_int_equal(rme_credit_give(&c), 0);
}

static void overdrawn_peers_are_seen(void **state)
{
    struct rme_credit c;

    (void)state;
    rme_credit_start(&c, 4, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rme_credit_used(&c), 0);
    assert_int_equal(rme_credit_used(&c), -EPROTO);
    assert_int_equal(rme_credit_gain(&c, UINT32_MAX, 0), -EPROTO);
    assert_int_equal(rme_credit_gain(&c, 0, UINT32_MAX), -EPROTO);
    assert_int_equal(rme_credit_gain(&c, UINT32_MAX, UINT32_MAX), -EPROTO);
    assert_int_equal(rme_credit_gain(&c, 10, 0), 0);
    assert_int_equal(c.have, 14);
}

static void growing_grants_more(void **state)
{
    struct rme_credit c;

    (void)state;
    rme_credit_start(&c, 8, 8);
    rme_credit_grow(&c, 8);
    assert_int_equal(c.promised, 16);
    assert_true(rme_credit_due(&c));
    assert_int_equal(rme_credit_give(&c), 8);
    rme_credit_grow(&c, 100000);
    assert_int_equal(rme_credit_give(&c), UINT16_MAX); /* the rest goes with the next message */
    assert_int_equal(rme_credit_give(&c), 100000 - UINT16_MAX);
}

/* Between two that are exact, what grows is promised apart from what comes back. */
static void exact_credits_count_what_was_taken(void **state)
{
    struct rme_credit c;

    (void)state;
    rme_credit_start(&c, 8, 8);
    c.exact = true;
    rme_credit_grow(&c, 8);
    assert_int_equal(c.promised, 8);
    assert_true(rme_credit_due(&c));
    assert_int_equal(rme_credit_used(&c), 0);
    c.untold = true;
    assert_int_equal(rme_credit_give(&c), 1);
    assert_false(c.untold);
    assert_int_equal(rme_credit_give_more(&c), 8);
    assert_int_equal(rme_credit_give_more(&c), 0);
    assert_int_equal(c.promised, 16);
    assert_false(rme_credit_due(&c));

    assert_int_equal(rme_credit_gain(&c, 1, 0), -EPROTO); /* nothing was sent that it could have taken */
    rme_credit_spend(&c);
    rme_credit_spend(&c);
    assert_int_equal(rme_credit_gain(&c, 1, 8), 0);
    assert_int_equal(c.told, 1);
    assert_int_equal(c.have, 8 - 2 + 1 + 8);
    assert_int_equal(rme_credit_gain(&c, 2, 0), -EPROTO);
}

/* Idle peers give up what was promised beyond the first, as far as they have it in hand. */
static void what_is_not_needed_is_given_up(void **state)
{
    struct rme_credit giver, owner;

    (void)state;
    rme_credit_start(&giver, 8, 4);
    rme_credit_start(&owner, 4, 8);
    giver.exact = owner.exact = true;
    assert_int_equal(rme_credit_surplus(&owner), 0);
    assert_int_equal(rme_credit_yield(&giver, 100), 0);
    rme_credit_grow(&owner, 12);
    assert_int_equal(rme_credit_surplus(&owner), 0); /* not told yet */
    assert_int_equal(rme_credit_gain(&giver, 0, rme_credit_give_more(&owner)), 0);
    assert_int_equal(rme_credit_surplus(&owner), 12);
    assert_int_equal(rme_credit_yield(&giver, 5), 5);
    assert_int_equal(giver.have, 11);
    assert_int_equal(rme_credit_yielded(&owner, 5), 0);
    assert_int_equal(owner.promised, 11);
    for (int i = 0; i < 6; i++) {
        rme_credit_spend(&giver);
        assert_int_equal(rme_credit_used(&owner), 0);
    }
    assert_int_equal(rme_credit_yield(&giver, 7), 2); /* 3 stay in hand */
    assert_int_equal(giver.have, 3);
    assert_int_equal(rme_credit_yielded(&owner, 6), -EPROTO); /* it cannot have so many */
    assert_int_equal(rme_credit_yielded(&owner, 2), 0);
    assert_int_equal(rme_credit_gain(&giver, rme_credit_give(&owner), 0), 0);
    assert_int_equal(rme_credit_yield(&giver, 100), 5);
    assert_int_equal(rme_credit_yielded(&owner, 5), 0);
    assert_int_equal(owner.promised, 4);
    assert_int_equal(giver.have, 4);
    assert_int_equal(rme_credit_yield(&giver, 100), 0);
    assert_int_equal(rme_credit_yielded(&owner, 1), -EPROTO); /* the first ones stay */

    giver.exact = owner.exact = false; /* who mixes new ones with old ones is not asked */
    rme_credit_grow(&owner, 12);
    assert_int_equal(rme_credit_gain(&giver, rme_credit_give(&owner), 0), 0);
    assert_int_equal(rme_credit_surplus(&owner), 0);
    assert_int_equal(rme_credit_yield(&giver, 100), 0);
}

/* ---- Two peers, every order of events ---------------------------------------------------------------------------- */

/*
 * One side: its account, the data and control messages that it still has to send, how often its promise may still grow, how often
 * it may still give up what it was granted, and what is on the way to it.  The state space is explored to the end: in no state may a message meet no buffer, what is told
 * of messages taken is always true, and no state without a possible step may have anything left to send.
 */
#define IN_FLIGHT 8
#define GROWTH 2

struct message {
    uint8_t credits, more, back;
    uint8_t taken; /* by its sender when it was sent */
};

struct side {
    struct rme_credit credit;
    uint8_t data, control, growth, yields;
    uint8_t taken;
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

static uint64_t hash_of(const struct model *m)
{
    const unsigned char *p = (const unsigned char *)m;
    uint64_t h = 1469598103934665603ULL;

    for (size_t i = 0; i < sizeof(*m); i++)
        h = (h ^ p[i]) * 1099511628211ULL;
    return h;
}

/* What only counts on and on is counted from what both know. */
static void reduce(struct model *m)
{
    for (int s = 0; s < 2; s++) {
        struct side *me = &m->side[s], *peer = &m->side[1 - s];
        uint32_t known = me->credit.told;

        if (!me->credit.exact)
            known = me->credit.spent = me->credit.told = me->taken = peer->taken = 0;
        me->credit.spent -= known;
        me->credit.told = 0;
        peer->taken -= (uint8_t)known;
        for (int i = 0; i < me->nflight; i++)
            me->flight[i].taken = me->credit.exact ? (uint8_t)(me->flight[i].taken - known) : 0;
    }
}

static void visit(struct model *m)
{
    size_t at;

    reduce(m);
    at = hash_of(m) % TABLE;
    while (table[at] != 0 && memcmp(&seen[table[at] - 1], m, sizeof(*m)) != 0)
        at = (at + 1) % TABLE;
    if (table[at] != 0)
        return;
    assert_true(nseen < MODELS_MAX);
    seen[nseen++] = *m;
    table[at] = nseen;
}

static bool send_one(const struct model *from, int s, enum rme_credit_class class)
{
    struct model m = *from;
    struct side *me = &m.side[s], *peer = &m.side[1 - s];

    if (!rme_credit_may(&me->credit, class) || peer->nflight == IN_FLIGHT)
        return false;
    if (class == RME_CREDIT_DATA) {
        if (me->data == 0)
            return false;
        me->data--;
    } else if (class == RME_CREDIT_CONTROL) {
        if (me->control == 0)
            return false;
        me->control--;
    } else if (!rme_credit_due(&me->credit)) {
        return false;
    }
    peer->flight[peer->nflight++] = (struct message){
        .credits = (uint8_t)rme_credit_give(&me->credit),
        .more = class == RME_CREDIT_RETURN ? (uint8_t)rme_credit_give_more(&me->credit) : 0,
        .taken = me->taken,
    };
    rme_credit_spend(&me->credit);
    visit(&m);
    return true;
}

static bool yield_one(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s], *peer = &m.side[1 - s];
    uint32_t back;

    if (me->yields == 0 || !rme_credit_may(&me->credit, RME_CREDIT_CONTROL) || peer->nflight == IN_FLIGHT)
        return false;
    me->yields--;
    rme_credit_spend(&me->credit);
    back = rme_credit_yield(&me->credit, GROWTH);
    peer->flight[peer->nflight++] = (struct message){
        .credits = (uint8_t)rme_credit_give(&me->credit), .back = (uint8_t)back, .taken = me->taken};
    visit(&m);
    return true;
}

static bool receive_one(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s];

    if (me->nflight == 0)
        return false;
    assert_int_equal(rme_credit_gain(&me->credit, me->flight[0].credits, me->flight[0].more), 0);
    if (me->credit.exact)
        assert_int_equal(me->credit.told, me->flight[0].taken);
    if (me->flight[0].back != 0)
        assert_int_equal(rme_credit_yielded(&me->credit, me->flight[0].back), 0);
    memmove(me->flight, me->flight + 1, --me->nflight * sizeof(me->flight[0]));
    memset(&me->flight[me->nflight], 0, sizeof(me->flight[0]));
    assert_int_equal(rme_credit_used(&me->credit), 0); /* there was a buffer */
    me->taken++;
    visit(&m);
    return true;
}

static bool grow_one(const struct model *from, int s)
{
    struct model m = *from;
    struct side *me = &m.side[s];

    if (me->growth == 0)
        return false;
    me->growth--;
    rme_credit_grow(&me->credit, GROWTH);
    visit(&m);
    return true;
}

static void explore(bool exact, uint32_t credits, uint8_t data, uint8_t control, uint8_t growth, uint8_t yields)
{
    struct model start;

    memset(&start, 0, sizeof(start));
    for (int s = 0; s < 2; s++) {
        rme_credit_start(&start.side[s].credit, credits, credits);
        start.side[s].data = data;
        start.side[s].control = control;
        start.side[s].growth = growth;
        start.side[s].yields = yields;
        start.side[s].credit.exact = exact;
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
            stepped |= receive_one(&m, s);
            stepped |= grow_one(&m, s);
            stepped |= yield_one(&m, s);
        }
        if (!stepped) {
            for (int s = 0; s < 2; s++) {
                assert_int_equal(m.side[s].data, 0);
                assert_int_equal(m.side[s].control, 0);
            }
        }
    }
}

static void no_order_of_events_blocks(void **state)
{
    (void)state;
    seen = malloc(MODELS_MAX * sizeof(*seen));
    table = malloc(TABLE * sizeof(*table));
    assert_non_null(seen);
    assert_non_null(table);
    for (int exact = 0; exact < 2; exact++) {
        explore(exact, 4, 5, 2, 0, 0);
        explore(exact, 4, 2, 4, 0, 0);
        explore(exact, 5, 4, 3, 0, 0);
        explore(exact, 8, 4, 2, 0, 0);
        explore(exact, 4, 3, 1, 1, 0);
    }
    explore(true, 4, 1, 0, 1, 1);
    free(seen);
    free(table);
}

/* ---- Windows ----------------------------------------------------------------------------------------------------- */

static void windows_agree(void **state)
{
    struct rme_window w = {.limit = 1000, .sent = UINT32_MAX - 100, .taken = UINT32_MAX - 100}; /* about to wrap */
    struct rme_holding h = {.limit = 1000, .got = UINT32_MAX - 100, .taken = UINT32_MAX - 100};

    (void)state;
    assert_true(rme_window_fits(&w, 1000 - RME_HELD_COST));
    assert_false(rme_window_fits(&w, 1001 - RME_HELD_COST));
    assert_false(rme_window_fits(&w, UINT64_MAX - 10 * RME_HELD_COST));
    rme_window_sent(&w, 500);
    assert_int_equal(rme_holding_got(&h, 500), 0);
    assert_true(rme_window_fits(&w, 300));
    assert_false(rme_window_fits(&w, 400));
    assert_int_equal(rme_holding_got(&h, 400), -EPROTO);
    rme_holding_took(&h, 500);
    assert_int_equal(rme_window_report(&w, h.taken), 0);
    assert_true(rme_window_fits(&w, 900));
    assert_int_equal(rme_window_report(&w, h.taken + 1), -EPROTO);
    assert_int_equal(rme_window_report(&w, h.taken - 1), -EPROTO);
}

static void empty_messages_cost_too(void **state)
{
    struct rme_window w = {.limit = 10 * RME_HELD_COST};
    int n = 0;

    (void)state;
    while (rme_window_fits(&w, 0)) {
        rme_window_sent(&w, 0);
        n++;
    }
    assert_int_equal(n, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserves),
        cmocka_unit_test(returns_at_half),
        cmocka_unit_test(overdrawn_peers_are_seen),
        cmocka_unit_test(growing_grants_more),
        cmocka_unit_test(exact_credits_count_what_was_taken),
        cmocka_unit_test(what_is_not_needed_is_given_up),
        cmocka_unit_test(no_order_of_events_blocks),
        cmocka_unit_test(windows_agree),
        cmocka_unit_test(empty_messages_cost_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
