/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about rdma_cm: private data, rejections, the end of connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/verbs/ask.h"

static struct rdma_event_channel *channel;
static uint8_t data[256];
/* The software HCA's clock is per process: its steps do not apply to another process, so events
 * from there are waited for without a limit (see PATIENCE_S). */
static bool other_process;

static struct sockaddr *address(int port)
{
    static struct sockaddr_in in;

    in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    NEED(inet_pton(AF_INET, cm_address, &in.sin_addr) == 1);
    return (struct sockaddr *)&in;
}

static struct rdma_cm_id *new_id(void)
{
    struct rdma_cm_id *id;

    if (!channel)
        channel = rdma_create_event_channel();
    NEED(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    return id;
}

/* Returns the next event, acknowledged; copies private data to `data`. */
static struct rdma_cm_event event(int ms)
{
    struct rdma_cm_event *e, copy = {.event = RDMA_CM_EVENT_MULTICAST_ERROR};

    if (!readable(channel->fd, other_process ? -1 : ms))
        return copy;
    NEED(rdma_get_cm_event(channel, &e) == 0);
    copy = *e;
    size_t n = e->param.conn.private_data ? e->param.conn.private_data_len : 0;
    memset(data, 0, sizeof(data));
    if (n)
        memcpy(data, e->param.conn.private_data, n);
    rdma_ack_cm_event(e);
    return copy;
}

static struct rdma_cm_event expect(enum rdma_cm_event_type type)
{
    struct rdma_cm_event e = event(WAIT_MS);

    NEED(e.event == type);
    return e;
}

static const char *event_name(const struct rdma_cm_event *e)
{
    return e->event == RDMA_CM_EVENT_MULTICAST_ERROR ? "no event" : rdma_event_str(e->event);
}

static void give_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr qi = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};

    NEED(rdma_create_qp(id, NULL, &qi) == 0);
}

static struct rdma_cm_id *resolved(int port)
{
    struct rdma_cm_id *id = new_id();

    NEED(rdma_resolve_addr(id, NULL, address(port), 2000) == 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    NEED(rdma_resolve_route(id, 2000) == 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_qp(id);
    return id;
}

static struct rdma_cm_id *listening(void)
{
    struct rdma_cm_id *id = new_id();

    NEED(rdma_bind_addr(id, address(cm_port)) == 0 && rdma_listen(id, 4) == 0);
    return id;
}

static struct rdma_conn_param parameters(int length)
{
    static uint8_t bytes[256];

    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i + 1);
    return (struct rdma_conn_param){.private_data = length ? bytes : NULL,
                                    .private_data_len = (uint8_t)length,
                                    .responder_resources = 3,
                                    .initiator_depth = 2,
                                    .retry_count = 6,
                                    .rnr_retry_count = 0};
}

static int right_bytes(void)
{
    int n = 0;

    while (n < 255 && data[n] == (uint8_t)(n + 1))
        n++;
    return n;
}

/* Requests a connection; returns the request's id on the passive side. */
static struct rdma_cm_id *requested(struct rdma_cm_id **active)
{
    struct rdma_conn_param p = parameters(4);

    listening();
    *active = resolved(cm_port);
    NEED(rdma_connect(*active, &p) == 0);
    return expect(RDMA_CM_EVENT_CONNECT_REQUEST).id;
}

/* Connects two ids of this process. */
static void connected(struct rdma_cm_id **active, struct rdma_cm_id **passive)
{
    struct rdma_conn_param p = parameters(4);

    *passive = requested(active);
    give_qp(*passive);
    NEED(rdma_accept(*passive, &p) == 0);
    expect(RDMA_CM_EVENT_ESTABLISHED);
    expect(RDMA_CM_EVENT_ESTABLISHED);
}

static void request_data(void)
{
    struct rdma_conn_param p = parameters(57);
    struct rdma_cm_event e;

    listening();
    struct rdma_cm_id *id = resolved(cm_port);
    answer("57 bytes: %s", result(rdma_connect(id, &p)));
    p = parameters(56);
    answer("56 bytes: %s", result(rdma_connect(id, &p)));
    e = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    answer("the listener gets %d, right are %d", e.param.conn.private_data_len, right_bytes());
    answer("responder resources %d, initiator depth %d", e.param.conn.responder_resources,
           e.param.conn.initiator_depth);
    answer("retry count %d, receiver-not-ready %d", e.param.conn.retry_count,
           e.param.conn.rnr_retry_count);
    answer("its port number is %s",
           ntohs(rdma_get_src_port(e.id)) == cm_port ? "right" : "wrong");
}

static void request_without_data(void)
{
    struct rdma_conn_param p = parameters(0);

    listening();
    struct rdma_cm_id *id = resolved(cm_port);
    NEED(rdma_connect(id, &p) == 0);
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    answer("the listener gets %d bytes", e.param.conn.private_data_len);
}

static void accept_data(void)
{
    struct rdma_cm_id *id, *other = requested(&id);
    struct rdma_conn_param p = parameters(197);

    give_qp(other);
    answer("197 bytes: %s", result(rdma_accept(other, &p)));
}

static void accept_data_most(void)
{
    struct rdma_cm_id *id, *other = requested(&id);
    struct rdma_conn_param p = parameters(196);

    give_qp(other);
    answer("196 bytes: %s", result(rdma_accept(other, &p)));
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_event e = expect(RDMA_CM_EVENT_ESTABLISHED);
        if (e.id == id)
            answer("the active side gets %d, right are %d", e.param.conn.private_data_len,
                   right_bytes());
        else
            answer("the passive side gets %d", e.param.conn.private_data_len);
    }
    answer("queue pairs are in %s and %s", qp_state(id->qp), qp_state(other->qp));
}

static void reject_with(int length)
{
    struct rdma_conn_param p = parameters(length);
    struct rdma_cm_id *id, *other = requested(&id);
    struct rdma_cm_event e;

    answer("%d bytes: %s", length,
           result(rdma_reject(other, p.private_data, p.private_data_len)));
    if (length > 148)
        return;
    e = event(WAIT_MS);
    answer("%s, status %d, %d bytes, right are %d", event_name(&e), e.status,
           e.param.conn.private_data_len, right_bytes());
}
static void reject_most(void)
{
    reject_with(148);
}
static void reject_too_much(void)
{
    reject_with(149);
}
static void reject_bare(void)
{
    reject_with(0);
}

static void nobody_listens(void)
{
    struct rdma_conn_param p = parameters(4);
    struct rdma_cm_event e;

    struct rdma_cm_id *id = resolved(cm_port + 1);
    NEED(rdma_connect(id, &p) == 0);
    e = event(WAIT_MS);
    answer("%s, status %d", event_name(&e), e.status);
}

static void listener_closed(void)
{
    struct rdma_conn_param p = parameters(4);
    struct rdma_cm_event e;

    struct rdma_cm_id *l = listening(), *id = resolved(cm_port);
    NEED(rdma_connect(id, &p) == 0);
    struct rdma_cm_id *other = expect(RDMA_CM_EVENT_CONNECT_REQUEST).id;
    answer("destroying the listener: %s", result(rdma_destroy_id(l)));
    answer("and the request: %s", result(rdma_destroy_id(other)));
    e = event(WAIT_MS);
    answer("%s, status %d, %d bytes of data", event_name(&e), e.status,
           e.param.conn.private_data_len);
}

static void disconnecting(void)
{
    struct rdma_cm_id *a, *p;

    connected(&a, &p);
    answer("disconnecting: %s", result(rdma_disconnect(a)));
    unsigned active = 0, passive = 0, others = 0;
    for (struct rdma_cm_event e; (e = event(1000)).event != RDMA_CM_EVENT_MULTICAST_ERROR;) {
        if (e.event == RDMA_CM_EVENT_DISCONNECTED)
            *(e.id == a ? &active : &passive) += 1;
        else if (e.event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
            others++;
    }
    answer("told so: active %u, passive %u, other events %u", active, passive, others);
    answer("queue pairs are in %s and %s", qp_state(a->qp), qp_state(p->qp));
    answer("once more: %s", result(rdma_disconnect(a)));
}

static void destroyed_without_disconnect(void)
{
    struct rdma_cm_id *a, *p;

    connected(&a, &p);
    rdma_destroy_qp(a);
    answer("destroying: %s", result(rdma_destroy_id(a)));
    struct rdma_cm_event e = event(WAIT_MS);
    answer("the other side: %s, status %d", event_name(&e), e.status);
}

static void calls_out_of_order(void)
{
    struct rdma_conn_param p = parameters(4);
    struct rdma_cm_id *id = new_id();

    NEED(rdma_resolve_addr(id, NULL, address(cm_port), 2000) == 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    give_qp(id);
    answer("connect without a route: %s", result(rdma_connect(id, &p)));
    answer("resolve the address again: %s",
           result(rdma_resolve_addr(id, NULL, address(cm_port), 2000)));
    answer("listen: %s", result(rdma_listen(id, 1)));
    NEED(rdma_resolve_route(id, 2000) == 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    answer("resolve the route again: %s", result(rdma_resolve_route(id, 2000)));
    NEED(rdma_connect(id, &p) == 0);
    answer("connect again: %s", result(rdma_connect(id, &p)));
}

static void ports(void)
{
    listening();
    struct rdma_cm_id *id = new_id();
    int ret = rdma_bind_addr(id, address(cm_port));
    answer("the same port again: %s", result(ret));
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)cm_port)};
    id = new_id();
    ret = rdma_bind_addr(id, (struct sockaddr *)&any);
    answer("at all addresses: %s", result(ret));
    any.sin_port = htons((uint16_t)(cm_port + 1));
    NEED(rdma_bind_addr(new_id(), (struct sockaddr *)&any) == 0);
    id = new_id();
    ret = rdma_bind_addr(id, address(cm_port + 1));
    answer("one address where all are taken: %s", result(ret));
    id = new_id();
    ret = rdma_bind_addr(id, (struct sockaddr *)&any);
    answer("all of them again: %s", result(ret));
    id = new_id();
    answer("any port: %s", result(rdma_bind_addr(id, address(0))));
    answer("it has a number: %s", rdma_get_src_port(id) ? "yes" : "no");
    struct sockaddr_in nowhere = {.sin_family = AF_INET};
    inet_pton(AF_INET, "192.0.2.77", &nowhere.sin_addr);
    id = new_id();
    answer("an address that is not ours: %s",
           result(rdma_bind_addr(id, (struct sockaddr *)&nowhere)));
}

static void killed(void)
{
    struct rdma_conn_param p = parameters(4);
    int go[2];
    char c;

    other_process = true;
    NEED(pipe(go) == 0);
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        alarm(30);
        NEED(read(go[0], &c, 1) == 1);
        struct rdma_cm_id *id = resolved(cm_port);
        NEED(rdma_connect(id, &p) == 0);
        expect(RDMA_CM_EVENT_ESTABLISHED);
        for (;;)
            pause();
    }
    listening();
    NEED(write(go[1], "x", 1) == 1);
    struct rdma_cm_id *id = expect(RDMA_CM_EVENT_CONNECT_REQUEST).id;
    give_qp(id);
    NEED(rdma_accept(id, &p) == 0);
    expect(RDMA_CM_EVENT_ESTABLISHED);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    struct rdma_cm_event e = event(WAIT_MS);
    answer("the other side: %s, status %d", event_name(&e), e.status);
}

static void channels(void)
{
    struct rdma_cm_event *e;

    struct rdma_cm_id *id = new_id();
    NEED(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    answer("no event, not blocking: %s", result(rdma_get_cm_event(channel, &e)));
    answer("an id without a device: %s", id->verbs ? "has one" : "has none");
}

const struct question cm_questions[] = {
    {"private data of a request", request_data},
    {"request without private data", request_without_data},
    {"more private data than an answer takes", accept_data},
    {"private data of an answer", accept_data_most},
    {"private data of a refusal", reject_most},
    {"more private data than a refusal takes", reject_too_much},
    {"refusal without private data", reject_bare},
    {"connecting where nobody listens", nobody_listens},
    {"listener and request destroyed", listener_closed},
    {"disconnecting", disconnecting},
    {"destroyed without disconnecting", destroyed_without_disconnect},
    {"calls out of order", calls_out_of_order},
    {"binding", ports},
    {"other process killed", killed},
    {"event channels", channels},
    {NULL, NULL},
};
