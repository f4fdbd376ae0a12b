/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fabric_bench.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../fabric/loop.h"

struct wire server, client;

static void host_open(struct wire *w, const char *listen)
{
    lane_settle(listen);
    assert_int_equal(wire_start_over(w, lane.ops, lane_options(listen != NULL), listen), 0);
}

int bench_open(void **state)
{
    (void)state;
    loop_clear();
    host_open(&server, lane_uri(0));
    host_open(&client, NULL);
    return 0;
}

int bench_close(void **state)
{
    struct loop_census census;
    uint64_t rnr = server.stats.value[RME_C_RNR] + client.stats.value[RME_C_RNR];

    (void)state;
    wire_stop(&client);
    wire_stop(&server);
    loop_census(&census);
    assert_int_equal(census.fabrics, 0);
    assert_int_equal(census.links, 0);
    assert_int_equal(census.registrations, 0);
    assert_int_equal(census.mws, 0);
    assert_int_equal(census.rx_held, 0);
    assert_int_equal(census.tx_held, 0);
    assert_int_equal(rnr, census.rnr); /* 0 except in the test that provokes them */
    return 0;
}

void bench_until(struct wire *w, enum rme_event_type type, int count)
{
    time_t end = wire_now() + PATIENCE_S;

    while (wire_count(w, type) < count) {
        if (wire_now() > end)
            fail_msg("%d events of type %d did not come, but %d", count, (int)type,
                     wire_count(w, type));
        wire_poll(&server);
        wire_poll(&client);
    }
}

void bench_idle(void)
{
    for (int i = 0; i < 300; i++) {
        wire_poll(&server);
        wire_poll(&client);
    }
}

void bench_forget(void)
{
    server.nseen = client.nseen = 0;
}

struct rme_link *bench_dial(const char *uri, const char *hello, void *owner)
{
    struct rme_addr *addr;
    struct rme_link *link;

    assert_int_equal(rme_addr_parse(lane.ops->scheme, uri, &addr), 0);
    assert_int_equal(lane.ops->link_connect(client.f, addr, 0, hello, strlen(hello) + 1,
                                            BENCH_RX, owner, &link),
                     0);
    rme_addr_put(addr);
    return link;
}

void bench_connect(void)
{
    bench_forget();
    bench_dial(lane_uri(0), "hello", &client);
    bench_until(&client, RME_EV_LINK_UP, 1);
    bench_until(&server, RME_EV_LINK_UP, 1);
    bench_forget();
}

void bench_disconnect(void)
{
    int client_downs = wire_count(&client, RME_EV_LINK_DOWN),
        server_downs = wire_count(&server, RME_EV_LINK_DOWN);

    if (!client_downs)
        lane.ops->link_disconnect(client.link, -ESHUTDOWN);
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    bench_until(&server, RME_EV_LINK_DOWN, server_downs ? server_downs : 1);
    lane.ops->link_free(client.link);
    lane.ops->link_free(server.link);
}

void *bench_tx(struct wire *w)
{
    time_t end = wire_now() + PATIENCE_S;
    void *tx;

    while ((tx = lane.ops->tx_get(w->link)) == NULL) {
        assert_true(wire_now() < end);
        lane.ops->flush(w->f);
        wire_poll(w);
    }
    return tx;
}

void bench_send(struct wire *w, const char *text)
{
    char *tx = bench_tx(w);

    strcpy(tx, text);
    lane.ops->tx_send(w->link, tx, strlen(text) + 1);
}

uint64_t bench_mw_bind(struct wire *w, const struct rme_mr *mr, void *base, size_t length,
                       unsigned access, struct rme_range *range)
{
    struct rme_range other = {.base = base, .length = length, .rkey = mr->rkey};

    *range = other;
    if (!lane.ops->caps(w->f)->mws)
        return range->key = lane.ops->link_key != NULL ? lane.ops->link_key(w->link, mr->rkey)
                                                       : mr->rkey;
    assert_int_equal(lane.ops->mw_bind(w->link, range, 1, access), 0);
    /* Requests complete in order: once a second window is closed, the first is open. */
    assert_int_equal(lane.ops->mw_bind(w->link, &other, 1, access), 0);
    bench_mw_invalidate(w, &other);
    return range->key;
}

void bench_mw_invalidate(struct wire *w, struct rme_range *range)
{
    if (!lane.ops->caps(w->f)->mws)
        return;
    lane.ops->mw_invalidate(w->link, range, 1, range);
    lane.ops->flush(w->f);
    bench_until(w, RME_EV_MW_INVALIDATED, 1);
    assert_ptr_equal(wire_event(w, RME_EV_MW_INVALIDATED, 0)->closed, range);
    bench_forget();
}
