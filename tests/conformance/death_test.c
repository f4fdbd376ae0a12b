/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Failures of links and peers at every point of every protocol.
 *
 * Within one process the loop fabric cuts links; closing an engine is tested over any fabric.
 * process_test.c kills processes.
 */
#include <errno.h>
#include <string.h>
#include "cases.h"
#include "../fabric/loop.h"

struct traffic {
    struct op send[4], recv[4];
    struct blob out[4], in[4];
    struct op un;
    struct blob hello;
};

/* Posts messages of every protocol, both ways. */
static void traffic_post(struct traffic *t, struct pair *p, size_t size)
{
    for (int i = 0; i < 4; i++) {
        size_t bytes = i < 2 ? 500 : size;
        blobs_flat(&t->out[i], &t->in[i], bytes, (uint64_t)i);
    }
    blob_flat(&t->hello, 10000);
    for (int i = 0; i < 4; i++) {
        if (i % 2)
            post_recv(&t->recv[i], p->client, p->to_server, &t->in[i], i);
        else
            post_recv(&t->recv[i], p->server, p->to_client, &t->in[i], i);
    }
    post_unexpected(&t->un, p->client, p->to_server, &t->hello, 1);
    for (int i = 0; i < 4; i++) {
        if (i % 2)
            post_send(&t->send[i], p->server, p->to_client, &t->out[i], i);
        else
            post_send(&t->send[i], p->client, p->to_server, &t->out[i], i);
    }
}

static void ended_somehow(const struct op *op)
{
    if (op->rc >= 0)
        op_check_error(op, 0, -ECONNRESET);
    else
        assert_int_equal(op->rc, -ECONNRESET);
}

/* Waits until each operation has ended once and checks complete messages. Returns true if none
 * failed. */
static bool traffic_end(struct traffic *t)
{
    int failed = 0;

    for (int i = 0; i < 4; i++) {
        if (t->recv[i].rc >= 0)
            pump_until_reported(&t->recv[i]);
        if (t->send[i].rc >= 0)
            pump_until_reported(&t->send[i]);
        ended_somehow(&t->recv[i]);
        ended_somehow(&t->send[i]);
        failed +=
            t->recv[i].error || t->send[i].error || t->recv[i].rc < 0 || t->send[i].rc < 0;
        if (!t->recv[i].error && t->recv[i].rc >= 0)
            blob_check(&t->in[i], (uint64_t)i, t->out[i].total);
        else
            blob_canary(&t->in[i]);
    }
    pump_until_reported(&t->un);
    ended_somehow(&t->un);
    failed += t->un.error != 0;
    pump_times(30);
    for (int i = 0; i < 4; i++) {
        if (t->recv[i].error)
            blob_check(&t->in[i], 0, 0);
        blob_free(&t->in[i]);
        blob_free(&t->out[i]);
    }
    blob_free(&t->hello);
    return !failed;
}

/* Kills the link. By message: at each of them until the exchange has fewer. By step of a
 * chaotic schedule: at every other one of the first 400. */
static void kill_sweep(const char *options, bool by_message)
{
    struct traffic t;
    struct pair p;
    int whole = 0, cut = 0;

    pair_open_with(&p, options);
    for (int k = 1; k < 200 && !(by_message && whole); k++) {
        traffic_post(&t, &p, 200000);
        if (by_message)
            loop_kill_at_message((uint64_t)k);
        else
            loop_kill_at_step((uint64_t)k * 2);
        if (traffic_end(&t))
            whole++;
        else
            cut++;
        loop_kill_at_message(0);
        loop_kill_at_step(0);
        inbox_drop(p.server);
        pair_reconnect(&p);
        pair_exchange(&p, 1000, 50);
        pair_exchange(&p, 100000, 50);
    }
    if (whole < 1 || cut < 4)
        fail_msg("%d exchanges were over before the end of the link, %d were cut", whole, cut);
    assert_true(node_counter(p.client, "reconnects") >= (uint64_t)cut);
    /* over Elan4 the server has to probe its clients */
    int64_t end = lane_now() + BED_PATIENCE_MS;
    while (node_counter(p.server, "peers") != 1 && lane_now() < end)
        pump();
    assert_int_equal(node_counter(p.server, "peers"), 1);
}

CASE(link_dies_at_each_message)
{
    only_over_loop();
    kill_sweep("rndv=write,backoff_max_ms=1", true);
    bed_again();
    kill_sweep("rndv=read,backoff_max_ms=1", true);
}

CASE(link_dies_at_each_step)
{
    only_over_loop();
    kill_sweep("loop_chaos=1,rndv=write,fragment_bytes=64K,backoff_max_ms=1", false);
    bed_again();
    kill_sweep("loop_chaos=1,rndv=read,rdma_inflight_bytes=64K,backoff_max_ms=1", false);
}

/* Each fabric call fails once, wherever it is made: operations end, engines go on, the next
 * exchange works. */
CASE(each_call_fails_once)
{
    static const int errors[LOOP_CALL_COUNT] = {
        [LOOP_REG] = -ENOMEM,        [LOOP_CONNECT] = -ENOMEM,     [LOOP_ACCEPT] = -ENOMEM,
        [LOOP_RX_RESERVE] = -ENOSPC, [LOOP_MW_BIND] = -ECONNRESET, [LOOP_MW_INVALIDATE] = -EIO,
        [LOOP_TX_SEND] = -EIO,       [LOOP_RDMA_OP] = -EIO,        [LOOP_FLUSH] = -EIO,
        [LOOP_ARM] = -EIO,
    };

    only_over_loop();
    for (int call = LOOP_REG; call < LOOP_CALL_COUNT; call++) {
        bool whole = false;
        for (int k = 1; k < 200 && !whole; k++) {
            struct traffic t;
            struct pair p;

            bed_options(k % 2 ? "rndv=read,backoff_max_ms=1" : "rndv=write,backoff_max_ms=1");
            p.server = node_open("server", lane_uri(0));
            p.client = node_open("client", NULL);
            p.to_server = node_dial(p.client, lane_uri(0));
            loop_clear();
            loop_fault(NULL, call, (uint64_t)k, 1, errors[call]);
            do {
                pair_reconnect(&p);
                pump_times(30);
            } while (node_counter(p.client, "peers") ==
                     0); /* messages behind the first ones (credits) have failed */
            traffic_post(&t, &p, 100000);
            traffic_end(&t);
            inbox_drop(p.server);
            whole = loop_calls(call) < (uint64_t)k;
            loop_fault(NULL, call, 1, 0, 0);
            pair_reconnect(&p);
            pair_exchange(&p, 1000, 50);
            pair_exchange(&p, 100000, 50);
            bed_again();
        }
    }
}

static void server_goes(struct pair *p, struct traffic *t, int steps)
{
    traffic_post(t, p, 300000);
    pump_times(steps);
    /* The server's operations end with its engine. */
    for (int i = 0; i < 4; i++) {
        struct op *own = i % 2 ? &t->send[i] : &t->recv[i];
        if (!own->reports)
            own->rc = -ECONNRESET;
    }
    node_close(p->server);
    pump_until_reported(&t->un);
    for (int i = 0; i < 4; i++) {
        struct op *other = i % 2 ? &t->recv[i] : &t->send[i];
        pump_until_reported(other);
        op_check_error(other, 0, -ECONNRESET);
        blob_free(&t->in[i]);
        blob_free(&t->out[i]);
    }
    blob_free(&t->hello);
}

/* The server closes with operations in progress and reopens: the client's address is still
 * valid. */
CASE(server_restarts_under_load)
{
    struct traffic t;
    struct pair p;

    pair_open_with(&p, "backoff_max_ms=10");
    for (int round = 0; round < 12; round++) {
        server_goes(&p, &t, round * 2);
        assert_false(rme_addr_is_dead(p.to_server));
        p.server = node_open("server", lane_uri(0));
        pair_reconnect(&p);
        pair_exchange(&p, 500, 7);
        pair_exchange(&p, 200000, 7);
    }
    assert_int_equal(node_counter(p.client, "reconnects"), 12);
    assert_int_equal(node_counter(p.client, "ops_live"), 0);
}

/* The client closes with operations in progress: the server's operations end and its memory is
 * free. */
CASE(client_goes_under_load)
{
    struct node *server = node_open("server", lane_uri(0));
    for (int round = 0; round < 12; round++) {
        struct traffic t;
        struct pair p = {.server = server, .client = node_open("client", NULL)};
        p.to_server = node_dial(p.client, lane_uri(0));
        pair_meet(&p);
        traffic_post(&t, &p, 300000);
        pump_times(round * 2);
        node_close(p.client);
        for (int i = 0; i < 4; i++) {
            struct op *own = i % 2 ? &t.send[i] : &t.recv[i];
            pump_until_reported(own);
            op_check_error(own, 0, -ECONNRESET);
            blob_canary(&t.in[i]);
        }
        pump_times(30);
        for (int i = 0; i < 4; i += 2)
            blob_check(&t.in[i], 0, 0);
        for (int i = 0; i < 4; i++) {
            blob_free(&t.in[i]);
            blob_free(&t.out[i]);
        }
        inbox_drop(server);
    }
    pump_until_no_peers(server);
    assert_int_equal(node_counter(server, "ops_live"), 0);
}

/* An engine closes with operations of every kind in progress; the host may reuse their
 * memory. */
CASE(close_with_operations_alive)
{
    for (int steps = 0; steps < 20; steps++) {
        struct traffic t;
        struct pair p;

        pair_open_with(&p, steps % 2 ? "rndv=read" : "rndv=write");
        traffic_post(&t, &p, 300000);
        pump_times(steps);
        node_close(steps % 4 < 2 ? p.client : p.server);
        node_close(steps % 4 < 2 ? p.server : p.client);
        for (int i = 0; i < 4; i++) {
            blob_canary(&t.in[i]);
            blob_check(&t.in[i], 0, 0);
            blob_free(&t.in[i]);
            blob_free(&t.out[i]);
        }
        bed_again();
    }
}

/* Clients give up at any step of connecting: the server retains nothing of them. */
CASE(client_gives_up_on_the_way)
{
    enum { STEPS = 10 }; /* of each side */
    struct node *server;
    int64_t before, end;

    /* long enough that neither timeout ends a link here */
    bed_options("connect_timeout_ms=600000,keepalive_ms=600000");
    server = node_open("server", lane_uri(0));
    before = lane_counter("live_qp");
    for (int i = 0; i < STEPS * STEPS; i++) {
        struct node *client = node_open("client", NULL);
        struct rme_addr *to = node_dial(client, lane_uri(0));
        struct blob out;
        struct op send;

        blob_flat(&out, 100);
        blob_fill(&out, 1);
        post_send(&send, client, to, &out, 1);
        for (int k = 0; k < i % STEPS; k++)
            pump_asleep(client, i % 2);
        for (int k = 0; k < i / STEPS; k++)
            pump_asleep(server, i % 2);
        node_close(client);
    }
    end = lane_now() + BED_PATIENCE_MS;
    while ((node_counter(server, "peers") != 0 || lane_counter("live_qp") > before) &&
           lane_now() < end)
        pump();
    assert_int_equal(node_counter(server, "peers"), 0);
    assert_in_range(lane_counter("live_qp"), 0, before);
    node_close(server);
}

/* Opening fails at any point: an error, one log line, no leak. */
CASE(opening_fails_cleanly)
{
    static const enum loop_call calls[] = {LOOP_OPEN, LOOP_REG};

    only_over_loop();
    for (int i = 0; i < 2; i++) {
        for (uint64_t k = 1; k < 20; k++) {
            struct node *n = NULL;
            loop_clear();
            loop_fault(NULL, calls[i], k, 1, -ENOMEM);
            int rc = node_try("server", lane_uri(0), &n);
            assert_true(rc == 0 || rc == -ENOMEM);
            if (!rc)
                node_close(n);
            struct loop_census census;
            loop_census(&census);
            assert_int_equal(census.fabrics, 0);
            assert_int_equal(census.registrations, 0);
            if (loop_calls(calls[i]) < k)
                break;
        }
    }
    loop_clear();
    struct pair p;
    pair_open(&p);
    pair_exchange(&p, 100, 1);
}

/* A client is cut off while idle: the server detects it without being used. */
CASE(idle_client_goes_without_a_word)
{
    struct pair p;
    int64_t end;

    only_over_loop();
    pair_open_with(&p, "keepalive_ms=2");
    loop_kill_at_message(1); /* lose the probe */
    p.client->asleep = true;
    end = lane_now() + BED_PATIENCE_MS;
    while (!rme_addr_is_dead(p.to_client) && lane_now() < end) {
        struct rme_done done;

        assert_int_equal(rme_test_context(p.server->rme, 0, &done, 1, 10), 0);
    }
    assert_true(rme_addr_is_dead(p.to_client));
}

/* Lets 20 intervals of the probe pass, and checks the number and the text of the warnings. */
static void wait_and_count(struct pair *p, int warnings, const char *text)
{
    for (int i = 0; i < 20; i++) {
        bed_pass_ms(1000);
        pump_times(64); /* as often as the timers are checked */
    }
    assert_int_equal(p->client->warnings, warnings);
    if (text != NULL)
        assert_non_null(strstr(p->client->warning, text));
}

/* One line reports that a peer does not answer while work waits, one that the silence is
 * over. */
CASE(silence_is_logged_once_with_work)
{
    static const char *const options[] = {"keepalive_ms=1000",
                                          "keepalive_ms=1000,loop_elan4=1"};

    only_over_loop();
    for (int i = 0; i < 2; i++) {
        struct pair p;
        struct op op;
        struct blob b;

        pair_open_with(&p, options[i]);
        pair_meet(&p);
        p.client->warnings = p.server->warnings = 0;
        blob_flat(&b, 100);
        post_recv(&op, p.client, p.to_server, &b, 1);
        wait_and_count(&p, 0, NULL);
        for (int round = 0; round < 3; round++) {
            p.server->asleep = true;
            wait_and_count(&p, 2 * round + 1, "no answer for ");
            p.server->asleep = false;
            wait_and_count(&p, 2 * round + 2, "answers again");
        }
        op_cancel(&op);
        pump_until_reported(&op);
        p.server->asleep = true;
        wait_and_count(&p, 6, NULL);
        p.server->asleep = false;
        p.client->asleep = true; /* a server probes clients without work, too: every 15 s */
        for (int round = 0; round < 2; round++)
            wait_and_count(&p, 6, NULL);
        assert_int_equal(p.server->warnings, 0);
        p.client->asleep = false;
        bed_again();
    }
}
