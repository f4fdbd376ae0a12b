/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The planner: rows of messages with their plans, and properties of all plans. */
#include "plan/plan.h"
#include "unit.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

static const struct rme_limits limits = {
    .once = {200000, 4000, 2000}, .list = {16000, 700, 1000}, .read = 1};

static struct rme_plan_in base(uint64_t bytes)
{
    return (struct rme_plan_in){.bytes = bytes,
                                .send = {.segments = 1},
                                .recv = {.segments = 1, .server = true},
                                .eager_max = 4000,
                                .frag_size = MIB,
                                .pack_threshold = 64 * KIB,
                                .max_sge = 30,
                                .max_read_sge = 30,
                                .has_read = true,
                                .limits = &limits};
}

static struct rme_plan decide(const struct rme_plan_in *in)
{
    struct rme_plan plan;

    rme_plan(in, &plan);
    assert_non_null(plan.why);
    return plan;
}

/* ---- rows ---- */

/* A message, by what differs from 1 MiB from a client to a server, and its plan: protocol,
 * requests, and whether the sender packs or offers, the receiver copies or invites. */
static const struct row {
    const char *message, *plan;
} rows[] = {
    /* protocol and direction: a client sends 1 MiB to a server */
    {"bytes=0", "eager 0 packs copies"},
    {"bytes=4000", "eager 0 packs copies"},
    {"bytes=4001", "read 1 packs offers copies"},
    {"s.ops=1000 r.ops=65", "write 1 offers"},
    {"s.ops=1000 r.ops=64", "read 1 offers"},
    {"s.ops=65 r.ops=1000 s.server r.server=0", "read 1 offers"},
    {"s.ops=64 r.ops=1000 s.server r.server=0", "write 1 offers"},
    {"", "write 1 offers"},
    {"s.load=1", "read 1 offers"},
    {"s.ops=10", "read 1 offers"},
    {"s.ops=10 prefer=read reads=0", "write 1"},
    {"s.ops=10 slow_read", "write 1"},
    {"s.ops=10 nothing_to_read", "write 1"},
    /* memory is offered, whatever the loads */
    {"slow_read", "write 1"},
    {"reads=0", "write 1"},
    /* a receive invites */
    {"has_early unseen r.ready", "write 1 offers invites"},
    {"has_early unseen", "write 1 offers"},
    {"has_early unseen r.kept r.ready bytes=EARLY", "write 1 offers invites"},
    {"has_early unseen r.kept r.ready bytes=EARLY-1", "write 1 offers"},
    {"has_early r.segments=64 r.kept prefer=write lists=group", "write 64 invites"},
    {"has_early r.segments=64 r.kept prefer=write lists=pack", "write 1 copies"},
    {"has_early r.segments=64 r.kept prefer=write bytes=128K opens", "write 1 packs copies"},
    /* one segment is copied, or registered: 200,000 bytes for one use */
    {"bytes=200000", "read 1 packs offers copies"},
    {"bytes=200001", "write 1 offers"},
    {"bytes=64K s.kept", "read 1 offers copies"},
    {"bytes=65535 s.kept", "read 1 packs offers copies"},
    {"bytes=150000 s.kept pack=0", "read 1 packs offers copies"},
    {"pack=0 s.segments=100 once.request=160000", "write 1 packs offers"},
    {"pack=0 s.segments=100 once.request=160000 sge=100", "write 1"},
    /* requests */
    {"prefer=write lists=group s.ready r.ready s.segments=30", "write 1"},
    {"prefer=write lists=group s.ready r.ready s.segments=31", "write 2"},
    {"r.segments=256 s.ready r.ready r.ops=10", "read 9 offers"},
    {"sge=1 rsge=1 s.ready r.ready r.segments=64 s.ops=10 read_cost=2", "read 64 offers"},
    {"sge=1 rsge=1 s.ready r.ready r.segments=64 s.ops=10 read_cost=4", "write 64 offers"},
    {"sge=1 rsge=1 s.ready r.kept r.segments=64 prefer=read bytes=300000 read_cost=4",
     "read 1 offers copies"},
    /* lists are copied, or registered: kept ones up to 16000 + 63 * 700 + 2 * 1000 bytes */
    {"pack=0 s.segments=8 bytes=4M", "write 1 offers"},
    {"s.segments=64 s.kept bytes=62100", "read 1 packs offers copies"},
    {"s.segments=64 s.kept bytes=62101", "write 3 copies"},
    {"s.segments=64 s.ready bytes=16K", "write 3 copies"},
    {"r.segments=64 r.kept bytes=150000 prefer=write", "write 64 packs"},
    {"r.segments=64 r.kept bytes=150000 prefer=write opens", "write 1 packs copies"},
    {"r.segments=64 r.kept bytes=300000 prefer=write opens", "write 64"},
    /* a receiver that copies reads, unless it is more loaded */
    {"s.ready r.segments=64 lists=pack r.ops=1", "write 1 offers copies"},
    /* lists that few requests can write are not offered, unless the sender is heavily loaded */
    {"s.segments=64 lists=pack", "write 1 packs offers"},
    {"s.segments=64 lists=group s.server r.server=0 s.ops=HEAVY", "read 64 offers"},
    {"s.segments=8 lists=group s.server r.server=0", "write 1 offers"},
    /* the ring */
    {"bytes=16K r.segments=0 ring=32K", "ring 1 packs copies"},
    {"bytes=32769 r.segments=0 ring=32K", "read 1 packs offers copies"},
    {"bytes=16K r.segments=0 ring=32K eager=16K", "eager 0 packs copies"},
    /* adapters with windows, or with registrations in their place */
    {"adapter bytes=96K sender r.segments=0 s.segments=8", "write 1"},
    {"adapter bytes=96K s.kept=0 s.ready r.segments=8 nothing_to_read", "write 1 copies"},
    {"adapter bytes=64K sender s.segments=8 r.segments=8", "read 1 packs offers"},
    {"adapter bytes=256K sender s.segments=64 r.segments=64", "read 3 packs offers"},
    {"adapter bytes=1M sender s.segments=64 r.segments=64", "read 64 offers"},
    {"adapter opens=0 bytes=256K sender s.segments=128 r.segments=128", "read 5 packs offers"},
    {"adapter bytes=1M sender s.segments=512 r.segments=512", "write 18 copies"},
    {"adapter each opens=0 bytes=256K sender s.segments=8 r.segments=8", "read 1 packs offers"},
    {"adapter each opens=0 bytes=2M sender s.segments=8 r.segments=8", "write 8"},
    {"adapter each opens=0 bytes=96K sender r.segments=0", "read 1 offers"},
    {"adapter each opens=0 bytes=96K sender r.segments=0 s.segments=8", "write 1"},
    {"adapter r.ops=10 early", "write 1"},
    {"adapter r.ops=10 opens=0", "read 1 offers"},
    {"adapter r.ops=10 opens=0 s.segments=2", "write 1 offers"},
    {"adapter r.ops=65 opens=0", "write 1 offers"},
};

static uint64_t number(const char *text)
{
    static const struct {
        const char *name;
        uint64_t number;
    } names[] = {{"read", RME_PREFER_READ},    {"write", RME_PREFER_WRITE},
                 {"pack", RME_LISTS_PACK},     {"group", RME_LISTS_GROUP},
                 {"EARLY", RME_EARLY_CTS_MIN}, {"EARLY-1", RME_EARLY_CTS_MIN - 1},
                 {"HEAVY", RME_HEAVY_OPS + 1}};
    char *unit;
    uint64_t n = strtoull(text, &unit, 10);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i].name) == 0)
            return names[i].number;
    return n << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'T' ? 40 : 0);
}

static void set(struct rme_plan_in *in, struct rme_limits *own, const char *field)
{
    const char *value = strchr(field, '=');
    size_t length = value != NULL ? (size_t)(value - field) : strlen(field);
    uint64_t n = value != NULL ? number(value + 1) : 1;

#define FIELD(name, ...)                                                                       \
    if (strlen(name) == length && strncmp(field, name, length) == 0) {                         \
        __VA_ARGS__;                                                                           \
        return;                                                                                \
    }
#define SIDE(letter, side)                                                                     \
    FIELD(letter ".segments", in->side.segments = n)                                           \
    FIELD(letter ".ready", in->side.ready = n)                                                 \
    FIELD(letter ".kept", in->side.kept = n)                                                   \
    FIELD(letter ".server", in->side.server = n)                                               \
    FIELD(letter ".ops", in->side.load.ops = (uint32_t)n)                                      \
    FIELD(letter ".load", in->side.load.bytes = n)
    SIDE("s", send)
    SIDE("r", recv)
    FIELD("bytes", in->bytes = n)
    FIELD("eager", in->eager_max = n)
    FIELD("ring", in->ring_max = n)
    FIELD("pack", in->pack_threshold = n)
    FIELD("prefer", in->prefer = (enum rme_prefer)n)
    FIELD("lists", in->lists = (enum rme_lists)n)
    FIELD("sge", in->max_sge = (uint32_t)n)
    FIELD("rsge", in->max_read_sge = (uint32_t)n)
    FIELD("reads", in->has_read = n)
    FIELD("slow_read", in->slow_read = n)
    FIELD("nothing_to_read", in->nothing_to_read = n)
    FIELD("has_early", in->has_early_cts = n)
    FIELD("early", in->early = n)
    FIELD("sender", in->sender = n)
    FIELD("opens", in->opens = n)
    FIELD("each", in->each = n)
    FIELD("unseen", in->send = rme_plan_unseen_sender(false, (struct rme_load){0}))
    FIELD("read_cost", own->read = (uint32_t)n; in->limits = own)
    FIELD("once.request", own->once.request = n; in->limits = own)
    FIELD("adapter", in->limits = &rme_limits_adapter;
          in->opens = in->send.kept = in->recv.kept = true)
#undef SIDE
#undef FIELD
    fail_msg("unknown field: %s", field);
}

static struct rme_plan_in message_of(const char *fields, struct rme_limits *own)
{
    struct rme_plan_in in = base(MIB);
    char text[200], *at;

    snprintf(text, sizeof(text), "%s", fields);
    for (char *field = strtok_r(text, " ", &at); field != NULL;
         field = strtok_r(NULL, " ", &at))
        set(&in, own, field);
    return in;
}

static void messages_are_planned_as_listed(void **state)
{
    static const char *const names[] = {[RME_PROTO_EAGER] = "eager",
                                        [RME_PROTO_RING] = "ring",
                                        [RME_PROTO_RNDV_WRITE] = "write",
                                        [RME_PROTO_RNDV_READ] = "read"};
    unsigned wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rme_limits own = limits;
        struct rme_plan_in in = message_of(rows[i].message, &own);
        struct rme_plan plan;
        char text[100];

        plan = decide(&in);
        snprintf(text, sizeof(text), "%s %u%s%s%s%s", names[plan.proto],
                 (unsigned)plan.requests, plan.send_pack ? " packs" : "",
                 plan.offer ? " offers" : "", plan.recv_pack ? " copies" : "",
                 plan.early_cts ? " invites" : "");
        if (strcmp(text, rows[i].plan) != 0) {
            print_error("    {\"%s\", \"%s\"},\n", rows[i].message, text);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static void sizes_follow_limits(void **state)
{
    struct rme_plan_in in = base(0);

    (void)state;
    assert_int_equal(rme_plan_frag_size(MIB, false), MIB);
    assert_int_equal(rme_plan_frag_size(MIB, true), 256 * KIB);
    assert_int_equal(rme_plan_frag_size(64 * KIB, true), 64 * KIB);
    for (int opens = 0; opens < 2; opens++)
        for (int each = 0; each < 2; each++) {
            in.limits = &rme_limits_adapter;
            in.opens = opens && !each;
            in.each = each;
            assert_int_equal(rme_plan_sizes(&in).ring, (each ? 32 : opens ? 23 : 16) * KIB);
            if (in.opens || each)
                assert_int_equal(rme_plan_sizes(&in).cached, (each ? 64 : 23) * KIB);
        }
    in = base(0);
    assert_int_equal(rme_plan_sizes(&in).ring, 32 * KIB);
    assert_int_equal(rme_plan_sizes(&in).cached, 64 * KIB);
}

/* ---- properties ---- */

/* The step that the sender of any message takes, and the whole planner. */
static void copies_equal_the_plan(void **state)
{
    static const uint64_t eager[] = {0, 1, 496, 4592}, ring[] = {0, 4592, 16 * KIB, 65535};

    (void)state;
    for (size_t i = 0; i < 16; i++) {
        for (uint64_t bytes = 0; bytes <= 70000; bytes++) {
            struct rme_plan_in in = base(bytes);
            enum rme_proto first, plan;

            in.eager_max = eager[i % 4];
            in.ring_max = ring[i / 4];
            first = rme_plan_copied(bytes, in.eager_max, in.ring_max);
            plan = decide(&in).proto;
            if (first != plan && (first != RME_PROTO_RNDV_WRITE || plan != RME_PROTO_RNDV_READ))
                fail_msg("%u bytes: %s, planned as %s", (unsigned)bytes, rme_proto_name[first],
                         rme_proto_name[plan]);
        }
    }
}

/* Returns the row of the protocol; the caller frees the text. */
static const char *chosen_row(const struct rme_plan_in *send, const struct rme_plan_in *recv,
                              char **text)
{
    size_t size = 0;
    FILE *out = open_memstream(text, &size);
    const char *head;

    rme_plan_explain(out, send, recv);
    fclose(out);
    head = strstr(*text, "\nprotocol ");
    assert_non_null(head);
    return strchr(head + 1, '\n') + 1;
}

/* Limits of very different devices, messages of all sizes and shapes: the explanation agrees
 * with each end's decision. */
static void explains_the_very_decisions(void **state)
{
    static const struct rme_limits devices[] = {
        {.once = {16000, 100, 100}, .list = {2000, 100, 50}, .read = 1},
        {.once = {200000, 4000, 2000}, .list = {16000, 700, 1000}, .read = 4},
        {.once = {4 << 20, 1000, 1000}, .list = {1 << 20, 500, 60000}, .read = 2},
    };
    unsigned seen[RME_PROTO_COUNT] = {0}, packed = 0;

    (void)state;
    for (unsigned i = 0; i < 3 * 25 * 3 * 2 * 3 * 2; i++) {
        struct rme_plan_in in = base((uint64_t)1 << (i / 3 % 25)), asked;
        unsigned shape = i / 75 % 3, kept = i / 225 % 2, prefer = i / 450 % 3;
        struct rme_plan first, plan;
        char row[64], *text;

        in.limits = &devices[i % 3];
        in.eager_max = (uint64_t)4000 << i % 3;
        in.send.segments = shape == 0 ? 1 : shape == 1 ? 16 : 4096;
        in.send.kept = in.recv.kept = kept;
        in.prefer = (enum rme_prefer)prefer;
        in.ring_max = i < 3 * 25 * 3 * 2 * 3 ? 0 : MIB;
        asked = in;
        rme_plan(&in, &first);
        asked.send.ready =
            first.offer && in.bytes <= rme_plan_frag_size(in.frag_size, first.send_pack) *
                                           (kept && !first.send_pack ? RME_OFFERED_FRAGS : 1);
        if (asked.send.ready && first.send_pack)
            asked.send.segments = 1;
        asked.send.kept = false;
        asked.nothing_to_read = !asked.send.ready;
        asked.ring_max = 0;
        rme_plan(&asked, &plan);
        if (first.proto == RME_PROTO_RING)
            plan = first;
        snprintf(row, sizeof(row), "%-18s %-7s %-9s", rme_proto_name[plan.proto],
                 plan.proto == RME_PROTO_EAGER || first.send_pack ? "copy" : "direct",
                 plan.proto == RME_PROTO_EAGER || plan.recv_pack ? "copy" : "direct");
        assert_memory_equal(chosen_row(&in, &in, &text), row, strlen(row));
        free(text);
        seen[plan.proto]++;
        packed += first.send_pack;
    }
    for (int proto = 0; proto < RME_PROTO_COUNT; proto++)
        assert_true(seen[proto] > 50);
    assert_true(packed > 50);
}

/* The explanation names each reason. */
static void explains_reasons(void **state)
{
    static const struct {
        const char *message, *text;
    } reasons[] = {
        {"sge=1 rsge=1 s.ready r.ready r.segments=64 s.ops=10 read_cost=4",
         "because   the work requests of writing cost far less"},
        {"sge=1 rsge=1 s.ready r.ready r.segments=64 s.ops=10 read_cost=4",
         "a read request counts as 4 to write"},
        {"s.ready r.segments=64 lists=pack",
         "receiver reads: receiver copies, receiver load <= sender load"},
        {"s.segments=64", "RTS advertises nothing: the work requests of writing cost far less"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        struct rme_limits own = limits;
        struct rme_plan_in in = message_of(reasons[i].message, &own);
        char *text = NULL;

        chosen_row(&in, &in, &text);
        assert_non_null(strstr(text, reasons[i].text));
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_planned_as_listed),
        cmocka_unit_test(sizes_follow_limits),
        cmocka_unit_test(copies_equal_the_plan),
        cmocka_unit_test(explains_the_very_decisions),
        cmocka_unit_test(explains_reasons),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
