/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory open to a peer: none of an operation's when the operation is reported, for every
 * protocol and every end. fabric_test.c tests for every fabric which range a window opens, and
 * to which peer.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "cases.h"
#include "../fabric/loop.h"

/* Checked by the loop fabric's census; over other fabrics tests/hostile attacks. */
static void nothing_open(void)
{
    struct loop_census census;

    loop_census(&census);
    assert_int_equal(census.mws, 0);
}

/* Checks that no memory was open when this operation, the only one, was reported. */
static void shut_when_told(const struct op *op)
{
    assert_int_equal(op->open, 0);
}

static uint64_t mws(const struct pair *p)
{
    return node_counter(p->client, "windows") + node_counter(p->server, "windows");
}

/* `target`: the side that opens memory, 0 the send, 1 the receive, -1 either. */
static void exchange(struct pair *p, struct blob *out, struct blob *in, bool recv_first,
                     int target, uint64_t seed)
{
    struct op send, recv;

    blob_fill(out, seed);
    if (recv_first)
        post_recv(&recv, p->server, p->to_client, in, 3);
    if (recv_first)
        pump_times(5);
    post_send(&send, p->client, p->to_server, out, 3);
    if (!recv_first)
        pump_times(5);
    if (!recv_first)
        post_recv(&recv, p->server, p->to_client, in, 3);
    pump_until_both(&send, &recv);
    nothing_open();
    if (target >= 0)
        shut_when_told(target ? &recv : &send);
    op_check_blob(&recv, in, seed, 300000);
}

CASE(windows_close_with_their_operation)
{
    static const char *const options[] = {"rndv=write,early_cts=0",
                                          "rndv=write",
                                          "rndv=read",
                                          "rndv=auto",
                                          "rndv=read,fragment_bytes=64K,regcache_entries=0",
                                          "rndv=write,fragment_bytes=64K,regcache_entries=0",
                                          "rndv=auto,loop_chaos=1,fragment_bytes=64K"};

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        struct pair p;
        struct blob out[2], in[2];

        pair_open_with(&p, options[i]);
        blob_zone(&out[0], p.client, 300000);
        blob_zone(&in[0], p.server, 300000);
        blob_split(&out[1], 300000, 7, 1);
        blob_split(&in[1], 300000, 5, 2);
        for (unsigned n = 0; n < 8; n++)
            exchange(&p, &out[n & 1], &in[n >> 1 & 1], n >> 2 & 1,
                     i < 2    ? 1
                     : i == 2 ? 0
                              : -1,
                     n + 1);
        if (mws(&p) == 0 && i == 0)
            print_message("no windows here\n");
        struct op un;
        struct blob large;
        blob_flat(&large, 15000);
        blob_fill(&large, 9);
        post_unexpected(&un, p.client, p.to_server, &large, 4);
        pump_until_reported(&un);
        pump_until_unexpected(p.server, 1);
        inbox_drop(p.server);
        nothing_open();
        bed_again();
    }
}

/* A receive that has sent an invitation and a send that has offered its memory are cancelled:
 * their memory is closed when the cancel is reported. */
CASE(cancelled_ones_are_shut)
{
    struct pair p;
    struct blob out, in;
    struct op send, recv;

    pair_open_with(&p, "rndv=auto");
    blob_zone(&out, p.client, 300000);
    blob_zone(&in, p.server, 300000);
    for (int i = 0; i < 20; i++) {
        post_recv(&recv, p.server, p.to_client, &in, 3);
        post_send(&send, p.client, p.to_server, &out, 4);
        pump_times(i);
        op_cancel(&recv);
        op_cancel(&send);
        pump_until_both(&recv, &send);
        nothing_open();
        /* one at a time, so that the other's end cannot mask a failure */
        post_recv(&recv, p.server, p.to_client, &in, 3);
        pump_times(i);
        op_cancel(&recv);
        pump_until_reported(&recv);
        shut_when_told(&recv);
        post_send(&send, p.client, p.to_server, &out, 4);
        pump_times(i);
        op_cancel(&send);
        pump_until_reported(&send);
        shut_when_told(&send);
    }
    pair_exchange(&p, 300000, 5);
}

static uint64_t shown(void)
{
    struct loop_census census;

    loop_census(&census);
    return census.shown;
}

/* Without windows memory for a peer is registered for one operation, and deregistered before
 * the operation is reported. Only the engines' reserve blocks stay registered. */
CASE(peer_registrations_end_with_their_operation)
{
    static const struct {
        const char *options;
        int target; /* as in exchange() */
    } lanes[] = {
        {"loop_windows=0,loop_each=1,rndv=write", 1},
        {"loop_windows=0,loop_each=1,rndv=write,pack_threshold=1G,list_mode=pack", 1},
        {"loop_windows=0,loop_each=1,rndv=read", 0},
        /* a list in two blocks is not offered */
        {"loop_windows=0,loop_each=1,rndv=read,pack_threshold=1G,list_mode=pack", -1},
        {"loop_windows=0,loop_each=1,rndv=write,fragment_bytes=64K,regcache_entries=0", 1},
        {"loop_windows=0,loop_each=1,rndv=read,fragment_bytes=64K,regcache_entries=0", 1},
        {"loop_windows=0,loop_each=1,rndv=auto,loop_chaos=1,fragment_bytes=64K", -1}};

    if (!lane.is_loop || lane.is_elan4)
        skip(); /* Elan4 opens all memory to all peers */
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
        struct pair p;
        struct blob out[2], in[2];
        struct op send, recv;
        uint64_t before;

        pair_open_with(&p, lanes[i].options);
        before = shown();
        assert_int_equal(before, 2);
        blob_zone(&out[0], p.client, 300000);
        blob_zone(&in[0], p.server, 300000);
        blob_split(&out[1], 300000, 7, 1);
        blob_split(&in[1], 300000, 5, 2);
        for (unsigned n = 0; n < 16; n++) {
            struct blob *from = &out[n & 1], *to = &in[n >> 1 & 1];
            bool recv_first = n >> 2 & 1, cancelled = n >> 3 & 1;

            blob_fill(from, n + 1);
            if (recv_first)
                post_recv(&recv, p.server, p.to_client, to, 3);
            if (recv_first)
                pump_times(5);
            post_send(&send, p.client, p.to_server, from, cancelled ? 4 : 3);
            pump_times(5);
            if (!recv_first)
                post_recv(&recv, p.server, p.to_client, to, 3);
            if (cancelled) {
                op_cancel(&recv);
                op_cancel(&send);
            }
            pump_until_both(&send, &recv);
            assert_int_equal(shown(), before);
            if (lanes[i].target >= 0)
                assert_int_equal((lanes[i].target ? recv : send).shown, before);
            if (cancelled)
                continue;
            op_check_blob(&recv, to, n + 1, 300000);
        }
        bed_again();
    }
}

/* Far more operations than windows, in both directions: operations without a window wait, and
 * all complete. */
CASE(few_mws_suffice)
{
    enum { N = 64, SIZE = 20000 };
    static const char *const options[] = {
        "loop_windows=16,windows=16,eager_ring_bytes=0,rndv=auto",
        "loop_windows=16,windows=16,eager_ring_bytes=0,rndv=write",
        "loop_windows=16,windows=16,eager_ring_bytes=0,rndv=read",
        "loop_windows=16,windows=16,eager_ring_bytes=0,rndv=read,loop_chaos=1"};

    for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
        struct pair p;
        struct blob out[2][N], in[2][N];
        struct op send[2][N], recv[2][N];

        pair_open_with(&p, options[k]);
        pair_exchange(&p, SIZE, 1000); /* let the server learn the client's address */
        for (int way = 0; way < 2; way++) {
            struct node *from = way ? p.server : p.client;
            for (int i = 0; i < N; i++) {
                blob_split(&out[way][i], SIZE, 1 + i % 9, 1 + (uint64_t)i);
                blob_split(&in[way][i], SIZE, 1 + i % 5, 77 + (uint64_t)i);
                blob_fill(&out[way][i], (uint64_t)(i + 1) * 2 + (uint64_t)way);
                post_send(&send[way][i], from, way ? p.to_client : p.to_server, &out[way][i],
                          i);
            }
        }
        pump_times(50);
        for (int way = 0; way < 2; way++)
            for (int i = N - 1; i >= 0; i--)
                post_recv(&recv[way][i], way ? p.client : p.server,
                          way ? p.to_server : p.to_client, &in[way][i], i);
        for (int way = 0; way < 2; way++) {
            pump_until_all(send[way], N);
            pump_until_all(recv[way], N);
            for (int i = 0; i < N; i++) {
                op_check_blob(&recv[way][i], &in[way][i], (uint64_t)(i + 1) * 2 + (uint64_t)way,
                              SIZE);
                blob_free(&out[way][i]);
                blob_free(&in[way][i]);
            }
        }
        nothing_open();
        bed_again();
    }
}

/* Clients that ask to write and then sleep hold few of the windows. Later clients find some,
 * and so does one that does not sleep. Each sleeper continues when it wakes. */
CASE(windows_of_greedy_ones)
{
    enum { GREEDY = 8, N = 12, SIZE = 100000 };
    static struct blob out[GREEDY][N], in[GREEDY][N];
    static struct op send[GREEDY][N], recv[GREEDY][N];
    struct pair greedy[GREEDY], good;

    pair_open_with(
        &good,
        "loop_windows=16,windows=16,eager_ring_bytes=0,rndv=write,early_cts=0,eager_max=4K");
    pair_exchange(&good, SIZE, 1000);
    for (int i = 0; i < GREEDY; i++) {
        char name[32];

        snprintf(name, sizeof name, "greedy%d", i);
        greedy[i] = (struct pair){.client = node_open(name, NULL), .server = good.server};
        greedy[i].to_server = node_dial(greedy[i].client, lane_uri(0));
        pair_meet(&greedy[i]);
        for (int k = 0; k < N; k++) {
            blobs_flat(&out[i][k], &in[i][k], SIZE, (uint64_t)(i * N + k));
            post_send(&send[i][k], greedy[i].client, greedy[i].to_server, &out[i][k], k);
        }
    }
    pump_times(100); /* let the requests reach the server */
    for (int i = 0; i < GREEDY; i++) {
        greedy[i].client->asleep = true;
        for (int k = 0; k < N; k++)
            post_recv(&recv[i][k], good.server, greedy[i].to_client, &in[i][k], k);
    }
    pump_times(100);
    for (int n = 0; n < 10; n++)
        pair_exchange(&good, SIZE, n);
    for (int i = GREEDY - 1; i >= 0; i--) {
        greedy[i].client->asleep = false;
        pump_until_all(send[i], N);
        pump_until_all(recv[i], N);
        for (int k = 0; k < N; k++) {
            op_check_blob(&recv[i][k], &in[i][k], (uint64_t)(i * N + k), SIZE);
            blob_free(&out[i][k]);
            blob_free(&in[i][k]);
        }
    }
    pair_exchange(&good, SIZE, 1000);
    nothing_open();
}

/* The receiver has read a send's memory and answers: the send is reported first, though closing
 * its memory is slow. */
CASE(answer_waits_until_shut)
{
    struct pair p;
    struct blob data[2], answer[2];
    struct op send[2], recv[2];
    int64_t reads;

    only_over_loop();
    pair_open_with(&p, "rndv=read,loop_closes=0");
    assert_int_equal(rme_option_get(p.server->rme, "loop_read", &reads), 0);
    if (!reads)
        /* the sender writes, and a receive is reported only when its memory is closed */
        skip();
    if (strstr(rme_key_opens(p.client->rme), "one peer") == NULL)
        skip();                            /* no windows to close */
    blob_zone(&data[0], p.client, 300000); /* offered, whatever the size of fragments */
    blob_flat(&data[1], 300000);
    for (int i = 0; i < 2; i++)
        blob_flat(&answer[i], 100);
    blob_fill(&data[0], 1);
    blob_fill(&answer[0], 2);
    for (int round = 0; round < 2; round++) {
        post_recv(&recv[0], p.server, p.to_client, &data[1], 3);
        post_recv(&recv[1], p.client, p.to_server, &answer[1], 4);
        post_send(&send[0], p.client, p.to_server, &data[0], 3);
        loop_hold(LOOP_HOLD_CLOSED);
        pump_until_reported(&recv[0]);
        post_send(&send[1], p.server, p.to_client, &answer[0], 4);
        pump_times(200);
        assert_int_equal(send[0].reports, 0);
        assert_int_equal(recv[1].reports, 0);
        loop_hold(0);
        if (round) /* or the link fails: data that was read counts as sent */
            loop_kill_links("client");
        pump_until_both(&send[0], &recv[1]);
        assert_true(send[0].place < recv[1].place);
        op_check(&send[0], 300000);
        op_check(&recv[1], 100);
        blob_check(&data[1], 1, 300000);
        blob_check(&answer[1], 2, 100);
        pump_until_reported(&send[1]);
    }
}
