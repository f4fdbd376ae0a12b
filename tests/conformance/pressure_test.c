/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Overload: messages without receives, unexpected ones that are not fetched, many clients. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../fabric/loop.h"
#include "cases.h"

enum { FLOOD = 10000 };

static struct op flood_send[FLOOD], flood_recv[FLOOD];

/* Returns the limit in KiB of what both engines keep of messages: windows and buffers of the
 * fabric. */
static long bound_kb(const struct node *n)
{
    int64_t rx_size;

    assert_int_equal(rme_option_get(n->rme, "rx_size", &rx_size), 0);
    return 8 * 1024 + (long)(rx_size / 1024) * 128;
}

/* Sanitizers delay freeing memory, so memory in use proves nothing there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FREED_IS_FREE false
#else
#define FREED_IS_FREE true
#endif

/* Returns the process's resident memory in KiB. */
static long resident_kb(void)
{
    long pages = 0, total = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!FREED_IS_FREE) {
        fclose(f);
        return 0;
    }
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &total, &pages), 2);
    fclose(f);
    return pages * 4;
}

static struct op held[2]; /* receives that keep the memory of other operations */
static struct blob held_memory;

/* Exchanges `count` messages that are posted before the first arrives, so that memory of
 * operations does not count in what is measured afterwards.  Engines keep it while an operation
 * is posted: until release_operations(). */
static void grow_operations(struct pair *p, int count)
{
    struct blob b;

    blob_flat(&held_memory, 1);
    post_recv(&held[0], p->server, p->to_client, &held_memory, 77777);
    post_recv(&held[1], p->client, p->to_server, &held_memory, 77777);
    blob_flat(&b, 1);
    for (int i = 0; i < count; i++) {
        post_recv(&flood_recv[i], p->server, p->to_client, &b, 1);
        post_send(&flood_send[i], p->client, p->to_server, &b, 1);
    }
    pump_until_all_of(flood_send, flood_recv, count);
    blob_free(&b);
}

static void release_operations(void)
{
    op_cancel(&held[0]);
    op_cancel(&held[1]);
    pump_until_all(held, 2);
    blob_free(&held_memory);
}

/* 10,000 messages without receives: buffering is bounded, other tags go on, and in the end all
 * arrive in order. */
CASE(eager_flood_unposted)
{
    struct pair p;
    struct blob out, in;

    pair_open(&p);
    blobs_flat(&out, &in, 2000, 1);
    pair_exchange(&p, 2000, 1);
    grow_operations(&p, FLOOD);
    malloc_trim(0);
    long before = resident_kb();
    for (int i = 0; i < FLOOD; i++) {
        post_send(&flood_send[i], p.client, p.to_server, &out, 666);
        if (flood_send[i].rc < 0)
            fail_msg("message %d was refused: %s", i, strerror(-flood_send[i].rc));
        if (i % 100 == 0)
            pump();
    }
    pump_times(200);
    /* The 20 MB of data must not pile up at the receiver. */
    if (resident_kb() - before > bound_kb(p.server))
        fail_msg("%ld KiB more in use", resident_kb() - before);
    for (int i = 0; i < 20; i++)
        pair_exchange(&p, i % 2 ? 100000 : 100, i);
    for (int i = 0; i < FLOOD; i++) {
        blob_canary(&in);
        post_recv(&flood_recv[i], p.server, p.to_client, &in, 666);
        pump_until_reported(&flood_recv[i]);
        op_check(&flood_recv[i], 2000);
        if (i % 500 == 0)
            blob_check(&in, 1, 2000);
    }
    pump_until_all(flood_send, FLOOD);
    for (int i = 0; i < FLOOD; i++)
        op_check(&flood_send[i], 2000);
    pair_exchange(&p, 100000, 666);
    release_operations();
}

/* A direction in which the window and the RTS slots are used up; links are not probed. */
struct jam {
    struct node *from, *to;
    struct rme_addr *peer, *sender; /* the handles of both */
    struct blob b;
    int eager, small; /* messages with tag 1 in the window, and with tag 2 in the slots */
    struct op last;   /* a send with tag 3: waits */
};

enum { JAM_SIZE = 900 };

/* Uses up the window and the slots, and posts one send more. */
static void jam(struct jam *j)
{
    uint64_t control = node_counter(j->from, "control_sent");

    blob_flat(&j->b, JAM_SIZE);
    j->eager = 0x10000 / (JAM_SIZE + 64);
    j->small = 0x10000 / 16;
    for (int i = 0; i < j->eager; i++) {
        post_send(&flood_send[i], j->from, j->peer, &j->b, 1);
        pump_until_reported(&flood_send[i]);
    }
    for (int i = 0; i < j->small; i++) {
        post_send(&flood_send[j->eager + i], j->from, j->peer, &j->b, 2);
        if (i % 100 == 0)
            pump();
    }
    post_send(&j->last, j->from, j->peer, &j->b, 3);
    pump_until_counter(j->from, "control_sent", control + (uint64_t)j->small);
    pump_times(100);
    assert_int_equal(j->last.reports, 0);
}

/* Takes messages of a tag, into receives of `size` bytes. */
static void jam_take(struct jam *j, int first, int count, int tag, size_t size)
{
    struct blob in;

    blob_flat(&in, size);
    for (int i = 0; i < count; i++) {
        post_recv(&flood_recv[first + i], j->to, j->sender, &in, tag);
        pump_until_reported(&flood_recv[first + i]);
    }
    blob_free(&in);
}

static void jam_ways(struct jam *j)
{
    static const struct {
        size_t size; /* of the receives that free the window: a small one refuses the message */
        int count;
    } ways[] = {{JAM_SIZE, 2}, {JAM_SIZE, 30}, {JAM_SIZE / 2, 3}};

    for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
        struct op recv;
        struct blob in;
        int taken = ways[w].count;

        jam(j);
        jam_take(j, 0, taken, 1, ways[w].size);
        blob_flat(&in, JAM_SIZE);
        post_recv(&recv, j->to, j->sender, &in, 3);
        pump_until_reported(&recv);
        op_check(&recv, JAM_SIZE);
        jam_take(j, 0, j->eager - taken, 1, JAM_SIZE);
        jam_take(j, 0, j->small, 2, JAM_SIZE);
        pump_until_reported(&j->last);
        pump_until_all(flood_send, j->eager + j->small);
        blob_free(&in);
        blob_free(&j->b);
    }
}

/* The same with rendezvous messages: only RTS are sent. */
CASE(rendezvous_flood_unposted)
{
    enum { N = 3000 };
    struct pair p;
    struct blob out, in;
    int64_t size;

    pair_open(&p);
    assert_int_equal(rme_option_get(p.client->rme, "rx_size", &size), 0);
    size *= 5;
    blobs_flat(&out, &in, (size_t)size, 1);
    for (int i = 0; i < N; i++) {
        post_send(&flood_send[i], p.client, p.to_server, &out, 666);
        assert_int_equal(flood_send[i].rc, 0);
    }
    pump_times(200);
    for (int i = 0; i < 20; i++)
        pair_exchange(&p, i % 2 ? 100000 : 100, i);
    for (int i = 0; i < N; i++) {
        post_recv(&flood_recv[i], p.server, p.to_client, &in, 666);
        pump_until_reported(&flood_recv[i]);
        op_check(&flood_recv[i], size);
    }
    pump_until_all(flood_send, N);
}

/* A send waits for window and RTS slot, and the receiver's host takes messages of another tag:
 * the send is sent without a probe and without other traffic. */
CASE(window_freed_ends_wait)
{
    struct pair p;

    pair_open_with(&p, "eager_window=64K,keepalive_ms=0");
    jam_ways(&(struct jam){
        .from = p.client, .to = p.server, .peer = p.to_server, .sender = p.to_client});
    jam_ways(&(struct jam){
        .from = p.server, .to = p.client, .peer = p.to_client, .sender = p.to_server});
}

/* Unexpected messages are not fetched: expected ones flow, memory is bounded, none is lost. */
CASE(unexpected_flood_unclaimed)
{
    enum { N = 5000 };
    struct pair p;
    struct blob out;

    pair_open(&p);
    blob_flat(&out, 3000);
    blob_fill(&out, 1);
    p.server->no_unexpected = true;
    grow_operations(&p, N);
    malloc_trim(0);
    long before = resident_kb();
    for (int i = 0; i < N; i++) {
        post_unexpected(&flood_send[i], p.client, p.to_server, &out, i);
        assert_true(flood_send[i].rc >= 0);
        if (i % 100 == 0)
            pump();
    }
    pump_times(200);
    if (resident_kb() - before > bound_kb(p.server))
        fail_msg("%ld KiB more in use", resident_kb() - before);
    for (int i = 0; i < 20; i++)
        pair_exchange(&p, i % 2 ? 100000 : 100, i);
    p.server->no_unexpected = false;
    for (int i = 0; i < N; i++) {
        pump_until_unexpected(p.server, 1);
        struct rme_unexpected u = inbox_take(p.server);
        assert_int_equal(u.tag, i);
        assert_int_equal(u.size, 3000);
        assert_int_equal(((uint8_t *)u.buffer)[2999], pattern_byte(1, 2999));
        assert_int_equal(rme_unexpected_free(p.server->rme, u.buffer), 0);
    }
    pump_until_all(flood_send, N);
    for (int i = 0; i < N; i++)
        op_check(&flood_send[i], 3000);
    release_operations();
}

/* Hundreds of fetched messages are kept while others come and go. */
CASE(unexpected_kept_by_the_host)
{
    enum { KEPT = 400 };
    static struct rme_unexpected kept[KEPT];
    struct pair p;
    struct blob b;

    pair_open(&p);
    for (int i = 0; i < KEPT; i++) {
        struct op op;
        blob_flat(&b, i % 10 ? 1500 : 16384);
        blob_fill(&b, (uint64_t)i);
        post_unexpected(&op, p.client, p.to_server, &b, i);
        pump_until_unexpected(p.server, 1);
        kept[i] = inbox_take(p.server);
        pump_until_reported(&op);
        if (i % 20 == 0)
            pair_exchange(&p, 5000, 1);
    }
    for (int i = 0; i < KEPT; i++) {
        int k = (i * 7) % KEPT; /* freed in another order */
        for (int64_t at = 0; at < kept[k].size; at += 37)
            assert_int_equal(((uint8_t *)kept[k].buffer)[at], pattern_byte((uint64_t)k, at));
        assert_int_equal(rme_unexpected_free(p.server->rme, kept[k].buffer), 0);
    }
    pair_exchange(&p, 100000, 1);
}

/* test_context returns at once when an unexpected message waits, for any timeout. */
CASE(unexpected_ends_the_wait)
{
    struct pair p;
    struct op op;
    struct blob b;
    struct rme_done done;

    pair_open(&p);
    p.server->no_unexpected = true;
    blob_flat(&b, 100);
    for (int round = 0; round < 5; round++) {
        post_unexpected(&op, p.client, p.to_server, &b, 1);
        pump_until_reported(&op);
        pump_times(20);
        int64_t begin = lane_now();
        assert_int_equal(rme_test_context(p.server->rme, 0, &done, 1, 120000), 0);
        assert_true(lane_now() - begin < 120000);
        /* the message was reported and not fetched: now the call sleeps */
        uint64_t sleeps = node_counter(p.server, "sleeps");
        assert_int_equal(rme_test_context(p.server->rme, 0, &done, 1, 100), 0);
        assert_true(node_counter(p.server, "sleeps") > sleeps);
        /* the next message ends the wait again, and so does a remaining one after a fetch */
        post_unexpected(&op, p.client, p.to_server, &b, 1);
        pump_until_reported(&op);
        struct rme_unexpected u;
        assert_int_equal(rme_test_context(p.server->rme, 0, &done, 1, 120000), 0);
        assert_int_equal(rme_test_unexpected(p.server->rme, &u, 1, 120000), 1);
        assert_int_equal(rme_unexpected_free(p.server->rme, u.buffer), 0);
        assert_int_equal(rme_test_context(p.server->rme, 0, &done, 1, 120000), 0);
        assert_true(lane_now() - begin < 120000);
        assert_int_equal(rme_test_unexpected(p.server->rme, &u, 1, 120000), 1);
        assert_int_equal(rme_unexpected_free(p.server->rme, u.buffer), 0);
    }
}

/*
 * One host exceeds its share of the server's buffering: its links are throttled and new ones
 * refused, while another host's messages go on. When the server consumes the messages, first
 * all of one link, everything arrives.
 */
CASE(greedy_hosts_wait_alone)
{
    enum { LINKS = 3, EACH = 1000, SIZE = 2000, BOUND = 1 << 20, PROMISED = 64 * 4096 * LINKS };
    static struct op send[LINKS][EACH], recv[LINKS][EACH];
    struct pair p, greedy[LINKS];
    struct blob out, in;
    uint64_t most = 0;

    only_over_loop(); /* all peers have one host */
    pair_open_with(&p, "rx_buffered_bytes=1M,loop_host=2,eager_max=4K");
    bed_options("loop_host=3,eager_max=4K");
    blobs_flat(&out, &in, SIZE, 1);
    for (int l = 0; l < LINKS; l++) {
        greedy[l].server = p.server;
        greedy[l].client = node_open("greedy", NULL);
        greedy[l].to_server = node_dial(greedy[l].client, lane_uri(0));
        pair_meet(&greedy[l]);
    }
    for (int i = 0; i < EACH; i++)
        for (int l = 0; l < LINKS; l++)
            post_send(&send[l][i], greedy[l].client, greedy[l].to_server, &out, 666);
    for (int i = 0; i < 100; i++) {
        pump_times(10);
        pair_exchange(&p, i % 2 ? SIZE : 100000, 5);
        if (node_counter(p.server, "rx_buffered_bytes") > most)
            most = node_counter(p.server, "rx_buffered_bytes");
    }
    assert_in_range(most, BOUND / 4, BOUND + PROMISED / 2);
    struct node *newcomer = node_open("newcomer", NULL);
    struct op refused;
    post_send(&refused, newcomer, node_dial(newcomer, lane_uri(0)), &out, 1);
    pump_until_reported(&refused);
    op_check_error(&refused, -ECONNREFUSED, -ECONNREFUSED);
    for (int l = 0; l < LINKS; l++) {
        for (int i = 0; i < EACH; i++) {
            post_recv(&recv[l][i], p.server, greedy[l].to_client, &in, 666);
            pump_until_reported(&recv[l][i]);
            op_check(&recv[l][i], SIZE);
        }
        pump_until_all(send[l], EACH);
    }
    assert_int_equal(node_counter(p.server, "rx_buffered_bytes"), 0);
    pair_exchange(&p, 100000, 5);
}

/* A throttled link completes its transfers in progress, whichever side moves them, and gets
 * answers, though the host consumes nothing else of it before. */
CASE(greedy_link_ends_what_it_began)
{
    enum { MANY = 2000, SIZE = 500, LARGE = 300000, HALF = 512 << 10, ANSWERS = 200 };
    enum { LEFT = HALF - 1024 }; /* without the RTS of the large message */
    static const char *const options[] = {"rx_buffered_bytes=1M,rndv=write",
                                          "rx_buffered_bytes=1M,rndv=read"};
    static struct op send[MANY], recv[MANY];
    struct blob out, in, large[2];
    struct op large_op[2];

    for (int o = 0; o < 2; o++) {
        struct pair p;

        pair_open_with(&p, options[o]);
        blobs_flat(&out, &in, SIZE, 0);
        blobs_flat(&large[0], &large[1], LARGE, 1);
        post_send(&large_op[0], p.client, p.to_server, &large[0], 1);
        for (int i = 0; i < MANY; i++)
            post_send(&send[i], p.client, p.to_server, &out, 2);
        pump_until_counter(p.server, "rx_buffered_bytes", HALF);
        pump_times(200);
        post_recv(&large_op[1], p.server, p.to_client, &large[1], 1);
        pump_until_all(large_op, 2);
        op_check(&large_op[0], LARGE);
        op_check_blob(&large_op[1], &large[1], 1, LARGE);
        assert_true(node_counter(p.server, "rx_buffered_bytes") >= LEFT);
        for (int i = 0; i < ANSWERS; i++) {
            struct op ops[2];

            post_recv(&ops[0], p.client, p.to_server, &in, 3);
            post_send(&ops[1], p.server, p.to_client, &out, 3);
            pump_until_all(ops, 2);
            op_check(&ops[0], SIZE);
        }
        assert_true(node_counter(p.server, "rx_buffered_bytes") >= LEFT);
        for (int i = 0; i < MANY; i++) {
            post_recv(&recv[i], p.server, p.to_client, &in, 2);
            pump_until_reported(&recv[i]);
            op_check(&recv[i], SIZE);
        }
        pump_until_all(send, MANY);
        assert_int_equal(node_counter(p.server, "rx_buffered_bytes"), 0);
        bed_again();
    }
}

/* Waits until the initiators' devices have had that many transfers of large messages, and
 * checks that they get no more. */
static void settles_at(uint64_t before, uint64_t transfers)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (loop_calls(LOOP_RDMA_OP) - before < transfers && lane_now() < end)
        pump();
    pump_times(100);
    assert_int_equal(loop_calls(LOOP_RDMA_OP) - before, transfers);
}

/*
 * The device gets at most the option's number of bytes of large messages at a time, whichever
 * side moves them: this bounds the delay of a small message. Messages take turns: a short list
 * that is posted last is complete before the first large message.
 */
CASE(rdma_in_flight_stays_below_limit)
{
    enum { N = 4, SIZE = 1000000, BOUND = 128 << 10, LAST = 100000 };
    static const char *const options[] = {"rdma_inflight_bytes=128K,rndv=write",
                                          "rdma_inflight_bytes=128K,rndv=read"};

    only_over_loop();
    for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
        struct pair p;
        struct blob out[N + 1], in[N + 1], word, heard;
        struct op send[N + 1], recv[N + 1], say, hear;

        pair_open_with(&p, options[k]);
        for (int i = 0; i <= N; i++) {
            blob_zone(&out[i], p.client, i < N ? SIZE : LAST);
            blob_zone(&in[i], p.server, i < N ? SIZE : LAST);
            blob_fill(&out[i], (uint64_t)i);
        }
        blobs_flat(&word, &heard, 8, 9);
        post_recv(&hear, p.server, p.to_client, &heard, N + 1);
        for (int i = 0; i < N; i++)
            post_recv(&recv[i], p.server, p.to_client, &in[i], i);
        loop_hold(LOOP_HOLD_DATA);
        uint64_t before = loop_calls(LOOP_RDMA_OP);
        for (int i = 0; i < N; i++)
            post_send(&send[i], p.client, p.to_server, &out[i], i);
        settles_at(before, BOUND / (BOUND / 2));

        uint64_t messages = loop_calls(LOOP_TX_SEND);
        post_send(&say, p.client, p.to_server, &word, N + 1);
        assert_true(loop_calls(LOOP_TX_SEND) > messages); /* handed to the device at once */
        settles_at(before, BOUND / (BOUND / 2));

        post_recv(&recv[N], p.server, p.to_client, &in[N], N);
        post_send(&send[N], p.client, p.to_server, &out[N], N);
        pump_times(100);
        loop_hold(0);
        pump_until_reported(&recv[N]);
        assert_int_equal(hear.reports, 1);
        for (int i = 0; i < N; i++)
            assert_int_equal(recv[i].reports, 0);
        pump_until_all(send, N + 1);
        pump_until_all(recv, N + 1);
        assert_true(loop_calls(LOOP_RDMA_OP) - before >= N * (SIZE / (BOUND / 2)));
        op_check_blob(&hear, &heard, 9, 8);
        for (int i = 0; i <= N; i++) {
            op_check_blob(&recv[i], &in[i], (uint64_t)i, i < N ? SIZE : LAST);
            blob_free(&out[i]);
            blob_free(&in[i]);
        }
        node_close(p.client);
        node_close(p.server);
    }
}
