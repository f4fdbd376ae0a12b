/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The client's end of raw connections; see raw.h.  An id without a channel makes rdma_cm's
 * calls wait. */
#include "bench/doctor/raw.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>

#include "bench/transport.h"

#define RESOLVE_MS 10000
#define SILENCE_NS UINT64_C(10000000000) /* without a completion */
#define WINDOW     16

struct raw {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char *memory;
    struct raw_memory peer;
};

static int fail(char *why, const char *what)
{
    snprintf(why, WHY_SIZE, "raw verbs: %s: %s", what, strerror(errno));
    return -1;
}

/* Converts a numeric address; IPv4 in IPv6 to IPv4.  Returns NULL for none. */
static struct sockaddr *address_of(const char *text, struct sockaddr_storage *to)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)to;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;
    struct in6_addr a;

    memset(to, 0, sizeof *to);
    if (inet_pton(AF_INET6, text, &a) != 1)
        return NULL;
    if (IN6_IS_ADDR_V4MAPPED(&a)) {
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, a.s6_addr + 12, 4);
    } else {
        v6->sin6_family = AF_INET6;
        v6->sin6_addr = a;
    }
    return (struct sockaddr *)to;
}

static int resolve(struct raw *raw, const char *host, unsigned port, const char *source,
                   unsigned class, char *why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    struct sockaddr_storage from;
    uint8_t tos = (uint8_t) class;
    char service[8];
    int rc = 0;

    snprintf(service, sizeof service, "%u", port);
    if (getaddrinfo(host, service, &hints, &list) != 0) {
        snprintf(why, WHY_SIZE, "raw verbs: %s: unknown host", host);
        return -1;
    }
    if (rdma_create_id(NULL, &raw->id, NULL, RDMA_PS_TCP) != 0)
        rc = fail(why, "an id");
    else if ((tos && rdma_set_option(raw->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos,
                                     sizeof tos) != 0) ||
             rdma_resolve_addr(raw->id, address_of(source, &from), list->ai_addr, RESOLVE_MS) !=
                 0 ||
             rdma_resolve_route(raw->id, RESOLVE_MS) != 0)
        rc = fail(why, host);
    freeaddrinfo(list);
    return rc;
}

static int prepare(struct raw *raw, char *why)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = WINDOW, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

    raw->memory = aligned_alloc(4096, RAW_BYTES);
    if (raw->memory == NULL)
        return fail(why, "memory");
    memset(raw->memory, 1, RAW_BYTES);
    raw->mr = ibv_reg_mr(raw->id->pd, raw->memory, RAW_BYTES, IBV_ACCESS_LOCAL_WRITE);
    raw->cq = ibv_create_cq(raw->id->verbs, WINDOW, NULL, NULL, 0);
    attr.send_cq = attr.recv_cq = raw->cq;
    if (raw->mr == NULL || raw->cq == NULL || rdma_create_qp(raw->id, raw->id->pd, &attr) != 0)
        return fail(why, "a queue pair");
    return 0;
}

static int connect_to(struct raw *raw, char *why)
{
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    const struct rdma_cm_event *event;

    if (rdma_connect(raw->id, &param) != 0)
        return fail(why, "connecting");
    event = raw->id->event;
    if (event == NULL || event->param.conn.private_data_len < sizeof raw->peer) {
        errno = EPROTO;
        return fail(why, "the answer of the server");
    }
    memcpy(&raw->peer, event->param.conn.private_data, sizeof raw->peer);
    raw->peer.address = le64toh(raw->peer.address);
    raw->peer.rkey = le32toh(raw->peer.rkey);
    return 0;
}

int raw_open(const char *host, unsigned port, const char *source, unsigned class,
             struct raw **out, char *why)
{
    struct raw *raw = calloc(1, sizeof *raw);

    *out = raw;
    if (raw == NULL)
        return fail(why, "memory");
    if (!resolve(raw, host, port, source, class, why) && !prepare(raw, why) &&
        !connect_to(raw, why))
        return 0;
    raw_close(raw);
    *out = NULL;
    return -1;
}

void raw_close(struct raw *raw)
{
    if (raw == NULL)
        return;
    if (raw->id != NULL && raw->id->qp != NULL) {
        rdma_disconnect(raw->id);
        rdma_destroy_qp(raw->id);
    }
    if (raw->cq != NULL)
        ibv_destroy_cq(raw->cq);
    if (raw->mr != NULL)
        ibv_dereg_mr(raw->mr);
    if (raw->id != NULL)
        rdma_destroy_id(raw->id);
    free(raw->memory);
    free(raw);
}

const char *raw_path(const struct raw *raw, char *text)
{
    snprintf(text, WHY_SIZE, "%s port %u,", ibv_get_device_name(raw->id->verbs->device),
             raw->id->port_num);
    return text;
}

static int post(struct raw *raw, size_t size)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)raw->memory, .length = (uint32_t)size, .lkey = raw->mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.sg_list = &sge,
              .num_sge = 1,
              .opcode = IBV_WR_RDMA_WRITE,
              .send_flags = IBV_SEND_SIGNALED,
              .wr.rdma = {.remote_addr = raw->peer.address, .rkey = raw->peer.rkey}};
    int rc = ibv_post_send(raw->id->qp, &wr, &bad);

    errno = rc;
    return rc;
}

/* Waits for a completion. */
static int reap(struct raw *raw, char *why)
{
    uint64_t limit = clock_ns() + SILENCE_NS;
    struct ibv_wc wc;
    int n;

    while ((n = ibv_poll_cq(raw->cq, 1, &wc)) == 0)
        if (clock_ns() > limit) {
            errno = ETIMEDOUT;
            return fail(why, "a completion");
        }
    if (n == 1 && wc.status == IBV_WC_SUCCESS)
        return 0;
    snprintf(why, WHY_SIZE, "raw verbs: a completion: %s",
             n < 0 ? "polling failed" : ibv_wc_status_str(wc.status));
    return -1;
}

int raw_run(struct raw *raw, size_t size, unsigned window, unsigned count, uint64_t *ns,
            char *why)
{
    uint64_t begin = clock_ns();

    window = window < WINDOW ? window : WINDOW;
    for (unsigned posted = 0, done = 0; done < count; done++) {
        for (; posted < count && posted - done < window; posted++)
            if (post(raw, size) != 0)
                return fail(why, "posting");
        if (reap(raw, why) != 0)
            return -1;
    }
    *ns = clock_ns() - begin;
    return 0;
}
