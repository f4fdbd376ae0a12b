/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ring: messages larger than a receive buffer, up to 64 KiB, written into memory that the
 * receiver granted. Tests mixtures with other messages, a full ring, withdrawal, and the end of
 * a side.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "cases.h"

#define NO_RING "eager_ring_bytes=0"
#define SMALL_AREA                                                                             \
    "eager_ring_bytes=160K,eager_ring_pool=16M,rx_size=2048,eager_max=64K,early_cts=0,"        \
    "pool_idle_ms=0"
#define ONE_AREA                                                                               \
    "eager_ring_bytes=128K,eager_ring_pool=128K,rx_size=2048,eager_max=64K,early_cts=0,"       \
    "pool_idle_ms=0"
#define ONE_RING_IDLE                                                                          \
    "eager_ring_bytes=128K,eager_ring_pool=128K,rx_size=2048,eager_max=64K,early_cts=0,"       \
    "pool_idle_ms=30"
#define INVITING                                                                               \
    "eager_ring_pool=16M,rx_size=2048,eager_max=64K,early_cts=1,pool_idle_ms=0,"               \
    "keepalive_ms=0,rndv=auto,"
#define LENT_AFTER  4      /* requests and replies after which each side has a ring */
#define FAST_SIZE   20000  /* bytes of a message that uses the ring, with the options above */
#define LARGE_SIZE  200000 /* bytes of a message that does not */
#define MANY_ENOUGH 600    /* messages after which a peer has surely been granted a ring */

/* Exchanges requests and replies. */
static void lend(struct pair *p)
{
    for (int i = 0; i < 2 * LENT_AFTER; i++) {
        bool back = i % 2;
        struct blob out, in;
        struct op send, recv;

        blobs_flat(&out, &in, FAST_SIZE, (uint64_t)i);
        post_recv(&recv, back ? p->client : p->server, back ? p->to_server : p->to_client, &in,
                  1000 + i);
        post_send(&send, back ? p->server : p->client, back ? p->to_client : p->to_server, &out,
                  1000 + i);
        pump_until_both(&send, &recv);
        op_check_blob(&recv, &in, (uint64_t)i, FAST_SIZE);
        blob_free(&out);
        blob_free(&in);
    }
    pump_times(20);
}

static void open_lent(struct pair *p, const char *options)
{
    pair_open_with(p, options);
    lend(p);
    if (node_counter(p->server, "eager_ring_grants") ==
        0) /* this lane's options rule the ring out */
        skip();
    assert_int_equal(node_counter(p->client, "eager_ring_grants"), 1);
    assert_int_equal(node_counter(p->server, "eager_ring_grants"), 1);
}

/* Sends one message from client to server, or back; returns how many went through the ring. */
static uint64_t one(struct pair *p, bool back, struct blob *out, struct blob *in, bool early,
                    uint64_t seed)
{
    struct node *from = back ? p->server : p->client, *to = back ? p->client : p->server;
    uint64_t before = node_counter(from, "sends_eager_rdma"),
             got = node_counter(to, "recvs_eager_rdma");
    struct op send, recv;

    blob_fill(out, seed);
    blob_canary(in);
    if (early)
        post_recv(&recv, to, back ? p->to_server : p->to_client, in, 7);
    post_send(&send, from, back ? p->to_client : p->to_server, out, 7);
    if (!early) {
        pump_times(10);
        post_recv(&recv, to, back ? p->to_server : p->to_client, in, 7);
    }
    pump_until_both(&send, &recv);
    op_check_blob(&recv, in, seed, out->total);
    pump_times(5);
    before = node_counter(from, "sends_eager_rdma") - before;
    assert_int_equal(node_counter(to, "recvs_eager_rdma") - got, before);
    return before;
}

/* A message costs one request, one credit, one copy on each side and no control message. One
 * that precedes its receive is copied once more. */
CASE(fast_counts)
{
    enum { N = 40 };
    struct pair p;
    struct blob out, in;
    uint64_t control, writes, sends, copied, regs, aside, signalled;

    open_lent(&p, SMALL_AREA);
    blobs_flat(&out, &in, FAST_SIZE, 0);
    one(&p, false, &out, &in, true, 1);
    aside = node_counter(p.server, "unmatched_eager");
    control = node_counter(p.client, "control_sent") + node_counter(p.server, "control_sent");
    writes = node_counter(p.client, "rdma_writes");
    sends = node_counter(p.client, "send_requests");
    signalled = node_counter(p.client, "signalled");
    copied = node_counter(p.client, "bytes_copied") + node_counter(p.server, "bytes_copied");
    regs = node_counter(p.client, "registrations") + node_counter(p.server, "registrations");
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(one(&p, false, &out, &in, i % 2, i), 1);
    aside = node_counter(p.server, "unmatched_eager") - aside;
    assert_int_equal(node_counter(p.client, "control_sent") +
                         node_counter(p.server, "control_sent"),
                     control);
    if (writes != 0) /* the fabric counts them */
        assert_int_equal(node_counter(p.client, "rdma_writes") - writes, N);
    if (signalled != 0 && !lane.is_elan4 &&
        (lane.options == NULL || strstr(lane.options, "sq_depth") == NULL))
        assert_in_range(node_counter(p.client, "signalled") - signalled, 0, N / 4);
    /* the writes, if counted, and CREDIT messages */
    assert_in_range(node_counter(p.client, "send_requests") - sends, 0, N + N / 2);
    assert_int_equal(node_counter(p.client, "bytes_copied") +
                         node_counter(p.server, "bytes_copied") - copied,
                     (2 * N + aside) * FAST_SIZE);
    assert_int_equal(node_counter(p.client, "registrations") +
                         node_counter(p.server, "registrations"),
                     regs);
}

/* A receive sends no invitation if its message will be written into the ring, though its own
 * memory is registered and nothing else is in progress. Without a ring it sends one. */
CASE(fast_needs_no_invitation)
{
    static const struct {
        const char *options;
        unsigned invited;
    } cases[] = {{INVITING "eager_ring_bytes=160K", 0}, {INVITING NO_RING, 1}};

    if (!lane.is_loop || lane.is_elan4)
        skip(); /* elsewhere the choice depends on the device */
    for (int c = 0; c < 2; c++) {
        struct pair p;
        struct blob out, in;
        struct op send, recv;
        uint64_t invites;

        if (cases[c].invited) {
            pair_open_with(&p, cases[c].options);
            lend(&p);
        } else {
            open_lent(&p, cases[c].options);
        }
        if (registers_each(p.server)) /* no RTRs then */
            skip();
        blob_zone(&in, p.server, FAST_SIZE);
        blob_flat(&out, FAST_SIZE);
        blob_fill(&out, 3);
        invites = node_counter(p.server, "invites_sent");
        post_recv(&recv, p.server, p.to_client, &in, 7);
        pump_times(20);
        assert_int_equal(node_counter(p.server, "invites_sent") - invites, cases[c].invited);
        post_send(&send, p.client, p.to_server, &out, 7);
        pump_until_both(&send, &recv);
        op_check_blob(&recv, &in, 3, FAST_SIZE);
        node_close(p.client);
        node_close(p.server);
    }
}

/* Larger messages go into the ring if a rendezvous would copy them as well: not those in memory
 * that is registered already. */
CASE(fast_sizes)
{
    static const struct {
        size_t size;
        bool zone;
        unsigned fast;
    } cases[] = {{32768, true, 1},
                 {32769, true, 0},
                 {32769, false, 1},
                 {65535, false, 1},
                 {65536, false, 0}};
    struct pair p;

    open_lent(&p, SMALL_AREA);
    if (lane.options != NULL) /* pack_threshold and lists of the lane decide, too */
        skip();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct blob out, in;

        if (cases[i].zone)
            blob_zone(&out, p.client, cases[i].size);
        else
            blob_flat(&out, cases[i].size);
        blob_flat(&in, cases[i].size);
        assert_int_equal(one(&p, false, &out, &in, true, i), cases[i].fast);
    }
}

/* The receiver's host consumes nothing: messages that find the ring full go by rendezvous; none
 * is lost or waits. */
CASE(fast_runs_out)
{
    enum { N = 40 };
    static struct op send[N], recv[N];
    static struct blob out[N], in[N];
    uint64_t fast, rts;
    struct pair p;

    open_lent(&p, SMALL_AREA ",eager_window=128K");
    fast = node_counter(p.client, "sends_eager_rdma");
    rts = node_counter(p.client, "control_sent");
    for (int i = 0; i < N; i++) {
        blobs_flat(&out[i], &in[i], 30000, (uint64_t)i);
        post_send(&send[i], p.client, p.to_server, &out[i], 4);
    }
    pump_until_counter(p.client, "control_sent", rts + N - 4);
    /* bounded by the eager window */
    assert_in_range(node_counter(p.client, "sends_eager_rdma") - fast, 1, 4);
    for (int i = 0; i < N; i++)
        post_recv(&recv[i], p.server, p.to_client, &in[i], 4);
    pump_until_all_of(recv, send, N);
    for (int i = 0; i < N; i++)
        op_check_blob(&recv[i], &in[i], (uint64_t)i, 30000);
    pump_times(20);
    blobs_flat(&out[0], &in[0], 30000, 0);
    assert_int_equal(one(&p, false, &out[0], &in[0], true, 9), 1); /* the ring has room again */
}

/* A message without a place waits for one, or uses another protocol, beside the reports of
 * large messages. */
CASE(fast_beside_reports)
{
    enum { ROUNDS = 10, LARGE = 8, N = 24 };
    static struct op send[N], recv[N];
    static struct blob out[N], in[N];

    only_over_loop();
    for (int round = 0; round < ROUNDS; round++) {
        char options[200];
        struct pair p;

        snprintf(options, sizeof options,
                 SMALL_AREA ",loop_elan4=1,loop_seed=%d,rndv=write,keepalive_ms=0", round);
        open_lent(&p, options);
        for (int i = 0; i < N; i++) {
            blob_flat(&out[i], i < LARGE ? LARGE_SIZE : FAST_SIZE);
            blob_flat(&in[i], (size_t)out[i].total);
            blob_fill(&out[i], (uint64_t)i);
            post_recv(&recv[i], p.server, p.to_client, &in[i], i < LARGE ? 5 : 6);
        }
        for (int i = 0; i < N; i++)
            post_send(&send[i], p.client, p.to_server, &out[i], i < LARGE ? 5 : 6);
        pump_until_all_of(send, recv, N);
        for (int i = 0; i < N; i++) {
            op_check_blob(&recv[i], &in[i], (uint64_t)i, out[i].total);
            blob_free(&out[i]);
            blob_free(&in[i]);
        }
        bed_again();
    }
}

/* A written send is complete; a cancelled receive leaves its message to the next one. */
CASE(fast_cancel)
{
    struct pair p;
    struct blob out, in;
    struct op send, recv;
    uint64_t before;

    open_lent(&p, SMALL_AREA);
    blobs_flat(&out, &in, FAST_SIZE, 5);
    blob_canary(&in);
    before = node_counter(p.client, "sends_eager_rdma");
    post_recv(&recv, p.server, p.to_client, &in, 8);
    op_cancel(&recv);
    pump_until_reported(&recv);
    op_check_error(&recv, -ECANCELED, -ECANCELED);
    post_send(&send, p.client, p.to_server, &out, 8);
    op_cancel(&send);
    pump_until_reported(&send);
    op_check(&send, FAST_SIZE);
    pump_times(20);
    post_recv(&recv, p.server, p.to_client, &in, 8);
    pump_until_reported(&recv);
    op_check_blob(&recv, &in, 5, FAST_SIZE);
    assert_int_equal(node_counter(p.client, "sends_eager_rdma") - before, 1);
}

/* One side lacks the feature or disables it: both directions use rendezvous. */
CASE(fast_not_wanted)
{
    struct pair p;

    for (int which = 0; which < 3; which++) {
        bed_options(which == 0 ? NO_RING : SMALL_AREA);
        p.server = node_open("server", lane_uri(0));
        bed_options(which == 1 ? NO_RING : which == 2 ? SMALL_AREA ",eager_max=0" : SMALL_AREA);
        p.client = node_open("client", NULL);
        p.to_server = node_dial(p.client, lane_uri(0));
        pair_meet(&p);
        for (int i = 0; i < 2 * LENT_AFTER; i++)
            pair_exchange(&p, FAST_SIZE, i);
        assert_int_equal(node_counter(p.client, "sends_eager_rdma"), 0);
        assert_int_equal(node_counter(p.client, "eager_ring_grants"), 0);
        if (which < 2) {
            assert_int_equal(node_counter(p.server, "sends_eager_rdma"), 0);
            assert_int_equal(node_counter(p.server, "eager_ring_grants"), 0);
        }
        bed_again();
    }
}

/* The server has memory for one ring: a peer that asks gets it when the other one is idle. */
CASE(fast_is_withdrawn)
{
    struct pair a, b;
    uint64_t before;

    pair_open_with(&a, ONE_RING_IDLE);
    lend(&a);
    if (node_counter(a.server, "eager_ring_grants") == 0)
        skip();
    b.server = a.server;
    b.client = node_open("other", NULL);
    b.to_server = node_dial(b.client, lane_uri(0));
    pair_meet(&b);
    for (int i = 0; i < MANY_ENOUGH && node_counter(b.client, "sends_eager_rdma") == 0; i++) {
        pair_exchange(&b, FAST_SIZE, i);
        bed_pass_ms(2);
    }
    assert_true(node_counter(b.client, "sends_eager_rdma") > 0);
    assert_true(node_counter(a.server, "eager_ring_withdrawn") > 0);
    assert_in_range(node_counter(a.server, "eager_ring_bytes"), 0, 128 << 10);
    before = node_counter(a.client, "sends_eager_rdma");
    for (int i = 0; i < MANY_ENOUGH && node_counter(a.client, "sends_eager_rdma") == before;
         i++) {
        pair_exchange(&a, FAST_SIZE, i); /* and back to the first */
        bed_pass_ms(2);
    }
    assert_true(node_counter(a.client, "sends_eager_rdma") > before);
}

/*
 * The ring is withdrawn while it holds messages without receives and more are sent. Its user
 * sleeps and returns no credits. A new link without a shared queue has four: CREDIT and RELEASE
 * use two and the request needs two, so the server sends no probe.
 */
CASE(fast_is_withdrawn_in_use)
{
    enum { N = 6 };
    struct op send[N], recv[N];
    struct blob out[N], in[N];
    struct pair a;
    int64_t end;

    pair_open_with(&a, ONE_RING_IDLE ",keepalive_ms=600000");
    lend(&a);
    if (node_counter(a.server, "eager_ring_grants") == 0)
        skip();
    for (int i = 0; i < N; i++)
        blobs_flat(&out[i], &in[i], FAST_SIZE, (uint64_t)i);
    for (int i = 0; i < N / 2; i++)
        post_send(&send[i], a.client, a.to_server, &out[i], 5);
    a.client->asleep = true;
    end = lane_now() + BED_PATIENCE_MS;
    while (node_counter(a.server, "eager_ring_withdrawn") == 0 && lane_now() < end)
        pump();
    assert_true(node_counter(a.server, "eager_ring_withdrawn") > 0);
    for (int i = N / 2; i < N; i++)
        post_send(&send[i], a.client, a.to_server, &out[i], 5);
    a.client->asleep = false;
    for (int i = 0; i < N; i++)
        post_recv(&recv[i], a.server, a.to_client, &in[i], 5);
    pump_until_all_of(send, recv, N);
    for (int i = 0; i < N; i++)
        op_check_blob(&recv[i], &in[i], (uint64_t)i, FAST_SIZE);
}

/* A side ends while messages are in flight; its ring is freed and granted to the next peer. */
CASE(fast_ends_with_the_link)
{
    enum { N = 8 };
    struct op send[N];
    struct blob out[N];
    struct pair p;

    open_lent(&p, ONE_AREA);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            blob_flat(&out[i], FAST_SIZE);
            blob_fill(&out[i], (uint64_t)i);
            post_send(&send[i], p.client, p.to_server, &out[i], 5);
        }
        pump_times(round);
        node_close(p.client);
        for (int i = 0; i < N; i++)
            blob_free(&out[i]);
        for (int64_t end = lane_now() + BED_PATIENCE_MS;
             node_counter(p.server, "eager_ring_bytes") != 0 && lane_now() < end;)
            pump();
        assert_int_equal(node_counter(p.server, "eager_ring_bytes"), 0);
        p.client = node_open("next", NULL);
        p.to_server = node_dial(p.client, lane_uri(0));
        pair_meet(&p);
        lend(&p);
        assert_int_equal(node_counter(p.server, "eager_ring_grants"), 2 + (uint64_t)round);
        assert_true(node_counter(p.client, "sends_eager_rdma") > 0);
    }
}

/* A link that begins with a single credit, on which each side answers at once, is granted rings
 * as well: GRANT waits for its credit before later messages do. */
CASE(single_credit_links_are_granted_rings)
{
    struct pair p;
    struct blob out, in[2];

    if (lane.options != NULL) /* some rule the ring out */
        skip();
    pair_open_with(&p, SMALL_AREA ",credits_pool=0");
    blob_flat(&out, FAST_SIZE);
    blob_fill(&out, 1);
    for (int k = 0; k < 2; k++)
        blob_flat(&in[k], FAST_SIZE);
    for (int i = 0; i < 100; i++) {
        struct op send[2], recv[2];

        for (int k = 0; k < 2; k++) {
            struct node *n = k ? p.server : p.client;
            struct rme_addr *to = k ? p.to_client : p.to_server;

            post_recv(&recv[k], n, to, &in[k], 7);
            post_send(&send[k], n, to, &out, 7);
        }
        pump_until_all_of(send, recv, 2);
    }
    for (int k = 0; k < 2; k++)
        blob_check(&in[k], 1, FAST_SIZE);
    assert_int_equal(node_counter(p.client, "eager_ring_grants"), 1);
    assert_int_equal(node_counter(p.server, "eager_ring_grants"), 1);
}
