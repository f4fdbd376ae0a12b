/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A peer of several addresses: which is tried, and for how long. */
#include <errno.h>
#include "rig.h"

/* A name with three addresses: each is tried in turn until the peer itself answers. */
static void addresses_are_tried_in_turn(void **state)
{
    (void)state;
    for (int answer = 0; answer < 2; answer++) {
        struct rme_event down;
        rig_open(NULL, 16, 256);
        struct rme_link *l = rig_link_in(IB_CONNECTING);
        struct addrinfo *list = NULL, **tail = &list;
        for (int i = 0; i < 3; i++, tail = &(*tail)->ai_next)
            assert_int_equal(ib_resolve_numeric("127.0.0.1", "20500", tail), 0);
        l->addresses = l->address = list;
        for (int i = 0; i < 3; i++) {
            if (i)
                rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
            if (i)
                rig_cm(l, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
            assert_int_equal(l->state, IB_CONNECTING);
            rig_cm(l, RDMA_CM_EVENT_REJECTED, answer && i == 1 ? 28 : 8, "no", 3);
            rig_drain(l);
            int downs = rig_count(RME_EV_LINK_DOWN, &down);
            assert_int_equal(downs, i == 2 || (answer && i == 1));
            if (downs)
                break;
        }
        assert_int_equal(down.error, answer ? -EACCES : -ECONNREFUSED);
        assert_int_equal(rig.connected, answer ? 1 : 2);
        ib_link_free(l);
        rig_close();
    }
}

/* Of several addresses each has its time, whatever it does not answer, and the last all there
 * is. */
static void a_silent_address_is_left(void **state)
{
    (void)state;
    for (int step = IB_ADDRESSING; step <= IB_CONNECTING; step++) {
        struct rme_event down;
        rig_open("way_timeout_ms=600000", 16, 256);
        struct rme_link *l = rig_link_in(IB_CONNECTING);
        struct addrinfo *list = NULL, **tail = &list;
        for (int i = 0; i < 3; i++, tail = &(*tail)->ai_next)
            assert_int_equal(ib_resolve_numeric("127.0.0.1", "20500", tail), 0);
        l->addresses = l->address = list;
        rig_cm(l, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
        rig_drain(l);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
        assert_ptr_equal(l->address, list->ai_next);
        assert_true(l->on_way);
        if (step >= IB_ROUTING)
            rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
        if (step == IB_CONNECTING)
            rig_cm(l, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
        assert_int_equal(l->state, step);
        assert_in_range(ib_link_deadline(rig.f), 1, 600000);
        ib_link_timers(rig.f);
        assert_int_equal(l->state, step);

        l->way_end = 0;
        assert_int_equal(ib_link_deadline(rig.f), 0);
        ib_link_timers(rig.f);
        if (step == IB_CONNECTING) {
            assert_int_equal(l->state, IB_DRAINING);
            rig_drain(l);
        }
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
        assert_ptr_equal(l->address, list->ai_next->ai_next);
        assert_false(l->on_way);
        assert_int_equal(ib_link_deadline(rig.f), -1);
        rig_cm(l, RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH, NULL, 0);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
        assert_int_equal(down.error, -EHOSTUNREACH);
        ib_link_free(l);
        rig_close();
    }
}

/* A link that comes up, or is given up, waits for no other way. */
static void no_way_is_left_behind(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++) {
        rig_open("way_timeout_ms=600000", 16, 256);
        struct rme_link *l = rig_link_in(IB_CONNECTING);
        struct addrinfo *list = NULL, **tail = &list;
        for (int i = 0; i < 2; i++, tail = &(*tail)->ai_next)
            assert_int_equal(ib_resolve_numeric("127.0.0.1", "20500", tail), 0);
        l->addresses = l->address = list;
        ib_link_way(l, true);
        assert_true(l->on_way);
        if (what == 0) {
            rig_cm(l, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
        } else if (what == 1) {
            ib_link_disconnect(l, -ECANCELED);
            rig_drain(l);
            assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 1);
        }
        ib_link_free(l);
        assert_true(TAILQ_EMPTY(&rig.f->ways));
        rig_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_tried_in_turn),
        cmocka_unit_test(a_silent_address_is_left),
        cmocka_unit_test(no_way_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
