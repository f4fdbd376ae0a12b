/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a connection that is up and idle takes, with the options as they are: our structures,
 * and what a device of mlx5's kind locks for its queues.  The table is printed; its sums are
 * held to.
 */
#include <stdio.h>
#include "proto/talk.h"
#include "rig.h"
#include "transport/peer.h"
#include "wire/wire.h"

#define KIB 1024u

/* ---- mlx5, as its part of rdma-core computes it ---- */

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

/* The longest headers of a request are those that bind a window. */
static uint64_t send_queue(uint64_t requests, uint64_t segments, uint64_t inlined)
{
    uint64_t gathered = 16 * segments, carried = up_to(4 + inlined, 16);
    uint64_t request = up_to(192 + (gathered > carried ? gathered : carried), 64);
    return power_of_two(requests * request);
}

/* One segment each. */
static uint64_t receive_queue(uint64_t receives)
{
    return power_of_two(receives) * 16;
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

static void an_idle_connection_takes_little(void **state)
{
    const struct rme_option_row *const tables[] = {rme_engine_options};
    struct rme_options *engine = rme_options_new(tables, 1);
    struct row sum = {"all", 0, 0};
    (void)state;
    assert_non_null(engine);
    rig_open(NULL, 16, 256);
    struct rme_fabric *f = rig.f;
    uint64_t sends = (uint64_t)ib_option(f, "sq_depth") + 1,
             receives = (uint64_t)ib_option(f, "rq_depth") + 1,
             buffer = up_to((uint64_t)rme_option(engine, "rx_size") + RME_WIRE_HEADER_SIZE, 64);
    /* a server's connections share their receives, and have one at first (grant.c); a client's
     * has those that it promises, and some more that wait to be posted (rx.c) */
    uint64_t promised = (uint64_t)rme_option(engine, "credits"), own = promised + 8;
    const struct row rows[] = {
        {"the device: send queue",
         send_queue(sends, (uint64_t)ib_option(f, "max_sge"),
                    (uint64_t)ib_option(f, "max_inline")),
         send_queue(sends, (uint64_t)ib_option(f, "max_sge"),
                    (uint64_t)ib_option(f, "max_inline"))},
        {"the device: receive queue, or its place in the shared one", receive_queue(1),
         receive_queue(receives)},
        {"receive buffers", buffer, own * buffer},
        {"  and what is known of each", sizeof(struct ib_rx), own * sizeof(struct ib_rx)},
        {"the link (bmi_ib/link.h), its slot and its hash",
         sizeof(struct rme_link) + sizeof(struct ib_link_slot) + 2 * sizeof(void *),
         sizeof(struct rme_link) + sizeof(struct ib_link_slot) + 2 * sizeof(void *)},
        {"its ring of requests (bmi_ib/ring.h)", power_of_two(sends) * sizeof(struct ib_slot),
         power_of_two(sends) * sizeof(struct ib_slot)},
        {"the peer (common/transport/peer.h)", sizeof(struct rme_peer),
         sizeof(struct rme_peer)},
        {"what the protocols have with it (common/proto/talk.h)", sizeof(struct rme_talk),
         sizeof(struct rme_talk)},
    };
    printf("%-52s %6s %6s\n", "bytes", "server", "client");
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        print(&rows[i], &sum);
    print(&sum, &(struct row){.what = NULL});
    assert_in_range(sum.server, 1, 16 * KIB);
    assert_in_range(sum.client, 1, 92 * KIB);
    rig_close();
    rme_options_free(engine);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_connection_takes_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
