/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The server's end of raw connections; see raw.h. */
#include "bench/doctor/raw.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>

#include "bench/job.h"

#define CONNECT_S 60  /* until the client connects */
#define SERVE_S   600 /* until it disconnects */
#define CHECK_MS  100 /* longest delay of raw_stop() */

struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char *memory;
};

static struct {
    pthread_t thread;
    bool started;     /* the thread has to be joined */
    atomic_bool runs; /* false: it ends, or has ended */
    atomic_bool stop;
    struct end end; /* the thread's while it runs */
} server;

/* ---- The thread ---- */

/* Waits for an event; true with the event, to be acknowledged. */
static bool next_event(struct end *end, unsigned seconds, struct rdma_cm_event **event)
{
    struct pollfd fd = {.fd = end->channel->fd, .events = POLLIN};
    uint64_t limit = clock_ns() + seconds * UINT64_C(1000000000);

    while (!atomic_load(&server.stop) && clock_ns() < limit)
        if (poll(&fd, 1, CHECK_MS) > 0)
            return rdma_get_cm_event(end->channel, event) == 0;
    return false;
}

/* Creates what the client accesses.  On failure drop() releases the rest. */
static bool prepare(struct end *end)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

    end->memory = aligned_alloc(4096, RAW_BYTES);
    if (end->memory == NULL)
        return false;
    memset(end->memory, 0, RAW_BYTES);
    end->mr = ibv_reg_mr(end->id->pd, end->memory, RAW_BYTES,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    end->cq = ibv_create_cq(end->id->verbs, 2, NULL, NULL, 0);
    attr.send_cq = attr.recv_cq = end->cq;
    return end->mr != NULL && end->cq != NULL &&
           rdma_create_qp(end->id, end->id->pd, &attr) == 0;
}

static bool answer(struct end *end)
{
    struct raw_memory memory;
    struct rdma_conn_param param = {
        .private_data = &memory, .private_data_len = sizeof memory, .rnr_retry_count = 7};

    if (!prepare(end))
        return false;
    memory = (struct raw_memory){.address = htole64((uint64_t)(uintptr_t)end->memory),
                                 .rkey = htole32(end->mr->rkey)};
    return rdma_accept(end->id, &param) == 0;
}

static void serve(struct end *end)
{
    struct rdma_cm_event *event;
    enum rdma_cm_event_type type = RDMA_CM_EVENT_CONNECT_REQUEST;

    if (!next_event(end, CONNECT_S, &event))
        return;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        end->id = event->id;
    rdma_ack_cm_event(event);
    if (end->id == NULL || !answer(end))
        return;
    while (type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED) {
        if (!next_event(end, SERVE_S, &event))
            break;
        type = event->event;
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            rdma_reject(event->id, NULL, 0);
            rdma_destroy_id(event->id);
        }
        rdma_ack_cm_event(event);
    }
    rdma_disconnect(end->id);
}

static void drop(struct end *end)
{
    if (end->id != NULL && end->id->qp != NULL)
        rdma_destroy_qp(end->id);
    if (end->cq != NULL)
        ibv_destroy_cq(end->cq);
    if (end->mr != NULL)
        ibv_dereg_mr(end->mr);
    if (end->id != NULL)
        rdma_destroy_id(end->id);
    if (end->listener != NULL)
        rdma_destroy_id(end->listener);
    if (end->channel != NULL)
        rdma_destroy_event_channel(end->channel);
    free(end->memory);
    *end = (struct end){0};
}

static void *run(void *arg)
{
    serve(arg);
    drop(arg);
    atomic_store(&server.runs, false);
    return NULL;
}

/* ---- The server ---- */

/* Listens on every address, of both families where the system has IPv6. */
static int listen_anywhere(struct end *end)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};

    end->channel = rdma_create_event_channel();
    if (end->channel == NULL ||
        rdma_create_id(end->channel, &end->listener, NULL, RDMA_PS_TCP) != 0)
        return -errno;
    if (rdma_bind_addr(end->listener, (struct sockaddr *)&six) != 0 &&
        rdma_bind_addr(end->listener, (struct sockaddr *)&four) != 0)
        return -errno;
    return rdma_listen(end->listener, 1) != 0 ? -errno : 0;
}

int raw_serve(void)
{
    int rc;

    if (atomic_load(&server.runs))
        return -EBUSY;
    raw_stop(); /* joins the last thread */
    rc = listen_anywhere(&server.end);
    if (!rc) {
        rc = ntohs(rdma_get_src_port(server.end.listener));
        atomic_store(&server.runs, true);
        int error = pthread_create(&server.thread, NULL, run, &server.end);
        server.started = !error;
        if (error)
            rc = -error;
    }
    if (rc < 0) {
        atomic_store(&server.runs, false);
        drop(&server.end);
    }
    return rc;
}

void raw_stop(void)
{
    if (!server.started)
        return;
    atomic_store(&server.stop, true);
    pthread_join(server.thread, NULL);
    atomic_store(&server.stop, false);
    server.started = false;
}
