/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Order on a link over two devices: notifications and messages arrive as queued, each
 * notification behind its operation's data, whichever device carried the data. Lanes with
 * stripe_bytes=1 stripe every transfer; a slow link makes the test stronger.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric_stripe.h"

#define OPS   48
#define PIECE 16384u
#define PARTS 4u /* transfers per operation */
#define AREA  (PARTS * PIECE)

struct work {
    struct rme_lseg seg[PARTS];
    struct rme_piece piece[PARTS];
    struct rme_xfer xfer[PARTS];
};

static uint8_t value(int op, size_t at)
{
    return (uint8_t)(op * 31 + at * 7 + at / PIECE + 1);
}

static void fill(uint8_t *memory)
{
    for (int op = 0; op < OPS; op++)
        for (size_t i = 0; i < AREA; i++)
            memory[op * AREA + i] = value(op, i);
}

static void check_op(const uint8_t *memory, int op)
{
    for (size_t i = 0; i < AREA; i++)
        if (memory[op * AREA + i] != value(op, i))
            fail_msg("operation %d was told, and its byte %zu was not there", op, i);
}

/* Posts one transfer per part; the last one notifies, by an immediate, or by a message behind
 * reads. */
static void post_op(struct work *w, int op, uint8_t *here, const struct rme_mr *mr,
                    uintptr_t there, uint64_t key, bool read)
{
    for (unsigned i = 0; i < PARTS; i++) {
        size_t at = op * (size_t)AREA + i * PIECE;
        bool last = i + 1 == PARTS;
        w->seg[i] = (struct rme_lseg){here + at, PIECE, mr->lkey};
        w->piece[i] = (struct rme_piece){there + at, key, &w->seg[i], 1};
        w->xfer[i] = (struct rme_xfer){.read = read,
                                       .notify = !last  ? RME_NOTIFY_NONE
                                                 : read ? RME_NOTIFY_MSG
                                                        : RME_NOTIFY_IMM,
                                       .imm = (uint32_t)op,
                                       .piece = &w->piece[i],
                                       .npiece = 1,
                                       .bytes = PIECE};
        if (last && read) {
            w->xfer[i].tx = bench_tx(&client);
            w->xfer[i].tx_length = 1 + (size_t)sprintf(w->xfer[i].tx, "op %d", op);
        }
        lane.ops->xfer(client.link, &w->xfer[i]);
    }
    if (op % 3 == 0) {
        char *tx = bench_tx(&client);
        lane.ops->tx_send(client.link, tx, 1 + (size_t)sprintf(tx, "behind %d", op));
    }
}

/* Checks that the server's next events are the ones queued next. */
static void check_events(int *from, int *op, bool *between, const uint8_t *memory)
{
    for (; *from < server.nseen; ++*from) {
        const struct bench_event *e = &server.seen[*from];
        char expected[32];
        if (e->type != RME_EV_RECV && e->type != RME_EV_IMM)
            continue;
        if (*between) {
            sprintf(expected, "behind %d", *op - 1);
            assert_string_equal(e->data, expected);
            *between = false;
            continue;
        }
        if (e->type == RME_EV_IMM) {
            assert_int_equal(e->imm, *op);
        } else {
            sprintf(expected, "op %d", *op);
            assert_string_equal(e->data, expected);
        }
        check_op(memory, *op);
        *between = *op % 3 == 0;
        ++*op;
    }
}

static void in_order(bool read)
{
    struct rme_mr here_mr, there_mr;
    struct rme_range range;
    int seen = 0, op = 0, posted = 0;
    bool between = false;

    if (!lane_stripes())
        skip();
    struct work *work = calloc(OPS, sizeof(*work));
    uint8_t *here = calloc(OPS, AREA), *there = calloc(OPS, AREA);
    assert_true(work && here && there);
    fill(read ? there : here);
    bench_connect();
    assert_int_equal(
        lane.ops->reg(client.f, here, OPS * AREA, RME_ACCESS_LOCAL_WRITE, &here_mr), 0);
    assert_int_equal(lane.ops->reg(server.f, there, OPS * AREA,
                                   RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE, &there_mr),
                     0);
    uint64_t key =
        bench_expose(&server, &there_mr, there, OPS * AREA,
                     read ? RME_ACCESS_REMOTE_READ : RME_ACCESS_REMOTE_WRITE, &range);
    assert_int_not_equal(key >> 32, 0);
    bench_forget();
    uint64_t before = client.stats.value[RME_C_STRIPED];
    int64_t end = lane_now() + 30000;
    while (op < OPS || between) {
        if (lane_now() > end)
            fail_msg("operation %d of %d was not told within 30 s", op, OPS);
        /* BENCH_RX buffers suffice for all notifications */
        if (posted < OPS && posted < op + 4) {
            post_op(&work[posted], posted, here, &here_mr, (uintptr_t)there, key, read);
            posted++;
            lane.ops->flush(client.f);
        }
        bench_poll(&server);
        check_events(&seen, &op, &between, read ? here : there);
        bench_poll(&client);
    }
    bench_until(&client, RME_EV_XFER_DONE, OPS * PARTS);
    assert_int_equal(bench_count(&client, RME_EV_XFER_DONE), OPS * PARTS);
    /* each device was busy throughout, so each carried about half */
    assert_in_range(client.stats.value[RME_C_STRIPED] - before, OPS * PARTS / 4,
                    OPS * PARTS * 3 / 4);
    bench_forget();
    bench_unexpose(&server, &range);
    bench_disconnect();
    lane.ops->dereg(client.f, &here_mr);
    lane.ops->dereg(server.f, &there_mr);
    free(here);
    free(there);
    free(work);
}

void stripes_are_told_in_order(void **state)
{
    (void)state;
    in_order(false);
}

void striped_reads_are_told_in_order(void **state)
{
    (void)state;
    in_order(true);
}

/* A link that ends midway: one LINK_DOWN as the last event, and no data moves after it. */
void a_striped_link_ends_once(void **state)
{
    struct rme_mr here_mr, there_mr;
    struct rme_range range;

    (void)state;
    if (!lane_stripes())
        skip();
    struct work *work = calloc(OPS, sizeof(*work));
    uint8_t *here = calloc(OPS, AREA), *there = calloc(OPS, AREA), *copy = malloc(OPS * AREA);
    assert_true(work && here && there && copy);
    fill(here);
    for (int round = 0; round < 6; round++) {
        bool by_client = round % 2 == 0;
        bench_connect();
        assert_int_equal(
            lane.ops->reg(client.f, here, OPS * AREA, RME_ACCESS_LOCAL_WRITE, &here_mr), 0);
        assert_int_equal(lane.ops->reg(server.f, there, OPS * AREA,
                                       RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE,
                                       &there_mr),
                         0);
        uint64_t key = bench_expose(&server, &there_mr, there, OPS * AREA,
                                    RME_ACCESS_REMOTE_WRITE, &range);
        bench_forget();
        for (int op = 0; op < 6; op++)
            post_op(&work[op], op, here, &here_mr, (uintptr_t)there, key, false);
        lane.ops->flush(client.f);
        for (int i = 0; i < round; i++)
            bench_poll(i % 2 ? &client : &server);
        lane.ops->link_disconnect(by_client ? client.link : server.link, -ESHUTDOWN);
        bench_until(&client, RME_EV_LINK_DOWN, 1);
        bench_until(&server, RME_EV_LINK_DOWN, 1);
        memcpy(copy, there, OPS * AREA);
        int client_seen = client.nseen, server_seen = server.nseen;
        bench_idle();
        assert_memory_equal(copy, there, OPS * AREA);
        assert_int_equal(client.nseen, client_seen);
        assert_int_equal(server.nseen, server_seen);
        lane.ops->link_free(client.link);
        lane.ops->link_free(server.link);
        lane.ops->dereg(client.f, &here_mr);
        lane.ops->dereg(server.f, &there_mr);
    }
    free(here);
    free(there);
    free(copy);
    free(work);
}
