/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes as messages of a peer, each behind its length in two bytes: accepted ones stay
 * inside their bytes, and encode to the same bytes. */
#include <errno.h>

#include "fuzz.h"
#include "wire/wire.h"

static void check_segments(const struct rme_wire_message *m, const char *bytes, size_t size)
{
    uint64_t sum = 0;

    FUZZ_CHECK((const char *)m->segment >= bytes);
    FUZZ_CHECK((const char *)m->segment + m->nsegment * sizeof(struct rme_wire_segment) <=
               bytes + size);
    for (uint32_t i = 0; i < m->nsegment; i++) {
        struct rme_wire_segment segment;

        rme_wire_segment_at(m, i, &segment);
        FUZZ_CHECK(segment.address + segment.length >= segment.address);
        sum += segment.length;
        FUZZ_CHECK(sum >= segment.length);
    }
    FUZZ_CHECK(sum == m->rndv_window);
}

static void encode_again(const struct rme_wire_message *m)
{
    size_t length = rme_wire_length(m->type, m->nsegment);
    void *buffer = malloc(length + m->payload_length);
    struct rme_wire_message again;

    FUZZ_CHECK(buffer != NULL);
    rme_wire_encode(m, buffer);
    for (uint32_t i = 0; i < m->nsegment; i++) {
        struct rme_wire_segment segment;

        rme_wire_segment_at(m, i, &segment);
        rme_wire_put_segment(buffer, m->type, i, &segment);
    }
    if (m->payload_length > 0)
        memcpy((char *)buffer + length, m->payload, m->payload_length);
    FUZZ_CHECK(rme_wire_decode(buffer, length + m->payload_length, &again) == 0);
    FUZZ_CHECK(again.type == m->type && again.flags == m->flags && again.credits == m->credits);
    FUZZ_CHECK(again.eager_consumed == m->eager_consumed &&
               again.unexpected_consumed == m->unexpected_consumed);
    FUZZ_CHECK(again.tag == m->tag && again.to == m->to && again.from == m->from &&
               again.offset == m->offset);
    FUZZ_CHECK(again.total == m->total && again.load_bytes == m->load_bytes &&
               again.load_ops == m->load_ops);
    FUZZ_CHECK(again.status == m->status && again.shape == m->shape &&
               again.nsegment == m->nsegment);
    FUZZ_CHECK(again.rndv_window == m->rndv_window &&
               again.payload_length == m->payload_length);
    free(buffer);
}

static void one_message(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy(data, size, 0);
    struct rme_wire_message message;
    int ret = rme_wire_decode(bytes, size, &message);

    FUZZ_CHECK(ret == 0 || ret == -EPROTO || ret == -EOPNOTSUPP);
    if (ret == 0) {
        if (message.nsegment > 0)
            check_segments(&message, bytes, size);
        if (message.payload != NULL)
            FUZZ_CHECK((const char *)message.payload + message.payload_length == bytes + size);
        encode_again(&message);
        FUZZ_CHECK(rme_wire_type_name(message.type) != NULL);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size >= 2) {
        size_t length = data[0] | (size_t)data[1] << 8;

        data += 2;
        size -= 2;
        if (length > size)
            length = size;
        one_message(data, length);
        data += length;
        size -= length;
    }
    return 0;
}
