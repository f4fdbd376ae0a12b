/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One server and many clients, each with one request of 64 bytes under way, which the server
 * answers with 64 bytes.  Up to CLIENTS_OF_HOST clients share a host, its engine and adapter.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/model/pages.h"
#include "bench/model/node.h"
#include "tests/lib/clock.h"

enum {
    BYTES = 64,
    CLIENTS_OF_HOST = 100,
    BATCH = 64,
    REQUESTS = 2000,
    ROUNDS = 3,
    PUMPS = 4000
};

#define SERVER  "loop://server:1"
#define OPTIONS "loop_windows=4096,connect_timeout_ms=600000,keepalive_ms=600000"

struct client {
    struct rme_addr *server; /* the client's address of the server */
    struct rme_addr *here;   /* the server's address of the client */
    uint32_t rounds;         /* begun */
    double begin;            /* ns: of the latest request */
};

struct crowd {
    struct node server;
    struct node *host; /* of clients */
    struct node **nodes;
    struct client *client;
    int clients, hosts;
    uint32_t rounds, known;
    uint64_t answered;
    double sum; /* ns from request to answer */
    bool opened, failed;
};

static uint8_t bytes[BYTES];

static void post(struct crowd *c, struct node *n, struct rme_addr *to, bool sends, void *user)
{
    void *base = bytes;
    int64_t length = BYTES, actual;
    struct rme_list list = {&base, &length, 1};
    rme_id id;
    int rc;

    node_call(n);
    rc = sends ? rme_post_send(n->rme, to, &list, 1, 0, NULL, &id)
               : rme_post_recv(n->rme, to, &list, 1, 0, user, &actual, &id);
    c->failed = c->failed || rc < 0;
}

/* ---- Turns ---- */

static void request(struct crowd *c, struct node *n, struct client *k)
{
    k->rounds++;
    k->begin = n->clock;
    post(c, n, k->server, false, k);
    post(c, n, k->server, true, NULL);
}

static bool client_turn(struct node *n)
{
    struct crowd *c = n->arg;
    struct client *first = &c->client[(n - c->host) * CLIENTS_OF_HOST];
    struct rme_done done[BATCH];

    for (int i = 0; i < CLIENTS_OF_HOST && first + i < c->client + c->clients; i++)
        if (first[i].rounds == 0)
            request(c, n, &first[i]);
    node_call(n);
    int got = rme_test_context(n->rme, 0, done, BATCH, 0);
    for (int i = 0; i < got; i++) {
        struct client *k = done[i].user;
        if (i > 0)
            node_call(n); /* each completion costs as much as the first */
        c->failed = c->failed || done[i].error;
        if (k == NULL)
            continue;
        c->answered++;
        c->sum += n->clock - k->begin;
        if (k->rounds < c->rounds)
            request(c, n, k);
    }
    return got > 0;
}

static bool server_turn(struct node *n)
{
    struct crowd *c = n->arg;
    struct rme_done done[BATCH];

    node_call(n);
    int got = rme_test_context(n->rme, 0, done, BATCH, 0);
    for (int i = 0; i < got; i++) {
        struct client *k = done[i].user;
        if (i > 0)
            node_call(n); /* each completion costs as much as the first */
        c->failed = c->failed || done[i].error;
        if (k == NULL)
            continue;
        post(c, n, k->here, false, k);
        post(c, n, k->here, true, NULL);
    }
    return got > 0;
}

static bool is_over(void *arg)
{
    const struct crowd *c = arg;

    return c->failed || c->answered == (uint64_t)c->clients * c->rounds;
}

/* ---- Life, in stopped time ---- */

static void pump(struct crowd *c)
{
    struct rme_done done[BATCH];
    struct rme_unexpected u;

    for (int i = 0; i < c->hosts; i++)
        rme_test_context(c->host[i].rme, 0, done, BATCH, 0);
    rme_test_context(c->server.rme, 0, done, BATCH, 0);
    while (rme_test_unexpected(c->server.rme, &u, 1, 0) == 1) {
        c->client[u.tag].here = u.addr;
        c->known++;
        rme_unexpected_free(c->server.rme, u.buffer);
    }
}

/* Each client tells the server its number. */
static bool connect_all(struct crowd *c)
{
    void *base = bytes;
    int64_t length = BYTES;
    struct rme_list list = {&base, &length, 1};
    rme_id id;

    for (int i = 0; i < c->clients; i++)
        if (rme_addr_parse("loop", SERVER, &c->client[i].server) ||
            rme_post_unexpected(c->host[i / CLIENTS_OF_HOST].rme, c->client[i].server, &list, i,
                                0, NULL, &id) < 0)
            return false;
    for (int i = 0; i < PUMPS && c->known < (uint32_t)c->clients; i++)
        pump(c);
    for (int i = 0; i < c->clients; i++)
        post(c, &c->server, c->client[i].here, false, &c->client[i]);
    return c->known == (uint32_t)c->clients;
}

static bool open_all(struct crowd *c, const struct device *d)
{
    char options[128];

    c->server = (struct node){
        .device = d, .name = "server", .uri = SERVER, .turn = server_turn, .arg = c};
    if (node_open(&c->server, OPTIONS))
        return false;
    c->nodes[0] = &c->server;
    for (int i = 0; i * CLIENTS_OF_HOST < c->clients; i++) {
        c->host[i] =
            (struct node){.device = d, .name = "client", .turn = client_turn, .arg = c};
        snprintf(options, sizeof options, OPTIONS ",loop_host=%d", i % 250 + 1);
        if (node_open(&c->host[i], options))
            return false;
        c->nodes[++c->hosts] = &c->host[i];
    }
    return true;
}

static void close_all(struct crowd *c)
{
    for (int i = 0; i < c->hosts; i++)
        node_close(&c->host[i]);
    if (c->server.rme != NULL)
        node_close(&c->server);
    for (int i = 0; i < c->clients; i++) {
        if (c->client[i].server != NULL)
            rme_addr_free(c->client[i].server);
        if (c->client[i].here != NULL)
            rme_addr_free(c->client[i].here);
    }
}

static int run(FILE *out, const struct device *d, int clients)
{
    struct crowd c = {.clients = clients};
    int hosts = (clients + CLIENTS_OF_HOST - 1) / CLIENTS_OF_HOST;

    c.rounds = REQUESTS / clients > ROUNDS ? (uint32_t)(REQUESTS / clients) : ROUNDS;
    c.client = calloc((size_t)clients, sizeof *c.client);
    c.host = calloc((size_t)hosts, sizeof *c.host);
    c.nodes = calloc((size_t)hosts + 1, sizeof *c.nodes);
    clock_set();
    clock_tick_ns(CLOCK_TICK_NS);
    c.failed = c.client == NULL || c.host == NULL || c.nodes == NULL || !open_all(&c, d) ||
               !connect_all(&c);
    if (!c.failed) {
        nodes_start(c.nodes, c.hosts + 1);
        double begin = c.server.clock;
        c.failed = !nodes_run(is_over, &c) || c.failed;
        double ns = c.server.clock - begin;
        nodes_stop();
        fprintf(out, "| %s | %d | %.2f | %.1f |\n", d->name, clients,
                (double)c.answered / ns * 1e3, c.sum / (double)c.answered / 1e3);
    }
    close_all(&c);
    clock_release();
    free(c.client);
    free(c.host);
    free(c.nodes);
    return c.failed ? -1 : 0;
}

int crowd_page(FILE *out, int most)
{
    static const char *const devices[] = {"infinihost", "cx3-fdr", "cx5-edr"};
    int rc = 0;

    fputs("# Devices in virtual time: one server\n\n"
          "Written by `bench/model/model crowd`. Each client has one request of 64 bytes under "
          "way, which the\nserver answers with 64 bytes: one thread, all requests together. "
          "100 clients share a host. Not\nmeasured: modelled (`doc/design/model.md`).\n\n"
          "| device | clients | M requests/s | request to answer, us |\n|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        for (int n = 1; n <= most && !rc; n *= 10)
            rc = run(out, model_device(devices[i]), n);
    return rc;
}
