/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One exchange over the verbs fabric while one call fails (EMUVERBS_FAIL; faults.sh iterates
 * over all calls).
 *
 * Server and client are in this process. In all cases operations end with or without an error,
 * every link goes down once, nothing hangs, and the exchange succeeds at the third attempt at
 * the latest.
 */
#include <unistd.h>
#include "bmi_ib/ib.h"
#include "wire_host.h"

#define SIZE 65536

struct ground {
    uint8_t memory[SIZE];
    struct rme_mr mr;
    bool registered;
};

static struct wire server, client;
static struct ground there, here;
static int ups, downs; /* of the client */
static time_t end;

static bool late(const char *what)
{
    if (wire_now() <= end)
        return false;
    fprintf(stderr, "stuck: %s\n", what);
    _exit(3);
}

/* Polls both once and frees links that are down. */
static void waitq(const char *what)
{
    struct wire *both[] = {&server, &client};
    late(what);
    for (int h = 0; h < 2; h++) {
        struct wire *w = both[h];
        w->nseen = 0;
        wire_poll(w);
        for (int i = 0; i < w->nseen; i++) {
            if (w == &client && w->seen[i].type == RME_EV_LINK_UP)
                ups++;
            if (w->seen[i].type != RME_EV_LINK_DOWN)
                continue;
            if (w->link == w->seen[i].link)
                w->link = NULL;
            w->ops->link_free(w->seen[i].link);
            downs += w == &client;
        }
    }
}

static bool ground_open(struct wire *w, struct ground *g, unsigned access)
{
    g->registered = w->ops->reg(w->f, g->memory, SIZE, access, &g->mr) == 0;
    return g->registered;
}

static void ground_close(struct wire *w, struct ground *g)
{
    if (g->registered)
        w->ops->dereg(w->f, &g->mr);
    g->registered = false;
}

/* Waits for n events of a kind at the client, or for the link's end. */
static bool get(enum rme_event_type type, int n, const char *what)
{
    while (n > 0) {
        waitq(what);
        if (client.link == NULL)
            return false;
        n -= wire_count(&client, type);
    }
    return true;
}

/* Exchanges a message and its echo, reads a list, writes a list followed by a message, and
 * disconnects. */
static bool exchange_on_link(void)
{
    struct rme_sge seg[32];
    struct rme_rdma_seg piece[32];
    uint64_t rkey = 0;
    bool good = true;
    for (int i = 0; i < 40 && good; i++)
        good = wire_send(&client, "hello again") && get(RME_EV_RECV, 1, "the echo");
    if (good)
        rkey = server.ops->link_key(server.link, there.mr.rkey);
    for (int i = 0; i < 32; i++) {
        seg[i] = (struct rme_sge){here.memory + 1000 * i, 999, here.mr.lkey};
        piece[i] = (struct rme_rdma_seg){there.mr.base + 1000 * (uint64_t)i, rkey, &seg[i], 1};
    }
    for (int read = 1; read >= 0 && good; read--) {
        struct rme_rdma_op x = {.read = read,
                                .notify = read ? RME_NOTIFY_NONE : RME_NOTIFY_MSG,
                                .piece = piece,
                                .npiece = 32,
                                .tx_length = 300};
        if (!read && (x.tx = client.ops->tx_get(client.link)) == NULL)
            return false;
        if (!read)
            memset(x.tx, 'x', 300);
        wire_fill(there.memory, SIZE, 5);
        client.ops->rdma_op(client.link, &x);
        int done = 0, echoed = read;
        while (good && (!done || !echoed)) {
            waitq("a transfer");
            done += wire_count(&client, RME_EV_RDMA_DONE);
            echoed += wire_count(&client, RME_EV_RECV);
            good = client.link != NULL;
        }
        for (int i = 0; i < 32 && good; i++)
            if (memcmp(here.memory + 1000 * i, there.memory + 1000 * i, 999)) {
                fprintf(stderr, "data differs in piece %d\n", i);
                _exit(4);
            }
    }
    return good;
}

/* Without links all send buffers are free, and no CQE is reserved. */
static void all_back(const struct wire *w)
{
    const struct ib_rail *rail = w->f->rail[0];
    if (!list_empty(&rail->links))
        return;
    if (rail->tx.nfree == rail->tx.slabs * rail->slab && rail->tx.unsignalled == 0 &&
        rail->cq.used == (rail->srq != NULL ? rail->srq_depth : 0))
        return;
    fprintf(stderr, "%u of %u send buffers are free, %u CQEs reserved\n", rail->tx.nfree,
            rail->tx.slabs * rail->slab, rail->cq.used);
    _exit(9);
}

static bool exchange(const char *uri)
{
    struct rme_addr *addr;
    struct rme_link *link = NULL;
    bool good =
        ground_open(&server, &there, RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE) &&
        ground_open(&client, &here, RME_ACCESS_LOCAL_WRITE);
    ups = downs = 0;
    client.link = NULL;
    if (rme_addr_parse("ib", uri, &addr))
        return false;
    if (good &&
        client.ops->link_connect(client.f, addr, 0, "hello", 6, WIRE_RX, &client, &link) == 0) {
        time_t patience =
            wire_now() + 4; /* as the engine does: a lost confirmation causes no event */
        while (!ups && !downs) {
            waitq("connecting");
            if (wire_now() > patience)
                client.ops->link_disconnect(link, -ETIMEDOUT);
        }
        good = ups && !downs && exchange_on_link();
        if (!downs)
            client.ops->link_disconnect(link, -ESHUTDOWN);
        while (!downs)
            waitq("the client's end");
    } else {
        good = false;
    }
    rme_addr_put(addr);
    for (int i = 0; i < 200; i++)
        waitq("the end");
    if (downs != (link != NULL)) {
        fprintf(stderr, "%d times down\n", downs);
        _exit(5);
    }
    ground_close(&server, &there);
    ground_close(&client, &here);
    all_back(&server);
    all_back(&client);
    return good;
}

/* Opens a host; a failure must be an error that leaves nothing behind and does not repeat. */
static void open_twice(struct wire *w, const char *uri)
{
    if (wire_start(w, uri) == 0)
        return;
    wire_stop(w);
    if (wire_start(w, uri) == 0)
        return;
    fprintf(stderr, "opening failed twice\n");
    _exit(6);
}

int main(int argc, char **argv)
{
    const char *uri = wire_uri("127.0.0.1");
    int attempts = 0;
    wire_main(argc, argv);
    end = wire_now() + PATIENCE_S;
    open_twice(&server, uri);
    open_twice(&client, NULL);
    server.echo = true;
    while (!exchange(uri))
        if (++attempts == 3) {
            fprintf(stderr, "no attempt succeeded\n");
            return 7;
        }
    if (client.stats.value[RME_C_RNR] + server.stats.value[RME_C_RNR])
        return 8;
    wire_stop(&client);
    wire_stop(&server);
    return 0;
}
