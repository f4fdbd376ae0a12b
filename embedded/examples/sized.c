/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * sized.c - example: sizes buffers by the attributes of the session.
 *
 * usage: sized [BYTES [own [OPTIONS]]]
 *
 * Sends BYTES (default 100 MiB) to a server, a second process of this program, from memory of
 * the method, or from its own with the argument "own".  The attributes of the session:
 *
 *  - unit_bytes: large messages are registered and moved in units of this size.  A message of
 *    two units overlaps the registration of one with the transfer of the other; longer messages
 *    gain nothing.
 *  - transfer_bytes: limit on one peer's data in flight in the device.  Messages with twice
 *    this number of bytes keep the device busy.
 *  - zone_bytes: memory from BMI_memalloc is registered once, up to this size.
 *  - cache_bytes, cache_entries: the program's own memory stays registered up to this number of
 *    bytes and of units.  Buffers beyond would be registered each time; if none fits, the
 *    program uses the method's memory.
 *  - eager_bytes: a rest up to this size is sent eagerly, and its memory is free once the post
 *    returned.
 *
 * Finally prints the counters of this peer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bmi.h>
#include <shim-engine.h>

#define TAG_PLAN 1
#define TAG_DATA 2
#define MOST     64 /* maximum messages in flight */

/* Request of the client: `count` messages of `bytes` bytes, and one of `rest` bytes. */
struct plan {
    unsigned long long count, bytes, rest;
};

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "sized: %s failed\n", what);
    exit(1);
}

static unsigned long long attribute(BMI_addr_t peer, const char *name)
{
    struct shim_attribute a = {.index = -1, .name = name};

    must(BMI_get_info(peer, BMI_GET_METH_ADDR, &a.addr) >= 0, "BMI_GET_METH_ADDR");
    must(BMI_get_info(peer, SHIM_GET_ATTRIBUTE, &a) >= 0, name);
    return a.value;
}

static bmi_context_id context;

/* Buffer, and whether a message uses it. */
struct slot {
    char *buffer;
    int busy;
};

/* Waits for the completion of one operation and frees its slot. */
static void finish_one(void)
{
    bmi_op_id_t id;
    bmi_error_code_t error;
    bmi_size_t size;
    void *user = NULL;
    int count = 0;

    for (int i = 0; count == 0 && i < 600; i++)
        must(BMI_testcontext(1, &id, &count, &error, &size, &user, 100, context) >= 0,
             "BMI_testcontext");
    must(count == 1 && error == 0, "a message");
    if (user != NULL)
        ((struct slot *)user)->busy = 0;
}

static unsigned char byte_of(unsigned long long message, unsigned long long at)
{
    return (unsigned char)(message * 31 + at * 7 + at / 4093);
}

/* ---- The server ---- */

static void receive(BMI_addr_t peer, char *buffer, unsigned long long bytes,
                    unsigned long long message)
{
    bmi_op_id_t id;
    bmi_size_t got;
    int rc = BMI_post_recv(&id, peer, buffer, (bmi_size_t)bytes, &got, BMI_EXT_ALLOC, TAG_DATA,
                           NULL, context, NULL);

    must(rc >= 0, "BMI_post_recv");
    if (rc == 0)
        finish_one();
    for (unsigned long long i = 0; i < bytes; i++)
        must((unsigned char)buffer[i] == byte_of(message, i),
             "comparison of the received data");
}

/* Receives an unexpected message into `what` and returns its sender. */
static BMI_addr_t receive_from(void *what, bmi_size_t size)
{
    struct BMI_unexpected_info info;
    int count = 0;

    for (int i = 0; count == 0 && i < 600; i++)
        must(BMI_testunexpected(1, &count, &info, 100) >= 0, "BMI_testunexpected");
    must(count == 1 && info.size == size, "size of the client's request");
    memcpy(what, info.buffer, (size_t)size);
    BMI_unexpected_free(info.addr, info.buffer);
    return info.addr;
}

static int serve(int out)
{
    struct plan plan;
    char hello[6];
    int port = 0;

    must(BMI_initialize("bmi_ib", "ib://127.0.0.1:0", BMI_INIT_SERVER, NULL) == 0, "listening");
    must(BMI_open_context(&context) == 0, "BMI_open_context");
    must(BMI_get_info(0, BMI_TCP_GET_PORT, &port) == 0, "BMI_TCP_GET_PORT");
    must(write(out, &port, sizeof(port)) == (ssize_t)sizeof(port), "write");
    receive_from(hello, sizeof(hello));
    BMI_addr_t client = receive_from(&plan, sizeof(plan));
    bmi_size_t most = (bmi_size_t)(plan.bytes > plan.rest ? plan.bytes : plan.rest);
    char *buffer = BMI_memalloc(client, most, BMI_RECV);
    must(buffer != NULL, "BMI_memalloc");
    for (unsigned long long i = 0; i < plan.count; i++)
        receive(client, buffer, plan.bytes, i);
    if (plan.rest)
        receive(client, buffer, plan.rest, plan.count);
    BMI_memfree(client, buffer, most, BMI_RECV);
    bmi_op_id_t id;
    int rc =
        BMI_post_send(&id, client, "thanks", 7, BMI_EXT_ALLOC, TAG_PLAN, NULL, context, NULL);
    must(rc >= 0, "BMI_post_send");
    if (rc == 0)
        finish_one();
    char end[4];
    receive_from(end, sizeof(end)); /* before this the reply may be in flight */
    BMI_close_context(context);
    return BMI_finalize() == 0 ? 0 : 1;
}

/* ---- The client ---- */

static unsigned long long least(unsigned long long a, unsigned long long b)
{
    return a < b ? a : b;
}

static void send_bytes(BMI_addr_t server, const void *what, bmi_size_t size)
{
    bmi_op_id_t id;
    int rc = BMI_post_sendunexpected(&id, server, what, size, BMI_EXT_ALLOC, TAG_PLAN, NULL,
                                     context, NULL);

    must(rc >= 0, "BMI_post_sendunexpected");
    if (rc == 0)
        finish_one();
}

/* Sends the messages of the plan, each from a free slot. */
static void send_all(BMI_addr_t server, const struct plan *plan, struct slot *slot,
                     unsigned slots, enum bmi_buffer_type type)
{
    bmi_op_id_t id;

    for (unsigned long long i = 0; i <= plan->count; i++) {
        unsigned long long bytes = i < plan->count ? plan->bytes : plan->rest;
        struct slot *s = &slot[i % slots];

        while (s->busy)
            finish_one();
        for (unsigned long long at = 0; at < bytes; at++)
            s->buffer[at] = (char)byte_of(i, at);
        if (bytes == 0)
            break;
        int rc = BMI_post_send(&id, server, s->buffer, (bmi_size_t)bytes, type, TAG_DATA, s,
                               context, NULL);
        must(rc >= 0, "BMI_post_send");
        s->busy = rc == 0;
    }
    for (unsigned i = 0; i < slots; i++)
        while (slot[i].busy)
            finish_one();
}

static void receive_thanks(BMI_addr_t server)
{
    char thanks[7];
    bmi_size_t got;
    bmi_op_id_t id;
    int rc = BMI_post_recv(&id, server, thanks, sizeof(thanks), &got, BMI_EXT_ALLOC, TAG_PLAN,
                           NULL, context, NULL);

    must(rc >= 0, "BMI_post_recv");
    if (rc == 0)
        finish_one();
    must(strcmp(thanks, "thanks") == 0, "the answer");
    send_bytes(server, "end", 4);
}

/* Returns the bytes of the program's own memory that stay registered, in buffers of whole
 * units. */
static unsigned long long kept(BMI_addr_t peer)
{
    return least(attribute(peer, "cache_bytes"),
                 attribute(peer, "cache_entries") * attribute(peer, "unit_bytes"));
}

static char *get_buffer(BMI_addr_t server, unsigned long long bytes, enum bmi_buffer_type type)
{
    char *buffer = type == BMI_PRE_ALLOC ? BMI_memalloc(server, (bmi_size_t)bytes, BMI_SEND)
                                         : malloc((size_t)bytes);

    must(buffer != NULL, "getting memory");
    return buffer;
}

static void give_buffer(BMI_addr_t server, char *buffer, unsigned long long bytes,
                        enum bmi_buffer_type type)
{
    if (type == BMI_PRE_ALLOC)
        BMI_memfree(server, buffer, (bmi_size_t)bytes, BMI_SEND);
    else
        free(buffer);
}

static void client(int port, unsigned long long bytes, int own, char *options)
{
    enum bmi_buffer_type type = BMI_PRE_ALLOC;
    struct slot slot[MOST] = {{NULL, 0}};
    struct plan plan;
    BMI_addr_t server;
    char text[64];

    must(BMI_initialize(NULL, NULL, 0, NULL) == 0, "BMI_initialize");
    must(BMI_open_context(&context) == 0, "BMI_open_context");
    snprintf(text, sizeof(text), "ib://127.0.0.1:%d", port);
    must(BMI_addr_lookup(&server, text, options) == 0, "BMI_addr_lookup");
    send_bytes(server, "hello", 6); /* the session exists from here on */

    plan.bytes = 2 * attribute(server, "unit_bytes");
    unsigned long long busy = 2 * attribute(server, "transfer_bytes");
    unsigned slots = (unsigned)least(MOST, (busy + plan.bytes - 1) / plan.bytes + 1);
    unsigned long long room = own ? kept(server) : 0;
    if (room >= plan.bytes)
        type = BMI_EXT_ALLOC;
    else
        room = attribute(server, "zone_bytes");
    while (slots > 1 && slots * plan.bytes > room)
        slots--;
    plan.count = bytes / plan.bytes;
    plan.rest = bytes % plan.bytes;
    printf("%u buffers of %llu bytes%s; %llu messages of that, and one of %llu, %s\n", slots,
           plan.bytes, type == BMI_EXT_ALLOC ? " of its own" : "", plan.count, plan.rest,
           plan.rest <= attribute(server, "eager_bytes") ? "eagerly" : "by rendezvous");
    unsigned long long eager = attribute(server, "sends_eager");
    send_bytes(server, &plan, sizeof(plan));
    for (unsigned i = 0; i < slots; i++)
        slot[i].buffer = get_buffer(server, plan.bytes, type);
    send_all(server, &plan, slot, slots, type);
    eager = attribute(server, "sends_eager") - eager - 1; /* without the plan */
    receive_thanks(server); /* small sends complete before they arrive */
    printf("sent %llu eagerly, %llu by RDMA write, %llu by RDMA read of the server\n", eager,
           attribute(server, "sends_rndv_write"), attribute(server, "sends_rndv_read"));
    for (unsigned i = 0; i < slots; i++)
        give_buffer(server, slot[i].buffer, plan.bytes, type);
    BMI_close_context(context);
    must(BMI_finalize() == 0, "BMI_finalize");
}

int main(int argc, char **argv)
{
    unsigned long long bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 100ULL << 20;
    int way[2], port = 0, status = 1;
    pid_t pid;

    must(bytes > 0, "BYTES");
    must(argc <= 2 || strcmp(argv[2], "own") == 0, "the word own");
    must(pipe(way) == 0, "pipe");
    pid = fork(); /* before BMI starts */
    must(pid >= 0, "fork");
    if (pid == 0)
        return serve(way[1]);
    close(way[1]);
    must(read(way[0], &port, sizeof(port)) == (ssize_t)sizeof(port), "the server");
    client(port, bytes, argc > 2, argc > 3 ? argv[3] : NULL);
    waitpid(pid, &status, 0);
    must(status == 0, "the server");
    return 0;
}
