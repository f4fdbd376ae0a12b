/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * sized.c - example: sizes buffers by the attributes of the session.
 *
 * usage: sized [BYTES]
 *
 * Sends BYTES (default 100 MiB), rounded up to whole messages, to a server, a second process of
 * this program, from memory of the method.  The attributes of the session:
 *
 *  - unit_bytes: large messages are registered and moved in units of this size.  A message of
 *    two units overlaps the registration of one with the transfer of the other; longer messages
 *    gain nothing.
 *  - transfer_bytes: limit on one peer's data in flight in the device.  Messages with twice
 *    this number of bytes keep the device busy.
 *  - zone_bytes: memory from BMI_memalloc is registered once, up to this size.
 *
 * Finally prints counters of this peer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bmi.h>
#include <shim-engine.h>

#define TAG          1
#define MESSAGES_MAX 64 /* in flight */

/* Request of the client: `count` messages of `bytes` bytes. */
struct plan {
    unsigned long long count, bytes;
};

static bmi_context_id context;

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

/* Ends a post: waits for one operation, unless the post was complete.  Returns the `user`
 * pointer of the operation that ended. */
static void *finish(int posted)
{
    bmi_op_id_t id;
    bmi_error_code_t error = 0;
    bmi_size_t size;
    void *user = NULL;
    int count = posted;

    must(posted >= 0, "a post");
    while (count == 0)
        must(BMI_testcontext(1, &id, &count, &error, &size, &user, 100, context) >= 0,
             "BMI_testcontext");
    must(error == 0, "a message");
    return user;
}

/* Receives an unexpected message and returns its sender. */
static BMI_addr_t receive_plan(struct plan *plan)
{
    struct BMI_unexpected_info info;
    int count = 0;

    while (count == 0)
        must(BMI_testunexpected(1, &count, &info, 100) >= 0, "BMI_testunexpected");
    must(info.size == sizeof(*plan), "size of the client's request");
    memcpy(plan, info.buffer, sizeof(*plan));
    BMI_unexpected_free(info.addr, info.buffer);
    return info.addr;
}

static void send_plan(BMI_addr_t server, const struct plan *plan)
{
    bmi_op_id_t id;

    finish(BMI_post_sendunexpected(&id, server, plan, sizeof(*plan), BMI_EXT_ALLOC, TAG, NULL,
                                   context, NULL));
}

static int serve(int out)
{
    struct plan plan;
    bmi_op_id_t id;
    bmi_size_t got;
    int port = 0;

    must(BMI_initialize("bmi_ib", "ib://127.0.0.1:0", BMI_INIT_SERVER, NULL) == 0, "listening");
    must(BMI_open_context(&context) == 0, "BMI_open_context");
    must(BMI_get_info(0, BMI_TCP_GET_PORT, &port) == 0, "BMI_TCP_GET_PORT");
    must(write(out, &port, sizeof(port)) == (ssize_t)sizeof(port), "write");
    receive_plan(&plan); /* an empty one, which makes the session */
    BMI_addr_t client = receive_plan(&plan);
    unsigned char *buffer = BMI_memalloc(client, (bmi_size_t)plan.bytes, BMI_RECV);
    must(buffer != NULL, "BMI_memalloc");
    for (unsigned long long i = 0; i < plan.count; i++) {
        finish(BMI_post_recv(&id, client, buffer, (bmi_size_t)plan.bytes, &got, BMI_PRE_ALLOC,
                             TAG, NULL, context, NULL));
        for (unsigned long long at = 0; at < plan.bytes; at++)
            must(buffer[at] == (unsigned char)i, "comparison of the received data");
    }
    BMI_memfree(client, buffer, (bmi_size_t)plan.bytes, BMI_RECV);
    receive_plan(&plan);
    BMI_close_context(context);
    return BMI_finalize() == 0 ? 0 : 1;
}

static void client(int port, unsigned long long bytes)
{
    void *buffer[MESSAGES_MAX];
    struct plan plan = {0, 0};
    unsigned long long i, slots;
    BMI_addr_t server;
    bmi_op_id_t id;
    char text[64];

    must(BMI_initialize(NULL, NULL, 0, NULL) == 0, "BMI_initialize");
    must(BMI_open_context(&context) == 0, "BMI_open_context");
    snprintf(text, sizeof(text), "ib://127.0.0.1:%d", port);
    must(BMI_addr_lookup(&server, text, NULL) == 0, "BMI_addr_lookup");
    send_plan(server, &plan); /* the session exists from here on */
    plan.bytes = 2 * attribute(server, "unit_bytes");
    slots = 2 * attribute(server, "transfer_bytes") / plan.bytes + 1;
    if (slots > MESSAGES_MAX)
        slots = MESSAGES_MAX;
    while (slots > 1 && slots * plan.bytes > attribute(server, "zone_bytes"))
        slots--;
    plan.count = (bytes + plan.bytes - 1) / plan.bytes;
    printf("%llu messages of %llu bytes, %llu buffers\n", plan.count, plan.bytes, slots);
    send_plan(server, &plan);
    for (i = 0; i < slots; i++) {
        buffer[i] = BMI_memalloc(server, (bmi_size_t)plan.bytes, BMI_SEND);
        must(buffer[i] != NULL, "BMI_memalloc");
    }
    for (i = 0; i < plan.count + slots; i++) {
        void *next = i < slots ? buffer[i] : finish(0);

        if (i >= plan.count)
            continue; /* waits for the last ones */
        memset(next, (int)(unsigned char)i, (size_t)plan.bytes);
        must(BMI_post_send(&id, server, next, (bmi_size_t)plan.bytes, BMI_PRE_ALLOC, TAG, next,
                           context, NULL) == 0,
             "BMI_post_send");
    }
    send_plan(server, &plan);
    printf("sent %llu by RDMA write, %llu by RDMA read of the server\n",
           attribute(server, "sends_rndv_write"), attribute(server, "sends_rndv_read"));
    for (i = 0; i < slots; i++)
        BMI_memfree(server, buffer[i], (bmi_size_t)plan.bytes, BMI_SEND);
    BMI_close_context(context);
    must(BMI_finalize() == 0, "BMI_finalize");
}

int main(int argc, char **argv)
{
    unsigned long long bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 100ULL << 20;
    int way[2], port = 0, status = 1;
    pid_t pid;

    must(bytes > 0, "BYTES");
    must(pipe(way) == 0, "pipe");
    pid = fork(); /* before BMI starts */
    must(pid >= 0, "fork");
    if (pid == 0)
        return serve(way[1]);
    close(way[1]);
    must(read(way[0], &port, sizeof(port)) == (ssize_t)sizeof(port), "the server");
    client(port, bytes);
    waitpid(pid, &status, 0);
    must(status == 0, "the server");
    return 0;
}
