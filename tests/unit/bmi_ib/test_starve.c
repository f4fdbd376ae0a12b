/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unresponsive peers' links hold all send buffers: which of them end. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include "rig.h"
#include "tests/lib/clock.h"

#define MUTE  8 /* links that hold all buffers */
#define LOOKS 8 /* checks within STUCK_MS of tx.c */

static struct rme_link *mute[MUTE], *good;

/* Makes a link that sends `messages` messages, or as many as it may. */
static struct rme_link *mute_link(int messages)
{
    struct rme_link *l = rig_link();
    for (void *tx; messages-- > 0 && (tx = ib_tx_get(l));)
        ib_tx_send(l, tx, 300);
    ib_flush(rig.rail);
    return l;
}

/* Uses up all buffers: some links send as much as they may, others take the rest and need no
 * more. */
static void fill(void)
{
    good = rig_link();
    for (int i = 0; i < MUTE; i++)
        mute[i] = mute_link(INT_MAX);
    while (rig.rail->tx.nfree)
        mute_link(1);
    assert_int_equal(rig.rail->tx.nfree, 0);
}

/* Lets the next check of the links become due. */
static void look(void)
{
    struct rme_event event[16];
    rig.rail->tx.check_at = 0;
    for (int n = rig_poll(event, 16); n-- > 0;)
        assert_int_equal(event[n].type, RME_EV_TX_ROOM);
}

static int ended(void)
{
    int n = 0;
    for (int i = 0; i < MUTE; i++)
        n += mute[i]->state != IB_UP;
    return n;
}

/* Completes the link's first signalled request, as if the peer received some. */
static void take(struct rme_link *l)
{
    for (uint32_t at = l->ring.tail + 1; at != l->ring.head + 1; at++)
        for (unsigned i = 0; i < rig.nposted; i++)
            if (rig.posted[i].wr_id == ib_wr_id(IB_WR_SEND, at & IB_POSITION_MASK, l->handle) &&
                rig.posted[i].flags & IBV_SEND_SIGNALED) {
                ib_rdma_op_completed(l, at & IB_POSITION_MASK);
                ib_flush(rig.rail);
                return;
            }
    fail_msg("nothing is to complete");
}

/* Links without a buffer find one even if others want many; the latter get no further ones. */
static void link_without_buffer_gets_one(void **state)
{
    (void)state;
    rig_open(NULL, 16, 0);
    rig_buffers(128);
    good = rig_link();
    for (int i = 0; i < MUTE; i++)
        mute[i] = mute_link(INT_MAX);
    assert_int_equal(mute[0]->tx_held, 16);
    for (int i = 0; i < 10; i++) {
        struct rme_link *l = i % 2 ? rig_link() : good;
        void *tx = ib_tx_get(l);
        assert_non_null(tx);
        ib_tx_put(l, tx);
        assert_null(ib_tx_get(mute[MUTE - 1]));
    }
    rig_close();
}

/* For each returned buffer one waiting link is notified, in turn. */
static void waiting_links_notified_in_turn(void **state)
{
    struct rme_event event[16];
    void *kept[2];
    (void)state;
    rig_open(NULL, 128, 0);
    rig_buffers(128);
    rig.rail->tx.per_link = 128;
    good = rig_link();
    for (int i = 0; i < 2; i++)
        assert_non_null(kept[i] = ib_tx_get(good));
    for (int i = 0; i < 3; i++)
        mute[i] = mute_link(i < 2 ? 30 : INT_MAX);
    assert_int_equal(rig.rail->tx.nfree, rig.rail->tx.kept_free);
    for (int i = 0; i < 3; i++)
        assert_null(ib_tx_get(mute[i]));
    struct rme_link *first = list_first(&rig.rail->tx_waiters, struct rme_link, room_entry);
    struct rme_link *second = list_next(first, &rig.rail->tx_waiters, room_entry);
    ib_tx_put(good, kept[0]);
    assert_int_equal(rig_poll(event, 16), 1);
    assert_int_equal(event->type, RME_EV_TX_ROOM);
    assert_ptr_equal(event->link, first);
    void *tx = ib_tx_get(first);
    assert_non_null(tx);
    assert_null(ib_tx_get(first));
    ib_tx_put(good, kept[1]);
    assert_int_equal(rig_poll(event, 16), 1);
    assert_ptr_equal(event->link, second);
    ib_tx_put(first, tx);
    rig_close();
}

/* Stuck links end one after the other while others lack buffers, which get theirs. */
static void stuck_link_ends(void **state)
{
    struct rme_event room;
    (void)state;
    rig_open(NULL, 16, 0);
    rig_buffers(160);
    rig.rail->tx.per_link = 16;
    fill();
    for (int i = 0; i < 3 * LOOKS; i++)
        look(); /* no link lacks a buffer */
    assert_int_equal(ended(), 0);
    assert_null(ib_tx_get(good));
    /* a sleep is limited to the next check */
    assert_in_range(ib_link_deadline(rig.f), 0, 20000 / LOOKS);
    for (int i = 0; i <= LOOKS; i++) {
        look();
        assert_int_equal(ended(), i == LOOKS);
    }
    assert_int_equal(mute[0]->state, IB_DRAINING);
    assert_int_equal(mute[0]->error, -ETIMEDOUT);
    assert_non_null(strstr(rig.lines, "accepted nothing"));
    rig_drain(mute[0]);
    assert_int_equal(rig_count(RME_EV_TX_ROOM, &room), 1);
    assert_ptr_equal(room.link, good);
    for (int i = 0; i < 16; i++) {
        void *tx = ib_tx_get(good);
        assert_non_null(tx);
        ib_tx_put(good, tx);
    }
    assert_int_equal(ib_link_deadline(rig.f), -1);
    for (int i = 0; i < LOOKS; i++)
        look();
    assert_int_equal(ended(), 1); /* no link lacks a buffer */
    rig_close();
}

/* A link with progress between two of several checks stays, in any state of the others. */
static void slow_link_stays(void **state)
{
    (void)state;
    rig_open(NULL, 16, 0);
    rig_buffers(160);
    rig.rail->tx.per_link = 16;
    fill();
    assert_null(ib_tx_get(good));
    for (int i = 0; i < 6 * LOOKS; i++) {
        for (int k = 0; i % (LOOKS - 1) == 0 && k < MUTE; k++) {
            void *tx;
            take(mute[k]);
            while ((tx = ib_tx_get(mute[k]))) /* keeps sending as much as it may */
                ib_tx_send(mute[k], tx, 300);
            ib_flush(rig.rail);
        }
        look();
        assert_int_equal(ended(), 0);
    }
    rig_close();
}

/* Idle links stay: their unsignalled requests may hold buffers. So do links without buffers, or
 * with much less than their share. */
static void idle_link_stays(void **state)
{
    (void)state;
    rig_open(NULL, 16, 0);
    rig_buffers(160);
    rig.rail->tx.per_link = 16;
    struct rme_link *idle = rig_link();
    ib_tx_send(idle, ib_tx_get(idle), 300);
    ib_flush(rig.rail);
    assert_int_equal(idle->tx_unsignalled, 1);
    fill();
    assert_null(ib_tx_get(good));
    for (int i = 0; i < 3 * LOOKS; i++)
        look();
    assert_int_equal(idle->state, IB_UP);
    assert_int_equal(good->state, IB_UP);
    assert_int_equal(ended(), MUTE);
    rig_close();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_without_buffer_gets_one),
        cmocka_unit_test(waiting_links_notified_in_turn),
        cmocka_unit_test(stuck_link_ends),
        cmocka_unit_test(slow_link_stays),
        cmocka_unit_test(idle_link_stays),
    };
    return cmocka_run_group_tests(tests, clock_setup, NULL);
}
