/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random events against a reference of what the engine holds and owes: credits of both sides,
 * windows, slots for RTS, bytes kept for peers, buffers lent, transfers, windows of memory,
 * operations, and the order of messages.
 *
 * The peers are scripted (tests/fuzz/script_fabric.h), two that connect and one that the engine
 * connects to.  After each event the engine comes to rest; then its counters and attributes
 * must be those of the reference, each operation that is over must have been reported with its
 * result, and nothing may wait that could go.  A fault is printed with its seed and step.
 *
 * Environment: ACCOUNT_SEEDS runs (24), ACCOUNT_SEED the first (1), ACCOUNT_STEPS in each
 * (1500).
 */
#include "account.h"
#include "tests/lib/clock.h"

/* ---- the peers ---- */

/* Sends a message if the credits permit; the reserve is kept. */
static bool put(struct side *s, unsigned need, struct rme_wire_message m, int64_t payload,
                uint64_t window)
{
    static uint8_t buffer[4096];
    static char area[LARGER + 1000];
    const struct rme_wire_segment segment = {(uintptr_t)area, 7, window};
    uint32_t owed = script.owed[s->slot] - s->returned;

    if (s->have < (s->promised < RESERVE ? 1 : need))
        return false;
    m.credits = (uint16_t)(s->have == 1 || need == RETURN ? owed : pick(owed + 1));
    s->returned += m.credits;
    s->have--;
    s->used++;
    for (int k = 0; k < STREAMS; k++)
        s->taken[k] = pick(4) == 0 || (need == RETURN && pick(2) == 0) ? s->in[k] : s->taken[k];
    m.eager_consumed = s->taken[EXPECTED];
    m.unexpected_consumed = s->taken[UNEXPECTED];
    m.nsegment = window > 0;
    memset(buffer, 0, sizeof(buffer));
    rme_wire_encode(&m, buffer);
    if (window > 0)
        rme_wire_put_segment(buffer, m.type, 0, &segment);
    script_message(s->slot, buffer, rme_wire_length(m.type, m.nsegment) + (size_t)payload);
    return true;
}

static struct letter *letter_new(struct side *s, struct letter l)
{
    for (struct letter *at = letter; at < letter + LETTERS; at++)
        if (at->side == NULL) {
            *at = l;
            at->side = s;
            at->life = s->life;
            at->age = ++age;
            return at;
        }
    return NULL;
}

/* The receive `i` meets the message `l`. */
static void meets(struct item *i, const struct letter *l)
{
    struct side *s = i->side;

    i->refused = l->size > i->size;
    i->theirs = l->theirs;
    i->actual = l->size;
    if (!l->rts)
        s->high[EXPECTED] += (uint32_t)l->size + COST;
    if (!l->rts && !i->refused) {
        over(i, 0, l->size);
        return;
    }
    i->state = MATCHED;
    if (l->rts && !i->refused && reads) {
        i->state = MOVING;
        i->reads = true;
    }
}

static void peer_sends(struct side *s, bool rts, bool unexpected)
{
    int stream = unexpected ? UNEXPECTED : EXPECTED;
    struct letter l = {.rts = rts,
                       .unexpected = unexpected,
                       .tag = (int32_t)pick(TAGS),
                       .size =
                           rts && !unexpected ? LARGE + pick(LARGER - LARGE) : 1 + pick(SMALL),
                       .theirs = rts ? ++name : 0};
    uint32_t cost = (uint32_t)l.size + COST;
    unsigned held = 0;
    struct item *i;

    for (const struct letter *at = letter; at < letter + LETTERS; at++)
        held += at->side == s;
    if (held >= LETTERS / LINKS ||
        (!rts && s->out[stream] - s->freed[stream] + cost > (unexpected ? 16384 : 65536)) ||
        (rts && unexpected && held > 5))
        return;
    if (!put(s, DATA,
             (struct rme_wire_message){.type = rts ? RME_WIRE_RTS : RME_WIRE_EAGER,
                                       .flags =
                                           (uint8_t)((unexpected ? RME_WIRE_F_UNEXPECTED : 0) |
                                                     (pick(4) == 0 ? RME_WIRE_F_STALLED : 0)),
                                       .tag = l.tag,
                                       .from = l.theirs,
                                       .total = rts ? (uint64_t)l.size : 0,
                                       .shape = rts},
             rts ? 0 : l.size, rts && reads && !unexpected ? (uint64_t)l.size : 0))
        return;
    s->out[stream] += rts ? 0 : cost;
    i = unexpected ? NULL : oldest(s, RECV, POSTED, l.tag);
    l.complete = unexpected && !rts;
    if (i != NULL) {
        l.side = s;
        meets(i, &l);
    } else {
        letter_new(s, l);
    }
}

/* Sends an immediate, which returns no credits.  False: this may be the last message. */
static bool write_told(struct side *s, uint32_t handle)
{
    uint32_t owed = script.owed[s->slot] - s->returned;

    if (s->have < (s->promised < RESERVE ? 1 : CONTROL) || (s->have == 1 && owed == s->granted))
        return false;
    s->have--;
    s->used++;
    script_imm(s->slot, handle);
    return true;
}

/* Answers a message that the engine offers, or writes into a receive, or a pull. */
static void peer_answers(struct side *s, struct item *i)
{
    struct rme_wire_message m = {.type = RME_WIRE_FIN, .to = i->ours, .from = ++name};
    int result = 0;

    if (i->stopped && !i->told)
        return; /* CANCEL waits for a credit or a buffer */
    if (i->kind == RECV && i->stopped && pick(2) == 0) {
        m.status = RME_WIRE_CANCELED;
        if (put(s, CONTROL, m, 0, 0))
            over(i, -ECANCELED, 0);
        return;
    }
    if (i->kind == RECV) {
        if (!i->reads && write_told(s, i->ours))
            over(i, 0, i->actual);
        return;
    }
    if (i->stopped || pick(6) == 0) {
        m.status = i->stopped ? RME_WIRE_CANCELED : RME_WIRE_TOO_LARGE;
        result = i->stopped ? -ECANCELED : -EMSGSIZE;
    } else if (i->open && reads) {
        m.offset = (uint64_t)i->size;
    } else {
        m.type = RME_WIRE_CTS;
    }
    if (!put(s, CONTROL, m, 0, m.type == RME_WIRE_CTS ? (uint64_t)i->size : 0))
        return;
    if (m.type == RME_WIRE_CTS) {
        i->state = MOVING;
        i->open = false;
        i->theirs = name;
    } else {
        over(i, result, i->size);
    }
}

static void peer_writes_pull(struct side *s)
{
    /* behind a transfer that may have ended the engine reports the pull later */
    for (struct letter *l = letter; l < letter + LETTERS && script.rdma_ops == 0; l++) {
        if (l->side != s || !l->pulled || l->complete || l->life != s->life)
            continue;
        l->complete = write_told(s, l->ours);
        return;
    }
}

/* The sender leaves a message that has no receive. */
static void peer_leaves(struct side *s)
{
    struct letter *l = &letter[pick(LETTERS)];

    if (l->side != s || !l->rts || l->unexpected || l->left)
        return;
    l->left = put(s, CONTROL,
                  (struct rme_wire_message){.type = RME_WIRE_CANCEL,
                                            .flags = RME_WIRE_F_FROM_SENDER,
                                            .tag = l->tag,
                                            .from = l->theirs},
                  0, 0);
}

/* Returns credits, and grants more, asks some back, or gives some up. */
static void peer_reports(struct side *s)
{
    uint32_t more = s->granted < 30 && pick(6) == 0 ? 1 + pick(6) : 0;
    uint32_t spare = s->have > DATA + 1 ? s->have - DATA - 1 : 0;
    uint32_t less = s->promised - s->first < spare ? s->promised - s->first : spare;
    struct rme_wire_message m = {.type = RME_WIRE_CREDIT, .tag = (int32_t)more};

    less = less > 0 ? pick(less + 1) : 0;
    if (pick(8) == 0) {
        put(s, DATA, (struct rme_wire_message){.type = RME_WIRE_PING, .tag = (int)pick(4)}, 0,
            0);
    } else if (pick(8) == 0) {
        m = (struct rme_wire_message){.type = RME_WIRE_PONG, .tag = (int32_t)less};
        if (put(s, CONTROL, m, 0, 0)) {
            s->have -= less;
            s->promised -= less;
        }
    } else if (put(s, RETURN, m, 0, 0)) {
        s->granted += more;
    }
}

static void begin_link(struct side *s, struct rme_hello *hello, uint32_t first)
{
    struct rme_addr *addr = s->addr;
    unsigned life = s->life + 1, slot = s->slot;
    bool active = s->active;

    *hello = scripted_hello();
    hello->credits = (uint16_t)((s->active ? 1 : RESERVE) + pick(9));
    hello->eager_window = 2500 + pick(6000);
    hello->unexpected_window = 2500 + pick(6000);
    hello->rts_max = 1 + pick(4);
    *s = (struct side){.addr = addr,
                       .active = active,
                       .slot = slot,
                       .life = life,
                       .up = true,
                       .granted = hello->credits,
                       .have = first,
                       .promised = first,
                       .first = first,
                       .limit = {hello->eager_window, hello->unexpected_window},
                       .rts_max = hello->rts_max};
}

static unsigned free_slot(void)
{
    for (unsigned slot = 0;; slot++)
        if (side_of(slot) == NULL)
            return slot;
}

static void fetch(bool all);

/* A peer connects, and introduces itself. */
static void arrives(struct side *s)
{
    uint8_t out[RME_HELLO_MAX] = {0};
    uint32_t before = script.advertised;
    struct rme_hello hello;

    s->slot = free_slot();
    begin_link(s, &hello, 0);
    s->up = false;
    rme_hello_encode(&hello, out);
    script_request(out, sizeof(out));
    run();
    if (pick(8) == 0) { /* lost before it was up */
        script_down(s->slot, -ECONNRESET);
        return;
    }
    s->have = s->promised = s->first = script.advertised - before;
    s->up = true;
    script_up(s->slot, out, sizeof(out));
    check();
    while (s->addr == NULL) {
        peer_sends(s, false, true);
        check();
        fetch(true);
    }
}

static void lost(struct side *s, int error)
{
    for (struct item *i = item; i < item + OPS; i++)
        if (i->state != FREE && i->state != OVER && i->side == s) {
            i->confirmed = i->state == MOVING && i->kind != RECV;
            over(i, i->refused ? -EMSGSIZE : error, 0);
        }
    for (struct letter *l = letter; l < letter + LETTERS; l++)
        if (l->side == s && !(l->unexpected && l->complete))
            letter_drop(l);
    s->up = s->asked = false;
}

static void goes(struct side *s)
{
    lost(s, -ECONNRESET);
    script_down(s->slot, -ECONNRESET);
    if (s->active)
        return;
    check();
    if (pick(2) == 0)
        fetch(true);
    rme_addr_free(s->addr);
    s->addr = NULL;
    for (struct letter *l = letter; l < letter + LETTERS; l++)
        if (l->side == s)
            letter_drop(l);
}

/* Accepts or refuses the engine's request. */
static void answers_request(struct side *s)
{
    uint8_t out[RME_HELLO_MAX] = {0};
    struct rme_hello hello;

    if (pick(3) == 0) {
        lost(s, -ECONNREFUSED);
        script_refuse(s->slot, -ECONNREFUSED, NULL, 0);
        return;
    }
    begin_link(s, &hello, s->first);
    rme_hello_encode(&hello, out);
    script_up(s->slot, out, sizeof(out));
}

/* ---- the host ---- */

static void post(struct side *s, enum kind kind)
{
    int32_t tag = (int32_t)pick(TAGS);
    int64_t size = kind == RECV   ? (pick(8) == 0 ? TINY : ROOM)
                   : kind == ASK  ? 1 + pick(SMALL)
                   : pick(3) == 0 ? LARGE + pick(LARGER - LARGE)
                                  : 1 + pick(SMALL);
    struct rme_list list = {.length = &size, .count = 1};
    struct item *i = item;
    bool begins = !s->up && !s->asked;
    struct letter *first = NULL;
    void *base;
    int rc;

    while (i < item + OPS && i->state != FREE)
        i++;
    if (i == item + OPS || count_of(s, kind, QUEUED) + count_of(s, kind, MOVING) +
                                   count_of(s, kind, OFFERED) + count_of(s, kind, POSTED) >=
                               LIVE)
        return;
    if (begins) {
        s->slot = free_slot();
        s->asked = true;
        s->first = script.advertised;
        clock_step_ms(5);
    }
    *i = (struct item){.kind = kind,
                       .state = kind == RECV ? POSTED : QUEUED,
                       .side = s,
                       .tag = tag,
                       .size = size,
                       .age = ++age,
                       .memory = malloc((size_t)size)};
    base = i->memory;
    list.base = &base;
    for (struct letter *l = letter; l < letter + LETTERS && kind == RECV; l++)
        if (l->side == s && !l->unexpected && !l->left && l->tag == tag &&
            (first == NULL || l->age < first->age))
            first = l;
    if (first != NULL) {
        meets(i, first);
        letter_drop(first);
    }
    rc = kind == RECV   ? rme_post_recv(rme, s->addr, &list, tag, 0, i, NULL, &i->id)
         : kind == SEND ? rme_post_send(rme, s->addr, &list, tag, 0, i, &i->id)
                        : rme_post_unexpected(rme, s->addr, &list, tag, 0, i, &i->id);
    if (begins)
        s->first = script.advertised - s->first;
    MUST(rc == 0 || (rc == 1 && kind != RECV && i->state == OVER));
    if (rc == 1)
        reported(&(struct rme_done){.id = i->id, .user = i, .actual = size});
}

/* Another thread posts while one registers memory. */
static void post_meanwhile(void)
{
    for (struct side *s = side; s < side + LINKS; s++)
        for (int i = 0; i < 3 && s->up && s->addr != NULL; i++)
            if (pick(2) == 0)
                post(s, SEND);
}

static void cancel(struct item *i)
{
    if (i->state == FREE || i->state == OVER ||
        (i->state == MOVING && (i->kind != RECV || i->reads)))
        return;
    i->stopped = true;
    if (i->state == QUEUED || i->state == POSTED)
        over(i, -ECANCELED, 0);
    else if (i->state == MATCHED && i->refused && i->theirs == 0)
        over(i, -EMSGSIZE, 0);
    rme_cancel(rme, i->id);
}

/* Fetches one message, or all. */
static void fetch(bool all)
{
    struct rme_unexpected got;
    struct letter *l;

    while (rme_test_unexpected(rme, &got, 1, 0) == 1) {
        struct side *s = NULL;

        for (int i = 0; i < LINKS; i++)
            if (side[i].addr == got.addr || (got.first && side[i].addr == NULL && side[i].up))
                s = &side[i];
        MUST(s != NULL);
        s->addr = got.addr;
        l = NULL;
        for (struct letter *at = letter; at < letter + LETTERS; at++)
            if (at->side == s && at->unexpected && (l == NULL || at->age < l->age))
                l = at;
        MUST(l != NULL && l->complete && l->tag == got.tag && l->size == got.size);
        if (!l->rts && l->life == s->life)
            s->high[UNEXPECTED] += (uint32_t)l->size + COST;
        letter_drop(l);
        MUST(rme_unexpected_free(rme, got.buffer) == 0);
        if (!all)
            return;
    }
}

/* ---- runs ---- */

static void finish_one(void)
{
    if (script.rdma_ops == 0)
        return;
    script_finish(pick(script.rdma_ops));
    finished++;
}

static void host_event(struct side *s, unsigned which)
{
    if (which < 6)
        post(s, which < 3 ? SEND : RECV);
    else if (which == 6)
        post(s, ASK);
    else if (which == 7)
        cancel(&item[pick(OPS)]);
    else if (which == 8)
        fetch(pick(2) == 0);
    else if (which == 9)
        finish_one();
    else if (script.no_tx)
        script_tx_room();
    else
        script.no_tx = pick(6) == 0;
}

static void peer_event(struct side *s, unsigned which)
{
    struct item *i = &item[pick(OPS)];

    if (which < 5)
        peer_sends(s, which > 2, false);
    else if (which == 5)
        peer_sends(s, pick(3) == 0, true);
    else if (which < 9 && i->side == s &&
             (i->state == OFFERED || (i->state == MOVING && i->kind == RECV)))
        peer_answers(s, i);
    else if (which == 9)
        peer_writes_pull(s);
    else if (which == 10)
        peer_leaves(s);
    else if (which == 11 || pick(20) != 0)
        peer_reports(s);
    else if (finished == 0) /* a message that was read but not answered may be complete */
        goes(s);
}

static void event(struct side *s)
{
    unsigned which = pick(24);

    if (!s->up && !s->active)
        arrives(s);
    else if (s->asked && pick(3) == 0)
        answers_request(s);
    else if (which < 11)
        host_event(s, which);
    else if (s->up)
        peer_event(s, which - 11);
}

/* Lets everything end; what waits only for messages of the peers is cancelled. */
static void settle(void)
{
    unsigned left = 1;

    script.registering = NULL;
    script_tx_room();
    for (step = 100000; left > 0; step++) {
        MUST(step < 103000);
        left = 0;
        for (struct item *i = item; i < item + OPS; i++) {
            left += i->state != FREE;
            if (i->state == POSTED)
                cancel(i);
            else if (i->state == OFFERED || (i->state == MOVING && i->kind == RECV))
                peer_answers(i->side, i);
            check();
        }
        for (struct side *s = side; s < side + LINKS; s++) {
            if (s->asked)
                answers_request(s);
            check();
            if (s->up && free_of(s) < DATA)
                put(s, RETURN, (struct rme_wire_message){.type = RME_WIRE_CREDIT}, 0, 0);
            peer_writes_pull(s);
            check();
        }
        finish_one();
        check();
        fetch(true);
    }
}

static void end(void)
{
    settle();
    for (struct side *s = side; s < side + LINKS; s++)
        if (s->up)
            goes(s);
    check();
    fetch(true);
    MUST(rme_counter_value(rme, "rx_buffered_bytes") == 0);
    MUST(rme_counter_value(rme, "credits_lent") == 0);
    MUST(rme_counter_value(rme, "pack_bytes") == 0);
    rme_addr_free(side[LINKS - 1].addr);
    rme_close(rme);
    script.heard = NULL;
}

static void begin(const char *options)
{
    struct rme_config config = {.fabric = &script_ops, .options = options};
    struct rme_addr *listen;

    memset(side, 0, sizeof(side));
    memset(item, 0, sizeof(item));
    memset(letter, 0, sizeof(letter));
    finished = name = age = 0;
    clock_set();
    clock_tick_ns(CLOCK_TICK_NS);
    script.mws = 1024;
    script.heard = heard;
    script.registering = post_meanwhile;
    script.no_tx = false;
    assert_int_equal(rme_addr_parse("ib", "ib://self:1", &listen), 0);
    config.listen = listen;
    assert_int_equal(rme_open(&config, &rme), 0);
    assert_int_equal(rme_context_open(rme, 0), 0);
    rme_addr_free(listen);
    side[LINKS - 1].active = true;
    assert_int_equal(rme_addr_parse("ib", "ib://other:1", &side[LINKS - 1].addr), 0);
}

static unsigned from_environment(const char *variable, unsigned usual)
{
    const char *text = getenv(variable);

    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : usual;
}

static void reference_holds_after_each_event(void **state)
{
    static const char *const rndv[] = {"write,pack_threshold=0", "write",
                                       "read,pack_threshold=0"},
                             *const credits[] = {"8", "4", "16", "8,credits_pool=0"};
    unsigned runs = from_environment("ACCOUNT_SEEDS", 24);
    unsigned steps = from_environment("ACCOUNT_STEPS", 1500);
    char options[200];

    (void)state;
    /* 134 shows a send whose memory is ready behind one without room in the window */
    first_seed = from_environment("ACCOUNT_SEED", 120);
    for (; runs > 0; runs--, first_seed++) {
        seed = first_seed;
        script.own_rx = first_seed / 12 % 2;
        reads = first_seed % 3 == 2;
        snprintf(options, sizeof(options),
                 "regcache_entries=0,poll_us=0,keepalive_ms=0,connect_timeout_ms=600000,"
                 "backoff_max_ms=1,early_cts=0,fragment_bytes=1M,eager_window=64K,rndv=%s,"
                 "credits=%s",
                 rndv[first_seed % 3], credits[first_seed % 4]);
        begin(options);
        for (step = 0; step < steps; step++) {
            event(&side[pick(LINKS)]);
            check();
        }
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_holds_after_each_event),
    };

    return cmocka_run_group_tests_name("account", tests, clock_setup, NULL);
}
