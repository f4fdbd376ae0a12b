/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes the seed corpus: real strings and real messages, made by the encoders.  Run it in the
 * source tree after a change of a format:  make tests/fuzz/seeds && tests/fuzz/seeds
 * ../tests/fuzz/corpus
 */
#include "config.h"
#include <errno.h>
#include <sys/stat.h>

#include "bench/job.h"
#include "embedded/iod/object_head.h"
#include "embedded/iod/proto.h"
#include "fuzz.h"
#include "wire.h"

static const char *root;

static void put(const char *target, const char *name, const void *data, size_t size)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, target);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        exit(1);
    }
    snprintf(path, sizeof(path), "%s/%s/%s", root, target, name);
    file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void put_texts(const char *target, const char *const *texts, size_t head)
{
    for (int i = 0; texts[i] != NULL; i++) {
        char name[32], data[512] = {0x18, 0x03, 10, 1, 2, 3};
        size_t length = strlen(texts[i]);

        snprintf(name, sizeof(name), "text-%02d", i);
        memcpy(data + head, texts[i], length);
        put(target, name, data, head + length);
    }
}

static void texts(void)
{
    static const char *const options[] = {"rx_size=8K,unit=2M",
                                          "rndv=read,huge_pages=off",
                                          "ib_port=1,spin_us=0",
                                          "credits=4097",
                                          "zone_bytes=-1,dont_fork=yes",
                                          "unit",
                                          NULL};
    static const char *const addresses[] = {"ib://host:3335",
                                            "ib://[fe80::1%eth0]:1/pvfs2-fs",
                                            "tcp://a:1,ib://10.0.0.1:65535,ib://b:2",
                                            "ib://host:0",
                                            "ib://[::1",
                                            NULL};
    static const char *const patterns[] = {
        "10.1.2.3", "ib://10.1.*:3335/fs", "[fe80::]:1", "host", "fe80::1", "*", NULL};

    put_texts("options", options, 0);
    put_texts("addr", addresses, 0);
    put_texts("match", patterns, 18);
}

/* ---- the engine's messages ---- */

static void put_message(const char *name, const struct rme_wire_message *message,
                        size_t payload)
{
    uint8_t buffer[4096] = {0};
    size_t length = rme_wire_length(message->type, message->nsegment);

    rme_wire_encode(message, buffer);
    for (uint32_t i = 0; i < message->nsegment; i++) {
        struct rme_wire_segment segment = {
            .address = 0x7f0000000000u + i * 65536u, .key = 0x1234u + i, .length = 4096u};

        rme_wire_put_segment(buffer, message->type, i, &segment);
    }
    put("wire", name, buffer, length + payload);
}

static void messages(void)
{
#define SEED_PLAIN(id, value, text)                                                            \
    put_message(#id,                                                                           \
                &(struct rme_wire_message){                                                    \
                    .type = (value), .credits = 3, .tag = 77, .to = 5, .from = 9},             \
                0);
    RME_WIRE_TYPES(SEED_PLAIN)
#undef SEED_PLAIN
    put_message(
        "eager-200",
        &(struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = -1, .eager_taken = 1u << 20},
        200);
    put_message("rts-list",
                &(struct rme_wire_message){.type = RME_WIRE_RTS,
                                           .from = 9,
                                           .nsegment = 64,
                                           .shape = 64,
                                           .total = 1 << 20,
                                           .load_ops = 3,
                                           .load_bytes = 1 << 21},
                0);
    put_message(
        "cts-list",
        &(struct rme_wire_message){
            .type = RME_WIRE_CTS, .to = 9, .from = 4, .offset = 1 << 20, .nsegment = 16},
        0);
    put_message("invite",
                &(struct rme_wire_message){
                    .type = RME_WIRE_INVITE, .tag = -1, .to = 7, .from = 4, .nsegment = 2},
                0);
    put_message(
        "fin-refused",
        &(struct rme_wire_message){.type = RME_WIRE_FIN, .to = 9, .status = RME_WIRE_TOO_LARGE},
        0);
    put_message("optional",
                &(struct rme_wire_message){.type = 200, .flags = RME_WIRE_F_OPTIONAL}, 16);
}

static void connection_data(void)
{
    struct rme_hello hello = {.version = RME_WIRE_VERSION,
                              .version_min = RME_WIRE_VERSION_MIN,
                              .flags = RME_HELLO_F_READ,
                              .incarnation = 0x0123456789abcdefu,
                              .rx_size = 4096,
                              .credits = 8,
                              .eager_window = 1 << 20,
                              .unexpected_window = 1 << 20,
                              .rts_max = 256};
    struct rme_reject reject = {
        .version = 1, .version_min = 1, .reason = RME_REJECT_RX_SIZE, .acceptable = 512};
    uint8_t out[RME_HELLO_MAX] = {0};

    rme_hello_encode(&hello, out);
    put("hello", "hello", out, RME_HELLO_SIZE);
    put("hello", "hello-padded", out, RME_HELLO_MAX);
    rme_reject_encode(&reject, out);
    put("hello", "reject", out, RME_REJECT_SIZE);
}

/* ---- the I/O server's ---- */

static void requests(void)
{
    static const struct iod_extent extents[] = {{0, 65536}, {131072, 65536}, {1 << 30, 1}};
    struct iod_request base = {
        .handle = 3,
        .upload = 99,
        .version = 2,
        .from = 0,
        .layout = {.size = 1 << 20, .strip = 65536, .index = 1, .count = 2},
        .mode = 0644,
        .buffer_size = 262144,
        .buffers = 8,
        .data_tag = 12,
        .extents = {.count = 3, .array = extents},
        .name = iod_string_of("some.file"),
        .servers = iod_string_of("ib://a:1,ib://b:2")};
    uint8_t out[IOD_REQUEST_MAX];

#define SEED_REQUEST(id, number, text)                                                         \
    base.op = IOD_OP_##id;                                                                     \
    put("iod_request", text, out, (size_t)iod_request_encode(&base, out, sizeof(out)));
    IOD_OPS(SEED_REQUEST)
#undef SEED_REQUEST
}

static void replies(void)
{
    static const struct iod_extent extents[] = {{0, 65536}, {131072, 65536}};
    static uint8_t entries[4096], out[IOD_REPLY_MAX];
    struct iod_entry entry = {.name = iod_string_of("some.file"),
                              .layout = {.size = 100, .strip = 64, .count = 1},
                              .upload = 1,
                              .stored = 100,
                              .mtime = 1000000000};
    struct iod_reply base = {.handle = 3,
                             .upload = 99,
                             .version = 2,
                             .pending = 100,
                             .pending_servers = iod_string_of("ib://a:1,ib://b:2"),
                             .layout = entry.layout,
                             .mode = 0644,
                             .buffer_size = 65536,
                             .buffers = 4,
                             .extents = {.count = 2, .array = extents},
                             .servers = iod_string_of("ib://a:1")};
    uint32_t length = 0;

    for (int i = 0; i < 3; i++)
        base.entries.count += iod_entry_append(&entry, entries, sizeof(entries), &length);
    base.entries.wire = entries;
    base.entries.length = length;
#define SEED_REPLY(id, number, text)                                                           \
    base.op = IOD_OP_##id;                                                                     \
    put("iod_reply", text, out, (size_t)iod_reply_encode(&base, out, sizeof(out)));
    IOD_OPS(SEED_REPLY)
#undef SEED_REPLY
    base.status = IOD_NOT_FOUND;
    base.text = iod_string_of("no such object");
    put("iod_reply", "not-found", out, (size_t)iod_reply_encode(&base, out, sizeof(out)));
}

/* A head is what the store puts before an object. */
static void heads(void)
{
    struct object_meta meta = {.layout = {.size = 1 << 20, .strip = 65536, .index = 1, .count = 2},
                               .upload = 99,
                               .version = 2,
                               .mode = 0644,
                               .table = {.sum = 5, .count = 128},
                               .name = "some.file",
                               .servers = "ib://a:1,ib://b:2"};
    uint8_t out[STORE_HEAD];

    object_head_encode(&meta, out);
    put("iod_head", "head", out, sizeof(out));
}

/* In the steps of fuzz_iod_server.c: an upload, its data, a copy out of it, a peer that leaves. */
#define IOD_ASK(op, handle, upload, version, size, index, count, length)                       \
    1, 0, (op) - 1, handle, upload, version, 0, size, 0, (count) - 1, index, 0, 1, 7, 0, 0,     \
        length, 0
#define IOD_REST 11, 0, 11, 0, 7, 0, 1, 200, 11, 0, 7, 0, 1, 200, 11, 0, 7, 0, 1, 200

static void servers(void)
{
    static const uint8_t upload[] = {
        IOD_ASK(IOD_OP_PUT_OPEN, 0, 1, 0, 20, 0, 1, 0), IOD_REST,
        IOD_ASK(IOD_OP_WRITE, 0, 0, 0, 0, 0, 1, 40),    IOD_REST, IOD_REST,
        IOD_ASK(IOD_OP_SEAL, 0, 0, 1, 0, 0, 1, 0),      IOD_REST,
        IOD_ASK(IOD_OP_COMMIT, 0, 0, 0, 0, 0, 1, 0),    IOD_REST,
        IOD_ASK(IOD_OP_GET_OPEN, 0, 0, 0, 0, 0, 1, 0),  IOD_REST,
        IOD_ASK(IOD_OP_EXTENTS, 1, 0, 0, 0, 0, 1, 0),   IOD_REST,
        IOD_ASK(IOD_OP_READ, 1, 0, 0, 0, 0, 1, 40),     IOD_REST, IOD_REST,
        IOD_ASK(IOD_OP_LIST, 0, 0, 0, 0, 0, 1, 0),      IOD_REST,
        IOD_ASK(IOD_OP_CLOSE, 1, 0, 0, 0, 0, 1, 0),     IOD_REST};
    static const uint8_t prepared[] = {
        IOD_ASK(IOD_OP_PUT_OPEN, 0, 1, 0, 20, 1, 2, 0), IOD_REST,
        IOD_ASK(IOD_OP_SEAL, 0, 0, 1, 0, 0, 1, 0),      IOD_REST,
        IOD_ASK(IOD_OP_GET_OPEN, 0, 0, 0, 0, 0, 1, 0),  IOD_REST,
        IOD_ASK(IOD_OP_GET_OPEN, 0, 1, 0, 0, 0, 1, 0),  IOD_REST,
        IOD_ASK(IOD_OP_FORGET, 0, 1, 0, 0, 0, 1, 0),    IOD_REST,
        IOD_ASK(IOD_OP_COMMIT, 0, 0, 0, 0, 0, 1, 0),    14, 0, 0};
    static const uint8_t leaving[] = {
        IOD_ASK(IOD_OP_PUT_OPEN, 0, 1, 0, 200, 0, 1, 0), IOD_REST,
        IOD_ASK(IOD_OP_WRITE, 0, 0, 0, 0, 0, 1, 200),    11, 0,
        IOD_ASK(IOD_OP_CLOSE, 0, 0, 0, 0, 0, 1, 0),      14, 0, 0, IOD_REST};

    put("iod_server", "upload-and-download", upload, sizeof(upload));
    put("iod_server", "prepared", prepared, sizeof(prepared));
    put("iod_server", "leaving", leaving, sizeof(leaving));
}

/* ---- lives of messages, in the steps of fuzz_peer.c ---- */

#define UNEXP(size, tag)     0, 0, 0, size, tag, 0
#define SEND(size, tag)      0, 1, 0, size, tag, 1
#define RECV(size, tag)      0, 2, 0, size, tag, 2
#define ZONE_SEND(size, tag) 0, 1, 0x80, size, tag, 0
#define ZONE_RECV(size, tag) 0, 2, 0x80, size, tag, 0
#define RUN                  19
#define UP                   7, 0, 0, RUN
#define UP_EXACT             7, 0, 8, RUN
#define REQUEST              6, 0, RUN, UP
#define FINISH               16, 0, RUN
#define CANCEL(op)           4, op, RUN
#define DOWN                 15, 0, RUN
/* link 0; flags; type; tag; to: the most recent name; from 1; total; offset; status; shape;
 * load */
#define SAY(flags, type, tag, total, offset, status, load)                                     \
    9, 0, flags, (type)-1, tag, 0, 0, total, offset, status, 0, load
/* so many messages seen; one segment */
#define INVITE(tag, seen, size)                                                                \
    9, 0, 0x40, RME_WIRE_INVITE - 1, tag, seen, 0, 0, 0, 0, size, 0, 0, 0, 0, 1, size
#define IMM 14, 0, 0, 0, RUN
/* the peer's send `from` is asked to be left by its own side, which knows no name of ours */
#define CANCEL_FROM(flags, tag, from)                                                          \
    9, 0, 0x48 | (flags), RME_WIRE_CANCEL - 1, tag, 0, 0, 0, 0, (from)-1, 0, 0, 0, 0, 0
/* a description without memory, of the peer's send `from` */
#define RTS_FROM(flags, tag, from, size)                                                       \
    9, 0, flags, RME_WIRE_RTS - 1, tag, 0, (from)-1, size, 0, 0, 0, 0, 0
/* for an operation that never was */
#define NAMED(type)  9, 0, 0x40, (type)-1, 1, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0
#define F_UNEXPECTED 0x02
#define LAZY(is)     20, is
#define NO_MEMORY(n) 21, (n)-1 /* the n-th allocation of a RUN fails */
/* the host speaks to its peer, so that receives may invite */
#define SPEAK UNEXP(B64, 2), UP
/* indices of fuzz_peer's sizes */
#define B0    0
#define B64   2
#define B1000 3
#define B16K  7
#define B70K  9
#define B300K 10
#define B1M   11

static void lives(void)
{
    static const uint8_t eager_send[] = {SEND(B1000, 1), RUN, UP, RUN};
    static const uint8_t eager_recv[] = {RECV(B1000, 1), UP,
                                         SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN};
    static const uint8_t eager_early[] = {REQUEST,
                                          SAY(0, RME_WIRE_UNEXPECTED, 2, 0, 0, 0, 0),
                                          B64,
                                          RUN,
                                          SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0),
                                          B1000,
                                          RUN,
                                          RECV(B1000, 1),
                                          RUN};
    static const uint8_t written[] = {SEND(B300K, 1),
                                      UP,
                                      RUN,
                                      SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                      1,
                                      B300K,
                                      RUN,
                                      FINISH,
                                      FINISH,
                                      FINISH,
                                      FINISH};
/* the answer comes before the transfer is complete: it waits */
#define ANSWERED                                                                               \
    SEND(B16K, 1), RECV(B1000, 1), UP_EXACT, RUN, SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0), 1,      \
        B16K, RUN, SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN
    static const uint8_t answered[] = {ANSWERED, FINISH, RUN};
    static const uint8_t answered_and_lost[] = {ANSWERED, DOWN};
    static const uint8_t written_in_windows[] = {SEND(B300K, 1),
                                                 UP,
                                                 RUN,
                                                 SAY(0, RME_WIRE_CTS, 1, 0, B0, 0, 0),
                                                 1,
                                                 B70K,
                                                 RUN,
                                                 SAY(0, RME_WIRE_CTS, 1, 0, B70K, 0, 0),
                                                 2,
                                                 B70K,
                                                 B70K,
                                                 RUN,
                                                 FINISH,
                                                 FINISH,
                                                 FINISH,
                                                 FINISH};
    static const uint8_t read_by_peer[] = {SEND(B300K, 1),
                                           UP,
                                           RUN,
                                           SAY(0, RME_WIRE_GO, 1, 0, 0, 0, 0),
                                           RUN,
                                           SAY(0, RME_WIRE_FIN, 1, 0, B300K, 0, 0),
                                           RUN};
    static const uint8_t read_by_us[] = {RECV(B300K, 1),
                                         UP,
                                         RUN,
                                         SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 2),
                                         1,
                                         B300K,
                                         RUN,
                                         FINISH,
                                         FINISH,
                                         FINISH,
                                         FINISH};
    static const uint8_t read_in_windows[] = {RECV(B300K, 1),
                                              UP,
                                              RUN,
                                              SAY(0, RME_WIRE_RTS, 1, B300K, 0, 0, 2),
                                              1,
                                              B70K,
                                              RUN,
                                              FINISH,
                                              SAY(0, RME_WIRE_OFFER, 1, 0, B70K, 0, 0),
                                              1,
                                              B70K,
                                              RUN,
                                              FINISH,
                                              FINISH};
    static const uint8_t peer_writes[] = {RECV(B300K, 1),
                                          UP,
                                          RUN,
                                          SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 0),
                                          0,
                                          RUN,
                                          18,
                                          0,
                                          5,
                                          18,
                                          1,
                                          6,
                                          IMM,
                                          IMM,
                                          IMM,
                                          IMM,
                                          IMM};
    static const uint8_t early_rts[] = {REQUEST,
                                        SAY(0, RME_WIRE_UNEXPECTED, 2, 0, 0, 0, 0),
                                        B64,
                                        RUN,
                                        SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 2),
                                        1,
                                        B300K,
                                        RUN,
                                        RECV(B300K, 1),
                                        RUN,
                                        FINISH,
                                        FINISH};
    static const uint8_t pulled[] = {
        REQUEST, SAY(6, RME_WIRE_RTS, 2, B16K, 0, 0, 2), 1, B16K, RUN, FINISH, RUN, FINISH,
        RUN};
    static const uint8_t unexpected_sent[] = {UNEXP(B16K, 1), UP, RUN,
                                              SAY(0, RME_WIRE_FIN, 1, 0, B16K, 0, 0), RUN};
    static const uint8_t too_large[] = {RECV(B1000, 1),
                                        UP,
                                        RUN,
                                        SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 2),
                                        1,
                                        B300K,
                                        RUN,
                                        SEND(B300K, 1),
                                        RUN,
                                        SAY(0, RME_WIRE_FIN, 1, 0, 0, 1, 0),
                                        RUN};
    static const uint8_t refused_by_us[] = {
        RECV(B64, 1), UP, RUN, SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN};
    /* the place is 1000 + 64 */
    static const uint8_t refused_by_peer[] = {SEND(B1000, 1),
                                              UP,
                                              9,
                                              0,
                                              0x40,
                                              RME_WIRE_REFUSED - 1,
                                              1,
                                              0x28,
                                              0x04,
                                              0,
                                              0,
                                              0,
                                              B1000,
                                              B64,
                                              1,
                                              0,
                                              0,
                                              RUN};
    static const uint8_t cancelled_recv[] = {RECV(B300K, 1),
                                             UP,
                                             RUN,
                                             SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 0),
                                             0,
                                             RUN,
                                             CANCEL(0),
                                             SAY(0, RME_WIRE_CANCEL_ACK, 1, 0, 0, 0, 0),
                                             RUN};
    static const uint8_t cancelled_send[] = {
        SEND(B300K, 1), UP, RUN, CANCEL(0), SAY(0, RME_WIRE_CANCEL_ACK, 1, 0, 0, 0, 0), RUN};
    static const uint8_t cancelled_by_peer[] = {SEND(B300K, 1), UP, RUN,
                                                SAY(0, RME_WIRE_CANCEL, 1, 0, 0, 0, 0), RUN};
    static const uint8_t lost_while_moving[] = {
        SEND(B1M, 1), UP, RUN, SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0), 1, B1M, RUN, FINISH, DOWN,
        RUN,          UP, RUN};
    static const uint8_t without_memory[] = {17,
                                             6,
                                             SEND(B300K, 1),
                                             RECV(B300K, 2),
                                             UP,
                                             RUN,
                                             SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                             1,
                                             B300K,
                                             RUN,
                                             SAY(4, RME_WIRE_RTS, 2, B300K, 0, 0, 2),
                                             1,
                                             B300K,
                                             RUN,
                                             FINISH,
                                             FINISH};
    static const uint8_t without_buffers[] = {SEND(B1000, 1), UP,  17, 1, SEND(B1000, 1),
                                              SEND(B300K, 1), RUN, 17, 0, RUN};
    static const uint8_t freed[] = {SEND(B300K, 1),
                                    RECV(B1000, 2),
                                    UP,
                                    RUN,
                                    SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                    1,
                                    B300K,
                                    RUN,
                                    5,
                                    0,
                                    RUN};
    static const uint8_t bye[] = {RECV(B1000, 1),
                                  UP,
                                  RUN,
                                  SAY(0, RME_WIRE_PING, 1, 0, 0, 0, 0),
                                  RUN,
                                  SAY(0, RME_WIRE_BYE, 1, 0, 0, 0, 0),
                                  RUN};

    static const uint8_t inviting[] = {SPEAK, ZONE_RECV(B300K, 1), RUN, IMM};
    static const uint8_t inviting_crossed[] = {
        SPEAK, ZONE_RECV(B300K, 1), RUN, SAY(0, RME_WIRE_RTS, 1, B300K, 0, 0, 0), 0, RUN, IMM};
    static const uint8_t inviting_declined[] = {SPEAK,
                                                ZONE_RECV(B300K, 1),
                                                RUN,
                                                9,
                                                0,
                                                RME_WIRE_F_DECLINED,
                                                RME_WIRE_RTS - 1,
                                                1,
                                                1,
                                                0,
                                                0,
                                                B300K,
                                                0,
                                                0,
                                                0,
                                                0,
                                                0,
                                                RUN,
                                                IMM};
    static const uint8_t inviting_cancelled[] = {SPEAK,
                                                 ZONE_RECV(B300K, 1),
                                                 RUN,
                                                 CANCEL(1),
                                                 SAY(0, RME_WIRE_RTS, 1, B300K, 0, 0, 0),
                                                 0,
                                                 RUN,
                                                 SAY(0, RME_WIRE_CANCEL_ACK, 1, 0, 0, 0, 0),
                                                 RUN};
    static const uint8_t inviting_eager[] = {
        SPEAK, ZONE_RECV(B300K, 1), RUN, SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN};
    static const uint8_t invited[] = {
        RECV(B64, 2), UP, INVITE(1, 0, B300K), RUN, ZONE_SEND(B300K, 1), RUN, FINISH};
    static const uint8_t invited_crossed[] = {ZONE_SEND(B300K, 1), UP,  RUN,
                                              INVITE(1, 0, B300K), RUN, FINISH};
    static const uint8_t invited_late[] = {
        SEND(B1000, 1), UP, RUN, INVITE(1, 0, B300K), RUN, ZONE_SEND(B300K, 1), RUN};
    static const uint8_t invited_taken_back[] = {RECV(B64, 2),
                                                 UP,
                                                 INVITE(1, 0, B300K),
                                                 RUN,
                                                 9,
                                                 0,
                                                 0x40,
                                                 RME_WIRE_CANCEL - 1,
                                                 1,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 RUN,
                                                 ZONE_SEND(B300K, 1),
                                                 RUN};

    static const uint8_t cancelled_early[] = {REQUEST,
                                              RTS_FROM(0, 1, 1, B300K),
                                              RTS_FROM(0, 1, 2, B300K),
                                              RUN,
                                              CANCEL_FROM(0, 1, 2),
                                              CANCEL_FROM(0, 2, 1),
                                              CANCEL_FROM(0, 1, 5),
                                              RUN,
                                              CANCEL_FROM(0, 1, 1),
                                              RUN};
    static const uint8_t cancelled_unexpected[] = {REQUEST,
                                                   LAZY(1),
                                                   RTS_FROM(F_UNEXPECTED, 1, 1, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 2, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 3, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 4, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 5, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 6, B16K),
                                                   RUN,
                                                   CANCEL_FROM(F_UNEXPECTED, 1, 6),
                                                   CANCEL_FROM(F_UNEXPECTED, 1, 7),
                                                   CANCEL_FROM(F_UNEXPECTED, 1, 1),
                                                   RUN};
    static const uint8_t cancelled_matched[] = {REQUEST,
                                                SAY(0, RME_WIRE_UNEXPECTED, 2, 0, 0, 0, 0),
                                                B64,
                                                RUN,
                                                RECV(B300K, 1),
                                                RTS_FROM(0, 1, 1, B300K),
                                                RUN,
                                                CANCEL_FROM(0, 1, 1),
                                                RUN};
    static const uint8_t without_credits[] = {/* ours are used up: the answers wait */
                                              6,
                                              0x20,
                                              RUN,
                                              7,
                                              0,
                                              0x20,
                                              RUN,
                                              RTS_FROM(0, 1, 1, B300K),
                                              CANCEL_FROM(0, 1, 1),
                                              RTS_FROM(0, 1, 2, B300K),
                                              CANCEL_FROM(0, 1, 2),
                                              RUN,
                                              RTS_FROM(0, 1, 1, B300K),
                                              CANCEL_FROM(0, 1, 1),
                                              RTS_FROM(0, 1, 2, B300K),
                                              CANCEL_FROM(0, 1, 2),
                                              RUN,
                                              DOWN};
    static const uint8_t no_memory_eager[] = {REQUEST, SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0),
                                              B1000, NO_MEMORY(1), RUN};
    static const uint8_t no_memory_unexpected[] = {
        REQUEST, SAY(0, RME_WIRE_UNEXPECTED, 1, 0, 0, 0, 0), B1000, NO_MEMORY(1), RUN};
    static const uint8_t no_memory_rts[] = {
        REQUEST, SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 2), 1, B300K, NO_MEMORY(1), RUN};
    static const uint8_t no_memory_opening[] = {
        REQUEST, SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 2), 1, B300K, NO_MEMORY(2), RUN};
    static const uint8_t no_memory_pull[] = {REQUEST, RTS_FROM(F_UNEXPECTED, 1, 1, B16K),
                                             NO_MEMORY(1), RUN};
    static const uint8_t no_memory_pull_later[] = {REQUEST, RTS_FROM(F_UNEXPECTED, 1, 1, B16K),
                                                   NO_MEMORY(3), RUN};
    static const uint8_t malformed[] = {REQUEST, 13, 0, 1, 7, RUN};
    static const uint8_t stalled[] = {REQUEST, SAY(1, RME_WIRE_PONG, 0, 0, 0, 0, 0), RUN};
    static const uint8_t unexpected_too_large[] = {REQUEST, RTS_FROM(F_UNEXPECTED, 1, 1, B70K),
                                                   RUN};
    static const uint8_t invited_wrongly[] = {SPEAK, INVITE(1, 100, B300K), RUN};
    static const uint8_t invited_twice[] = {SPEAK, INVITE(1, 0, B300K), INVITE(1, 0, B300K),
                                            RUN};
    static const uint8_t invited_no_memory[] = {SPEAK, RUN, INVITE(1, 0, B300K), NO_MEMORY(1),
                                                RUN};
    static const uint8_t cts_for_nothing[] = {REQUEST, NAMED(RME_WIRE_CTS), 1, B64, RUN};
    static const uint8_t offer_for_nothing[] = {REQUEST, NAMED(RME_WIRE_OFFER), 1, B64, RUN};
    static const uint8_t go_for_nothing[] = {REQUEST, NAMED(RME_WIRE_GO), RUN};
    static const uint8_t fin_for_nothing[] = {REQUEST, NAMED(RME_WIRE_FIN), RUN};
    static const uint8_t imm_for_nothing[] = {REQUEST, 14, 0, 1, 9, 9, 9, 9, RUN};
    static const uint8_t refused_wrongly[] = {REQUEST, NAMED(RME_WIRE_REFUSED), RUN};
    static const uint8_t two_cancel[] = {/* both sides ask at once */
                                         RECV(B300K, 1),
                                         UP,
                                         RUN,
                                         SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 0),
                                         0,
                                         RUN,
                                         CANCEL(0),
                                         CANCEL_FROM(0, 1, 1),
                                         RUN};
    static const uint8_t cancelled_queue[] = {
        SEND(B300K, 1), RECV(B300K, 1), CANCEL(0), CANCEL(1), RUN, UP, RUN};
    static const uint8_t too_large_large[] = {
        RECV(B70K, 1), UP, RUN, SAY(4, RME_WIRE_RTS, 1, B300K, 0, 0, 0), 1, B300K, RUN};
    static const uint8_t empty_rts[] = {RECV(B300K, 1), UP, RUN, RTS_FROM(0, 1, 1, B0), RUN};
    static const uint8_t no_memory_recv[] = {RECV(B300K, 1),           UP,           RUN,
                                             RTS_FROM(0, 1, 1, B300K), NO_MEMORY(2), RUN};
    static const uint8_t no_memory_send[] = {SEND(B300K, 1), UP, NO_MEMORY(1), RUN};

    static const uint8_t offer_of_another[] = {RECV(B300K, 1),
                                               UP,
                                               RUN,
                                               SAY(0, RME_WIRE_RTS, 1, B300K, 0, 0, 2),
                                               1,
                                               B70K,
                                               RUN,
                                               FINISH,
                                               9,
                                               0,
                                               0,
                                               RME_WIRE_OFFER - 1,
                                               1,
                                               0,
                                               1,
                                               0,
                                               B70K,
                                               0,
                                               0,
                                               0,
                                               1,
                                               B70K,
                                               RUN};
    static const uint8_t offer_out_of_order[] = {
        RECV(B300K, 1), UP,  RUN,    SAY(0, RME_WIRE_RTS, 1, B300K, 0, 0, 2),   1,
        B70K,           RUN, FINISH, SAY(0, RME_WIRE_OFFER, 1, 0, B1000, 0, 0), 1,
        B70K,           RUN};
    static const uint8_t many_without_memory[] = {17,
                                                  6,
                                                  SEND(B300K, 1),
                                                  SEND(B300K, 1),
                                                  SEND(B300K, 1),
                                                  SEND(B300K, 1),
                                                  SEND(B300K, 1),
                                                  SEND(B300K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  UP,
                                                  RUN};
    static const uint8_t invited_while_moving[] = {ZONE_SEND(B300K, 2),
                                                   UP,
                                                   RUN,
                                                   SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                                   1,
                                                   B300K,
                                                   RUN,
                                                   INVITE(1, 1, B300K),
                                                   RUN,
                                                   ZONE_SEND(B300K, 1),
                                                   RUN,
                                                   FINISH,
                                                   FINISH,
                                                   FINISH};
    static const uint8_t invited_without_buffers[] = {
        SPEAK, RUN,   INVITE(1, 0, B300K), RUN, 17, 1, ZONE_SEND(B300K, 1), RUN, 17, 0,
        RUN,   FINISH};
    static const uint8_t invited_without_memory[] = {
        SPEAK, RUN, INVITE(1, 0, B300K), RUN, 17, 6, SEND(B300K, 1), RUN, FINISH};

#define SEED_LIFE(name) put("peer", #name, name, sizeof(name))
    SEED_LIFE(eager_send);
    SEED_LIFE(eager_recv);
    SEED_LIFE(eager_early);
    SEED_LIFE(written);
    SEED_LIFE(answered);
    SEED_LIFE(answered_and_lost);
    SEED_LIFE(written_in_windows);
    SEED_LIFE(read_by_peer);
    SEED_LIFE(read_by_us);
    SEED_LIFE(read_in_windows);
    SEED_LIFE(peer_writes);
    SEED_LIFE(early_rts);
    SEED_LIFE(pulled);
    SEED_LIFE(unexpected_sent);
    SEED_LIFE(too_large);
    SEED_LIFE(refused_by_us);
    SEED_LIFE(refused_by_peer);
    SEED_LIFE(cancelled_recv);
    SEED_LIFE(cancelled_send);
    SEED_LIFE(cancelled_by_peer);
    SEED_LIFE(lost_while_moving);
    SEED_LIFE(without_memory);
    SEED_LIFE(without_buffers);
    SEED_LIFE(freed);
    SEED_LIFE(bye);
    SEED_LIFE(inviting);
    SEED_LIFE(inviting_crossed);
    SEED_LIFE(inviting_declined);
    SEED_LIFE(inviting_cancelled);
    SEED_LIFE(inviting_eager);
    SEED_LIFE(invited);
    SEED_LIFE(invited_crossed);
    SEED_LIFE(invited_late);
    SEED_LIFE(invited_taken_back);
    SEED_LIFE(cancelled_early);
    SEED_LIFE(cancelled_unexpected);
    SEED_LIFE(cancelled_matched);
    SEED_LIFE(without_credits);
    SEED_LIFE(no_memory_eager);
    SEED_LIFE(no_memory_unexpected);
    SEED_LIFE(no_memory_rts);
    SEED_LIFE(no_memory_opening);
    SEED_LIFE(no_memory_pull);
    SEED_LIFE(no_memory_pull_later);
    SEED_LIFE(malformed);
    SEED_LIFE(stalled);
    SEED_LIFE(unexpected_too_large);
    SEED_LIFE(invited_wrongly);
    SEED_LIFE(invited_twice);
    SEED_LIFE(invited_no_memory);
    SEED_LIFE(cts_for_nothing);
    SEED_LIFE(offer_for_nothing);
    SEED_LIFE(go_for_nothing);
    SEED_LIFE(fin_for_nothing);
    SEED_LIFE(imm_for_nothing);
    SEED_LIFE(refused_wrongly);
    SEED_LIFE(two_cancel);
    SEED_LIFE(cancelled_queue);
    SEED_LIFE(too_large_large);
    SEED_LIFE(empty_rts);
    SEED_LIFE(no_memory_recv);
    SEED_LIFE(no_memory_send);
    SEED_LIFE(offer_of_another);
    SEED_LIFE(offer_out_of_order);
    SEED_LIFE(many_without_memory);
    SEED_LIFE(invited_while_moving);
    SEED_LIFE(invited_without_buffers);
    SEED_LIFE(invited_without_memory);
#undef SEED_LIFE
}

/* A step that a peer says again and again, until it has said too much. */
static void again(const char *name, const uint8_t *first, size_t first_size,
                  const uint8_t *step, size_t size, unsigned times)
{
    static uint8_t input[20000];
    size_t at = first_size;

    memcpy(input, first, first_size);
    for (; times > 0 && at + size < sizeof(input); times--, at += size)
        memcpy(input + at, step, size);
    input[at++] = RUN;
    put("peer", name, input, at);
}

static void too_much(void)
{
    static const uint8_t first[] = {REQUEST, LAZY(1)};
    static const uint8_t poor[] = {6, 0x20, RUN, 7, 0, 0x20, RUN}; /* gives us 4 credits */
    static const uint8_t eager[] = {SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), 4, RUN};
    static const uint8_t unexpected[] = {SAY(0, RME_WIRE_UNEXPECTED, 1, 0, 0, 0, 0), 4, RUN};
    static const uint8_t rts[] = {RTS_FROM(0, 1, 1, B300K), RUN};
    static const uint8_t unexpected_rts[] = {RTS_FROM(F_UNEXPECTED, 1, 1, B16K), RUN};
    static const uint8_t empty[] = {SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B0, RUN};
    static const uint8_t pong[] = {
        13, 0, 16, RME_WIRE_PONG, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, RUN};
    static const uint8_t unanswered[] = {
        13, 0, 16, RME_WIRE_PONG, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, RUN};
    static const uint8_t taken[] = {
        13, 0, 16, RME_WIRE_PONG, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, RUN};

    again("too_much_eager", first, sizeof(first), eager, sizeof(eager), 20);
    again("too_many_empty", first, sizeof(first), empty, sizeof(empty), 1100);
    again("too_much_unexpected", first, sizeof(first), unexpected, sizeof(unexpected), 20);
    again("too_many_rts", first, sizeof(first), rts, sizeof(rts), 1030);
    again("too_many_unexpected_rts", first, sizeof(first), unexpected_rts,
          sizeof(unexpected_rts), 1040);
    again("too_many_credits", first, sizeof(first), pong, sizeof(pong), 20);
    again("more_than_its_credits", poor, sizeof(poor), unanswered, sizeof(unanswered), 40);
    again("stopped_at_its_credits", poor, sizeof(poor), unanswered, sizeof(unanswered), 24);
    again("taken_before_sent", first, sizeof(first), taken, sizeof(taken), 1);
}

/* ---- bmi-perf's requests and reports ---- */

static void jobs(void)
{
    struct job job = {
        .test = JOB_STREAM, .size = 1 << 20, .warm = 10, .count = 100, .window = 8, .tag = 2};
    struct report report = {.bad = 1, .cpu_start = 1000000, .cpu_end = 2000000};
    unsigned char wire[JOB_WIRE_SIZE];

    job_encode(&job, wire);
    put("job", "stream", wire, JOB_WIRE_SIZE);
    job.buffers = 2;
    job_encode(&job, wire);
    put("job", "shared-buffers", wire, JOB_WIRE_SIZE);
    job.buffers = 0;
    job.direction = JOB_GET;
    job.extent = 2048;
    job.stride = 4096;
    job.split = 64;
    job_encode(&job, wire);
    put("job", "list", wire, JOB_WIRE_SIZE);
    report_encode(&report, wire);
    put("job", "report", wire, REPORT_WIRE_SIZE);
}

/* ---- what happens to bmi-perf's server, in the steps of fuzz_perf.c: an event, then what ends
 * ---- */

#define ENDS(how) 0, 0, how
#define GOOD      15
#define SHORT     255 - 16 + 7 /* half of the bytes came */
#define BROKEN    255
#define ASK(test, direction, memory, size, warm, window)                                       \
    1, test, direction, memory, 1, size, 1, warm, 3, window, 0, 0, 0, 0, 0, ENDS(GOOD)
#define REST     7, ENDS(GOOD)
#define FEW_REST REST, REST, REST, REST

static void perf_sessions(void)
{
    static const uint8_t put_[] = {ASK(JOB_STREAM, JOB_PUT, 0, 3, 1, 3), FEW_REST, FEW_REST,
                                   FEW_REST};
    static const uint8_t get[] = {ASK(JOB_STREAM, JOB_GET, 1, 4, 0, 3), FEW_REST, FEW_REST};
    static const uint8_t pingpong[] = {ASK(JOB_PINGPONG, 0, 2, 2, 2, 0), FEW_REST, FEW_REST};
    static const uint8_t requests[] = {ASK(JOB_REQUEST, 0, 0, 1, 0, 3),
                                       3,
                                       0,
                                       0,
                                       0,
                                       ENDS(GOOD),
                                       3,
                                       0,
                                       0,
                                       0,
                                       ENDS(GOOD),
                                       FEW_REST};
    static const uint8_t counters[] = {ASK(JOB_COUNTERS, 0, 0, 0, 0, 0), REST};
    static const uint8_t dies[] = {ASK(JOB_STREAM, JOB_BOTH, 0, 3, 0, 3), 6, 0, ENDS(GOOD),
                                   FEW_REST};
    static const uint8_t fails[] = {ASK(JOB_STREAM, JOB_BOTH, 0, 3, 0, 3), 7, ENDS(BROKEN),
                                    FEW_REST};
    static const uint8_t too_short[] = {ASK(JOB_STREAM, JOB_PUT, 0, 3, 0, 3), 7, ENDS(SHORT),
                                        FEW_REST};
    static const uint8_t no_memory[] = {4, 2, ENDS(0), ASK(JOB_STREAM, JOB_PUT, 1, 5, 0, 15),
                                        FEW_REST};
    static const uint8_t at_once[] = {5, 15, ENDS(0), ASK(JOB_STREAM, JOB_PUT, 0, 3, 0, 3),
                                      FEW_REST};

#define SEED_PERF(name) put("perf", #name, name, sizeof(name))
    SEED_PERF(put_);
    SEED_PERF(get);
    SEED_PERF(pingpong);
    SEED_PERF(requests);
    SEED_PERF(counters);
    SEED_PERF(dies);
    SEED_PERF(fails);
    SEED_PERF(too_short);
    SEED_PERF(no_memory);
    SEED_PERF(at_once);
#undef SEED_PERF
}

/* ---- Scripts for the inbox of the software HCA: see fuzz_inbox.c ---- */

enum { RAW = 130, CM = 131, CONNECT = 132, LATER = 134, TO_ACTIVE = 188, TO_PASSIVE = 133 };

static void inbox(void)
{
    static const unsigned char life[] = {CONNECT, TO_PASSIVE, 0, TO_ACTIVE, 3,      TO_ACTIVE,
                                         2,       TO_PASSIVE, 2, LATER,     CONNECT};
    static const unsigned char refusal[] = {CONNECT, TO_PASSIVE, 1, CONNECT, TO_ACTIVE, 4};
    unsigned char script[8 * 60], *at = script;

    put("inbox", "life", life, sizeof(life));
    put("inbox", "refusal", refusal, sizeof(refusal));
    /* each kind of message, with an event of another kind of object in it */
    for (unsigned kind = 1; kind <= 7; kind++) {
        unsigned char m[27] = {RAW, (unsigned char)kind, 7};
        m[7] = kind % 2 ? 0 : 10; /* an error of a CQ, a limit of an SRQ */
        memcpy(at, m, sizeof(m));
        at += sizeof(m);
    }
    put("inbox", "events", script, (size_t)(at - script));
    /* each message of the connection manager, for the active side of a connection */
    at = script;
    *at++ = CONNECT;
    for (unsigned type = 0; type < 7; type++) {
        unsigned char m[51] = {CM, 7, (unsigned char)type};
        m[50] = 1;
        memcpy(at, m, sizeof(m));
        at += sizeof(m);
    }
    put("inbox", "messages", script, (size_t)(at - script));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    root = argv[1];
    texts();
    messages();
    connection_data();
    lives();
    too_much();
    requests();
    replies();
    heads();
    servers();
    jobs();
    perf_sessions();
    inbox();
    return 0;
}
