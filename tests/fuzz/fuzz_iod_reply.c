/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes as a reply of an I/O server to its client. */
#include "fuzz.h"
#include "embedded/iod/proto.h"

static void check_inside(const struct iod_string *string, const char *bytes, size_t size)
{
    if (string->length > 0)
        FUZZ_CHECK(string->text >= bytes && string->text + string->length <= bytes + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy(data, size, 0);
    struct iod_reply reply;

    if (iod_reply_decode(bytes, size, &reply) == 0) {
        struct iod_entry entry;
        uint32_t at = 0, entries = 0;

        check_inside(&reply.text, bytes, size);
        check_inside(&reply.servers, bytes, size);
        for (uint32_t i = 0; i < reply.extents.count; i++) {
            struct iod_extent extent = iod_extents_at(&reply.extents, i);

            FUZZ_CHECK(extent.offset + extent.length >= extent.offset);
        }
        while (iod_entry_next(&reply.entries, &at, &entry)) {
            check_inside(&entry.name, bytes, size);
            entries++;
        }
        FUZZ_CHECK(entries == reply.entries.count);
    }
    free(bytes);
    return 0;
}
