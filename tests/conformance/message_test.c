/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes, lists and contents of messages. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "cases.h"

/* Order of send and receive. */
enum arrangement { RECV_FIRST, SEND_FIRST, ARRANGEMENTS };

/* Moves one message from client to server (or back) between the given memories. */
static void carry(struct pair *p, bool back, enum arrangement how, struct blob *out,
                  struct blob *in, int tag, struct op *send, struct op *recv)
{
    struct node *from = back ? p->server : p->client, *to = back ? p->client : p->server;
    struct rme_addr *dest = back ? p->to_client : p->to_server,
                    *src = back ? p->to_server : p->to_client;

    if (how == RECV_FIRST) {
        post_recv(recv, to, src, in, tag);
        pump_times(3);
        post_send(send, from, dest, out, tag);
    } else {
        post_send(send, from, dest, out, tag);
        pump_times(30);
        post_recv(recv, to, src, in, tag);
    }
    pump_until_both(send, recv);
}

static void carry_whole(struct pair *p, bool back, enum arrangement how, struct blob *out,
                        struct blob *in, int tag)
{
    struct op send, recv;

    blob_fill(out, (uint64_t)tag);
    blob_canary(in);
    carry(p, back, how, out, in, tag, &send, &recv);
    op_check(&send, out->total);
    op_check_blob(&recv, in, (uint64_t)tag, out->total);
    blob_check(out, (uint64_t)tag, out->total);
}

static size_t rx_size(const struct pair *p)
{
    int64_t value;

    assert_int_equal(rme_option_get(p->client->rme, "rx_size", &value), 0);
    return (size_t)value;
}

CASE(receive_before_connect)
{
    struct op recv, send, hello;
    struct blob in, out, b;

    struct node *server = node_open("server", lane_uri(0));
    struct node *client = node_open("client", NULL);
    struct rme_addr *to = node_dial(client, lane_uri(0));
    blob_flat(&in, 300);
    blob_flat(&out, 300);
    blob_flat(&b, 8);
    blob_fill(&out, 3);
    post_recv(&recv, client, to, &in, 77);
    assert_int_equal(recv.rc, 0);
    post_unexpected(&hello, client, to, &b, 77);
    pump_until_unexpected(server, 1);
    struct rme_unexpected u = inbox_take(server);
    assert_true(u.first);
    post_send(&send, server, u.addr, &out, 77);
    assert_int_equal(rme_unexpected_free(server->rme, u.buffer), 0);
    pump_until_both(&recv, &send);
    pump_until_reported(&hello);
    op_check_blob(&recv, &in, 3, 300);
}

static void unexpected_round(struct pair *p, struct blob *b, int tag)
{
    struct op op;

    blob_fill(b, (uint64_t)tag);
    post_unexpected(&op, p->client, p->to_server, b, tag);
    pump_until_unexpected(p->server, 1);
    pump_until_reported(&op);
    op_check(&op, b->total);
    struct rme_unexpected u = inbox_take(p->server);
    assert_int_equal(u.tag, tag);
    assert_int_equal(u.size, b->total);
    assert_ptr_equal(u.addr, p->to_client);
    assert_false(u.first);
    for (int64_t i = 0; i < u.size; i++)
        if (((uint8_t *)u.buffer)[i] != pattern_byte((uint64_t)tag, i))
            fail_msg("unexpected message of %lld bytes: byte %lld is wrong", (long long)u.size,
                     (long long)i);
    assert_int_equal(rme_unexpected_free(p->server->rme, u.buffer), 0);
    assert_int_equal(p->server->ninbox, 0);
}

CASE(unexpected_of_every_size)
{
    static const int sizes[] = {0,    1,    7,    8,    63,    64,    65,    1000,
                                3900, 4000, 4032, 4064, 4080,  4095,  4096,  4097,
                                5000, 8191, 8192, 8193, 12288, 16000, 16383, 16384};
    struct pair p;
    struct blob b;

    pair_open(&p);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        blob_misaligned(&b, (size_t)sizes[i], i % 9);
        unexpected_round(&p, &b, (int)i + 1);
    }
    for (int i = 1; i < 30; i++) {
        blob_pieces(&b, i, 0, RME_UNEXPECTED_MAX / i, true, (uint64_t)i);
        unexpected_round(&p, &b, i);
    }
    assert_int_equal(rme_unexpected_free(p.server->rme, &p), -EINVAL);
}

CASE(unexpected_too_large_is_refused)
{
    struct pair p;
    struct op op;
    struct blob b;

    pair_open(&p);
    blob_flat(&b, RME_UNEXPECTED_MAX + 1);
    post_unexpected(&op, p.client, p.to_server, &b, 1);
    assert_int_equal(op.rc, -EMSGSIZE);
    blob_pieces(&b, 2, RME_UNEXPECTED_MAX / 2 + 1, RME_UNEXPECTED_MAX / 2 + 1, false, 1);
    post_unexpected(&op, p.client, p.to_server, &b, 1);
    assert_int_equal(op.rc, -EMSGSIZE);
    blob_flat(&b, RME_UNEXPECTED_MAX);
    unexpected_round(&p, &b, 4);
}

/* Unexpected messages stay valid when their peer disconnects, and are freed after it. */
CASE(unexpected_outlives_its_peer)
{
    struct pair p;
    struct op ops[3];
    struct blob b;

    pair_open(&p);
    blob_flat(&b, 16384);
    blob_fill(&b, 8);
    for (int i = 0; i < 3; i++) {
        b.length[0] = b.total = i == 0 ? 16384 : i == 1 ? 100 : 0;
        post_unexpected(&ops[i], p.client, p.to_server, &b, i);
    }
    pump_until_all(ops, 3);
    pump_until_unexpected(p.server, 3);
    node_close(p.client);
    pump_times(100);
    for (int i = 0; i < 3; i++) {
        struct rme_unexpected u = inbox_take(p.server);
        assert_int_equal(u.size, i == 0 ? 16384 : i == 1 ? 100 : 0);
        for (int64_t k = 0; k < u.size; k++)
            assert_int_equal(((uint8_t *)u.buffer)[k], pattern_byte(8, k));
        assert_int_equal(rme_unexpected_free(p.server->rme, u.buffer), 0);
    }
}

/* The host gets unexpected messages of peers in turn, each peer's in order: a client that sends
 * many delays the others by one. */
CASE(unexpected_of_peers_in_turn)
{
    static const int tags[] = {0, 7, 1, 2};
    struct pair p, late;
    struct op ops[4];
    struct blob b;

    pair_open(&p);
    late = p;
    late.client = node_open("late", NULL);
    late.to_server = node_dial(late.client, lane_uri(0));
    pair_meet(&late);
    blob_flat(&b, 100);
    blob_fill(&b, 8);
    p.server->no_unexpected = true;
    uint64_t before = node_counter(p.server, "unexpected_received");
    for (int i = 0; i < 3; i++)
        post_unexpected(&ops[i], p.client, p.to_server, &b, i);
    pump_until_counter(p.server, "unexpected_received", before + 3);
    post_unexpected(&ops[3], late.client, late.to_server, &b, 7);
    pump_until_counter(p.server, "unexpected_received", before + 4);
    for (int i = 0; i < 4; i++) {
        struct rme_unexpected u;

        assert_int_equal(rme_test_unexpected(p.server->rme, &u, 1, 0), 1);
        assert_int_equal(u.tag, tags[i]);
        assert_int_equal(rme_unexpected_free(p.server->rme, u.buffer), 0);
    }
    pump_until_all(ops, 4);
}

/* Tags of unexpected and of expected messages are separate. */
CASE(unexpected_tags_are_their_own)
{
    struct pair p;
    struct op recv, un, send;
    struct blob in, b;

    pair_open(&p);
    blob_flat(&in, 64);
    blob_flat(&b, 64);
    blob_fill(&b, 1);
    post_recv(&recv, p.server, p.to_client, &in, 5);
    post_unexpected(&un, p.client, p.to_server, &b, 5);
    pump_until_unexpected(p.server, 1);
    inbox_drop(p.server);
    assert_int_equal(recv.reports, 0);
    post_send(&send, p.client, p.to_server, &b, 5);
    pump_until_both(&recv, &send);
    pump_until_reported(&un);
    op_check(&recv, 64);
    assert_int_equal(p.server->ninbox, 0);
}

/* Sizes around the limits of buffers, packing and fragments. */
CASE(sizes_around_every_limit)
{
    static const int limits[] = {64,   128,   256,   512,   1024,   2048,    4096,
                                 8192, 16384, 32768, 65536, 131072, 1 << 20, 2 << 20};
    struct pair p;
    int tag = 0;

    pair_open(&p);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        for (int off = -1; off <= 1; off++) {
            struct blob out, in;
            size_t size = (size_t)(limits[i] + off);
            blob_misaligned(&out, size, (unsigned)tag % 9);
            blob_misaligned(&in, size, (unsigned)tag % 7);
            for (int how = 0; how < ARRANGEMENTS; how++) {
                tag++;
                carry_whole(&p, tag % 3 == 0, how, &out, &in, tag);
            }
            blob_free(&out);
            blob_free(&in);
        }
    }
    /* Every size in the last bytes below the buffer, to hit its edge for any header size. */
    for (size_t size = rx_size(&p) - 140; size <= rx_size(&p) + 8; size++) {
        struct blob out, in;
        blobs_flat(&out, &in, size, 0);
        carry_whole(&p, size % 2, size / 2 % 2 ? RECV_FIRST : SEND_FIRST, &out, &in, (int)size);
    }
}

static void too_large(struct pair *p, bool back, enum arrangement how, size_t out_size,
                      size_t in_size, int pieces, int tag)
{
    struct node *from = back ? p->server : p->client;
    uint64_t before = node_counter(from, "sends_eager_rdma");
    struct blob out, in;
    struct op send, recv;

    blob_flat(&out, out_size);
    blob_split(&in, (int64_t)in_size, pieces, out_size);
    blob_fill(&out, 6);
    carry(p, back, how, &out, &in, tag, &send, &recv);
    op_check_error(&recv, -EMSGSIZE, -EMSGSIZE);
    /* an eager send, by a ring or not, may have completed before the receive was posted */
    bool eager = out_size <= rx_size(p) || node_counter(from, "sends_eager_rdma") != before;
    op_check_error(&send, -EMSGSIZE, eager ? 0 : -EMSGSIZE);
    if (blob_foreign(&in, 6) >= 0)
        fail_msg("something else than the message was written into the receive");
    blob_canary(&out); /* detects a late write; a late read would pass unnoticed */
    blob_canary(&in);
    pump_times(50);
    blob_check(&in, 6, 0);
    blob_free(&out);
    blob_free(&in);
}

/* Both sides get the error (of an eager message at least the receiver), nothing is written
 * behind the buffer, and the connection stays up. */
CASE(send_larger_than_receive)
{
    static const struct {
        size_t out, in;
    } cases[] = {
        {1, 0},       {2, 1},         {100, 99},   {3000, 10},       {5000, 4999},
        {70000, 100}, {70000, 69999}, {300000, 0}, {300000, 299999}, {3000000, 2999999}};
    struct pair p;
    int tag = 0;

    pair_open(&p);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int how = 0; how < ARRANGEMENTS; how++) {
            too_large(&p, tag % 2, how, cases[i].out, cases[i].in, 1, 50);
            too_large(&p, tag % 2, how, cases[i].out, cases[i].in, 5, 50);
            tag++;
            pair_exchange(&p, 1000, 50);
        }
    }
    pair_exchange(&p, 100000, 50);
    assert_int_equal(node_counter(p.client, "connects"), 1);
}

CASE(zero_length_everywhere)
{
    struct pair p;
    struct blob none, empty, pieces;

    pair_open(&p);
    blob_flat(&none, 0);
    none.count = 0;
    blob_flat(&empty, 0);
    blob_pieces(&pieces, 64, 0, 0, true, 1);
    struct blob *all[] = {&none, &empty, &pieces};
    for (int o = 0; o < 3; o++) {
        for (int i = 0; i < 3; i++)
            for (int how = 0; how < ARRANGEMENTS; how++)
                carry_whole(&p, how, how, all[o], all[i], o * 3 + i);
        unexpected_round(&p, all[o], o + 1);
    }
}

/* 64 pieces on each side, odd sizes, every alignment, split differently, some empty. */
CASE(lists_of_64_by_64)
{
    struct pair p;
    int tag = 0;

    pair_open(&p);
    static const int max[] = {9, 40, 200, 900, 5000, 30000};
    for (size_t m = 0; m < sizeof max / sizeof max[0]; m++) {
        for (int variant = 0; variant < 4; variant++) {
            struct blob out, in;
            blob_pieces(&out, variant == 2 ? 1 : 64, 1, variant == 2 ? max[m] * 32 : max[m],
                        variant == 1, (uint64_t)tag + 1);
            blob_split(&in, out.total, variant == 3 ? 1 : 64, (uint64_t)tag + 2);
            for (int how = 0; how < ARRANGEMENTS; how++) {
                tag++;
                carry_whole(&p, tag / 2 % 2, how, &out, &in, tag);
            }
            blob_free(&out);
            blob_free(&in);
        }
    }
}

/* Memory of rme_memory_alloc, on either side and on both. */
CASE(zone_memory_everywhere)
{
    static const int sizes[] = {10, 5000, 65536, 700000};
    struct pair p;
    int tag = 0;

    pair_open(&p);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int kind = 1; kind < 4; kind++) {
            struct blob out, in;
            if (kind & 1)
                blob_zone(&out, p.client, (size_t)sizes[i]);
            else
                blob_flat(&out, (size_t)sizes[i]);
            if (kind & 2)
                blob_zone(&in, p.server, (size_t)sizes[i]);
            else
                blob_flat(&in, (size_t)sizes[i]);
            carry_whole(&p, false, tag % 2, &out, &in, tag);
            tag++;
            blob_free(&out);
            blob_free(&in);
        }
    }
}

/* The two sides have different options: a writer meets a reader, receive buffers and fragments
 * differ, the sender offers none, a part, or all of its memory. Every message arrives. */
CASE(sides_of_different_minds)
{
    static const char *const minds[] = {
        "rndv=write", "rndv=read", "rndv=read,fragment_bytes=64K,regcache_entries=0",
        "rndv=write,fragment_bytes=64K,rx_size=1024,regcache_entries=0", "rx_size=16384"};
    enum { MINDS = sizeof minds / sizeof minds[0] };
    static const int pieces[] = {1, 64, 200};
    static const size_t sizes[] = {3000, 70000, 600000};
    int tag = 1;

    for (int c = 0; c < MINDS; c++) {
        for (int s = 0; s < MINDS; s++) {
            struct pair p;

            bed_options(minds[s]);
            p.server = node_open("server", lane_uri(0));
            bed_options(minds[c]);
            p.client = node_open("client", NULL);
            p.to_server = node_dial(p.client, lane_uri(0));
            pair_meet(&p);
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                for (int back = 0; back < 2; back++) {
                    struct blob out, in;

                    blob_split(&out, (int64_t)sizes[i], pieces[i], (uint64_t)tag);
                    blob_split(&in, (int64_t)sizes[i], pieces[(i + 1) % 3], (uint64_t)tag + 1);
                    carry_whole(&p, back != 0, (enum arrangement)(tag % ARRANGEMENTS), &out,
                                &in, tag);
                    blob_free(&out);
                    blob_free(&in);
                    tag++;
                }
            }
            bed_again();
        }
    }
}

/* Empty messages are charged for bookkeeping: enough of them fill the receiver's window, then
 * all are received. */
CASE(zero_length_beyond_the_window)
{
    enum { N = 1500 };
    static struct op send[N];
    struct pair p;
    struct blob none = {0};
    struct op recv;

    pair_open_with(&p, "eager_window=64K");
    for (int i = 0; i < N; i++) {
        post_send(&send[i], p.client, p.to_server, &none, 9);
        if (i % 50 == 0)
            pump();
    }
    pump_times(100);
    pair_exchange(&p, 100, 8);
    for (int i = 0; i < N; i++) {
        post_recv(&recv, p.server, p.to_client, &none, 9);
        pump_until_reported(&recv);
        op_check(&recv, 0);
    }
    pump_until_all(send, N);
    for (int i = 0; i < N; i++)
        op_check(&send[i], 0);
    assert_true(node_counter(p.client, "sends_eager") < N);
    assert_true(node_counter(p.client, "sends_rndv_read") >= N / 4);
}
