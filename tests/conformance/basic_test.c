/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Engines, addresses, contexts, ids and the calls that return completions. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cases.h"
#include "../fabric/loop.h"

/* Returns the number of epoll sets of this process.  Other descriptors may be those of an
 * emulated device, whose thread closes them later. */
static int epoll_sets(void)
{
    static const char set[] = "anon_inode:[eventpoll]";
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    char name[sizeof(set)];
    int n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL)
        n += readlinkat(dirfd(dir), entry->d_name, name, sizeof(name)) == sizeof(set) - 1 &&
             memcmp(name, set, sizeof(set) - 1) == 0;
    closedir(dir);
    return n;
}

/* The first engines may leave epoll sets of their libraries, later ones leave none. */
CASE(open_close_open)
{
    int left = 0;

    for (int i = 0; i < 5; i++) {
        struct pair p;
        pair_open(&p);
        pair_exchange(&p, 100, 1);
        node_forget(p.to_server);
        node_close(p.client);
        node_forget(p.to_client);
        node_close(p.server);
        if (i == 0)
            left = epoll_sets();
        assert_int_equal(epoll_sets(), left);
    }
}

CASE(open_reports_errors)
{
    struct node *n, *second;

    bed_options("rx_size=banana");
    assert_int_equal(node_try("x", NULL, &n), -EINVAL);
    bed_options("rx_size=1");
    assert_int_equal(node_try("x", NULL, &n), -EINVAL);
    bed_options("pool_bytes=8191");
    assert_int_equal(node_try("x", NULL, &n), -EINVAL);
    bed_options("pool_bytes=8192");
    node_close(node_open("x", NULL));
    bed_options("somebody_elses_key=17");
    n = node_open("server", lane_uri(0));
    assert_int_equal(node_try("second", lane_uri(0), &second), -EADDRINUSE);
    node_close(n);
    n = node_open("server", lane_uri(0)); /* the address is free again at once */
}

/* The host makes addresses before it opens an engine and frees them after it has closed it. */
CASE(addresses_outlive_engines)
{
    struct rme_addr *addr, *unused;
    struct pair p;

    assert_int_equal(rme_addr_parse(lane.ops->scheme, lane_uri(0), &addr), 0);
    assert_int_equal(rme_addr_parse(lane.ops->scheme, lane_uri(3), &unused), 0);
    rme_addr_set_host(addr, &p);
    p.server = node_open("server", lane_uri(0));
    for (int round = 0; round < 3; round++) {
        p.client = node_open("client", NULL);
        p.to_server = addr;
        pair_meet(&p);
        pair_exchange(&p, 1000, 4);
        node_close(p.client);
        assert_ptr_equal(rme_addr_host(addr), &p);
        assert_false(rme_addr_is_dead(addr));
        assert_non_null(strstr(rme_addr_name(addr), lane.ops->scheme));
    }
    node_close(p.server);
    rme_addr_free(addr);
    rme_addr_free(unused);
}

CASE(address_text_is_checked)
{
    struct rme_addr *addr;
    char text[256];

    assert_int_equal(rme_addr_parse(lane.ops->scheme, "other://host:1", &addr), -EINVAL);
    snprintf(text, sizeof text, "%s://host:", lane.ops->scheme);
    assert_int_equal(rme_addr_parse(lane.ops->scheme, text, &addr), -EDESTADDRREQ);
    snprintf(text, sizeof text, "%s://host:99999", lane.ops->scheme);
    assert_int_equal(rme_addr_parse(lane.ops->scheme, text, &addr), -EDESTADDRREQ);
    snprintf(text, sizeof text, "tcp://a:1,%s/pvfs2-fs", lane_uri(0));
    assert_int_equal(rme_addr_parse(lane.ops->scheme, text, &addr), 0);
    rme_addr_free(addr);
}

/* A connecting peer has a name and matches its network. After its end its address stays dead
 * and still matches. */
CASE(passive_address)
{
    struct pair p;
    char pattern[64], exact[64];
    struct op op;
    struct blob b;

    pair_open(&p);
    unsigned byte[4];
    if (sscanf(rme_addr_name(p.to_client), "%u.%u.%u.%u", &byte[0], &byte[1], &byte[2],
               &byte[3]) != 4)
        memcpy(byte, (unsigned[]){127, 0, 0, 1}, sizeof byte); /* a name of the loop fabric */
    snprintf(exact, sizeof exact, "%u.%u.%u.%u", byte[0], byte[1], byte[2], byte[3]);
    snprintf(pattern, sizeof pattern, "%s://%u.0.0.0", lane.ops->scheme, byte[0]);
    /* Elan4 addresses are not sockaddrs and match no pattern */
    assert_int_equal(rme_addr_match(p.to_client, pattern, 8), !lane.is_elan4);
    assert_int_equal(rme_addr_match(p.to_client, "192.0.2.0", 8), 0);
    assert_int_equal(rme_addr_match(p.to_client, exact, 32), !lane.is_elan4);
    assert_int_equal(rme_addr_match(p.to_client, "nonsense//", 32), -EINVAL);
    assert_false(rme_addr_is_dead(p.to_client));
    node_close(p.client);
    int64_t end = lane_now() + BED_PATIENCE_MS;
    while (!rme_addr_is_dead(p.to_client) && lane_now() < end)
        pump();
    assert_true(rme_addr_is_dead(p.to_client));
    blob_flat(&b, 8);
    post_send(&op, p.server, p.to_client, &b, 1);
    assert_int_equal(op.rc, -ECONNRESET);
    post_recv(&op, p.server, p.to_client, &b, 1);
    assert_int_equal(op.rc, -ECONNRESET);
    assert_int_equal(rme_addr_match(p.to_client, exact, 32), !lane.is_elan4);
    assert_int_equal(rme_addr_match(p.to_client, "192.0.2.0", 8), 0);
}

/* The peer's operations end when the host drops its address. */
CASE(freed_address_ends_its_operations)
{
    struct pair p;
    struct op ops[3];
    struct blob b[3];

    pair_open(&p);
    for (int i = 0; i < 3; i++)
        blob_flat(&b[i], 100000);
    post_recv(&ops[0], p.client, p.to_server, &b[0], 1);
    post_recv(&ops[1], p.client, p.to_server, &b[1], 2);
    post_send(&ops[2], p.client, p.to_server, &b[2], 3);
    pump_times(20);
    node_forget(p.to_server);
    pump_until_all(ops, 3);
    for (int i = 0; i < 3; i++)
        op_check_error(&ops[i], -ECONNRESET, -ECONNRESET);
}

CASE(connect_without_listener_refused)
{
    struct op ops[3];
    struct blob b;

    struct node *n = node_open("client", NULL);
    struct rme_addr *to = node_dial(n, lane_uri(6));
    blob_flat(&b, 64);
    post_recv(&ops[0], n, to, &b, 1);
    post_send(&ops[1], n, to, &b, 1);
    post_unexpected(&ops[2], n, to, &b, 1);
    pump_until_all(ops, 3);
    for (int i = 0; i < 3; i++)
        op_check_error(&ops[i], -ECONNREFUSED, -ECONNREFUSED);
    assert_false(rme_addr_is_dead(to));
    for (int i = 0; i < 3; i++)
        assert_int_equal(rme_addr_reach(n->rme, to, 5000), -ECONNREFUSED);
}

/* A server listens; the client polls the state of its connection attempt. */
CASE(connect_to_listener_succeeds)
{
    struct pair p;
    int outcome;

    pair_open(&p);
    outcome = rme_addr_reach(p.client->rme, p.to_server, 0);
    for (int i = 0; i < 1000 && outcome == -EINPROGRESS; i++) {
        pump_times(1);
        outcome = rme_addr_reach(p.client->rme, p.to_server, 1);
    }
    assert_int_equal(outcome, 0);
    assert_int_equal(rme_addr_reach(p.client->rme, p.to_server, 0), 0);
    assert_int_equal(rme_addr_reach(p.server->rme, p.to_server, 0), -EINVAL);
}

/* The address is unreachable, its name is unknown, or nothing listens there. */
CASE(unreachable_hosts)
{
    struct op op;
    struct blob b;

    only_over_loop();
    bed_options("connect_timeout_ms=200");
    struct node *n = node_open("client", NULL);
    blob_flat(&b, 64);
    post_send(&op, n, node_dial(n, "loop://nowhere:1"), &b, 1);
    pump_until_reported(&op);
    op_check_error(&op, -EHOSTUNREACH, -EHOSTUNREACH);
    post_send(&op, n, node_dial(n, "loop://unknown:1"), &b, 1);
    pump_until_reported(&op);
    op_check_error(&op, -ENONET, -ENONET);
    post_send(&op, n, node_dial(n, "loop://void:1"), &b, 1);
    pump_until_reported(&op);
    op_check_error(&op, -ETIMEDOUT, -ETIMEDOUT);
}

/* The second address of a list is tried when the first does not answer. */
CASE(second_address_is_tried)
{
    char text[256];
    struct pair p;

    p.server = node_open("server", lane_uri(0));
    p.client = node_open("client", NULL);
    snprintf(text, sizeof text, "%s,%s", lane_uri(6), lane_uri(0));
    p.to_server = node_dial(p.client, text);
    pair_meet(&p);
    pair_exchange(&p, 5000, 3);
}

CASE(contexts_open_and_close)
{
    struct node *n = node_open("server", lane_uri(0));
    struct rme_done done;

    assert_int_equal(rme_context_open(n->rme, 0), -EEXIST);
    assert_int_equal(rme_context_open(n->rme, -1), -EINVAL);
    assert_int_equal(rme_context_open(n->rme, RME_MAX_CONTEXTS), -EINVAL);
    for (int i = 1; i < RME_MAX_CONTEXTS; i++)
        assert_int_equal(rme_context_open(n->rme, i), 0);
    for (int i = 1; i < RME_MAX_CONTEXTS; i++) {
        assert_int_equal(rme_test_context(n->rme, i, &done, 1, 0), 0);
        rme_context_close(n->rme, i);
        assert_int_equal(rme_test_context(n->rme, i, &done, 1, 0), -EINVAL);
        assert_int_equal(rme_context_open(n->rme, i), 0);
    }
}

/* Each context reports its own operations, at most as many as requested. */
CASE(contexts_are_separate)
{
    enum { CONTEXTS = 4, EACH = 6, ALL = CONTEXTS * EACH };
    struct pair p;
    struct op recv[ALL], send[ALL];
    struct blob in[ALL], out;
    int seen[CONTEXTS] = {0};

    pair_open(&p);
    for (int c = 1; c < CONTEXTS; c++)
        assert_int_equal(rme_context_open(p.client->rme, c), 0);
    blob_flat(&out, 200);
    for (int i = 0; i < ALL; i++) {
        blob_flat(&in[i], 200);
        post_recv_ctx(&recv[i], p.client, p.to_server, &in[i], i, i % CONTEXTS);
    }
    p.client->asleep = true;
    for (int i = 0; i < ALL; i++)
        post_send(&send[i], p.server, p.to_client, &out, i);
    int64_t end = lane_now() + BED_PATIENCE_MS;
    for (int total = 0; total < ALL && lane_now() < end;) {
        pump();
        for (int c = 0; c < CONTEXTS; c++) {
            struct rme_done done[3];
            memset(done, 0xee, sizeof done);
            int n = rme_test_context(p.client->rme, c, done, 2, 0);
            assert_in_range(n, 0, 2);
            for (size_t k = 0; k < sizeof done[2]; k++)
                assert_int_equal(((uint8_t *)&done[2])[k], 0xee);
            for (int k = 0; k < n; k++) {
                struct op *op = done[k].user;
                assert_int_equal((op - recv) % CONTEXTS, c);
                assert_int_equal(op->reports++, 0);
                assert_int_equal(done[k].error, 0);
                assert_int_equal(done[k].actual, 200);
                seen[c]++;
                total++;
            }
        }
    }
    for (int c = 0; c < CONTEXTS; c++)
        assert_int_equal(seen[c], EACH);
    p.client->asleep = false;
    pump_until_all(send, ALL);
}

/* Operations of a closed context go on and are dropped; the peer is not affected. */
CASE(closed_context_drops_its_operations)
{
    struct pair p;
    struct op recv, send;
    struct blob in, out;

    pair_open(&p);
    assert_int_equal(rme_context_open(p.client->rme, 3), 0);
    blob_flat(&in, 50000);
    blob_flat(&out, 50000);
    blob_fill(&out, 5);
    post_recv_ctx(&recv, p.client, p.to_server, &in, 1, 3);
    rme_context_close(p.client->rme, 3);
    post_send(&send, p.server, p.to_client, &out, 1);
    pump_until_reported(&send);
    op_check(&send, 50000);
    pump_times(100);
    assert_int_equal(recv.reports, 0);
    assert_int_equal(rme_context_open(p.client->rme, 3), 0);
    struct rme_done done;
    assert_int_equal(rme_test_context(p.client->rme, 3, &done, 1, 0), 0);
    pair_exchange(&p, 3000, 2);
    node_close(p.client);
}

/* Tests one operation. */
static int test_one(const struct node *n, rme_id id, struct rme_done *done)
{
    return rme_test_some(n->rme, &id, 1, NULL, done, 0);
}

/* rme_test_some reports its operations once; unknown ids are ignored. */
CASE(test_by_id)
{
    enum { N = 5 };
    struct pair p;
    struct op recv[N], send[N];
    struct blob in[N], out;
    struct rme_done done[N + 3];
    int index[N + 3];

    pair_open(&p);
    blob_flat(&out, 10);
    for (int i = 0; i < N; i++) {
        blob_flat(&in[i], 10);
        post_recv(&recv[i], p.client, p.to_server, &in[i], i);
    }
    assert_int_equal(test_one(p.client, recv[0].id, done), 0);
    p.client->asleep = true;
    for (int i = 1; i < N; i++)
        post_send(&send[i], p.server, p.to_client, &out, i);
    rme_id ids[N + 3] = {0,          recv[0].id, recv[1].id, 0, 0x123456789abcdefULL,
                         recv[2].id, ~0ULL,      recv[3].id};
    int found[N + 3] = {0}, total = 0;
    int64_t end = lane_now() + BED_PATIENCE_MS;
    while (total < 3 && lane_now() < end) {
        pump();
        int n = rme_test_some(p.client->rme, ids, N + 3, index, done, 0);
        assert_in_range(n, 0, 3 - total);
        for (int k = 0; k < n; k++) {
            assert_in_range(index[k], 0, N + 2);
            assert_int_equal(done[k].id, ids[index[k]]);
            assert_int_equal(done[k].error, 0);
            assert_ptr_equal(done[k].user, index[k] == 2   ? &recv[1]
                                           : index[k] == 5 ? &recv[2]
                                                           : &recv[3]);
            found[index[k]]++;
            total++;
        }
    }
    assert_int_equal(found[2], 1);
    assert_int_equal(found[5], 1);
    assert_int_equal(found[7], 1);
    assert_int_equal(rme_test_some(p.client->rme, ids, N + 3, index, done, 0), 0);
    while (!test_one(p.client, recv[4].id, done) && lane_now() < end)
        pump();
    assert_ptr_equal(done[0].user, &recv[4]);
    assert_int_equal(test_one(p.client, recv[4].id, done), 0);
    assert_int_equal(test_one(p.client, 0, done), 0);
    assert_int_equal(test_one(p.client, 0xdeadbeefdeadbeefULL, done), 0);
    p.client->asleep = false;
    for (int i = 1; i < N; i++)
        pump_until_reported(&send[i]);
    pump_times(20);
    assert_int_equal(recv[1].reports, 0); /* test_context did not report them again */
    op_cancel(&recv[0]);
    pump_until_reported(&recv[0]);
    op_check_error(&recv[0], -ECANCELED, -ECANCELED);
}

/* Cancel and test of stale ids do nothing, even when their memory has been reused. */
CASE(stale_ids_are_harmless)
{
    struct pair p;
    struct op old, send, recv;
    struct blob b, in;
    struct rme_done done;

    pair_open(&p);
    blobs_flat(&b, &in, 10, 1);
    post_recv(&old, p.client, p.to_server, &in, 1);
    post_send(&send, p.server, p.to_client, &b, 1);
    pump_until_both(&old, &send);
    post_recv(&recv, p.client, p.to_server, &in, 2);
    assert_int_not_equal(recv.id, old.id);
    assert_int_equal(rme_cancel(p.client->rme, old.id), 0);
    assert_int_equal(test_one(p.client, old.id, &done), 0);
    assert_int_equal(rme_cancel(p.client->rme, 0), 0);
    assert_int_equal(rme_cancel(p.client->rme, ~0ULL), 0);
    pump_times(50);
    assert_int_equal(recv.reports, 0);
    post_send(&send, p.server, p.to_client, &b, 2);
    pump_until_reported(&recv);
    op_check(&recv, 10);
    pump_until_reported(&send);
}

CASE(bad_posts_are_refused)
{
    struct pair p;
    struct op op;
    struct blob b;

    pair_open(&p);
    blob_flat(&b, 10);
    post_send_ctx(&op, p.client, p.to_server, &b, 1, 7);
    assert_int_equal(op.rc, -EINVAL);
    post_send_ctx(&op, p.client, p.to_server, &b, 1, -1);
    assert_int_equal(op.rc, -EINVAL);
    post_recv_ctx(&op, p.client, p.to_server, &b, 1, RME_MAX_CONTEXTS);
    assert_int_equal(op.rc, -EINVAL);
    b.length[0] = -1;
    post_send(&op, p.client, p.to_server, &b, 1);
    assert_int_equal(op.rc, -EINVAL);
    post_recv(&op, p.client, p.to_server, &b, 1);
    assert_int_equal(op.rc, -EINVAL);
    b.length[0] = 10;
    void *base = b.base[0];
    b.base[0] = NULL;
    post_send(&op, p.client, p.to_server, &b, 1);
    assert_int_equal(op.rc, -EINVAL);
    b.base[0] = base;
    b.count = -1;
    post_recv(&op, p.client, p.to_server, &b, 1);
    assert_int_equal(op.rc, -EINVAL);
    /* Two pieces whose sum exceeds 63 bits. */
    b.count = 2;
    b.base[1] = base;
    b.length[0] = b.length[1] = INT64_MAX;
    post_recv(&op, p.client, p.to_server, &b, 1);
    assert_int_equal(op.rc, -EINVAL);
    pair_exchange(&p, 100, 1);
}

static void check_zeros(const uint8_t *memory, size_t size)
{
    assert_non_null(memory);
    for (size_t k = 0; k < size; k++)
        if (memory[k] != 0)
            fail_msg("byte %zu is not 0", k);
}

CASE(memory_handed_out)
{
    enum { N = 40 };
    static const size_t sizes[] = {1, 9440, 24, 34500, 139304, 262144, 2066424, 3000000};
    void *m[N];
    struct node *n = node_open("client", NULL);
    int local;

    for (int i = 0; i < N; i++) {
        size_t size = sizes[i % 8];
        m[i] = rme_memory_alloc(n->rme, size);
        assert_int_equal((uintptr_t)m[i] % 64, 0);
        check_zeros(m[i], size);
        memset(m[i], i, size);
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < sizes[i % 8]; k += 997)
            assert_int_equal(((uint8_t *)m[i])[k], i);
    assert_int_equal(rme_memory_free(n->rme, &local), -EINVAL);
    for (int i = 0; i < N; i += 2)
        assert_int_equal(rme_memory_free(n->rme, m[i]), 0);
    assert_int_equal(rme_memory_free(n->rme, m[0]), -EINVAL);
    for (int i = 0; i < N; i += 2) {
        m[i] = rme_memory_alloc(n->rme, sizes[(i + 3) % 8]);
        check_zeros(m[i], sizes[(i + 3) % 8]);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(rme_memory_free(n->rme, m[i]), 0);
    rme_memory_hint(n->rme, &local, sizeof local, RME_TO_SEND);
    rme_memory_hint(n->rme, NULL, 0, RME_TO_RECEIVE);
}

static void count_line(void *arg, const char *line)
{
    assert_true(strlen(line) > 0);
    ++*(int *)arg;
}

CASE(seeing_inside)
{
    struct pair p;
    struct rme_counter c;
    int64_t value;
    int count = 0, lines = 0;

    pair_open(&p);
    pair_exchange(&p, 100, 1);
    for (; rme_counter_get(p.client->rme, count, &c) == 0; count++) {
        assert_true(c.name != NULL && c.unit != NULL && c.text != NULL && strlen(c.text) > 5);
        assert_int_equal(c.value, rme_counter_value(p.client->rme, c.name));
    }
    assert_true(count > 10);
    assert_int_equal(rme_counter_get(p.client->rme, count, &c), -ENOENT);
    assert_int_equal(rme_counter_get(p.client->rme, -1, &c), -ENOENT);
    assert_int_equal(rme_counter_value(p.client->rme, "no such counter"), 0);
    assert_int_equal(node_counter(p.client, "unexpected_sent"), 1);
    assert_int_equal(node_counter(p.server, "unexpected_received"), 1);
    assert_int_equal(node_counter(p.client, "ops_live"), 0);
    rme_print_peers(p.client->rme, count_line, &lines);
    assert_int_equal(lines, 1);
    assert_int_equal(rme_option_get(p.client->rme, "rx_size", &value), 0);
    assert_true(value >= 1024);
    assert_int_equal(rme_option_get(p.client->rme, "no such option", &value), -ENOENT);
}
