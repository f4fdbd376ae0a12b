/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fabric_loop.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void only_over_loop(void)
{
    if (!lane.is_loop)
        skip();
}

/* With Elan4's rules links do not fail: see fabric_loop_elan4.c. */
static void only_where_links_fail(void)
{
    if (!lane.is_loop || lane.is_elan4)
        skip();
}

static struct loop_census census(void)
{
    struct loop_census c;

    loop_census(&c);
    return c;
}

static void free_links(void)
{
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    bench_until(&server, RME_EV_LINK_DOWN, 1);
    lane.ops->link_free(client.link);
    lane.ops->link_free(server.link);
}

/* One message more than advertised fails, even if other links have free buffers. */
void loop_counts_receiver_not_ready(void **state)
{
    (void)state;
    only_where_links_fail();
    bench_connect();
    server.keep_rx = true;
    for (int i = 0; i < BENCH_RX + 1; i++)
        bench_send(&client, "x");
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    bench_until(&server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(bench_count(&server, RME_EV_RECV), BENCH_RX);
    assert_int_equal(census().rnr, 1);
    for (int i = 0; i < BENCH_RX; i++)
        lane.ops->rx_return(server.f, bench_event(&server, RME_EV_RECV, i)->rx);
    free_links();
    bench_idle();
    assert_int_equal(client.stats.value[RME_C_RNR], 1);
}

void loop_waits_for_flush(void **state)
{
    struct rme_event event;

    (void)state;
    only_over_loop();
    bench_connect();
    bench_send(&client, "unseen");
    for (int i = 0; i < 100; i++)
        assert_int_equal(lane.ops->poll(server.f, &event, 1), 0);
    lane.ops->flush(client.f);
    bench_until(&server, RME_EV_RECV, 1);
    bench_disconnect();
}

/* The loop's device fetches data late: a source overwritten too early arrives overwritten. */
void loop_moves_data_late(void **state)
{
    char here[16] = "too early", there[16] = "";
    struct rme_mr here_mr, there_mr;

    (void)state;
    only_over_loop();
    bench_connect();
    assert_int_equal(lane.ops->reg(client.f, here, sizeof here, RME_ACCESS_LOCAL, &here_mr), 0);
    assert_int_equal(
        lane.ops->reg(server.f, there, sizeof there, RME_ACCESS_REMOTE_WRITE, &there_mr), 0);
    struct rme_sge seg = {here, sizeof here, here_mr.lkey};
    struct rme_range range;
    struct rme_rdma_seg piece = {
        (uintptr_t)there,
        bench_mw_bind(&server, &there_mr, there, sizeof there, RME_ACCESS_REMOTE_WRITE, &range),
        &seg, 1};
    struct rme_rdma_op x = {
        .notify = RME_NOTIFY_IMM, .piece = &piece, .npiece = 1, .bytes = sizeof here};
    loop_hold(LOOP_HOLD_DATA);
    lane.ops->rdma_op(client.link, &x);
    lane.ops->flush(client.f);
    bench_idle();
    assert_int_equal(bench_count(&client, RME_EV_RDMA_DONE), 0);
    assert_string_equal(there, "");
    strcpy(here, "overwritten");
    loop_hold(0);
    bench_until(&client, RME_EV_RDMA_DONE, 1);
    assert_string_equal(there, "overwritten");
    bench_disconnect();
    lane.ops->dereg(client.f, &here_mr);
    lane.ops->dereg(server.f, &there_mr);
}

void loop_fails_the_kth_call(void **state)
{
    struct rme_mr mr;
    char memory[8];

    (void)state;
    only_where_links_fail();
    loop_fault(NULL, LOOP_REG, 2, 1, -ENOMEM);
    assert_int_equal(lane.ops->reg(client.f, memory, 8, 0, &mr), 0);
    lane.ops->dereg(client.f, &mr);
    assert_int_equal(lane.ops->reg(client.f, memory, 8, 0, &mr), -ENOMEM);
    assert_int_equal(lane.ops->reg(client.f, memory, 8, 0, &mr), 0);
    lane.ops->dereg(client.f, &mr);
    assert_int_equal(loop_calls(LOOP_REG), 3);

    bench_connect();
    loop_fault(NULL, LOOP_TX_GET, 1, 1, 0);
    assert_null(lane.ops->tx_get(client.link));
    bench_until(&client, RME_EV_TX_ROOM, 1);
    loop_fault(NULL, LOOP_RX_RESERVE, 1, 1, -ENOSPC);
    assert_int_equal(lane.ops->rx_reserve(client.link, 1), -ENOSPC);
    assert_int_equal(lane.ops->rx_reserve(client.link, 1), 0);
    loop_fault("client", LOOP_TX_SEND, 2, 1, -EIO);
    bench_send(&client, "one");
    bench_until(&server, RME_EV_RECV, 1);
    bench_send(&server, "the other host is not meant");
    bench_until(&client, RME_EV_RECV, 1);
    bench_send(&client, "two");
    free_links();
    assert_int_equal(bench_event(&client, RME_EV_LINK_DOWN, 0)->error, -EIO);
    assert_int_equal(bench_count(&server, RME_EV_RECV), 1);
}

void loop_kills_at_the_nth_message(void **state)
{
    (void)state;
    only_where_links_fail();
    bench_connect();
    loop_kill_at_message(3);
    for (int i = 0; i < 5; i++)
        bench_send(&client, "x");
    free_links();
    assert_int_equal(bench_count(&server, RME_EV_RECV), 2);
    assert_int_equal(bench_event(&client, RME_EV_LINK_DOWN, 0)->error, -ECONNRESET);
}

void loop_hosts_nobody_answers(void **state)
{
    (void)state;
    only_over_loop();
    struct rme_link *link = bench_dial("loop://nowhere:1", "x", NULL);
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(bench_event(&client, RME_EV_LINK_DOWN, 0)->error, -EHOSTUNREACH);
    lane.ops->link_free(link);
    bench_forget();
    link = bench_dial("loop://void:1", "x", NULL);
    bench_idle();
    assert_int_equal(bench_count(&client, RME_EV_LINK_DOWN), 0);
    lane.ops->link_disconnect(link, -ETIMEDOUT);
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(bench_event(&client, RME_EV_LINK_DOWN, 0)->error, -ETIMEDOUT);
    lane.ops->link_free(link);
}

/* The loop counts and names violations of fabric.h. */
void loop_notices_breaches(void **state)
{
    char memory[8];
    struct rme_mr mr;

    (void)state;
    only_where_links_fail();
    assert_int_equal(census().violations, 0);
    assert_int_equal(lane.ops->reg(client.f, memory, 8, 0, &mr), 0);
    struct rme_mr twice = mr;
    lane.ops->dereg(client.f, &mr);
    lane.ops->dereg(client.f, &twice);
    assert_int_equal(census().violations, 1);
    assert_non_null(strstr(census().violation, "not registered"));
    bench_connect();
    struct rme_sge seg[2] = {{memory, 4, 1}, {memory + 4, 0, 1}};
    struct rme_rdma_seg piece = {1, 1, seg, 2};
    struct rme_rdma_op x = {.piece = &piece, .npiece = 1, .bytes = 4};
    lane.ops->rdma_op(client.link, &x);
    /* the empty segment, and the second one if max_sge is 1 */
    assert_in_range(census().violations, 2, 3);
    uint64_t before = census().violations;
    free_links();
    assert_int_equal(census().violations, before + 1); /* the key */
    loop_clear();
}

/* Returns a hash of the order in which one run receives its events. */
static uint64_t one_chaotic_run(void)
{
    enum { N = 20, SIZE = 256 };
    static uint8_t here[N * SIZE], there[N * SIZE];
    struct rme_mr here_mr, there_mr;
    struct rme_sge seg[N];
    struct rme_rdma_seg piece[N];
    struct rme_rdma_op x[N];
    struct rme_range range;
    uint64_t order = 0;

    bench_connect();
    assert_int_equal(
        lane.ops->reg(client.f, here, sizeof here, RME_ACCESS_LOCAL_WRITE, &here_mr), 0);
    assert_int_equal(
        lane.ops->reg(server.f, there, sizeof there, RME_ACCESS_REMOTE_WRITE, &there_mr), 0);
    bench_mw_bind(&server, &there_mr, there, sizeof there, RME_ACCESS_REMOTE_WRITE, &range);
    for (int i = 0; i < N; i++) {
        seg[i] = (struct rme_sge){here + i * SIZE, SIZE, here_mr.lkey};
        piece[i] = (struct rme_rdma_seg){(uintptr_t)(there + i * SIZE), range.key, &seg[i], 1};
        x[i] = (struct rme_rdma_op){.piece = &piece[i], .npiece = 1, .bytes = SIZE};
        lane.ops->rdma_op(client.link, &x[i]);
    }
    bench_until(&client, RME_EV_RDMA_DONE, N);
    for (int i = 0; i < N; i++)
        order = order * 31 + (uint64_t)(bench_event(&client, RME_EV_RDMA_DONE, i)->rdma_op - x);
    bench_disconnect();
    lane.ops->dereg(client.f, &here_mr);
    lane.ops->dereg(server.f, &there_mr);
    return order;
}

void loop_repeats_with_its_seed(void **state)
{
    static const char *const options[] = {"loop_chaos=1,loop_seed=4711",
                                          "loop_chaos=1,loop_seed=4711",
                                          "loop_chaos=1,loop_seed=815"};
    const char *saved = lane.options;
    uint64_t order[3];

    only_over_loop();
    for (int i = 0; i < 3; i++) {
        bench_close(state);
        lane.options = options[i];
        bench_open(state);
        order[i] = one_chaotic_run();
    }
    lane.options = saved;
    assert_int_equal(order[0], order[1]);
    assert_int_not_equal(order[0], order[2]);
}
