/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ends of a sleep: pending events of links end one; remains of a failed device do not. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "bmi_ib/bmi_ib.h"
#include "base/addr_int.h"
#include "bmi_ib/rail.h"
#include "rig.h"

/* The last event is fetched, and no further one is armed once the QPs are destroyed. */
static void events_of_a_dead_device_are_fetched(void **state)
{
    (void)state;
    struct rme_event down;
    rig_open(NULL, 16, 256);
    struct ib_rail *rail = rig.rail;
    struct rme_link *l = rig_link();
    assert_int_equal(bmi_ib_fabric()->arm(rig.f), 0);
    assert_int_equal(rig.arms, 1);
    struct ibv_async_event fatal = {.event_type = IBV_EVENT_DEVICE_FATAL};
    rig.async = &fatal;
    ib_async_events(rail);
    assert_int_equal(l->state, IB_DRAINING);
    /* the first flushed completion; further ones are waited for, too */
    rig.comp_events = 1;
    assert_int_equal(bmi_ib_fabric()->arm(rig.f), 0);
    assert_int_equal(rig.comp_events, 0);
    assert_int_equal(rig.arms, 2);
    rig_drain(l);
    rig.comp_events = 1;
    assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(bmi_ib_fabric()->arm(rig.f), 0);
    assert_int_equal(rig.comp_events, 0);
    assert_int_equal(rig.arms, 2);
    ib_link_free(down.link);
    rig_close();
}

/* If arming a dead device failed, the host would poll without sleeping. */
static void dead_device_may_refuse_arming(void **state)
{
    (void)state;
    rig_open(NULL, 16, 256);
    rig.fail_arm = true;
    assert_true(bmi_ib_fabric()->arm(rig.f) < 0);
    rig_link();
    rig.rail->dev.dead = true;
    ib_link_fail_all(rig.rail, -ENODEV, "failed");
    assert_int_equal(bmi_ib_fabric()->arm(rig.f), 0);
    assert_false(rig.rail->cq.armed);
    rig_close();
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Like the descriptors of a removed device: a pipe without a reader is in error, and never
 * readable. */
static void descriptors_in_error_are_left(void **state)
{
    int broken[2][2], other[2], kept[2];
    (void)state;
    rig_open(NULL, 16, 256);
    struct rme_fabric *f = rig.f;
    struct ib_rail *rail = rig.rail;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(broken[i]), 0);
        close(broken[i][0]);
    }
    assert_int_equal(pipe(other), 0);
    kept[0] = rail->comp->fd;
    kept[1] = rail->dev.ctx->async_fd;
    rail->comp->fd = broken[0][1];
    rail->dev.ctx->async_fd = broken[1][1];
    f->sleep_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_true(f->sleep_fd >= 0);
    assert_int_equal(ib_wait_watch(rail), 0);
    assert_int_equal(ib_wait_add(f, other[0], IB_HINT_CM), 0);
    assert_true(is_readable(f->sleep_fd));
    ib_wait(f, 0);
    assert_int_equal(atomic_load(&f->hint), IB_HINT_ASYNC(0)); /* checked once */
    assert_false(is_readable(f->sleep_fd));
    assert_int_equal(write(other[1], "", 1), 1); /* other descriptors end a sleep as before */
    assert_true(is_readable(f->sleep_fd));
    close(f->sleep_fd);
    for (int i = 0; i < 2; i++) {
        close(broken[i][1]);
        close(other[i]);
    }
    rail->comp->fd = kept[0];
    rail->dev.ctx->async_fd = kept[1];
    rig_close();
}

/*
 * A link that is dropped after the last poll before a sleep, for example by a timer, or during
 * the sleep: no descriptor of the device reports it, so the fabric ends the sleep. Events found
 * by polls need no such wake-up.
 */
static void unreported_event_ends_sleep(void **state)
{
    (void)state;
    for (int step = IB_NAMING; step <= IB_ROUTING; step++) {
        struct rme_event down;
        rig_open(NULL, 16, 256);
        struct rme_link *up = rig_link_in(IB_CONNECTING), *l = rig_link_in(step);
        struct rdma_cm_event come = {.event = RDMA_CM_EVENT_ESTABLISHED, .id = up->id};
        rig.pending = &come;
        atomic_fetch_or(&rig.f->hint, IB_HINT_CM);
        assert_int_equal(rig_count(RME_EV_LINK_UP, NULL), 1);
        assert_false(is_readable(rig.f->wake_fd));
        ib_link_disconnect(l, -ETIMEDOUT);
        assert_true(is_readable(rig.f->wake_fd));
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
        assert_int_equal(down.error, -ETIMEDOUT);
        ib_link_free(l);
        ib_link_free(up);
        rig_close();
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
    (void)state;
    rig_open(NULL, 16, 256);
    struct ib_rail *rail = rig.rail, *other = ib_rail_new(rig.f);
    assert_non_null(other);
    other->slab = rail->slab;
    other->caps = rail->caps;
    other->dev = rail->dev;
    other->cq = rail->cq;
    other->comp = rail->comp;
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
    assert_true(is_readable(rig.f->wake_fd));
    assert_int_equal(bmi_ib_fabric()->poll(rig.f, event, 16), 1);
    assert_int_equal(event[0].type, RME_EV_LINK_DOWN);
    ib_link_free(l);
    rme_addr_put(addr);
    rail->own = other->own = NULL;
    rail->owns = other->owns = 0;
    ib_rx_close(other);
    ib_rail_drop(rig.f);
    rig_close();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_of_a_dead_device_are_fetched),
        cmocka_unit_test(dead_device_may_refuse_arming),
        cmocka_unit_test(descriptors_in_error_are_left),
        cmocka_unit_test(unreported_event_ends_sleep),
        cmocka_unit_test(link_end_on_polled_rail_ends_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
