/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "wire/wire.h"

_Static_assert(offsetof(struct rme_wire_message, to) == RME_WIRE_HEADER_SIZE &&
                   offsetof(struct rme_wire_message, rndv_window) ==
                       RME_WIRE_HEADER_SIZE + RME_WIRE_BODY_SIZE &&
                   sizeof(struct rme_hello) == RME_HELLO_SIZE &&
                   sizeof(struct rme_reject) == RME_REJECT_SIZE,
               "structures have their encoded layout");

/* ---- Messages ---- */

static bool has_body(uint8_t type)
{
    return type >= RME_WIRE_RTS && type <= RME_WIRE_CANCEL;
}

size_t rme_wire_length(uint8_t type, uint32_t nsegment)
{
    return RME_WIRE_HEADER_SIZE + (has_body(type) ? RME_WIRE_BODY_SIZE : 0) +
           nsegment * sizeof(struct rme_wire_segment);
}

uint32_t rme_wire_segments_max(uint8_t type, size_t size)
{
    size_t fixed = rme_wire_length(type, 0);
    size_t fit = size > fixed ? (size - fixed) / sizeof(struct rme_wire_segment) : 0;

    return fit > UINT32_MAX ? UINT32_MAX : (uint32_t)fit;
}

/* Returns 0 if the fields of the body that the type does not use are 0. */
static uint64_t unused(const struct rme_wire_message *message)
{
    uint64_t load = message->load_bytes | message->load_ops;

    switch (message->type) {
    case RME_WIRE_RTS:
        return message->to | message->offset | message->status;
    case RME_WIRE_CTS:
        return load | message->total | message->status;
    case RME_WIRE_FIN:
        return load | message->nsegment |
               ((message->flags & RME_WIRE_F_EAGER) == 0 ? message->total : 0);
    default: /* CANCEL */
        return load | message->shape | message->offset | message->total | message->status |
               message->nsegment;
    }
}

/* Finds the segments behind `fixed` bytes and adds their lengths: a message whose sum overflows
 * is malformed. */
static int decode_segments(const uint8_t *data, size_t length, size_t fixed,
                           struct rme_wire_message *out)
{
    if ((length - fixed) / sizeof(struct rme_wire_segment) < out->nsegment)
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
    size_t fixed;

    if (length < RME_WIRE_HEADER_SIZE) {
        memset(out, 0, sizeof(*out));
        return -EPROTO;
    }
    rme_wire_copy_head(out, data);
    rme_wire_clear(out);
    if (out->type == RME_WIRE_EAGER) {
        out->payload = (const char *)data + RME_WIRE_HEADER_SIZE;
        out->payload_length = length - RME_WIRE_HEADER_SIZE;
        return 0;
    }
    if (out->type < RME_WIRE_EAGER || out->type > RME_WIRE_PONG)
        return out->flags & RME_WIRE_F_OPTIONAL ? -EOPNOTSUPP : -EPROTO;
    fixed = rme_wire_length(out->type, 0);
    if (length < fixed)
        return -EPROTO;
    memcpy(&out->to, (const char *)data + RME_WIRE_HEADER_SIZE, fixed - RME_WIRE_HEADER_SIZE);
    rme_wire_order(&out->to, RME_WIRE_BODY);
    if (has_body(out->type) && unused(out) != 0)
        return -EPROTO;
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
    const uint32_t body[4] = {htole32(payload)};

    rme_wire_copy_head(buffer, message);
    memcpy((char *)buffer + RME_WIRE_HEADER_SIZE, body, sizeof(body));
}

int rme_wire_decode_ring(const void *data, size_t room, struct rme_wire_message *out)
{
    uint32_t copy[RME_WIRE_RING_SIZE / 4];

    if (room < sizeof(copy))
        return rme_wire_decode(data, 0, out);
    memcpy(copy, data, sizeof(copy));
    atomic_signal_fence(memory_order_seq_cst); /* read once: the peer may change it */
    if (rme_wire_decode(copy, RME_WIRE_HEADER_SIZE, out) != 0 || out->type != RME_WIRE_EAGER)
        return -EPROTO;
    out->payload = (const char *)data + sizeof(copy);
    out->payload_length = le32toh(copy[RME_WIRE_HEADER_SIZE / 4]);
    return out->payload_length <= room - sizeof(copy) ? 0 : -EPROTO;
}

void rme_wire_segment_at(const struct rme_wire_message *message, uint32_t i,
                         struct rme_wire_segment *out)
{
    memcpy(out, message->segment + i * sizeof(*out), sizeof(*out));
    rme_wire_order(out, RME_WIRE_SEGMENT);
}

void rme_wire_put_segment(void *buffer, uint8_t type, uint32_t i,
                          const struct rme_wire_segment *segment)
{
    char *at = (char *)buffer + rme_wire_length(type, i);

    memcpy(at, segment, sizeof(*segment));
    rme_wire_order(at, RME_WIRE_SEGMENT);
}

void rme_wire_encode(const struct rme_wire_message *message, void *buffer)
{
    memcpy(buffer, message, rme_wire_length(message->type, 0));
    rme_wire_order(buffer,
                   has_body(message->type) ? RME_WIRE_HEADER RME_WIRE_BODY : RME_WIRE_HEADER);
}

const char *rme_wire_type_name(uint8_t type)
{
#define RME_WIRE_NAME(id, value, text) [RME_WIRE_##id] = #id,
    static const char *const names[] = {RME_WIRE_TYPES(RME_WIRE_NAME)};
#undef RME_WIRE_NAME

    return type >= RME_WIRE_EAGER && type <= RME_WIRE_PONG ? names[type] : "unknown";
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

void rme_hello_encode(const struct rme_hello *hello, uint8_t out[RME_HELLO_SIZE])
{
    struct rme_hello encoded = *hello;

    encoded.magic = RME_WIRE_MAGIC;
    encoded.length = RME_HELLO_SIZE;
    rme_wire_order(&encoded, RME_WIRE_HELLO);
    memcpy(out, &encoded, sizeof(encoded));
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
    *out = (struct rme_hello){.magic = 0};
    memcpy(out, data, length < sizeof(*out) ? length : sizeof(*out));
    rme_wire_order(out, RME_WIRE_HELLO);
    if (length < offsetof(struct rme_hello, incarnation) || out->magic != RME_WIRE_MAGIC)
        return refuse(reject, RME_REJECT_MAGIC, 0);
    if (out->version < RME_WIRE_VERSION_MIN || out->version_min > RME_WIRE_VERSION)
        return refuse(reject, RME_REJECT_VERSION, RME_WIRE_VERSION_MIN);
    if (out->length < RME_HELLO_SIZE || length < out->length)
        return refuse(reject, RME_REJECT_MAGIC, 0);
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
    struct rme_reject encoded = {RME_WIRE_MAGIC,
                                 RME_WIRE_VERSION,
                                 RME_WIRE_VERSION_MIN,
                                 RME_REJECT_SIZE,
                                 reject->reason,
                                 reject->acceptable,
                                 0};

    rme_wire_order(&encoded, RME_WIRE_REJECT);
    memcpy(out, &encoded, sizeof(encoded));
}

int rme_reject_decode(const void *data, size_t length, struct rme_reject *out)
{
    *out = (struct rme_reject){.magic = 0};
    memcpy(out, data, length < sizeof(*out) ? length : sizeof(*out));
    rme_wire_order(out, RME_WIRE_REJECT);
    return out->magic == RME_WIRE_MAGIC && out->length >= sizeof(*out) && length >= sizeof(*out)
               ? 0
               : -EPROTO;
}

const char *rme_reject_text(uint8_t reason)
{
#define RME_REJECT_TEXT(id, value, text) [RME_REJECT_##id] = (text),
    static const char *const texts[] = {RME_REJECT_REASONS(RME_REJECT_TEXT)};
#undef RME_REJECT_TEXT

    return reason <= RME_REJECT_LIMITS ? texts[reason] : "an unknown reason";
}
