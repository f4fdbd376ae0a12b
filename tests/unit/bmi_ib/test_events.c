/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events and completions that a working device does not report at that moment: the program puts
 * them between the software HCA and the fabric, or holds real ones back. Both hosts are in this
 * process. The program is linked with --wrap for the functions below.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include "tests/lib/clock.h"
#include "wire_host.h"

static struct wire server, client;
static const struct wire *polled;

/* ---- The device ---- */

/* An event put behind each of the next `times` events of type `behind` of a host. */
static struct {
    const struct wire *host;
    enum rdma_cm_event_type behind;
    int times;
    bool due;
    struct rdma_cm_event event;
} put;
static enum rdma_cm_event_type lost_type; /* events of the client that are lost, if `loses` */
static bool loses, holds;                 /* holds: ESTABLISHED of the server */
static struct rdma_cm_event *held;
static struct ibv_qp *server_qp; /* the last one of the server that was connected */
static int lost, requests;       /* events lost; attempts of the client */

int __real_rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **e);
int __wrap_rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **e);
int __real_rdma_ack_cm_event(struct rdma_cm_event *e);
int __wrap_rdma_ack_cm_event(struct rdma_cm_event *e);
int __real_rdma_destroy_id(struct rdma_cm_id *id);
int __wrap_rdma_destroy_id(struct rdma_cm_id *id);

static int none(void)
{
    errno = EAGAIN;
    return -1;
}

int __wrap_rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **e)
{
    if (put.due && polled == put.host) {
        put.due = false;
        *e = &put.event;
        return 0;
    }
    if (held != NULL && !holds && polled == &server) {
        *e = held;
        held = NULL;
        return 0;
    }
    int rc = __real_rdma_get_cm_event(channel, e);
    if (rc)
        return rc;
    requests += polled == &client && (*e)->event == RDMA_CM_EVENT_ROUTE_RESOLVED;
    if (loses && polled == &client && (*e)->event == lost_type) {
        lost++;
        __real_rdma_ack_cm_event(*e);
        return none();
    }
    if (polled == &server && (*e)->event == RDMA_CM_EVENT_ESTABLISHED)
        server_qp = (*e)->id->qp;
    if (holds && polled == &server && (*e)->event == RDMA_CM_EVENT_ESTABLISHED) {
        held = *e;
        return none();
    }
    if (polled == put.host && (*e)->event == put.behind && put.times > 0) {
        put.times--;
        put.due = true;
        put.event.id = (*e)->id;
    }
    return 0;
}

int __wrap_rdma_ack_cm_event(struct rdma_cm_event *e)
{
    return e == &put.event ? 0 : __real_rdma_ack_cm_event(e);
}

int __wrap_rdma_destroy_id(struct rdma_cm_id *id)
{
    put.due = put.due && put.event.id != id;
    return __real_rdma_destroy_id(id);
}

static int (*device_poll)(struct ibv_cq *cq, int max, struct ibv_wc *wc);
static struct {
    struct ibv_cq *cq;
    struct ibv_wc wc;
} seen[1 << 14]; /* all completions */
static int nseen, replayed, replay_end;
static bool mute;                    /* the device completes nothing */
static enum ibv_wc_status replay_as; /* status of those that come once more */

static int poll_device(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
    int n = 0;
    if (mute)
        return 0;
    for (; n < max && replayed < replay_end && seen[replayed].cq == cq; replayed++) {
        wc[n] = seen[replayed].wc;
        wc[n++].status = replay_as;
    }
    if (n > 0)
        return n;
    n = device_poll(cq, max, wc);
    for (int i = 0; i < n; i++) {
        assert_true(nseen < (int)(sizeof(seen) / sizeof(seen[0])));
        seen[nseen].cq = cq;
        seen[nseen++].wc = wc[i];
    }
    return n;
}

static struct ibv_context *device(void)
{
    struct ibv_context **list = rdma_get_devices(NULL), *first = list[0];
    rdma_free_devices(list);
    return first;
}

static int copies; /* of each address in a lookup */

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    int error = 0;
    for (int i = 0; i < copies && !error; i++, list = &(*list)->ai_next)
        error = __real_getaddrinfo(name, service, hints, list);
    return error;
}

/* ---- Both hosts ---- */

static void poll_host(struct wire *w)
{
    polled = w;
    w->ops->wait(w->f, 0); /* finds events although the clock is stopped */
    wire_poll(w);
}

static void poll_both(void)
{
    poll_host(&client);
    poll_host(&server);
}

static int downs_of(const struct wire *w)
{
    return wire_count(w, RME_EV_LINK_DOWN);
}

/* Polls both until `w` has seen n events of a kind. */
static void until(const struct wire *w, enum rme_event_type type, int n)
{
    while (wire_count(w, type) < n)
        poll_both();
}

static const char *open_both(void)
{
    const char *uri = wire_uri("127.0.0.1");
    memset(&put, 0, sizeof(put));
    loses = holds = mute = false;
    lost = requests = nseen = replayed = replay_end = 0;
    copies = 1;
    wire_open(&server, uri);
    wire_open(&client, NULL);
    return uri;
}

static void open_with(const char *options)
{
    wire_options = options;
    open_both();
    wire_options = NULL;
}

static void put_behind(const struct wire *host, enum rdma_cm_event_type behind, int times,
                       enum rdma_cm_event_type type, int status, const char *data)
{
    put.host = host;
    put.behind = behind;
    put.times = times;
    put.event = (struct rdma_cm_event){.event = type, .status = status};
    put.event.param.conn.private_data = data;
    put.event.param.conn.private_data_len = (uint8_t)strlen(data);
}

static void free_downs(struct wire *w)
{
    for (int i = 0; i < downs_of(w); i++)
        w->ops->link_free(wire_event(w, RME_EV_LINK_DOWN, i)->link);
    w->nseen = 0;
}

/* Closes both; nothing is left. */
static void close_both(void)
{
    free_downs(&client);
    free_downs(&server);
    wire_close(&client);
    wire_close(&server);
    assert_int_equal(wire_counter("live_qp") + wire_counter("live_cq") +
                         wire_counter("live_mr") + wire_counter("live_mw") +
                         wire_counter("live_pd"),
                     0);
}

/* ---- Events ---- */

static bool is_lethal(enum rdma_cm_event_type type)
{
    return type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_DEVICE_REMOVAL ||
           type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_CONNECT_ERROR ||
           type == RDMA_CM_EVENT_ADDR_ERROR || type == RDMA_CM_EVENT_ROUTE_ERROR ||
           type == RDMA_CM_EVENT_ADDR_CHANGE || type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
           type == RDMA_CM_EVENT_REJECTED;
}

static bool is_harmless(enum rdma_cm_event_type type)
{
    return type == RDMA_CM_EVENT_TIMEWAIT_EXIT || type == RDMA_CM_EVENT_MULTICAST_JOIN ||
           type == RDMA_CM_EVENT_MULTICAST_ERROR;
}

static void check_event(const struct wire *host, enum rdma_cm_event_type behind,
                        enum rdma_cm_event_type type)
{
    struct rme_link *link = wire_dial(&client, open_both());
    bool last = behind == RDMA_CM_EVENT_DISCONNECTED;
    put_behind(host, behind, 1, type, -ETIMEDOUT, "data");
    while (downs_of(&client) == 0 &&
           ((is_lethal(type) && !last) || ((put.times > 0 || put.due) && !last) ||
            wire_count(&client, RME_EV_LINK_UP) + wire_count(&server, RME_EV_LINK_UP) < 2))
        poll_both();
    if (is_harmless(type))
        assert_int_equal(downs_of(&client) + downs_of(&server), 0);
    client.ops->link_disconnect(link, -ECANCELED);
    while (downs_of(&client) == 0 || wire_counter("live_qp") > 0)
        poll_both();
    for (int i = 0; i < 20; i++)
        poll_both();
    assert_int_equal(downs_of(&client), 1);
    assert_in_range(downs_of(&server), wire_count(&server, RME_EV_LINK_UP), 1);
    close_both();
}

/* Each event behind each other event: the link ends once, if the event must end the link, or
 * stays, and all is freed. */
static void event_in_any_state_ends_link_once(void **state)
{
    static const enum rdma_cm_event_type of_client[] = {
        RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ESTABLISHED,
        RDMA_CM_EVENT_DISCONNECTED};
    static const enum rdma_cm_event_type of_server[] = {
        RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED};
    (void)state;
    for (int type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
            continue;
        for (int i = 0; i < 4; i++)
            check_event(&client, of_client[i], (enum rdma_cm_event_type)type);
        for (int i = 0; i < 3; i++)
            check_event(&server, of_server[i], (enum rdma_cm_event_type)type);
    }
}

/* A request is withdrawn before its answer: the answer alone fails. */
static void request_withdrawn_fails_its_answer(void **state)
{
    struct rme_event e = {.type = RME_EV_LINK_UP};
    (void)state;
    (void)wire_dial(&client, open_both());
    put_behind(&server, RDMA_CM_EVENT_CONNECT_REQUEST, 1, RDMA_CM_EVENT_DISCONNECTED, 0, "");
    while (e.type != RME_EV_LINK_REQUEST) {
        poll_host(&client);
        polled = &server;
        assert_in_range(server.ops->poll(server.f, &e, 1), 0, 1);
    }
    poll_both();
    assert_false(put.due);
    assert_int_equal(server.ops->link_accept(e.link, "yes", 4, WIRE_RX, NULL), -ECONNRESET);
    server.ops->link_reject(e.link, "no", 3);
    until(&client, RME_EV_LINK_DOWN, 1);
    close_both();
}

/* A refusal has its error, the peer's data, and the remedy. */
static void refusal_has_error_and_remedy(void **state)
{
    static const struct {
        int status;
        const char *data;
        int error;
        const char *why;
    } row[] = {
        {28, "because", -EACCES, NULL},
        {28, "", -EBUSY, "backlog"},
        {8, "", -ECONNREFUSED, "no server listens there by RDMA"},
        {-ECONNREFUSED, "", -ECONNREFUSED, "no server listens there by RDMA"},
        {1, "because", -EACCES, NULL},
        {4, "", -ETIMEDOUT, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        (void)wire_dial(&client, open_both());
        put_behind(&client, RDMA_CM_EVENT_ROUTE_RESOLVED, 1, RDMA_CM_EVENT_REJECTED,
                   row[i].status, row[i].data);
        until(&client, RME_EV_LINK_DOWN, 1);
        const struct wire_seen *down = wire_event(&client, RME_EV_LINK_DOWN, 0);
        assert_int_equal(down->error, row[i].error);
        assert_string_equal(down->text, row[i].data);
        assert_true(row[i].why != NULL ? strstr(down->why, row[i].why) != NULL
                                       : down->why == NULL);
        close_both();
    }
}

/* The peer still had a connection with this QP number: the request is repeated a few times, and
 * messages of the connection that succeeds arrive. */
static void stale_refusal_repeats_request(void **state)
{
    (void)state;
    for (int refusals = 1; refusals <= 6; refusals++) {
        (void)wire_dial(&client, open_both());
        put_behind(&client, RDMA_CM_EVENT_ROUTE_RESOLVED, refusals, RDMA_CM_EVENT_REJECTED, 10,
                   "");
        while (downs_of(&client) + wire_count(&client, RME_EV_LINK_UP) == 0)
            poll_both();
        assert_int_equal(requests, refusals < 5 ? refusals + 1 : 5);
        if (refusals < 5) {
            assert_true(wire_send(&client, "hello"));
            until(&server, RME_EV_RECV, 1);
        } else {
            assert_int_equal(wire_event(&client, RME_EV_LINK_DOWN, 0)->error, -ECONNRESET);
        }
        close_both();
    }
}

/* The first message may come before the event that confirms the connection. */
static void message_before_confirmation_arrives(void **state)
{
    const char *uri = open_both();
    (void)state;
    (void)wire_dial(&client, uri);
    holds = true;
    until(&client, RME_EV_LINK_UP, 1);
    assert_true(wire_send(&client, "early"));
    until(&server, RME_EV_RECV, 1);
    assert_int_equal(server.seen[server.nseen - 2].type, RME_EV_LINK_UP);
    assert_string_equal(wire_event(&server, RME_EV_RECV, 0)->text, "early");
    holds = false; /* the event comes with those of another link */
    (void)wire_dial(&client, uri);
    until(&server, RME_EV_LINK_UP, 2);
    assert_null(held);
    assert_int_equal(wire_count(&server, RME_EV_LINK_UP), 2);
    close_both();
}

/* ---- Several addresses ---- */

/* Each of three addresses is tried, until the peer's engine answers. */
static void addresses_tried_until_peer_answers(void **state)
{
    (void)state;
    for (int answers = 0; answers < 2; answers++) {
        open_both();
        copies = 3;
        (void)wire_dial(&client, wire_uri("127.0.0.1")); /* where nobody listens */
        if (answers)
            put_behind(&client, RDMA_CM_EVENT_ROUTE_RESOLVED, 1, RDMA_CM_EVENT_REJECTED, 28,
                       "no");
        until(&client, RME_EV_LINK_DOWN, 1);
        assert_int_equal(wire_event(&client, RME_EV_LINK_DOWN, 0)->error,
                         answers ? -EACCES : -ECONNREFUSED);
        assert_int_equal(requests, answers ? 1 : 3);
        close_both();
    }
}

/* An address that is silent in any step has a timeout; the last one has the whole time. */
static void silent_address_times_out(void **state)
{
    static const enum rdma_cm_event_type step[] = {
        RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ESTABLISHED};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *uri = open_both();
        copies = 3;
        lost_type = step[i];
        clock_set();
        struct rme_link *link = wire_dial(&client, uri);
        loses = true;
        for (int k = 1; k <= 3; k++) {
            while (lost < k)
                poll_both();
            assert_int_equal(downs_of(&client), 0);
            int deadline = client.ops->deadline(client.f);
            assert_true(k < 3 ? deadline > 0 : deadline == -1);
            if (k < 3)
                clock_step_ms((uint64_t)deadline);
        }
        client.ops->link_disconnect(link, -ETIMEDOUT);
        until(&client, RME_EV_LINK_DOWN, 1);
        assert_int_equal(client.ops->deadline(client.f), -1);
        clock_release();
        close_both();
    }
}

/* ---- Completions ---- */

/* The end of a link is known by the device's events, also those of a shared queue: no time
 * passes. */
static void drain_ends_by_events_alone(void **state)
{
    static const char *const options[] = {"srq=on", "srq=off"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_with(options[i]);
        (void)wire_dial(&client, rme_addr_name(server.listen));
        until(&client, RME_EV_LINK_UP, 1);
        until(&server, RME_EV_LINK_UP, 1);
        assert_true(wire_send(&client, "hello"));
        until(&server, RME_EV_RECV, 1);
        clock_set();
        client.ops->link_disconnect(client.link, 0);
        until(&client, RME_EV_LINK_DOWN, 1);
        until(&server, RME_EV_LINK_DOWN, 1);
        clock_release();
        close_both();
    }
}

/* A device that completes nothing is given up after a timeout. */
static void drain_ends_without_completions(void **state)
{
    (void)state;
    (void)wire_dial(&client, open_both());
    until(&client, RME_EV_LINK_UP, 1);
    clock_set();
    mute = true;
    client.ops->link_disconnect(client.link, 0);
    for (int i = 0; i < 20; i++)
        poll_both();
    assert_int_equal(downs_of(&client), 0);
    int deadline = client.ops->deadline(client.f);
    assert_true(deadline > 0);
    clock_step_ms((uint64_t)deadline);
    until(&client, RME_EV_LINK_DOWN, 1);
    clock_release();
    mute = false;
    until(&server, RME_EV_LINK_DOWN, 1);
    close_both();
}

/* Connects, and sends a message over each link. */
static void connect_many(const char *uri, struct rme_link **link, int n)
{
    for (int i = 0; i < n; i++) {
        link[i] = wire_dial(&client, uri);
        until(&client, RME_EV_LINK_UP, i + 1);
        until(&server, RME_EV_LINK_UP, i + 1);
        assert_true(client.link == link[i] && wire_send(&client, "hello"));
        until(&server, RME_EV_RECV, i + 1);
    }
    client.nseen = server.nseen = 0;
}

/* Completions of links that have ended, whose buffers and handles others have by now, come once
 * more: they match nothing. */
static void late_completions_match_nothing(void **state)
{
    enum { LINKS = 40 };
    static const enum ibv_wc_status status[] = {IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR};
    struct rme_link *link[LINKS];
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *uri = open_both();
        connect_many(uri, link, LINKS);
        for (int k = 0; k < LINKS; k++)
            client.ops->link_disconnect(link[k], 0);
        until(&client, RME_EV_LINK_DOWN, LINKS);
        until(&server, RME_EV_LINK_DOWN, LINKS);
        free_downs(&client);
        free_downs(&server);
        int before = nseen;
        connect_many(uri, link, LINKS);
        replay_as = status[i];
        replay_end = before;
        while (replayed < replay_end)
            poll_both();
        assert_int_equal(client.nseen + server.nseen, 0);
        for (int k = 0; k < LINKS; k++) {
            client.link = link[k];
            assert_true(wire_send(&client, "again"));
        }
        until(&server, RME_EV_RECV, LINKS);
        close_both();
    }
}

static bool breaks, fake; /* the device reports that it has broken `server_qp` */

int __real_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *e);
int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *e);
void __real_ibv_ack_async_event(struct ibv_async_event *e);
void __wrap_ibv_ack_async_event(struct ibv_async_event *e);

int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *e)
{
    if (!breaks)
        return __real_ibv_get_async_event(context, e);
    breaks = false;
    fake = true;
    *e = (struct ibv_async_event){.element.qp = server_qp,
                                  .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};
    return 0;
}

void __wrap_ibv_ack_async_event(struct ibv_async_event *e)
{
    if (!fake)
        __real_ibv_ack_async_event(e);
    fake = false;
}

/* A QP that the device has put into the error state may have no request whose completion says
 * so: the event alone ends the link. It is read with that of another link that ends. */
static void last_wqe_event_ends_link(void **state)
{
    (void)state;
    open_with("srq=on");
    struct rme_link *other = wire_dial(&client, rme_addr_name(server.listen));
    until(&server, RME_EV_LINK_UP, 1);
    (void)wire_dial(&client, rme_addr_name(server.listen));
    until(&server, RME_EV_LINK_UP, 2);
    until(&client, RME_EV_LINK_UP, 2);
    breaks = true;
    client.ops->link_disconnect(other, 0);
    until(&server, RME_EV_LINK_DOWN, 2);
    until(&client, RME_EV_LINK_DOWN, 2);
    assert_false(breaks);
    close_both();
}

/* The device of a link has failed, and only registration has noticed: the memory has no key of
 * the device. The link is lost then, and nothing is opened. */
static void memory_without_key_ends_link(void **state)
{
    static uint8_t memory[4096];
    static void *no_keys[64];
    (void)state;
    for (int size = 0; size <= 4096; size += 4096) {
        struct rme_range range = {.base = memory, .length = size, .rkey = (uintptr_t)no_keys};
        open_with("rkey_scope=operation");
        (void)wire_dial(&client, rme_addr_name(server.listen));
        until(&client, RME_EV_LINK_UP, 1);
        until(&server, RME_EV_LINK_UP, 1);
        assert_int_equal(server.ops->mw_bind(server.link, &range, 1, RME_ACCESS_REMOTE_WRITE),
                         size ? -EAGAIN : 0);
        if (size) {
            until(&server, RME_EV_LINK_DOWN, 1);
            assert_int_equal(wire_event(&server, RME_EV_LINK_DOWN, 0)->error, -ENODEV);
            until(&client, RME_EV_LINK_DOWN, 1);
        }
        close_both();
    }
}

/* ---- Devices ---- */

static enum ibv_fork_status forks = IBV_FORK_UNNEEDED;
static int timeout_set, relaxed;

enum ibv_fork_status __wrap_ibv_is_fork_initialized(void);
int __real_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value,
                           size_t size);
int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value,
                           size_t size);
struct ibv_mr *__real_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length,
                                       uint64_t iova, unsigned int access);
struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length,
                                       uint64_t iova, unsigned int access);

enum ibv_fork_status __wrap_ibv_is_fork_initialized(void)
{
    return forks;
}

int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t size)
{
    if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT)
        timeout_set = *(uint8_t *)value;
    return __real_rdma_set_option(id, level, name, value, size);
}

struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length,
                                       uint64_t iova, unsigned int access)
{
    relaxed += (access & IBV_ACCESS_RELAXED_ORDERING) != 0;
    return __real_ibv_reg_mr_iova2(pd, at, length, iova, access);
}

static void options_reach_the_device(void **state)
{
    static const struct {
        const char *options;
        int timeout;
        bool relaxed;
    } row[] = {{"relaxed_ordering=off", 17, false},
               {"relaxed_ordering=on,ack_timeout=12", 12, true}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        timeout_set = relaxed = 0;
        open_with(row[i].options);
        (void)wire_dial(&client, rme_addr_name(server.listen));
        until(&client, RME_EV_LINK_UP, 1);
        assert_int_equal(timeout_set, row[i].timeout);
        assert_int_equal(relaxed > 0, row[i].relaxed);
        close_both();
    }
}

/* The option gid names an address of the device, of the peer's family. A listener's address is
 * one of the device, too. */
static void address_of_no_use_is_refused(void **state)
{
    static const char *const wrong[] = {"gid=eth0", "gid=3", "gid=10.0.0"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        wire_options = wrong[i];
        assert_int_equal(wire_start(&client, NULL), -EINVAL);
        assert_non_null(strstr(wire_lines, "not an IP address"));
        wire_stop(&client);
    }
    wire_options = NULL;
    int error = wire_start(&server, "ib://192.0.2.77:20999");
    assert_true(error == -EADDRNOTAVAIL || error == -ENODEV);
    wire_stop(&server);
    open_with("gid=127.0.0.1");
    (void)wire_dial(&client, "ib://[::1]:20500");
    until(&client, RME_EV_LINK_DOWN, 1);
    assert_int_equal(wire_event(&client, RME_EV_LINK_DOWN, 0)->error, -EHOSTUNREACH);
    close_both();
}

static void iwarp_is_refused(void **state)
{
    struct ibv_context *context = device();
    enum ibv_transport_type kept = context->device->transport_type;
    (void)state;
    context->device->transport_type = IBV_TRANSPORT_IWARP;
    assert_int_equal(wire_start(&client, NULL), -ENODEV);
    assert_non_null(strstr(wire_lines, "iWARP"));
    context->device->transport_type = kept;
    wire_stop(&client);
}

/* Opening warns where a fork parts the process from its registered memory, and nowhere else. */
static void fork_that_parts_memory_is_logged(void **state)
{
    static const enum ibv_fork_status kinds[] = {IBV_FORK_DISABLED, IBV_FORK_ENABLED,
                                                 IBV_FORK_UNNEEDED};
    (void)state;
    for (int i = 0; i < 3; i++) {
        forks = kinds[i];
        wire_open(&client, NULL);
        const char *line = strstr(wire_lines, "calls system()");
        assert_int_equal(line != NULL, kinds[i] == IBV_FORK_DISABLED);
        assert_true(line == NULL || strstr(line, "RDMAV_FORK_SAFE=1") != NULL);
        wire_close(&client);
    }
    forks = IBV_FORK_UNNEEDED;
}

static struct ibv_context **inherited; /* devices of the parent; NULL: the process's own */

struct ibv_context **__real_rdma_get_devices(int *n);
struct ibv_context **__wrap_rdma_get_devices(int *n);

struct ibv_context **__wrap_rdma_get_devices(int *n)
{
    struct ibv_context **list = __real_rdma_get_devices(n);
    if (inherited != NULL)
        list[0] = inherited[0];
    return list;
}

/* Devices of an adapter that were opened before a fork serve the parent alone. (The software
 * HCA opens a child's own.) */
static void child_with_inherited_devices_is_refused(void **state)
{
    struct ibv_context *first[1] = {device()};
    int status;
    (void)state;
    wire_open(&client, NULL);
    wire_close(&client);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        inherited = first;
        int error = wire_start(&client, NULL);
        _exit(error == -ENODEV && strstr(wire_lines, "before fork()") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Returns true if the kernel keeps a page from children of this process. */
static bool is_kept_from_children(const void *page)
{
    char line[512];
    bool within = false, kept = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            within = (uintptr_t)page >= first && (uintptr_t)page < end;
        else if (within && strncmp(line, "VmFlags:", 8) == 0)
            kept = strstr(line, " dc") != NULL;
    }
    fclose(f);
    return kept;
}

static void message_buffers_are_kept_from_children(void **state)
{
    (void)state;
    (void)wire_dial(&client, open_both());
    until(&client, RME_EV_LINK_UP, 1);
    void *tx = client.ops->tx_get(client.link);
    assert_non_null(tx);
    assert_true(is_kept_from_children(tx));
    client.ops->tx_put(client.link, tx);
    close_both();
}

static int hook_device(void **state)
{
    (void)state;
    device_poll = device()->ops.poll_cq;
    device()->ops.poll_cq = poll_device;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_with_inherited_devices_is_refused),
        cmocka_unit_test(event_in_any_state_ends_link_once),
        cmocka_unit_test(request_withdrawn_fails_its_answer),
        cmocka_unit_test(refusal_has_error_and_remedy),
        cmocka_unit_test(stale_refusal_repeats_request),
        cmocka_unit_test(message_before_confirmation_arrives),
        cmocka_unit_test(addresses_tried_until_peer_answers),
        cmocka_unit_test(silent_address_times_out),
        cmocka_unit_test(drain_ends_by_events_alone),
        cmocka_unit_test(drain_ends_without_completions),
        cmocka_unit_test(late_completions_match_nothing),
        cmocka_unit_test(last_wqe_event_ends_link),
        cmocka_unit_test(memory_without_key_ends_link),
        cmocka_unit_test(options_reach_the_device),
        cmocka_unit_test(address_of_no_use_is_refused),
        cmocka_unit_test(iwarp_is_refused),
        cmocka_unit_test(fork_that_parts_memory_is_logged),
        cmocka_unit_test(message_buffers_are_kept_from_children),
    };
    copies = 1;
    wire_keeps_lines = true;
    wire_main(argc, argv);
    return cmocka_run_group_tests(tests, hook_device, NULL);
}
