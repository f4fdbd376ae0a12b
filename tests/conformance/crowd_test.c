/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many clients of one server, each a process (64, or CROWD of the environment): the program
 * starts itself with --visitor. All connect before any is answered, then all messages move at
 * once, in both directions, by every protocol. A client that is done waits for the server,
 * because leaving ends the server's remaining operations. Skipped over the loop fabric, which
 * is confined to one process.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "cases.h"

enum { VISITORS = 64, KINDS = 4, PIECES = 16 };
/* tags; those of the traffic lie between them */
enum { FIRST = 0, LAST = KINDS + 1 };

/* One side's messages with one client: one of each kind, both ways. */
struct traffic {
    struct op send[KINDS], recv[KINDS];
    struct blob out[KINDS], in[KINDS];
};

static void prepare(struct blob *b, int kind)
{
    static const size_t size[KINDS - 1] = {300, 30000, 400000};

    if (kind < KINDS - 1)
        blob_flat(b, size[kind]);
    else
        blob_pieces(b, PIECES, 1, 9000, false, 5);
}

/* Seed of a message's contents, by client, kind and direction. */
static uint64_t seed(int visitor, int kind, bool to_server)
{
    return (uint64_t)(visitor * KINDS + kind) * 2 + to_server;
}

static void traffic_begin(struct traffic *t, struct node *n, struct rme_addr *other,
                          int visitor, bool server)
{
    for (int k = 0; k < KINDS; k++) {
        prepare(&t->in[k], k);
        prepare(&t->out[k], k);
        blob_fill(&t->out[k], seed(visitor, k, !server));
        post_recv(&t->recv[k], n, other, &t->in[k], 1 + k);
    }
    for (int k = 0; k < KINDS; k++)
        post_send(&t->send[k], n, other, &t->out[k], 1 + k);
}

static void traffic_check(struct traffic *t, int visitor, bool server)
{
    for (int k = 0; k < KINDS; k++) {
        op_check(&t->send[k], t->out[k].total);
        op_check_blob(&t->recv[k], &t->in[k], seed(visitor, k, server), t->in[k].total);
        blob_free(&t->in[k]);
        blob_free(&t->out[k]);
    }
}

/* ---- A client ---- */

/* Sleeps while idle: 64 processes share two processors, and the server needs its time. */
static void wait_for(struct op *ops, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t end = lane_now() + 2 * BED_PATIENCE_MS;
        while (!ops[i].reports && ops[i].rc == 0) {
            pump_asleep(ops[i].node, 1000);
            if (lane_now() > end)
                fail_msg("the visitor waits in vain");
        }
    }
}

int process_visitor(const char *uri)
{
    static struct traffic traffic;

    bed_options("connect_timeout_ms=60000"); /* all connect at once */
    struct node *n = node_open("visitor", NULL);
    struct rme_addr *to = node_dial(n, uri);
    struct blob hello = {.count = 0}, number;
    struct op ops[2];
    int me;

    blob_flat(&number, sizeof me);
    post_recv(&ops[0], n, to, &number, FIRST);
    post_unexpected(&ops[1], n, to, &hello, 0);
    wait_for(ops, 2);
    op_check(&ops[0], sizeof me);
    memcpy(&me, number.base[0], sizeof me);
    post_recv(&ops[0], n, to, &number, LAST);
    traffic_begin(&traffic, n, to, me, false);
    wait_for(traffic.send, KINDS);
    wait_for(traffic.recv, KINDS);
    traffic_check(&traffic, me, false);
    wait_for(ops, 1);
    op_check(&ops[0], sizeof me);
    blob_free(&number);
    node_close(n);
    return 0;
}

/* ---- The server ---- */

static pid_t visitors[VISITORS];

void visitors_kill(void)
{
    for (int i = 0; i < VISITORS; i++) {
        if (visitors[i] <= 0)
            continue;
        kill(visitors[i], SIGKILL);
        waitpid(visitors[i], NULL, 0);
        visitors[i] = 0;
    }
}

static void until_all_left(struct node *server, int count)
{
    pump_until_no_peers(server);
    for (int i = 0; i < count; i++) {
        int status = -1;
        assert_int_equal(waitpid(visitors[i], &status, 0), visitors[i]);
        visitors[i] = 0;
        assert_int_equal(status, 0);
    }
}

CASE(clients_in_processes)
{
    int count = (int)lane_env("CROWD", VISITORS);
    static struct traffic traffic[VISITORS];
    static struct rme_unexpected hello[VISITORS];
    static struct blob number[VISITORS];
    static struct op told[VISITORS];

    if (lane.is_loop)
        skip();
    assert_in_range(count, 1, VISITORS);
    struct node *server = node_open("server", lane_uri(0));
    for (int i = 0; i < count; i++) {
        lane_settle(NULL);
        visitors[i] = lane_spawn("--visitor", lane_uri(0), 1);
    }
    for (int i = 0; i < count; i++)
        pump_until_unexpected(server, i + 1);
    assert_int_equal(node_counter(server, "peers"), count);
    for (int i = 0; i < count; i++) {
        hello[i] = inbox_take(server);
        assert_true(hello[i].first);
        blob_flat(&number[i], sizeof i);
        memcpy(number[i].base[0], &i, sizeof i);
        post_send(&told[i], server, hello[i].addr, &number[i], FIRST);
        traffic_begin(&traffic[i], server, hello[i].addr, i, true);
    }
    for (int i = 0; i < count; i++) {
        pump_until_reported(&told[i]);
        op_check(&told[i], sizeof i);
        pump_until_all(traffic[i].send, KINDS);
        pump_until_all(traffic[i].recv, KINDS);
        traffic_check(&traffic[i], i, true);
        assert_int_equal(rme_unexpected_free(server->rme, hello[i].buffer), 0);
    }
    for (int i = 0; i < count; i++) {
        post_send(&told[i], server, hello[i].addr, &number[i], LAST);
        pump_until_reported(&told[i]);
        op_check(&told[i], sizeof i);
    }
    until_all_left(server, count);
    for (int i = 0; i < count; i++)
        node_forget(hello[i].addr);
    assert_int_equal(node_counter(server, "ops_live"), 0);
}
