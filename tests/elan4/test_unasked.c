/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests for reads that the network interface gives up because the peer's does not accept
 * them; the emulation does so after a few retries, set before its first call. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/clock.h"
#include "tests/elan4/sides.h"

#define FOR_EVER "elan_quarantine_ms=600000"

enum { READS = 100 };

/* The read never completes: its link ends, and the message behind it is not sent. */
static void read_not_asked_for_ends_the_link(void **state)
{
    static uint8_t here[READS], there[READS];
    static struct rme_sge seg[READS];
    static struct rme_rdma_seg piece[READS];
    struct side server, client;
    struct rme_mr mr;

    (void)state;
    open_pair(&server, &client, FOR_EVER, FOR_EVER);
    assert_int_equal(ops->reg(server.f, there, READS, RME_ACCESS_REMOTE_READ, &mr), 0);
    for (int i = 0; i < READS; i++) {
        seg[i] = (struct rme_sge){here + i, 1, 0};
        piece[i] = (struct rme_rdma_seg){(uintptr_t)there + (size_t)i, mr.rkey, &seg[i], 1};
    }
    struct rme_rdma_op x = {.read = true,
                            .piece = piece,
                            .npiece = READS,
                            .bytes = READS,
                            .notify = RME_NOTIFY_MSG,
                            .tx = ops->tx_get(client.link),
                            .tx_length = 4000};
    memset(x.tx, 'n', 4000);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 1), 0);
    ops->rdma_op(client.link, &x);
    ops->flush(client.f);
    while (list_empty(&client.link->moves) ||
           !*list_first(&client.link->moves, struct elan_move, next)->unasked)
        poll_side(&client);
    assert_int_equal(elan4_block_inputter(server.f->nic->ctx, 0), 0);
    while (client.count[RME_EV_LINK_DOWN] == 0) {
        pass(&client, 1000);
        poll_side(&server);
    }
    until(&server, &client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(client.error, -ETIMEDOUT);
    assert_int_equal(client.count[RME_EV_RDMA_DONE], 0);
    assert_int_equal(server.count[RME_EV_RECV], 0);
    assert_int_equal(atomic_load(&client.f->nic->traps), 0);
    close_both(&client, &server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(read_not_asked_for_ends_the_link)};

    setenv("EMUELAN4_STEN_RETRIES", "3", 1);
    return cmocka_run_group_tests(tests, sides_set_up, sides_tear_down);
}
