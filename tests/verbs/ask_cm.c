/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Questions about rdma_cm: private data, rejections, the end of connections, and where to send
 * datagrams. */
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
static enum rdma_port_space space; /* of new ids; 0: TCP */
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

    if (channel == NULL)
        channel = rdma_create_event_channel();
    NEED(channel && rdma_create_id(channel, &id, NULL, space ? space : RDMA_PS_TCP) == 0);
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
    /* datagrams have them in the same place */
    size_t n = e->param.conn.private_data != NULL ? e->param.conn.private_data_len : 0;
    memset(data, 0, sizeof(data));
    if (n && e->event != RDMA_CM_EVENT_MULTICAST_JOIN)
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
    struct ibv_qp_init_attr qi = {.qp_type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
                                  .cap = {16, 16, 1, 1, 0}};

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

ASK(request_data)
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

ASK(request_without_data)
{
    struct rdma_conn_param p = parameters(0);

    listening();
    struct rdma_cm_id *id = resolved(cm_port);
    NEED(rdma_connect(id, &p) == 0);
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    answer("the listener gets %d bytes", e.param.conn.private_data_len);
}

static struct rdma_cm_id *accepted(struct rdma_cm_id **active)
{
    struct rdma_cm_id *other = requested(active);
    struct rdma_conn_param p = parameters(asked->n);

    give_qp(other);
    answer("%d bytes: %s", asked->n, result(rdma_accept(other, &p)));
    return other;
}

ASK(accept_data)
{
    struct rdma_cm_id *id;

    accepted(&id);
}

ASK(accept_data_most)
{
    struct rdma_cm_id *id, *other = accepted(&id);

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

ASK(reject)
{
    struct rdma_conn_param p = parameters(asked->n);
    struct rdma_cm_id *id, *other = requested(&id);
    struct rdma_cm_event e;

    answer("%d bytes: %s", asked->n,
           result(rdma_reject(other, p.private_data, p.private_data_len)));
    if (asked->n > 148)
        return;
    e = event(WAIT_MS);
    answer("%s, status %d, %d bytes, right are %d", event_name(&e), e.status,
           e.param.conn.private_data_len, right_bytes());
}

ASK(nobody_listens)
{
    struct rdma_conn_param p = parameters(4);
    struct rdma_cm_event e;

    struct rdma_cm_id *id = resolved(cm_port + 1);
    NEED(rdma_connect(id, &p) == 0);
    e = event(WAIT_MS);
    answer("%s, status %d", event_name(&e), e.status);
}

ASK(listener_closed)
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

ASK(disconnecting)
{
    struct rdma_cm_id *own, *other;

    connected(&own, &other);
    answer("disconnecting: %s", result(rdma_disconnect(own)));
    unsigned active = 0, passive = 0, others = 0;
    for (struct rdma_cm_event e; (e = event(1000)).event != RDMA_CM_EVENT_MULTICAST_ERROR;) {
        if (e.event == RDMA_CM_EVENT_DISCONNECTED)
            *(e.id == own ? &active : &passive) += 1;
        else if (e.event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
            others++;
    }
    answer("told so: active %u, passive %u, other events %u", active, passive, others);
    answer("queue pairs are in %s and %s", qp_state(own->qp), qp_state(other->qp));
    answer("once more: %s", result(rdma_disconnect(own)));
}

ASK(destroyed_without_disconnect)
{
    struct rdma_cm_id *own, *other;

    connected(&own, &other);
    rdma_destroy_qp(own);
    answer("destroying: %s", result(rdma_destroy_id(own)));
    struct rdma_cm_event e = event(WAIT_MS);
    answer("the other side: %s, status %d", event_name(&e), e.status);
}

ASK(calls_out_of_order)
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

static void answer_bind(const char *what, struct sockaddr *to)
{
    struct rdma_cm_id *id = new_id();

    answer("%s: %s", what, result(rdma_bind_addr(id, to)));
}

ASK(ports)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)cm_port)};
    struct sockaddr_in nowhere = {.sin_family = AF_INET};
    struct sockaddr *all = (struct sockaddr *)&any;

    listening();
    answer_bind("the same port again", address(cm_port));
    answer_bind("at all addresses", all);
    any.sin_port = htons((uint16_t)(cm_port + 1));
    NEED(rdma_bind_addr(new_id(), all) == 0);
    answer_bind("one address where all are taken", address(cm_port + 1));
    answer_bind("all of them again", all);
    struct rdma_cm_id *id = new_id();
    answer("any port: %s", result(rdma_bind_addr(id, address(0))));
    answer("it has a number: %s", rdma_get_src_port(id) ? "yes" : "no");
    inet_pton(AF_INET, "192.0.2.77", &nowhere.sin_addr);
    answer_bind("an address that is not ours", (struct sockaddr *)&nowhere);
}

ASK(killed)
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

ASK(channels)
{
    struct rdma_cm_event *e;

    struct rdma_cm_id *id = new_id();
    NEED(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    answer("no event, not blocking: %s", result(rdma_get_cm_event(channel, &e)));
    answer("an id without a device: %s", id->verbs != NULL ? "has one" : "has none");
}

/* ---- Datagrams ---- */

static struct rdma_cm_id *looked_up(struct rdma_cm_id **active)
{
    struct rdma_conn_param p = parameters(181);

    space = RDMA_PS_UDP;
    listening();
    *active = resolved(cm_port);
    answer("queue pair in %s", qp_state((*active)->qp));
    answer("181 bytes: %s", result(rdma_connect(*active, &p)));
    p = parameters(180);
    answer("180 bytes: %s", result(rdma_connect(*active, &p)));
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    answer("the listener gets %d, right are %d", e.param.ud.private_data_len, right_bytes());
    return e.id;
}

ASK(too_long_answer)
{
    struct rdma_conn_param p = parameters(137);
    struct rdma_cm_id *id, *other = looked_up(&id);

    give_qp(other);
    answer("137 bytes: %s", result(rdma_accept(other, &p)));
}

ASK(resolve_service)
{
    struct rdma_conn_param p = parameters(136);
    struct rdma_cm_id *id, *other = looked_up(&id);
    static unsigned char buf[256];
    struct ibv_wc wc;

    give_qp(other);
    answer("answering with 136 bytes: %s", result(rdma_accept(other, &p)));
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_ESTABLISHED);
    answer("the active side gets %d, right are %d", e.param.ud.private_data_len, right_bytes());
    answer("it is told %s", e.id == id && e.param.ud.qp_num == other->qp->qp_num
                                ? "the queue pair"
                                : "another queue pair");
    answer("Q_Key %x", e.param.ud.qkey);
    answer("the passive side: %s", readable(channel->fd, NONE_MS) ? "an event" : "no event");
    struct ibv_mr *mr = ibv_reg_mr(other->pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah *ah = ibv_create_ah(id->pd, &e.param.ud.ah_attr);
    NEED(mr && ah);
    struct ibv_sge sge = {(uintptr_t)buf, sizeof(buf), mr->lkey};
    struct ibv_recv_wr rr = {.sg_list = &sge, .num_sge = 1}, *bad_rr;
    NEED(ibv_post_recv(other->qp, &rr, &bad_rr) == 0);
    struct ibv_send_wr wr = {.opcode = SEND, .send_flags = SIGNALED}, *bad;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = e.param.ud.qp_num;
    wr.wr.ud.remote_qkey = e.param.ud.qkey;
    NEED(ibv_post_send(id->qp, &wr, &bad) == 0);
    NEED(next_wc(other->recv_cq, &wc, WAIT_MS));
    answer("a datagram there: %s, %u bytes", status_name(wc.status), wc.byte_len);
    answer("disconnecting: %s", result(rdma_disconnect(id)));
}

ASK(refused_service)
{
    struct rdma_cm_id *id, *other = looked_up(&id);

    answer("refusing: %s", result(rdma_reject(other, NULL, 0)));
    answer("status %d", expect(RDMA_CM_EVENT_UNREACHABLE).status);
}

ASK(no_service)
{
    struct rdma_conn_param p = parameters(4);

    space = RDMA_PS_UDP;
    struct rdma_cm_id *id = resolved(cm_port);
    NEED(rdma_connect(id, &p) == 0);
    answer("status %d", expect(RDMA_CM_EVENT_UNREACHABLE).status);
}

ASK(join)
{
    struct sockaddr_in to = {.sin_family = AF_INET};

    space = RDMA_PS_UDP;
    struct rdma_cm_id *id = new_id();
    to.sin_addr.s_addr = htonl(0xef070703);
    answer("without an address: %s",
           result(rdma_join_multicast(id, (struct sockaddr *)&to, NULL)));
    NEED(rdma_bind_addr(id, address(0)) == 0);
    give_qp(id);
    answer("joining: %s", result(rdma_join_multicast(id, (struct sockaddr *)&to, &to)));
    struct rdma_cm_event e = expect(RDMA_CM_EVENT_MULTICAST_JOIN);
    answer("status %d", e.status);
    answer("the context is %s", e.param.ud.private_data == &to ? "right" : "wrong");
    answer("queue pair %x, Q_Key %x", e.param.ud.qp_num, e.param.ud.qkey);
    const uint8_t *gid = e.param.ud.ah_attr.grh.dgid.raw;
    bool v4 = gid[0] == 0 && gid[10] == 0xff && gid[12] == 239;
    answer("a group: %s",
           e.param.ud.ah_attr.is_global && (gid[0] == 0xff || v4) ? "yes" : "no");
    answer("leaving: %s", result(rdma_leave_multicast(id, (struct sockaddr *)&to)));
    answer("again: %s", result(rdma_leave_multicast(id, (struct sockaddr *)&to)));
}

const struct question cm_questions[] = {
    {"private data of a request", .ask = request_data, .setup = NOTHING},
    {"request without private data", .ask = request_without_data, .setup = NOTHING},
    {"more private data than an answer takes", .ask = accept_data, .n = 197, .setup = NOTHING},
    {"private data of an answer", .ask = accept_data_most, .n = 196, .setup = NOTHING},
    {"private data of a refusal", .ask = reject, .n = 148, .setup = NOTHING},
    {"more private data than a refusal takes", .ask = reject, .n = 149, .setup = NOTHING},
    {"refusal without private data", .ask = reject, .setup = NOTHING},
    {"connecting where nobody listens", .ask = nobody_listens, .setup = NOTHING},
    {"listener and request destroyed", .ask = listener_closed, .setup = NOTHING},
    {"disconnecting", .ask = disconnecting, .setup = NOTHING},
    {"destroyed without disconnecting", .ask = destroyed_without_disconnect, .setup = NOTHING},
    {"calls out of order", .ask = calls_out_of_order, .setup = NOTHING},
    {"binding", .ask = ports, .setup = NOTHING},
    {"other process killed", .ask = killed, .setup = NOTHING},
    {"event channels", .ask = channels, .setup = NOTHING},
    {"asking where to send datagrams", .ask = resolve_service, .setup = NOTHING},
    {"answering more than fits where to send datagrams", .ask = too_long_answer,
     .setup = NOTHING},
    {"refusing to say where to send datagrams", .ask = refused_service, .setup = NOTHING},
    {"asking where nobody listens", .ask = no_service, .setup = NOTHING},
    {"joining a group by its address", .ask = join, .setup = NOTHING},
    {NULL},
};
