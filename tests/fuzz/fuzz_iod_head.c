/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes as the head of a stored object: accepted ones are within limits, and encode to the
 * same bytes. The checksum is corrected first, because a fuzzer cannot guess it. */
#include "fuzz.h"
#include "embedded/iod/crc32c.h"
#include "embedded/iod/object_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t head[STORE_HEAD], again[STORE_HEAD];
    struct object_meta meta, back;
    uint32_t sum;

    memset(head, 0, sizeof(head));
    memcpy(head, data, size < sizeof(head) ? size : sizeof(head));
    if (size > 0 && object_head_decode(head, &meta) == 0)
        object_head_encode(&meta, again);
    sum = crc32c(0, head, sizeof(head) - 4);
    for (int i = 0; i < 4; i++)
        head[sizeof(head) - 4 + (size_t)i] = (uint8_t)(sum >> (8 * i));
    if (object_head_decode(head, &meta) != 0)
        return 0;
    FUZZ_CHECK(meta.layout.size <= IOD_SIZE_MAX && meta.layout.strip >= IOD_STRIP_MIN);
    FUZZ_CHECK(meta.layout.strip <= IOD_STRIP_MAX && meta.layout.index < meta.layout.count);
    FUZZ_CHECK(meta.layout.count <= IOD_STRIPE_MAX && meta.mode <= 0777);
    FUZZ_CHECK(strlen(meta.name) <= IOD_NAME_MAX && strlen(meta.servers) <= IOD_SERVERS_MAX);
    object_head_encode(&meta, again);
    FUZZ_CHECK(object_head_decode(again, &back) == 0);
    FUZZ_CHECK(meta.upload == back.upload && meta.version == back.version);
    FUZZ_CHECK(strcmp(meta.name, back.name) == 0 && strcmp(meta.servers, back.servers) == 0);
    FUZZ_CHECK(meta.table.sum == back.table.sum && meta.table.count == back.table.count);
    return 0;
}
