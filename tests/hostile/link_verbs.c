/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ends of connections over verbs; see medium.h. */
#include "medium.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_RECEIVE 0x10000u /* wr_id of a receive, and its index */
#define ID_SEND    0x20000u
#define ID_RDMA    0x30000u

struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory; /* sends, receives, one buffer for RDMA */
    bool no_receives;
    unsigned sends, sending; /* posted so far; in flight */
    uint32_t closes;         /* key of the window that the next message closes, 0: none */
    bool ended, rdma_done;
    int rdma_error;
    struct {
        bool is_imm;
        uint32_t imm;
        uint32_t length;
        unsigned index;
    } inbox[RECEIVES];
    unsigned in_first, in_count, arrived;
};

static bool parse(const char *text, struct target *target)
{
    struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    char host[256];
    const char *colon = strrchr(text, ':');

    if (colon == NULL || colon - text >= (int)sizeof host)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return false;
    memcpy(&target->address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return true;
}

/* ---- Connecting ---- */

static int os_error(void)
{
    return errno != 0 ? -errno : -EIO;
}

/* Waits for the next event and copies its private data. */
static int next_event(struct end *end, enum rdma_cm_event_type want, uint8_t *data, size_t size)
{
    struct pollfd at = {.fd = end->channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    int result = 0;

    if (poll(&at, 1, STEP_MS) <= 0)
        return -ETIMEDOUT;
    if (rdma_get_cm_event(end->channel, &event) != 0)
        return os_error();
    if (event->event == RDMA_CM_EVENT_REJECTED) {
        result = -EACCES;
    } else if (event->event != want) {
        result = event->status < 0 ? event->status : -ECONNREFUSED;
    } else if (data != NULL && event->param.conn.private_data != NULL) {
        size_t length = event->param.conn.private_data_len;

        result = (int)(length < size ? length : size);
        memcpy(data, event->param.conn.private_data, (size_t)result);
    }
    rdma_ack_cm_event(event);
    return result;
}

static int make_memory(struct end *end)
{
    size_t size = (SENDS + RECEIVES + 1) * (size_t)LINK_MESSAGE;

    end->memory = aligned_alloc(4096, size);
    if (end->memory == NULL)
        return -ENOMEM;
    memset(end->memory, 0, size);
    end->mr = ibv_reg_mr(end->pd, end->memory, size, IBV_ACCESS_LOCAL_WRITE);
    return end->mr != NULL ? 0 : os_error();
}

static uint8_t *send_buffer(struct end *end, unsigned i)
{
    return end->memory + (size_t)i * LINK_MESSAGE;
}

static uint8_t *receive_buffer(struct end *end, unsigned i)
{
    return end->memory + (size_t)(SENDS + i) * LINK_MESSAGE;
}

static uint8_t *rdma_buffer(struct end *end)
{
    return end->memory + (size_t)(SENDS + RECEIVES) * LINK_MESSAGE;
}

static int post_receive(struct end *end, unsigned i)
{
    struct ibv_sge piece = {(uintptr_t)receive_buffer(end, i), LINK_MESSAGE, end->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = ID_RECEIVE + i, .sg_list = &piece, .num_sge = 1};

    return -ibv_post_recv(end->qp, &wr, &bad);
}

static int make_queues(struct end *end)
{
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = SENDS + 2,
                                            .max_recv_wr = RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    int error;

    end->pd = ibv_alloc_pd(end->id->verbs);
    if (end->pd == NULL)
        return os_error();
    end->cq = ibv_create_cq(end->id->verbs, SENDS + RECEIVES + 4, NULL, NULL, 0);
    if (end->cq == NULL)
        return os_error();
    error = make_memory(end);
    if (error != 0)
        return error;
    attr.send_cq = attr.recv_cq = end->cq;
    if (rdma_create_qp(end->id, end->pd, &attr) != 0)
        return os_error();
    end->qp = end->id->qp;
    for (unsigned i = 0; error == 0 && !end->no_receives && i < RECEIVES; i++)
        error = post_receive(end, i);
    return error;
}

static int ask(struct end *end, const void *hello, size_t length)
{
    struct rdma_conn_param param = {.private_data = hello,
                                    .private_data_len = (uint8_t)length,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7};

    return rdma_connect(end->id, &param) == 0 ? 0 : os_error();
}

static int begin_end(struct end *end, const struct target *target)
{
    struct sockaddr *to = (struct sockaddr *)(uintptr_t)&target->address;
    int error;

    end->channel = rdma_create_event_channel();
    if (end->channel == NULL || rdma_create_id(end->channel, &end->id, end, RDMA_PS_TCP) != 0)
        return os_error();
    if (rdma_resolve_addr(end->id, NULL, to, STEP_MS) != 0)
        return os_error();
    error = next_event(end, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0);
    if (error == 0 && rdma_resolve_route(end->id, STEP_MS) != 0)
        error = os_error();
    if (error == 0)
        error = next_event(end, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, 0);
    return error != 0 ? error : make_queues(end);
}

static void drop(struct end *end, bool goodbye)
{
    if (end == NULL)
        return;
    if (goodbye && end->id != NULL)
        rdma_disconnect(end->id);
    if (end->qp != NULL)
        rdma_destroy_qp(end->id);
    if (end->id != NULL)
        rdma_destroy_id(end->id);
    if (end->mr != NULL)
        ibv_dereg_mr(end->mr);
    free(end->memory);
    if (end->cq != NULL)
        ibv_destroy_cq(end->cq);
    if (end->pd != NULL)
        ibv_dealloc_pd(end->pd);
    if (end->channel != NULL)
        rdma_destroy_event_channel(end->channel);
    free(end);
}

static struct end *begin(const struct target *target, const struct link_plan *plan,
                         const void *hello, size_t length, int *error)
{
    struct end *end = calloc(1, sizeof *end);

    *error = -ENOMEM;
    if (end == NULL)
        return NULL;
    end->no_receives = plan->no_receives;
    *error = begin_end(end, target);
    if (*error == 0)
        *error = ask(end, hello, length);
    if (*error == 0)
        return end;
    drop(end, false);
    return NULL;
}

static int wait_up(struct end *end, uint8_t *hello, size_t size)
{
    int result = next_event(end, RDMA_CM_EVENT_ESTABLISHED, hello, size);

    if (result >= 0)
        fcntl(end->channel->fd, F_SETFL, fcntl(end->channel->fd, F_GETFL) | O_NONBLOCK);
    return result;
}

/* ---- Completions ---- */

/* Polls for the event that the peer has disconnected. */
static void look_for_end(struct end *end)
{
    struct rdma_cm_event *event;

    while (rdma_get_cm_event(end->channel, &event) == 0) {
        if (event->event == RDMA_CM_EVENT_DISCONNECTED)
            end->ended = true;
        rdma_ack_cm_event(event);
    }
}

static void receive_done(struct end *end, const struct ibv_wc *wc)
{
    unsigned at = (end->in_first + end->in_count) % RECEIVES;

    end->inbox[at].is_imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    end->inbox[at].imm = ntohl(wc->imm_data);
    end->inbox[at].length = wc->byte_len;
    end->inbox[at].index = (unsigned)(wc->wr_id - ID_RECEIVE);
    end->in_count++;
    end->arrived++;
}

static void completed(struct end *end, const struct ibv_wc *wc)
{
    if (wc->wr_id >= ID_RDMA) {
        end->rdma_done = true;
        end->rdma_error = wc->status == IBV_WC_SUCCESS          ? 0
                          : wc->status == IBV_WC_REM_ACCESS_ERR ? -EACCES
                                                                : -EIO;
    } else if (wc->wr_id >= ID_SEND) {
        end->sending--;
    }
    if (wc->status != IBV_WC_SUCCESS)
        end->ended = true;
    else if (wc->wr_id < ID_SEND)
        receive_done(end, wc);
}

static void look(struct end *end)
{
    struct ibv_wc wc[16];
    int n;

    while ((n = ibv_poll_cq(end->cq, 16, wc)) > 0)
        for (int i = 0; i < n; i++)
            completed(end, &wc[i]);
    look_for_end(end);
}

static unsigned arrived(struct end *end)
{
    unsigned n = end->arrived;

    end->arrived = 0;
    return n;
}

static bool has_ended(const struct end *end)
{
    return end->ended;
}

/* ---- Sending ---- */

static uint8_t *room(struct end *end)
{
    while (!end->ended && end->sending == SENDS) {
        look(end);
        if (end->sending == SENDS)
            breathe();
    }
    return end->ended ? NULL : send_buffer(end, end->sends % SENDS);
}

static int post(struct end *end, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    wr->wr_id += ID_SEND;
    wr->send_flags |= IBV_SEND_SIGNALED;
    if (ibv_post_send(end->qp, wr, &bad) != 0)
        return -ENOTCONN;
    end->sends++;
    end->sending++;
    return 0;
}

static int send_message(struct end *end, size_t length)
{
    struct ibv_sge piece = {(uintptr_t)send_buffer(end, end->sends % SENDS), (uint32_t)length,
                            end->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece,
                             .num_sge = 1,
                             .opcode = end->closes ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
                             .invalidate_rkey = end->closes};

    end->closes = 0;
    return post(end, &wr);
}

static void closes(struct end *end, uint64_t key)
{
    end->closes = (uint32_t)key;
}

/* Sends an immediate with an empty write. */
static int send_imm(struct end *end, uint32_t imm)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(imm)};

    return room(end) != NULL ? post(end, &wr) : -ENOTCONN;
}

/* ---- Receiving ---- */

/* Copies an arrival and reposts its buffer. */
static bool take(struct end *end, struct arrival *arrival)
{
    unsigned at = end->in_first, index = end->inbox[at].index;

    if (end->in_count == 0)
        return false;
    *arrival = (struct arrival){.is_imm = end->inbox[at].is_imm,
                                .imm = end->inbox[at].imm,
                                .length = end->inbox[at].length};
    end->in_first = (at + 1) % RECEIVES;
    end->in_count--;
    if (!arrival->is_imm)
        memcpy(arrival->bytes, receive_buffer(end, index), arrival->length);
    if (!end->ended && post_receive(end, index) != 0)
        end->ended = true;
    return true;
}

/* ---- RDMA ---- */

static int rdma(struct end *end, enum ibv_wr_opcode opcode, uint64_t address, uint64_t key,
                size_t length)
{
    struct ibv_sge piece = {(uintptr_t)rdma_buffer(end), (uint32_t)length, end->mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = ID_RDMA,
                                   .sg_list = &piece,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {.remote_addr = address, .rkey = (uint32_t)key}};
    uint64_t deadline = after_ms(STEP_MS);

    end->rdma_done = false;
    if (end->ended || ibv_post_send(end->qp, &wr, &bad) != 0)
        return -ENOTCONN;
    while (!end->rdma_done && !past(deadline)) {
        look(end);
        if (!end->rdma_done)
            breathe();
    }
    return end->rdma_done ? end->rdma_error : -ETIMEDOUT;
}

static int read_there(struct end *end, uint64_t address, uint64_t key, void *data,
                      size_t length)
{
    int error = rdma(end, IBV_WR_RDMA_READ, address, key, length);

    if (error == 0)
        memcpy(data, rdma_buffer(end), length);
    return error;
}

static int write_there(struct end *end, uint64_t address, uint64_t key, const void *data,
                       size_t length)
{
    memcpy(rdma_buffer(end), data, length);
    return rdma(end, IBV_WR_RDMA_WRITE, address, key, length);
}

const struct medium medium_verbs = {.scheme = "ib://",
                                    .strict = true,
                                    .parse = parse,
                                    .begin = begin,
                                    .wait_up = wait_up,
                                    .drop = drop,
                                    .room = room,
                                    .send = send_message,
                                    .send_imm = send_imm,
                                    .closes = closes,
                                    .look = look,
                                    .look_for_end = look_for_end,
                                    .arrived = arrived,
                                    .take = take,
                                    .ended = has_ended,
                                    .read = read_there,
                                    .write = write_there};
