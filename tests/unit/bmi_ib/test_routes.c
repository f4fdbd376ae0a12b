/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A peer with several addresses: order and timeout of attempts. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <string.h>
#include "rig.h"

/* Makes a link that connects by the first of several addresses. */
static struct rme_link *link_to(unsigned addresses, const char *host)
{
    struct rme_link *l = rig_link_in(IB_CONNECTING);
    struct addrinfo **tail = &l->addresses;
    for (unsigned i = 0; i < addresses; i++, tail = &(*tail)->ai_next)
        assert_int_equal(ib_resolve_numeric(host, "20500", tail), 0);
    assert_true(ib_rail_next(l));
    return l;
}

/* Each of a name's three addresses is tried in turn until the peer itself answers. */
static void addresses_are_tried_in_turn(void **state)
{
    (void)state;
    for (int answer = 0; answer < 2; answer++) {
        struct rme_event down;
        rig_open(NULL, 16, 256);
        struct rme_link *l = link_to(3, "127.0.0.1");
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

/* Each of several addresses has its timeout, at any step; the last one has the whole time. */
static void silent_address_times_out(void **state)
{
    (void)state;
    for (int step = IB_ADDRESSING; step <= IB_CONNECTING; step++) {
        struct rme_event down;
        rig_open(NULL, 16, 256);
        struct rme_link *l = link_to(3, "127.0.0.1");
        rig_cm(l, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
        rig_drain(l);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
        assert_ptr_equal(l->address, l->addresses->ai_next);
        assert_true(rme_timer_is_set(&l->timer));
        if (step >= IB_ROUTING)
            rig_cm(l, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
        if (step == IB_CONNECTING)
            rig_cm(l, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
        assert_int_equal(l->state, step);
        assert_in_range(ib_link_deadline(rig.f), 1, 600000);
        ib_link_timers(rig.f);
        assert_int_equal(l->state, step);

        rme_timer_set(&rig.f->timers, &l->timer, 0);
        assert_int_equal(ib_link_deadline(rig.f), 0);
        ib_link_timers(rig.f);
        if (step == IB_CONNECTING) {
            assert_int_equal(l->state, IB_DRAINING);
            rig_drain(l);
        }
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 0);
        assert_ptr_equal(l->address, l->addresses->ai_next->ai_next);
        assert_false(rme_timer_is_set(&l->timer));
        assert_int_equal(ib_link_deadline(rig.f), -1);
        rig_cm(l, RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH, NULL, 0);
        assert_int_equal(rig_count(RME_EV_LINK_DOWN, &down), 1);
        assert_int_equal(down.error, -EHOSTUNREACH);
        ib_link_free(l);
        rig_close();
    }
}

/* A link that is up, or dropped, has no pending timeout of an address. */
static void no_route_is_left_behind(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++) {
        rig_open(NULL, 16, 256);
        struct rme_link *l = link_to(2, "127.0.0.1");
        ib_link_route(l);
        assert_true(rme_timer_is_set(&l->timer));
        if (what == 0) {
            rig_cm(l, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
        } else if (what == 1) {
            ib_link_disconnect(l, -ECANCELED);
            rig_drain(l);
            assert_int_equal(rig_count(RME_EV_LINK_DOWN, NULL), 1);
        }
        ib_link_free(l);
        assert_true(rme_timers_next(&rig.f->timers) == UINT64_MAX);
        rig_close();
    }
}

/* ---- The rail's networks ---- */

/* The system's interfaces: addresses, of the rail's interface or another, and masks. */
static struct interface {
    const char *address, *mask;
    bool is_other;
} interfaces[8];
static unsigned ninterfaces;

static struct sockaddr_in ipv4(const char *text)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, text, &sa.sin_addr), 1);
    return sa;
}

int getifaddrs(struct ifaddrs **out)
{
    static struct ifaddrs entry[8];
    static struct sockaddr_in address[8], mask[8];
    for (unsigned i = 0; i < ninterfaces; i++) {
        address[i] = ipv4(interfaces[i].address);
        mask[i] = ipv4(interfaces[i].mask);
        entry[i] = (struct ifaddrs){.ifa_next = i + 1 < ninterfaces ? &entry[i + 1] : NULL,
                                    .ifa_addr = (struct sockaddr *)&address[i],
                                    .ifa_netmask = (struct sockaddr *)&mask[i]};
    }
    *out = ninterfaces ? entry : NULL;
    return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
    (void)all;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *sa)
{
    for (unsigned i = 0; i < ninterfaces; i++) {
        struct sockaddr_in has = ipv4(interfaces[i].address);
        if (memcmp(&has.sin_addr, &((struct sockaddr_in *)sa)->sin_addr, 4) == 0 &&
            interfaces[i].is_other)
            id->verbs = NULL;
    }
    return 0;
}

/* A second rail, whose device is lost. */
static void add_rail(void)
{
    static struct ib_rail lost;
    lost = (struct ib_rail){.fabric = rig.f, .number = 1, .dev.dead = true};
    rig.f->rail[rig.f->rails++] = &lost;
}

static void open_with(const struct interface *have, unsigned n)
{
    rig_open(NULL, 16, 256);
    add_rail();
    memcpy(interfaces, have, n * sizeof(*have));
    ninterfaces = n;
    assert_int_equal(ib_rails_addresses(rig.f), 0);
}

static void close_networks(void)
{
    rig.f->rails = 1;
    free(rig.rail->own);
    rig.rail->own = NULL;
    rig.rail->owns = 0;
    rig_close();
}

static bool is_near(const char *peer)
{
    struct sockaddr_in sa = ipv4(peer);
    return ib_rail_source(rig.rail, (struct sockaddr *)&sa) != NULL;
}

/*
 * A rail address's network is the one of its interface, regardless of other interfaces, and the
 * widest of several. An address of no interface belongs to the narrowest network that contains
 * it.
 */
static void near_is_who_is_in_its_network(void **state)
{
    static const struct interface alone = {"10.1.2.3", "255.255.255.255", false},
                                  narrow = {"10.1.2.3", "255.255.255.0", false},
                                  wide = {"10.9.9.9", "255.0.0.0", true},
                                  middle = {"10.1.9.9", "255.255.0.0", true},
                                  tight = {"10.1.2.9", "255.255.255.128", true};
    const struct interface lanes[][4] = {{alone, narrow, wide, middle},
                                         {wide, middle, narrow, alone},
                                         {middle, narrow, alone, wide}};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        open_with(lanes[i], 4);
        assert_true(is_near("10.1.2.7"));
        assert_false(is_near("10.1.3.7"));
        assert_false(is_near("10.2.2.7"));
        close_networks();
    }
    open_with((const struct interface[]){alone, wide, middle}, 3);
    assert_true(is_near("10.1.2.3"));
    assert_false(is_near("10.1.2.7"));
    close_networks();
    open_with((const struct interface[]){narrow, tight}, 2);
    assert_true(is_near("10.1.2.200"));
    close_networks();

    for (unsigned i = 0; i < 2; i++) { /* a GID without an interface */
        rig_open(NULL, 16, 256);
        rig.gid[rig.ngid++] = (struct ibv_gid_entry){
            .port_num = 1, .gid_index = 0, .gid_type = IBV_GID_TYPE_ROCE_V2};
        assert_int_equal(inet_pton(AF_INET6, "::ffff:10.1.2.4", rig.gid[0].gid.raw), 1);
        add_rail();
        interfaces[i] = wide;
        interfaces[1 - i] = middle;
        ninterfaces = 2;
        assert_int_equal(ib_rails_addresses(rig.f), 0);
        assert_true(is_near("10.1.77.7"));
        assert_false(is_near("10.2.2.7"));
        close_networks();
    }
}

/* With rails the near pairs of addresses are tried, or, without any, those by routes. */
static void near_rails_have_one_route_each(void **state)
{
    static const struct interface net = {"10.1.2.3", "255.255.255.0", false};
    (void)state;
    for (unsigned near = 0; near < 2; near++) {
        open_with(&net, 1);
        struct rme_link *l = link_to(3, near ? "10.1.2.7" : "10.5.5.5");
        l->route_at = 0;
        for (unsigned i = 0; i < 3; i++) {
            assert_true(ib_rail_next(l));
            assert_int_equal(l->bound, near);
            assert_int_equal(ib_rail_more(l), i < 2);
        }
        assert_false(ib_rail_next(l));
        ib_link_free(l);
        close_networks();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_tried_in_turn),
        cmocka_unit_test(silent_address_times_out),
        cmocka_unit_test(no_route_is_left_behind),
        cmocka_unit_test(near_is_who_is_in_its_network),
        cmocka_unit_test(near_rails_have_one_route_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
