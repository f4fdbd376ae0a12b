/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "unit.h"
#include "plan_base.h"

static void small_is_eager(void **state)
{
    (void)state;
    for (uint64_t bytes = 0; bytes <= 4000; bytes += 400) {
        struct rme_plan_in in = base(bytes);

        assert_int_equal(decide(&in).proto, RME_PROTO_EAGER);
    }
    struct rme_plan_in in = base(4001);

    assert_int_not_equal(decide(&in).proto, RME_PROTO_EAGER);
}

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

#define WRITE RME_PROTO_RNDV_WRITE
#define READ  RME_PROTO_RNDV_READ
enum { FROM_SERVER = 1, TO_CLIENT = 2, NO_READS = 4, SLOW_READS = 8, NOT_OFFERED = 16 };

/* Messages of 1 MiB from a client to a server, but for what a row says, and their protocol. */
static const struct decision {
    const char *text;
    uint64_t send_ops, send_bytes, recv_ops; /* loads */
    unsigned conditions;
    enum rme_prefer prefer;
    enum rme_proto proto;
} decisions[] = {
    /* the four results of the flow chart: a heavily loaded server lets the client work */
    {"a heavy receiver", 1000, 0, 65, 0, RME_PREFER_AUTO, WRITE},
    {"none is heavy", 1000, 0, 64, 0, RME_PREFER_AUTO, READ},
    {"a heavy sender", 65, 0, 1000, FROM_SERVER | TO_CLIENT, RME_PREFER_AUTO, READ},
    {"none is heavy", 64, 0, 1000, FROM_SERVER | TO_CLIENT, RME_PREFER_AUTO, WRITE},
    {"two servers", 100, 0, 90, FROM_SERVER, RME_PREFER_AUTO, READ},
    {"two servers", 100, 0, 110, FROM_SERVER, RME_PREFER_AUTO, WRITE},
    {"a tie", 0, 0, 0, 0, RME_PREFER_AUTO, WRITE},
    {"a tie except for bytes", 0, 1, 0, 0, RME_PREFER_AUTO, READ},
    {"options overrule", 0, 0, 0, 0, RME_PREFER_READ, READ},
    {"options overrule", 10, 0, 0, 0, RME_PREFER_WRITE, WRITE},
    {"devices overrule", 10, 0, 0, NO_READS, RME_PREFER_READ, WRITE},
    {"reads by load", 10, 0, 0, 0, RME_PREFER_AUTO, READ},
    {"slow reads are avoided", 10, 0, 0, SLOW_READS, RME_PREFER_AUTO, WRITE},
    {"slow reads by option", 10, 0, 0, SLOW_READS, RME_PREFER_READ, READ},
    {"nothing is offered", 10, 0, 0, NOT_OFFERED, RME_PREFER_AUTO, WRITE},
    {"nothing is offered, and reads are preferred", 10, 0, 0, NOT_OFFERED, RME_PREFER_READ,
     WRITE},
};

static void rendezvous_direction_by_load(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(decisions) / sizeof(decisions[0]); i++) {
        const struct decision *row = &decisions[i];
        struct rme_plan_in in = base(MIB);
        enum rme_proto proto;

        in.send.load.ops = row->send_ops;
        in.send.load.bytes = row->send_bytes;
        in.recv.load.ops = row->recv_ops;
        in.send.server = (row->conditions & FROM_SERVER) != 0;
        in.recv.server = (row->conditions & TO_CLIENT) == 0;
        in.has_read = (row->conditions & NO_READS) == 0;
        in.slow_read = (row->conditions & SLOW_READS) != 0;
        in.nothing_to_read = (row->conditions & NOT_OFFERED) != 0;
        in.prefer = row->prefer;
        proto = decide(&in).proto;
        if (proto != row->proto)
            fail_msg("%s: %s", row->text, rme_proto_name[proto]);
    }
}

/* Readable memory is offered for any current loads. */
static void readable_memory_offered(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
    assert_true(decide(&in).offer);
    in.slow_read = true;
    assert_false(decide(&in).offer);
    in.prefer = RME_PREFER_READ;
    assert_true(decide(&in).offer);
    in.prefer = RME_PREFER_WRITE;
    in.slow_read = false;
    assert_false(decide(&in).offer);
    in.prefer = RME_PREFER_AUTO;
    in.has_read = false;
    assert_false(decide(&in).offer);
    in = base(0);
    in.bytes = 0;
    in.eager_max = 0;
    assert_false(decide(&in).offer);
}

static void early_cts_conditions(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.has_early_cts = true;
    in.send = rme_plan_unseen_sender(false, (struct rme_load){0});
    in.recv.ready = true;
    assert_true(decide(&in).early_cts);
    in.recv.ready = false;
    assert_false(decide(&in).early_cts);
    in.recv.kept = true;
    assert_true(decide(&in).early_cts);
    in.bytes = 64 * KIB - 1; /* cached, but too small to pay off at the second use */
    assert_false(decide(&in).early_cts);
    in.recv.ready = true;
    in.bytes = RME_EARLY_CTS_MIN;
    assert_true(decide(&in).early_cts);
    in.bytes--;
    assert_false(decide(&in).early_cts);
    in.bytes = MIB;
    in.eager_max = MIB;
    assert_false(decide(&in).early_cts);
    in.eager_max = 4000;
    in.prefer = RME_PREFER_READ;
    assert_false(decide(&in).early_cts);
    in.prefer = RME_PREFER_AUTO;
    in.send.load.ops = 1; /* the receiver is less loaded: it waits for an offer */
    assert_false(decide(&in).early_cts);
    in.send.load.ops = 0;
    in.has_early_cts = false;
    assert_false(decide(&in).early_cts);
}

/* Limit of memory that is registered for one use: 200,000 bytes. */
static void single_use_registration_must_pay(void **state)
{
    struct rme_plan_in in = base(200000);

    (void)state;
    assert_true(decide(&in).send_pack);
    assert_true(decide(&in).recv_pack);
    in.bytes++;
    assert_false(decide(&in).send_pack);
    assert_false(decide(&in).recv_pack);
    in.bytes = 150000;
    in.send.ready = true;
    assert_false(decide(&in).send_pack);
}

/* Memory whose registration will be cached is registered at its first use, though a copy would
 * cost less. */
static void kept_registrations_are_not_for_one_use(void **state)
{
    struct rme_plan_in in = base(150000);

    (void)state;
    assert_true(decide(&in).send_pack);
    in.send.kept = true;
    assert_false(decide(&in).send_pack);
    assert_true(decide(&in).recv_pack);
    in.bytes = 64 * KIB;
    assert_false(decide(&in).send_pack);
    in.bytes--;
    assert_true(decide(&in).send_pack);
    in.bytes = 150000;
    in.pack_threshold = 0; /* by the limit alone, of this one message */
    assert_true(decide(&in).send_pack);
}

/* Gathering in place takes requests, which raise the limit. */
static void requests_have_a_price(void **state)
{
    struct rme_limits dear = limits;
    struct rme_plan_in in = base(1 * MIB);

    (void)state;
    in.pack_threshold = 0;
    in.send.segments = 100; /* 200000 + 99 * 4000 + 3 * 2000 */
    assert_false(decide(&in).send_pack);
    dear.once.request = 160000;
    in.limits = &dear;
    assert_true(decide(&in).send_pack);
    in.max_sge = 100;
    assert_false(decide(&in).send_pack);
}

static void fragment_sizes(void **state)
{
    (void)state;
    assert_int_equal(rme_plan_frag_size(MIB, false), MIB);
    assert_int_equal(rme_plan_frag_size(MIB, true), 256 * KIB);
    assert_int_equal(rme_plan_frag_size(64 * KIB, true), 64 * KIB);
}

static void unknown_receiver(void **state)
{
    struct rme_plan_in in = base(MIB);

    (void)state;
    in.recv = (struct rme_plan_side){0};
    in.send.segments = 64;
    assert_int_equal(decide(&in).proto, RME_PROTO_RNDV_WRITE);
}

static void huge_sizes(void **state)
{
    struct rme_plan_in in = base((uint64_t)5 << 40);

    (void)state;
    assert_false(decide(&in).send_pack);
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

static void explains_what_is_decided(void **state)
{
    struct rme_plan_in in = base(2 * MIB);
    char *text = NULL;

    (void)state;
    in.send.segments = 64;
    chosen_row(&in, &in, &text);
    assert_non_null(strstr(text, decide(&in).why));
    assert_non_null(
        strstr(text, "limit     once     200000 + 4000/segment + 2000/further request bytes"));
    assert_non_null(strstr(text, "limit     segment  65536 bytes"));
    free(text);

    /* cached memory is used in fragments, in the form of its registration; registered memory at
     * once */
    in = base(8 * MIB);
    in.frag_size = MIB;
    in.send.kept = in.recv.kept = true;
    (void)chosen_row(&in, &in, &text);
    assert_non_null(strstr(text, "sender    used in place in fragments of 1048576 bytes: "));
    free(text);
    in.send.ready = in.recv.ready = true;
    (void)chosen_row(&in, &in, &text);
    assert_non_null(strstr(text, "in fragments of 8388608 bytes: "));
    assert_null(strstr(text, "1048576"));
    free(text);
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

/* The ring is used up to the size that its protocol gives. */
static void ring_used_up_to_its_size(void **state)
{
    struct rme_plan_in in = base(16 * KIB);

    (void)state;
    in.recv = (struct rme_plan_side){0};
    in.ring_max = 32 * KIB;
    assert_int_equal(decide(&in).proto, RME_PROTO_RING);
    assert_int_equal(decide(&in).requests, 1);
    assert_false(decide(&in).offer);
    in.bytes = 32 * KIB + 1;
    assert_true(decide(&in).proto >= RME_PROTO_RNDV_WRITE);
    in.bytes = 16 * KIB;
    in.ring_max = 0;
    assert_true(decide(&in).proto >= RME_PROTO_RNDV_WRITE);
    in.ring_max = 32 * KIB;
    in.eager_max = 16 * KIB;
    assert_int_equal(decide(&in).proto, RME_PROTO_EAGER);
}

/* Any list is copied exactly up to its limit. */
static void lists_are_copied_up_to_the_limit(void **state)
{
    (void)state;
    for (unsigned i = 1; i < 4000; i++) {
        struct rme_limits random = {.read = 1};
        struct rme_plan_in in = base(0);
        struct rme_pack_limit limit = {i * 131 % 300000, i % 101 * 40, i % 13 * 500};

        in.send.segments = i % 7 * 32 + 2;
        in.send.kept = i % 2;
        in.eager_max = 0;
        in.limits = &random;
        *(in.send.kept ? &random.list : &random.once) = limit;
        in.bytes = limit.base + limit.segment * (in.send.segments - 1) +
                   limit.request * ((in.send.segments + 29) / 30 - 1);
        assert_true(decide(&in).send_pack);
        in.bytes++;
        assert_false(decide(&in).send_pack);
    }
}

/* What two adapters with windows, or with registrations in their place, plan. */
static struct rme_plan_in adapter(uint64_t bytes, bool each)
{
    struct rme_plan_in in = base(bytes);

    in.limits = &rme_limits_adapter;
    in.opens = !each;
    in.each = each;
    in.send.kept = in.recv.kept = true;
    return in;
}

/* Where opening memory is dear, a list is not offered, and an offer is read, whatever the
 * loads. */
static void dear_openings_decide_direction(void **state)
{
    (void)state;
    for (int each = 0; each < 2; each++) {
        struct rme_plan_in in = adapter(96 * KIB, each);
        in.sender = true;
        in.recv.segments = 0;
        assert_true(decide(&in).offer);
        in.send.segments = 8;
        assert_false(decide(&in).offer);
        assert_false(decide(&in).send_pack);
        in.sender = false;
        in.send = (struct rme_plan_side){.segments = 1, .ready = true};
        in.recv.segments = 1;
        assert_int_equal(decide(&in).proto, READ);
        in.recv.load = in.send.load = (struct rme_load){.ops = 1, .bytes = 96 * KIB};
        assert_int_equal(decide(&in).proto, READ);
        in.recv.segments = 8;
        assert_int_equal(decide(&in).proto, READ);
        assert_false(decide(&in).recv_pack); /* its registration stays cached */
        in.nothing_to_read = true;
        assert_true(decide(&in).recv_pack);
        in.opens = in.each = false;
        assert_false(decide(&in).recv_pack);
    }
}

/* A sender that knows of a list at the receiver opens its own memory: copied up to the price of
 * its openings, and in place as long as they cost less than a copy at the receiver. */
static void list_on_both_sides_is_offered(void **state)
{
    static const struct {
        uint64_t bytes, segments;
        bool each, pack, offer;
    } cases[] = {
        {64 * KIB, 8, false, true, true},   {256 * KIB, 8, false, false, true},
        {256 * KIB, 64, false, true, true}, {MIB, 64, false, false, true},
        {MIB, 512, false, false, false},    {256 * KIB, 8, true, true, true},
        {2 * MIB, 8, true, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rme_plan_in in = adapter(cases[i].bytes, cases[i].each);
        struct rme_plan plan;

        in.sender = true;
        in.send.segments = in.recv.segments = cases[i].segments;
        plan = decide(&in);
        if (plan.send_pack != cases[i].pack || plan.offer != cases[i].offer)
            fail_msg("row %zu: %s, %s", i, plan.send_pack ? "packs" : "in place", plan.why);
        in.recv.segments = 0;
        assert_true(!decide(&in).offer || decide(&in).send_pack);
    }
}

/* An adapter moves data without a processor: of loads only a heavy one decides.  An open offer
 * is read unless writes take fewer requests. */
static void adapter_ignores_light_loads(void **state)
{
    struct rme_plan_in in = adapter(MIB, false);

    (void)state;
    for (int receiver = 0; receiver < 2; receiver++) {
        in.send.load.ops = receiver ? 0 : 10;
        in.recv.load.ops = receiver ? 10 : 0;
        in.opens = true;
        assert_int_equal(decide(&in).proto, READ);
        in.early = true;
        assert_int_equal(decide(&in).proto, WRITE);
        in.early = in.opens = false;
        assert_int_equal(decide(&in).proto, READ);
        in.send.segments = 2;
        assert_int_equal(decide(&in).proto, WRITE);
        in.send.segments = 1;
    }
    in.recv.load.ops = 65;
    assert_int_equal(decide(&in).proto, WRITE);
}

/* Sizes of ring and cache: measured ones, or the price of a rendezvous and its openings. */
static void sizes_follow_openings(void **state)
{
    struct rme_plan_in in = adapter(0, false);

    (void)state;
    assert_int_equal(rme_plan_sizes(&in).ring, 23 * KIB);
    assert_int_equal(rme_plan_sizes(&in).cached, 23 * KIB);
    in.opens = false;
    assert_int_equal(rme_plan_sizes(&in).ring, 16 * KIB);
    in.each = true;
    assert_int_equal(rme_plan_sizes(&in).ring, 32 * KIB);
    assert_int_equal(rme_plan_sizes(&in).cached, 64 * KIB);
    in.limits = &limits;
    in.each = false;
    assert_int_equal(rme_plan_sizes(&in).ring, 32 * KIB);
    assert_int_equal(rme_plan_sizes(&in).cached, 64 * KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_is_eager),
        cmocka_unit_test(copies_equal_the_plan),
        cmocka_unit_test(rendezvous_direction_by_load),
        cmocka_unit_test(readable_memory_offered),
        cmocka_unit_test(early_cts_conditions),
        cmocka_unit_test(single_use_registration_must_pay),
        cmocka_unit_test(kept_registrations_are_not_for_one_use),
        cmocka_unit_test(requests_have_a_price),
        cmocka_unit_test(fragment_sizes),
        cmocka_unit_test(unknown_receiver),
        cmocka_unit_test(huge_sizes),
        cmocka_unit_test(explains_what_is_decided),
        cmocka_unit_test(explains_the_very_decisions),
        cmocka_unit_test(ring_used_up_to_its_size),
        cmocka_unit_test(lists_are_copied_up_to_the_limit),
        cmocka_unit_test(dear_openings_decide_direction),
        cmocka_unit_test(list_on_both_sides_is_offered),
        cmocka_unit_test(adapter_ignores_light_loads),
        cmocka_unit_test(sizes_follow_openings),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
