/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The wire codec: golden bytes (fixed within a protocol version), and invalid messages. */
#include "unit.h"
#include "wire/wire.h"

#define ROOM 256

/* One message of each type with all fields, and its bytes by doc/wire-protocol.md. */
struct golden {
    struct rme_wire_message message;
    const char *hex;
    struct rme_wire_segment segment[2];
};

static const struct golden goldens[] = {
    {.message = {.type = RME_WIRE_EAGER,
                 .flags = 1,
                 .credits = 0x0203,
                 .eager_consumed = 0x04050607,
                 .unexpected_consumed = 0x08090a0b,
                 .tag = -2},
     .hex = "01010302070605040b0a0908feffffff"},
    {.message = {.type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED, .tag = 7},
     .hex = "01020000000000000000000007000000"},
    {.message = {.type = RME_WIRE_RTS,
                 .flags = RME_WIRE_F_UNEXPECTED,
                 .tag = 5,
                 .from = 0x11223344,
                 .shape = 3,
                 .total = 0x100000002ULL,
                 .load_bytes = 0x0102030405060708ULL,
                 .load_ops = 9,
                 .nsegment = 1},
     .hex = "02020000000000000000000005000000"
            "0000000044332211000000000000000002000000010000000807060504030201"
            "09000000000000000300000001000000"
            "0010000000000000bbaa0000000000000200000001000000",
     .segment = {{0x1000, 0xaabb, 0x100000002ULL}}},
    {.message = {.type = RME_WIRE_CTS, .to = 1, .from = 2, .offset = 0x300, .nsegment = 2},
     .hex = "03000000000000000000000000000000"
            "0100000002000000000300000000000000000000000000000000000000000000"
            "00000000000000000000000002000000"
            "100000000000000001000000000000000200000000000000"
            "200000000000000003000000000000000400000000000000",
     .segment = {{0x10, 1, 2}, {0x20, 3, 4}}},
    {.message = {.type = RME_WIRE_FIN, .to = 1, .status = RME_WIRE_TOO_LARGE, .offset = 4},
     .hex = "04000000000000000000000000000000"
            "0100000000000000040000000000000000000000000000000000000000000000"
            "00000000010000000000000000000000"},
    {.message = {.type = RME_WIRE_CREDIT, .credits = 4},
     .hex = "06000400000000000000000000000000"},
    {.message = {.type = RME_WIRE_CREDIT, .credits = 1, .tag = 0x0102},
     .hex = "06000100000000000000000002010000"},
    {.message = {.type = RME_WIRE_CANCEL,
                 .flags = RME_WIRE_F_FROM_SENDER,
                 .tag = 6,
                 .to = 1,
                 .from = 2},
     .hex = "05080000000000000000000006000000"
            "0100000002000000000000000000000000000000000000000000000000000000"
            "00000000000000000000000000000000"},
    {.message = {.type = RME_WIRE_PING}, .hex = "08000000000000000000000000000000"},
    {.message = {.type = RME_WIRE_PONG}, .hex = "09000000000000000000000000000000"},
    {.message = {.type = RME_WIRE_PING, .tag = 56}, .hex = "08000000000000000000000038000000"},
    {.message = {.type = RME_WIRE_PONG, .tag = 0x201},
     .hex = "09000000000000000000000001020000"},
    {.message = {.type = RME_WIRE_BYE}, .hex = "07000000000000000000000000000000"},
    {.message = {.type = RME_WIRE_FIN,
                 .flags = RME_WIRE_F_EAGER,
                 .tag = -2,
                 .to = 5,
                 .status = RME_WIRE_TOO_LARGE,
                 .offset = 6,
                 .total = 7},
     .hex = "040200000000000000000000feffffff"
            "0500000000000000060000000000000007000000000000000000000000000000"
            "00000000010000000000000000000000"},
    {.message = {.type = RME_WIRE_CTS,
                 .flags = RME_WIRE_F_UNSOLICITED,
                 .tag = 3,
                 .to = 1,
                 .from = 2,
                 .nsegment = 1},
     .hex = "03100000000000000000000003000000"
            "0100000002000000000000000000000000000000000000000000000000000000"
            "00000000000000000000000001000000"
            "100000000000000001000000000000000200000000000000",
     .segment = {{0x10, 1, 2}}},
    {.message =
         {.type = RME_WIRE_CREDIT, .flags = RME_WIRE_F_GRANT, .credits = 2, .nsegment = 1},
     .hex = "06040200000000000000000000000000"
            "100000000000000001000000000000000000080000000000",
     .segment = {{0x10, 1, 0x80000}}},
    {.message = {.type = RME_WIRE_CREDIT, .flags = RME_WIRE_F_WITHDRAW},
     .hex = "06080000000000000000000000000000"},
    {.message = {.type = RME_WIRE_CREDIT, .flags = RME_WIRE_F_RELEASE, .credits = 1},
     .hex = "06100100000000000000000000000000"},
};

#define GOLDENS (sizeof(goldens) / sizeof(goldens[0]))

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        unsigned byte;

        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return n;
}

static void segments_are_golden(const struct golden *g, const struct rme_wire_message *m)
{
    struct rme_wire_segment segment;

    assert_int_equal(m->nsegment, g->message.nsegment);
    for (uint32_t s = 0; s < m->nsegment; s++) {
        rme_wire_segment_at(m, s, &segment);
        assert_memory_equal(&segment, &g->segment[s], sizeof(segment));
    }
}

/* Every truncated message is malformed; bytes behind its end are ignored. */
static void messages_are_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDENS; i++) {
        const struct golden *g = &goldens[i];
        uint8_t want[ROOM] = {0}, got[ROOM];
        size_t length = unhex(g->hex, want);
        struct rme_wire_message m;

        memset(got, 0xee, sizeof(got));
        assert_int_equal(rme_wire_length(g->message.type, g->message.nsegment), length);
        rme_wire_encode(&g->message, got);
        for (uint32_t s = 0; s < g->message.nsegment; s++)
            rme_wire_put_segment(got, g->message.type, s, &g->segment[s]);
        assert_memory_equal(got, want, length);
        assert_int_equal(got[length], 0xee);
        for (size_t bytes = 0; bytes < length; bytes++) {
            uint8_t *tight = malloc(bytes + 1); /* sanitizers detect reads beyond it */

            assert_non_null(tight);
            memcpy(tight, want, bytes);
            assert_int_equal(rme_wire_decode(tight, bytes, &m), -EPROTO);
            free(tight);
        }
        for (size_t more = 0; more <= 8; more += 8) {
            assert_int_equal(rme_wire_decode(want, length + more, &m), 0);
            assert_memory_equal(&m, &g->message,
                                offsetof(struct rme_wire_message, rndv_window));
            segments_are_golden(g, &m);
        }
    }
}

/* A field that the type does not use must be 0. */
static void unused_fields_are_checked(void **state)
{
    static const struct {
        struct rme_wire_message whole; /* with each field that the type uses */
        const char *unused;            /* offsets of the others in the body */
    } cases[] = {
        {{.type = RME_WIRE_RTS,
          .from = 1,
          .total = 1,
          .load_bytes = 1,
          .load_ops = 1,
          .shape = 1},
         "\x00\x08\x24"},
        {{.type = RME_WIRE_CTS, .to = 1, .from = 1, .offset = 1, .shape = 1},
         "\x10\x18\x20\x24"},
        {{.type = RME_WIRE_FIN, .to = 1, .from = 1, .offset = 1, .status = 1, .shape = 1},
         "\x10\x18\x20\x2c"},
        {{.type = RME_WIRE_FIN,
          .flags = RME_WIRE_F_EAGER,
          .to = 1,
          .from = 1,
          .offset = 1,
          .total = 1,
          .status = 1,
          .shape = 1},
         "\x18\x20\x2c"},
        {{.type = RME_WIRE_CANCEL, .to = 1, .from = 1}, "\x08\x10\x18\x20\x24\x28\x2c"},
    };
    uint8_t bytes[ROOM] = {0};
    struct rme_wire_message m;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *at = cases[i].unused;

        rme_wire_encode(&cases[i].whole, bytes);
        assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), 0);
        do {
            bytes[RME_WIRE_HEADER_SIZE + *at] = 1;
            assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), -EPROTO);
            bytes[RME_WIRE_HEADER_SIZE + *at] = 0;
        } while (*++at != 0);
    }
}

/* On a host of the other byte order each member of what is encoded is reversed. */
static void members_are_reversed_by_byte_order(void **state)
{
#define MEMBER(type, member)                                                                   \
    {                                                                                          \
        offsetof(struct type, member), sizeof(((struct type *)NULL)->member)                   \
    }
#define MESSAGE(member) MEMBER(rme_wire_message, member)
#define HELLO(member)   MEMBER(rme_hello, member)
    static const struct {
        const char *members;
        struct {
            size_t at, size;
        } member[16];
    } cases[] = {
        {RME_WIRE_HEADER RME_WIRE_BODY,
         {MESSAGE(type), MESSAGE(flags), MESSAGE(credits), MESSAGE(eager_consumed),
          MESSAGE(unexpected_consumed), MESSAGE(tag), MESSAGE(to), MESSAGE(from),
          MESSAGE(offset), MESSAGE(total), MESSAGE(load_bytes), MESSAGE(load_ops),
          MESSAGE(status), MESSAGE(shape), MESSAGE(nsegment)}},
        {RME_WIRE_SEGMENT,
         {MEMBER(rme_wire_segment, address), MEMBER(rme_wire_segment, key),
          MEMBER(rme_wire_segment, length)}},
        {RME_WIRE_HELLO,
         {HELLO(magic), HELLO(version), HELLO(version_min), HELLO(length), HELLO(flags),
          HELLO(incarnation), HELLO(rx_size), HELLO(credits), HELLO(eager_window),
          HELLO(unexpected_window), HELLO(rts_max)}},
        {RME_WIRE_REJECT,
         {MEMBER(rme_reject, magic), MEMBER(rme_reject, version),
          MEMBER(rme_reject, version_min), MEMBER(rme_reject, length),
          MEMBER(rme_reject, reason), MEMBER(rme_reject, acceptable)}},
    };

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        uint8_t bytes[ROOM];

        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (uint8_t)k;
        rme_wire_swap(bytes, cases[c].members);
        for (unsigned i = 0; i < 16 && cases[c].member[i].size > 0; i++)
            for (size_t k = 0, size = cases[c].member[i].size; k < size; k++)
                assert_int_equal(bytes[cases[c].member[i].at + k],
                                 cases[c].member[i].at + size - 1 - k);
        assert_int_equal(bytes[ROOM - 1], ROOM - 1);
    }
}

static void segments_that_cannot_be(void **state)
{
    struct rme_wire_message m = {.type = RME_WIRE_CTS, .nsegment = 2};
    struct rme_wire_segment huge = {0, 1, UINT64_MAX}, wraps = {UINT64_MAX - 1, 1, 4},
                            one = {0, 1, 1};
    struct rme_wire_message rts = {.type = RME_WIRE_RTS, .nsegment = 1, .total = 10};
    struct rme_wire_segment eleven = {0, 1, 11};
    uint8_t bytes[ROOM];

    (void)state;
    rme_wire_encode(&m, bytes);
    rme_wire_put_segment(bytes, m.type, 0, &huge);
    rme_wire_put_segment(bytes, m.type, 1, &one);
    assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), -EPROTO);
    rme_wire_put_segment(bytes, RME_WIRE_CTS, 0, &wraps);
    assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), -EPROTO);
    rme_wire_encode(&rts, bytes);
    rme_wire_put_segment(bytes, rts.type, 0, &eleven);
    assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), -EPROTO);
    rts.nsegment = UINT32_MAX;
    rme_wire_encode(&rts, bytes);
    assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), -EPROTO);
}

/* A message in the ring: its bytes; and messages with an invalid length, type or room. */
static void fast_messages(void **state)
{
    static const char hex[] = "01000300050000000600000009000000"
                              "04000000000000000000000000000000"
                              "70617970";
    struct rme_wire_message message = {.type = RME_WIRE_EAGER,
                                       .credits = 3,
                                       .eager_consumed = 5,
                                       .unexpected_consumed = 6,
                                       .tag = 9};
    uint8_t want[ROOM], got[ROOM];

    (void)state;
    assert_int_equal(unhex(hex, want), 36);
    memset(got, 0xee, sizeof(got));
    rme_wire_encode_ring(&message, 4, got);
    memcpy(got + RME_WIRE_RING_SIZE, "payp", 4);
    assert_memory_equal(got, want, 36);
    assert_int_equal(rme_wire_decode_ring(want, 36, &message), 0);
    assert_int_equal(message.type, RME_WIRE_EAGER);
    assert_int_equal(message.credits, 3);
    assert_int_equal(message.eager_consumed, 5);
    assert_int_equal(message.unexpected_consumed, 6);
    assert_int_equal(message.tag, 9);
    assert_int_equal(message.payload_length, 4);
    assert_ptr_equal(message.payload, want + RME_WIRE_RING_SIZE);
    for (size_t room = 0; room < 36; room++)
        assert_int_equal(rme_wire_decode_ring(want, room, &message), -EPROTO);
    for (unsigned type = 0; type < 256; type++) {
        want[0] = (uint8_t)type;
        want[1] = RME_WIRE_F_OPTIONAL;
        assert_int_equal(rme_wire_decode_ring(want, 36, &message),
                         type == RME_WIRE_EAGER ? 0 : -EPROTO);
    }
    want[0] = RME_WIRE_EAGER;
    want[1] = RME_WIRE_F_UNEXPECTED;
    assert_int_equal(rme_wire_decode_ring(want, 36, &message), 0);
    assert_int_equal(message.flags, RME_WIRE_F_UNEXPECTED);
    want[19] = 0x80;
    assert_int_equal(rme_wire_decode_ring(want, 36, &message), -EPROTO);
}

static void unknown_types(void **state)
{
    uint8_t bytes[RME_WIRE_HEADER_SIZE] = {0x70};
    struct rme_wire_message m;

    (void)state;
    assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), -EPROTO);
    bytes[1] = RME_WIRE_F_OPTIONAL;
    bytes[2] = 3;
    assert_int_equal(rme_wire_decode(bytes, sizeof(bytes), &m), -EOPNOTSUPP);
    assert_int_equal(m.credits, 3);
    assert_string_equal(rme_wire_type_name(0x70), "unknown");
    assert_string_equal(rme_wire_type_name(RME_WIRE_RTS), "RTS");
}

static void segments_that_fit(void **state)
{
    (void)state;
    assert_int_equal(rme_wire_segments_max(RME_WIRE_RTS, rme_wire_length(RME_WIRE_RTS, 0)), 0);
    assert_int_equal(rme_wire_segments_max(RME_WIRE_RTS, 10), 0);
    assert_int_equal(rme_wire_segments_max(RME_WIRE_RTS, 4096), 168);
    assert_true(rme_wire_length(RME_WIRE_CTS, rme_wire_segments_max(RME_WIRE_CTS, 1024)) <=
                1024);
    assert_int_equal(rme_wire_segments_max(RME_WIRE_CTS, SIZE_MAX), UINT32_MAX);
}

static void statuses_are_errors(void **state)
{
    static const int errors[] = {0, -EMSGSIZE, -ECANCELED, -ENOMEM};

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        assert_int_equal(rme_wire_status_error(rme_wire_status_of(errors[i])), errors[i]);
    assert_int_equal(rme_wire_status_error(rme_wire_status_of(-EFAULT)), -EPROTO);
    assert_int_equal(rme_wire_status_error(12345), -EPROTO);
}

/* ---- Connection data ---- */

static const struct rme_hello example = {
    .magic = RME_WIRE_MAGIC,
    .version = RME_WIRE_VERSION,
    .version_min = RME_WIRE_VERSION_MIN,
    .length = RME_HELLO_SIZE,
    .flags = RME_HELLO_F_SERVER | RME_HELLO_F_READ,
    .incarnation = 0x1122334455667788ULL,
    .rx_size = 4096,
    .credits = 8,
    .eager_window = 0x100000,
    .unexpected_window = 0x40000,
    .rts_max = 0x10000,
};

static const char example_hex[] =
    "524d4531040428038877665544332211001000000800000000001000000004000000010000000000";

static void hello_is_golden(void **state)
{
    uint8_t got[RME_HELLO_SIZE], want[RME_HELLO_MAX] = {0};
    struct rme_reject why;
    struct rme_hello back;

    (void)state;
    assert_true(RME_HELLO_SIZE <= RME_HELLO_MAX);
    assert_int_equal(unhex(example_hex, want), RME_HELLO_SIZE);
    rme_hello_encode(&example, got);
    assert_memory_equal(got, want, sizeof(got));
    assert_int_equal(rme_hello_decode(want, sizeof(want), &back, &why), 0); /* padded */
    assert_memory_equal(&back, &example, sizeof(back));
}

static void hello_of_another_version(void **state)
{
    uint8_t bytes[RME_HELLO_MAX] = {0};
    struct rme_reject why;
    struct rme_hello back;

    (void)state;
    rme_hello_encode(&example, bytes);
    bytes[4] = 9; /* version 9, compatible with 4, with unknown data at the end */
    bytes[6] = RME_HELLO_MAX;
    assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), 0);
    assert_int_equal(back.rx_size, example.rx_size);
    bytes[5] = 5; /* not compatible with 4 */
    assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), -EPROTO);
    assert_int_equal(why.reason, RME_REJECT_VERSION);
    bytes[4] = bytes[5] = 3; /* an older release */
    assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), -EPROTO);
    assert_int_equal(why.reason, RME_REJECT_VERSION);
    assert_int_equal(why.acceptable, RME_WIRE_VERSION_MIN);
}

static void hello_that_is_refused(void **state)
{
    uint8_t bytes[RME_HELLO_SIZE];
    struct rme_hello bad = example, back;
    struct rme_reject why;

    (void)state;
    for (size_t length = 0; length < RME_HELLO_SIZE; length++) {
        rme_hello_encode(&example, bytes);
        assert_int_equal(rme_hello_decode(bytes, length, &back, &why), -EPROTO);
        assert_int_equal(why.reason, RME_REJECT_MAGIC);
    }
    bytes[0] ^= 1;
    assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), -EPROTO);
    assert_int_equal(why.reason, RME_REJECT_MAGIC);
    bad.rx_size = RME_HELLO_RX_MIN - 1;
    rme_hello_encode(&bad, bytes);
    assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), -EPROTO);
    assert_int_equal(why.reason, RME_REJECT_RX_SIZE);
    assert_int_equal(why.acceptable, RME_HELLO_RX_MIN);
    bad = example;
    bad.credits = 1; /* enough in an answer */
    rme_hello_encode(&bad, bytes);
    assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), 0);
    assert_int_equal(back.credits, 1);
    bad.credits = 0;
    rme_hello_encode(&bad, bytes);
    assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), -EPROTO);
    assert_int_equal(why.reason, RME_REJECT_CREDITS);
    for (int i = 0; i < 3; i++) {
        bad = example;
        *(uint32_t *[]){&bad.eager_window, &bad.unexpected_window, &bad.rts_max}[i] = 0;
        rme_hello_encode(&bad, bytes);
        assert_int_equal(rme_hello_decode(bytes, sizeof(bytes), &back, &why), -EPROTO);
        assert_int_equal(why.reason, RME_REJECT_LIMITS);
        assert_int_equal(why.acceptable, 1);
    }
}

static void reject_gives_back(void **state)
{
    const struct rme_reject why = {.reason = RME_REJECT_RX_SIZE, .acceptable = 512};
    uint8_t bytes[RME_REJECT_SIZE], want[RME_REJECT_SIZE];
    struct rme_reject back;

    (void)state;
    rme_reject_encode(&why, bytes);
    unhex("524d4531040410030002000000000000", want);
    assert_memory_equal(bytes, want, sizeof(want));
    assert_int_equal(rme_reject_decode(bytes, sizeof(bytes), &back), 0);
    assert_int_equal(back.reason, why.reason);
    assert_int_equal(back.acceptable, why.acceptable);
    for (size_t length = 0; length < sizeof(bytes); length++)
        assert_int_equal(rme_reject_decode(bytes, length, &back), -EPROTO);
    assert_string_equal(rme_reject_text(RME_REJECT_VERSION), "no common protocol version");
    assert_string_equal(rme_reject_text(RME_REJECT_MEMORY),
                        "no memory, or the host holds its share (rx_buffered_bytes)");
    assert_non_null(rme_reject_text(200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_golden),
        cmocka_unit_test(unused_fields_are_checked),
        cmocka_unit_test(members_are_reversed_by_byte_order),
        cmocka_unit_test(segments_that_cannot_be),
        cmocka_unit_test(unknown_types),
        cmocka_unit_test(fast_messages),
        cmocka_unit_test(segments_that_fit),
        cmocka_unit_test(statuses_are_errors),
        cmocka_unit_test(hello_is_golden),
        cmocka_unit_test(hello_of_another_version),
        cmocka_unit_test(hello_that_is_refused),
        cmocka_unit_test(reject_gives_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
