/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes the seed corpus: real strings and messages, made by the encoders. Run it in the source
 * tree after a change of a format: make tests/fuzz/seeds && tests/fuzz/seeds
 * ../tests/fuzz/corpus
 */
#include "config.h"
#include <errno.h>
#include <sys/stat.h>

#include "bench/job.h"
#include "fuzz.h"
#include "seeds.h"
#include "wire/wire.h"

static const char *root;

void put(const char *target, const char *name, const void *data, size_t size)
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
    static const char *const options[] = {"rx_size=8K,fragment_bytes=2M",
                                          "rndv=read,early_cts=off",
                                          "ib_port=1,poll_us=0",
                                          "credits=4097",
                                          "pool_bytes=-1",
                                          "fragment_bytes",
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
    put_message("eager-200",
                &(struct rme_wire_message){
                    .type = RME_WIRE_EAGER, .tag = -1, .eager_consumed = 1u << 20},
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
    put_message("unexpected",
                &(struct rme_wire_message){
                    .type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED, .tag = 5},
                20);
    put_message("invite",
                &(struct rme_wire_message){.type = RME_WIRE_CTS,
                                           .flags = RME_WIRE_F_UNSOLICITED,
                                           .tag = -1,
                                           .to = 7,
                                           .from = 4,
                                           .nsegment = 2},
                0);
    put_message("eager-refused",
                &(struct rme_wire_message){.type = RME_WIRE_FIN,
                                           .flags = RME_WIRE_F_EAGER,
                                           .to = 64,
                                           .status = RME_WIRE_TOO_LARGE,
                                           .offset = 7,
                                           .total = 9},
                0);
    put_message("grant",
                &(struct rme_wire_message){
                    .type = RME_WIRE_CREDIT, .flags = RME_WIRE_F_GRANT, .nsegment = 1},
                0);
    put_message(
        "withdraw",
        &(struct rme_wire_message){.type = RME_WIRE_CREDIT, .flags = RME_WIRE_F_WITHDRAW}, 0);
    put_message(
        "release",
        &(struct rme_wire_message){.type = RME_WIRE_CREDIT, .flags = RME_WIRE_F_RELEASE}, 0);
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
    struct rme_reject reject = {.reason = RME_REJECT_RX_SIZE, .acceptable = 512};
    uint8_t out[RME_HELLO_MAX] = {0};

    rme_hello_encode(&hello, out);
    put("hello", "hello", out, RME_HELLO_SIZE);
    put("hello", "hello-padded", out, RME_HELLO_MAX);
    hello.credits = 1;
    rme_hello_encode(&hello, out);
    put("hello", "hello-lean", out, RME_HELLO_SIZE);
    rme_reject_encode(&reject, out);
    put("hello", "reject", out, RME_REJECT_SIZE);
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

/* ---- bmi-perf's server, in the steps of fuzz_perf.c: an event, then its ends ---- */

#define ENDS(how) 0, 0, how
#define GOOD      15
#define SHORT     255 - 16 + 7 /* half of the bytes arrive */
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
    static const uint8_t raw[] = {ASK(JOB_RAW, 0, 0, 0, 0, 0), REST};
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
    SEED_PERF(raw);
    SEED_PERF(dies);
    SEED_PERF(fails);
    SEED_PERF(too_short);
    SEED_PERF(no_memory);
    SEED_PERF(at_once);
#undef SEED_PERF
}

/* ---- Scripts for the inbox of the software HCA: see fuzz_inbox.c ---- */

enum {
    RAW = 130,
    CM = 131,
    CONNECT = 132,
    CONNECT_UD = 192,
    LATER = 134,
    TO_ACTIVE = 133,
    TO_PASSIVE = 138
};

static void inbox(void)
{
    static const unsigned char life[] = {CONNECT, TO_PASSIVE, 0, TO_ACTIVE, 3,      TO_ACTIVE,
                                         2,       TO_PASSIVE, 2, LATER,     CONNECT};
    static const unsigned char refusal[] = {CONNECT, TO_PASSIVE, 1, CONNECT, TO_ACTIVE, 4};
    static const unsigned char asked[] = {CONNECT_UD, TO_PASSIVE, 0,          TO_ACTIVE, 2,
                                          LATER,      CONNECT_UD, TO_PASSIVE, 1};
    unsigned char script[10 * 60], *at = script;

    put("inbox", "life", life, sizeof(life));
    put("inbox", "refusal", refusal, sizeof(refusal));
    put("inbox", "asked", asked, sizeof(asked));
    /* each kind of message, with an event of another kind of object */
    for (unsigned kind = 1; kind <= 8; kind++) {
        unsigned char m[27] = {RAW, (unsigned char)kind, kind == 7 ? 32 + 7 : 7};
        m[7] = kind % 2 ? 0 : 10; /* an error of a CQ, a limit of an SRQ */
        memcpy(at, m, sizeof(m));
        at += sizeof(m);
    }
    put("inbox", "events", script, (size_t)(at - script));
    /* each message of the connection manager, for the active side of a connection, and of a
     * datagram request */
    for (unsigned ud = 0; ud < 2; ud++) {
        at = script;
        *at++ = ud ? CONNECT_UD : CONNECT;
        for (unsigned type = 0; type < 9; type++) {
            unsigned char m[51] = {CM, ud ? 15 : 7, (unsigned char)type};
            m[50] = 2;
            memcpy(at, m, sizeof(m));
            at += sizeof(m);
        }
        put("inbox", ud ? "messages-ud" : "messages", script, (size_t)(at - script));
    }
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
    lent();
    too_much();
    iod_seeds();
    jobs();
    perf_sessions();
    inbox();
#ifdef HAVE_BMI_ELAN4
    elan();
#endif
    return 0;
}
