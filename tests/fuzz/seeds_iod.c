/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Inputs of the targets fuzz_iod_*: messages; steps of a server's clients; a client's task and
 * then incorrect behaviour of its servers. */
#include <stdint.h>

#include "embedded/iod/proto.h"
#include "seeds.h"

enum { IN, OUT, LIST };
enum { GOES_ON = 1, ALLOW = 2, SYNC = 4, PIECES = 8 };

/* Task, servers given, flags, buffers, their size, strip, source or stored object. */
#define TASK(task, servers, flags, buffers, size, strip, which)                                \
    task, servers, flags, buffers, size, strip, which, 0
#define STORED(size, parts) ((size) + 8 * ((parts)-1))

/* Steps. `op`: index among the waiting operations, in posting order. */
#define WELL(op)         1, op
#define ALL_WELL         0
#define DISK             6
#define BREAK(op, error) 8, op, error
#define CHANGE(op)       13, op, 0
#define TROUBLE          15

/* Arguments of CHANGE. */
#define REFUSES(status)  12, status, 10, 'x'
#define FLAGS(value)     13, value
#define ENTRIES(n, from) 16, n, from
#define STALE            18

#define PUT(target, name, ...)                                                                 \
    do {                                                                                       \
        static const uint8_t seed[] = {__VA_ARGS__};                                           \
        put(target, name, seed, sizeof(seed));                                                 \
    } while (0)

static void messages(void)
{
    static const struct iod_extent extents[] = {{0, 65536}, {131072, 65536}, {1 << 30, 1}};
    static uint8_t entries[4096], out[IOD_REPLY_MAX];
    struct iod_message request = {
        .op = IOD_OP_PUT_OPEN,
        .handle = 3,
        .id = {7, 99},
        .layout = {.size = 1 << 20, .strip = 65536, .index = 1, .count = 2},
        .mode = 0644,
        .buffer_size = 262144,
        .buffers = 8,
        .data_tag = 12,
        .extents = {.count = 3, .array = extents},
        .name = iod_string_of("some.file"),
        .servers = iod_string_of("ib://a:1,ib://b:2")};
    struct iod_entry entry = {.name = request.name, .layout = request.layout, .id = request.id};
    struct iod_message reply = {.op = IOD_OP_GET_OPEN,
                                .handle = 3,
                                .id = request.id,
                                .layout = request.layout,
                                .buffer_size = 65536,
                                .buffers = 4,
                                .servers = request.servers};
    uint32_t length = 0;

    put("iod_message", "put-open", out, (size_t)iod_request_encode(&request, out, sizeof(out)));
    request.op = IOD_OP_WRITE;
    put("iod_message", "write", out, (size_t)iod_request_encode(&request, out, sizeof(out)));
    put("iod_message", "opened", out, (size_t)iod_reply_encode(&reply, out, sizeof(out)));
    reply.op = IOD_OP_LIST;
    for (int i = 0; i < 3; i++)
        reply.entries.count += iod_entry_append(&entry, entries, sizeof(entries), &length);
    reply.entries.wire = entries;
    reply.entries.length = length;
    put("iod_message", "list", out, (size_t)iod_reply_encode(&reply, out, sizeof(out)));
}

/* Steps of fuzz_iod_server.c. */
#define ASK(op, handle, upload, size, index, count, length)                                    \
    1, 0, (op)-1, handle, upload, 0, size, 0, (count)-1, index, 0, 1, 7, 0, 0, length, 0
#define REST 11, 0, 11, 0, 7, 0, 1, 200, 11, 0, 7, 0, 1, 200, 11, 0, 7, 0, 1, 200

static void servers(void)
{
    PUT("iod_server", "upload-and-download", ASK(IOD_OP_PUT_OPEN, 0, 0, 20, 0, 1, 0), REST,
        ASK(IOD_OP_WRITE, 0, 0, 0, 0, 1, 40), REST, REST, ASK(IOD_OP_SEAL, 0, 0, 0, 0, 1, 0),
        REST, ASK(IOD_OP_COMMIT, 0, 0, 0, 0, 1, 0), REST,
        ASK(IOD_OP_GET_OPEN, 0, 0, 0, 0, 1, 0), REST, ASK(IOD_OP_EXTENTS, 1, 0, 0, 0, 1, 0),
        REST, ASK(IOD_OP_READ, 1, 0, 0, 0, 1, 40), REST, REST,
        ASK(IOD_OP_LIST, 0, 0, 0, 0, 1, 0), REST, ASK(IOD_OP_CLOSE, 1, 0, 0, 0, 1, 0), REST);
    PUT("iod_server", "part-that-stays", ASK(IOD_OP_PUT_OPEN, 0, 1, 20, 1, 2, 0), REST,
        ASK(IOD_OP_SEAL, 0, 0, 0, 0, 1, 0), REST, ASK(IOD_OP_GET_OPEN, 0, 1, 0, 0, 1, 0), REST,
        ASK(IOD_OP_REMOVE, 0, 1, 0, 0, 1, 0), REST, 14, 0, 0, REST,
        ASK(IOD_OP_REMOVE, 0, 1, 0, 0, 1, 0), REST);
}

static void clients(void)
{
    PUT("iod_client", "in-striped", TASK(IN, 3, GOES_ON | PIECES, 3, 1, 2, 2));
    PUT("iod_client", "out-recorded",
        TASK(OUT, 0, GOES_ON | ALLOW | PIECES, 3, 2, 0, STORED(4, 3)));
    PUT("iod_client", "out-given", TASK(OUT, 4, GOES_ON | SYNC, 3, 1, 4, STORED(7, 4)));
    PUT("iod_client", "list", TASK(LIST, 3, GOES_ON, 1, 0, 6, STORED(5, 2)));
    PUT("iod_client", "stale-part", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(5, 2)),
        ALL_WELL, CHANGE(0), REFUSES(STALE));
    PUT("iod_client", "long-list", TASK(LIST, 2, GOES_ON, 2, 0, 6, STORED(5, 1)), 13, 0, 1,
        ENTRIES(39, 0), FLAGS(2), ALL_WELL, 13, 0, 1, ENTRIES(39, 39), FLAGS(2));
    PUT("iod_client", "commit-lost", TASK(IN, 2, GOES_ON, 1, 0, 6, 0), ALL_WELL, ALL_WELL,
        ALL_WELL, BREAK(0, 0));
    PUT("iod_client", "all-lost", TASK(OUT, 2, GOES_ON, 2, 0, 6, STORED(5, 2)), ALL_WELL,
        ALL_WELL, TROUBLE, 7);
}

void iod_seeds(void)
{
    messages();
    servers();
    clients();
}
