/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cancel in every state of a send and a receive.
 *
 * An exchange runs step by step and is cancelled after k steps, for each k until the exchange
 * ends before the cancel. Each operation must be reported exactly once. The memory of a
 * cancelled receive is filled with canaries when it is reported and must not be written
 * afterwards. The next exchange of the two must work.
 */
#include <errno.h>
#include "cases.h"
#include "../fabric/loop.h"

enum who { SENDER, RECEIVER, BOTH };

struct sweep {
    const char *options;
    size_t size;
    enum who who;
    bool recv_first;
    bool unexpected;
    bool zone; /* use registered memory: the receive sends an invitation */
};

/* Tries every number of steps up to STEPS_DENSE, then ever fewer, until the exchange ends
 * first. */
enum { STEPS_DENSE = 60, STEPS_MAX = 1000000 };

static void step(struct pair *p, int k)
{
    p->client->asleep = k % 2;
    p->server->asleep = !p->client->asleep;
    pump();
    p->client->asleep = p->server->asleep = false;
}

/* Returns true if both operations had ended before the cancel. */
static bool cancel_after(struct pair *p, const struct sweep *s, int k)
{
    struct blob out, in;
    struct op send, recv = {0};

    if (s->zone) {
        blob_zone(&out, p->client, s->size);
        blob_zone(&in, p->server, s->size);
    } else {
        blobs_flat(&out, &in, s->size, 0);
    }
    blob_fill(&out, 3);
    if (s->recv_first)
        post_recv(&recv, p->server, p->to_client, &in, 5);
    if (s->unexpected)
        post_unexpected(&send, p->client, p->to_server, &out, 5);
    else
        post_send(&send, p->client, p->to_server, &out, 5);
    for (int i = 0; i < k; i++) {
        step(p, i);
        if (i == 10 && !s->recv_first && !s->unexpected)
            post_recv(&recv, p->server, p->to_client, &in, 5);
    }
    bool recv_posted = recv.node != NULL;
    bool over = send.reports && (s->unexpected || recv.reports);
    if (s->who != RECEIVER)
        op_cancel(&send);
    if (s->who != SENDER && recv_posted)
        op_cancel(&recv);

    struct op *cancelled = s->who == RECEIVER && recv_posted ? &recv : &send;
    if (s->who == RECEIVER && !recv_posted)
        op_cancel(&send);
    pump_until_reported(cancelled);
    op_check_error(cancelled, 0, -ECANCELED);
    if (recv_posted && recv.reports) {
        if (!recv.error)
            blob_check(&in, 3, (int64_t)s->size);
        else
            assert_int_equal(blob_foreign(&in, 3), -1);
        blob_canary(&in);
    }
    pump_times(30);
    if (recv_posted && cancelled == &recv)
        blob_check(&in, 0, 0);

    /* The other operation ends as its partner did, or still waits for a partner. */
    if (!send.reports)
        op_cancel(&send);
    if (recv_posted && !recv.reports)
        op_cancel(&recv);
    pump_until_reported(&send);
    op_check_error(&send, 0, -ECANCELED);
    if (recv_posted) {
        pump_until_reported(&recv);
        op_check_error(&recv, 0, -ECANCELED);
    }
    pump_times(10);
    inbox_drop(p->server);
    /* A complete message without a receive meets the next receive of its tag: receive it
     * now. */
    if (!send.error && !s->unexpected && (!recv_posted || recv.error)) {
        struct op late;
        blob_canary(&in);
        post_recv(&late, p->server, p->to_client, &in, 5);
        if (s->size > 4000) {
            pump_times(20);
            op_cancel(&late);
        }
        pump_until_reported(&late);
        op_check_error(&late, 0, -ECANCELED);
        if (!late.error)
            blob_check(&in, 3, (int64_t)s->size);
    }
    blob_free(&out);
    blob_free(&in);
    return over;
}

static void sweep(const struct sweep *s)
{
    struct pair p;
    bool over = false;

    pair_open_with(&p, s->options);
    for (int k = 0; k < STEPS_MAX && !over; k += k < STEPS_DENSE ? 1 : k / 4) {
        over = cancel_after(&p, s, k);
        pair_exchange(&p, 50, 5);
        if (k % 4 == 0)
            pair_exchange(&p, 150000, 5);
    }
    if (!over)
        fail_msg("the exchange was never over before the cancel");
    assert_int_equal(node_counter(p.client, "protocol_errors"), 0);
    assert_int_equal(node_counter(p.server, "protocol_errors"), 0);
}

/* Either side or both, with the receive first or after the send. */
static void sweeps(const char *options, size_t size, bool zone)
{
    for (int variant = 0; variant < 6; variant++) {
        sweep(&(struct sweep){.options = options,
                              .size = size,
                              .who = variant % 3,
                              .recv_first = variant < 3,
                              .zone = zone});
        bed_again();
    }
}

CASE(cancel_eager)
{
    sweeps("", 900, false);
}

CASE(cancel_rendezvous)
{
    sweeps("rndv=write", 300000, false);
    sweeps("rndv=read", 300000, false);
    sweeps("rndv=write,fragment_bytes=64K", 900000, false); /* several fragments in flight */
    sweeps("rndv=read,fragment_bytes=64K", 900000, false);
    sweeps("", 300000, true); /* invited */
}

CASE(cancel_unexpected)
{
    for (int i = 0; i < 2; i++) {
        sweep(&(struct sweep){
            .options = "", .size = i ? 16384 : 100, .who = SENDER, .unexpected = true});
        bed_again();
    }
}

/* Before the connection is up, and when it never comes up. */
CASE(cancel_while_connecting)
{
    struct op ops[3];
    struct blob b;

    bed_options("connect_timeout_ms=20000");
    struct node *server = node_open("server", lane_uri(0));
    struct node *client = node_open("client", NULL);
    struct rme_addr *to = node_dial(client, lane_uri(0));
    server->asleep = true;
    blob_flat(&b, 100000);
    post_recv(&ops[0], client, to, &b, 1);
    post_send(&ops[1], client, to, &b, 1);
    b.length[0] = b.total = 16384;
    post_unexpected(&ops[2], client, to, &b, 2);
    pump_times(20);
    for (int i = 0; i < 3; i++) {
        op_cancel(&ops[i]);
        pump_until_reported(&ops[i]);
        op_check_error(&ops[i], -ECANCELED, -ECANCELED);
    }
    server->asleep = false;
    pump_times(50);
    assert_int_equal(server->ninbox, 0);
    post_unexpected(&ops[2], client, to, &b, 1);
    pump_until_unexpected(server, 1);
    pump_until_reported(&ops[2]);
}

/* Opens a new pair and starts a transfer of half a megabyte from client to server with tag 5;
 * `held` stalls its data. */
static void begin_transfer(struct pair *p, const char *options, bool held, struct blob *out,
                           struct blob *in, struct op *send, struct op *recv)
{
    pair_open_with(p, options);
    blob_flat(out, 500000);
    blob_flat(in, 500000);
    blob_fill(out, 3);
    if (held)
        loop_hold(LOOP_HOLD_DATA);
    post_recv(recv, p->server, p->to_client, in, 5);
    post_send(send, p->client, p->to_server, out, 5);
}

/* The peer's host makes no calls. A cancel waits for it until a tenth of connect_timeout_ms,
 * then breaks the connection. */
CASE(cancel_with_a_silent_peer)
{
    static const char *const options[] = {"rndv=write,connect_timeout_ms=3000",
                                          "rndv=read,connect_timeout_ms=3000"};

    for (int i = 0; i < 4; i++) {
        struct pair p;
        struct op send, recv;
        struct blob out, in;

        begin_transfer(&p, options[i % 2], false, &out, &in, &send, &recv);
        for (int k = 0; k < 2; k++)
            step(&p, k);
        bool sender_silent = i < 2;
        struct op *op = sender_silent ? &recv : &send;
        (sender_silent ? p.client : p.server)->asleep = true;
        op_cancel(op);
        pump_until_reported(op);
        op_check_error(op, -ECANCELED, 0);
        if (sender_silent)
            blob_canary(&in);
        p.client->asleep = p.server->asleep = false;
        struct op *other = sender_silent ? &send : &recv;
        pump_times(50);
        if (!other->reports)
            op_cancel(other);
        pump_until_reported(other);
        assert_int_equal(other->reports, 1);
        if (sender_silent && recv.error)
            blob_check(&in, 0, 0);
        pair_reconnect(&p);
        pair_exchange(&p, 100000, 5);
        bed_again();
    }
}

/* The peer has been sent the memory's address and does not answer: the link is broken at once,
 * and only this operation is reported as cancelled. */
CASE(cancel_forcefully_a_sleeping_peer)
{
    struct pair p;
    struct op send, recv, other;
    struct blob out, in, small;
    uint64_t told;

    pair_open_with(&p, "rndv=write,connect_timeout_ms=600000");
    rme_set_forceful_cancel(p.server->rme);
    told = node_counter(p.server, "control_sent");
    blobs_flat(&out, &in, 500000, 0);
    blob_flat(&small, 100);
    blob_fill(&out, 3);
    post_send(&send, p.client, p.to_server, &out, 5);
    pump_times(20);
    p.client->asleep = true;
    post_recv(&other, p.server, p.to_client, &small, 6);
    post_recv(&recv, p.server, p.to_client, &in, 5);
    pump_until_counter(p.server, "control_sent", told + 1);
    blob_canary(&in);
    op_cancel(&recv);
    pump_until_reported(&recv);
    op_check_error(&recv, -ECANCELED, -ECANCELED);
    pump_until_reported(&other);
    op_check_error(&other, -ECONNRESET, -ECONNRESET);
    p.client->asleep = false;
    pump_until_reported(&send);
    op_check_error(&send, -ECONNRESET, -ECONNRESET);
    blob_check(&in, 0, 0);
    pair_reconnect(&p);
    pair_exchange(&p, 100000, 5);
}

/* The receiver has no room to pull more unexpected messages. Some that wait are cancelled, the
 * others arrive in order. */
CASE(cancel_unexpected_that_waits)
{
    enum { N = 60 };
    struct pair p;
    struct op ops[N];
    struct blob b;
    int cancelled = 0;

    pair_open_with(&p, "eager_window=256K");
    blob_flat(&b, 16384);
    blob_fill(&b, 8);
    p.server->no_unexpected = true;
    for (int i = 0; i < N; i++)
        post_unexpected(&ops[i], p.client, p.to_server, &b, i);
    pump_times(100);
    for (int i = 2; i < N; i += 3)
        op_cancel(&ops[i]);
    for (int i = 2; i < N; i += 3) {
        pump_until_reported(&ops[i]);
        op_check_error(&ops[i], -ECANCELED, 0);
        cancelled += ops[i].error != 0;
    }
    assert_true(cancelled >= N / 3 - 6); /* only the first few had room */
    p.server->no_unexpected = false;
    for (int i = 0; i < N; i++) {
        if (ops[i].error)
            continue;
        pump_until_unexpected(p.server, 1);
        struct rme_unexpected u = inbox_take(p.server);
        assert_int_equal(u.tag, i);
        assert_int_equal(u.size, 16384);
        assert_int_equal(rme_unexpected_free(p.server->rme, u.buffer), 0);
        pump_until_reported(&ops[i]);
    }
    pump_times(50);
    assert_int_equal(p.server->ninbox, 0);
}

/* Data is stalled midway while its operations are cancelled, then resumes. */
CASE(cancel_while_data_moves)
{
    static const char *const options[] = {"rndv=write,connect_timeout_ms=600000",
                                          "rndv=read,connect_timeout_ms=600000"};

    only_over_loop();
    for (int i = 0; i < 6; i++) {
        struct pair p;
        struct op send, recv;
        struct blob out, in;

        begin_transfer(&p, options[i % 2], true, &out, &in, &send, &recv);
        pump_times(50);
        assert_int_equal(send.reports + recv.reports, 0);
        if (i / 2 != 1)
            op_cancel(&recv);
        if (i / 2 != 0)
            op_cancel(&send);
        pump_times(50);
        /* Data may still move in either direction, so neither memory may have been returned. */
        assert_int_equal(i % 2 ? recv.reports : send.reports, 0);
        loop_hold(0);
        pump_times(100);
        if (!send.reports)
            op_cancel(&send);
        if (!recv.reports)
            op_cancel(&recv);
        pump_until_both(&send, &recv);
        op_check_error(&send, 0, -ECANCELED);
        op_check_error(&recv, 0, -ECANCELED);
        if (!recv.error)
            blob_check(&in, 3, 500000);
        pair_exchange(&p, 100000, 5);
        bed_again();
    }
}

/* More operations than any quota holds are cancelled on their way, at each of many moments: the
 * quotas are given back, because traffic of each kind goes on. */
CASE(cancelled_ones_give_quotas_back)
{
    enum { MANY = 150, MOMENTS = 24 };
    static const struct sweep kinds[] = {
        {.options = "eager_window=64K", .size = 16384, .unexpected = true},
        {.options = "eager_window=64K,rndv=write,pack_threshold=1G,pool_bytes=4M",
         .size = 60000,
         .who = SENDER},
        {.options = "eager_window=64K,rndv=read,pack_threshold=1G,pool_bytes=4M",
         .size = 60000,
         .who = RECEIVER,
         .recv_first = true},
        {.options = "eager_window=64K,rndv=write",
         .size = 60000,
         .who = BOTH,
         .zone = true,
         .recv_first = true},
        {.options = "eager_window=64K", .size = 20000, .who = BOTH},
    };

    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        struct blob large;
        struct pair p;
        struct op un[8];

        pair_open_with(&p, kinds[kind].options);
        for (int i = 0; i < MANY; i++)
            cancel_after(&p, &kinds[kind], i % MOMENTS);
        blob_flat(&large, 16384);
        for (int i = 0; i < 8; i++)
            post_unexpected(&un[i], p.client, p.to_server, &large, 6);
        pump_until_unexpected(p.server, 8);
        pump_until_all(un, 8);
        inbox_drop(p.server);
        for (size_t size = 50; size < 1000000; size *= 7)
            pair_exchange(&p, size, 7);
        bed_again();
    }
}

/* Requests, unexpected sends that a host posts behind the receive of the answer, of which the
 * first have left, some wait for an answer to RTS, and the others are queued. */
enum { REQUESTS = 40 };

struct requests {
    struct pair p;
    struct op send[REQUESTS], recv[REQUESTS];
    struct blob out, in;
};

static void requests_open(struct requests *r)
{
    pair_open_with(&r->p, "eager_window=64K,credits=16,rx_size=4608,connect_timeout_ms=600000");
    pair_meet(&r->p);
    pair_exchange(&r->p, 100, REQUESTS);
    pump_times(100); /* the credits return */
    r->p.server->asleep = r->p.server->no_unexpected = true;
    blob_flat(&r->out, 3000);
    blob_fill(&r->out, 8);
    blob_flat(&r->in, 100);
    for (int i = 0; i < REQUESTS; i++) {
        post_recv(&r->recv[i], r->p.client, r->p.to_server, &r->in, i);
        post_unexpected(&r->send[i], r->p.client, r->p.to_server, &r->out, i);
    }
    pump_times(100);
    assert_int_equal(r->send[0].reports, 1);
    assert_int_equal(r->send[REQUESTS - 1].reports, 0);
}

/* The ends of all requests: both operations are cancelled, in either order; the receive alone,
 * and the request leaves later; the link ends; the server's process ends before it answers. */
static void requests_end(struct requests *r, int how)
{
    for (int i = 0; i < REQUESTS && how < 3; i++) {
        if (how == 1)
            op_cancel(&r->send[i]);
        op_cancel(&r->recv[i]);
        if (how == 0)
            op_cancel(&r->send[i]);
    }
    pump_times(100);
    r->p.server->asleep = false;
    pump_times(100);
    if (how == 2)
        r->p.server->no_unexpected = false;
    else if (how == 3)
        node_forget(r->p.to_server);
    else if (how == 4)
        node_close(r->p.server);
}

/* A host that waits for both looks for the failure at the receive, and may not process a send
 * that is reported later. */
CASE(failed_receive_follows_its_request)
{
    static struct requests r;

    for (int how = 0; how < 5; how++) {
        requests_open(&r);
        requests_end(&r, how);
        pump_until_all(r.send, REQUESTS);
        pump_until_all(r.recv, REQUESTS);
        for (int i = 0; i < REQUESTS; i++) {
            op_check_error(&r.send[i], 0, how < 3 ? -ECANCELED : -ECONNRESET);
            op_check_error(&r.recv[i], how < 3 ? -ECANCELED : -ECONNRESET, -ECONNRESET);
            assert_true(r.send[i].place < r.recv[i].place);
        }
        bed_again();
    }
}

/* Receives of other tags do not wait, neither for requests nor for expected sends, nor does a
 * receive for a request that is posted after its end. */
CASE(cancelled_receive_passes_other_sends)
{
    static struct requests r;
    struct op alone, later;

    requests_open(&r);
    post_recv(&alone, r.p.client, r.p.to_server, &r.in, REQUESTS);
    op_cancel(&alone);
    pump_until_reported(&alone);
    op_check_error(&alone, -ECANCELED, -ECANCELED);
    op_cancel(&r.recv[REQUESTS - 1]);
    pump_times(100);
    assert_int_equal(r.recv[REQUESTS - 1].reports, 0);
    post_unexpected(&later, r.p.client, r.p.to_server, &r.out, REQUESTS - 1);
    op_cancel(&r.send[REQUESTS - 1]);
    pump_until_reported(&r.recv[REQUESTS - 1]);
    op_check_error(&r.recv[REQUESTS - 1], -ECANCELED, -ECANCELED);
    assert_true(r.send[REQUESTS - 1].place < r.recv[REQUESTS - 1].place);
    assert_int_equal(later.reports, 0);
    for (int i = 0; i < REQUESTS - 1; i++)
        op_cancel(&r.recv[i]);
    r.p.server->asleep = r.p.server->no_unexpected = false;
    pump_until_all(r.recv, REQUESTS);
    pump_until_reported(&later);
}
