/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Many clients and few rings (ring_test.c): which client gets one, for how long,
 * and its withdrawal. */
#include <stdio.h>
#include <string.h>
#include "cases.h"

#define AREA    131072 /* bytes of one client's ring */
#define OPTIONS "rx_size=2048,eager_max=64K,early_cts=0,rndv=write"

enum {
    MOST = 12,
    SIZE = 20000, /* of a message that goes through the ring */
    IDLE_MS = 1000,
};

/* Clients of a server that grants a few rings; each client has a receive posted for its next
 * message. */
static struct crowd {
    struct node *server;
    struct pair pair[MOST];
    int clients;
    int lent; /* bytes of a ring */
    struct blob out, in;
    uint64_t most; /* most bytes granted at a time */
} crowd;

/* Opens client `i`, which grants rings, on this host. */
static void open_client(int i, int host)
{
    struct pair *p = &crowd.pair[i];
    char options[250], name[32];

    snprintf(options, sizeof options, OPTIONS ",eager_ring_bytes=%d,pool_idle_ms=0",
             crowd.lent);
    if (lane.is_loop)
        snprintf(options + strlen(options), 20, ",loop_host=%d", host);
    bed_options(options);
    snprintf(name, sizeof name, "client%d", i);
    p->server = crowd.server;
    p->client = node_open(name, NULL);
    p->to_server = node_dial(p->client, lane_uri(0));
    pair_meet(p);
}

/* Opens clients and a server; both limits in bytes.  Rings that are not used for `idle_ms` are
 * withdrawn; 0: never. */
static void open_idling(int clients, int lent, int pool, int idle_ms)
{
    char options[200];

    snprintf(options, sizeof options,
             OPTIONS ",eager_ring_bytes=%d,eager_ring_pool=%d,pool_idle_ms=%d", lent, pool,
             idle_ms);
    bed_options(options);
    crowd = (struct crowd){
        .server = node_open("server", lane_uri(0)), .clients = clients, .lent = lent};
    for (int i = 0; i < clients; i++)
        open_client(i, 1);
    blobs_flat(&crowd.out, &crowd.in, SIZE, 1);
}

static void open_lending(int clients, int lent, int pool)
{
    open_idling(clients, lent, pool, 0);
}

static void open_crowd(int clients, int areas)
{
    open_lending(clients, AREA, areas * AREA);
}

static void close_crowd(void)
{
    blob_free(&crowd.out);
    blob_free(&crowd.in);
}

/* Sends messages from client `i`. */
static void talk(int i, int messages)
{
    struct pair *p = &crowd.pair[i];
    struct op send, recv;
    uint64_t lent;

    while (messages-- > 0) {
        post_recv(&recv, p->server, p->to_client, &crowd.in, 7);
        post_send(&send, p->client, p->to_server, &crowd.out, 7);
        pump_until_both(&recv, &send);
        op_check(&recv, SIZE);
        lent = node_counter(crowd.server, "eager_ring_bytes");
        crowd.most = lent > crowd.most ? lent : crowd.most;
    }
}

static uint64_t fast(int i)
{
    return node_counter(crowd.pair[i].client, "sends_eager_rdma");
}

/* Returns false if this lane's options rule rings out. */
static bool lends(void)
{
    for (int i = 0; i < 10; i++)
        talk(0, 1);
    pump_times(20);
    return node_counter(crowd.server, "eager_ring_grants") != 0;
}

/* A ring that is in use stays, and an idle client's ring is given to the next client that asks,
 * whether or not another one has asked in vain before. */
CASE(fast_of_an_idle_one)
{
    only_over_loop(); /* its time passes by steps */
    open_idling(3, AREA, AREA, IDLE_MS);
    if (!lends())
        skip();
    talk(1, 4);
    for (int i = 0; i < 100; i++) {
        bed_pass_ms(IDLE_MS / 4);
        talk(0, 1);
        talk(2, 1);
    }
    assert_int_equal(fast(1) + fast(2), 0);
    assert_int_equal(node_counter(crowd.server, "eager_ring_withdrawn"), 0);
    for (int i = 0; i < 5; i++) {
        bed_pass_ms(IDLE_MS);
        pump_times(20);
    }
    assert_int_equal(node_counter(crowd.server, "eager_ring_withdrawn"), 1);
    for (int i = 0; i < 2000 && fast(2) == 0; i++)
        talk(2, 1);
    assert_int_equal(node_counter(crowd.server, "eager_ring_grants"), 2);
    assert_int_equal(fast(1), 0);
    assert_int_equal(fast(2), 1);
    assert_int_equal(crowd.most, AREA);
    close_crowd();
}

static void until_none_is_lent(void)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (node_counter(crowd.server, "eager_ring_bytes") != 0 && lane_now() < end)
        pump();
    assert_int_equal(node_counter(crowd.server, "eager_ring_bytes"), 0);
}

/* A dead client's ring is given to the next that asks: one that has asked in vain once does so
 * after four more messages. */
CASE(fast_of_a_dead_one)
{
    open_crowd(3, 1);
    if (!lends())
        skip();
    talk(1, 4);
    talk(2, 4);
    assert_int_equal(fast(1) + fast(2), 0);
    node_close(crowd.pair[0].client);
    until_none_is_lent();
    talk(1, 2);
    pump_times(20);
    assert_int_equal(node_counter(crowd.server, "eager_ring_grants"), 2);
    assert_int_equal(node_counter(crowd.server, "eager_ring_withdrawn"), 0);
    assert_int_equal(node_counter(crowd.server, "eager_ring_bytes"), AREA);
    talk(1, 1);
    talk(2, 1);
    assert_int_equal(fast(1), 1);
    assert_int_equal(fast(2), 0);
    node_close(crowd.pair[2].client);
    node_close(crowd.pair[1].client);
    until_none_is_lent();
    close_crowd();
}

/* A host whose clients all want rings gets half of them, and another host one of the rest,
 * which it keeps although the first one wants more. */
CASE(fast_of_a_greedy_host)
{
    enum { GREEDY = 6, AREAS = 4 };

    only_over_loop(); /* all clients have one host */
    open_lending(GREEDY, AREA, AREAS * AREA);
    for (int n = 0; n < 8; n++)
        for (int i = 0; i < GREEDY; i++)
            talk(i, 1);
    if (node_counter(crowd.server, "eager_ring_grants") == 0)
        skip();
    assert_int_equal(crowd.most, AREAS / 2 * AREA);
    open_client(GREEDY, 9);
    talk(GREEDY, 10);
    assert_true(fast(GREEDY) > 0);
    assert_int_equal(crowd.most, (AREAS / 2 + 1) * AREA);
    for (int n = 0; n < 100; n++)
        for (int i = 0; i < GREEDY; i++)
            talk(i, 1);
    assert_int_equal(crowd.most, (AREAS / 2 + 1) * AREA);
    assert_int_equal(node_counter(crowd.server, "eager_ring_withdrawn"), 0);
    close_crowd();
}

/* A client that is silent for long loses its ring on both sides, and gets one when it sends
 * again. */
CASE(fast_of_who_falls_silent)
{
    struct pair p;
    int64_t end = lane_now() + BED_PATIENCE_MS;
    uint64_t grants;

    pair_open_with(&p, "rx_size=2048,eager_max=64K,early_cts=0,rndv=write,"
                       "eager_ring_bytes=128K,pool_idle_ms=30");
    for (int i = 0; i < 10; i++)
        pair_exchange(&p, SIZE, i);
    grants = node_counter(p.server, "eager_ring_grants");
    if (grants == 0)
        skip();
    while (node_counter(p.server, "eager_ring_bytes") +
                   node_counter(p.client, "eager_ring_bytes") !=
               0 &&
           lane_now() < end)
        pump();
    assert_int_equal(node_counter(p.server, "eager_ring_bytes"), 0);
    assert_int_equal(node_counter(p.client, "eager_ring_bytes"), 0);
    for (int i = 0; i < 10; i++)
        pair_exchange(&p, SIZE, i);
    assert_true(node_counter(p.server, "eager_ring_grants") > grants);
}
