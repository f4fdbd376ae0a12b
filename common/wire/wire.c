/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "wire/wire.h"

#define put16 rme_wire_put16
#define put32 rme_wire_put32
#define get16 rme_wire_get16
#define get32 rme_wire_get32

static void put64(uint8_t *at, uint64_t value)
{
    put32(at, (uint32_t)value);
    put32(at + 4, (uint32_t)(value >> 32));
}

static uint64_t get64(const uint8_t *at)
{
    return (uint64_t)get32(at) | (uint64_t)get32(at + 4) << 32;
}

/* ---- Messages ---- */

#define AT(field) offsetof(struct rme_wire_message, field)

/* A field of a body; `width` 8 belongs to a uint64_t, 2 and 4 to a uint32_t of the message. */
struct field {
    uint8_t at; /* in the body */
    uint8_t width;
    uint8_t member; /* offset in struct rme_wire_message */
};

/* Bytes and fields of each body: the part between header and segments. */
static const struct body {
    uint8_t size;
    struct field field[7]; /* ended by a width of 0 */
} bodies[] = {
    [RME_WIRE_RTS] = {32,
                      {{0, 4, AT(from)},
                       {4, 2, AT(nsegment)},
                       {6, 2, AT(shape)},
                       {8, 8, AT(total)},
                       {16, 8, AT(load_bytes)},
                       {24, 4, AT(load_ops)}}},
    [RME_WIRE_CTS] =
        {24, {{0, 4, AT(to)}, {4, 4, AT(from)}, {8, 8, AT(offset)}, {16, 2, AT(nsegment)}}},
    [RME_WIRE_FIN] =
        {24, {{0, 4, AT(to)}, {4, 4, AT(status)}, {8, 8, AT(offset)}, {16, 8, AT(total)}}},
    [RME_WIRE_CANCEL] = {8, {{0, 4, AT(to)}, {4, 4, AT(from)}}},
    [RME_WIRE_PONG] = {0, {{0, 0, 0}}}, /* the last type; the others have no body */
};

static bool is_known(uint8_t type)
{
    return type != 0 && type < sizeof(bodies) / sizeof(bodies[0]);
}

/* Returns the bytes before the segments or the payload; 0 for an unknown type. */
static size_t fixed_length(uint8_t type)
{
    return is_known(type) ? RME_WIRE_HEADER_SIZE + bodies[type].size : 0;
}

size_t rme_wire_length(uint8_t type, uint32_t nsegment)
{
    return fixed_length(type) + (size_t)nsegment * RME_WIRE_SEGMENT_SIZE;
}

uint32_t rme_wire_segments_max(uint8_t type, size_t size)
{
    size_t fixed = fixed_length(type);
    size_t fit = size > fixed ? (size - fixed) / RME_WIRE_SEGMENT_SIZE : 0;

    return fit > UINT16_MAX ? UINT16_MAX : (uint32_t)fit;
}

/* Finds the segments behind `fixed` bytes and adds their lengths: a message whose sum overflows
 * is malformed. */
static int decode_segments(const uint8_t *data, size_t length, size_t fixed,
                           struct rme_wire_message *out)
{
    if ((length - fixed) / RME_WIRE_SEGMENT_SIZE < out->nsegment)
        return -EPROTO;
    out->segment = data + fixed;
    for (uint32_t i = 0; i < out->nsegment; i++) {
        struct rme_wire_segment segment;

        rme_wire_segment_at(out, i, &segment);
        if (__builtin_add_overflow(out->rndv_window, segment.length, &out->rndv_window))
            return -EPROTO;
        if (segment.address + segment.length < segment.address)
            return -EPROTO;
    }
    return 0;
}

int rme_wire_decode(const void *data, size_t length, struct rme_wire_message *out)
{
    const uint8_t *at = data;
    size_t fixed;

    if (length < RME_WIRE_HEADER_SIZE) {
        memset(out, 0, sizeof(*out));
        return -EPROTO;
    }
    rme_wire_decode_head(at, out);
    out->payload = NULL;
    out->payload_length = 0;
    rme_wire_clear_body(out);
    if (out->type == RME_WIRE_EAGER) {
        out->payload = at + RME_WIRE_HEADER_SIZE;
        out->payload_length = length - RME_WIRE_HEADER_SIZE;
        return 0;
    }
    fixed = fixed_length(out->type);
    if (fixed == 0)
        return out->flags & RME_WIRE_F_OPTIONAL ? -EOPNOTSUPP : -EPROTO;
    if (length < fixed)
        return -EPROTO;
    for (const struct field *field = bodies[out->type].field; field->width != 0; field++) {
        const uint8_t *from = at + RME_WIRE_HEADER_SIZE + field->at;
        char *member = (char *)out + field->member;

        if (field->width == 8)
            *(uint64_t *)(void *)member = get64(from);
        else
            *(uint32_t *)(void *)member = field->width == 4 ? get32(from) : get16(from);
    }
    if (out->type == RME_WIRE_CREDIT)
        out->nsegment = (out->flags & RME_WIRE_F_GRANT) != 0;
    if (decode_segments(data, length, fixed, out) != 0)
        return -EPROTO;
    /* RTS offers the whole message or nothing */
    if (out->type == RME_WIRE_RTS && out->rndv_window != 0 && out->rndv_window != out->total)
        return -EPROTO;
    return 0;
}

void rme_wire_encode_ring(const struct rme_wire_message *message, uint32_t payload,
                          void *buffer)
{
    uint8_t *at = buffer;

    rme_wire_encode_head(message, buffer);
    memset(at + RME_WIRE_HEADER_SIZE, 0, RME_WIRE_RING_SIZE - RME_WIRE_HEADER_SIZE);
    put32(at + RME_WIRE_HEADER_SIZE, payload);
}

int rme_wire_decode_ring(const void *data, size_t room, struct rme_wire_message *out)
{
    uint8_t copy[RME_WIRE_RING_SIZE];

    if (room < sizeof(copy)) {
        memset(out, 0, sizeof(*out));
        return -EPROTO;
    }
    memcpy(copy, data, sizeof(copy));
    atomic_signal_fence(memory_order_seq_cst); /* read once: the peer may change it */
    if (rme_wire_decode(copy, RME_WIRE_HEADER_SIZE, out) != 0 || out->type != RME_WIRE_EAGER)
        return -EPROTO;
    out->payload = (const uint8_t *)data + sizeof(copy);
    out->payload_length = get32(copy + RME_WIRE_HEADER_SIZE);
    return out->payload_length <= room - sizeof(copy) ? 0 : -EPROTO;
}

void rme_wire_segment_at(const struct rme_wire_message *message, uint32_t i,
                         struct rme_wire_segment *out)
{
    const uint8_t *at = message->segment + (size_t)i * RME_WIRE_SEGMENT_SIZE;

    out->address = get64(at);
    out->key = get64(at + 8);
    out->length = get64(at + 16);
}

void rme_wire_encode(const struct rme_wire_message *message, void *buffer)
{
    uint8_t *at = (uint8_t *)buffer + RME_WIRE_HEADER_SIZE;
    const struct body *body = &bodies[is_known(message->type) ? message->type : 0];

    rme_wire_encode_head(message, buffer);
    memset(at, 0, body->size);
    for (const struct field *field = body->field; field->width != 0; field++) {
        const char *member = (const char *)message + field->member;
        uint32_t value;

        if (field->width == 8) {
            put64(at + field->at, *(const uint64_t *)(const void *)member);
            continue;
        }
        value = *(const uint32_t *)(const void *)member;
        if (field->width == 4)
            put32(at + field->at, value);
        else
            put16(at + field->at, (uint16_t)(value > UINT16_MAX ? UINT16_MAX : value));
    }
}

void rme_wire_put_segment(void *buffer, uint8_t type, uint32_t i,
                          const struct rme_wire_segment *segment)
{
    uint8_t *at = (uint8_t *)buffer + rme_wire_length(type, i);

    put64(at, segment->address);
    put64(at + 8, segment->key);
    put64(at + 16, segment->length);
}

const char *rme_wire_type_name(uint8_t type)
{
    switch (type) {
#define RME_WIRE_NAME(id, value, text)                                                         \
    case value:                                                                                \
        return #id;
        RME_WIRE_TYPES(RME_WIRE_NAME)
#undef RME_WIRE_NAME
    default:
        return "unknown";
    }
}

static const int errors[] = {
    [RME_WIRE_OK] = 0,
    [RME_WIRE_TOO_LARGE] = -EMSGSIZE,
    [RME_WIRE_CANCELED] = -ECANCELED,
    [RME_WIRE_NO_MEMORY] = -ENOMEM,
    [RME_WIRE_BROKEN] = -EPROTO, /* also every other error and status */
};

uint32_t rme_wire_status_of(int error)
{
    uint32_t status = RME_WIRE_OK;

    while (status < RME_WIRE_BROKEN && errors[status] != error)
        status++;
    return status;
}

int rme_wire_status_error(uint32_t status)
{
    return errors[status < RME_WIRE_BROKEN ? status : RME_WIRE_BROKEN];
}

/* ---- Connection data ---- */

/* Encodes the common start of both kinds: magic, newest version, oldest version, own length,
 * and a byte of flags or the reason. */
static void encode_start(uint8_t *at, uint8_t version, uint8_t version_min, uint8_t length,
                         uint8_t last)
{
    put32(at, RME_WIRE_MAGIC);
    at[4] = version;
    at[5] = version_min;
    at[6] = length;
    at[7] = last;
}

void rme_hello_encode(const struct rme_hello *hello, uint8_t out[RME_HELLO_SIZE])
{
    memset(out, 0, RME_HELLO_SIZE);
    encode_start(out, hello->version, hello->version_min, RME_HELLO_SIZE, hello->flags);
    put64(out + 8, hello->incarnation);
    put32(out + 16, hello->rx_size);
    put16(out + 20, hello->credits);
    put32(out + 24, hello->eager_window);
    put32(out + 28, hello->unexpected_window);
    put32(out + 32, hello->rts_max);
}

static int refuse(struct rme_reject *reject, uint8_t reason, uint32_t acceptable)
{
    reject->reason = reason;
    reject->acceptable = acceptable;
    return -EPROTO;
}

int rme_hello_decode(const void *data, size_t length, struct rme_hello *out,
                     struct rme_reject *reject)
{
    const uint8_t *at = data;

    memset(out, 0, sizeof(*out));
    if (length < 8 || get32(at) != RME_WIRE_MAGIC)
        return refuse(reject, RME_REJECT_MAGIC, 0);
    out->version = at[4];
    out->version_min = at[5];
    if (out->version < RME_WIRE_VERSION_MIN || out->version_min > RME_WIRE_VERSION)
        return refuse(reject, RME_REJECT_VERSION, RME_WIRE_VERSION_MIN);
    if (at[6] < RME_HELLO_SIZE || length < at[6])
        return refuse(reject, RME_REJECT_MAGIC, 0);
    out->flags = at[7];
    out->incarnation = get64(at + 8);
    out->rx_size = get32(at + 16);
    out->credits = get16(at + 20);
    out->eager_window = get32(at + 24);
    out->unexpected_window = get32(at + 28);
    out->rts_max = get32(at + 32);
    if (out->rx_size < RME_HELLO_RX_MIN)
        return refuse(reject, RME_REJECT_RX_SIZE, RME_HELLO_RX_MIN);
    if (out->credits == 0)
        return refuse(reject, RME_REJECT_CREDITS, RME_HELLO_CREDITS_MIN);
    if (out->eager_window == 0 || out->unexpected_window == 0 || out->rts_max == 0)
        return refuse(reject, RME_REJECT_LIMITS, 1);
    return 0;
}

void rme_reject_encode(const struct rme_reject *reject, uint8_t out[RME_REJECT_SIZE])
{
    memset(out, 0, RME_REJECT_SIZE);
    encode_start(out, RME_WIRE_VERSION, RME_WIRE_VERSION_MIN, RME_REJECT_SIZE, reject->reason);
    put32(out + 8, reject->acceptable);
}

int rme_reject_decode(const void *data, size_t length, struct rme_reject *out)
{
    const uint8_t *at = data;

    memset(out, 0, sizeof(*out));
    if (length < RME_REJECT_SIZE || get32(at) != RME_WIRE_MAGIC || at[6] < RME_REJECT_SIZE)
        return -EPROTO;
    out->reason = at[7];
    out->acceptable = get32(at + 8);
    return 0;
}

const char *rme_reject_text(uint8_t reason)
{
    switch (reason) {
#define RME_REJECT_TEXT(id, value, text)                                                       \
    case value:                                                                                \
        return text;
        RME_REJECT_REASONS(RME_REJECT_TEXT)
#undef RME_REJECT_TEXT
    default:
        return "an unknown reason";
    }
}
