/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The codec: encoded messages decode to the same values, and others are rejected. */
#include "tests/unit/common/unit.h"
#include "embedded/iod/proto.h"

static uint8_t buf[IOD_REPLY_MAX + 64], packed[256];

static struct iod_message put_open(void)
{
    return (struct iod_message){.op = IOD_OP_PUT_OPEN,
                                .id = {3, UINT64_C(0x1122334455667788)},
                                .layout = {UINT64_C(5) << 30, 65536, 1, 4},
                                .mode = 0640,
                                .buffer_size = 1 << 20,
                                .buffers = 4,
                                .name = iod_string_of("a/b")};
}

static struct iod_entry entry_of(const char *name)
{
    return (struct iod_entry){.name = iod_string_of(name),
                              .layout = {7, 64, 0, 1},
                              .id = {1, 1},
                              .stored = 7,
                              .mtime = 99};
}

/* A reply to LIST with two objects. */
static struct iod_message list(void)
{
    struct iod_entry one = entry_of("one"), two = entry_of("two");
    struct iod_message m = {.op = IOD_OP_LIST, .flags = IOD_FLAG_MORE, .unread = 3};

    assert_true(iod_entry_append(&one, packed, sizeof packed, &m.entries.length));
    assert_true(iod_entry_append(&two, packed, sizeof packed, &m.entries.length));
    m.entries.count = 2;
    m.entries.wire = packed;
    return m;
}

static const enum iod_op all_ops[] = {
#define OP(id, number, name) IOD_OP_##id,
    IOD_OPS(OP)
#undef OP
};

#define OPS (sizeof all_ops / sizeof all_ops[0])

/* Requests of all operations, then their replies, then an error. */
static struct iod_message message(size_t i)
{
    struct iod_message m = {.op = all_ops[i % OPS],
                            .handle = UINT64_C(0xfedcba9876543210),
                            .data_tag = 77,
                            .id = {3, 7},
                            .layout = {100, 64, 0, 2},
                            .buffer_size = 65536,
                            .buffers = 2};

    if (i < OPS)
        m.name = iod_string_of("x");
    if (i == 2 * OPS)
        m = (struct iod_message){
            .op = IOD_OP_WRITE, .status = IOD_NO_SPACE, .text = iod_string_of("disk full")};
    else if (i >= OPS && m.op == IOD_OP_LIST)
        m = list();
    else if (i < OPS && m.op == IOD_OP_PUT_OPEN)
        m = put_open();
    return m;
}

static int decode(size_t i, const void *bytes, int64_t length, struct iod_message *out)
{
    return i < OPS ? iod_request_decode(bytes, (size_t)length, out)
                   : iod_reply_decode(bytes, (size_t)length, out);
}

static int64_t encode(size_t i, const struct iod_message *m, void *bytes, int64_t room)
{
    return i < OPS ? iod_request_encode(m, bytes, (size_t)room)
                   : iod_reply_encode(m, bytes, (size_t)room);
}

/* The wire format is fixed: the bytes of doc/iod-protocol.md. */
static void close_encoded_as_documented(void **state)
{
    static const uint8_t want[] = {'I', 'O', 'D', 'Q', 6, 0, 8, 0, 82, 0,
                                   0,   0,   8,   7,   6, 5, 4, 3, 2,  1};
    struct iod_message in = {.op = IOD_OP_CLOSE, .handle = UINT64_C(0x0102030405060708)};

    (void)state;
    assert_int_equal(iod_request_encode(&in, buf, sizeof buf), 82);
    assert_memory_equal(buf, want, sizeof want);
    assert_int_equal(iod_reply_encode(&in, buf, sizeof buf), 90);
}

/* Every prefix, and one byte more, is rejected, also if the length in the head agrees. */
static void wrong_lengths_rejected(void **state)
{
    struct iod_message out;

    (void)state;
    for (size_t i = 0; i <= 2 * OPS; i++) {
        struct iod_message in = message(i);
        int64_t n = encode(i, &in, buf, sizeof buf);

        assert_true(n > 0);
        buf[n] = 0;
        for (int64_t cut = 0; cut <= n + 1; cut += cut == n - 1 ? 2 : 1) {
            /* valgrind and ASan detect reads beyond the end */
            uint8_t *exact = malloc((size_t)cut + 1);

            assert_non_null(exact);
            memcpy(exact, buf, (size_t)cut);
            assert_int_equal(decode(i, exact, cut, &out), -EPROTO);
            if (cut >= 12) {
                exact[8] = (uint8_t)cut;
                exact[9] = (uint8_t)(cut >> 8);
                assert_int_not_equal(decode(i, exact, cut, &out), 0);
            }
            free(exact);
        }
        assert_int_equal(encode(i, &in, buf, n - 1), -EMSGSIZE);
        assert_int_equal(encode(i, &in, buf, n), n);
    }
    assert_int_equal(iod_reply_decode(buf, IOD_REPLY_MAX + 1, &out), -EPROTO);
}

static void values_out_of_range_refused(void **state)
{
    static char text[UINT16_MAX + 1];
    static uint8_t room[2 * sizeof text];
    struct iod_entry entry = {.name = {text, sizeof text}};
    struct iod_message r;
    uint32_t length = 0;

    (void)state;
    memset(text, 'n', sizeof text);
#define REFUSED(from, change, how)                                                             \
    r = from;                                                                                  \
    change;                                                                                    \
    assert_int_equal(iod_##how##_encode(&r, buf, sizeof buf), -EINVAL)
    REFUSED(put_open(), r.layout.size = IOD_SIZE_MAX + 1, request);
    REFUSED(put_open(), r.layout.strip = IOD_STRIP_MIN - 1, request);
    REFUSED(put_open(), r.layout.strip = IOD_STRIP_MAX + 1, request);
    REFUSED(put_open(), r.layout.count = 0, request);
    REFUSED(put_open(), r.layout.count = IOD_STRIPE_MAX + 1, request);
    REFUSED(put_open(), r.layout.index = 4, request);
    REFUSED(put_open(), r.id.upload = 0, request); /* part 0 only */
    REFUSED(put_open(), r.mode = 01000, request);
    REFUSED(put_open(), r.buffer_size = IOD_BUFFER_MIN - 1, request);
    REFUSED(put_open(), r.buffer_size = IOD_BUFFER_MAX + 1, request);
    REFUSED(put_open(), r.buffers = 0, request);
    REFUSED(put_open(), r.buffers = IOD_BUFFERS_MAX + 1, request);
    REFUSED(put_open(), r.name.length = 0, request);
    REFUSED(put_open(), r.name = ((struct iod_string){"a\0b", 3}), request);
    REFUSED(put_open(), r.name = ((struct iod_string){text, IOD_NAME_MAX + 1}), request);
    REFUSED(put_open(), r.op = IOD_OP_WRITE; r.data_tag = -1, request);
    REFUSED(put_open(), r.op = (enum iod_op)99, request);
    REFUSED(put_open(), r.op = (enum iod_op)99, reply);
    REFUSED(message(2 * OPS), r.text = ((struct iod_string){text, IOD_TEXT_MAX + 1}), reply);
    REFUSED(list(), r.entries.count = 3, reply);
    REFUSED(list(), r.entries.length--, reply);
#undef REFUSED
    assert_int_equal(iod_reply_encode(&(struct iod_message){.op = IOD_OP_CLOSE}, buf, 90), 90);
    buf[12] = 200; /* a status */
    assert_int_equal(iod_reply_decode(buf, 90, &r), -EPROTO);
    assert_false(iod_entry_append(&entry, room, sizeof room, &length));
    assert_int_equal(length, 0);
}

/* Any byte of any message changed to any value: the decoder rejects it, or the result encodes
 * to the same bytes, for which the encoder checks the same limits. */
static void changed_bytes_rejected_or_kept(void **state)
{
    static uint8_t again[IOD_REPLY_MAX];
    unsigned long accepted = 0, tried = 0;

    (void)state;
    for (size_t i = 0; i <= 2 * OPS; i++) {
        struct iod_message in = message(i), out;
        int64_t n = encode(i, &in, buf, sizeof buf);

        for (int64_t at = 0; at < n; at++)
            for (int value = 0; value < 256; value++, tried++) {
                uint8_t old = buf[at];

                buf[at] = (uint8_t)value;
                if (decode(i, buf, n, &out) == 0) {
                    accepted++;
                    assert_int_equal(encode(i, &out, again, sizeof again), n);
                    assert_memory_equal(again, buf, (size_t)n);
                }
                buf[at] = old;
            }
    }
    assert_true(accepted > 0 && accepted < tried);
}

static void list_reply_carries_its_entries(void **state)
{
    struct iod_message in = list(), out;
    struct iod_entry entry;
    uint32_t at = 0;

    (void)state;
    in.unread = 70000;
    assert_int_equal(
        iod_reply_decode(buf, (size_t)iod_reply_encode(&in, buf, sizeof buf), &out), 0);
    assert_true(out.flags == IOD_FLAG_MORE && out.unread == IOD_UNREAD_MAX);
    for (int n = 0; n < 2; n++) {
        assert_true(iod_entry_next(&out.entries, &at, &entry));
        assert_memory_equal(entry.name.text, n ? "two" : "one", 3);
        assert_true(entry.stored == 7 && entry.mtime == 99 && entry.layout.size == 7);
    }
    assert_false(iod_entry_next(&out.entries, &at, &entry));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_encoded_as_documented),
        cmocka_unit_test(wrong_lengths_rejected),
        cmocka_unit_test(values_out_of_range_refused),
        cmocka_unit_test(changed_bytes_rejected_or_kept),
        cmocka_unit_test(list_reply_carries_its_entries),
    };

    return cmocka_run_group_tests_name("iod/proto", tests, NULL, NULL);
}
