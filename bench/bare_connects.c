/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bare_connects.c - a client resolves address and route, creates a QP and connects; the server
 * creates a QP with an SRQ and accepts. A client that is rejected by a full backlog retries
 * after a pause.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "bench/bare_connects.h"
#include "bench/ends.h"
#include "bench/gang.h"

enum { BACKLOG = 1024, RESOLVE_MS = 60000, NAP_MS = 20, DEPTH = 16 };

/* CQ and SRQ shared by all QPs of a process; no data is sent. */
struct queues {
    struct ibv_cq *cq;
    struct ibv_srq *srq;
};

static void make_queues(struct queues *q, struct ibv_context *device, struct ibv_pd *pd)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = 1}};

    if (q->cq)
        return;
    q->cq = ibv_create_cq(device, DEPTH, NULL, NULL, 0);
    q->srq = ibv_create_srq(pd, &attr);
    if (!q->cq || !q->srq)
        ends_die("queues", errno);
}

static void make_pair(struct queues *q, struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = DEPTH, .max_send_sge = 1}};

    make_queues(q, id->verbs, id->pd);
    attr.send_cq = attr.recv_cq = q->cq;
    attr.srq = q->srq;
    if (rdma_create_qp(id, id->pd, &attr) != 0)
        ends_die("a queue pair", errno);
}

static struct rdma_cm_id *make_id(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *id;

    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
        ends_die("an id", errno);
    return id;
}

static struct rdma_event_channel *make_channel(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();

    if (!channel)
        ends_die("an event channel", errno);
    return channel;
}

/* The protection domain is librdmacm's own, one per device. */
static void drop_id(struct rdma_cm_id *id)
{
    if (id->qp)
        rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

/* ---- The server ---- */

static void accept_all(struct rdma_event_channel *channel)
{
    struct queues q = {.cq = NULL};
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_cm_event *event;

    while (rdma_get_cm_event(channel, &event) == 0) {
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;

        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            make_pair(&q, id);
            if (rdma_accept(id, &param) != 0)
                ends_die("the client's connection", errno);
        } else if (type != RDMA_CM_EVENT_ESTABLISHED) {
            drop_id(id);
        }
    }
    ends_die("events of the server", errno);
}

static pid_t start_server(uint16_t *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd[2];
    pid_t pid = -1;

    if (pipe(fd) < 0 || (pid = fork()) < 0)
        ends_die("a server", errno);
    if (pid == 0) {
        struct rdma_event_channel *channel = make_channel();
        struct rdma_cm_id *id = make_id(channel);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (rdma_bind_addr(id, (struct sockaddr *)&any) != 0 || rdma_listen(id, BACKLOG) != 0)
            ends_die("listening", errno);
        *port = rdma_get_src_port(id);
        if (write(fd[1], port, sizeof(*port)) != sizeof(*port))
            _exit(1);
        accept_all(channel);
    }
    close(fd[1]);
    if (read(fd[0], port, sizeof(*port)) != sizeof(*port))
        ends_die("the server", ECHILD);
    close(fd[0]);
    return pid;
}

/* ---- Clients ---- */

static void begin(struct rdma_event_channel *channel, const struct sockaddr_in *to)
{
    struct rdma_cm_id *id = make_id(channel);

    if (rdma_resolve_addr(id, NULL, (struct sockaddr *)(uintptr_t)to, RESOLVE_MS) != 0)
        ends_die("an address", errno);
}

/* Executes the step that follows an event. True: established; *away: rejected. */
static bool go_on(struct queues *q, struct rdma_cm_id *id, enum rdma_cm_event_type type,
                  bool *away)
{
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7};

    *away = false;
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(id, RESOLVE_MS) != 0)
            ends_die("a route", errno);
        return false;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        make_pair(q, id);
        if (rdma_connect(id, &param) != 0)
            ends_die("a connection", errno);
        return false;
    case RDMA_CM_EVENT_ESTABLISHED:
        return true;
    default:
        *away = true;
        return false;
    }
}

static void connect_all(struct gang *g, unsigned n, const void *arg)
{
    const struct sockaddr_in *to = arg;
    struct rdma_event_channel *channel = make_channel();
    struct queues q = {.cq = NULL};
    struct rdma_cm_event *event;
    uint64_t again = 0;

    gang_step_over(g, 0);
    for (unsigned i = 0; i < n; i++)
        begin(channel, to);
    for (unsigned left = n; left != 0;) {
        bool away;

        if (rdma_get_cm_event(channel, &event) != 0)
            ends_die("events of a client", errno);
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (go_on(&q, id, type, &away))
            left--;
        if (away) {
            drop_id(id);
            (void)poll(NULL, 0, NAP_MS);
            begin(channel, to);
            again++;
        }
    }
    gang_step_over(g, again);
    pause();
}

double bare_connects(unsigned clients, unsigned processes, uint64_t *again)
{
    struct gang g = {.processes = processes};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint16_t port;
    pid_t server = start_server(&port);

    to.sin_port = port;
    gang_start(&g, clients, connect_all, &to);
    gang_all_over(&g);
    double before = ends_now_us();
    *again = gang_next_step(&g);
    double took = (ends_now_us() - before) / 1e6;
    gang_end(&g);
    ends_stop(server);
    return took;
}
