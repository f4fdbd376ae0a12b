/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures a small request and its reply beside other load, between two processes over ib://:
 *
 *   beside [--options LIST] bulk [MESSAGES [BYTES [SECONDS]]]
 *       beside MESSAGES (8) messages of BYTES (64 MiB) that move continuously to the same peer
 *   beside [--options LIST] connects [COUNT [SECONDS]]
 *       beside COUNT (1000) connections of a third process, first to another server, which
 *       shows the cost of the processor time, then to the same server
 *
 * Prints minimum, median, 99 % and maximum of the times at rest and under load, in
 * microseconds. Intended for the software HCA with its link model: EMUVERBS_LINK_MB_S=1000
 * emul/verbs/emuverbs bench/beside bulk. Without the link model nothing queues.
 */
#include "bench/ends.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REQUEST = 1,
    BULK = 2,
    REPLY = 3,
    FIRST_BULK = 100,
    BULK_MAX = 64,
    TIMES_MAX = 1 << 20,
    REST_TIMES = 2000
};

struct order { /* contents of a request */
    uint64_t messages, bytes;
};

struct end {
    struct rme *rme;
    struct rme_addr *peer;
};

struct bulk {
    void *memory;
    int tag;
};

const char ends_program[] = "beside";

static double times[TIMES_MAX];

/* ---- The server: answers requests, and receives announced messages ---- */

static void serve_receive(struct end *server, struct bulk *b, uint64_t bytes)
{
    int64_t length = (int64_t)bytes;
    struct rme_list list = {.base = &b->memory, .length = &length, .count = 1};
    rme_id id;
    int error = rme_post_recv(server->rme, server->peer, &list, b->tag, 0, b, NULL, &id);

    if (error)
        ends_die("a receive", error);
}

static void answer(struct end *server, struct rme_addr *to)
{
    static char reply[8];
    void *base = reply;
    int64_t length = sizeof(reply);
    struct rme_list list = {.base = &base, .length = &length, .count = 1};
    rme_id id;
    int error = rme_post_send(server->rme, to, &list, REPLY, 0, NULL, &id);

    if (error < 0 && error != -ECONNRESET)
        ends_die("a reply", error);
}

static void serve(struct rme *rme)
{
    struct end self = {.rme = rme}, *server = &self;
    static struct bulk bulk[BULK_MAX];
    static struct order order;

    for (;;) {
        struct rme_unexpected u;
        struct rme_done done;

        while (rme_test_unexpected(server->rme, &u, 1, 0) == 1) {
            if (u.tag == BULK && u.size == sizeof(order)) {
                memcpy(&order, u.buffer, sizeof(order));
                server->peer = u.addr;
                for (uint64_t i = 0; i < order.messages; i++) {
                    bulk[i] = (struct bulk){.memory = malloc(order.bytes),
                                            .tag = FIRST_BULK + (int)i};
                    if (!bulk[i].memory)
                        ends_die("memory of messages", ENOMEM);
                    memset(bulk[i].memory, 1, order.bytes);
                    serve_receive(server, &bulk[i], order.bytes);
                }
            }
            answer(server, u.addr);
            rme_unexpected_free(server->rme, u.buffer);
        }
        if (rme_test_context(server->rme, 0, &done, 1, 100) == 1 && done.user && !done.error)
            serve_receive(server, done.user, order.bytes);
    }
}

/* ---- The client ---- */

static void send_bulk(struct end *client, struct bulk *b, uint64_t bytes)
{
    int64_t length = (int64_t)bytes;
    struct rme_list list = {.base = &b->memory, .length = &length, .count = 1};
    rme_id id;
    int error = rme_post_send(client->rme, client->peer, &list, b->tag, 0, b, &id);

    if (error < 0)
        ends_die("a message", error);
}

/* Sends a request and waits for its reply; restarts bulk messages that complete meanwhile. */
static double exchange(struct end *client, int tag, struct order *order)
{
    static char in[8];
    void *out = order, *to = in;
    int64_t out_length = tag == BULK ? sizeof(*order) : 8, in_length = sizeof(in);
    struct rme_list request = {.base = &out, .length = &out_length, .count = 1};
    struct rme_list reply = {.base = &to, .length = &in_length, .count = 1};
    bool replied = false;
    double begin = ends_now_us();
    rme_id id, sent;
    int error = rme_post_recv(client->rme, client->peer, &reply, REPLY, 0, NULL, NULL, &id);

    if (!error)
        error = rme_post_unexpected(client->rme, client->peer, &request, tag, 0, &sent, &sent);
    if (error < 0)
        ends_die("a request", error);
    while (!replied) {
        struct rme_done done;

        if (rme_test_context(client->rme, 0, &done, 1, 100) != 1)
            continue;
        if (done.error)
            ends_die("the server", done.error);
        if (!done.user)
            replied = true;
        else if (done.user != &sent)
            send_bulk(client, done.user, order->bytes);
    }
    return ends_now_us() - begin;
}

/* Prints the first n times; returns their median. */
static double report(const char *what, size_t n)
{
    qsort(times, n, sizeof(times[0]), ends_by_size);
    printf("%-8s %8zu times: least %8.1f median %8.1f 99%% %9.1f most %9.1f us\n", what, n,
           times[0], times[n / 2], times[n * 99 / 100], times[n - 1]);
    fflush(stdout);
    return times[n / 2];
}

static size_t above(size_t n, double us)
{
    size_t i = n;

    while (i > 0 && times[i - 1] > us)
        i--;
    return n - i;
}

static double at_rest(struct end *client, struct order *order)
{
    for (size_t i = 0; i < REST_TIMES; i++)
        exchange(client, REQUEST, order);
    for (size_t i = 0; i < REST_TIMES; i++)
        times[i] = exchange(client, REQUEST, order);
    return report("at rest", REST_TIMES);
}

static size_t for_seconds(struct end *client, struct order *order, double seconds)
{
    double end = ends_now_us() + seconds * 1e6;
    size_t n = 0;

    while (n < TIMES_MAX && ends_now_us() < end)
        times[n++] = exchange(client, REQUEST, order);
    return n;
}

static void beside_bulk(struct end *client, struct order *order, double seconds)
{
    static struct bulk bulk[BULK_MAX];
    double rest = at_rest(client, order), begin, spent;
    uint64_t before;

    for (uint64_t i = 0; i < order->messages; i++) {
        bulk[i] = (struct bulk){.memory = malloc(order->bytes), .tag = FIRST_BULK + (int)i};
        if (!bulk[i].memory)
            ends_die("memory of messages", ENOMEM);
        memset(bulk[i].memory, 2, order->bytes);
    }
    exchange(client, BULK, order);
    for (uint64_t i = 0; i < order->messages; i++)
        send_bulk(client, &bulk[i], order->bytes);
    before = rme_counter_value(client->rme, "bytes_sent");
    begin = ends_now_us();
    size_t n = for_seconds(client, order, seconds);
    spent = ends_now_us() - begin;
    printf("bulk     %.0f MB/s\n",
           (double)(rme_counter_value(client->rme, "bytes_sent") - before) / spent);
    double median = report("beside", n);
    printf("ratio    %.2f of the time at rest, and %.1f us more\n", median / rest,
           median - rest);
}

/* Connects and closes `count` times, evenly over the time. */
static void connect_often(const char *uri, const char *options, uint64_t count, double seconds)
{
    struct rme *rme = ends_open(NULL, options);
    double begin = ends_now_us();
    for (uint64_t i = 0; i < count; i++) {
        struct rme_addr *addr = ends_address(uri);
        struct rme_done done;
        int error = rme_addr_reach(rme, addr, 10000);

        if (error)
            ends_die("a connection", error);
        rme_addr_free(addr);
        while (ends_now_us() < begin + (double)(i + 1) / (double)count * seconds * 1e6)
            rme_test_context(rme, 0, &done, 1, 1);
    }
    printf("connects %8llu in %.3f s\n", (unsigned long long)count,
           (ends_now_us() - begin) / 1e6);
    fflush(stdout);
}

/* Forks a process that connects `count` times after SIGCONT. */
static pid_t start_connecting(const char *uri, const char *options, uint64_t count,
                              double seconds)
{
    pid_t pid = fork();

    if (pid < 0)
        ends_die("the process that connects", errno);
    if (pid == 0) {
        raise(SIGSTOP);
        connect_often(uri, options, count, seconds);
        _exit(0);
    }
    return pid;
}

static void beside_connects(struct end *client, const char *what, pid_t other,
                            struct order *order)
{
    double rest = at_rest(client, order);
    size_t n = 0;
    int status;

    waitpid(other, &status, WUNTRACED);
    kill(other, SIGCONT);
    while (n < TIMES_MAX && waitpid(other, &status, WNOHANG) == 0)
        times[n++] = exchange(client, REQUEST, order);
    if (n == 0)
        ends_die("the process that connects", ECHILD);
    report(what, n);
    printf("delay    %.1f us at most; longer than 0.5, 1, 2 ms: %zu, %zu, %zu times\n",
           times[n - 1] - rest, above(n, 500), above(n, 1000), above(n, 2000));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *options = NULL;
    char uri[64];
    int port;

    if (argc > 2 && !strcmp(argv[1], "--options")) {
        options = argv[2];
        argc -= 2;
        argv += 2;
    }
    bool bulk = argc > 1 && !strcmp(argv[1], "bulk");
    if (!bulk && (argc < 2 || strcmp(argv[1], "connects"))) {
        fprintf(stderr,
                "usage: beside [--options LIST] bulk [MESSAGES [BYTES [SECONDS]]] | connects "
                "[COUNT [SECONDS]]\n");
        return 2;
    }
    const char *first = argc > 2 ? argv[2] : NULL, *second = argc > 3 ? argv[3] : NULL;
    struct order order = {.messages = bulk ? ends_number(first, 8, BULK_MAX)
                                           : ends_number(first, 1000, 100000),
                          .bytes = bulk ? ends_number(second, 64 << 20, UINT64_C(1) << 30) : 0};
    double seconds = (double)(bulk ? ends_number(argc > 4 ? argv[4] : NULL, 3, 3600)
                                   : ends_number(second, 1, 3600));
    pid_t server = ends_start_server(options, serve, &port), elsewhere = 0;
    pid_t connecting[2] = {0}; /* forked before this process has an engine */

    snprintf(uri, sizeof(uri), "ib://127.0.0.1:%d", port);
    if (!bulk) {
        char other[64];

        elsewhere = ends_start_server(options, serve, &port);
        snprintf(other, sizeof(other), "ib://127.0.0.1:%d", port);
        connecting[0] = start_connecting(other, options, order.messages, seconds);
        connecting[1] = start_connecting(uri, options, order.messages, seconds);
    }
    struct end client = {.rme = ends_open(NULL, options), .peer = ends_address(uri)};
    if (bulk) {
        beside_bulk(&client, &order, seconds);
    } else {
        beside_connects(&client, "other", connecting[0], &order);
        beside_connects(&client, "beside", connecting[1], &order);
        ends_stop(elsewhere);
    }
    ends_stop(server);
    return 0;
}
