/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The contract of fabric.h, on any fabric. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric_bench.h"
#include "../fabric/loop.h"
#include "tests/lib/asleep.h"

#define REMOTE (RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE)

/* Registered memory of both sides. */
struct ground {
    uint8_t *here, *there;
    struct rme_mr here_mr, there_mr;
    struct rme_range to_read, to_write; /* `there`, open to the client */
    size_t size;
};

static void ground_open(struct ground *g, size_t size)
{
    g->size = size;
    g->here = malloc(size);
    g->there = malloc(size);
    assert_true(g->here != NULL && g->there != NULL);
    for (size_t i = 0; i < size; i++) {
        g->here[i] = (uint8_t)(i * 7 + 1);
        g->there[i] = (uint8_t)(i * 13 + 5);
    }
    assert_int_equal(
        lane.ops->reg(client.f, g->here, size, RME_ACCESS_LOCAL_WRITE, &g->here_mr), 0);
    assert_int_equal(lane.ops->reg(server.f, g->there, size, REMOTE, &g->there_mr), 0);
    bench_mw_bind(&server, &g->there_mr, g->there, size, RME_ACCESS_REMOTE_READ, &g->to_read);
    bench_mw_bind(&server, &g->there_mr, g->there, size, RME_ACCESS_REMOTE_WRITE, &g->to_write);
}

static void ground_close(struct ground *g)
{
    lane.ops->dereg(client.f, &g->here_mr);
    lane.ops->dereg(server.f, &g->there_mr);
    free(g->here);
    free(g->there);
}

static void check_pattern(const uint8_t *memory, size_t from, size_t to, unsigned step,
                          unsigned start)
{
    for (size_t i = from; i < to; i++)
        if (memory[i] != (uint8_t)(i * step + start))
            fail_msg("byte %zu is %u, not %u", i, memory[i], (uint8_t)(i * step + start));
}

static void reject_carries_data(void **state)
{
    (void)state;
    server.reject = true;
    server.hello = "no, because";
    struct rme_link *link = bench_dial(lane_uri(0), "please", NULL);
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&client, RME_EV_LINK_DOWN, 0)->error, -EACCES);
    assert_string_equal(wire_event(&client, RME_EV_LINK_DOWN, 0)->text, "no, because");
    lane.ops->link_free(link);
    bench_idle();
    assert_int_equal(wire_count(&client, RME_EV_LINK_DOWN), 1);
    assert_int_equal(wire_count(&server, RME_EV_LINK_UP), 0);
}

static void disconnect_while_connecting(void **state)
{
    (void)state;
    struct rme_link *link = bench_dial(lane_uri(0), "never mind", NULL);
    lane.ops->link_disconnect(link, -ETIMEDOUT);
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    lane.ops->link_free(link);
    bench_idle();
    assert_int_equal(wire_count(&client, RME_EV_LINK_DOWN), 1);
    for (int i = 0; i < wire_count(&server, RME_EV_LINK_DOWN); i++)
        lane.ops->link_free(wire_event(&server, RME_EV_LINK_DOWN, i)->link);
}

/* Every advertised buffer can be used again and again, from the flush after its reservation on;
 * the engine's grants rely on this. */
static void promised_buffers_suffice(void **state)
{
    (void)state;
    bench_connect();
    assert_int_equal(lane.ops->rx_reserve(server.link, 16), 0);
    lane.ops->flush(server.f);
    server.keep_rx = true;
    for (int round = 0; round < 8; round++) {
        bench_forget();
        lane.ops->flush(server.f); /* the engine flushes after advertising buffers, too */
        for (int i = 0; i < BENCH_RX + 16; i++) {
            bench_send(&client, "x");
            wire_poll(&client);
        }
        bench_until(&server, RME_EV_RECV, BENCH_RX + 16);
        for (int i = 0; i < BENCH_RX + 16; i++)
            lane.ops->rx_return(server.f, wire_event(&server, RME_EV_RECV, i)->rx);
        lane.ops->flush(server.f);
    }
    lane.ops->rx_release(server.link, 16);
    bench_forget();
    lane.ops->flush(server.f);
    for (int i = 0; i < BENCH_RX; i++)
        bench_send(&client, "x");
    bench_until(&server, RME_EV_RECV, BENCH_RX);
    for (int i = 0; i < BENCH_RX; i++)
        lane.ops->rx_return(server.f, wire_event(&server, RME_EV_RECV, i)->rx);
    bench_disconnect();
}

/* Send buffers run out, and TX_ROOM reports that some are free again. */
static void send_buffers_run_out(void **state)
{
    enum { MANY = 100000 };
    void **tx = calloc(MANY, sizeof *tx);
    int n = 0;

    (void)state;
    assert_non_null(tx);
    bench_connect();
    for (int rounds = 0; rounds == 0 || wire_count(&client, RME_EV_TX_ROOM) != 0; rounds++) {
        /* the buffer of the connection request may return later and make room */
        int before = n;
        while (n < MANY && (tx[n] = lane.ops->tx_get(client.link)) != NULL)
            n++;
        assert_in_range(n, before + 1, MANY - 1);
        assert_in_range(rounds, 0, 9);
        bench_forget();
        bench_idle();
    }
    for (int i = 0; i < n; i++)
        lane.ops->tx_put(client.link, tx[i]);
    bench_until(&client, RME_EV_TX_ROOM, 1);
    bench_send(&client, "after the drought");
    bench_until(&server, RME_EV_RECV, 1);
    bench_disconnect();
    free(tx);
}

/* More transfers than any queue holds; the last one's immediate arrives after all data. */
static void last_notification_follows_all_data(void **state)
{
    enum { MANY = 1000, SIZE = 64 };
    struct ground g;
    struct rme_sge seg[MANY];
    struct rme_rdma_seg piece[MANY];
    struct rme_rdma_op *x = calloc(MANY, sizeof *x);

    (void)state;
    assert_non_null(x);
    bench_connect();
    ground_open(&g, MANY * SIZE);
    for (int i = 0; i < MANY; i++) {
        seg[i] = (struct rme_sge){g.here + i * SIZE, SIZE, g.here_mr.lkey};
        piece[i] = (struct rme_rdma_seg){(uintptr_t)g.there + (uint64_t)i * SIZE,
                                         g.to_write.key, &seg[i], 1};
        x[i] = (struct rme_rdma_op){.notify = i == MANY - 1 ? RME_NOTIFY_IMM : RME_NOTIFY_NONE,
                                    .imm = 7,
                                    .piece = &piece[i],
                                    .npiece = 1,
                                    .bytes = SIZE};
        lane.ops->rdma_op(client.link, &x[i]);
    }
    lane.ops->flush(client.f);
    bench_until(&server, RME_EV_IMM, 1);
    assert_memory_equal(g.there, g.here, g.size);
    bench_until(&client, RME_EV_RDMA_DONE, MANY);
    bench_disconnect();
    ground_close(&g);
    free(x);
}

/* Messages, immediates and messages behind transfers arrive in the order of queueing. */
static void notifications_keep_their_order(void **state)
{
    struct ground g;
    struct rme_rdma_op x[6];
    struct rme_sge seg;
    struct rme_rdma_seg piece;

    (void)state;
    bench_connect();
    ground_open(&g, 4096);
    seg = (struct rme_sge){g.here, g.size, g.here_mr.lkey};
    piece = (struct rme_rdma_seg){(uintptr_t)g.there, g.to_write.key, &seg, 1};
    for (int i = 0; i < 6; i++) {
        x[i] = (struct rme_rdma_op){.notify = RME_NOTIFY_IMM,
                                    .imm = (uint32_t)i,
                                    .piece = &piece,
                                    .npiece = 1,
                                    .bytes = g.size};
        bench_send(&client, "plain");
        if (i % 3 == 1) {
            x[i].notify = RME_NOTIFY_MSG;
            x[i].tx = bench_tx(&client);
            strcpy(x[i].tx, "behind");
            x[i].tx_length = 7;
        } else if (i % 3 == 2) {
            x[i].npiece = 0;
            x[i].bytes = 0;
        }
        lane.ops->rdma_op(client.link, &x[i]);
    }
    lane.ops->flush(client.f);
    bench_until(&server, RME_EV_RECV, 8);
    bench_until(&server, RME_EV_IMM, 4);
    int next = 0;
    for (int i = 0; i < server.nseen; i++) {
        const struct wire_seen *e = &server.seen[i];
        if (e->type != RME_EV_RECV && e->type != RME_EV_IMM)
            continue;
        if (next % 2 == 0)
            assert_string_equal(e->text, "plain");
        else if (next / 2 % 3 == 1)
            assert_string_equal(e->text, "behind");
        else
            assert_int_equal(e->imm, next / 2);
        next++;
    }
    assert_int_equal(next, 12);
    bench_until(&client, RME_EV_RDMA_DONE, 6);
    bench_disconnect();
    ground_close(&g);
}

/* Access beyond the registered range, with a wrong key or without permission: the link fails,
 * memory is unchanged. */
static void forbidden_access_kills_the_link(void **state)
{
    (void)state;
    if (lane.ops->caps(server.f)->open_memory)
        skip();
    for (int kind = 0; kind < 4; kind++) {
        struct ground g;
        uint8_t *page = calloc(1, 4096);
        struct rme_mr read_only;

        assert_non_null(page);
        bench_connect();
        ground_open(&g, 4096);
        assert_int_equal(
            lane.ops->reg(server.f, page, 4096, RME_ACCESS_REMOTE_READ, &read_only), 0);
        struct rme_range page_range;
        bench_mw_bind(&server, &read_only, page, 4096, RME_ACCESS_REMOTE_READ, &page_range);
        struct rme_sge seg = {g.here, 64, g.here_mr.lkey};
        struct rme_rdma_seg piece = {(uintptr_t)g.there, g.to_write.key, &seg, 1};
        if (kind == 0)
            piece.raddr += g.size - 63;
        else if (kind == 1)
            piece.rkey ^= 0x5a0000005a00; /* both keys, if the memory has two */
        else if (kind == 2)
            piece = (struct rme_rdma_seg){(uintptr_t)page, page_range.key, &seg, 1};
        else
            piece.raddr -= 1;
        struct rme_rdma_op x = {
            .notify = RME_NOTIFY_IMM, .piece = &piece, .npiece = 1, .bytes = 64};
        lane.ops->rdma_op(client.link, &x);
        lane.ops->flush(client.f);
        bench_until(&client, RME_EV_LINK_DOWN, 1);
        bench_until(&server, RME_EV_LINK_DOWN, 1);
        assert_int_equal(wire_count(&server, RME_EV_IMM), 0);
        assert_true(wire_event(&client, RME_EV_LINK_DOWN, 0)->error < 0);
        check_pattern(g.there, 0, g.size, 13, 5);
        for (int i = 0; i < 4096; i++)
            assert_int_equal(page[i], 0);
        lane.ops->link_free(client.link);
        lane.ops->link_free(server.link);
        lane.ops->dereg(server.f, &read_only);
        ground_close(&g);
        free(page);
    }
    loop_clear(); /* drop the intended violations */
}

/* Waits for the violation's end of a link. */
static void link_ends(struct rme_link *of_client, struct rme_link *of_server)
{
    lane.ops->flush(client.f);
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    bench_until(&server, RME_EV_LINK_DOWN, 1);
    lane.ops->link_free(of_client);
    lane.ops->link_free(of_server);
}

/* Disconnects the link that was established before the one that has ended. */
static void disconnect_other(struct rme_link *of_client, struct rme_link *of_server)
{
    client.link = of_client;
    server.link = of_server;
    bench_forget();
    bench_disconnect();
}

/* Sends a message that closes the window of a key. */
static void send_closing(struct rme_link *link, uint64_t key)
{
    char *tx = lane.ops->tx_get(link);

    assert_non_null(tx);
    lane.ops->tx_send_closing(link, strcpy(tx, "closes"), 7, key);
    lane.ops->flush(client.f);
}

/* A message closes an open window of its link at once, and the link's end otherwise: a window
 * that is closed already, one of another link, an unknown key. */
static void message_closes_its_window_alone(void **state)
{
    (void)state;
    if (!lane.ops->caps(server.f)->mws || !lane.ops->caps(server.f)->closes)
        skip();
    for (int kind = 0; kind < 4; kind++) {
        struct ground g;
        struct rme_range range;
        struct rme_link *other_client = NULL, *other_server = NULL;

        bench_connect();
        other_client = client.link;
        other_server = server.link;
        ground_open(&g, 4096);
        bench_mw_bind(&server, &g.there_mr, g.there, 64, RME_ACCESS_REMOTE_WRITE, &range);
        bench_connect();
        if (kind < 2) { /* through the window's own link, which is the first one */
            send_closing(other_client, range.key);
            bench_until(&server, RME_EV_RECV, 1);
            bench_forget();
            assert_true(lane.ops->mw_invalidate(other_server, &range, 1, &g));
        }
        struct rme_sge seg = {g.here, 64, g.here_mr.lkey};
        struct rme_rdma_seg piece = {(uintptr_t)g.there, range.key, &seg, 1};
        struct rme_rdma_op x = {
            .notify = RME_NOTIFY_NONE, .piece = &piece, .npiece = 1, .bytes = 64};
        if (kind == 0)
            lane.ops->rdma_op(other_client, &x);
        else if (kind == 1)
            send_closing(other_client, range.key);
        else
            send_closing(client.link, range.key ^ (kind == 3 ? 0x1000 : 0));
        bool first = kind < 2;
        link_ends(first ? other_client : client.link, first ? other_server : server.link);
        check_pattern(g.there, 0, g.size, 13, 5);
        disconnect_other(first ? client.link : other_client,
                         first ? server.link : other_server);
        ground_close(&g);
    }
    loop_clear(); /* drop the intended violations */
}

/* A key is valid for its range, one direction and one link, until the range is closed. Any
 * other use fails the link and leaves memory unchanged. */
static void rkey_opens_one_range_to_one_peer(void **state)
{
    (void)state;
    if (!lane.ops->caps(server.f)->mws)
        skip();
    for (int kind = 0; kind < 7; kind++) {
        struct ground g;
        struct rme_range range;
        struct rme_link *other_client = NULL, *other_server = NULL;

        bench_connect();
        if (kind == 6) { /* keep the first link and try a second one */
            other_client = client.link;
            other_server = server.link;
        }
        ground_open(&g, 4096);
        bench_mw_bind(&server, &g.there_mr, g.there + 101, 64, RME_ACCESS_REMOTE_WRITE, &range);
        if (kind == 6)
            bench_connect();
        struct rme_sge seg = {g.here, 64, g.here_mr.lkey};
        struct rme_rdma_seg piece = {(uintptr_t)g.there + 101, range.key, &seg, 1};
        struct rme_rdma_op x = {
            .notify = RME_NOTIFY_NONE, .piece = &piece, .npiece = 1, .bytes = 64};
        if (kind < 6) { /* first the permitted access */
            lane.ops->rdma_op(client.link, &x);
            lane.ops->flush(client.f);
            bench_until(&client, RME_EV_RDMA_DONE, 1);
            assert_memory_equal(g.there + 101, g.here, 64);
            memset(g.here, 0xee, 64);
        }
        struct rme_rdma_op y = {
            .notify = RME_NOTIFY_NONE, .piece = &piece, .npiece = 1, .bytes = 64};
        if (kind == 0)
            piece.raddr -= 1;
        else if (kind == 1)
            piece.raddr += 1;
        else if (kind == 2)
            y.read = true;
        else if (kind == 3)
            bench_mw_invalidate(&server, &range);
        else if (kind == 4)
            piece.rkey = g.there_mr.rkey; /* the registration's key */
        /* bind the window to other bytes: the old key opens neither range */
        else if (kind == 5) {
            struct rme_range next;
            bench_mw_invalidate(&server, &range);
            bench_mw_bind(&server, &g.there_mr, g.there + 101, 64, RME_ACCESS_REMOTE_WRITE,
                          &next);
        }
        lane.ops->rdma_op(client.link, &y);
        link_ends(client.link, server.link);
        check_pattern(g.there, 0, 101, 13, 5);
        check_pattern(g.there, 101 + 64, g.size, 13, 5);
        if (kind == 6)
            check_pattern(g.there, 101, 101 + 64, 13, 5);
        for (int i = 0; kind < 6 && kind != 2 && i < 64; i++)
            assert_int_not_equal(g.there[101 + i], 0xee);
        if (kind == 6)
            disconnect_other(other_client, other_server);
        ground_close(&g);
    }
    loop_clear(); /* drop the intended violations */
}

/* The number of windows is bounded: an attempt without a free window fails, and succeeds once
 * another is closed or its link is down. */
static void windows_come_back(void **state)
{
    (void)state;
    uint32_t most = lane.ops->caps(server.f)->mws;
    if (!most)
        skip();
    for (int round = 0; round < 2; round++) {
        struct ground g;
        bench_connect();
        ground_open(&g, 4096);
        struct rme_range *range = calloc(most, sizeof *range);
        uint32_t n = most - 2; /* two are open */
        assert_non_null(range);
        for (uint32_t i = 0; i < n; i++)
            range[i] = (struct rme_range){
                .base = g.there + i % 4000, .length = 1 + i % 90, .rkey = g.there_mr.rkey};
        assert_int_equal(lane.ops->mw_bind(server.link, range, n, RME_ACCESS_REMOTE_READ), 0);
        struct rme_range one = range[0];
        assert_int_equal(lane.ops->mw_bind(server.link, &one, 1, RME_ACCESS_REMOTE_READ),
                         -EAGAIN);
        bench_mw_invalidate(&server, &range[0]);
        bench_mw_invalidate(&server, &range[1]);
        bench_mw_bind(&server, &g.there_mr, g.there, 1, RME_ACCESS_REMOTE_READ, &one);
        if (round) {
            lane.ops->mw_invalidate(server.link, range + 2, n - 2, &g);
            lane.ops->flush(server.f);
            bench_until(&server, RME_EV_MW_INVALIDATED, 1);
            bench_idle();
            assert_int_equal(wire_count(&server, RME_EV_MW_INVALIDATED), 1);
            bench_forget();
        }
        bench_disconnect();
        free(range);
        ground_close(&g);
    }
}

static void link_down_comes_once_and_last(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        bench_connect();
        for (int i = 0; i < BENCH_RX; i++) {
            bench_send(&client, "in flight");
            bench_send(&server, "in flight");
        }
        if (round % 2) {
            lane.ops->flush(client.f);
            lane.ops->flush(server.f);
        }
        if (round % 3)
            lane.ops->link_disconnect(server.link, -ESHUTDOWN);
        lane.ops->link_disconnect(client.link, -ESHUTDOWN);
        bench_until(&client, RME_EV_LINK_DOWN, 1);
        bench_until(&server, RME_EV_LINK_DOWN, 1);
        bench_idle();
        struct wire *hosts[] = {&client, &server};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(wire_count(hosts[i], RME_EV_LINK_DOWN), 1);
            assert_int_equal(hosts[i]->seen[hosts[i]->nseen - 1].type, RME_EV_LINK_DOWN);
            assert_true(wire_event(hosts[i], RME_EV_LINK_DOWN, 0)->error < 0);
        }
        lane.ops->link_free(client.link);
        lane.ops->link_free(server.link);
    }
}

/* A message that the host keeps outlives its link. */
static void received_buffer_outlives_its_link(void **state)
{
    (void)state;
    bench_connect();
    server.keep_rx = true;
    bench_send(&client, "keep me");
    bench_until(&server, RME_EV_RECV, 1);
    void *rx = wire_event(&server, RME_EV_RECV, 0)->rx;
    bench_disconnect();
    lane.ops->rx_return(server.f, rx);
    server.keep_rx = false;
    bench_connect();
    bench_send(&client, "again");
    bench_until(&server, RME_EV_RECV, 1);
    assert_string_equal(wire_event(&server, RME_EV_RECV, 0)->text, "again");
    bench_disconnect();
}

static atomic_int sleeper;

static void *late_wake(void *arg)
{
    asleep_await(&sleeper);
    lane.ops->wake(arg);
    return NULL;
}

/* wake() before or during a wait() ends the wait; so does an event after arm(). */
static void sleep_ends_by_wake_or_event(void **state)
{
    pthread_t thread;

    (void)state;
    bench_connect();
    lane.ops->wake(server.f);
    lane.ops->wait(server.f, 60000);
    asleep_announce(&sleeper);
    assert_int_equal(pthread_create(&thread, NULL, late_wake, server.f), 0);
    lane.ops->wait(server.f, 60000);
    pthread_join(thread, NULL);

    for (int round = 0; round < 20; round++) {
        bench_idle();
        bench_forget();
        assert_int_equal(lane.ops->arm(server.f), 0);
        wire_poll(&server);
        bench_send(&client, "wake up");
        lane.ops->flush(client.f);
        for (int tries = 0; !wire_count(&server, RME_EV_RECV) && tries < 3; tries++) {
            lane.ops->wait(server.f, 60000);
            wire_poll(&server);
        }
        assert_int_equal(wire_count(&server, RME_EV_RECV), 1);
    }
    bench_disconnect();
}

#define T(name) cmocka_unit_test_setup_teardown(name, bench_open, bench_close)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        T(reject_carries_data),
        T(disconnect_while_connecting),
        T(promised_buffers_suffice),
        T(send_buffers_run_out),
        T(last_notification_follows_all_data),
        T(notifications_keep_their_order),
        T(forbidden_access_kills_the_link),
        T(rkey_opens_one_range_to_one_peer),
        T(message_closes_its_window_alone),
        T(windows_come_back),
        T(link_down_comes_once_and_last),
        T(received_buffer_outlives_its_link),
        T(sleep_ends_by_wake_or_event),
    };

    return lane_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
