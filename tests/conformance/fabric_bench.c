/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fabric_bench.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/addr_int.h"
#include "../fabric/loop.h"

#define PATIENCE_MS 10000

struct host server, client;

static void log_line(void *arg, enum rme_log_level level, const char *format, ...)
{
    va_list list;

    (void)arg;
    if (level > RME_LOG_WARN && !lane_env("CONFORMANCE_VERBOSE", 0))
        return;
    va_start(list, format);
    fputs("# ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
}

static void host_open(struct host *h, const char *listen)
{
    const struct rme_option_row *tables[] = {rme_engine_options, lane.ops->options};
    char why[256] = "";

    memset(h, 0, sizeof *h);
    h->seen = calloc(BENCH_EVENTS, sizeof *h->seen);
    assert_non_null(h->seen);
    h->options = rme_options_new(tables, lane.ops->options ? 2 : 1);
    assert_non_null(h->options);
    if (rme_options_parse(h->options, lane_options(listen != NULL), why, sizeof why))
        fail_msg("%s", why);
    if (listen)
        assert_int_equal(rme_addr_parse(lane.ops->scheme, listen, &h->listen), 0);
    struct rme_fabric_config config = {
        .listen = h->listen,
        .rx_size = BENCH_RX_SIZE,
        .options = h->options,
        .stats = &h->stats,
        .log = log_line,
    };
    lane_settle(listen);
    assert_int_equal(lane.ops->open(&config, &h->f), 0);
}

static void host_close(struct host *h)
{
    lane.ops->close(h->f);
    if (h->listen)
        rme_addr_put(h->listen);
    rme_options_free(h->options);
    free(h->seen);
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
    host_close(&client);
    host_close(&server);
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

static void note(struct host *h, const struct rme_event *e)
{
    assert_true(h->nseen < BENCH_EVENTS);
    struct bench_event *seen = &h->seen[h->nseen++];
    *seen = (struct bench_event){.type = e->type,
                                 .link = e->link,
                                 .owner = e->owner,
                                 .error = e->error,
                                 .imm = e->imm,
                                 .rdma_op = e->rdma_op,
                                 .closed = e->closed,
                                 .length = e->length};
    if (e->type == RME_EV_RECV)
        memcpy(seen->data, e->data,
               e->length < sizeof seen->data ? e->length : sizeof seen->data);
    else if (e->hello)
        memcpy(seen->data, e->hello,
               e->hello_length < sizeof seen->data ? e->hello_length : sizeof seen->data);
    if (e->type == RME_EV_RECV && h->keep_rx)
        seen->rx = e->rx;
}

static void answer(struct host *h, const struct rme_event *e)
{
    const char *hello = h->hello ? h->hello : "welcome";

    if (h->reject)
        lane.ops->link_reject(e->link, hello, strlen(hello) + 1);
    else
        assert_int_equal(lane.ops->link_accept(e->link, hello, strlen(hello) + 1, BENCH_RX, h),
                         0);
}

void bench_poll(struct host *h)
{
    struct rme_event events[7] = {{0}}; /* fields that a type does not have stay */
    int n = lane.ops->poll(h->f, events, 7);

    assert_in_range(n, 0, 7);
    for (int i = 0; i < n; i++) {
        const struct rme_event *e = &events[i];
        note(h, e);
        if (e->type == RME_EV_LINK_REQUEST)
            answer(h, e);
        else if (e->type == RME_EV_LINK_UP)
            h->link = e->link;
        else if (e->type == RME_EV_RECV && !h->keep_rx)
            lane.ops->rx_return(h->f, e->rx);
    }
    lane.ops->flush(h->f);
}

int bench_count(const struct host *h, enum rme_event_type type)
{
    int count = 0;

    for (int i = 0; i < h->nseen; i++)
        count += h->seen[i].type == type;
    return count;
}

struct bench_event *bench_event(struct host *h, enum rme_event_type type, int n)
{
    for (int i = 0; i < h->nseen; i++)
        if (h->seen[i].type == type && n-- == 0)
            return &h->seen[i];
    fail_msg("no such event");
    return NULL;
}

void bench_until(struct host *h, enum rme_event_type type, int count)
{
    int64_t end = lane_now() + PATIENCE_MS;

    while (bench_count(h, type) < count) {
        if (lane_now() > end)
            fail_msg("%d events of type %d did not come within %d s", count, (int)type,
                     PATIENCE_MS / 1000);
        bench_poll(&server);
        bench_poll(&client);
    }
}

void bench_idle(void)
{
    for (int i = 0; i < 300; i++) {
        bench_poll(&server);
        bench_poll(&client);
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
    int client_downs = bench_count(&client, RME_EV_LINK_DOWN),
        server_downs = bench_count(&server, RME_EV_LINK_DOWN);

    if (!client_downs)
        lane.ops->link_disconnect(client.link, -ESHUTDOWN);
    bench_until(&client, RME_EV_LINK_DOWN, 1);
    bench_until(&server, RME_EV_LINK_DOWN, server_downs ? server_downs : 1);
    lane.ops->link_free(client.link);
    lane.ops->link_free(server.link);
}

void *bench_tx(struct host *h)
{
    int64_t end = lane_now() + PATIENCE_MS;
    void *tx;

    while (!(tx = lane.ops->tx_get(h->link))) {
        assert_true(lane_now() < end);
        lane.ops->flush(h->f);
        bench_poll(h);
    }
    return tx;
}

void bench_send(struct host *h, const char *text)
{
    char *tx = bench_tx(h);

    strcpy(tx, text);
    lane.ops->tx_send(h->link, tx, strlen(text) + 1);
}

uint64_t bench_mw_bind(struct host *h, const struct rme_mr *mr, void *base, size_t length,
                       unsigned access, struct rme_range *range)
{
    struct rme_range other = {.base = base, .length = length, .rkey = mr->rkey};

    *range = other;
    if (!lane.ops->caps(h->f)->mws)
        return range->key =
                   lane.ops->link_key ? lane.ops->link_key(h->link, mr->rkey) : mr->rkey;
    assert_int_equal(lane.ops->mw_bind(h->link, range, 1, access), 0);
    /* Requests complete in order: once a second window is closed, the first is open. */
    assert_int_equal(lane.ops->mw_bind(h->link, &other, 1, access), 0);
    bench_mw_invalidate(h, &other);
    return range->key;
}

void bench_mw_invalidate(struct host *h, struct rme_range *range)
{
    if (!lane.ops->caps(h->f)->mws)
        return;
    lane.ops->mw_invalidate(h->link, range, 1, range);
    lane.ops->flush(h->f);
    bench_until(h, RME_EV_MW_INVALIDATED, 1);
    assert_ptr_equal(bench_event(h, RME_EV_MW_INVALIDATED, 0)->closed, range);
    bench_forget();
}
