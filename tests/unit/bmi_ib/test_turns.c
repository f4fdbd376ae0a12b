/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which of several rails a connection begins with, and what it takes along to another one. */
#include <errno.h>
#include "rig.h"

/* A rail beside the rig's: like it, without links. */
static struct rme_fabric *open_two(void)
{
    struct rme_fabric *other = calloc(1, sizeof(*other));

    assert_non_null(other);
    rig_open(NULL, 16, 256);
    *other = *rig.f;
    other->slots = NULL;
    other->nslots = 0;
    other->number = 1;
    TAILQ_INIT(&other->links);
    rig.f->rail[rig.f->rails++] = other;
    other->railed = rig.f->railed = true;
    return other;
}

static void close_two(struct rme_fabric *other)
{
    rig.f->rails = 1;
    rig.f->railed = false;
    free(other->slots);
    free(other);
    rig_close();
}

/* A rail without a port gets no connection while the other has one, and some again later. */
static void ports_go_down_and_come_back(void **state)
{
    unsigned first;
    (void)state;
    struct rme_fabric *other = open_two(), *f = rig.f;
    struct ibv_async_event lost = {.element.port_num = 1, .event_type = IBV_EVENT_PORT_ERR};
    struct ibv_async_event back = {.element.port_num = 1, .event_type = IBV_EVENT_PORT_ACTIVE};
    f->dev.attr.phys_port_cnt = 1;
    rig.port_down = true;
    rig.async = &lost;
    ib_async_events(f);
    assert_true(f->dev.down);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(ib_rail_first(f, &first), other);
    other->dev.dead = true; /* better one that may come back */
    assert_ptr_equal(ib_rail_first(f, &first), f);
    other->dev.dead = false;
    rig.port_down = false;
    rig.async = &back;
    ib_async_events(f);
    assert_false(f->dev.down);
    assert_ptr_equal(ib_rail_first(f, &first), other); /* in turn again */
    assert_ptr_equal(ib_rail_first(f, &first), f);
    f->dev.dead = true;
    assert_ptr_equal(ib_rail_first(f, &first), other);
    other->dev.dead = true;
    assert_null(ib_rail_first(f, &first));
    f->dev.dead = false;
    close_two(other);
}

/* A link whose promise another rail cannot keep comes up nowhere. */
static void a_promise_goes_along_or_the_link_ends(void **state)
{
    (void)state;
    struct rme_fabric *other = open_two(), *f = rig.f;
    struct rme_link *l = ib_link_new(f);
    assert_int_equal(ib_rx_reserve(l, 20), 0);
    assert_int_equal(ib_link_move(l, other), 0);
    assert_ptr_equal(l->f, other);
    assert_int_equal(l->rx_promised, 20);
    assert_true(TAILQ_EMPTY(&f->links));
    f->dev.rq_depth = 10;
    assert_int_equal(ib_link_move(l, f), -ENOSPC);
    assert_ptr_equal(l->f, f);
    struct addrinfo address = {.ai_family = AF_INET};
    l->addresses = &address;
    assert_false(ib_rail_next(l));
    l->addresses = NULL;
    ib_link_destroy(l);
    close_two(other);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_go_down_and_come_back),
        cmocka_unit_test(a_promise_goes_along_or_the_link_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
