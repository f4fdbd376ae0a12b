/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Matching: messages of one peer and tag meet receives in posting order, for all protocols. */
#include <errno.h>
#include <stdio.h>
#include "cases.h"

enum { BURST = 8, MANY_TAGS = 500 };

struct burst {
    struct op send[BURST], recv[BURST];
    struct blob out[BURST], in[BURST];
};

/* Alternates sizes between protocols, differently for each variant. */
static size_t burst_size(int variant, int i)
{
    static const size_t sizes[] = {100, 200000, 4000, 70000, 0, 1000000, 5000, 30};

    return sizes[(i * (2 * variant + 1) + variant) % 8];
}

static void burst_open(struct burst *b, int variant, bool back)
{
    for (int i = 0; i < BURST; i++) {
        size_t size = burst_size(variant, i);
        blob_flat(&b->out[i], size);
        blob_fill(&b->out[i], (uint64_t)(variant * 100 + i + (back ? 50 : 0)));
        /* the server posts full buffers */
        blob_flat(&b->in[i], variant % 3 == 2 ? 1000000 : size);
    }
}

static void burst_check(struct burst *b, int variant, bool back)
{
    for (int i = 0; i < BURST; i++) {
        int64_t size = (int64_t)burst_size(variant, i);
        op_check(&b->send[i], size);
        op_check_blob(&b->recv[i], &b->in[i], (uint64_t)(variant * 100 + i + (back ? 50 : 0)),
                      size);
        blob_free(&b->in[i]);
        blob_free(&b->out[i]);
    }
}

/* Runs bursts in both directions at the same time. */
static void two_bursts(struct pair *p, int variant, bool in_advance)
{
    static struct burst to, from;

    burst_open(&to, variant, false);
    burst_open(&from, variant, true);
    for (int i = 0; in_advance && i < BURST; i++) {
        post_recv(&to.recv[i], p->server, p->to_client, &to.in[i], 9);
        post_recv(&from.recv[i], p->client, p->to_server, &from.in[i], 9);
    }
    for (int i = 0; i < BURST; i++) {
        post_send(&to.send[i], p->client, p->to_server, &to.out[i], 9);
        post_send(&from.send[i], p->server, p->to_client, &from.out[i], 9);
        if (variant % 2)
            pump();
    }
    for (int i = 0; i < BURST; i++) {
        if (!in_advance) {
            post_recv(&to.recv[i], p->server, p->to_client, &to.in[i], 9);
            post_recv(&from.recv[i], p->client, p->to_server, &from.in[i], 9);
        }
        pump_until_both(&to.recv[i], &from.recv[i]);
    }
    pump_until_all(to.send, BURST);
    pump_until_all(from.send, BURST);
    burst_check(&to, variant, false);
    burst_check(&from, variant, true);
}

/* By default, and with a ring that takes all messages between 2 and 64 KiB. */
static void bursts(bool in_advance)
{
    static const char *const options[] = {
        NULL,
        "eager_ring_bytes=160K,eager_ring_pool=16M,rx_size=2048,eager_max=64K,early_cts=0"};
    struct pair p;

    for (int o = 0; o < 2; o++) {
        pair_open_with(&p, options[o]);
        for (int round = 0; round < 1 + o; round++)
            for (int variant = 0; variant < 6; variant++)
                two_bursts(&p, variant, in_advance);
        if (o == 1 && node_counter(p.server, "eager_ring_grants") > 0)
            assert_true(node_counter(p.client, "sends_eager_rdma") > 10);
        bed_again();
    }
}

CASE(fifo_receives_in_advance)
{
    bursts(true);
}

CASE(fifo_receives_one_at_a_time)
{
    bursts(false);
}

/* Hundreds of tags, with receives posted in another order than the messages. */
CASE(many_tags)
{
    static struct op send[MANY_TAGS], recv[MANY_TAGS];
    static struct blob in[MANY_TAGS], out[MANY_TAGS];
    struct pair p;

    pair_open(&p);
    for (int i = 0; i < MANY_TAGS; i++) {
        size_t size = i % 50 == 49 ? 80000 : (size_t)i % 300;
        blobs_flat(&out[i], &in[i], size, (uint64_t)i);
    }
    for (int i = 0; i < MANY_TAGS; i += 2)
        post_recv(&recv[i], p.server, p.to_client, &in[i], i * 1000003);
    for (int i = MANY_TAGS - 1; i >= 0; i--)
        post_send(&send[i], p.client, p.to_server, &out[i], i * 1000003);
    pump_times(50);
    for (int i = 1; i < MANY_TAGS; i += 2)
        post_recv(&recv[i], p.server, p.to_client, &in[i], i * 1000003);
    pump_until_all_of(recv, send, MANY_TAGS);
    for (int i = 0; i < MANY_TAGS; i++)
        op_check_blob(&recv[i], &in[i], (uint64_t)i, out[i].total);
}

/* The receiver's host posts no receives of a tag, so that RTS of that tag reach their limit:
 * messages of other tags pass. */
CASE(other_tags_are_not_held_back)
{
    enum { MANY = 4100, SIZE = 20000, TOLD = 4096 };
    static struct op send[MANY + 1], recv[MANY + 1];
    struct op other[2][2];
    struct blob out, in, small_out, small_in;
    struct pair p;

    /* large ones need RTS for any size of receive buffer */
    pair_open_with(&p, "eager_window=64K,early_cts=0,eager_ring_bytes=0,eager_max=4K");
    blobs_flat(&out, &in, SIZE, 0);
    blobs_flat(&small_out, &small_in, 100, 5);
    for (int i = 0; i < MANY; i++)
        post_send(&send[i], p.client, p.to_server, &out, 1);
    post_send(&send[MANY], p.client, p.to_server, &small_out, 1);
    pump_until_counter(p.client, "control_sent", TOLD);
    for (int i = 0; i < 2; i++) {
        post_recv(&other[i][0], p.server, p.to_client, &small_in, 2);
        post_send(&other[i][1], p.client, p.to_server, &small_out, 2);
        pump_until_all(other[i], 2);
        op_check_blob(&other[i][0], &small_in, 5, 100);
    }
    assert_int_equal(send[0].reports + send[MANY].reports, 0);
    for (int i = 0; i <= MANY; i++)
        post_recv(&recv[i], p.server, p.to_client, i < MANY ? &in : &small_in, 1);
    pump_until_all(send, MANY + 1);
    pump_until_all(recv, MANY + 1);
    for (int i = 0; i <= MANY; i++)
        op_check(&recv[i], i < MANY ? SIZE : 100);
}

CASE(extreme_tags)
{
    static const int tags[] = {0, -1, INT32_MAX, INT32_MIN, 1};
    struct pair p;

    pair_open(&p);
    for (int i = 0; i < 5; i++) {
        pair_exchange(&p, 10, tags[i]);
        pair_exchange(&p, 100000, tags[i]);
    }
}

/* Two peers use the same tag: each message meets its own receive. */
CASE(peers_do_not_mix)
{
    struct pair a, b;
    struct op send[2], recv[2];
    struct blob in[2], out[2];

    pair_open(&a);
    b.server = a.server;
    b.client = node_open("other", NULL);
    b.to_server = node_dial(b.client, lane_uri(0));
    pair_meet(&b);
    assert_ptr_not_equal(a.to_client, b.to_client);
    for (int round = 0; round < 4; round++) {
        size_t size = round % 2 ? 90000 : 90;
        for (int i = 0; i < 2; i++)
            blobs_flat(&out[i], &in[i], size, (uint64_t)i + 1);
        post_recv(&recv[0], a.server, a.to_client, &in[0], 4);
        post_recv(&recv[1], b.server, b.to_client, &in[1], 4);
        post_send(&send[1], b.client, b.to_server, &out[1], 4);
        pump_until_reported(&recv[1]);
        assert_int_equal(recv[0].reports, 0);
        post_send(&send[0], a.client, a.to_server, &out[0], 4);
        pump_until_all_of(recv, send, 2);
        for (int i = 0; i < 2; i++) {
            op_check_blob(&recv[i], &in[i], (uint64_t)i + 1, (int64_t)size);
            blob_free(&in[i]);
            blob_free(&out[i]);
        }
    }
}

/* Two servers that are clients of each other use one or two links; everything arrives. */
CASE(server_to_server)
{
    struct node *a, *b;
    struct op send[2], recv[2], un[2];
    struct blob out, in[2];

    a = node_open("server", lane_uri(0));
    b = node_open("second", lane_uri(1));
    struct rme_addr *to_b = node_dial(a, lane_uri(1)), *to_a = node_dial(b, lane_uri(0));
    blob_flat(&out, 100);
    blob_fill(&out, 1);
    post_unexpected(&un[0], a, to_b, &out, 1);
    post_unexpected(&un[1], b, to_a, &out, 2);
    pump_until_unexpected(a, 1);
    pump_until_unexpected(b, 1);
    struct rme_unexpected at_a = inbox_take(a), at_b = inbox_take(b);
    blob_flat(&in[0], 100);
    blob_flat(&in[1], 100);
    post_recv(&recv[0], a, to_b, &in[0], 3);
    post_recv(&recv[1], b, to_a, &in[1], 3);
    post_send(&send[0], b, at_b.addr, &out, 3);
    post_send(&send[1], a, at_a.addr, &out, 3);
    assert_int_equal(rme_unexpected_free(a->rme, at_a.buffer), 0);
    assert_int_equal(rme_unexpected_free(b->rme, at_b.buffer), 0);
    pump_until_all_of(recv, send, 2);
    pump_until_all(un, 2);
    for (int i = 0; i < 2; i++)
        op_check_blob(&recv[i], &in[i], 1, 100);
}

/* Closing after a completed send loses nothing: BYE follows the report of the write, even a
 * delayed one. */
CASE(goodbye_comes_last)
{
    for (int i = 0; i < 30; i++) {
        struct op send, recv;
        struct blob out, in;
        struct pair p;
        char options[64];

        snprintf(options, sizeof options, "rndv=write,loop_seed=%d", i);
        pair_open_with(&p, lane.is_loop ? options : "rndv=write");
        pair_meet(&p);
        blobs_flat(&out, &in, 300000, (uint64_t)i);
        blob_canary(&in);
        post_send(&send, p.client, p.to_server, &out, 5);
        pump_times(50); /* send RTS first, so that no invitation is sent */
        post_recv(&recv, p.server, p.to_client, &in, 5);
        pump_until_reported(&send);
        op_check(&send, 300000);
        node_close(p.client);
        pump_until_reported(&recv);
        op_check_blob(&recv, &in, (uint64_t)i, 300000);
        bed_again();
    }
}
