/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Elan4's rules in the loop fabric (option loop_elan4). */
#include "fabric_loop.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096 };

/* One write from the client to the server, both memories registered. */
struct written {
    uint8_t here[SIZE], there[SIZE];
    struct rme_mr here_mr, there_mr;
    struct rme_sge seg;
    struct rme_rdma_seg piece;
    struct rme_rdma_op x;
};

static const char *saved;

int loop_elan4_open(void **state)
{
    saved = lane.options;
    if (lane.is_loop)
        lane.options = "loop_elan4=1";
    return bench_open(state);
}

int loop_elan4_close(void **state)
{
    lane.options = saved;
    return bench_close(state);
}

static struct loop_census census(void)
{
    struct loop_census c;

    loop_census(&c);
    return c;
}

/* Queues a write followed by an immediate. */
static void write_new(struct written *w)
{
    memset(w, 0, sizeof *w);
    memset(w->here, 0xab, SIZE);
    assert_int_equal(lane.ops->reg(client.f, w->here, SIZE, RME_ACCESS_LOCAL, &w->here_mr), 0);
    assert_int_equal(
        lane.ops->reg(server.f, w->there, SIZE, RME_ACCESS_REMOTE_WRITE, &w->there_mr), 0);
    w->seg = (struct rme_sge){w->here, SIZE, w->here_mr.lkey};
    w->piece = (struct rme_rdma_seg){(uintptr_t)w->there, w->there_mr.rkey, &w->seg, 1};
    w->x = (struct rme_rdma_op){
        .notify = RME_NOTIFY_IMM, .imm = 7, .piece = &w->piece, .npiece = 1, .bytes = SIZE};
    lane.ops->rdma_op(client.link, &w->x);
}

static void write_free(struct written *w)
{
    lane.ops->dereg(client.f, &w->here_mr);
    lane.ops->dereg(server.f, &w->there_mr);
}

/* Waits for both LINK_DOWNs: the client's because its work does not complete, the server's
 * after a liveness check. */
static void both_hear(void)
{
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(bench_event(&client, RME_EV_LINK_DOWN, 0)->error, -ECONNRESET);
    lane.ops->link_free(client.link);
    bench_idle();
    assert_int_equal(bench_count(&server, RME_EV_LINK_DOWN), 0);
    lane.ops->link_probe(server.link);
    bench_until(&server, RME_EV_LINK_DOWN, 1);
    assert_int_equal(bench_event(&server, RME_EV_LINK_DOWN, 0)->error, -ECONNRESET);
    lane.ops->link_free(server.link);
}

/* Work queued on a lost link never completes, and the other side gets no event. A liveness
 * check does not harm a healthy link. */
void loop_elan4_loses_links(void **state)
{
    struct written w;

    (void)state;
    if (!lane.is_loop)
        skip();
    bench_connect();
    lane.ops->link_probe(client.link);
    bench_send(&client, "one");
    bench_until(&server, RME_EV_RECV, 1);
    loop_kill_at_message(1);
    bench_send(&client, "two");
    write_new(&w);
    lane.ops->flush(client.f);
    both_hear();
    assert_int_equal(bench_count(&server, RME_EV_RECV), 1);
    assert_int_equal(bench_count(&server, RME_EV_IMM), 0);
    assert_int_equal(bench_count(&client, RME_EV_RDMA_DONE), 0);
    write_free(&w);
}

/* Unregistered memory is a violation, and the transfer never completes. */
void loop_elan4_notices_breaches(void **state)
{
    struct written w;

    (void)state;
    if (!lane.is_loop)
        skip();
    bench_connect();
    write_new(&w);
    lane.ops->dereg(server.f, &w.there_mr);
    lane.ops->flush(client.f);
    both_hear();
    assert_int_equal(bench_count(&client, RME_EV_RDMA_DONE), 0);
    assert_int_equal(w.there[0], 0);
    assert_int_equal(census().violations, 1);
    lane.ops->dereg(client.f, &w.here_mr);
    loop_clear();
}

/* A remote event uses no receive buffer of the peer. */
void loop_elan4_events_need_no_buffer(void **state)
{
    struct written w;

    (void)state;
    if (!lane.is_loop)
        skip();
    bench_connect();
    server.keep_rx = true;
    for (int i = 0; i < BENCH_RX; i++)
        bench_send(&client, "x");
    write_new(&w);
    lane.ops->flush(client.f);
    bench_until(&server, RME_EV_RECV, BENCH_RX);
    bench_until(&server, RME_EV_IMM, 1);
    assert_int_equal(census().rnr, 0);
    for (int i = 0; i < BENCH_RX; i++)
        lane.ops->rx_return(server.f, bench_event(&server, RME_EV_RECV, i)->rx);
    bench_until(&client, RME_EV_RDMA_DONE, 1);
    bench_disconnect();
    write_free(&w);
}

/* Ending a link at one side stops no data: memory is written until LINK_DOWN. */
void loop_elan4_data_moves_until_down(void **state)
{
    enum { ROUNDS = 20 };
    int moved = 0;

    (void)state;
    if (!lane.is_loop)
        skip();
    for (int i = 0; i < ROUNDS; i++) {
        struct written w;

        bench_connect();
        loop_hold(LOOP_HOLD_DATA);
        write_new(&w);
        lane.ops->flush(client.f);
        bench_idle();
        lane.ops->link_disconnect(server.link, -ESHUTDOWN);
        assert_int_equal(w.there[0], 0);
        loop_hold(0);
        bench_until(&server, RME_EV_LINK_DOWN, 1);
        moved += w.there[0] == 0xab;
        memset(w.there, 0, SIZE);
        bench_idle();
        assert_int_equal(w.there[0], 0);
        bench_disconnect();
        write_free(&w);
    }
    assert_in_range(moved, ROUNDS / 4, ROUNDS);
}
