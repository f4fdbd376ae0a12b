/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Order of rails for new connections, and the move of a link to another rail. */
#include <errno.h>
#include <poll.h>
#include "bmi_ib/bmi_ib.h"
#include "base/addr_int.h"
#include "bmi_ib/rail.h"
#include "rig.h"

/* Adds a rail like the rig's, without links. */
static struct ib_rail *open_two(void)
{
    struct ib_rail *other;

    rig_open(NULL, 16, 256);
    other = ib_rail_new(rig.f);
    assert_non_null(other);
    other->slab = rig.rail->slab;
    other->caps = rig.rail->caps;
    other->dev = rig.rail->dev;
    other->cq = rig.rail->cq;
    other->comp = rig.rail->comp;
    return other;
}

static void close_two(struct ib_rail *other)
{
    ib_links_release(other);
    ib_rx_close(other);
    ib_rail_drop(rig.f);
    rig_close();
}

/* Returns the rail of a new connection to a numeric address, and its error if there is none. */
static struct ib_rail *first_rail(int *error)
{
    struct rme_addr *addr;
    struct rme_link *l;
    assert_int_equal(rme_addr_parse("ib", "ib://127.0.0.1:20500", &addr), 0);
    assert_int_equal(ib_link_connect(rig.f, addr, 0, "", 0, 8, NULL, &l), 0);
    struct ib_rail *rail = l->rail;
    *error = l->error;
    ib_link_free(l);
    rme_addr_put(addr);
    return rail;
}

/* A rail without an active port gets no connections while the other has one; later it gets some
 * again. */
static void ports_go_down_and_come_back(void **state)
{
    int error;
    (void)state;
    struct ib_rail *other = open_two(), *rail = rig.rail;
    struct ibv_async_event lost = {.element.port_num = 1, .event_type = IBV_EVENT_PORT_ERR};
    struct ibv_async_event back = {.element.port_num = 1, .event_type = IBV_EVENT_PORT_ACTIVE};
    rail->dev.attr.phys_port_cnt = 1;
    rig.port_down = true;
    rig.async = &lost;
    ib_async_events(rail);
    assert_true(rail->dev.down);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(first_rail(&error), other);
    other->dev.dead = true; /* better than a dead one, because its port may come back */
    assert_ptr_equal(first_rail(&error), rail);
    other->dev.dead = false;
    rig.port_down = false;
    rig.async = &back;
    ib_async_events(rail);
    assert_false(rail->dev.down);
    assert_ptr_equal(first_rail(&error), other); /* alternates again */
    assert_ptr_equal(first_rail(&error), rail);
    rail->dev.dead = true;
    assert_ptr_equal(first_rail(&error), other);
    assert_int_equal(error, 0);
    other->dev.dead = true;
    (void)first_rail(&error);
    assert_int_equal(error, -ENODEV);
    rail->dev.dead = false;
    close_two(other);
}

/* A link moves without receives; it fails if its rail cannot reserve as many as were asked
 * for. */
static void receives_come_with_the_queue_pair(void **state)
{
    (void)state;
    struct ib_rail *other = open_two(), *rail = rig.rail;
    struct rme_link *l = rig_link_in(IB_ROUTING);
    l->rx_first = 20;
    ib_link_move(l, other);
    assert_ptr_equal(l->rail, other);
    assert_true(list_empty(&rail->links));
    assert_ptr_equal(ib_link_by_handle(other, l->handle), l);
    other->dev.rq_depth = 10;
    rig_cm(l, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
    assert_int_equal(l->state, IB_ENDING);
    assert_int_equal(l->error, -ENOSPC);
    assert_int_equal(l->rx_advertised, 0);
    ib_link_destroy(l);
    close_two(other);
}

/* A link fails on the first of two rails, in each step with a QP, and moves to the other: no
 * list of the first rail keeps the link. */
static void failed_link_leaves_all_rail_lists(void **state)
{
    enum { CONNECT_FAILS, REFUSED, STEPS };
    struct ib_own own = {.mask = {255, 255, 255, 255}};
    struct sockaddr_in *sin = (struct sockaddr_in *)&own.sa;
    (void)state;
    *sin =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int step = 0; step < STEPS; step++) {
        struct ib_rail *other = open_two(), *rail = rig.rail;
        struct rme_addr *addr;
        struct rme_link *l;
        rig.f->turn = 0;
        rail->own = other->own = &own;
        rail->owns = other->owns = 1;
        assert_int_equal(rme_addr_parse("ib", "ib://127.0.0.1:20500", &addr), 0);
        assert_int_equal(ib_link_connect(rig.f, addr, 0, "", 0, 8, NULL, &l), 0);
        rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
        rig.fail_connect = step == CONNECT_FAILS;
        rail->tx.per_link = 0;
        assert_ptr_equal(l->rail, rail);
        rig_cm(l, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
        if (step == REFUSED) {
            assert_null(ib_tx_get(l));
            assert_true(l->want_tx);
            rig_cm(l, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
            ib_link_drained(l, IB_DRAIN_ALL);
            assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
        }
        assert_int_equal(rig.qps_gone, 1);
        assert_ptr_equal(l->rail, other);
        assert_false(l->dirty || l->want_tx || l->events);
        assert_true(list_empty(&rail->links) && list_empty(&rail->dirty) &&
                    list_empty(&rail->tx_waiters) && list_empty(&rail->eventful) &&
                    list_empty(&rail->drained));
        ib_link_free(l);
        rme_addr_put(addr);
        rail->own = other->own = NULL;
        rail->owns = other->owns = 0;
        close_two(other);
    }
}

/* The peer withdraws a request, or its device fails, between the event and the engine's answer:
 * the answer alone fails. */
static void request_withdrawn_before_its_answer(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++) {
        struct rme_event event[16];
        struct rdma_cm_id *id;
        struct ibv_async_event fatal = {.event_type = IBV_EVENT_DEVICE_FATAL};
        rig_open(NULL, 16, 256);
        rdma_create_id(rig.f->cm, &id, NULL, RDMA_PS_TCP);
        struct rdma_cm_event come = {.event = RDMA_CM_EVENT_CONNECT_REQUEST, .id = id};
        rig.pending = &come;
        atomic_fetch_or(&rig.f->hint, IB_HINT_CM);
        assert_int_equal(rig_poll(event, 16), 1);
        assert_int_equal(event[0].type, RME_EV_LINK_REQUEST);
        if (what < 2) {
            rig_cm(event[0].link, RDMA_CM_EVENT_REJECTED, 28, NULL, 0);
        } else {
            rig.async = &fatal;
            ib_async_events(rig.rail);
        }
        assert_int_equal(rig.rail->dev.dead, what >= 2);
        if (what % 2 == 0)
            assert_int_equal(ib_link_accept(event[0].link, "yes", 4, 8, &event), -ECONNRESET);
        ib_link_reject(event[0].link, "no", 3);
        assert_int_equal(rig.accepted + rig.rejected, 0); /* its id is gone */
        assert_int_equal(rig_poll(event, 16), 0);
        rig_close();
    }
}

/* A connection event, of whatever rail, is reported by the poll that reads it. */
static void connection_event_reported_by_same_poll(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < 2; turn++) {
        struct ib_rail *other = open_two();
        struct rme_event event[16];
        struct pollfd wake = {.fd = rig.f->wake_fd, .events = POLLIN};
        struct rme_link *l = ib_link_new(other);
        assert_non_null(l);
        rdma_create_id(rig.f->cm, &l->id, l, RDMA_PS_TCP);
        struct rdma_cm_event come = {.event = RDMA_CM_EVENT_ADDR_ERROR, .id = l->id};
        ib_link_state_set(l, IB_ADDRESSING);
        rig.pending = &come;
        atomic_fetch_or(&rig.f->hint, IB_HINT_CM);
        rig.f->poll_turn = turn;
        assert_int_equal(bmi_ib_fabric()->poll(rig.f, event, 16), 1);
        assert_int_equal(event[0].type, RME_EV_LINK_DOWN);
        assert_int_equal(poll(&wake, 1, 0), 0);
        close_two(other);
    }
}

/* A refused link moves to the other rail, which was polled before in the same round, and ends
 * there: the sleep after this poll ends. */
static void link_end_on_polled_rail_ends_sleep(void **state)
{
    struct ib_own own = {.mask = {255, 255, 255, 255}};
    struct sockaddr_in *sin = (struct sockaddr_in *)&own.sa;
    struct rme_event event[16];
    struct rme_addr *addr;
    struct rme_link *l;
    struct ib_rail *other = open_two(), *rail = rig.rail;
    struct pollfd wake = {.fd = rig.f->wake_fd, .events = POLLIN};
    (void)state;
    *sin =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    rail->own = other->own = &own;
    rail->owns = other->owns = 1;
    assert_int_equal(rme_addr_parse("ib", "ib://127.0.0.1:20500", &addr), 0);
    assert_int_equal(ib_link_connect(rig.f, addr, 0, "", 0, 8, NULL, &l), 0);
    rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
    rig_cm(l, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
    rig_cm(l, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
    ib_link_drained(l, IB_DRAIN_ALL);
    rig.fail_resolve = true;
    rig.f->poll_turn = 0; /* the next poll begins with the other rail */
    assert_int_equal(bmi_ib_fabric()->poll(rig.f, event, 16), 0);
    assert_ptr_equal(l->rail, other);
    assert_int_equal(poll(&wake, 1, 0), 1);
    assert_int_equal(bmi_ib_fabric()->poll(rig.f, event, 16), 1);
    assert_int_equal(event[0].type, RME_EV_LINK_DOWN);
    ib_link_free(l);
    rme_addr_put(addr);
    rail->own = other->own = NULL;
    rail->owns = other->owns = 0;
    close_two(other);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_go_down_and_come_back),
        cmocka_unit_test(receives_come_with_the_queue_pair),
        cmocka_unit_test(failed_link_leaves_all_rail_lists),
        cmocka_unit_test(request_withdrawn_before_its_answer),
        cmocka_unit_test(connection_event_reported_by_same_poll),
        cmocka_unit_test(link_end_on_polled_rail_ends_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
