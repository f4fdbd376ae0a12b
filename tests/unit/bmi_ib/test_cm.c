/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Connection events in every state, and the end of links. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>
#include "bmi_ib/bmi_ib.h"
#include "rig.h"

#define EVENTS 8

static struct rme_event events[EVENTS];

/* Every event in every state: an event that must end the link ends it with one LINK_DOWN (an
 * unanswered request: with the answer), and everything is freed. */
static void every_event_in_every_state(void **state)
{
    (void)state;
    for (int s = IB_ADDRESSING; s <= IB_ENDING; s++)
        for (int type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT;
             type++) {
            if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
                continue;
            rig_open(NULL, 16, 256);
            struct rme_link *l = rig_link_in((enum ib_link_state)s);
            uint32_t handle = l->handle;
            rig_cm(l, (enum rdma_cm_event_type)type, -ETIMEDOUT, "data", 5);
            l = ib_link_by_handle(rig.rail, handle);
            assert_int_equal(rig.acked, 1);
            bool lethal =
                type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_DEVICE_REMOVAL ||
                type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_CONNECT_ERROR ||
                type == RDMA_CM_EVENT_ADDR_ERROR || type == RDMA_CM_EVENT_ROUTE_ERROR ||
                type == RDMA_CM_EVENT_ADDR_CHANGE || type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
                type == RDMA_CM_EVENT_REJECTED; /* also by an active side that has given up */
            if (l != NULL && lethal)
                assert_true(s == IB_REQUESTED ? l->state == IB_DOWN
                                              : l->state == IB_DRAINING ||
                                                    (s >= IB_DRAINED && (int)l->state == s) ||
                                                    l->state == IB_ENDING);
            if (l != NULL && l->state == IB_DRAINING)
                rig_drain(l);
            int downs = rig_count(RME_EV_LINK_DOWN, NULL);
            assert_int_equal(downs, (lethal && s != IB_REQUESTED) || s >= IB_DRAINING);
            if (downs)
                ib_link_free(l);
            else if (s == IB_REQUESTED) {
                if (lethal) /* withdrawn: the answer alone fails */
                    assert_int_equal(ib_link_accept(l, "yes", 4, 8, NULL), -ECONNRESET);
                ib_link_reject(l, "no", 3);
                assert_int_equal(rig.rejected, !lethal);
            }
            rig_close();
        }
}

/* Disconnecting in every state: one LINK_DOWN with the given error, unless the link was lost
 * before. A request is answered instead. */
static void disconnect_in_every_state(void **state)
{
    (void)state;
    for (int s = IB_NAMING; s <= IB_ENDING; s++) {
        struct rme_event down;
        if (s == IB_REQUESTED)
            continue;
        rig_open(NULL, 16, 256);
        struct rme_link *l = rig_link_in((enum ib_link_state)s);
        ib_link_disconnect(l, -ECANCELED);
        ib_link_disconnect(l, -EIO);
        if (l->state == IB_DRAINING)
            rig_drain(l);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
        assert_ptr_equal(down.link, l);
        assert_int_equal(down.error, s >= IB_DRAINING ? -ECONNRESET : -ECANCELED);
        ib_link_free(l);
        rig_close();
    }
}

/* A QP that cannot be stopped is destroyed at once; a device that returns nothing is given up
 * after a timeout. */
static void drains_end_without_the_device(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    rig.fail_modify = true;
    struct rme_link *l = rig_link();
    ib_link_disconnect(l, 0);
    assert_int_equal(ib_link_deadline(rig.f), 0); /* earlier completions are polled first */
    assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 1);
    assert_int_equal(rig.qps_gone, 1);
    ib_link_free(l);
    rig_close();

    rig_open(NULL, 16, 256);
    l = rig_link();
    uint32_t handle = l->handle;
    ib_link_disconnect(l, 0);
    assert_int_equal(rig.qps_gone, 0);
    assert_in_range(ib_link_deadline(rig.f), 0, rig.f->drain_ms);
    rme_timer_set(&rig.f->timers, &l->timer, 0);
    ib_link_timers(rig.f);
    assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 1);
    assert_int_equal(rig.qps_gone, 1);
    assert_int_equal(ib_link_deadline(rig.f), -1);
    ib_link_free(l);
    rig_drain(&(struct rme_link){.handle = handle}); /* late markers, and a late receive */
    rig_wc((struct ibv_wc){
        .wr_id = ib_wr_id(IB_WR_RECV, 1, 0), .status = IBV_WC_SUCCESS, .byte_len = 5});
    rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_SEND, 1, handle), .status = IBV_WC_SUCCESS});
    assert_int_equal(rig_count(RME_EV_RECV, NULL), 0);
    rig_close();
}

/* A refusal has its error, the peer's data, and what to do. */
static void refusals_are_told_apart(void **state)
{
    static const struct {
        int status;
        size_t data;
        int error;
        const char *why;
    } row[] = {
        {28, 10, -EACCES, NULL},
        {28, 0, -EBUSY, "backlog"},
        {8, 0, -ECONNREFUSED, "no server listens there by RDMA"},
        {-ECONNREFUSED, 0, -ECONNREFUSED, "no server listens there by RDMA"},
        {1, 12, -EACCES, NULL},
        {4, 0, -ETIMEDOUT, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct rme_event down;
        rig_open(NULL, 16, 256);
        struct rme_link *l = rig_link_in(IB_CONNECTING);
        rig_cm(l, RDMA_CM_EVENT_REJECTED, row[i].status, "because of that", row[i].data);
        rig_drain(l);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
        assert_int_equal(down.error, row[i].error);
        if (row[i].data)
            assert_memory_equal(down.hello, "because of that", row[i].data);
        assert_true(row[i].why ? strstr(down.why, row[i].why) != NULL : !down.why);
        ib_link_free(l);
        rig_close();
    }
}

/* Continues an attempt that was restarted. */
static void again(struct rme_link *l)
{
    assert_int_equal(l->state, IB_ADDRESSING);
    rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
    rig_cm(l, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
    assert_int_equal(l->state, IB_CONNECTING);
}

/* Delivers a message of 5 bytes by this receive. */
static void message_in(const struct rme_link *l, unsigned index)
{
    struct ib_rx *rx = &rig.rail->rx.slab[index / rig.rail->slab]->rx[index % rig.rail->slab];
    rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_RECV, rx->generation, index),
                           .opcode = IBV_WC_RECV,
                           .byte_len = 5,
                           .qp_num = l->qp->qp_num});
}

/* Returns the index of the n-th posted receive; if there is none, sets n to their number. */
static unsigned posted(unsigned *n)
{
    unsigned seen = 0;
    for (unsigned i = 0; i < rig.rail->rx.slabs * rig.rail->slab; i++)
        if (rig.rail->rx.slab[i / rig.rail->slab] != NULL &&
            rig.rail->rx.slab[i / rig.rail->slab]->rx[i % rig.rail->slab].posted &&
            seen++ == *n)
            return i;
    *n = seen;
    return 0;
}

static unsigned nth_posted(unsigned n)
{
    unsigned wanted = n, index = posted(&n);
    assert_int_equal(wanted, n);
    return index;
}

/* The peer still had a connection with our QP number: the request is repeated at once, a few
 * times. Messages on the connection that succeeds are delivered. */
static void stale_is_asked_again(void **state)
{
    (void)state;
    for (int refusals = 1; refusals <= 6; refusals++) {
        struct rme_event down;
        rig_open(NULL, 16, 256);
        struct rme_link *l = rig_link_in(IB_CONNECTING);
        assert_int_equal(ib_resolve_numeric("127.0.0.1", "20500", &l->addresses), 0);
        assert_true(ib_rail_next(l));
        for (int i = 1; i <= refusals && i <= 5; i++) {
            rig_cm(l, RDMA_CM_EVENT_REJECTED, 10, NULL, 0);
            rig_drain(l);
            assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), i == 5);
            assert_int_equal(rig.resolved_addr, i < 5 ? i : 4);
            if (i < 5)
                again(l);
        }
        if (refusals < 5) {
            rig_cm(l, RDMA_CM_EVENT_ESTABLISHED, 0, "hello", 6);
            struct rme_event e;
            message_in(l, nth_posted(0));
            assert_int_equal(rig_count(RME_EV_RECV, &e), 1);
            ib_rx_return(rig.rail, e.rx);
        } else {
            assert_int_equal(down.error, -ECONNRESET);
        }
        ib_link_free(l);
        rig_close();
    }
}

/* Completions of shared receives of a lost link are polled before its QP is destroyed: the
 * count of receives stays right. */
static void shared_receives_are_not_lost(void **state)
{
    static struct ibv_srq srq;
    (void)state;
    rig_open("srq=on", 16, 256);
    struct ib_rail *rail = rig.rail;
    rail->srq = &srq;
    srq.context = rail->dev.ctx;
    rail->srq_depth = 1024;
    rail->rx_slack = 0;
    rail->dev.attr.vendor_id = 1; /* a device that reports the last receive of a QP */
    struct rme_link *stays = rig_link();
    for (int i = 0; i < 1000; i++) {
        struct rme_link *l = rig_link();
        ib_link_fail(l, -ECONNRESET, true);
        rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, l->handle),
                               .status = IBV_WC_WR_FLUSH_ERR,
                               .qp_num = l->qp->qp_num});
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
        /* two receives of this QP complete before the event that they were its last */
        message_in(l, nth_posted(0));
        message_in(l, nth_posted(1));
        struct ibv_async_event e = {.element.qp = l->qp,
                                    .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};
        rig.async = &e;
        ib_async_events(rail);
        int downs = 0, n;
        while ((n = rig_poll(events, EVENTS)))
            for (int k = 0; k < n; k++) {
                if (events[k].type == RME_EV_RECV)
                    ib_rx_return(rail, events[k].rx);
                downs += events[k].type == RME_EV_LINK_DOWN;
            }
        assert_int_equal(downs, 1);
        ib_link_free(l);
        ib_flush(rail);
        assert_int_equal(rail->rxq.held, 0);
        assert_in_range(rail->rxq.posted, 8, 16);
        unsigned there = UINT_MAX;
        posted(&there);
        assert_int_equal(there, rail->rxq.posted);
        assert_int_equal(there,
                         /* receives really posted at the device */
                         rig.nrecv - 2u * ((unsigned)i + 1));
        assert_int_equal(there + rail->rx.nfree, rail->rx.nslab * rail->slab);
    }
    ib_link_free(stays);
    while (rail->rxq.posted) { /* the shared queue is destroyed */
        unsigned index = nth_posted(0);
        rig_wc((struct ibv_wc){
            .wr_id = rail->rx.slab[index / rail->slab]->rx[index % rail->slab].wr.wr_id,
            .status = IBV_WC_WR_FLUSH_ERR});
        assert_int_equal(rig_poll(events, EVENTS), 0);
    }
    rail->srq = NULL;
    rig_close();
}

/* A device of an unsupported kind is not used; the log gives the reason. */
static void iwarp_is_refused(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    struct ib_rail *rail = rig.rail;
    struct ib_device kept = rail->dev;
    kept.ctx->device->transport_type = IBV_TRANSPORT_IWARP;
    rail->dev = (struct ib_device){.ctx = NULL};
    assert_int_equal(ib_device_list(rig.f), 0);
    assert_int_equal(ib_device_choose(rail, "", NULL), -ENODEV);
    assert_non_null(strstr(rig.lines, "iWARP"));
    kept.ctx->device->transport_type = IBV_TRANSPORT_IB;
    rail->dev = kept;
    rig_close();
}

/* A CQ is sized by the memlock limit, and the processes' CQs are spread over the vectors. */
static void cq_fits_the_budget(void **state)
{
    static const struct {
        uint64_t budget;
        bool fixed; /* the CQ cannot be resized */
        int least, most;
    } row[] = {{1 << 20, false, 1, (1 << 20) / 8 / 64},
               {0, false, 1, 8193},
               {0, true, 1 << 16, 1 << 20},
               {1 << 20, true, 1, (1 << 20) / 8 / 64}};

    (void)state;
    rig_open(NULL, 16, 256);
    struct ib_rail *rail = rig.rail;
    struct ib_cq kept = rail->cq;
    rail->dev.attr.max_cqe = 1 << 22;
    rail->comp = NULL;
    for (int i = 0; i < 4; i++) {
        rail->cq = (struct ib_cq){.cq = NULL};
        rail->config.budget = row[i].budget;
        rail->dev.ctx->num_comp_vectors = 1 << 2 * i;
        rig.fixed_cq = row[i].fixed;
        assert_int_equal(ib_cq_open(rail), 0);
        assert_in_range(rig.cqe, row[i].least, row[i].most);
        assert_int_equal(rig.vector, getpid() % (1 << 2 * i));
        ib_cq_close(rail);
    }
    rail->cq = kept;
    rig_close();
}

/* The first message may come before the event that confirms the connection. */
static void message_before_confirmation(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    struct rme_link *l = rig_link_in(IB_ACCEPTING);
    rig_wc((struct ibv_wc){
        .wr_id = ib_wr_id(IB_WR_RECV, 1, 0), .opcode = IBV_WC_RECV, .byte_len = 5});
    rig_wc((struct ibv_wc){.wr_id = ib_wr_id(IB_WR_RECV, 1, 1),
                           .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                           .imm_data = htonl(9)});
    int n = 0;
    while (n < 3) /* one event at a time, so that all of them wait for room */
        n += rig_poll(&events[n], 1);
    assert_int_equal(events[0].type, RME_EV_LINK_UP);
    assert_int_equal(events[1].type, RME_EV_RECV);
    assert_int_equal(events[1].length, 5);
    assert_int_equal(events[2].type, RME_EV_IMM);
    assert_int_equal(events[2].imm, 9);
    rig_cm(l, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
    assert_int_equal(rig_count(RME_EV_LINK_UP, NULL), 0);
    ib_rx_return(rig.rail, events[1].rx);
    assert_int_equal(l->rxq.posted, 8);
    ib_link_disconnect(l, 0);
    rig_drain(l);
    assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 1);
    ib_link_free(l);
    rig_close();
}

/* CQ space is reserved and returned; the CQ grows to the device's limit, and a link that does
 * not fit fails. */
static void completion_space_is_booked(void **state)
{
    (void)state;
    rig_open("sq_depth=100", 16, 256);
    rig.rail->dev.rq_depth = 255;
    rig.rail->cq.size = rig.rail->dev.attr.max_cqe = 400;
    struct rme_link *a = rig_link(), *b = rig_link();
    assert_int_equal(rig.rail->cq.used, 2 * (100 + 2 + 8));
    assert_int_equal(ib_rx_reserve(a, 56), 0);
    assert_int_equal(rig.rail->cq.used, 2 * (100 + 2 + 8) + 56);
    assert_int_equal(ib_rx_reserve(b, 120), 0);
    assert_int_equal(rig.rail->cq.used, 2 * (100 + 2 + 8) + 56 + 120);
    ib_flush(rig.rail);
    ib_rx_release(b, 120); /* they are posted and may complete */
    assert_int_equal(ib_rx_reserve(b, 120), 0);
    assert_int_equal(rig.rail->cq.used, 2 * (100 + 2 + 8) + 56 + 120);
    assert_int_equal(ib_rx_reserve(a, 5), -ENOSPC);
    assert_int_equal(a->rx_advertised, 64);
    assert_int_equal(a->rxq.posted, 64);
    struct rme_link *c = rig_link_in(IB_ROUTING);
    rig_cm(c, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
    assert_int_equal(c->state, IB_ENDING);
    assert_int_equal(c->error, -ENOSPC);
    rig.rail->dev.attr.max_cqe = 65536;
    assert_int_equal(bmi_ib_fabric()->arm(rig.f), 0);
    assert_int_equal(bmi_ib_fabric()->arm(rig.f), 0);
    assert_int_equal(rig.arms, 1);
    (void)rig_link();
    assert_int_equal(bmi_ib_fabric()->arm(rig.f), 0);
    assert_int_equal(rig.arms, 2); /* the resized CQ is armed again, before the next sleep */
    assert_int_equal(rig.cqe, 1600);
    assert_int_equal(rig.rail->cq.size, 1600);
    rig.rail->dev.rq_depth = rig.rail->rx_slack; /* no room for receives */
    c = rig_link_in(IB_ROUTING);
    rig_cm(c, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
    assert_int_equal(c->error, -ENOSPC);
    assert_non_null(strstr(rig.lines, "start a further server process"));
    rig_close();
}

/* A stale handle finds nothing, also after the handles were counted through. */
static void stale_handle_finds_nothing(void **state)
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

/* Late completions of receives whose buffers were freed match none of those that have taken
 * their place. */
static void late_receive_of_freed_slab_dropped(void **state)
{
    enum { LINKS = 4 * IB_SLAB / 8 };
    static struct rme_link *l[LINKS];
    static uint64_t late[LINKS];

    (void)state;
    rig_open(NULL, 16, 256);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < LINKS; i++)
            l[i] = rig_link();
        for (int i = 0; i < LINKS; i++) {
            const struct ib_rx *rx = list_first(&l[i]->rxq.at_device, struct ib_rx, entry);
            if (round) {
                rig_wc((struct ibv_wc){.wr_id = late[i], .opcode = IBV_WC_RECV});
                assert_int_equal(rig_poll(events, EVENTS), 0);
            }
            late[i] = ib_wr_id(IB_WR_RECV, rx->generation, rx->index);
        }
        for (int i = 0; i < LINKS; i++) {
            assert_int_equal(l[i]->rxq.posted, 8);
            ib_link_fail(l[i], -ECONNRESET, true);
            ib_link_drained(l[i], IB_DRAIN_ALL);
        }
        for (int i = 0; i < LINKS; i++)
            ib_link_free(l[i]);
        assert_int_equal(rig.rail->rx.nslab, 1);
    }
    rig_close();
}

/* A QP that the device has put into the error state takes no message, and may have no request
 * whose completion says so: the event alone ends the link. */
static void last_wqe_event_ends_link(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    struct rme_link *l = rig_link();
    struct ibv_async_event last = {.element.qp = l->qp,
                                   .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};
    rig.async = &last;
    ib_async_events(rig.rail);
    assert_int_equal(l->state, IB_DRAINING);
    assert_int_equal(l->error, -ECONNRESET);
    rig_close();
}

/* The device of a link has failed, and only registration has noticed: memory has no
 * registration for its windows. The link is lost then, and nothing is opened. */
static void memory_of_failed_device_not_opened(void **state)
{
    static uint8_t memory[4096];
    struct rme_event down;
    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        struct ib_keys none = {.mr = {NULL}};
        struct rme_range range = {
            .base = memory, .length = empty ? 0 : 4096, .rkey = (uintptr_t)&none};
        rig_open(NULL, 16, 0);
        rig.rail->caps.mws = 64;
        struct rme_link *l = rig_link();
        assert_int_equal(ib_mw_bind(l, &range, 1, RME_ACCESS_REMOTE_WRITE),
                         empty ? 0 : -EAGAIN);
        assert_int_equal(l->state, empty ? IB_UP : IB_DRAINING);
        if (!empty) {
            rig_drain(l);
            assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
            assert_int_equal(down.error, -ENODEV);
        }
        rig_close();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state),
        cmocka_unit_test(disconnect_in_every_state),
        cmocka_unit_test(drains_end_without_the_device),
        cmocka_unit_test(refusals_are_told_apart),
        cmocka_unit_test(stale_is_asked_again),
        cmocka_unit_test(shared_receives_are_not_lost),
        cmocka_unit_test(iwarp_is_refused),
        cmocka_unit_test(cq_fits_the_budget),
        cmocka_unit_test(message_before_confirmation),
        cmocka_unit_test(completion_space_is_booked),
        cmocka_unit_test(stale_handle_finds_nothing),
        cmocka_unit_test(late_receive_of_freed_slab_dropped),
        cmocka_unit_test(last_wqe_event_ends_link),
        cmocka_unit_test(memory_of_failed_device_not_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
