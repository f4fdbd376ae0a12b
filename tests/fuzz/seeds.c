/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes the seed corpus: real strings and real messages, made by the encoders.  Run it in the source tree after a change
 * of a format:  make tests/fuzz/seeds && tests/fuzz/seeds ../tests/fuzz/corpus
 */
#include "config.h"
#include <errno.h>
#include <sys/stat.h>

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
    static const char *const options[] = {"rx_size=8K,unit=2M", "rndv=read,huge_pages=off", "ib_port=1,spin_us=0",
                                          "credits=4097", "zone_bytes=-1,dont_fork=yes", "unit", NULL};
    static const char *const addresses[] = {"ib://host:3335", "ib://[fe80::1%eth0]:1/pvfs2-fs",
                                            "tcp://a:1,ib://10.0.0.1:65535,ib://b:2", "ib://host:0", "ib://[::1", NULL};
    static const char *const patterns[] = {"10.1.2.3", "ib://10.1.*:3335/fs", "[fe80::]:1", "host", "fe80::1", "*", NULL};

    put_texts("options", options, 0);
    put_texts("addr", addresses, 0);
    put_texts("match", patterns, 18);
}

/* ---- the engine's messages ---- */

static void put_message(const char *name, const struct rme_wire_message *message, size_t payload)
{
    uint8_t buffer[4096] = {0};
    size_t length = rme_wire_length(message->type, message->nsegment);

    rme_wire_encode(message, buffer);
    for (uint32_t i = 0; i < message->nsegment; i++) {
        struct rme_wire_segment segment = {.address = 0x7f0000000000u + i * 65536u, .key = 0x1234u + i, .length = 4096u};

        rme_wire_put_segment(buffer, message->type, i, &segment);
    }
    put("wire", name, buffer, length + payload);
}

static void messages(void)
{
#define SEED_PLAIN(id, value, text)                                                                                    \
    put_message(#id, &(struct rme_wire_message){.type = (value), .credits = 3, .tag = 77, .to = 5, .from = 9}, 0);
    RME_WIRE_TYPES(SEED_PLAIN)
#undef SEED_PLAIN
    put_message("eager-200", &(struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = -1, .eager_taken = 1u << 20}, 200);
    put_message("rts-list",
                &(struct rme_wire_message){.type = RME_WIRE_RTS, .from = 9, .nsegment = 64, .shape = 64, .total = 1 << 20,
                                           .load_ops = 3, .load_bytes = 1 << 21},
                0);
    put_message("cts-list",
                &(struct rme_wire_message){.type = RME_WIRE_CTS, .to = 9, .from = 4, .offset = 1 << 20, .nsegment = 16}, 0);
    put_message("fin-refused", &(struct rme_wire_message){.type = RME_WIRE_FIN, .to = 9, .status = RME_WIRE_TOO_LARGE}, 0);
    put_message("optional", &(struct rme_wire_message){.type = 200, .flags = RME_WIRE_F_OPTIONAL}, 16);
}

static void connection_data(void)
{
    struct rme_hello hello = {.version = RME_WIRE_VERSION, .version_min = RME_WIRE_VERSION_MIN, .flags = RME_HELLO_F_READ,
                              .incarnation = 0x0123456789abcdefu, .rx_size = 4096, .credits = 8,
                              .eager_window = 1 << 20, .unexpected_window = 1 << 20, .rts_max = 256};
    struct rme_reject reject = {.version = 1, .version_min = 1, .reason = RME_REJECT_RX_SIZE, .acceptable = 512};
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
    struct iod_request base = {.handle = 3, .upload = 99, .from = 0,
                               .layout = {.size = 1 << 20, .strip = 65536, .index = 1, .count = 2},
                               .mode = 0644, .buffer_size = 262144, .buffers = 8, .data_tag = 12,
                               .extents = {.count = 3, .array = extents},
                               .name = iod_string_of("some.file"), .servers = iod_string_of("ib://a:1,ib://b:2")};
    uint8_t out[IOD_REQUEST_MAX];

#define SEED_REQUEST(id, number, text)                                                                                 \
    base.op = IOD_OP_##id;                                                                                             \
    put("iod_request", text, out, (size_t)iod_request_encode(&base, out, sizeof(out)));
    IOD_OPS(SEED_REQUEST)
#undef SEED_REQUEST
}

static void replies(void)
{
    static const struct iod_extent extents[] = {{0, 65536}, {131072, 65536}};
    static uint8_t entries[4096], out[IOD_REPLY_MAX];
    struct iod_entry entry = {.name = iod_string_of("some.file"), .layout = {.size = 100, .strip = 64, .count = 1},
                              .upload = 1, .stored = 100, .mtime = 1000000000};
    struct iod_reply base = {.handle = 3, .upload = 99, .layout = entry.layout, .mode = 0644, .buffer_size = 65536,
                             .buffers = 4, .extents = {.count = 2, .array = extents},
                             .servers = iod_string_of("ib://a:1")};
    uint32_t length = 0;

    for (int i = 0; i < 3; i++)
        base.entries.count += iod_entry_append(&entry, entries, sizeof(entries), &length);
    base.entries.wire = entries;
    base.entries.length = length;
#define SEED_REPLY(id, number, text)                                                                                   \
    base.op = IOD_OP_##id;                                                                                             \
    put("iod_reply", text, out, (size_t)iod_reply_encode(&base, out, sizeof(out)));
    IOD_OPS(SEED_REPLY)
#undef SEED_REPLY
    base.status = IOD_NOT_FOUND;
    base.text = iod_string_of("no such object");
    put("iod_reply", "not-found", out, (size_t)iod_reply_encode(&base, out, sizeof(out)));
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
    requests();
    replies();
    return 0;
}
