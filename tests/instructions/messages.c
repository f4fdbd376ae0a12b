/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * messages - sends 64-byte messages, for tests/instructions/run to count their instructions.
 *
 *   messages [--fabric NAME] [--addr URI] [--what messages|requests] CONNECTIONS RECEIVES
 *   MESSAGES
 *
 * One server, and CONNECTIONS clients (in at most ENGINES engines) that are connected and idle
 * except for the first; RECEIVES receives are posted at the server that never match. Only
 * measured() is counted: each message is received and sent once, and both ends are polled until
 * they have reported it. With `requests` only serve() is counted, the server's work for a
 * request and its answer; all clients have sent a request at the same time before, and are idle
 * afterwards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "rme.h"
#include "bmi_ib/bmi_ib.h"
#include "tests/ports/ports.h"
#include "tests/fabric/loop.h"

enum { SIZE = 64, CLIENTS_MAX = 8000, ENGINES = 200, TAG = 1, HELLO_TRIES = 1000000, WARM = 3 };

struct end {
    struct rme *rme;
    struct rme_addr *peer;
};

static void die(const char *what)
{
    fprintf(stderr, "messages: %s\n", what);
    exit(1);
}

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level <= RME_LOG_WARN)
        fprintf(stderr, "# %s\n", line);
}

/* Long timeouts, because valgrind is slow and the machine may be busy; no probes of idle peers,
 * which would be counted. */
#define LONG_TIMES "poll_us=0,keepalive_ms=600000,connect_timeout_ms=300000"

static const char *options = LONG_TIMES;

/* Replaces that of the C library: hash tables have the same factor in each run, so that counts
 * repeat. */
ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    static const uint64_t golden = 0x9e3779b97f4a7c15;

    (void)flags;
    memcpy(buffer, &golden, length < sizeof golden ? length : sizeof golden);
    return (ssize_t)length;
}

static struct rme *open_engine(const struct rme_fabric_ops *ops, const struct rme_addr *listen)
{
    struct rme_config config = {
        .fabric = ops, .listen = listen, .options = options, .log = log_line};
    struct rme *rme;

    if (rme_open(&config, &rme) || rme_context_open(rme, 0))
        die("an engine did not open");
    return rme;
}

/* Number of polls of both. */
static unsigned long asked;

/* Polls an engine once; returns the number of completions. */
static int ask(struct rme *rme)
{
    struct rme_done done;
    int n = rme_test_context(rme, 0, &done, 1, 0);

    asked++;
    if (n < 0 || (n && done.error))
        die("a message failed");
    return n;
}

static struct rme_addr *meet(struct rme *server, struct end *client)
{
    struct rme_list none = {.count = 0};
    struct rme_unexpected u;
    rme_id id;

    int rc = rme_post_unexpected(client->rme, client->peer, &none, 1, 0, NULL, &id);
    if (rc < 0)
        die("hello could not be sent");
    for (long tries = 0; tries < HELLO_TRIES; tries++) {
        if (!rc && ask(client->rme))
            rc = 1;
        ask(server);
        if (rme_test_unexpected(server, &u, 1, 0) != 1)
            continue;
        rme_unexpected_free(server, u.buffer);
        while (!rc && !ask(client->rme))
            ask(server);
        return u.addr;
    }
    die("a client did not connect");
    return NULL;
}

__attribute__((noinline)) void measured(struct end *server, struct end *client, int messages);

void measured(struct end *server, struct end *client, int messages)
{
    static char out[SIZE], in[SIZE];
    void *out_base = out, *in_base = in;
    int64_t length = SIZE;
    struct rme_list send = {.base = &out_base, .length = &length, .count = 1};
    struct rme_list recv = {.base = &in_base, .length = &length, .count = 1};

    for (int i = 0; i < messages; i++) {
        rme_id id;
        if (rme_post_recv(server->rme, server->peer, &recv, TAG, 0, NULL, NULL, &id))
            die("a receive was refused");
        int sent = rme_post_send(client->rme, client->peer, &send, TAG, 0, NULL, &id);
        if (sent < 0)
            die("a send was refused");
        for (int received = 0; !sent || !received;) {
            received += ask(server->rme);
            sent += ask(client->rme); /* also receives the returned credits */
        }
    }
}

__attribute__((noinline)) void serve(struct end *server);

/* Polls the server once, which answers waiting requests. */
void serve(struct end *server)
{
    static char out[SIZE];
    void *base = out;
    int64_t length = SIZE;
    struct rme_list answer = {.base = &base, .length = &length, .count = 1};
    struct rme_unexpected u;
    rme_id id;

    while (rme_test_unexpected(server->rme, &u, 1, 0) == 1) {
        if (rme_post_send(server->rme, u.addr, &answer, TAG, 0, NULL, &id) < 0)
            die("an answer was refused");
        rme_unexpected_free(server->rme, u.buffer);
    }
    ask(server->rme);
}

/* All clients send a request at the same time and wait for its answer. */
static void request(struct end *server, struct end *client, int clients)
{
    static char out[SIZE], in[SIZE];
    void *out_base = out, *in_base = in;
    int64_t length = SIZE;
    struct rme_list send = {.base = &out_base, .length = &length, .count = 1};
    struct rme_list recv = {.base = &in_base, .length = &length, .count = 1};
    rme_id id;

    int engines = clients < ENGINES ? clients : ENGINES, left = 0;

    for (int i = 0; i < clients; i++) {
        if (rme_post_recv(client[i].rme, client[i].peer, &recv, TAG, 0, NULL, NULL, &id))
            die("a receive was refused");
        int sent = rme_post_unexpected(client[i].rme, client[i].peer, &send, TAG, 0, NULL, &id);
        if (sent < 0)
            die("a request was refused");
        left += 1 + !sent;
    }
    while (left > 0) {
        serve(server);
        for (int i = 0; i < engines; i++)
            left -= ask(client[i].rme);
    }
}

static void post_idle_receives(struct end *server, int receives)
{
    static char room[SIZE];
    void *base = room;
    int64_t length = SIZE;
    struct rme_list list = {.base = &base, .length = &length, .count = 1};
    rme_id id;

    for (int i = 1; i < receives; i++)
        if (rme_post_recv(server->rme, server->peer, &list, 1000 + i, 0, NULL, NULL, &id))
            die("a receive was refused");
}

int main(int argc, char **argv)
{
    const struct rme_fabric_ops *ops = loop_fabric();
    const char *uri = "loop://server:1";
    char own[64];
    static struct end client[CLIENTS_MAX];
    struct end server;
    struct rme_addr *listen;
    bool requests = false;

    for (; argc > 2 && !strncmp(argv[1], "--", 2); argv += 2, argc -= 2) {
        if (!strcmp(argv[1], "--addr")) {
            uri = argv[2];
        } else if (!strcmp(argv[1], "--what")) {
            requests = !strcmp(argv[2], "requests");
        } else if (!strcmp(argv[1], "--fabric") && !strcmp(argv[2], "ib")) {
            ops = bmi_ib_fabric();
            int port = ports_take();
            if (port < 0)
                die("no ports");
            snprintf(own, sizeof own, "ib://127.0.0.1:%d", port);
            uri = own;
        }
    }
    int connections = argc == 4 ? atoi(argv[1]) : 0;
    if (connections < 1 || connections > CLIENTS_MAX)
        die("usage: messages [--fabric NAME] [--addr URI] CONNECTIONS RECEIVES MESSAGES");
    if (rme_addr_parse(ops->scheme, uri, &listen))
        die("bad address");
    if (!requests) /* with fewer receive buffers a connection sends more CREDIT messages */
        options = LONG_TIMES ",credits_pool=100000";
    server.rme = open_engine(ops, listen);
    for (int i = connections - 1; i >= 0; i--) {
        client[i].rme =
            i < connections - ENGINES ? client[i + ENGINES].rme : open_engine(ops, NULL);
        rme_addr_parse(ops->scheme, uri, &client[i].peer);
        server.peer = meet(server.rme, &client[i]);
    }
    post_idle_receives(&server, atoi(argv[2]));
    if (!requests)
        measured(&server, &client[0], atoi(argv[3]));
    for (int i = 0; requests && i < WARM; i++)
        request(&server, client, connections);
    for (int i = 0; requests && i < atoi(argv[3]); i++)
        request(&server, client, 1);
    printf("%lu\n", asked);
    for (int i = 0; i < connections && i < ENGINES; i++)
        rme_close(client[i].rme);
    rme_close(server.rme);
    return 0;
}
