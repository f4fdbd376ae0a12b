/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Encoding of packets in a slot, and rejection of invalid ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "bmi_elan4/packet.h"

static void packet_encoding(void **state)
{
    static const uint8_t golden[ELAN_HEADER] = {0xb1, 4, 0x34, 0x02, 5, 0, 0,    0, 8, 7, 6,
                                                5,    4, 3,    2,    1, 9, 0,    0, 0, 3, 0,
                                                0,    0, 0x00, 0x10, 0, 0, 0x60, 7, 0, 0};
    struct elan_packet p = {.kind = ELAN_MESSAGE,
                            .bytes = 0x234,
                            .link = 5,
                            .to = 0x0102030405060708,
                            .seq = 9,
                            .from = 3,
                            .arg = 4096,
                            .offset = 0x760};
    struct elan_packet back;
    uint8_t bytes[ELAN_HEADER];
    (void)state;
    elan_packet_encode(&p, bytes);
    assert_memory_equal(bytes, golden, sizeof(bytes));
    assert_int_equal(elan_packet_decode(bytes, &back), 0);
    assert_int_equal(back.kind, p.kind);
    assert_int_equal(back.bytes, p.bytes);
    assert_int_equal(back.link, p.link);
    assert_true(back.to == p.to);
    assert_int_equal(back.seq, p.seq);
    assert_int_equal(back.from, p.from);
    assert_int_equal(back.arg, p.arg);
    assert_int_equal(back.offset, p.offset);
}

static int decoded(struct elan_packet p, uint8_t version)
{
    uint8_t bytes[ELAN_HEADER];

    elan_packet_encode(&p, bytes);
    bytes[0] = version;
    return elan_packet_decode(bytes, &p);
}

static void invalid_packets_refused(void **state)
{
    struct elan_packet p = {.kind = ELAN_MESSAGE, .bytes = 100, .arg = 200, .offset = 100};
    (void)state;
    assert_int_equal(decoded(p, 0xb1), 0);
    assert_int_equal(decoded(p, 0xb2), -EPROTO);
    p.offset = 101; /* behind the end of its message */
    assert_int_equal(decoded(p, 0xb1), -EPROTO);
    p.offset = UINT32_MAX - 50; /* wraps around */
    assert_int_equal(decoded(p, 0xb1), -EPROTO);
    p = (struct elan_packet){.kind = ELAN_HELLO, .bytes = ELAN_BODY};
    assert_int_equal(decoded(p, 0xb1), 0);
    p.bytes++;
    assert_int_equal(decoded(p, 0xb1), -EPROTO);
    p = (struct elan_packet){.kind = ELAN_KIND_COUNT};
    assert_int_equal(decoded(p, 0xb1), -EPROTO);
}

static void packet_kinds_ordered(void **state)
{
    (void)state;
    assert_true(elan_kind_ordered(ELAN_MESSAGE) && elan_kind_ordered(ELAN_IMM));
    assert_true(elan_kind_ordered(ELAN_ACCEPT) && elan_kind_ordered(ELAN_BYE));
    assert_false(elan_kind_ordered(ELAN_HELLO) || elan_kind_ordered(ELAN_REJECT));
    assert_false(elan_kind_ordered(ELAN_LEFT) || elan_kind_ordered(ELAN_DONE));
    assert_false(elan_kind_ordered(ELAN_KIND_COUNT));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(packet_encoding),
        cmocka_unit_test(invalid_packets_refused),
        cmocka_unit_test(packet_kinds_ordered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
