/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Several devices in one fabric, over the software HCA with two devices: connections are
 * distributed, each moves its data over its own device, and a memory registered once serves
 * all. The argument has options of the fabric; rails.sh sets up the devices and runs each case
 * in its own process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include "bmi_ib/link/links.h"
#include "wire_host.h"

#define SIZE  (1u << 20)
#define LINKS 4

/* Returns the rail of a link, by the first word of its path. */
static int rail_of(const struct wire *w, const struct rme_link *link)
{
    char text[256];
    w->ops->link_path(link, text, sizeof(text));
    assert_non_null(strstr(text, "rails emu0"));
    assert_non_null(strstr(text, "emu1"));
    return strncmp(text, "emu1 ", 5) == 0 ? 1 : 0;
}

/* Reads the server's whole offer over a link, with a local key valid on each rail. */
static void read_over(struct wire *w, struct rme_link *link, uint8_t *here,
                      const struct rme_mr *mr)
{
    struct rme_sge seg = {here, SIZE, mr->lkey};
    struct rme_rdma_seg piece = {w->offer.base, w->offer.rkey, &seg, 1};
    struct rme_rdma_op read = {.read = true, .piece = &piece, .npiece = 1, .bytes = SIZE};
    uint8_t *pattern = malloc(SIZE);
    wire_fill(pattern, SIZE, 5);
    memset(here, 0, SIZE);
    w->nseen = 0;
    w->ops->rdma_op(link, &read);
    wire_until(w, RME_EV_RDMA_DONE, 1);
    assert_memory_equal(here, pattern, SIZE);
    free(pattern);
}

static void large_transfer_uses_both_rails(void **state)
{
    struct wire w;
    struct rme_link *link[LINKS];
    uint8_t *here = malloc(SIZE);
    struct rme_mr mr;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, SIZE);
    int64_t first, second;
    int on[2] = {0, 0};
    (void)state;
    wire_open(&w, NULL);
    assert_int_equal(w.ops->reg(w.f, here, SIZE, RME_ACCESS_LOCAL_WRITE, &mr), 0);
    first = wire_counter("0.1 bytes");
    second = wire_counter("1.1 bytes");
    for (int i = 0; i < LINKS; i++) {
        wire_connect(&w, uri);
        link[i] = w.link;
        on[rail_of(&w, link[i])]++;
        read_over(&w, link[i], here, &mr);
    }
    assert_int_equal(on[0], LINKS / 2);
    assert_int_equal(on[1], LINKS / 2);
    assert_in_range(wire_counter("0.1 bytes") - first, LINKS / 2 * SIZE,
                    LINKS / 2 * SIZE + 4096);
    assert_in_range(wire_counter("1.1 bytes") - second, LINKS / 2 * SIZE,
                    LINKS / 2 * SIZE + 4096);
    for (int i = 0; i < LINKS; i++) { /* receive messages from all of them */
        w.link = link[i];
        assert_true(wire_send(&w, "echo this"));
    }
    w.nseen = 0;
    wire_until(&w, RME_EV_RECV, LINKS);
    for (int i = 0; i < LINKS; i++) {
        w.link = link[i];
        wire_disconnect(&w);
    }
    w.ops->dereg(w.f, &mr);
    free(here);
    wire_close(&w);
    wire_kill(server);
}

/* Reports an echo that did not come in time: whether it was late, its wake-up or itself was
 * lost, or another event came. */
static void not_woken(struct wire *w, int sleeps)
{
    int other = w->nseen;
    struct wire_seen first = w->seen[0];
    if (wire_count(w, RME_EV_RECV) > 0)
        fail_msg("sleep %d: the echo was found, but late", sleeps);
    wire_poll(w);
    if (wire_count(w, RME_EV_RECV) > 0)
        fail_msg("sleep %d: the echo was there, and nothing woke its sleeper", sleeps);
    if (other > 0)
        fail_msg("sleep %d: no echo, but %d other events, first type %d, error %d", sleeps,
                 other, (int)first.type, first.error);
    fail_msg("sleep %d: no echo, and nothing else", sleeps);
}

/* Events of either device wake a sleeper: an echo that comes just before the sleep, and one
 * during it. */
static void event_of_either_rail_wakes(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, SIZE);
    (void)state;
    wire_open(&w, NULL);
    for (int i = 0; i < 2; i++) {
        int sleeps = 0;
        wire_connect(&w, uri);
        for (int k = 0; k < 1000 && sleeps < 10; k++) {
            time_t end = wire_now() + PATIENCE_S;
            w.nseen = 0;
            assert_true(wire_send(&w, k % 2 ? "echo this" : WIRE_LATER));
            w.ops->flush(w.f);
            while (wire_count(&w, RME_EV_RECV) == 0) {
                assert_int_equal(w.ops->arm(w.f), 0);
                wire_poll(&w);
                if (w.nseen == 0) {
                    sleeps++;
                    w.ops->wait(w.f, 10000);
                }
                if (wire_now() >= end)
                    not_woken(&w, sleeps);
            }
        }
        assert_true(sleeps >= 10); /* the last echo may have taken more than one */
        wire_disconnect(&w);
    }
    wire_close(&w);
    wire_kill(server);
}

/* Checks that remains of the device do not end every sleep. */
static void sleeps_again(struct wire *w, const struct ib_rail *rail)
{
    struct pollfd asleep = {.fd = w->f->sleep_fd, .events = POLLIN};
    time_t end = wire_now() + PATIENCE_S;
    while (!rail->dev.dead) { /* checked once per millisecond */
        assert_true(wire_now() < end);
        wire_poll(w);
    }
    do {
        assert_true(wire_now() < end);
        w->ops->wait(w->f, 0);
        assert_int_equal(w->ops->arm(w->f), 0);
        wire_poll(w);
    } while (poll(&asleep, 1, 0) != 0);
}

static void disconnect_all(struct wire *w, struct rme_link *const link[LINKS])
{
    for (int i = 0; i < LINKS; i++) {
        w->link = link[i];
        wire_disconnect(w);
    }
}

/* Ends a test that has registered two ranges. */
static void finish(struct wire *w, pid_t server, struct rme_mr *mr, struct rme_mr *later)
{
    void *memory[] = {(void *)mr->base, (void *)later->base};
    w->ops->dereg(w->f, mr);
    w->ops->dereg(w->f, later);
    free(memory[0]);
    free(memory[1]);
    wire_stop(w);
    wire_kill(server);
}

/* A device that fails takes its links down, and no others. Old and new registrations serve the
 * remaining rail, on which new links are made. */
static void a_rail_dies(int which)
{
    struct wire w;
    struct rme_link *link[LINKS];
    uint8_t *here = malloc(SIZE), *later = malloc(SIZE);
    struct rme_mr mr, later_mr;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, SIZE);
    int downs = 0, rail[LINKS];
    wire_open(&w, NULL);
    assert_int_equal(w.ops->reg(w.f, here, SIZE, RME_ACCESS_LOCAL_WRITE, &mr), 0);
    for (int i = 0; i < LINKS; i++) {
        wire_connect(&w, uri);
        link[i] = w.link;
        rail[i] = rail_of(&w, link[i]);
    }
    assert_int_equal(w.ops->arm(w.f), 0); /* the device owes an event */
    wire_poll(&w);
    wire_device(which ? "emu1" : "emu0", "failed");
    w.nseen = 0;
    wire_until(&w, RME_EV_LINK_DOWN, LINKS / 2);
    for (int i = 0; i < LINKS / 2; i++) {
        struct wire_seen *down = wire_event(&w, RME_EV_LINK_DOWN, i);
        assert_true(down->error < 0);
        for (int k = 0; k < LINKS; k++)
            if (link[k] == down->link) {
                assert_int_equal(rail[k], which);
                w.ops->link_free(link[k]);
                link[k] = NULL;
                downs++;
            }
    }
    assert_int_equal(downs, LINKS / 2);
    sleeps_again(&w, w.f->rail[which]);
    assert_int_equal(w.ops->reg(w.f, later, SIZE, RME_ACCESS_LOCAL_WRITE, &later_mr), 0);
    for (int i = 0; i < LINKS; i++) {
        if (link[i] == NULL) {
            wire_connect(&w, uri);
            link[i] = w.link;
        }
        assert_int_equal(rail_of(&w, link[i]), !which);
        read_over(&w, link[i], here, &mr);
        read_over(&w, link[i], later, &later_mr);
    }
    w.link = link[0];
    assert_true(wire_send(&w, "echo this"));
    w.nseen = 0;
    wire_until(&w, RME_EV_RECV, 1);
    assert_int_equal(wire_count(&w, RME_EV_LINK_DOWN), 0);
    disconnect_all(&w, link);
    finish(&w, server, &mr, &later_mr);
}

/* Polls until a device is used, or no longer. */
static void until_open(struct wire *w, const struct ib_rail *rail, bool open)
{
    time_t end = wire_now() + PATIENCE_S;
    while (!rail->dev.dead != open || (rail->dev.ctx == NULL) != !open) {
        assert_true(wire_now() < end);
        w->ops->wait(w->f, 10); /* the fabric says that it has to be polled */
        wire_poll(w);
    }
}

/* Devices are removed, and come back: links end, nothing is left of the old devices, and all
 * memory serves the new ones, also that registered while no device was there. */
static void devices_return(const char *const names[2])
{
    struct wire w;
    struct rme_link *link[LINKS];
    uint8_t *here = malloc(SIZE), *later = malloc(SIZE);
    struct rme_mr mr, later_mr;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, SIZE);
    int on[2] = {0, 0}, lost = names[1] != NULL ? LINKS : LINKS / 2;
    wire_open(&w, NULL);
    assert_int_equal(w.ops->reg(w.f, here, SIZE, RME_ACCESS_LOCAL_WRITE, &mr), 0);
    for (int i = 0; i < LINKS; i++) {
        wire_connect(&w, uri);
        link[i] = w.link;
    }
    int64_t regions = wire_counter("live_mr"), domains = wire_counter("live_pd");
    w.nseen = 0;
    for (int i = 0; i < 2 && names[i] != NULL; i++)
        wire_device(names[i], "removed");
    wire_until(&w, RME_EV_LINK_DOWN, lost);
    for (int i = 0; i < lost; i++) {
        struct rme_link *down = wire_event(&w, RME_EV_LINK_DOWN, i)->link;
        w.ops->link_free(down);
        for (int k = 0; k < LINKS; k++)
            link[k] = link[k] == down ? NULL : link[k];
    }
    for (int i = 0; i < 2; i++)
        if (names[1] != NULL || !strcmp(w.f->rail[i]->dev.name, names[0]))
            until_open(&w, w.f->rail[i], false);
    assert_int_equal(wire_counter("live_pd"), domains - (names[1] ? 2 : 1));
    assert_int_equal(w.ops->reg(w.f, later, SIZE, RME_ACCESS_LOCAL_WRITE, &later_mr), 0);
    for (int i = 0; i < 2 && names[i] != NULL; i++)
        wire_device(names[i], "added");
    for (int i = 0; i < 2; i++)
        until_open(&w, w.f->rail[i], true);
    assert_in_range(wire_counter("live_mr"), 3, regions + 2);
    for (int i = 0; i < LINKS; i++) {
        if (link[i] == NULL) {
            wire_connect(&w, uri);
            link[i] = w.link;
        }
        on[rail_of(&w, link[i])]++;
        read_over(&w, link[i], here, &mr);
        read_over(&w, link[i], later, &later_mr);
    }
    assert_true(on[0] && on[1]);
    disconnect_all(&w, link);
    finish(&w, server, &mr, &later_mr);
}

static void first_returns(void **state)
{
    (void)state;
    devices_return((const char *const[]){"emu0", NULL});
}

static void second_returns(void **state)
{
    (void)state;
    devices_return((const char *const[]){"emu1", NULL});
}

static void both_return(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        devices_return((const char *const[]){"emu0", "emu1"});
}

/* A rail without an active port gets no connections while the other one has a port, and takes
 * its turn again later. */
static void rail_without_port_gets_no_links(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, SIZE);
    (void)state;
    wire_open(&w, NULL);
    for (int up = 0; up < 2; up++) {
        int on[2] = {0, 0};
        time_t end = wire_now() + PATIENCE_S;
        wire_device("emu0", up ? "up" : "down");
        while (w.f->rail[0]->dev.down == up) {
            assert_true(wire_now() < end);
            wire_poll(&w);
        }
        for (int i = 0; i < LINKS; i++) {
            wire_connect(&w, uri);
            on[rail_of(&w, w.link)]++;
            wire_disconnect(&w);
        }
        assert_int_equal(on[0], up ? LINKS / 2 : 0);
    }
    wire_close(&w);
    wire_kill(server);
}

/* An engine reads an event of its first device. */
static void reads_event(struct wire *w, bool down, time_t end)
{
    wire_device("emu0", down ? "down" : "up");
    while (w->f->rail[0]->dev.down != down) {
        assert_true(wire_now() < end);
        wire_poll(w);
    }
}

/* An event of the device reaches all its engines and ends their sleeps, whichever engine reads
 * it. One that an engine has not handled yet goes with the engine. */
static void device_event_reaches_both_engines(void **state)
{
    struct wire reader, other;
    time_t end = wire_now() + PATIENCE_S;

    (void)state;
    wire_open(&reader, NULL);
    wire_open(&other, NULL);
    for (int down = 1; down >= 0; down--) {
        reads_event(&reader, down, end);
        other.ops->wait(other.f, PATIENCE_S * 1000);
        assert_true(wire_now() < end);
        wire_poll(&other);
        assert_int_equal(other.f->rail[0]->dev.down, down);
    }
    reads_event(&reader, true, end);
    wire_close(&other);
    wire_close(&reader);
}

/* A link that both rails fail to connect, and that waits for a buffer of each, leaves nothing
 * on either. */
static void refused_link_leaves_both_rails(void **state)
{
    struct wire w;
    (void)state;
    wire_open(&w, NULL);
    for (int i = 0; i < 4; i++) {
        struct rme_link *link = wire_dial(&w, wire_uri("127.0.0.1"));
        time_t end = wire_now() + PATIENCE_S;
        bool waited[2] = {false, false};
        w.nseen = 0;
        w.f->rail[0]->tx.per_link = w.f->rail[1]->tx.per_link = 0;
        while (wire_count(&w, RME_EV_LINK_DOWN) == 0) {
            assert_true(wire_now() < end);
            if (link->state == IB_CONNECTING) {
                assert_null(w.ops->tx_get(link));
                waited[link->rail->number] = true;
            }
            wire_poll(&w);
        }
        assert_true(waited[0] && waited[1]);
        assert_int_equal(wire_event(&w, RME_EV_LINK_DOWN, 0)->error, -ECONNREFUSED);
        w.ops->link_free(link);
        for (int k = 0; k < 2; k++) {
            w.f->rail[k]->tx.per_link = 8;
            assert_true(list_empty(&w.f->rail[k]->tx_waiters) &&
                        list_empty(&w.f->rail[k]->dirty) && list_empty(&w.f->rail[k]->links));
        }
        wire_poll(&w);
        assert_int_equal(w.nseen, 1);
    }
    wire_close(&w);
}

static int resolves; /* addresses that are resolved until one is not */

int __real_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
                             struct sockaddr *to, int timeout);
int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
                             struct sockaddr *to, int timeout);

int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
                             struct sockaddr *to, int timeout)
{
    if (--resolves != 0)
        return __real_rdma_resolve_addr(id, source, to, timeout);
    errno = EINVAL;
    return -1;
}

/* A refused link moves to the other rail, which was polled before or is polled after, and ends
 * there at once: no descriptor reports that, and the sleep ends. */
static void link_end_on_polled_rail_ends_sleep(void **state)
{
    struct wire w;
    (void)state;
    wire_open(&w, NULL);
    for (int i = 0; i < 8; i++) {
        time_t end = wire_now() + PATIENCE_S;
        w.nseen = 0;
        resolves = 2;
        struct rme_link *link = wire_dial(&w, wire_uri("127.0.0.1"));
        for (;;) {
            assert_int_equal(w.ops->arm(w.f), 0);
            wire_poll(&w);
            if (w.nseen > 0)
                break;
            w.ops->wait(w.f, PATIENCE_S * 1000);
            assert_true(wire_now() < end);
        }
        assert_int_equal(w.seen[0].type, RME_EV_LINK_DOWN);
        w.ops->link_free(link);
    }
    wire_close(&w);
}

static atomic_bool enough;

/* Registers and deregisters, as threads of a host do without the engine's lock. */
static void *registers(void *arg)
{
    struct wire *w = arg;
    static _Thread_local uint8_t memory[4096];
    while (!enough) {
        struct rme_mr mr;
        if (w->ops->reg(w->f, memory, sizeof(memory), RME_ACCESS_LOCAL_WRITE, &mr) == 0)
            w->ops->dereg(w->f, &mr);
    }
    return NULL;
}

/* Devices come and go while threads register memory: nothing of a device is used that is gone,
 * and no registration is left. */
static void registrations_meet_changes(void **state)
{
    struct wire w;
    pthread_t thread[2];
    (void)state;
    wire_open(&w, NULL);
    int64_t before = wire_counter("live_mr");
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, registers, &w), 0);
    for (int i = 0; i < 2; i++) {
        const char *name = i % 2 ? "emu1" : "emu0";
        wire_device(name, "removed");
        until_open(&w, w.f->rail[i % 2], false);
        wire_device(name, "added");
        until_open(&w, w.f->rail[i % 2], true);
    }
    enough = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(wire_counter("live_mr"), before);
    wire_close(&w);
}

/* A listener on an address of a removed device listens again when the device is back. */
static void listener_returns(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.2");
    (void)state;
    wire_open(&w, uri);
    uint16_t port = w.ops->listen_port(w.f);
    for (int i = 0; i < 2; i++) {
        wire_device("emu1", "removed");
        until_open(&w, w.f->rail[1], false);
        assert_int_equal(w.f->listeners, 0);
        assert_int_equal(w.ops->listen_port(w.f), port);
        wire_device("emu1", "added");
        until_open(&w, w.f->rail[1], true);
        w.nseen = 0;
        pid_t client = wire_client(uri);
        wire_until(&w, RME_EV_RECV, 1);
        assert_int_equal(rail_of(&w, w.link), 1);
        wire_kill(client);
        wire_until(&w, RME_EV_LINK_DOWN, 1);
        w.ops->link_free(w.link);
    }
    wire_close(&w);
}

/* A device that gets another address is used by that address. */
static void address_moves(void **state)
{
    struct wire w;
    const char *uri = wire_uri("127.0.0.1");
    pid_t server = wire_server(uri, SIZE);
    int on[2] = {0, 0};
    (void)state;
    wire_open(&w, NULL);
    const struct ib_rail *rail = w.f->rail[1];
    time_t end = wire_now() + PATIENCE_S;
    wire_device("emu1", "127.0.0.7");
    for (uint32_t got = 0; got != htonl(INADDR_LOOPBACK + 6);) {
        assert_true(wire_now() < end);
        wire_poll(&w);
        got = rail->owns ? ((struct sockaddr_in *)&rail->own[0].sa)->sin_addr.s_addr : 0;
    }
    for (int i = 0; i < LINKS; i++) {
        wire_connect(&w, uri);
        on[rail_of(&w, w.link)]++;
        wire_disconnect(&w);
    }
    assert_int_equal(on[0], LINKS / 2);
    assert_int_equal(on[1], LINKS / 2);
    wire_close(&w);
    wire_kill(server);
}

/* Addresses of interfaces, and masks, that the system reports; NULL: the real ones. */
static const char *const (*interfaces)[2];

int __real_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out);
void __real_freeifaddrs(struct ifaddrs *all);
void __wrap_freeifaddrs(struct ifaddrs *all);

int __wrap_getifaddrs(struct ifaddrs **out)
{
    static struct ifaddrs entry[4];
    static struct sockaddr_in sa[4][2];
    if (interfaces == NULL)
        return __real_getifaddrs(out);
    *out = entry;
    for (int i = 0; interfaces[i][0] != NULL; i++) {
        for (int k = 0; k < 2; k++) {
            sa[i][k].sin_family = AF_INET;
            assert_int_equal(inet_pton(AF_INET, interfaces[i][k], &sa[i][k].sin_addr), 1);
        }
        entry[i] = (struct ifaddrs){.ifa_next = interfaces[i + 1][0] ? &entry[i + 1] : NULL,
                                    .ifa_addr = (struct sockaddr *)sa[i],
                                    .ifa_netmask = (struct sockaddr *)&sa[i][1]};
    }
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *all)
{
    if (interfaces == NULL)
        __real_freeifaddrs(all);
}

/* Rails whose network has the peer get its connections; without one, the routed rail. A rail's
 * network is that of the interface with its address, the widest of several, or, without one,
 * the narrowest that contains its address. */
static void rails_near_the_peer_get_links(void **state)
{
#define ONE "127.0.0.1", "255.255.255.255"
    static const struct {
        const char *peer, *have[4][2];
        int on[2];
    } row[] = {
        {"127.0.0.1", {{ONE}, {"127.0.0.2", "255.255.255.255"}}, {4, 0}},
        {"127.0.0.1", {{ONE}, {"127.0.0.2", "255.255.255.0"}}, {2, 2}},
        {"127.0.0.1",
         {{"127.0.0.2", "255.255.255.0"}, {"127.0.0.2", "255.255.255.255"}, {ONE}},
         {2, 2}},
        {"127.0.0.1",
         {{"127.0.0.2", "255.255.255.255"}, {"127.0.0.2", "255.255.255.0"}, {ONE}},
         {2, 2}},
        {"127.0.0.1",
         {{"127.0.0.2", "255.255.255.255"}, {ONE}, {"127.0.0.77", "255.255.255.0"}},
         {4, 0}},
        {"127.0.0.1", {{ONE}, {"127.0.0.77", "255.255.255.0"}}, {2, 2}},
        {"127.0.0.1",
         {{"127.0.0.77", "255.255.255.0"}, {"127.0.0.3", "255.255.255.254"}, {ONE}},
         {4, 0}},
        {"127.0.0.1",
         {{"127.0.0.3", "255.255.255.254"}, {"127.0.0.77", "255.255.255.0"}, {ONE}},
         {4, 0}},
        {"[::1]", {{ONE}, {"127.0.0.2", "255.255.255.255"}}, {4, 0}},
    };
    (void)state;
    for (size_t r = 0; r < sizeof(row) / sizeof(row[0]); r++) {
        struct wire w;
        const char *uri = wire_uri(row[r].peer);
        pid_t server = wire_server(uri, SIZE);
        int on[2] = {0, 0};
        interfaces = row[r].have;
        wire_open(&w, NULL);
        for (int i = 0; i < LINKS; i++) {
            wire_connect(&w, uri);
            on[rail_of(&w, w.link)]++;
            wire_disconnect(&w);
        }
        assert_memory_equal(on, row[r].on, sizeof(on));
        wire_close(&w);
        wire_kill(server);
        interfaces = NULL;
    }
}

/* A failed device stays failed: each case has its own process. */
static void first_dies(void **state)
{
    (void)state;
    a_rail_dies(0);
}

static void second_dies(void **state)
{
    (void)state;
    a_rail_dies(1);
}

static int open_with(const char *device)
{
    struct wire w;
    char options[128];
    const char *kept = wire_options;
    snprintf(options, sizeof(options), "device=%s", device);
    wire_options = options;
    int error = wire_start(&w, NULL);
    wire_stop(&w);
    wire_options = kept;
    return error;
}

static void device_list_is_checked(void **state)
{
    (void)state;
    assert_int_equal(open_with("emu0+emu1"), 0);
    assert_int_equal(open_with("none+emu1"), 0); /* one remains */
    assert_int_equal(open_with("emu1+none"), 0);
    assert_int_equal(open_with("none+nobody"), -ENODEV);
    assert_int_equal(open_with("emu0+emu0"), -EINVAL);
    assert_int_equal(open_with("emu0+"), -EINVAL);
    assert_int_equal(open_with("emu0+emu1,gid=127.0.0.1+127.0.0.2"), 0);
    assert_int_equal(open_with("emu0+emu1,gid=127.0.0.2+127.0.0.1"), -ENODEV);
    assert_int_equal(open_with("emu0+emu1,gid=127.0.0.2"), 0);
    assert_int_equal(open_with("emu0+emu1,gid=192.0.2.1"), -ENODEV);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_transfer_uses_both_rails),
        cmocka_unit_test(event_of_either_rail_wakes),
        cmocka_unit_test(device_list_is_checked),
        cmocka_unit_test(rails_near_the_peer_get_links),
        cmocka_unit_test(first_dies),
        cmocka_unit_test(second_dies),
        cmocka_unit_test(first_returns),
        cmocka_unit_test(second_returns),
        cmocka_unit_test(both_return),
        cmocka_unit_test(rail_without_port_gets_no_links),
        cmocka_unit_test(device_event_reaches_both_engines),
        cmocka_unit_test(refused_link_leaves_both_rails),
        cmocka_unit_test(link_end_on_polled_rail_ends_sleep),
        cmocka_unit_test(registrations_meet_changes),
        cmocka_unit_test(listener_returns),
        cmocka_unit_test(address_moves),
    };
    wire_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
