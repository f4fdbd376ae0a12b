/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A link by bare verbs; see link.h. */
#include "link.h"

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
#include <time.h>
#include <unistd.h>

#define SENDS    64 /* send buffers */
#define RECEIVES 64
#define STEP_MS  5000 /* for each step of connecting */
#define CREDITS  32

#define ID_RECEIVE 0x10000u /* wr_id of a receive, and its index */
#define ID_SEND    0x20000u
#define ID_RDMA    0x30000u

struct link {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory; /* sends, receives, one buffer for RDMA */
    struct link_plan plan;
    struct rme_hello peer;
    unsigned sends, sending; /* handed over so far; of them not complete */
    unsigned ours;           /* credits of the peer's that are left */
    unsigned theirs;         /* what the peer still has of ours */
    unsigned owed;           /* used by the peer and not given back */
    bool ended, rdma_done;
    int rdma_error;
    struct {
        bool is_imm;
        uint32_t imm;
        uint32_t length;
        unsigned index;
    } inbox[RECEIVES];
    unsigned in_first, in_count;
};

uint64_t clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool target_parse(const char *text, struct target *target)
{
    struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    char host[256];
    const char *colon = strrchr(text, ':');

    if (strncmp(text, "ib://", 5) != 0 || colon < text + 5 || colon - text >= (int)sizeof host)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text - 5), text + 5);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return false;
    memcpy(&target->address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return true;
}

void link_hello(const struct link_plan *plan, struct rme_hello *hello)
{
    *hello =
        (struct rme_hello){.version = RME_WIRE_VERSION,
                           .version_min = RME_WIRE_VERSION_MIN,
                           .flags = RME_HELLO_F_READ | RME_HELLO_F_INVITE |
                                    (plan->lean ? RME_HELLO_F_EXACT | RME_HELLO_F_LEAN : 0),
                           .incarnation = clock_us() ^ (uint64_t)getpid() << 40,
                           .rx_size = LINK_MESSAGE,
                           .credits = plan->credits != 0 ? plan->credits : CREDITS,
                           .eager_window = 1 << 20,
                           .unexpected_window = 1 << 18,
                           .rts_max = 1024};
}

/* ---- Making it ---- */

static int os_error(void)
{
    return errno != 0 ? -errno : -EIO;
}

/* Waits for the next event; its answer's data goes to the peer's hello. */
static int next_event(struct link *link, enum rdma_cm_event_type want)
{
    struct pollfd at = {.fd = link->channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    struct rme_reject why;
    int error = 0;

    if (poll(&at, 1, STEP_MS) <= 0)
        return -ETIMEDOUT;
    if (rdma_get_cm_event(link->channel, &event) != 0)
        return os_error();
    if (event->event == RDMA_CM_EVENT_REJECTED)
        error = -EACCES;
    else if (event->event != want)
        error = event->status < 0 ? event->status : -ECONNREFUSED;
    else if (want == RDMA_CM_EVENT_ESTABLISHED &&
             rme_hello_decode(event->param.conn.private_data,
                              event->param.conn.private_data_len, &link->peer, &why) != 0)
        error = -EPROTO;
    rdma_ack_cm_event(event);
    return error;
}

static int make_memory(struct link *link)
{
    size_t size = (SENDS + RECEIVES + 1) * (size_t)LINK_MESSAGE;

    link->memory = aligned_alloc(4096, size);
    if (link->memory == NULL)
        return -ENOMEM;
    memset(link->memory, 0, size);
    link->mr = ibv_reg_mr(link->pd, link->memory, size, IBV_ACCESS_LOCAL_WRITE);
    return link->mr != NULL ? 0 : os_error();
}

static uint8_t *send_buffer(struct link *link, unsigned i)
{
    return link->memory + (size_t)i * LINK_MESSAGE;
}

static uint8_t *receive_buffer(struct link *link, unsigned i)
{
    return link->memory + (size_t)(SENDS + i) * LINK_MESSAGE;
}

static uint8_t *rdma_buffer(struct link *link)
{
    return link->memory + (size_t)(SENDS + RECEIVES) * LINK_MESSAGE;
}

static int post_receive(struct link *link, unsigned i)
{
    struct ibv_sge piece = {(uintptr_t)receive_buffer(link, i), LINK_MESSAGE, link->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = ID_RECEIVE + i, .sg_list = &piece, .num_sge = 1};

    return -ibv_post_recv(link->qp, &wr, &bad);
}

static int make_queues(struct link *link)
{
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = SENDS + 2,
                                            .max_recv_wr = RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    int error;

    link->pd = ibv_alloc_pd(link->id->verbs);
    if (link->pd == NULL)
        return os_error();
    link->cq = ibv_create_cq(link->id->verbs, SENDS + RECEIVES + 4, NULL, NULL, 0);
    if (link->cq == NULL)
        return os_error();
    error = make_memory(link);
    if (error != 0)
        return error;
    attr.send_cq = attr.recv_cq = link->cq;
    if (rdma_create_qp(link->id, link->pd, &attr) != 0)
        return os_error();
    link->qp = link->id->qp;
    for (unsigned i = 0; error == 0 && !link->plan.no_receives && i < RECEIVES; i++)
        error = post_receive(link, i);
    return error;
}

static int ask(struct link *link)
{
    uint8_t own[RME_HELLO_SIZE];
    struct rme_hello hello;
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7};

    link_hello(&link->plan, &hello);
    link->theirs = hello.credits;
    rme_hello_encode(&hello, own);
    param.private_data = link->plan.hello != NULL ? link->plan.hello : own;
    param.private_data_len =
        (uint8_t)(link->plan.hello != NULL ? link->plan.hello_length : sizeof own);
    if (link->plan.no_hello)
        param.private_data_len = 0;
    return rdma_connect(link->id, &param) == 0 ? 0 : os_error();
}

static int begin(struct link *link, const struct target *target)
{
    struct sockaddr *to = (struct sockaddr *)(uintptr_t)&target->address;
    int error;

    link->channel = rdma_create_event_channel();
    if (link->channel == NULL ||
        rdma_create_id(link->channel, &link->id, link, RDMA_PS_TCP) != 0)
        return os_error();
    if (rdma_resolve_addr(link->id, NULL, to, STEP_MS) != 0)
        return os_error();
    error = next_event(link, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (error == 0 && rdma_resolve_route(link->id, STEP_MS) != 0)
        error = os_error();
    if (error == 0)
        error = next_event(link, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (error == 0)
        error = make_queues(link);
    return error != 0 ? error : ask(link);
}

struct link *link_begin(const struct target *target, const struct link_plan *plan, int *error)
{
    struct link *link = calloc(1, sizeof *link);

    *error = -ENOMEM;
    if (link == NULL)
        return NULL;
    link->plan = *plan;
    *error = begin(link, target);
    if (*error == 0)
        return link;
    link_drop(link);
    return NULL;
}

int link_wait_up(struct link *link)
{
    int error = next_event(link, RDMA_CM_EVENT_ESTABLISHED);

    link->ours = link->peer.credits;
    if (error == 0)
        fcntl(link->channel->fd, F_SETFL, fcntl(link->channel->fd, F_GETFL) | O_NONBLOCK);
    return error;
}

struct link *link_open(const struct target *target, const struct link_plan *plan, int *error)
{
    struct link *link = link_begin(target, plan, error);

    if (link == NULL)
        return NULL;
    *error = link_wait_up(link);
    if (*error == 0)
        return link;
    link_drop(link);
    return NULL;
}

void link_drop(struct link *link)
{
    if (link == NULL)
        return;
    if (link->qp != NULL)
        rdma_destroy_qp(link->id);
    if (link->id != NULL)
        rdma_destroy_id(link->id);
    if (link->mr != NULL)
        ibv_dereg_mr(link->mr);
    free(link->memory);
    if (link->cq != NULL)
        ibv_destroy_cq(link->cq);
    if (link->pd != NULL)
        ibv_dealloc_pd(link->pd);
    if (link->channel != NULL)
        rdma_destroy_event_channel(link->channel);
    free(link);
}

void link_close(struct link *link)
{
    if (link != NULL && link->id != NULL)
        rdma_disconnect(link->id);
    link_drop(link);
}

const struct rme_hello *link_peer(const struct link *link)
{
    return &link->peer;
}

/* ---- Completions ---- */

/* Looks for the event that says that the peer has gone. */
static void look_for_end(struct link *link)
{
    struct rdma_cm_event *event;

    while (rdma_get_cm_event(link->channel, &event) == 0) {
        if (event->event == RDMA_CM_EVENT_DISCONNECTED)
            link->ended = true;
        rdma_ack_cm_event(event);
    }
}

static void receive_done(struct link *link, const struct ibv_wc *wc)
{
    unsigned at = (link->in_first + link->in_count) % RECEIVES;

    link->inbox[at].is_imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    link->inbox[at].imm = ntohl(wc->imm_data);
    link->inbox[at].length = wc->byte_len;
    link->inbox[at].index = (unsigned)(wc->wr_id - ID_RECEIVE);
    link->in_count++;
    link->owed++;
    if (link->theirs > 0)
        link->theirs--;
}

static void completed(struct link *link, const struct ibv_wc *wc)
{
    if (wc->wr_id >= ID_RDMA) {
        link->rdma_done = true;
        link->rdma_error = wc->status == IBV_WC_SUCCESS          ? 0
                           : wc->status == IBV_WC_REM_ACCESS_ERR ? -EACCES
                                                                 : -EIO;
    } else if (wc->wr_id >= ID_SEND) {
        link->sending--;
    }
    if (wc->status != IBV_WC_SUCCESS)
        link->ended = true;
    else if (wc->wr_id < ID_SEND)
        receive_done(link, wc);
}

static void look(struct link *link)
{
    struct ibv_wc wc[16];
    int n;

    while ((n = ibv_poll_cq(link->cq, 16, wc)) > 0)
        for (int i = 0; i < n; i++)
            completed(link, &wc[i]);
    look_for_end(link);
}

/* The link's own clock: a little sleep, so that attacks leave the processor to those attacked.
 */
static void breathe(void)
{
    usleep(50);
}

/* ---- Sending ---- */

static uint8_t *next_buffer(struct link *link)
{
    while (!link->ended && link->sending == SENDS) {
        look(link);
        if (link->sending == SENDS)
            breathe();
    }
    return link->ended ? NULL : send_buffer(link, link->sends % SENDS);
}

static int post(struct link *link, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    wr->wr_id += ID_SEND;
    wr->send_flags |= IBV_SEND_SIGNALED;
    if (ibv_post_send(link->qp, wr, &bad) != 0)
        return -ENOTCONN;
    link->sends++;
    link->sending++;
    if (link->ours > 0)
        link->ours--;
    return 0;
}

static int post_message(struct link *link, const uint8_t *buffer, size_t length)
{
    struct ibv_sge piece = {(uintptr_t)buffer, (uint32_t)length, link->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND};

    return post(link, &wr);
}

int link_send_bytes(struct link *link, const void *bytes, size_t length)
{
    uint8_t *buffer = next_buffer(link);

    if (buffer == NULL)
        return -ENOTCONN;
    memcpy(buffer, bytes, length);
    return post_message(link, buffer, length);
}

/* What the next header gives back. */
static uint16_t give_back(struct link *link)
{
    unsigned give = link->owed;

    if (link->plan.returns == LINK_RETURNS_NONE)
        return 0;
    if (link->plan.returns == LINK_RETURNS_ONE)
        give = link->theirs == 0 && give > 0 ? 1 : 0;
    link->owed -= give;
    link->theirs += give;
    return (uint16_t)give;
}

int link_say(struct link *link, const struct rme_wire_message *message,
             const struct rme_wire_segment *segment, const void *payload, size_t length)
{
    uint8_t *buffer = next_buffer(link);
    struct rme_wire_message said = *message;
    size_t head;

    if (buffer == NULL)
        return -ENOTCONN;
    if (said.credits == 0)
        said.credits = give_back(link);
    head = rme_wire_length(said.type, said.nsegment);
    memset(buffer, 0, head);
    rme_wire_encode(&said, buffer);
    for (uint32_t i = 0; i < said.nsegment; i++)
        rme_wire_put_segment(buffer, said.type, i, &segment[i]);
    if (length > 0)
        memcpy(buffer + head, payload, length);
    return post_message(link, buffer, head + length);
}

int link_send_imm(struct link *link, uint32_t imm)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(imm)};

    return next_buffer(link) != NULL ? post(link, &wr) : -ENOTCONN;
}

/* ---- Receiving ---- */

static bool past(uint64_t deadline)
{
    return clock_us() >= deadline;
}

static uint64_t after_ms(int timeout_ms)
{
    return clock_us() + (uint64_t)timeout_ms * 1000;
}

unsigned link_credits(const struct link *link)
{
    return link->ours;
}

/* The oldest arrival; its buffer goes back to the device. */
static bool take(struct link *link, struct arrival *arrival)
{
    unsigned at = link->in_first, index = link->inbox[at].index;

    if (link->in_count == 0)
        return false;
    *arrival = (struct arrival){.is_imm = link->inbox[at].is_imm,
                                .imm = link->inbox[at].imm,
                                .length = link->inbox[at].length};
    link->in_first = (at + 1) % RECEIVES;
    link->in_count--;
    if (!arrival->is_imm) {
        memcpy(arrival->bytes, receive_buffer(link, index), arrival->length);
        if (rme_wire_decode(arrival->bytes, arrival->length, &arrival->message) == 0)
            link->ours +=
                arrival->message.credits +
                (arrival->message.type == RME_WIRE_CREDIT ? (unsigned)arrival->message.tag : 0);
    }
    if (!link->ended && post_receive(link, index) != 0)
        link->ended = true;
    return true;
}

void link_idle(struct link *link)
{
    static struct arrival arrival;

    if (link->plan.deaf)
        return;
    look(link);
    while (take(link, &arrival))
        ;
}

bool link_wait_credits(struct link *link, unsigned count, int timeout_ms)
{
    uint64_t deadline = after_ms(timeout_ms);

    while (link->ours < count && !link->ended) {
        link_idle(link);
        if (link->ours >= count || past(deadline))
            break;
        breathe();
    }
    return link->ours >= count && !link->ended;
}

int link_receive(struct link *link, struct arrival *arrival, int timeout_ms)
{
    uint64_t deadline = after_ms(timeout_ms);

    for (;;) {
        look(link);
        if (take(link, arrival))
            return 1;
        if (link->ended)
            return -ENOTCONN;
        if (past(deadline))
            return 0;
        breathe();
    }
}

bool link_ended(struct link *link, int timeout_ms)
{
    uint64_t deadline = after_ms(timeout_ms);

    for (;;) {
        if (link->plan.deaf)
            look_for_end(link);
        else
            link_idle(link);
        if (link->ended || past(deadline))
            return link->ended;
        usleep(1000);
    }
}

/* ---- RDMA ---- */

static int rdma(struct link *link, enum ibv_wr_opcode opcode, uint64_t address, uint64_t key,
                size_t length)
{
    struct ibv_sge piece = {(uintptr_t)rdma_buffer(link), (uint32_t)length, link->mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = ID_RDMA,
                                   .sg_list = &piece,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {.remote_addr = address, .rkey = (uint32_t)key}};
    uint64_t deadline = after_ms(STEP_MS);

    link->rdma_done = false;
    if (link->ended || ibv_post_send(link->qp, &wr, &bad) != 0)
        return -ENOTCONN;
    while (!link->rdma_done && !past(deadline)) {
        look(link);
        if (!link->rdma_done)
            breathe();
    }
    return link->rdma_done ? link->rdma_error : -ETIMEDOUT;
}

int link_read(struct link *link, uint64_t address, uint64_t key, void *data, size_t length)
{
    int error = rdma(link, IBV_WR_RDMA_READ, address, key, length);

    if (error == 0)
        memcpy(data, rdma_buffer(link), length);
    return error;
}

int link_write(struct link *link, uint64_t address, uint64_t key, const void *data,
               size_t length)
{
    memcpy(rdma_buffer(link), data, length);
    return rdma(link, IBV_WR_RDMA_WRITE, address, key, length);
}
