/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Many links: the cost of an event on one link does not depend on their number, and each gets
 * its own events. */
#include <errno.h>
#include <string.h>
#include "../common/steps.h"
#include "rig.h"

enum { FEW = 8, MANY = 400 };

static struct rme_link *link_at[MANY];

/* ---- Cost per event ---- */

/* Polls without work for any link. */
static void look(void *arg)
{
    struct rme_event event[4];
    (void)arg;
    ib_link_timers(rig.f);
    (void)ib_link_deadline(rig.f);
    (void)rig_poll(event, 4);
}

/* Delivers one event. */
static void deliver_one(void *arg)
{
    struct rme_event event;
    (void)arg;
    assert_int_equal(rig_poll(&event, 1), 1);
}

/* Removes the first link and inserts another. */
static void come_and_go(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        rme_table_take(&rig.rail->table, &link_at[i]->by_handle);
        list_del_init(&link_at[i]->all_entry);
        ib_link_enter(link_at[i], rig.rail);
    }
}

/* Makes n links that have lost their peer and wait for the device. */
static void lose(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        link_at[i] = rig_link();
        ib_link_fail(link_at[i], -ECONNRESET, true);
    }
}

/* Makes n links whose QPs are destroyed, and which were not reported to the engine. */
static void end(unsigned n)
{
    lose(n);
    for (unsigned i = 0; i < n; i++) {
        ib_link_drained(link_at[i], IB_DRAIN_ALL);
    }
    struct rme_event event;
    assert_int_equal(rig_poll(&event, 1), 1);
}

/* Makes n links. */
static void all_there(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        link_at[i] = rig_link_in(IB_NAMING);
}

static const struct {
    const char *what;
    void (*prepare)(unsigned n);
    void (*act)(void *arg);
} costs[] = {
    {"a look while links drain", lose, look},
    {"an event of one of the links that are down", end, deliver_one},
    {"a link that comes", all_there, come_and_go},
};

static long cost(unsigned which, unsigned n)
{
    rig_open(NULL, 16, 256);
    costs[which].prepare(n);
    long steps = steps_of(costs[which].act, NULL);
    rig_close();
    return steps;
}

static void one_costs_the_same_among_many(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
        cost(i, FEW); /* resolve symbols, which happens at the first call */
        long few = cost(i, FEW), many = cost(i, MANY);
        if (few == 0)
            skip();
        if (many > 2 * few)
            fail_msg("%s: %ld instructions among %d, %ld among %d", costs[i].what, many, MANY,
                     few, FEW);
    }
}

/* ---- Order ---- */

/* A stale handle finds nothing, also after the handles were counted through. */
static void names_rest(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    struct rme_link *first = rig_link_in(IB_NAMING), *second = rig_link_in(IB_NAMING);
    uint32_t gone = second->handle;
    ib_link_free(second);
    assert_null(ib_link_by_handle(rig.rail, gone));
    rig.rail->last_handle = UINT32_MAX;
    for (uint32_t i = 0; i < 100; i++) {
        struct rme_link *l = rig_link_in(IB_NAMING);
        assert_int_not_equal(l->handle, 0);
        assert_ptr_not_equal(l, first);
        assert_ptr_equal(ib_link_by_handle(rig.rail, l->handle), l);
    }
    assert_ptr_equal(ib_link_by_handle(rig.rail, first->handle), first);
    rig_close();
}

/* Links that were lost in one order end when their own completions come. */
static void each_drains_by_itself(void **state)
{
    static const unsigned order[] = {3, 1, 4, 0}; /* 2 is freed while it drains */
    struct rme_event down;
    struct rme_link *l[5];
    (void)state;
    rig_open(NULL, 16, 256);
    for (unsigned i = 0; i < 5; i++)
        l[i] = rig_link();
    for (unsigned i = 0; i < 5; i++)
        ib_link_fail(l[i], -ECONNRESET, true);
    assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
    assert_in_range(ib_link_deadline(rig.f), 1, 600000);
    ib_link_free(l[2]);
    for (unsigned i = 0; i < 4; i++) {
        if (i < 3) {
            rig_drain(l[order[i]]);
        } else {
            rme_timer_set(&rig.f->timers, &l[0]->timer, 0);
            ib_link_timers(rig.f);
        }
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
        assert_ptr_equal(down.link, l[order[i]]);
    }
    assert_int_equal(ib_link_deadline(rig.f), -1);
    rig_close();
}

/* Delivers the same event for n links at once: each poll handles one, which adds one to
 * *what. */
static void one_at_a_look(struct rme_link **l, unsigned n, enum rdma_cm_event_type type,
                          const unsigned *what)
{
    struct rdma_cm_event event[FEW];
    assert_in_range(n, 1, FEW);
    for (unsigned i = 0; i < n; i++)
        event[i] = (struct rdma_cm_event){.id = l[i]->id, .event = type};
    rig.pending = event;
    rig.behind = n - 1;
    unsigned begin = *what;
    for (unsigned i = 1; i <= n; i++) {
        ib_cm_events(rig.f);
        assert_int_equal(*what - begin, i);
        /* so the next poll follows at once */
        assert_true(atomic_load(&rig.f->hint) & IB_HINT_CM);
    }
    assert_null(rig.pending);
}

/* With many links that come and go at once a poll creates, stops or destroys one QP, to bound
 * the delay of messages. */
static void one_qp_op_in_a_poll(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    struct rme_link *l[FEW];
    for (unsigned i = 0; i < FEW; i++)
        l[i] = rig_link_in(IB_ROUTING);
    one_at_a_look(l, FEW, RDMA_CM_EVENT_ROUTE_RESOLVED, &rig.qps);
    for (unsigned i = 0; i < FEW; i++)
        assert_int_equal(l[i]->state, IB_CONNECTING);
    one_at_a_look(l, FEW, RDMA_CM_EVENT_CONNECT_ERROR, &rig.errors_set);

    for (unsigned i = 0; i < FEW; i++) {
        ib_link_drained(l[i], IB_DRAIN_ALL);
    }
    struct rme_event event[FEW];
    unsigned gone = rig.qps_gone, downs = 0;
    for (unsigned polls = 0; downs < FEW; polls++) {
        unsigned before = rig.qps_gone;
        assert_in_range(polls, 0, 2 * FEW);
        if (before - gone < FEW)
            assert_int_equal(ib_link_deadline(rig.f), 0); /* no sleep while work is left */
        int n = rig_poll(event, FEW);
        assert_in_range(rig.qps_gone - before, 0, 1);
        for (int i = 0; i < n; i++) {
            assert_int_equal(event[i].type, RME_EV_LINK_DOWN);
            ib_link_free(event[i].link);
            downs++;
        }
    }
    assert_int_equal(rig.qps_gone - gone, FEW);
    rig_close();
}

/* ---- Receive queues ---- */

/* Ends n links. */
static void leave(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        ib_link_fail(link_at[i], -ECONNRESET, true);
        ib_link_drained(link_at[i], IB_DRAIN_ALL);
    }
    for (unsigned i = first; i < first + n; i++)
        ib_link_free(link_at[i]);
}

/* Makes links with 8 posted receives each. */
static void come(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        link_at[i] = rig_link();
        ib_link_dirty(link_at[i]);
    }
    ib_flush(rig.rail);
}

/* Returns the wr_id of the link's first posted receive. */
static uint64_t receive_of(const struct rme_link *l)
{
    const struct ib_rx *rx = list_first(&l->rxq.at_device, struct ib_rx, entry);
    return ib_wr_id(IB_WR_RECV, rx->generation, rx->index);
}

/* Checks that completions of a receive change no buffer. */
static void is_late(uint64_t wr_id)
{
    struct rme_event event[4];
    uint32_t nfree = rig.rail->rx.nfree, posted = rig.rail->rxq.posted;
    rig_wc((struct ibv_wc){.wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR});
    rig_wc((struct ibv_wc){.wr_id = wr_id, .opcode = IBV_WC_RECV, .byte_len = 1});
    assert_int_equal(rig_poll(event, 4), 0);
    assert_int_equal(rig.rail->rx.nfree, nfree);
    assert_int_equal(rig.rail->rxq.posted, posted);
}

/* Slabs are freed with the links, in any order; remaining links keep theirs. Late completions
 * for a freed slab match no buffer of the next one. */
static void slabs_go_back_with_links(void **state)
{
    enum { STAY = MANY / 4 };
    static uint64_t of[MANY];
    const unsigned used = STAY * 8 / IB_SLAB; /* by the remaining links */
    (void)state;
    rig_open(NULL, 16, 256);
    rig.rail->cq.size = 1 << 20;
    for (unsigned round = 0; round < 3; round++) {
        unsigned mrs = rig.mrs;
        come(0, MANY);
        for (unsigned i = 0; i < MANY; i++)
            of[i] = receive_of(link_at[i]);
        assert_int_equal(rig.rail->rx.nslab, MANY * 8 / IB_SLAB);
        leave(STAY, MANY - STAY);
        assert_in_range(rig.rail->rx.nslab, used, used + used / 4 + 1);
        assert_in_range(rig.mrs, 1, mrs + used + used / 4 + 1);
        come(STAY, STAY); /* in former places */
        for (unsigned i = STAY; i < MANY; i++)
            is_late(of[i]);
        for (unsigned i = 0; i < 2 * STAY; i++) {
            assert_int_equal(link_at[i]->state, IB_UP);
            assert_int_equal(link_at[i]->rxq.posted - link_at[i]->rxq.chained, 8);
        }
        leave(0, 2 * STAY);
        assert_int_equal(rig.rail->rx.nslab, 1);
        assert_int_equal(rig_count(RME_EV_RECV, NULL), 0);
    }
    rig_close();
}

/* A shared queue that cannot be replaced when its links have left stays, with its receives. One
 * that is replaced gets no late completion of the old one. */
static void srq_that_cannot_be_replaced_stays(void **state)
{
    struct ibv_srq_init_attr attr = {.attr.max_wr = 8 * MANY + 64};
    (void)state;
    rig_open("srq=on", 16, 256);
    struct ib_rail *rail = rig.rail;
    attr.srq_context = rail;
    rail->srq = ibv_create_srq(rail->dev.pd, &attr);
    rail->srq_depth = 8 * MANY + 64;
    rail->cq.size = 1 << 20;
    for (unsigned round = 0; round < 3; round++) {
        const struct ibv_srq *old = rail->srq;
        come(0, MANY);
        const struct ib_rx *rx = rail->rx.slab[0]->rx;
        uint64_t late = ib_wr_id(IB_WR_RECV, rx->generation, rx->index);
        assert_true(rx->posted);
        rig.fail_srq = round == 0;
        rig.srq_in_use = round == 1 ? old : NULL;
        leave(0, MANY);
        assert_int_equal(rig.srqs, 1);
        assert_int_equal(rail->srq == old, round < 2);
        if (round < 2)
            assert_in_range(rail->rxq.posted, MANY * 8, MANY * 8 + rail->rx_slack);
        else
            is_late(late);
        rig.fail_srq = false;
    }
    assert_int_equal(rail->rxq.posted, rail->rxq.chained);
    ibv_destroy_srq(rail->srq);
    rail->srq = NULL;
    rig_close();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_costs_the_same_among_many),
        cmocka_unit_test(names_rest),
        cmocka_unit_test(each_drains_by_itself),
        cmocka_unit_test(one_qp_op_in_a_poll),
        cmocka_unit_test(slabs_go_back_with_links),
        cmocka_unit_test(srq_that_cannot_be_replaced_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
