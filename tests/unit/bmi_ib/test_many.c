/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Many links: the cost of an event on one link does not depend on their number, and each gets
 * its own events. */
#include <errno.h>
#include <string.h>
#include "../common/steps.h"
#include "rig.h"

enum { FEW = 8, MANY = 400 };

static struct rme_link *link_at[MANY];

/* Opens a server with shared receives, on a device that reports the last receive of a QP. */
static void open_server(void)
{
    static struct ibv_srq srq;
    rig_open("srq=on", 16, 256);
    srq.context = rig.rail->dev.ctx;
    rig.rail->srq = &srq;
    rig.rail->srq_depth = 8 * MANY + 64;
    rig.rail->dev.attr.vendor_id = 1;
}

/* Returns the shared queue's receives before it is destroyed. */
static void take_all_back(void)
{
    struct ib_rail *rail = rig.rail;
    struct rme_event event;
    assert_int_equal(ib_rx_post(rail, NULL), 0);
    for (uint32_t s = 0; s < rail->rx.slabs; s++)
        for (uint32_t i = 0; rail->rx.slab[s] && i < rail->slab; i++)
            if (rail->rx.slab[s]->rx[i].posted) {
                rig_wc((struct ibv_wc){.wr_id = rail->rx.slab[s]->rx[i].wr.wr_id,
                                       .status = IBV_WC_WR_FLUSH_ERR});
                assert_int_equal(rig_poll(&event, 1), 0);
            }
}

static void close_server(void)
{
    while (!list_empty(&rig.rail->links))
        ib_link_destroy(list_first(&rig.rail->links, struct rme_link, all_entry));
    take_all_back();
    rig.rail->srq = NULL;
    rig_close();
}

static void mark_send(struct rme_link *l)
{
    rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, l->handle),
                           .status = IBV_WC_WR_FLUSH_ERR,
                           .qp_num = l->qp->qp_num});
}

static void last_receive(struct rme_link *l)
{
    struct ibv_async_event e = {.element.qp = l->qp,
                                .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};
    rig.async = &e;
    ib_async_events(rig.rail);
}

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
    open_server();
    costs[which].prepare(n);
    long steps = steps_of(costs[which].act, NULL);
    close_server();
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

static struct rme_link *next_down(void)
{
    struct rme_event event[8];
    for (int polls = 0; polls < 4; polls++)
        if (rig_poll(event, 8)) {
            assert_int_equal(event[0].type, RME_EV_LINK_DOWN);
            return event[0].link;
        }
    return NULL;
}

/* Links that were lost in one order end when their own completions come. */
static void each_drains_by_itself(void **state)
{
    (void)state;
    open_server();
    struct rme_link *l[5];
    for (unsigned i = 0; i < 5; i++)
        l[i] = rig_link();
    for (unsigned i = 0; i < 5; i++)
        ib_link_fail(l[i], -ECONNRESET, true);
    assert_null(next_down());
    mark_send(l[3]);
    mark_send(l[1]);
    struct rme_event event;
    assert_int_equal(rig_poll(&event, 1), 0);
    assert_in_range(ib_link_deadline(rig.f), 1, 600000);
    last_receive(l[1]);
    assert_ptr_equal(next_down(), l[1]);
    last_receive(l[3]);
    assert_ptr_equal(next_down(), l[3]);
    last_receive(l[4]);
    mark_send(l[4]);
    assert_ptr_equal(next_down(), l[4]);
    ib_link_free(l[1]);
    ib_link_free(l[2]); /* while it drains */
    rme_timer_set(&rig.f->timers, &l[0]->timer, 0);
    ib_link_timers(rig.f);
    assert_ptr_equal(next_down(), l[0]);
    assert_int_equal(ib_link_deadline(rig.f), -1);
    assert_null(next_down());
    close_server();
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

/* ---- Receive queues per link ---- */

/* Disconnects the peers of n links; the device reports their last receives if it supports
 * that. */
static void leave(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        ib_link_fail(link_at[i], -ECONNRESET, true);
        ib_link_drained(link_at[i], IB_DRAIN_ALL);
    }
    for (unsigned i = first; i < first + n; i++)
        ib_link_free(link_at[i]);
}

static void open_own(void)
{
    rig_open(NULL, 16, 256);
    rig.rail->cq.size = 1 << 20;
}

static struct rme_link *receiving(void)
{
    struct rme_link *l = rig_link();
    ib_link_dirty(l);
    ib_flush(rig.rail);
    assert_int_equal(l->rxq.posted, 8);
    assert_int_equal(l->rxq.chained, 0);
    return l;
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
    static uint64_t of[MANY];
    struct rme_event event[4];
    (void)state;
    open_own();
    struct ib_rail *rail = rig.rail;
    const unsigned used = MANY / 4 * 8 / IB_SLAB; /* by the remaining links */
    for (unsigned round = 0; round < 3; round++) {
        unsigned mrs = rig.mrs;
        for (unsigned i = 0; i < MANY; i++) {
            link_at[i] = receiving();
            of[i] = receive_of(link_at[i]);
        }
        assert_int_equal(rail->rx.nslab, MANY * 8 / IB_SLAB);
        leave(MANY / 4, MANY - MANY / 4);
        assert_in_range(rail->rx.nslab, used, used + used / 4 + 1);
        assert_in_range(rig.mrs, 1, mrs + used + used / 4 + 1);
        for (unsigned i = 0; i < MANY / 4; i++)
            link_at[MANY / 4 + i] = receiving(); /* in former places */
        for (unsigned i = MANY / 4; i < MANY; i++)
            is_late(of[i]);
        for (unsigned i = 0; i < MANY / 2; i++) {
            assert_int_equal(link_at[i]->state, IB_UP);
            assert_int_equal(link_at[i]->rxq.posted, 8);
            assert_int_equal(link_at[i]->rxq.chained, 0);
        }
        leave(0, MANY / 2);
        assert_int_equal(rail->rx.nslab, 1);
        assert_in_range(rig.mrs, 1, mrs + 1);
        while (rig_poll(event, 4))
            ;
    }
    rig_close();
}

/* Buffers that the engine holds after their link is freed keep their slab, which is freed with
 * the last of them. */
static void held_buffers_keep_their_slab(void **state)
{
    struct rme_event event[MANY];
    (void)state;
    open_own();
    struct ib_rail *rail = rig.rail;
    for (unsigned i = 0; i < MANY; i++) {
        link_at[i] = receiving();
        rig_wc((struct ibv_wc){.wr_id = receive_of(link_at[i]),
                               .opcode = IBV_WC_RECV,
                               .byte_len = 5,
                               .qp_num = link_at[i]->qp->qp_num});
        assert_int_equal(rig_poll(&event[i], 1), 1);
    }
    leave(0, MANY);
    assert_int_equal(rail->rx.nslab, MANY * 8 / IB_SLAB); /* each has a held buffer */
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(event[i].type, RME_EV_RECV);
        memset((void *)(uintptr_t)event[i].data, 0xff, event[i].length);
        ib_rx_return(rail, event[i].rx);
    }
    assert_int_equal(rail->rx.nslab, 1);
    rig_close();
}

static void come(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        link_at[i] = rig_link(); /* each is promised 8 */
    ib_flush(rig.rail);
}

/* Returns the wr_id of a receive in the shared queue. */
static uint64_t posted_one(void)
{
    const struct ib_rx *rx = rig.rail->rx.slab[0]->rx;
    while (!rx->posted)
        rx++;
    return ib_wr_id(IB_WR_RECV, rx->generation, rx->index);
}

/*
 * A shared queue that held receives for many links is replaced when all have left, and late
 * completions of the old one match no buffer. A queue that served few stays, and so does one
 * that cannot be replaced.
 */
static void srq_replaced_after_all_links_left(void **state)
{
    struct rme_event event[4];
    (void)state;
    rig_open("srq=on", 16, 256);
    struct ib_rail *rail = rig.rail;
    struct ibv_srq_init_attr attr = {.srq_context = rail};
    rail->srq = ibv_create_srq(rail->dev.pd, &attr);
    rail->srq_depth = 8 * MANY + 64;
    rail->cq.size = 1 << 20;
    unsigned mrs = rig.mrs;
    for (unsigned round = 0; round < 3; round++) {
        const struct ibv_srq *old = rail->srq;
        unsigned made = rig.srqs_made;
        come(MANY);
        assert_in_range(rail->rx.nslab, MANY * 8 / IB_SLAB, MANY * 8 / IB_SLAB + 2);
        uint64_t late = posted_one();
        leave(0, MANY - 1);
        assert_ptr_equal(rail->srq, old);
        rig.fail_srq = round == 1;
        rig.srq_in_use = round == 2 ? old : NULL;
        leave(MANY - 1, 1);
        rig.fail_srq = false;
        rig.srq_in_use = NULL;
        assert_int_equal(rig.srqs, 1);
        if (round == 0) {
            assert_int_equal(rig.srqs_made, made + 1);
            assert_int_equal(rail->rxq.posted, rail->rxq.chained);
            assert_in_range(rail->rx.nslab, 1, 2);
            assert_in_range(rig.mrs, 1, mrs + 2);
            is_late(late);
        } else {
            assert_ptr_equal(rail->srq, old);
            assert_in_range(rail->rxq.posted, MANY * 8, MANY * 8 + rail->rx_slack);
        }
        while (rig_poll(event, 4))
            ;
    }
    come(1);
    leave(0, 1); /* of the remaining ones */
    assert_int_equal(rig.srqs, 1);
    unsigned made = rig.srqs_made;
    assert_in_range(rail->rx.nslab, 1, 2);
    come(1);
    leave(0, 1);
    assert_int_equal(rig.srqs_made, made);
    take_all_back();
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
        cmocka_unit_test(srq_replaced_after_all_links_left),
        cmocka_unit_test(held_buffers_keep_their_slab),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
