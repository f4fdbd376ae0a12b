/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bed.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../fabric/loop.h"
#include "tests/lib/clock.h"

#define BED_ADDRS 1024
#define ALARM_S   600 /* ends a case that hangs */

static struct node *nodes[BED_NODES];
static struct rme_addr *addrs[BED_ADDRS];
static const char *more_options;
static bool violations_expected;
static uint64_t rnr_seen, ops_left;
static int reported;

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    struct node *n = arg;

    if (level <= RME_LOG_WARN) {
        n->warnings++;
        snprintf(n->warning, sizeof n->warning, "%s", line);
    }
    if (level <= RME_LOG_WARN || lane_env("CONFORMANCE_VERBOSE", 0))
        fprintf(stderr, "# %s: %s\n", n->name, line);
}

/* ---- Fixtures ---- */

int bed_setup(void **state)
{
    (void)state;
    more_options = NULL;
    violations_expected = false;
    rnr_seen = ops_left = 0;
    reported = 0;
    loop_clear();
    if (lane.is_loop)
        clock_setup(NULL);
    alarm((unsigned)lane_env("CONFORMANCE_ALARM", ALARM_S));
    return 0;
}

int bed_teardown(void **state)
{
    struct loop_census census;
    uint64_t live = 0;

    (void)state;
    loop_hold(0);
    for (int i = 0; i < BED_NODES; i++)
        live += nodes[i] != NULL ? node_counter(nodes[i], "ops_live") : 0;
    if (live == 0) /* else memory of a failed test is in use */
        blobs_free(NULL);
    for (int i = 0; i < BED_NODES; i++)
        if (nodes[i] != NULL)
            node_close(nodes[i]);
    blobs_free(NULL);
    for (int i = 0; i < BED_ADDRS; i++) {
        if (addrs[i] != NULL)
            rme_addr_free(addrs[i]);
        addrs[i] = NULL;
    }
    alarm(0);
    clock_release();
    loop_census(&census);
    if (census.fabrics || census.links || census.registrations || census.mws ||
        census.rx_held || census.tx_held)
        fail_msg(
            "left behind: %llu fabrics, %llu links, %llu registrations, %llu receive and %llu "
            "send buffers",
            (unsigned long long)census.fabrics, (unsigned long long)census.links,
            (unsigned long long)census.registrations, (unsigned long long)census.rx_held,
            (unsigned long long)census.tx_held);
    if (census.violations && !violations_expected)
        fail_msg("%llu breaches of the fabric's rules; the first: %s",
                 (unsigned long long)census.violations, census.violation);
    if (rnr_seen || census.rnr)
        fail_msg("receiver not ready: %llu",
                 (unsigned long long)(rnr_seen ? rnr_seen : census.rnr));
    return 0;
}

void bed_again(void)
{
    void *none = NULL;

    bed_teardown(&none);
    bed_setup(&none);
}

void bed_options(const char *options)
{
    more_options = options;
}

void only_over_loop(void)
{
    if (!lane.is_loop)
        skip();
}

void bed_real_time(void)
{
    clock_release();
}

void bed_pass_ms(unsigned ms)
{
    if (lane.is_loop)
        clock_step_ms(ms);
    else
        usleep(ms * 1000);
}

void bed_expect_violations(void)
{
    violations_expected = true;
}

/* ---- Nodes ---- */

static int free_slot(void)
{
    for (int i = 0; i < BED_NODES; i++)
        if (nodes[i] == NULL)
            return i;
    fail_msg("more than %d nodes", BED_NODES);
    return -1;
}

static void addr_keep(struct rme_addr *addr)
{
    for (int i = 0; i < BED_ADDRS; i++) {
        if (addrs[i] != NULL)
            continue;
        addrs[i] = addr;
        return;
    }
    fail_msg("more than %d addresses", BED_ADDRS);
}

void node_forget(struct rme_addr *addr)
{
    for (int i = 0; i < BED_ADDRS; i++)
        if (addrs[i] == addr)
            addrs[i] = NULL;
    rme_addr_free(addr);
}

int node_try(const char *name, const char *uri, struct node **out)
{
    char options[1024];
    const char *own = lane_options(uri != NULL);
    struct node *n = calloc(1, sizeof *n);
    int slot = free_slot();

    assert_non_null(n);
    snprintf(n->name, sizeof n->name, "%s", name);
    snprintf(options, sizeof options, "loop_name=%s%s%s%s%s", name, *own ? "," : "", own,
             more_options != NULL ? "," : "", more_options != NULL ? more_options : "");
    if (uri != NULL)
        assert_int_equal(rme_addr_parse(lane.ops->scheme, uri, &n->listen), 0);
    struct rme_config config = {
        .fabric = lane.ops,
        .listen = n->listen,
        .options = options,
        .log = log_line,
        .log_arg = n,
    };
    lane_settle(uri);
    int rc = rme_open(&config, &n->rme);
    if (!rc)
        rc = rme_context_open(n->rme, 0);
    if (rc) {
        if (n->listen != NULL)
            rme_addr_free(n->listen);
        free(n);
        return rc;
    }
    nodes[slot] = n;
    *out = n;
    return 0;
}

struct node *node_open(const char *name, const char *uri)
{
    struct node *n = NULL;
    int rc = node_try(name, uri, &n);

    if (rc)
        fail_msg("%s did not open: %s", name, strerror(-rc));
    return n;
}

void node_close(struct node *n)
{
    rnr_seen += rme_counter_value(n->rme, "rnr");
    ops_left += rme_counter_value(n->rme, "ops_live");
    inbox_drop(n);
    blobs_free(n);
    rme_close(n->rme);
    if (n->listen != NULL)
        rme_addr_free(n->listen);
    for (int i = 0; i < BED_NODES; i++)
        if (nodes[i] == n)
            nodes[i] = NULL;
    free(n->inbox);
    free(n);
}

bool registers_each(const struct node *n)
{
    return strstr(rme_key_opens(n->rme), "one operation, to every peer") != NULL;
}

uint64_t node_counter(const struct node *n, const char *name)
{
    return rme_counter_value(n->rme, name);
}

uint64_t node_attribute(struct node *n, struct rme_addr *peer, const char *name)
{
    struct rme_counter a;

    for (int i = 0;; i++) {
        assert_int_equal(rme_session_get(n->rme, peer, i, &a), 0);
        if (strcmp(a.name, name) == 0)
            return a.value;
    }
}

struct rme_addr *node_dial(struct node *n, const char *uri)
{
    struct rme_addr *addr = NULL;

    (void)n;
    assert_int_equal(rme_addr_parse(lane.ops->scheme, uri, &addr), 0);
    addr_keep(addr);
    return addr;
}

/* ---- Progress ---- */

static void note(struct node *n, const struct rme_done *done)
{
    struct loop_census census;
    struct op *op = done->user;

    if (op == NULL || op->node != n)
        fail_msg("%s: a completion that belongs to nobody", n->name);
    if (op->id != done->id)
        fail_msg("%s: completion of %#llx reported as %#llx", n->name,
                 (unsigned long long)op->id, (unsigned long long)done->id);
    if (op->reports++)
        fail_msg("%s: operation %#llx was reported twice", n->name, (unsigned long long)op->id);
    if (done->error && done->actual)
        fail_msg("%s: an error and %lld bytes together", n->name, (long long)done->actual);
    op->error = done->error;
    op->actual = done->actual;
    op->place = ++reported;
    loop_census(&census);
    op->open = census.mws;
    op->shown = census.shown;
}

static void look_unexpected(struct node *n)
{
    struct rme_unexpected some[5];
    int count = rme_test_unexpected(n->rme, some, 5, 0);

    assert_in_range(count, 0, 5);
    for (int i = 0; i < count; i++) {
        if (n->ninbox == n->inbox_size) {
            n->inbox_size = n->inbox_size ? n->inbox_size * 2 : 16;
            n->inbox = realloc(n->inbox, (size_t)n->inbox_size * sizeof *n->inbox);
            assert_non_null(n->inbox);
        }
        assert_int_equal((uintptr_t)some[i].buffer % 8, 0);
        if (some[i].first)
            addr_keep(some[i].addr);
        n->inbox[n->ninbox++] = some[i];
    }
}

static void look(struct node *n, int wait_ms)
{
    struct rme_done done[5];
    int count = rme_test_context(n->rme, 0, done, 5, wait_ms);

    assert_in_range(count, 0, 5);
    for (int i = 0; i < count; i++)
        note(n, &done[i]);
    if (!n->no_unexpected)
        look_unexpected(n);
}

void pump(void)
{
    for (int i = 0; i < BED_NODES; i++)
        if (nodes[i] != NULL && !nodes[i]->asleep)
            look(nodes[i], 0);
}

void pump_asleep(struct node *n, int wait_ms)
{
    look(n, wait_ms);
}

void pump_times(int times)
{
    while (times-- > 0)
        pump();
}

static void peer_line(void *arg, const char *line)
{
    fprintf(stderr, "# %s: %s\n", (const char *)arg, line);
}

static void give_up(const char *what)
{
    for (int i = 0; i < BED_NODES; i++)
        if (nodes[i] != NULL)
            rme_print_peers(nodes[i]->rme, peer_line, nodes[i]->name);
    fail_msg("%s did not come within %d s", what, BED_PATIENCE_MS / 1000);
}

void pump_until_all(struct op *ops, int count)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    for (int i = 0; i < count; i++) {
        while (!ops[i].reports && ops[i].rc == 0) {
            pump();
            if (lane_now() > end)
                give_up("a completion");
        }
    }
}

void pump_until_reported(struct op *op)
{
    pump_until_all(op, 1);
}

void pump_until_both(struct op *a, struct op *b)
{
    pump_until_reported(a);
    pump_until_reported(b);
}

void pump_until_all_of(struct op *a, struct op *b, int count)
{
    pump_until_all(a, count);
    pump_until_all(b, count);
}

void pump_until_unexpected(struct node *n, int count)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (n->ninbox < count) {
        pump();
        if (lane_now() > end)
            give_up("an unexpected message");
    }
}

void pump_until_counter(struct node *n, const char *name, uint64_t value)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (node_counter(n, name) < value) {
        pump();
        if (lane_now() > end)
            give_up(name);
    }
}

void pump_until_no_peers(struct node *n)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    while (node_counter(n, "peers")) {
        pump();
        if (lane_now() > end)
            give_up("peers of which none should be left");
    }
}

struct rme_unexpected inbox_take(struct node *n)
{
    assert_true(n->ninbox > 0);
    struct rme_unexpected oldest = n->inbox[0];

    memmove(n->inbox, n->inbox + 1, (size_t)--n->ninbox * sizeof *n->inbox);
    return oldest;
}

void inbox_drop(struct node *n)
{
    while (n->ninbox)
        assert_int_equal(rme_unexpected_free(n->rme, inbox_take(n).buffer), 0);
}

/* ---- Operations ---- */

static void posted(struct op *op, const struct blob *b)
{
    if (op->rc == 0) {
        if (!op->id)
            fail_msg("%s: a post succeeded without an id", op->node->name);
    } else if (op->rc == 1) {
        if (op->id)
            fail_msg("%s: a post that completed at once gave an id", op->node->name);
        op->reports = 1;
        op->actual = b->total;
        op->place = ++reported;
    } else if (op->rc > 1) {
        fail_msg("%s: a post returned %d", op->node->name, op->rc);
    }
}

void post_send_ctx(struct op *op, struct node *n, struct rme_addr *to, const struct blob *b,
                   int tag, int ctx)
{
    struct rme_list list = blob_list(b);

    *op = (struct op){.node = n};
    op->rc = rme_post_send(n->rme, to, &list, tag, ctx, op, &op->id);
    posted(op, b);
}

void post_recv_ctx(struct op *op, struct node *n, struct rme_addr *from, const struct blob *b,
                   int tag, int ctx)
{
    struct rme_list list = blob_list(b);
    int64_t actual = -1;

    *op = (struct op){.node = n};
    op->rc = rme_post_recv(n->rme, from, &list, tag, ctx, op, &actual, &op->id);
    if (op->rc == 1)
        fail_msg("%s: a receive completed in its post", n->name);
    posted(op, b);
}

void post_send(struct op *op, struct node *n, struct rme_addr *to, const struct blob *b,
               int tag)
{
    post_send_ctx(op, n, to, b, tag, 0);
}

void post_recv(struct op *op, struct node *n, struct rme_addr *from, const struct blob *b,
               int tag)
{
    post_recv_ctx(op, n, from, b, tag, 0);
}

void post_unexpected(struct op *op, struct node *n, struct rme_addr *to, const struct blob *b,
                     int tag)
{
    struct rme_list list = blob_list(b);

    *op = (struct op){.node = n};
    op->rc = rme_post_unexpected(n->rme, to, &list, tag, 0, op, &op->id);
    posted(op, b);
}

void op_cancel(struct op *op)
{
    assert_int_equal(rme_cancel(op->node->rme, op->id), 0);
}

void op_check(const struct op *op, int64_t actual)
{
    op_check_error(op, 0, 0);
    assert_int_equal(op->actual, actual);
}

void op_check_blob(const struct op *op, const struct blob *b, uint64_t seed, int64_t actual)
{
    op_check(op, actual);
    blob_check(b, seed, actual);
}

void op_check_error(const struct op *op, int error, int or_error)
{
    if (op->rc < 0)
        fail_msg("%s: the post failed: %s", op->node->name, strerror(-op->rc));
    assert_int_equal(op->reports, 1);
    if (op->error != error && op->error != or_error)
        fail_msg("%s: ended with %d (%s), not with %d or %d", op->node->name, op->error,
                 strerror(-op->error), error, or_error);
}

/* ---- Pairs ---- */

void pair_meet(struct pair *p)
{
    struct op op;
    struct blob b;

    blob_flat(&b, 16);
    blob_fill(&b, 99);
    post_unexpected(&op, p->client, p->to_server, &b, 12345);
    pump_until_unexpected(p->server, 1);
    struct rme_unexpected u = inbox_take(p->server);
    assert_int_equal(u.tag, 12345);
    p->to_client = u.addr;
    assert_int_equal(rme_unexpected_free(p->server->rme, u.buffer), 0);
    pump_until_reported(&op);
    op_check(&op, 16);
    blob_free(&b);
}

/* Makes one attempt, bounded in time, because a failing link may lose the message. */
static bool knock(struct pair *p, int tag)
{
    struct op op;
    struct blob b;
    bool found = false;

    blob_flat(&b, 16);
    post_unexpected(&op, p->client, p->to_server, &b, tag);
    if (op.rc >= 0)
        pump_until_reported(&op);
    int64_t end = lane_now() + 500;
    while (op.rc >= 0 && !op.error && !found && lane_now() < end) {
        pump();
        while (p->server->ninbox && !found) {
            struct rme_unexpected u = inbox_take(p->server);
            found = u.tag == tag;
            p->to_client = u.addr;
            assert_int_equal(rme_unexpected_free(p->server->rme, u.buffer), 0);
        }
    }
    blob_free(&b);
    return found;
}

void pair_reconnect(struct pair *p)
{
    int64_t end = lane_now() + BED_PATIENCE_MS;

    for (int tag = 1000000; !knock(p, tag); tag++)
        if (lane_now() > end)
            give_up("the server's answer");
}

void pair_open(struct pair *p)
{
    p->server = node_open("server", lane_uri(0));
    p->client = node_open("client", NULL);
    p->to_server = node_dial(p->client, lane_uri(0));
    pair_meet(p);
}

void pair_open_with(struct pair *p, const char *options)
{
    bed_options(options);
    pair_open(p);
}

void pair_exchange(struct pair *p, size_t size, int tag)
{
    struct blob out[2], in[2];
    struct op ops[4];

    for (int i = 0; i < 2; i++) {
        blob_flat(&out[i], size);
        blob_flat(&in[i], size);
        blob_fill(&out[i], size + (uint64_t)i);
        blob_canary(&in[i]);
    }
    post_recv(&ops[0], p->server, p->to_client, &in[0], tag);
    post_recv(&ops[1], p->client, p->to_server, &in[1], tag);
    post_send(&ops[2], p->client, p->to_server, &out[0], tag);
    post_send(&ops[3], p->server, p->to_client, &out[1], tag);
    pump_until_all(ops, 4);
    for (int i = 0; i < 4; i++)
        op_check(&ops[i], (int64_t)size);
    for (int i = 0; i < 2; i++) {
        blob_check(&in[i], size + (uint64_t)i, (int64_t)size);
        blob_free(&out[i]);
        blob_free(&in[i]);
    }
}
