/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Exact counts: the cost of a message in steady state, and the inactivity of an idle engine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "cases.h"

struct books {
    uint64_t control, credit, registrations, deregistrations, signalled, stalls, mws, doorbells;
};

static struct books books(const struct node *n)
{
    return (struct books){
        .control = node_counter(n, "control_sent"),
        .credit = node_counter(n, "credit_sent"),
        .registrations = node_counter(n, "registrations"),
        .deregistrations = node_counter(n, "deregistrations"),
        .signalled = node_counter(n, "signalled"),
        .stalls = node_counter(n, "credit_stalls"),
        .mws = node_counter(n, "windows"),
        .doorbells = node_counter(n, "doorbells"),
    };
}

/* a new link has the usual number of credits after 16 messages */
enum { WARM = 20, ROUNDS = 50 };

/* With a single credit each message needs one CREDIT message; lanes with so few are skipped
 * here. */
#define GROWS ",credits_pool=1536,keepalive_ms=0"

/* A large message between blocks of rme_memory_alloc: 2 control messages, no registration. */
static void large_transfer(const char *options)
{
    struct pair p;
    struct blob out, in;
    struct books client = {0}, server = {0};
    int64_t closed = 0;
    uint64_t sends;

    pair_open_with(&p, options);
    blob_zone(&out, p.client, 262144);
    blob_zone(&in, p.server, 262144);
    for (int i = 0; i < WARM + ROUNDS; i++) {
        struct op send, recv;
        if (i == WARM) {
            client = books(p.client);
            server = books(p.server);
            closed = lane_counter("wr_local_inv");
        }
        blob_fill(&out, (uint64_t)i);
        post_recv(&recv, p.server, p.to_client, &in, 1);
        post_send(&send, p.client, p.to_server, &out, 1);
        pump_until_both(&send, &recv);
        op_check_blob(&recv, &in, (uint64_t)i, 262144);
    }
    struct books client_after = books(p.client), server_after = books(p.server);
    assert_int_equal(client_after.control - client.control + server_after.control -
                         server.control,
                     2 * ROUNDS);
    /* no registration, or one per operation if a key opens a whole registration */
    bool each = registers_each(p.server);
    assert_int_equal(client_after.registrations - client.registrations +
                         server_after.registrations - server.registrations,
                     each ? ROUNDS : 0);
    assert_int_equal(client_after.deregistrations - client.deregistrations +
                         server_after.deregistrations - server.deregistrations,
                     each ? ROUNDS : 0);
    assert_int_equal(client_after.credit + server_after.credit, client.credit + server.credit);
    assert_int_equal(client_after.stalls + server_after.stalls, client.stalls + server.stalls);
    /* One window, opened by the target, and closed by the message that reports the end. */
    bool exposed = strstr(rme_key_opens(p.server->rme), "one peer") != NULL;
    assert_int_equal(client_after.mws - client.mws + server_after.mws - server.mws,
                     exposed ? ROUNDS : 0);
    assert_in_range(client_after.doorbells - client.doorbells + server_after.doorbells -
                        server.doorbells,
                    0, 3 * ROUNDS);
    assert_int_equal(lane_counter("wr_local_inv"), closed);
    sends = client_after.signalled - client.signalled;
    if (sends > ROUNDS)
        fail_msg("the sender asked for %llu completions in %d messages",
                 (unsigned long long)sends, ROUNDS);
    sends = server_after.signalled - server.signalled;
    if (sends > ROUNDS)
        fail_msg("the receiver asked for %llu completions in %d messages",
                 (unsigned long long)sends, ROUNDS);
    blob_free(&out);
    blob_free(&in);
}

CASE(counts_of_a_large_write)
{
    large_transfer("rndv=write,early_cts=0,rdma_inflight_bytes=1M" GROWS);
}

CASE(counts_of_a_large_read)
{
    large_transfer("rndv=read,rdma_inflight_bytes=1M" GROWS);
}

/* A list in blocks of rme_memory_alloc, in pieces on one side: 2 control messages and no
 * registration for any number of pieces. */
static void list_transfer(const char *options, bool pieces_at_sender)
{
    enum { BYTES = 262144, MOST = 4096, GAP = 8 };
    static const int counts[] = {1, 2, 64, 1000, MOST};
    static void *base[MOST];
    static int64_t length[MOST];
    struct pair p;

    pair_open_with(&p, options);
    struct node *listed = pieces_at_sender ? p.client : p.server,
                *other = pieces_at_sender ? p.server : p.client;
    char *scattered = rme_memory_alloc(listed->rme, BYTES + MOST * GAP),
         *whole = rme_memory_alloc(other->rme, BYTES);
    assert_non_null(scattered);
    assert_non_null(whole);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct books client = {0}, server = {0};
        int n = counts[c];
        char *at = scattered;
        for (int i = 0; i < n; i++) {
            base[i] = at;
            length[i] = BYTES / n + (i == n - 1 ? BYTES % n : 0);
            at += length[i] + GAP;
        }
        struct rme_list list = {.base = base, .length = length, .count = n};
        void *one = whole;
        int64_t all = BYTES, actual;
        struct rme_list flat = {.base = &one, .length = &all, .count = 1};
        for (int i = 0; i < WARM + 3; i++) {
            struct op send = {.node = p.client}, recv = {.node = p.server};
            if (i == WARM) {
                client = books(p.client);
                server = books(p.server);
            }
            for (int k = 0; k < BYTES + (pieces_at_sender ? MOST * GAP : 0); k++)
                (pieces_at_sender ? scattered : whole)[k] = (char)(k * 7 + n + i);
            recv.rc =
                rme_post_recv(p.server->rme, p.to_client, pieces_at_sender ? &flat : &list, 1,
                              0, &recv, &actual, &recv.id);
            assert_int_equal(recv.rc, 0);
            send.rc = rme_post_send(p.client->rme, p.to_server,
                                    pieces_at_sender ? &list : &flat, 1, 0, &send, &send.id);
            assert_int_equal(send.rc, 0);
            pump_until_both(&send, &recv);
            op_check(&recv, BYTES);
            for (int64_t k = 0, piece = 0; piece < n; k += length[piece++])
                assert_memory_equal(base[piece], whole + k, length[piece]);
        }
        /* a device without RDMA read: the sender needs the addresses of all pieces */
        if (!pieces_at_sender && node_counter(p.server, "recvs_rndv_read") == 0)
            skip();
        struct books client_after = books(p.client), server_after = books(p.server);
        assert_int_equal(client_after.control - client.control + server_after.control -
                             server.control,
                         2 * 3);
        if (!registers_each(p.server))
            assert_int_equal(client_after.registrations - client.registrations +
                                 server_after.registrations - server.registrations,
                             0);
    }
    rme_memory_free(listed->rme, scattered);
    rme_memory_free(other->rme, whole);
}

CASE(counts_of_written_lists)
{
    list_transfer("rndv=write,early_cts=0,eager_max=0" GROWS, true);
}

CASE(counts_of_read_lists)
{
    list_transfer("rndv=read,eager_max=0" GROWS, false);
}

/* Registrations of the receiver for one list into which the sender writes. */
static uint64_t registrations_at_receiver(const char *options, bool *each)
{
    enum { PIECES = 16, LENGTH = 16384, STRIDE = 2 * LENGTH };
    void *base[PIECES];
    int64_t length[PIECES], actual;
    struct rme_list list = {.base = base, .length = length, .count = PIECES};
    struct blob out;
    struct pair p;
    uint64_t before = 0;

    pair_open_with(&p, options);
    blob_zone(&out, p.client, (size_t)PIECES * LENGTH);
    char *memory = calloc(PIECES, STRIDE);
    assert_non_null(memory);
    for (int i = 0; i < PIECES; i++) {
        base[i] = memory + (size_t)i * STRIDE;
        length[i] = LENGTH;
    }
    for (int i = 0; i <= WARM; i++) {
        struct op send, recv = {.node = p.server};

        before = node_counter(p.server, "registrations");
        blob_fill(&out, (uint64_t)i);
        recv.rc =
            rme_post_recv(p.server->rme, p.to_client, &list, 1, 0, &recv, &actual, &recv.id);
        assert_int_equal(recv.rc, 0);
        post_send(&send, p.client, p.to_server, &out, 1);
        pump_until_both(&send, &recv);
        op_check(&recv, (int64_t)PIECES * LENGTH);
    }
    assert_int_equal(node_counter(p.server, "recvs_rndv_write"), WARM + 1);
    *each = registers_each(p.server);
    before = node_counter(p.server, "registrations") - before;
    blob_free(&out);
    free(memory);
    return before;
}

/* One, holes included [001 4.2.2], also where a key opens all of a registration; where a key is
 * for one operation but open to every peer, one for each piece. */
CASE(groups_at_receivers)
{
    static const char *const loop[] = {"", ",loop_windows=0", ",loop_windows=0,loop_each=1"},
                             *const ib[] = {"", ",rkey_scope=region"};
    bool each;

    for (size_t i = 0; i < (lane.is_loop ? 3 : 2); i++) {
        char options[160];

        snprintf(options, sizeof(options),
                 "rndv=write,early_cts=0,eager_ring_bytes=0,pack_threshold=1,list_mode=group,"
                 "regcache_entries=0%s" GROWS,
                 (lane.is_loop ? loop : ib)[i]);
        uint64_t n = registrations_at_receiver(options, &each);
        assert_int_equal(n, each ? 16 : 1);
        bed_again();
    }
}

/* Returns whether the planner avoids reads on this node's device. */
static bool reads_slowly(const struct node *n)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bool slowly;

    assert_non_null(out);
    rme_explain(n->rme, 262144, 1, out);
    fclose(out);
    slowly = strstr(text, "reads much slower") != NULL;
    free(text);
    return slowly;
}

/*
 * Large messages that meet their receives all at once: each side moves about half because the
 * loads are equal. Where reads are slow the sender moves all; SLOW_READS declares such a
 * device, the engine's own opinion does not suffice.
 */
CASE(many_large_ones_are_shared)
{
    enum { N = 16, SIZE = 262144 };
    struct pair p;
    struct blob out[N], in[N];
    struct op ops[2 * N];
    uint64_t read;

    pair_open_with(&p, "rndv=read");
    pair_exchange(&p, SIZE, 1);
    read = node_counter(p.server, "recvs_rndv_read");
    node_close(p.client);
    node_close(p.server);
    if (read == 0)
        skip(); /* a device without reads */
    pair_open_with(&p, "rndv=auto");
    for (int i = 0; i < N; i++) {
        blob_zone(&out[i], p.client, SIZE);
        blob_zone(&in[i], p.server, SIZE);
        blob_fill(&out[i], (uint64_t)i);
        post_send(&ops[i], p.client, p.to_server, &out[i], 1);
    }
    pump_times(100);
    for (int i = 0; i < N; i++)
        post_recv(&ops[N + i], p.server, p.to_client, &in[i], 1);
    pump_until_all(ops, 2 * N);
    for (int i = 0; i < N; i++)
        op_check_blob(&ops[N + i], &in[i], (uint64_t)i, SIZE);
    read = node_counter(p.server, "recvs_rndv_read");
    assert_int_equal(reads_slowly(p.server), getenv("SLOW_READS") != NULL);
    if (getenv("SLOW_READS") != NULL)
        assert_int_equal(read, 0);
    else if (read < N / 4 || read > N - N / 4)
        fail_msg("the receiver moved %llu of %d messages", (unsigned long long)read, N);
}

/* A small ping-pong: no control message, no CREDIT, one doorbell a message, no registration. */
CASE(counts_of_a_small_message)
{
    struct pair p;
    struct books client, server;

    pair_open_with(&p, &GROWS[1]);
    for (int i = 0; i < WARM; i++)
        pair_exchange(&p, 64, 1);
    client = books(p.client);
    server = books(p.server);
    uint64_t doorbells = node_counter(p.client, "doorbells");
    for (int i = 0; i < 500; i++)
        pair_exchange(&p, 64, 1);
    assert_int_equal(books(p.client).control + books(p.server).control,
                     client.control + server.control);
    assert_int_equal(books(p.client).credit + books(p.server).credit,
                     client.credit + server.credit);
    assert_int_equal(books(p.client).registrations + books(p.server).registrations,
                     client.registrations + server.registrations);
    assert_true(node_counter(p.client, "doorbells") - doorbells <= 500);
}

/* One-way traffic needs few CREDIT messages. */
CASE(counts_of_one_way_traffic)
{
    enum { N = 1000 };
    struct pair p;
    struct blob out, in;

    pair_open_with(&p, &GROWS[1]);
    blobs_flat(&out, &in, 64, 0);
    for (int i = 0; i < N; i++) {
        struct op send, recv;
        post_recv(&recv, p.server, p.to_client, &in, 1);
        post_send(&send, p.client, p.to_server, &out, 1);
        pump_until_both(&recv, &send);
    }
    uint64_t credit = node_counter(p.server, "credit_sent");
    /* at most one for two messages, and one for the first message, which uses the only
     * credit */
    if (credit < 1 || credit > N / 2 + 1)
        fail_msg("%llu credit messages for %d messages", (unsigned long long)credit, N);
}

/* Polls of a call that sleeps until its timeout: at its start, before the sleep, after the
 * sleep. */
#define IDLE_POLLS 3

/* Freed memory that is not needed is returned to the system, by an engine that sleeps and by
 * one that is polled. */
CASE(idle_memory_goes_back)
{
    enum { BLOCKS = 16, SIZE = 1 << 20 };
    struct rme_done done;
    void *block[BLOCKS];

    bed_options("pool_idle_ms=50");
    struct node *node = node_open("client", NULL);
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        for (int i = 0; i < BLOCKS; i++)
            assert_non_null(block[i] = rme_memory_alloc(node->rme, SIZE));
        assert_true(node_counter(node, "zone_bytes") >= (uint64_t)BLOCKS * SIZE);
        for (int i = 0; i < BLOCKS; i++)
            assert_int_equal(rme_memory_free(node->rme, block[i]), 0);
        if (sleeps)
            assert_int_equal(rme_test_context(node->rme, 0, &done, 1, 300), 0);
        else
            for (int i = 0; i < 300 * 64; i++) {
                assert_int_equal(rme_test_context(node->rme, 0, &done, 1, 0), 0);
                if (i % 64 == 0)
                    bed_pass_ms(1);
            }
        /* and the engine's own memory */
        assert_true(node_counter(node, "zone_bytes") <= 2 << 20);
    }
}

/* A server with 100 idle clients, or as many as the fabric has room for: no thread of the
 * process wakes up. */
CASE(idle_server_of_100_clients)
{
    enum { CALLS = 4 };
    int clients = (int)lane_env("IDLE_CLIENTS", 100);
    struct rme_done done;
    struct rusage before, after;

    bed_options("poll_us=0,keepalive_ms=2000");
    struct node *server = node_open("server", lane_uri(0));
    for (int i = 0; i < clients; i++) {
        struct pair p = {.server = server, .client = node_open("client", NULL)};
        p.to_server = node_dial(p.client, lane_uri(0));
        pair_meet(&p);
        if (i % 10 == 0)
            pair_exchange(&p, 100000, 1);
    }
    pump_times(20);
    /* Timers of earlier work may expire once more. */
    assert_int_equal(rme_test_context(server->rme, 0, &done, 1, 300), 0);
    uint64_t sleeps = node_counter(server, "sleeps"), wakeups = node_counter(server, "wakeups"),
             polls = node_counter(server, "cq_polls");
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(rme_test_context(server->rme, 0, &done, 1, 500), 0);
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(node_counter(server, "sleeps") - sleeps, CALLS);
    assert_int_equal(node_counter(server, "wakeups") - wakeups, 0);
    polls = node_counter(server, "cq_polls") - polls;
    if (lane.is_loop)
        assert_int_equal(polls, CALLS * IDLE_POLLS);
    else
        assert_in_range(polls, 0, 4 * CALLS * IDLE_POLLS);
#ifdef __SANITIZE_THREAD__
    const bool counts = false; /* has its own thread that wakes up */
#else
    const bool counts = !lane.is_loop;
#endif
    long switches = after.ru_nvcsw - before.ru_nvcsw;
    if (counts && switches > 5 * CALLS)
        fail_msg("%ld wake-ups of the process in %d idle calls", switches, CALLS);
}

/* A wait polls for poll_us at first, and not at all after many failed spins. */
static void polling_is_said(struct pair *p)
{
    int64_t most, end = lane_now() + BED_PATIENCE_MS;
    struct rme_done done;

    assert_int_equal(rme_option_get(p->client->rme, "poll_us", &most), 0);
    assert_int_equal(node_attribute(p->client, p->to_server, "polls_us"), most);
    while (node_attribute(p->client, p->to_server, "polls_us") != 0 && lane_now() < end)
        assert_int_equal(rme_test_context(p->client->rme, 0, &done, 1, 2), 0);
    assert_int_equal(node_attribute(p->client, p->to_server, "polls_us"), 0);
    /* the option's own */
    assert_int_equal(node_attribute(p->server, p->to_client, "polls_us"), most);
}

/* Smallest list size that is used in place, for each value of the option `list_mode`. */
static void packing_is_said(struct pair *p)
{
    static const struct {
        const char *options;
        uint64_t least;
    } row[] = {{"list_mode=pack", UINT64_MAX},
               {"list_mode=group,pack_threshold=5000", 1},
               {"list_mode=auto,pack_threshold=5000", 0}};

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        bed_options(row[i].options);
        struct pair q = {.server = p->server, .client = node_open(row[i].options, NULL)};
        bed_options(NULL);
        q.to_server = node_dial(q.client, lane_uri(0));
        pair_meet(&q);
        assert_int_equal(node_attribute(q.client, q.to_server, "pack_bytes"), row[i].least);
    }
}

/* Sends from each buffer of a pool in turn; returns the number of the client's registrations
 * for it. */
static uint64_t send_pool(struct pair *p, const struct blob *pool, int count)
{
    uint64_t before = node_counter(p->client, "registrations");
    struct blob in;

    blob_flat(&in, (size_t)pool[0].total);
    for (int i = 0; i < count; i++) {
        struct op ops[2];

        post_recv(&ops[0], p->server, p->to_client, &in, i);
        post_send(&ops[1], p->client, p->to_server, &pool[i], i);
        pump_until_all(ops, 2);
        op_check(&ops[0], pool[0].total);
        op_check(&ops[1], pool[0].total);
    }
    blob_free(&in);
    return node_counter(p->client, "registrations") - before;
}

/* A pool of buffers that fits in cache_entries of unit_bytes each stays registered; with one
 * buffer more, none does. */
CASE(pool_as_the_session_says)
{
    enum { ENTRIES = 6, MOST = ENTRIES };
    static struct blob pool[MOST];
    struct pair p;

    pair_open_with(&p, "regcache_entries=6,fragment_bytes=64K,rndv=write,pack_threshold=5000,"
                       "eager_ring_bytes=0");
    uint64_t entries = node_attribute(p.client, p.to_server, "cache_entries");
    uint64_t unit = node_attribute(p.client, p.to_server, "unit_bytes");
    if (node_attribute(p.client, p.to_server, "cache_bytes") == 0) {
        assert_int_equal(entries, 0);
        assert_int_equal(node_attribute(p.client, p.to_server, "piece_bytes"), 0);
        skip();
    }
    assert_int_equal(entries, ENTRIES);
    assert_int_equal(node_attribute(p.client, p.to_server, "piece_bytes"), 5000);
    int count = (int)(entries / 2); /* of two fragments each */
    for (int i = 0; i <= count; i++) {
        blob_flat(&pool[i], 2 * unit);
        blob_fill(&pool[i], (uint64_t)i);
    }
    uint64_t first = send_pool(&p, pool, count);
    assert_int_equal(send_pool(&p, pool, count), 0);
    (void)send_pool(&p, pool, count + 1);
    if (first > 0) /* else the device registers nothing */
        assert_int_equal(send_pool(&p, pool, count + 1), entries + 2);
}

/* Session attributes hold: a message of eager_bytes is sent eagerly, a larger one is not.
 * Counters of a server are the sum over its two clients. */
CASE(session_attributes_hold)
{
    static const char *const counted[] = {
        "sends_eager",      "sends_rndv_write",   "sends_rndv_read", "recvs_eager",
        "recvs_rndv_write", "recvs_rndv_read",    "bytes_sent",      "bytes_received",
        "unexpected_sent",  "unexpected_received"};
    struct rme_counter a;
    struct pair p, q;

    pair_open(&p);
    q = (struct pair){.server = p.server, .client = node_open("second", NULL)};
    q.to_server = node_dial(q.client, lane_uri(0));
    assert_int_equal(rme_session_get(q.client->rme, q.to_server, 0, &a), -ENOTCONN);
    pair_meet(&q);
    uint64_t eager = node_attribute(p.client, p.to_server, "eager_bytes");
    assert_in_range(eager, 0, 64 * 1024);
    assert_true(node_attribute(p.client, p.to_server, "credits_free") <=
                node_attribute(p.client, p.to_server, "credits_granted"));
    assert_int_equal(node_attribute(p.client, p.to_server, "unexpected_bytes"), 16384);
    polling_is_said(&p);

    uint64_t before = node_attribute(p.client, p.to_server, "sends_eager");
    pair_exchange(&p, (size_t)eager, 1);
    assert_int_equal(node_attribute(p.client, p.to_server, "sends_eager") - before, 1);
    pair_exchange(&p, 200000, 2);
    assert_int_equal(node_attribute(p.client, p.to_server, "sends_eager") - before, 1);
    assert_int_equal(node_attribute(p.client, p.to_server, "sends_rndv_write") +
                         node_attribute(p.client, p.to_server, "sends_rndv_read"),
                     1);
    pair_exchange(&q, 100, 3);
    for (unsigned i = 0; i < sizeof(counted) / sizeof(*counted); i++) {
        assert_int_equal(node_attribute(p.client, p.to_server, counted[i]),
                         node_counter(p.client, counted[i]));
        assert_int_equal(node_attribute(p.server, p.to_client, counted[i]) +
                             node_attribute(q.server, q.to_client, counted[i]),
                         node_counter(p.server, counted[i]));
    }
    assert_true(node_attribute(p.server, p.to_client, "bytes_received") >
                node_attribute(q.server, q.to_client, "bytes_received"));
    assert_int_equal(rme_session_get(p.client->rme, p.to_server, -1, &a), -ENOENT);
    assert_int_equal(rme_session_get(p.client->rme, p.to_server, 1000, &a), -ENOENT);
    assert_int_equal(rme_session_get(q.client->rme, p.to_server, 0, &a), -ENOTCONN);
    packing_is_said(&p);
}
