/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Zones too small for all peers: each peer gets its quota of bounce buffers, independent of the
 * others. Lists are copied here, and a sleeping client keeps the buffers offered to it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "cases.h"

enum {
    MOST = 8,
    EACH = 16,        /* messages for each sleeping client */
    SIZE = 256 << 10, /* of a message: one block */
    PIECES = 8,       /* of a list */
    ZONES = 5 << 20,  /* bytes; each client's quota is at least one block */
};

static const char options[] =
    "pool_bytes=5M,pack_threshold=1G,list_mode=pack,rndv=read,early_cts=0,eager_max=4K,"
    "credits=32,credits_pool=1536,fragment_bytes=1M";

static struct pair pair[MOST];
static struct op sends[MOST][EACH];
static struct blob outs[MOST][EACH];

/* Opens a server and clients that have used their links, so that each advertises all its
 * credits. */
static struct node *open_clients(int clients)
{
    struct node *server;
    char name[32];

    bed_options(options);
    server = node_open("server", lane_uri(0));
    for (int i = 0; i < clients; i++) {
        snprintf(name, sizeof name, "client%d", i);
        pair[i] = (struct pair){.server = server, .client = node_open(name, NULL)};
        pair[i].to_server = node_dial(pair[i].client, lane_uri(0));
        pair_meet(&pair[i]);
        for (int k = 0; k < 16; k++)
            pair_exchange(&pair[i], 64, k);
    }
    return server;
}

static void send_to(int i, int k)
{
    blob_split(&outs[i][k], SIZE, PIECES, (uint64_t)k);
    blob_fill(&outs[i][k], (uint64_t)(i * EACH + k));
    post_send(&sends[i][k], pair[i].server, pair[i].to_client, &outs[i][k], k);
}

/* Lets the client receive all its messages. */
static void take_all(int i)
{
    struct op recv;
    struct blob in;

    for (int k = 0; k < EACH; k++) {
        blob_split(&in, SIZE, PIECES, 99);
        post_recv(&recv, pair[i].client, pair[i].to_server, &in, k);
        pump_until_both(&recv, &sends[i][k]);
        op_check(&recv, SIZE);
        op_check_blob(&sends[i][k], &in, (uint64_t)(i * EACH + k), SIZE);
        blob_free(&in);
        blob_free(&outs[i][k]);
    }
}

/* Exchanges a list in each direction. */
static void exchange_lists(const struct pair *p)
{
    struct op send, recv;
    struct blob out, in;

    for (int way = 0; way < 2; way++) {
        blob_split(&out, SIZE, PIECES, 7);
        blob_split(&in, SIZE, PIECES, 8);
        blob_fill(&out, 3);
        post_recv(&recv, way ? p->server : p->client, way ? p->to_client : p->to_server, &in,
                  9);
        post_send(&send, way ? p->client : p->server, way ? p->to_server : p->to_client, &out,
                  9);
        pump_until_both(&recv, &send);
        op_check_blob(&recv, &in, 3, SIZE);
        blob_free(&out);
        blob_free(&in);
    }
}

/* Returns the bytes of the server's zones that client `i` holds. */
static uint64_t has(int i)
{
    struct rme_counter row;

    for (int k = 0; rme_session_get(pair[i].server->rme, pair[i].to_client, k, &row) == 0; k++)
        if (strcmp(row.name, "packed") == 0)
            return row.value;
    fail_msg("no such row");
    return 0;
}

static bool nothing_is_left(struct node *n)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (node_counter(n, "pack_bytes") != 0 && lane_now() < end)
        pump();
    return node_counter(n, "pack_bytes") == 0;
}

/* Sends all messages to the first clients, which sleep. */
static void put_to_sleep(int clients)
{
    for (int i = 0; i < clients; i++)
        pair[i].client->asleep = true;
    for (int i = 0; i < clients; i++)
        for (int k = 0; k < EACH; k++)
            send_to(i, k);
    pump_times(100);
}

/* Lets them receive their messages, after which the server has its zones again. */
static void wake_up(struct node *server, int clients)
{
    for (int i = 0; i < clients; i++) {
        pair[i].client->asleep = false;
        take_all(i);
    }
    assert_true(nothing_is_left(server));
}

/* A sleeping client holds its quota; the others are not affected. */
CASE(zones_of_a_greedy_one)
{
    struct node *server = open_clients(3);
    uint64_t held, before;

    put_to_sleep(1);
    held = has(0);
    if (held != 0) /* else nothing is offered because nothing can be read */
        assert_int_equal(held, ZONES / 2 / 2);
    before = node_counter(server, "pack_reserve");
    for (int n = 0; n < 10; n++) {
        exchange_lists(&pair[1]);
        exchange_lists(&pair[2]);
    }
    assert_int_equal(node_counter(server, "pack_reserve"), before);
    assert_int_equal(node_counter(server, "pack_cut"), 0);
    assert_int_equal(has(0), held);
    wake_up(server, 1);
}

/* All clients want more than there is, and sleep: each gets some, including the last one. */
CASE(zones_of_many)
{
    struct node *server = open_clients(MOST);
    uint64_t sum = 0;

    put_to_sleep(MOST);
    for (int i = 0; i < MOST; i++)
        sum += has(i);
    for (int i = 0; i < MOST && sum != 0; i++) {
        /* with blocks of powers of two it may be half as much */
        int share = ZONES / 2 / (i + 2);

        assert_in_range(has(i), share / 2, share);
    }
    assert_int_equal(node_counter(server, "pack_bytes"), sum);
    assert_in_range(sum, 0, ZONES);
    wake_up(server, MOST);
}

/* The host has allocated everything except scattered small blocks: a message is split into
 * fragments of their size. */
CASE(zones_that_the_host_has)
{
    enum { TAKEN = ZONES >> 16, BLOCK = 60000 };
    static struct blob taken[TAKEN];
    struct node *server = open_clients(1);
    uint64_t reserve;
    int n = 0;

    if (registers_each(server)) /* blocks need not be registered in advance there */
        skip();
    while (n < TAKEN)
        blob_zone(&taken[n++], server, BLOCK);
    for (int i = 0; i < TAKEN; i += 4)
        blob_free(&taken[i]);
    assert_int_equal(node_counter(server, "zone_bytes"), ZONES);
    reserve = node_counter(server, "pack_reserve");
    exchange_lists(&pair[0]);
    assert_true(node_counter(server, "pack_cut") > 0);
    assert_int_equal(node_counter(server, "pack_reserve"), reserve);
    for (int i = 0; i < TAKEN; i++)
        if (i % 4 != 0)
            blob_free(&taken[i]);
    assert_true(nothing_is_left(server));
}
