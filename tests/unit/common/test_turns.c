/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Several peers share the limit of transfers of the process in turn: one that moves much
 * leaves equal shares to the others.
 */
#include <errno.h>
#include <stdio.h>

#include "played.h"

enum {
    PEERS = 4,
    SIZE = 20000, /* by rendezvous, in one transfer */
    SLOTS = 8,    /* transfers of the process, and of one peer */
    MUCH = 40,    /* messages of the peer that moves much */
};

static struct rme_addr *peers[PEERS];
static uint32_t last; /* the peers' last handle */

static void meet(unsigned n)
{
    struct rme_list nothing = {0};
    uint8_t out[RME_HELLO_MAX] = {0};
    struct rme_hello hello = usual;
    char text[32];
    rme_id id;

    snprintf(text, sizeof(text), "ib://other%u:1", n);
    assert_int_equal(rme_addr_parse("ib", text, &peers[n]), 0);
    assert_int_equal(rme_post_unexpected(rme, peers[n], &nothing, 1, 0, NULL, &id), 0);
    hello.credits = 1024;
    rme_hello_encode(&hello, out);
    script_up(n, out, sizeof(out));
    run();
}

static void begin_all(void)
{
    struct rme_hello hello = usual;

    hello.credits = 1024;
    begin(&hello, ",rndv=write,eager_ring_bytes=0,early_cts=0");
    rme->tuning.rdma_ops = rme->tuning.rdma_ops_peer = SLOTS;
    peers[0] = peer;
    for (unsigned n = 1; n < PEERS; n++)
        meet(n);
    last = 1000;
    ended = 0;
}

static void end_all(void)
{
    script_cut();
    run();
    assert_true(list_empty(&rme->movers));
    assert_int_equal(rme->rdma_ops, 0);
    for (unsigned n = 1; n < PEERS; n++)
        rme_addr_free(peers[n]);
    peer = peers[0];
    end();
}

/* Sends messages to a peer, whose memory is open for all of them. */
static rme_id send_to(unsigned n, unsigned count)
{
    rme_id id = 0;

    peer = peers[n];
    for (unsigned i = 0; i < count; i++) {
        id = send_(plain, SIZE, 3);
        SAYS_ON(n, CTS, SIZE, .to = LAST, .from = ++last);
    }
    return id;
}

static uint32_t moves(unsigned n)
{
    return peers[n]->peer->rdma_ops;
}

/* Lets the oldest transfers complete. */
static void finish(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        script_finish(script.rdma_ops - 1);
        run();
        assert_in_range(script.rdma_ops, 0, SLOTS + PEERS);
    }
}

/* All slots are used by one peer; the others get their shares as its transfers end. */
static void shares_of_a_busy_process(void **state)
{
    (void)state;
    begin_all();
    send_to(0, MUCH);
    assert_int_equal(moves(0), SLOTS);
    for (unsigned n = 1; n < PEERS; n++) {
        send_to(n, MUCH / 2);
        assert_int_equal(moves(n), 1); /* despite the limit */
    }
    finish(2 * SLOTS);
    for (unsigned n = 0; n < PEERS; n++)
        assert_int_equal(moves(n), SLOTS / PEERS);
    while (script.rdma_ops != 0)
        finish(1);
    assert_int_equal(ended, MUCH + (PEERS - 1) * (MUCH / 2));
    assert_true(list_empty(&rme->movers));
    end_all();
}

/* A peer alone may use all slots. */
static void no_share_for_those_that_move_nothing(void **state)
{
    (void)state;
    begin_all();
    send_to(1, 2);
    send_to(0, MUCH);
    assert_int_equal(moves(0), SLOTS - 2);
    finish(2); /* of peer 1 */
    assert_int_equal(moves(1), 0);
    assert_int_equal(moves(0), SLOTS);
    end_all();
}

/* Makes peers 1 and 2 wait in this order, each with a transfer in flight. */
static rme_id let_two_wait(void)
{
    rme_id id;

    begin_all();
    send_to(0, MUCH);
    id = send_to(1, 2);
    send_to(2, 2);
    assert_int_equal(moves(1) + moves(2), 2);
    return id;
}

/* The first waiting peer has nothing to move: the second gets its turn. */
static void turn_of_a_cancelled_transfer(void **state)
{
    rme_id id = let_two_wait();

    (void)state;
    assert_int_equal(rme_cancel(rme, id), 0);
    run();
    finish(2 + 1); /* the process is two above its limit */
    assert_int_equal(moves(1), 1);
    assert_int_equal(moves(2), 2);
    end_all();
}

/* Likewise, its link fails. */
static void turn_of_a_lost_link(void **state)
{
    (void)state;
    let_two_wait();
    script_down(1, -ECONNRESET);
    run();
    assert_int_equal(moves(1), 0);
    finish(1 + 1);
    assert_int_equal(moves(2), 2);
    end_all();
}

/* Likewise, it has no credit for the report of its transfer. */
static void turn_of_a_peer_without_credit(void **state)
{
    uint32_t have;

    (void)state;
    let_two_wait();
    have = peers[1]->peer->credit.have;
    peers[1]->peer->credit.have = 0;
    finish(2 + 1);
    assert_int_equal(moves(1), 1);
    assert_int_equal(moves(2), 2);
    peers[1]->peer->credit.have = have;
    end_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_a_busy_process),
        cmocka_unit_test(no_share_for_those_that_move_nothing),
        cmocka_unit_test(turn_of_a_cancelled_transfer),
        cmocka_unit_test(turn_of_a_lost_link),
        cmocka_unit_test(turn_of_a_peer_without_credit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
