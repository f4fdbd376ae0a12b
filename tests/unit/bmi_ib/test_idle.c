/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of an idle connection with default options: our structures, and the memory that a
 * device like mlx5 locks for its queues. The test prints the table and checks its sums. */
#include <stdio.h>
#include "proto/proto.h"
#include "rig.h"
#include "transport/peer.h"
#include "wire/wire.h"

#define KIB 1024u

/* ---- mlx5, as computed in rdma-core ---- */

static uint64_t up_to(uint64_t n, uint64_t step)
{
    return (n + step - 1) / step * step;
}

static uint64_t power_of_two(uint64_t n)
{
    uint64_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* Requests that bind a window have the longest header. */
static uint64_t send_queue(uint64_t requests, uint64_t segments, uint64_t inlined)
{
    uint64_t gathered = 16 * segments, carried = up_to(4 + inlined, 16);
    uint64_t request = up_to(192 + (gathered > carried ? gathered : carried), 64);
    return power_of_two(requests * request);
}

/* One SGE each. */
static uint64_t receive_queue(uint64_t receives)
{
    return power_of_two(receives) * 16;
}

/* ---- A client's receives ---- */

static uint32_t receives(const struct rme_link *l)
{
    return l->rxq.posted + l->rxq.held;
}

/* Makes a link on the active side, in its initial state. */
static struct rme_link *asked_for(void)
{
    const struct rme rme = {.caps = &rig.rail->caps};
    struct rme_link *l;
    assert_int_equal(ib_rx_open(rig.rail), 0);
    l = ib_link_new(rig.rail);
    assert_non_null(l);
    rdma_create_id(rig.f->cm, &l->id, l, RDMA_PS_TCP);
    ib_link_state_set(l, IB_ROUTING);
    assert_int_equal(ib_qp_create(l), 0);
    assert_int_equal(ib_rx_reserve(l, rme_grant_ask(&rme)), 0);
    assert_int_equal(ib_rx_post(rig.rail, l), 0);
    ib_link_state_set(l, IB_UP);
    return l;
}

/* Receives a message, whose buffer the engine returns, and sends one. */
static void message(struct rme_link *l)
{
    const struct ib_rx *rx = list_first(&l->rxq.at_device, struct ib_rx, entry);
    struct rme_event e;
    assert_non_null(rx);
    rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_RECV, rx->generation, rx->index),
                           .opcode = IBV_WC_RECV,
                           .byte_len = 16});
    assert_int_equal(rig_poll(&e, 1), 1);
    assert_int_equal(e.type, RME_EV_RECV);
    ib_rx_return(rig.rail, e.rx);
    ib_flush(rig.rail);
}

/* Checks that as many receives are posted as the peer may use, not counting those that wait to
 * be posted. */
static void check_promise(const struct rme_link *l)
{
    assert_true(l->rxq.posted + l->rxq.held - l->rxq.chained >= l->rxq.advertised);
}

/* A client's link posts only the few receives that it advertises. With the usual number it has
 * some more, to post several at a time. */
static void used_client_link_posts_more_receives(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    struct rme_link *l = asked_for();
    uint32_t first = receives(l);
    assert_int_equal(first, 4);
    rig.nrecv = 0;
    for (unsigned i = 0; i < 24; i++) {
        message(l);
        check_promise(l);
        assert_int_equal(receives(l), first);
    }
    assert_int_equal(rig.nrecv, 24);
    assert_int_equal(ib_rx_reserve(l, 4), 0);
    ib_flush(rig.rail);
    assert_int_equal(receives(l), 16);
    uint64_t doorbells = rig.stats.value[RME_C_RECV_DOORBELLS];
    for (unsigned i = 0; i < 27; i++) {
        message(l);
        check_promise(l);
    }
    assert_int_equal(rig.stats.value[RME_C_RECV_DOORBELLS] - doorbells, 3);
    assert_int_equal(receives(l), 16);
    rig_close();
}

/* ---- The table ---- */

struct row {
    const char *what;
    uint64_t server, client;
};

static void print(const struct row *row, struct row *sum)
{
    printf("%-52s %6llu %6llu\n", row->what, (unsigned long long)row->server,
           (unsigned long long)row->client);
    sum->server += row->server;
    sum->client += row->client;
}

static void idle_connection_takes_little_memory(void **state)
{
    const struct rme_option_row *const tables[] = {rme_engine_options};
    struct rme_options *engine = rme_options_new(tables, 1);
    struct row sum = {"all", 0, 0};
    (void)state;
    assert_non_null(engine);
    rig_open(NULL, 16, 256);
    struct ib_rail *rail = rig.rail;
    uint64_t sends = (uint64_t)ib_option(rail, "sq_depth") + 1,
             receiving = (uint64_t)rail->dev.rq_depth + 1,
             buffer = up_to((uint64_t)rme_option(engine, "rx_size") + RME_WIRE_HEADER_SIZE, 64);
    /* a server's connections share their receives, and begin with one; a client's has the
     * minimum for a request (grant.c), and no more (rx.c) */
    uint64_t own = receives(asked_for());
    const struct row rows[] = {
        {"the device: send queue",
         send_queue(sends, IB_SGE_MAX, (uint64_t)ib_option(rail, "max_inline")),
         send_queue(sends, IB_SGE_MAX, (uint64_t)ib_option(rail, "max_inline"))},
        {"the device: receive queue, or its place in the shared one", receive_queue(1),
         receive_queue(receiving)},
        {"receive buffers", buffer, own * buffer},
        {"  and what is known of each", sizeof(struct ib_rx), own * sizeof(struct ib_rx)},
        {"the link (bmi_ib/link.h) and its chains",
         sizeof(struct rme_link) + 4 * sizeof(void *),
         sizeof(struct rme_link) + 4 * sizeof(void *)},
        {"the peer (common/transport/peer.h)", sizeof(struct rme_peer),
         sizeof(struct rme_peer)},
        {"what the protocols have with it (common/proto/proto.h)",
         sizeof(struct rme_peer_proto), sizeof(struct rme_peer_proto)},
    };
    printf("%-52s %6s %6s\n", "bytes", "server", "client");
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        print(&rows[i], &sum);
    print(&sum, &(struct row){.what = NULL});
    assert_in_range(sum.server, 1, 16 * KIB);
    assert_in_range(sum.client, 1, 32 * KIB);
    rig_close();
    rme_options_free(engine);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_connection_takes_little_memory),
        cmocka_unit_test(used_client_link_posts_more_receives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
