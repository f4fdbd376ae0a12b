/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The I/O server with its real requests, transfers, flows and store in memory, and peers driven
 * by the input: they send requests in any order with any values, receive or lose answers and
 * data, and disconnect. The input also decides the order of events: ends of operations, work of
 * the workers. Finally all peers are gone, and the server must have freed everything of theirs.
 */
#include "fake_bmi.h"
#include "fuzz.h"
#include "embedded/iod/log.h"
#include "embedded/iod/proto.h"
#include "embedded/iod/server.h"

#define HANDLES    16
#define UNTIL_IDLE 100000 /* steps within which a server without peers must become idle */

static struct {
    const uint8_t *at, *end;
    struct server *server;
    BMI_addr_t peer[FAKE_PEERS];
    uint64_t handle[HANDLES]; /* handles of answered requests */
    unsigned handles;
    bmi_msg_tag_t tag;
} run;

static unsigned byte(void)
{
    return run.at < run.end ? *run.at++ : 0;
}

/* ---- peers ---- */

static void ask_bytes(unsigned peer)
{
    uint8_t bytes[300];
    size_t length = byte();

    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)byte();
    fake_unexpected(run.peer[peer], bytes, (bmi_size_t)length, ++run.tag);
}

static uint64_t some_handle(void)
{
    unsigned n = byte();

    return n < 250 && run.handles
               ? run.handle[n % (run.handles < HANDLES ? run.handles : HANDLES)]
               : n;
}

static void ask(unsigned peer)
{
    static const char *const names[] = {"a", "b", "c/d"};
    static uint8_t bytes[IOD_REQUEST_MAX];
    struct iod_message q = {.op = (enum iod_op)(1 + byte() % 10)};
    int64_t length;

    q.handle = some_handle();
    q.id = (struct iod_id){7, byte() % 5};
    q.layout.size = byte() * 251u;
    q.layout.strip = 64 << byte() % 8;
    q.layout.count = 1 + byte() % 3;
    q.layout.index = byte() % q.layout.count;
    q.mode = 0600;
    q.buffer_size = 4096 + byte() % 3 * 1000;
    q.buffers = 1 + byte() % 5;
    q.data_tag = (int32_t)byte();
    q.name = iod_string_of(names[byte() % 3]);
    length = iod_request_encode(&q, bytes, sizeof(bytes));
    if (length > 0)
        fake_unexpected(run.peer[peer], bytes, length, ++run.tag);
}

/* Records the handle in a reply. */
static void learn(const struct fake_op *op)
{
    struct iod_message reply;

    if (!op->send || iod_reply_decode(op->memory, (size_t)op->size, &reply) != 0)
        return;
    if (reply.status == IOD_OK && !(reply.flags & IOD_FLAG_WORKING) && reply.handle)
        run.handle[run.handles++ % HANDLES] = reply.handle;
}

static void finish_one(void)
{
    int waiting = fake_waiting();
    struct fake_op *op = waiting ? fake_waiting_at((int)byte() % waiting) : NULL;
    unsigned how = byte();

    if (op == NULL)
        return;
    if (how < 20) {
        fake_finish(op, -BMI_ECONNRESET, 0);
    } else if (op->size == 0 && !op->send) {
        return; /* watches the connection: never completes */
    } else if (op->send) {
        learn(op);
        fake_finish(op, 0, op->size);
    } else {
        bmi_size_t actual = how < 40 ? op->size / 2 : op->size;

        memset((void *)(uintptr_t)op->memory, (int)how, (size_t)actual);
        fake_finish(op, 0, actual);
    }
}

static void lose(unsigned peer)
{
    fake_lose(run.peer[peer]);
    run.peer[peer] = fake_connect((int)peer);
}

static void step(void)
{
    unsigned what = byte() % 16, peer = byte() % FAKE_PEERS;

    if (what == 0)
        ask_bytes(peer);
    else if (what < 7)
        ask(peer);
    else if (what < 11)
        finish_one();
    else if (what < 14)
        fake_run_job();
    else if (what == 14 && byte() < 64)
        lose(peer);
    else if (what == 15 && byte() < 4)
        server_drain(run.server);
    FUZZ_CHECK(server_run(run.server, 0) == 0);
}

static void come_to_rest(void)
{
    int steps = 0;

    for (unsigned i = 0; i < FAKE_PEERS; i++)
        fake_lose(run.peer[i]);
    do {
        FUZZ_CHECK(server_run(run.server, 0) == 0);
        FUZZ_CHECK(++steps < UNTIL_IDLE);
    } while (fake_run_job() || fake_waiting() || !server_is_idle(run.server));
}

uint64_t fuzz_trace(void)
{
    return fake_trace();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct access *allow;
    struct server_config config = {.listen = "ib://127.0.0.1:1",
                                   .folder = "memory:300000",
                                   .memory = 6 * 4096,
                                   .buffer_size = 4096,
                                   .client_timeout_ms = 60000};
    char why[200];
    int steps = 0;

    log_set_level(LOG_ERRORS);
    if (allow == NULL)
        allow = access_new("10.0.0.0/8", why, sizeof(why));
    config.allow = allow;
    memset(&run, 0, sizeof(run));
    run.at = data;
    run.end = data + size;
    fake_begin();
    FUZZ_CHECK(server_open(&config, &run.server) == 0);
    for (unsigned i = 0; i < FAKE_PEERS; i++)
        run.peer[i] = fake_connect((int)i);
    while (run.at < run.end && steps++ < 2000)
        step();
    come_to_rest();
    server_close(run.server);
    FUZZ_CHECK(fake_end());
    return 0;
}
