/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * iod-hostile ADDR [CASE]: a client that sends every invalid request. The server must answer
 * each with the right status, and continue. Exits with 0 if it does, in the middle of an
 * upload. Other cases:
 *
 * leave:  opens an upload, announces data, closes it, and disconnects before any answer.
 * crowd:  opens many objects at once, and disconnects before any answer.
 * greedy: opens uploads that request the maximum of buffers, never sends data; stays.
 * hoard:  opens uploads until refused, prints their number; stays.
 * deaf:   requests lists without receiving answers; stays.
 */
#include "config.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/net.h"
#include "embedded/iod/proto.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 300000 /* timeout that detects a hang */

static struct {
    bmi_context_id context;
    BMI_addr_t server;
    bmi_msg_tag_t tag;
    int checks, failures;
} me;

/* ---- one operation at a time ---- */

struct wait {
    struct net_op op;
    bool done;
    int error;
    int64_t actual;
};

static void wait_done(struct net_op *op, int error, int64_t actual)
{
    struct wait *w = (struct wait *)op;

    op->id = 0;
    w->done = true;
    w->error = error;
    w->actual = actual;
}

static void posted(struct wait *w, int result)
{
    if (result == 0)
        return;
    w->done = true;
    w->error = result < 0 ? result : 0;
}

static bool wait_for(struct wait *w)
{
    int64_t deadline = clock_ms() + WAIT_MS;

    while (!w->done && clock_ms() < deadline)
        if (net_poll(me.context, 100) < 0)
            return false;
    return w->done;
}

/* Starts a receive of data or a reply, or a send of data. */
static void begin(struct wait *w, bool send, void *buf, int64_t size, bmi_msg_tag_t tag)
{
    *w = (struct wait){.op = {.done = wait_done}};
    posted(w, send ? net_send(me.context, me.server, buf, size, BMI_EXT_ALLOC, tag, &w->op)
                   : net_recv(me.context, me.server, buf, size, BMI_EXT_ALLOC, tag, &w->op,
                              &w->actual));
}

static void send_bytes(const void *bytes, int64_t length, bmi_msg_tag_t tag)
{
    struct wait w = {.op = {.done = wait_done}};

    posted(&w, net_send_request(me.context, me.server, bytes, length, tag, &w.op));
    if (!wait_for(&w) || w.error) {
        printf("a request could not be sent: %s\n", strerror(-w.error));
        exit(1);
    }
}

static void send_request(const struct iod_message *request, bmi_msg_tag_t tag)
{
    static uint8_t bytes[IOD_REQUEST_MAX];
    int64_t length = iod_request_encode(request, bytes, sizeof bytes);

    if (length < 0) {
        printf("%s cannot be encoded\n", iod_op_name(request->op));
        exit(1);
    }
    send_bytes(bytes, length, tag);
}

/* ---- requests and their required answers ---- */

static uint8_t reply_bytes[IOD_REPLY_MAX];
static struct wait reply_wait;

static void expect_begin(bmi_msg_tag_t tag)
{
    begin(&reply_wait, false, reply_bytes, sizeof reply_bytes, tag);
}

/* Receives the reply to the request with `tag`; skips keep-alive messages. */
static bool expect_end(const char *what, enum iod_status status, bmi_msg_tag_t tag,
                       struct iod_message *reply)
{
    int error;

    me.checks++;
    for (;;) {
        if (!wait_for(&reply_wait) || reply_wait.error) {
            printf("FAILED: %s: no reply (%s)\n", what, strerror(-reply_wait.error));
            me.failures++;
            return false;
        }
        error = iod_reply_decode(reply_bytes, (size_t)reply_wait.actual, reply);
        if (error || !(reply->flags & IOD_FLAG_WORKING))
            break;
        expect_begin(tag);
    }
    if (!error && reply->status == status)
        return true;
    printf("FAILED: %s: status %d instead of %d, %.*s\n", what,
           error ? error : (int)reply->status, (int)status, error ? 0 : (int)reply->text.length,
           error ? "" : reply->text.text);
    me.failures++;
    return false;
}

static bool expect_bytes(const char *what, const void *bytes, int64_t length,
                         enum iod_status status)
{
    struct iod_message reply;
    bmi_msg_tag_t tag = me.tag++;

    expect_begin(tag);
    send_bytes(bytes, length, tag);
    return expect_end(what, status, tag, &reply);
}

static bool expect(const char *what, const struct iod_message *request, enum iod_status status,
                   struct iod_message *reply)
{
    bmi_msg_tag_t tag = me.tag++;

    expect_begin(tag);
    send_request(request, tag);
    return expect_end(what, status, tag, reply);
}

static struct iod_message put_open(const char *name, uint64_t size)
{
    return (struct iod_message){.op = IOD_OP_PUT_OPEN,
                                .layout = {size, 65536, 0, 1},
                                .mode = 0600,
                                .buffer_size = 65536,
                                .buffers = 2,
                                .name = iod_string_of(name)};
}

static uint64_t open_upload(const char *name, uint64_t size)
{
    struct iod_message request = put_open(name, size);
    struct iod_message reply;

    return expect("opening an upload", &request, IOD_OK, &reply) ? reply.handle : 0;
}

static struct iod_message of_handle(enum iod_op op, uint64_t handle)
{
    return (struct iod_message){.op = op, .handle = handle};
}

static struct iod_message data_request(enum iod_op op, uint64_t handle, bmi_msg_tag_t tag)
{
    return (struct iod_message){.op = op, .handle = handle, .data_tag = tag};
}

/* ---- the cases ---- */

static void malformed(void)
{
    static uint8_t bytes[IOD_REQUEST_MAX];
    struct iod_message list = {.op = IOD_OP_LIST};
    int64_t length;

    expect_bytes("an empty message", bytes, 0, IOD_PROTOCOL);
    srandom(1);
    for (int i = 0; i < 200; i++) {
        for (size_t b = 0; b < sizeof bytes; b++)
            bytes[b] = (uint8_t)random();
        expect_bytes("random bytes", bytes, random() % IOD_REQUEST_MAX, IOD_PROTOCOL);
    }
    length = iod_request_encode(&list, bytes, sizeof bytes);
    bytes[4]++;
    expect_bytes("another version", bytes, length, IOD_PROTOCOL);
    list = put_open("x", 5);
    length = iod_request_encode(&list, bytes, sizeof bytes);
    memset(bytes + 12 + 8 + 8, 0, 8);
    expect_bytes("a strip of no bytes", bytes, length, IOD_INVALID);
}

static void wrong_order(void)
{
    uint64_t handle = open_upload("order", 0);
    struct iod_message request = of_handle(IOD_OP_COMMIT, handle);
    struct iod_message reply;

    expect("a commit before the seal", &request, IOD_INVALID, &reply);
    request = data_request(IOD_OP_READ, handle, me.tag++);
    expect("reading an upload", &request, IOD_INVALID, &reply);
    request = of_handle(IOD_OP_SEAL, handle);
    expect("the seal", &request, IOD_OK, &reply);
    request = data_request(IOD_OP_WRITE, handle, me.tag++);
    expect("writing what is sealed", &request, IOD_INVALID, &reply);
    request = of_handle(IOD_OP_CLOSE, handle);
    expect("closing", &request, IOD_OK, &reply);
    expect("closing twice", &request, IOD_NO_HANDLE, &reply);
    request = of_handle(IOD_OP_SEAL, open_upload("order", 100));
    expect("sealing what was not written", &request, IOD_INVALID, &reply);
}

static void wrong_data(int64_t length, const char *what)
{
    static char data[200000];
    uint64_t handle = open_upload("data", 100000); /* messages of 65536 and 34464 bytes */
    bmi_msg_tag_t data_tag = me.tag++, tag = me.tag++;
    struct iod_message request = data_request(IOD_OP_WRITE, handle, data_tag);
    struct iod_message reply;
    struct wait w;

    expect_begin(tag);
    send_request(&request, tag);
    begin(&w, true, data, length, data_tag);
    if (!wait_for(&w)) {
        printf("FAILED: %s: the send does not end\n", what);
        me.failures++;
        return;
    }
    me.checks++;
    if (!wait_for(&reply_wait) ||
        iod_reply_decode(reply_bytes, (size_t)reply_wait.actual, &reply) ||
        reply.status == IOD_OK) {
        printf("FAILED: %s: no refusal\n", what);
        me.failures++;
    }
    request = of_handle(IOD_OP_SEAL, handle);
    expect("sealing what failed", &request, IOD_INVALID, &reply);
    request = of_handle(IOD_OP_CLOSE, handle);
    expect("closing what failed", &request, IOD_OK, &reply);
}

static void busy(void)
{
    uint64_t handle = open_upload("busy", 1000000);
    struct iod_message request = data_request(IOD_OP_WRITE, handle, me.tag++);
    struct iod_message reply;

    send_request(&request, me.tag++); /* its data is never sent */
    request = data_request(IOD_OP_WRITE, handle, me.tag++);
    expect("two writes at once", &request, IOD_BUSY, &reply);
    request = of_handle(IOD_OP_SEAL, handle);
    expect("a seal during a write", &request, IOD_BUSY, &reply);
    request = of_handle(IOD_OP_CLOSE, handle);
    expect("closing during a write", &request, IOD_OK, &reply);
    expect("closing twice", &request, IOD_NO_HANDLE, &reply);
}

/* Sends requests without receiving answers. The server may drop requests that come too fast,
 * and must serve the same client again later. */
static void flood(void)
{
    struct iod_message list = {.op = IOD_OP_LIST};
    int64_t deadline = clock_ms() + WAIT_MS;
    bool answered = false;

    for (int i = 0; i < 500; i++)
        send_request(&list, me.tag++);
    me.checks++;
    while (!answered && clock_ms() < deadline) {
        struct wait *w = &reply_wait;
        bmi_msg_tag_t tag = me.tag++;

        expect_begin(tag);
        send_request(&list, tag);
        for (int i = 0; i < 10 && !w->done; i++)
            net_poll(me.context, 100);
        answered = w->done && !w->error;
        net_cancel(me.context, &w->op);
        wait_for(w);
    }
    if (!answered) {
        printf("FAILED: no answer after a flood\n");
        me.failures++;
    }
}

/* Leaves uploads open, one of them waiting for data, and exits. */
static void walk_away(void)
{
    uint64_t handle = open_upload("gone", 1000000);
    struct iod_message request = data_request(IOD_OP_WRITE, handle, me.tag++);

    send_request(&request, me.tag++);
    open_upload("gone too", 5);
}

/* The client is gone before the server answers CLOSE. */
static void leave(void)
{
    uint64_t handle = open_upload("left", 1000000);
    struct iod_message request = data_request(IOD_OP_WRITE, handle, me.tag++);

    send_request(&request, me.tag++);
    request = of_handle(IOD_OP_CLOSE, handle);
    send_request(&request, me.tag++);
}

/* Likewise for these opens, in progress or queued. */
static void crowd(void)
{
    struct iod_message get = {.op = IOD_OP_GET_OPEN,
                              .buffer_size = 65536,
                              .buffers = 2,
                              .name = iod_string_of("there")};

    for (int i = 0; i < 30; i++) {
        struct iod_message put = put_open("crowd", 10);

        send_request(&get, me.tag++);
        send_request(&put, me.tag++);
    }
}

/* Waits until the process is killed. */
static void stay(const char *what, int n)
{
    printf("%s %d\n", what, n);
    fflush(stdout);
    while (net_poll(me.context, 100) >= 0)
        ;
}

static void greedy(void)
{
    struct iod_message put = put_open("greedy", 1000000000);
    struct iod_message reply;

    put.buffer_size = IOD_BUFFER_MAX;
    put.buffers = IOD_BUFFERS_MAX;
    for (int i = 0; i < 8; i++) {
        struct iod_message write;

        if (!expect("opening an upload", &put, IOD_OK, &reply))
            break;
        write = data_request(IOD_OP_WRITE, reply.handle, me.tag++);
        send_request(&write, me.tag++);
    }
    stay("holding", 8);
}

static void hoard(void)
{
    struct iod_message put = put_open("hoard", 10);
    struct iod_message reply;
    int n = 0;

    while (n < 100000) {
        bmi_msg_tag_t tag = me.tag++;

        expect_begin(tag);
        send_request(&put, tag);
        if (!wait_for(&reply_wait) ||
            iod_reply_decode(reply_bytes, (size_t)reply_wait.actual, &reply) ||
            reply.status != IOD_OK)
            break;
        n++;
    }
    stay("holding", n);
}

static void deaf(void)
{
    struct iod_message list = {.op = IOD_OP_LIST};

    for (int i = 0; i < 300; i++)
        send_request(&list, me.tag++);
    stay("asked", 300);
}

static void everything(void)
{
    malformed();
    wrong_order();
    wrong_data(100, "a message that is too short");
    wrong_data(65537, "a message that is too long");
    busy();
    flood();
    walk_away();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"", everything},   {"leave", leave}, {"crowd", crowd},
                 {"greedy", greedy}, {"hoard", hoard}, {"deaf", deaf}};
    const char *what = argc == 3 ? argv[2] : "";
    int error;

    if (argc < 2 || argc > 3)
        return 2;
    me.tag = 1;
    error = net_open(NULL, NULL, &me.context);
    if (!error)
        error = -bmi_error_to_errno(BMI_addr_lookup(&me.server, argv[1], NULL));
    if (error) {
        printf("%s: %s\n", argv[1], net_error_text(error));
        return 1;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(what, cases[i].name) == 0)
            cases[i].run();
    printf("%d checks, %d failed\n", me.checks, me.failures);
    fflush(stdout);
    _exit(me.failures ? 1 : 0); /* without disconnecting */
}
