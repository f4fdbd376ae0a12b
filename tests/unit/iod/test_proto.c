/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The codec: encoded messages decode to the same values, and others are rejected. */
#include "tests/unit/common/unit.h"
#include "embedded/iod/proto.h"

static uint8_t buf[IOD_REPLY_MAX + 64];

static struct iod_string of(const char *text)
{
    return iod_string_of(text);
}

static void assert_text(const struct iod_string *got, const char *want)
{
    assert_int_equal(got->length, strlen(want));
    assert_memory_equal(got->text, want, got->length);
}

static struct iod_message put_open(void)
{
    return (struct iod_message){.op = IOD_OP_PUT_OPEN,
                                .id = {3, UINT64_C(0x1122334455667788)},
                                .layout = {UINT64_C(5) << 30, 65536, 1, 4},
                                .mode = 0640,
                                .buffer_size = 1 << 20,
                                .buffers = 4,
                                .name = of("a/b")};
}

static struct iod_message request_of(enum iod_op op)
{
    if (op == IOD_OP_PUT_OPEN)
        return put_open();
    return (struct iod_message){.op = op,
                                .handle = UINT64_C(0xfedcba9876543210),
                                .data_tag = 77,
                                .id = {3, 7},
                                .buffer_size = 65536,
                                .buffers = 2,
                                .name = of("x")};
}

static const enum iod_op all_ops[] = {
#define OP(id, number, name) IOD_OP_##id,
    IOD_OPS(OP)
#undef OP
};

#define OPS (sizeof all_ops / sizeof all_ops[0])

/* The wire format is fixed: the bytes of doc/iod-protocol.md. */
static void known_bytes(void **state)
{
    static const uint8_t want[] = {'I', 'O', 'D', 'Q', 6, 0, 8, 0, 82, 0,
                                   0,   0,   8,   7,   6, 5, 4, 3, 2,  1};
    struct iod_message in = {.op = IOD_OP_CLOSE, .handle = UINT64_C(0x0102030405060708)};

    (void)state;
    assert_int_equal(iod_request_encode(&in, buf, sizeof buf), 82);
    assert_memory_equal(buf, want, sizeof want);
}

/* Every prefix, and one byte more, is rejected, for every operation. */
static void wrong_lengths(void **state)
{
    struct iod_message out;

    (void)state;
    for (size_t i = 0; i < OPS; i++) {
        struct iod_message in = request_of(all_ops[i]);
        int64_t n = iod_request_encode(&in, buf, sizeof buf);

        assert_true(n > 0);
        for (int64_t cut = 0; cut < n; cut++) {
            /* valgrind and ASan detect reads beyond the end */
            uint8_t *exact = malloc((size_t)cut + 1);
            memcpy(exact, buf, (size_t)cut);
            assert_int_equal(iod_request_decode(exact, (size_t)cut, &out), -EPROTO);
            if (cut >= 12) { /* also when the head's length agrees */
                exact[8] = (uint8_t)cut;
                exact[9] = (uint8_t)(cut >> 8);
                assert_int_equal(iod_request_decode(exact, (size_t)cut, &out), -EPROTO);
            }
            free(exact);
        }
        buf[n] = 0;
        assert_int_equal(iod_request_decode(buf, (size_t)n + 1, &out), -EPROTO);
        buf[8] = (uint8_t)(n + 1);
        buf[9] = (uint8_t)((n + 1) >> 8);
        assert_int_equal(iod_request_decode(buf, (size_t)n + 1, &out), -EPROTO);
        assert_int_equal(iod_request_encode(&in, buf, (size_t)n - 1), -EMSGSIZE);
        assert_int_equal(iod_request_encode(&in, buf, (size_t)n), n);
    }
}

static void refused(const struct iod_message *request)
{
    assert_int_equal(iod_request_encode(request, buf, sizeof buf), -EINVAL);
}

static void values_out_of_range(void **state)
{
    struct iod_message r;
    char name[IOD_NAME_MAX + 2];

    (void)state;
#define REFUSED(change)                                                                        \
    r = put_open();                                                                            \
    change;                                                                                    \
    refused(&r)
    REFUSED(r.layout.size = IOD_SIZE_MAX + 1);
    REFUSED(r.layout.strip = IOD_STRIP_MIN - 1);
    REFUSED(r.layout.strip = IOD_STRIP_MAX + 1);
    REFUSED(r.layout.strip = 0);
    REFUSED(r.layout.count = 0);
    REFUSED(r.layout.count = IOD_STRIPE_MAX + 1);
    REFUSED(r.layout.index = 4);
    REFUSED(r.id.upload = 0); /* part 0 only */
    REFUSED(r.mode = 01000);
    REFUSED(r.buffer_size = IOD_BUFFER_MIN - 1);
    REFUSED(r.buffer_size = IOD_BUFFER_MAX + 1);
    REFUSED(r.buffers = 0);
    REFUSED(r.buffers = IOD_BUFFERS_MAX + 1);
    REFUSED(r.name = of(""));
    REFUSED(r.name = ((struct iod_string){"a\0b", 3}));
    REFUSED(r = request_of(IOD_OP_WRITE); r.data_tag = -1);
#undef REFUSED
    memset(name, 'n', sizeof name);
    r = put_open();
    r.name = (struct iod_string){name, IOD_NAME_MAX + 1};
    refused(&r);
    r.name.length = IOD_NAME_MAX;
    assert_true(iod_request_encode(&r, buf, sizeof buf) > 0);
}

/* The same checks in the decoder: a valid message with one field changed. */
static void values_out_of_range_on_the_wire(void **state)
{
    struct iod_message in = put_open(), out;
    int64_t n = iod_request_encode(&in, buf, sizeof buf);
    const size_t at_strip = 12 + 8 + 8, at_index = at_strip + 8, at_count = at_index + 4;

    (void)state;
    memset(buf + at_strip, 0, 8);
    assert_int_equal(iod_request_decode(buf, (size_t)n, &out), -EINVAL);
    assert_int_equal(iod_request_encode(&in, buf, sizeof buf), n);
    buf[at_index] = 4;
    assert_int_equal(iod_request_decode(buf, (size_t)n, &out), -EINVAL);
    assert_int_equal(iod_request_encode(&in, buf, sizeof buf), n);
    buf[at_count] = 0;
    assert_int_equal(iod_request_decode(buf, (size_t)n, &out), -EINVAL);
}

static void round_trip_replies(void **state)
{
    struct iod_message in = {.op = IOD_OP_GET_OPEN,
                             .handle = 5,
                             .id = {4, 6},
                             .layout = {100, 64, 0, 2},
                             .mode = 0755,
                             .buffer_size = 4096,
                             .buffers = 1};
    struct iod_message out;
    int64_t n = iod_reply_encode(&in, buf, sizeof buf);

    (void)state;
    assert_int_equal(iod_reply_decode(buf, (size_t)n, &out), 0);
    assert_true(out.handle == 5 && out.id.origin == 4 && out.id.upload == 6 &&
                out.mode == 0755 && out.buffers == 1);
    assert_memory_equal(&out.layout, &in.layout, sizeof in.layout);
    for (int64_t cut = 0; cut < n; cut++)
        assert_int_equal(iod_reply_decode(buf, (size_t)cut, &out), -EPROTO);
    in.layout.index = 2;
    assert_int_equal(iod_reply_encode(&in, buf, sizeof buf), -EINVAL);
}

static void error_replies(void **state)
{
    char long_text[IOD_TEXT_MAX + 2];
    struct iod_message in = {
        .op = IOD_OP_WRITE, .status = IOD_NO_SPACE, .text = of("the disk is full")};
    struct iod_message out;
    int64_t n = iod_reply_encode(&in, buf, sizeof buf);

    (void)state;
    assert_int_equal(iod_reply_decode(buf, (size_t)n, &out), 0);
    assert_int_equal(out.status, IOD_NO_SPACE);
    assert_text(&out.text, "the disk is full");
    buf[12] = 200; /* an unknown status */
    assert_int_equal(iod_reply_decode(buf, (size_t)n, &out), -EPROTO);
    memset(long_text, 't', sizeof long_text);
    in.text = (struct iod_string){long_text, IOD_TEXT_MAX + 1};
    assert_int_equal(iod_reply_encode(&in, buf, sizeof buf), -EINVAL);
    in = (struct iod_message){.op = IOD_OP_SEAL, .flags = IOD_FLAG_WORKING};
    assert_int_equal(iod_reply_encode(&in, buf, sizeof buf), 90);
    assert_int_equal(iod_reply_decode(buf, 90, &out), 0);
    assert_true(out.flags & IOD_FLAG_WORKING);
}

/* Unknown operations, and fields longer than their length can express. */
static void beyond_the_format(void **state)
{
    static char long_name[UINT16_MAX + 1];
    static uint8_t room[2 * sizeof long_name];
    struct iod_message request = {.op = (enum iod_op)99}, asked;
    struct iod_message reply = {.op = (enum iod_op)99}, out;
    struct iod_entry entry = {.name = {long_name, sizeof long_name}};
    uint32_t length = 0;

    (void)state;
    memset(long_name, 'n', sizeof long_name);
    assert_int_equal(iod_request_encode(&request, buf, sizeof buf), -EINVAL);
    assert_int_equal(iod_reply_encode(&reply, buf, sizeof buf), -EINVAL);
    request.op = IOD_OP_CLOSE;
    assert_int_equal(iod_request_encode(&request, buf, sizeof buf), 82);
    buf[6] = 99;
    assert_int_equal(iod_request_decode(buf, 82, &asked), -EINVAL);
    reply.op = IOD_OP_CLOSE;
    assert_int_equal(iod_reply_encode(&reply, buf, sizeof buf), 90);
    buf[6] = 99;
    assert_int_equal(iod_reply_decode(buf, 90, &out), -EINVAL);
    assert_int_equal(iod_reply_decode(buf, IOD_REPLY_MAX + 1, &out), -EPROTO);
    assert_false(iod_entry_append(&entry, room, sizeof room, &length));
    assert_int_equal(length, 0);
}

static void list_replies(void **state)
{
    static uint8_t packed[4096];
    struct iod_entry entry = {.layout = {7, 64, 0, 1}, .id = {1, 1}, .stored = 7, .mtime = 99};
    struct iod_message in = {.op = IOD_OP_LIST}, out;
    uint32_t length = 0, at = 0, n = 0;
    int64_t bytes;

    (void)state;
    entry.name = of("one");
    assert_true(iod_entry_append(&entry, packed, sizeof packed, &length));
    entry.name = of("two");
    assert_true(iod_entry_append(&entry, packed, sizeof packed, &length));
    assert_false(iod_entry_append(&entry, packed, length + 10, &length));
    in.entries = (struct iod_entries){.count = 2, .length = length, .wire = packed};
    in.flags = IOD_FLAG_MORE;
    for (uint32_t i = 0; i < 3; i++) {
        in.unread = (const uint32_t[]){0, 3, 70000}[i];
        bytes = iod_reply_encode(&in, buf, sizeof buf);
        assert_int_equal(iod_reply_decode(buf, (size_t)bytes, &out), 0);
        assert_int_equal(out.flags, IOD_FLAG_MORE);
        assert_int_equal(out.unread, i < 2 ? in.unread : IOD_UNREAD_MAX);
    }
    while (iod_entry_next(&out.entries, &at, &entry)) {
        assert_text(&entry.name, n ? "two" : "one");
        assert_true(entry.stored == 7 && entry.mtime == 99);
        n++;
    }
    assert_int_equal(n, 2);
    in.entries.count = 3;
    assert_int_equal(iod_reply_encode(&in, buf, sizeof buf), -EINVAL);
    in.entries.count = 2;
    in.entries.length--; /* the last name is truncated */
    assert_int_equal(iod_reply_encode(&in, buf, sizeof buf), -EINVAL);
    entry.name = of("");
    length = 0;
    assert_true(iod_entry_append(&entry, packed, sizeof packed, &length));
    in.entries = (struct iod_entries){.count = 1, .length = length, .wire = packed};
    assert_int_equal(iod_reply_encode(&in, buf, sizeof buf), -EINVAL);
    in.entries = (struct iod_entries){0};
    assert_true(iod_reply_encode(&in, buf, sizeof buf) > 0);
}

/* Any byte of any request changed to any value: the decoder rejects it, or the result encodes
 * to the same bytes. */
static void changed_bytes(void **state)
{
    static uint8_t again[IOD_REQUEST_MAX];
    unsigned long accepted = 0, tried = 0;

    (void)state;
    for (size_t i = 0; i < OPS; i++) {
        struct iod_message in = request_of(all_ops[i]), out;
        int64_t n = iod_request_encode(&in, buf, sizeof buf);

        for (int64_t at = 0; at < n; at++)
            for (int value = 0; value < 256; value++) {
                uint8_t old = buf[at];
                buf[at] = (uint8_t)value;
                tried++;
                if (iod_request_decode(buf, (size_t)n, &out) == 0) {
                    accepted++;
                    assert_int_equal(iod_request_encode(&out, again, sizeof again), n);
                    assert_memory_equal(again, buf, (size_t)n);
                }
                buf[at] = old;
            }
    }
    assert_true(accepted > 0 && accepted < tried);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_bytes),
        cmocka_unit_test(wrong_lengths),
        cmocka_unit_test(values_out_of_range),
        cmocka_unit_test(values_out_of_range_on_the_wire),
        cmocka_unit_test(round_trip_replies),
        cmocka_unit_test(error_replies),
        cmocka_unit_test(list_replies),
        cmocka_unit_test(beyond_the_format),
        cmocka_unit_test(changed_bytes),
    };

    return cmocka_run_group_tests_name("iod/proto", tests, NULL, NULL);
}
