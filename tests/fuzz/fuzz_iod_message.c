/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes as a request to an I/O server, and as its reply: accepted ones are within limits
 * and inside the message; a request encodes to the same bytes. */
#include "fuzz.h"
#include "embedded/iod/name.h"
#include "embedded/iod/proto.h"

static void check_inside(const struct iod_string *string, const char *bytes, size_t size)
{
    if (string->length > 0)
        FUZZ_CHECK(string->text >= bytes && string->text + string->length <= bytes + size);
}

static void check_name(const struct iod_string *name)
{
    char file[NAME_FILE_MAX], back[IOD_NAME_MAX + 1];
    int length;

    FUZZ_CHECK(name->length <= IOD_NAME_MAX);
    if (name_encode(name, file, sizeof(file)) != 0)
        return;
    FUZZ_CHECK(file[0] != '.' && strchr(file, '/') == NULL);
    length = name_decode(file, back, sizeof(back));
    FUZZ_CHECK(length == (int)name->length && memcmp(back, name->text, name->length) == 0);
}

static void check_reply(const char *bytes, size_t size)
{
    struct iod_message reply;
    struct iod_entry entry;
    uint32_t at = 0, entries = 0;

    if (iod_reply_decode(bytes, size, &reply) != 0)
        return;
    check_inside(&reply.text, bytes, size);
    for (; iod_entry_next(&reply.entries, &at, &entry); entries++)
        check_inside(&entry.name, bytes, size);
    FUZZ_CHECK(entries == reply.entries.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy(data, size, 0);
    struct iod_message request;

    check_reply(bytes, size);
    if (iod_request_decode(bytes, size, &request) == 0) {
        char out[IOD_REQUEST_MAX];

        FUZZ_CHECK(size <= IOD_REQUEST_MAX);
        check_name(&request.name);
        FUZZ_CHECK(iod_op_name(request.op) != NULL);
        FUZZ_CHECK(iod_request_encode(&request, out, sizeof(out)) == (int64_t)size);
        FUZZ_CHECK(memcmp(out, bytes, size) == 0);
    }
    free(bytes);
    return 0;
}
