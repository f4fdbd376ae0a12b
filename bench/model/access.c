/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/model/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/net.h"
#include "tests/fabric/loop.h"
#include "tests/lib/clock.h"

enum { MOST = 6, SLOTS = 8, SMALL = 64, PIECES = 1024, BATCH = 16, PUMPS = 400, PAGE = 4096 };
enum { TIMED = 4 }; /* accesses of a client */
enum kind { REQUEST, DATA, REPLY };

struct end;

/* The user's value of an operation. */
struct op {
    struct end *end;
    enum kind kind;
    bool busy;
};

/* One side of a client and a server. */
struct end {
    struct run *run;
    struct node *node;
    struct rme_addr *peer;
    bool serves;
    int peer_number;
    uint8_t *arena; /* a client's */
    void *memory;   /* a server's, registered beforehand */
    uint64_t slot;
    uint32_t posted, ended; /* messages of the present access */
    uint32_t used;          /* all messages */
    struct tcp_pipe in;
    uint32_t taken; /* of them, by TCP */
    bool active;
    struct op request, reply, data[SLOTS];
};

struct client {
    uint32_t accesses; /* begun */
    double begin, ns;  /* of the present access; of all that are timed */
    double left, busy; /* end of the latest turn; of all accesses that are timed */
    uint64_t register_ns, registrations; /* the same; before their begin at first */
};

struct run {
    const struct access *a;
    struct node server[MOST], node[MOST]; /* node: of a client */
    struct client client[MOST];
    struct end of_client[MOST][MOST], of_server[MOST][MOST]; /* [own number][the peer's] */
    uint32_t units, warm; /* warm: accesses before those that are timed */
    int over;
    const char *wrong; /* may be the census's */
    struct loop_census census;
};

static uint8_t small[SMALL];

/* ---- TCP ---- */

/* Both ends of a pair know each other. */
static struct end *other_end(struct end *e)
{
    struct run *r = e->run;

    return e->serves ? &r->of_client[e->peer_number][e->node - r->server]
                     : &r->of_server[e->peer_number][e->node - r->node];
}

/* A client copies pieces to or from a stream. */
static void pack(const struct end *e, enum kind kind)
{
    const struct access *a = e->run->a;

    if (kind == DATA && !e->serves && a->pieces > 1 && !a->tcp->stored)
        node_charge(e->node->host->copy_far * (double)a->unit);
}

static void post_tcp(struct end *e, struct op *op, bool sends)
{
    if (!sends)
        return;
    pack(e, op->kind);
    tcp_send(e->run->a->tcp, &other_end(e)->in, op->kind == DATA ? e->run->a->unit : SMALL,
             (int)op->kind);
    op->busy = false;
    e->ended += op->kind == DATA;
}

/* ---- Operations ---- */

static void post(struct end *e, struct op *op, bool sends, void *const *base,
                 const int64_t *length, int count)
{
    struct rme_list list = {base, length, count};
    struct rme *rme = e->node->rme;
    rme_id id;

    op->end = e;
    op->busy = true;
    if (e->run->a->tcp != NULL) {
        post_tcp(e, op, sends);
        return;
    }
    node_call(e->node);
    int rc = sends ? rme_post_send(rme, e->peer, &list, op->kind + 1, 0, op, &id)
                   : rme_post_recv(rme, e->peer, &list, op->kind + 1, 0, op, NULL, &id);
    if (rc < 0)
        e->run->wrong = "a post failed";
    if (rc != 1)
        return;
    op->busy = false;
    e->ended += op->kind == DATA;
}

static void post_small(struct end *e, struct op *op, enum kind kind, bool sends)
{
    void *base = small;
    int64_t length = SMALL;

    op->kind = kind;
    post(e, op, sends, &base, &length, 1);
}

static void post_unit(struct end *e, struct op *op)
{
    const struct access *a = e->run->a;
    int pieces = e->serves ? 1 : a->pieces;
    uint64_t each = a->unit / (uint64_t)pieces;
    uint64_t stride = a->stride ? a->stride : 2 * each;
    uint8_t *at = e->serves ? e->memory : e->arena;
    void *base[PIECES];
    int64_t length[PIECES];

    at += e->slot * (uint64_t)(op - e->data);
    for (int i = 0; i < pieces; i++) {
        base[i] = at + stride * (uint64_t)i;
        length[i] = (int64_t)each;
    }
    op->kind = DATA;
    post(e, op, e->serves == a->read, base, length, pieces);
}

static bool is_stored(const struct access *a)
{
    return a->tcp != NULL && a->tcp->stored;
}

/* Posts the next message of data; a server fetches it first.  Returns whether it did. */
static bool post_next(struct end *e)
{
    const struct access *a = e->run->a;
    struct op *op = &e->data[e->used % (uint32_t)a->in_flight];

    if (!e->active || e->posted == e->run->units || op->busy)
        return false;
    if (e->serves && a->read && !is_stored(a))
        node_charge(a->store.byte * (double)a->unit);
    e->posted++;
    e->used++;
    post_unit(e, op);
    return true;
}

/* ---- A server ---- */

static void end_service(struct end *e)
{
    if (!e->active || e->ended < e->run->units)
        return;
    e->active = false;
    post_small(e, &e->request, REQUEST, false);
    post_small(e, &e->reply, REPLY, true);
}

static void serve(struct op *op)
{
    struct end *e = op->end;
    const struct access *a = e->run->a;

    op->busy = false;
    if (op->kind == REQUEST) {
        node_charge(a->store.request);
        e->active = true;
        e->posted = e->ended = 0;
    } else if (op->kind == DATA) {
        if (!a->read && !is_stored(a))
            node_charge(a->store.byte * (double)a->unit);
        e->ended++;
    }
}

/* ---- A client ---- */

/* The counters before the first timed access (0), and the difference since (1). */
static void note_registrations(struct run *r, int c, uint64_t since)
{
    struct client *k = &r->client[c];

    k->register_ns = rme_counter_value(r->node[c].rme, "register_ns") - since * k->register_ns;
    k->registrations =
        rme_counter_value(r->node[c].rme, "registrations") - since * k->registrations;
}

static void begin_access(struct run *r, int c)
{
    struct client *k = &r->client[c];

    if (k->accesses == r->warm)
        note_registrations(r, c, 0);
    k->accesses++;
    k->begin = r->node[c].clock;
    for (int i = 0; i < r->a->servers; i++) {
        struct end *e = &r->of_client[c][(c + i) % r->a->servers];
        e->active = true;
        e->posted = e->ended = 0;
        post_small(e, &e->reply, REPLY, false);
        post_small(e, &e->request, REQUEST, true);
    }
}

static bool is_complete(const struct run *r, int c)
{
    for (int s = 0; s < r->a->servers; s++) {
        const struct end *e = &r->of_client[c][s];
        if (e->reply.busy || e->request.busy || e->ended < r->units)
            return false;
    }
    return true;
}

static void go_on(struct run *r, int c)
{
    struct client *k = &r->client[c];

    if (k->begin > 0 && !is_complete(r, c))
        return;
    if (k->accesses > r->warm)
        k->ns += r->node[c].clock - k->begin;
    if (k->accesses < r->warm + TIMED) {
        begin_access(r, c);
        return;
    }
    note_registrations(r, c, 1);
    k->accesses++; /* the end */
    r->over++;
}

/* ---- Turns ---- */

static void complete(struct op *op)
{
    if (op->end->serves) {
        serve(op);
        return;
    }
    op->busy = false;
    op->end->ended += op->kind == DATA;
}

static bool take_tcp(struct end *e)
{
    const struct access *a = e->run->a;
    int kind;

    if (!tcp_take(a->tcp, &e->in, &kind))
        return false;
    if (kind == DATA) {
        pack(e, DATA);
        complete(&e->data[e->taken++ % (uint32_t)a->in_flight]);
    } else if (kind >= 0) {
        complete(kind == REQUEST ? &e->request : &e->reply);
    }
    return true;
}

static bool test_tcp(struct node *n, struct run *r)
{
    bool serves = n < r->node, did = false;

    for (int i = 0; i < MOST; i++) {
        struct end *e =
            serves ? &r->of_server[n - r->server][i] : &r->of_client[n - r->node][i];
        did = (e->run != NULL && take_tcp(e)) || did;
    }
    return did;
}

static bool test(struct node *n, struct run *r)
{
    struct rme_done done[BATCH];

    if (r->a->tcp != NULL)
        return test_tcp(n, r);
    node_call(n);
    int got = rme_test_context(n->rme, 0, done, BATCH, 0);
    for (int i = 0; i < got; i++) {
        if (i > 0)
            node_call(n); /* each completion costs as much as the first */
        if (done[i].error)
            r->wrong = "an operation failed";
        complete(done[i].user);
    }
    return got > 0;
}

/* One message for each client, so that a turn is short. */
static bool server_turn(struct node *n)
{
    struct run *r = n->arg;
    bool did = test(n, r);

    for (int c = 0; c < r->a->clients; c++) {
        struct end *e = &r->of_server[n - r->server][c];
        did = post_next(e) || did;
        end_service(e);
    }
    return did;
}

static bool client_turn(struct node *n)
{
    struct run *r = n->arg;
    int c = (int)(n - r->node);
    struct client *k = &r->client[c];
    double begin = n->clock, slept = begin - k->left;
    bool did = false;

    if (k->accesses <= r->warm + TIMED)
        go_on(r, c);
    for (int i = 0; i < r->a->servers; i++) /* clients begin at different servers */
        while (post_next(&r->of_client[c][(c + i) % r->a->servers]))
            did = true;
    did = test(n, r) || did;
    if (k->accesses > r->warm && k->accesses <= r->warm + TIMED)
        k->busy += n->clock - begin + (slept < n->device->wakeup ? slept : n->device->wakeup);
    k->left = n->clock;
    return did;
}

static bool is_over(void *arg)
{
    const struct run *r = arg;

    return r->wrong != NULL || r->over == r->a->clients;
}

/* ---- Life, in stopped time ---- */

static bool end_memory(struct end *e)
{
    const struct access *a = e->run->a;
    uint64_t each = a->unit / (uint64_t)a->pieces;
    uint64_t spread = (a->stride ? a->stride : 2 * each) * (uint64_t)a->pieces;

    e->slot = ((e->serves ? a->unit : spread) / PAGE + 1) * PAGE;
    if (e->serves)
        e->memory = rme_memory_alloc(e->node->rme, e->slot * SLOTS);
    else
        e->arena = aligned_alloc(PAGE, SLOTS * e->slot); /* pages count in registrations */
    return e->memory != NULL || e->arena != NULL;
}

/* Lets the engines that are open send and take what is left. */
static void pump(struct run *r)
{
    struct rme_done done;

    for (int i = 0; i < PUMPS; i++)
        for (int n = 0; n < MOST; n++) {
            if (r->node[n].rme != NULL)
                rme_test_context(r->node[n].rme, 0, &done, 1, 0);
            if (r->server[n].rme != NULL)
                rme_test_context(r->server[n].rme, 0, &done, 1, 0);
        }
}

/* A client tells a server its number. */
static bool connect_pair(struct run *r, int c, int s)
{
    void *base = small;
    int64_t length = SMALL;
    struct rme_list list = {&base, &length, 1};
    struct rme_unexpected u;
    struct end *here = &r->of_client[c][s], *there = &r->of_server[s][c];
    rme_id id;

    *here = (struct end){.run = r, .node = &r->node[c], .peer_number = s, .in.to = &r->node[c]};
    *there = (struct end){.run = r,
                          .node = &r->server[s],
                          .serves = true,
                          .peer_number = c,
                          .in.to = &r->server[s]};
    if (rme_addr_parse("loop", r->server[s].uri, &here->peer) ||
        rme_post_unexpected(here->node->rme, here->peer, &list, 0, 0, NULL, &id) < 0)
        return false;
    pump(r);
    if (rme_test_unexpected(there->node->rme, &u, 1, 0) != 1)
        return false;
    there->peer = u.addr;
    rme_unexpected_free(there->node->rme, u.buffer);
    post_small(there, &there->request, REQUEST, false);
    return end_memory(here) && end_memory(there);
}

static bool open_all(struct run *r)
{
    static const char *const uris[MOST] = {"loop://s0:1", "loop://s1:1", "loop://s2:1",
                                           "loop://s3:1", "loop://s4:1", "loop://s5:1"};
    static const char *const names[MOST] = {"s0", "s1", "s2", "s3", "s4", "s5"};
    const struct access *a = r->a;
    char options[512];

    for (int s = 0; s < a->servers; s++) {
        r->server[s] = (struct node){.device = a->device,
                                     .name = names[s],
                                     .uri = uris[s],
                                     .turn = server_turn,
                                     .arg = r};
        if (node_open(&r->server[s], a->options))
            return false;
    }
    for (int c = 0; c < a->clients; c++) {
        r->node[c] =
            (struct node){.device = a->device, .name = "client", .turn = client_turn, .arg = r};
        snprintf(options, sizeof options, "%s,loop_host=%d%s%s", a->options, c + 1,
                 a->client_options != NULL ? "," : "",
                 a->client_options != NULL ? a->client_options : "");
        if (node_open(&r->node[c], options))
            return false;
    }
    for (int i = 0; i < a->clients * a->servers; i++)
        if (!connect_pair(r, i / a->servers, i % a->servers))
            return false;
    return true;
}

static void close_all(struct run *r)
{
    for (int i = 0; i < MOST * MOST; i++) {
        struct end *e = &r->of_server[i / MOST][i % MOST];
        if (e->memory != NULL)
            rme_memory_free(e->node->rme, e->memory);
    }
    for (int i = 0; i < MOST; i++) {
        if (r->node[i].rme != NULL)
            node_close(&r->node[i]);
        if (r->server[i].rme != NULL)
            node_close(&r->server[i]);
    }
    for (int i = 0; i < MOST * MOST; i++) {
        struct end *both[] = {&r->of_client[i / MOST][i % MOST],
                              &r->of_server[i / MOST][i % MOST]};
        for (int j = 0; j < 2; j++)
            if (both[j]->peer != NULL)
                rme_addr_free(both[j]->peer);
        tcp_clear(&both[0]->in);
        tcp_clear(&both[1]->in);
        free(both[0]->arena);
    }
}

static void run(struct run *r, struct access_cost *out)
{
    struct node *nodes[2 * MOST];
    int count = 0;

    for (int s = 0; s < r->a->servers; s++)
        nodes[count++] = &r->server[s];
    for (int c = 0; c < r->a->clients; c++)
        nodes[count++] = &r->node[c];
    nodes_start(nodes, count);
    if (!nodes_run(is_over, r))
        r->wrong = "the accesses stand still";
    nodes_stop();
    loop_census(&r->census);
    if (r->census.violations)
        r->wrong = r->census.violation;
    *out = (struct access_cost){0};
    for (int c = 0; c < r->a->clients; c++) {
        out->ns += r->client[c].ns / (TIMED * r->a->clients);
        out->busy += r->client[c].busy / (TIMED * r->a->clients);
        out->register_ns += (double)r->client[c].register_ns / (TIMED * r->a->clients);
        out->registrations += (double)r->client[c].registrations / (TIMED * r->a->clients);
    }
    out->busy /= out->ns;
}

int access_run(const struct access *a, struct access_cost *out)
{
    struct run *r = calloc(1, sizeof *r);

    if (r == NULL)
        return -1;
    r->a = a;
    r->units = a->bytes ? (uint32_t)(a->bytes / a->unit) : 0;
    /* each slot is used */
    r->warm = 2 + (r->units ? (uint32_t)a->in_flight / r->units : 0);
    loop_clear();
    clock_set();
    clock_tick_ns(CLOCK_TICK_NS);
    if (open_all(r))
        run(r, out);
    else
        r->wrong = "not connected";
    if (r->wrong != NULL)
        fprintf(stderr, "model: %s, %llu bytes in %d pieces (%s): %s\n", a->device->name,
                (unsigned long long)a->unit, a->pieces, a->options, r->wrong);
    pump(r);
    close_all(r);
    clock_release();
    int rc = r->wrong != NULL ? -1 : 0;
    free(r);
    return rc;
}
