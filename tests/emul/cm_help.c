/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Helpers for tests of rdma_cm. */
#include "tests/emul/cm_help.h"

#include <arpa/inet.h>

#include "tests/ports/ports.h"

struct rdma_event_channel *chan;
enum rdma_port_space space = RDMA_PS_TCP;
int first_port;

static void take_ports(void)
{
    first_port = ports_take();
    CHECK(first_port > 0);
}

__attribute__((constructor)) static void before(void)
{
    emul_before(take_ports);
}

struct rdma_cm_id *new_id(void *context)
{
    struct rdma_cm_id *id;

    if (chan == NULL)
        chan = rdma_create_event_channel();
    CHECK(chan);
    CHECK_EQ(rdma_create_id(chan, &id, context, space), 0);
    return id;
}

static union {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
} addr;

struct sockaddr *at(const char *host, int port)
{
    memset(&addr, 0, sizeof(addr));
    if (strchr(host, ':') != NULL) {
        addr.in6.sin6_family = AF_INET6;
        addr.in6.sin6_port = htons((uint16_t)port);
        CHECK(inet_pton(AF_INET6, host, &addr.in6.sin6_addr) == 1);
    } else {
        addr.in.sin_family = AF_INET;
        addr.in.sin_port = htons((uint16_t)port);
        CHECK(inet_pton(AF_INET, host, &addr.in.sin_addr) == 1);
    }
    return &addr.sa;
}

struct rdma_cm_event *next_event(enum rdma_cm_event_type type)
{
    struct rdma_cm_event *e;

    CHECK(readable(chan->fd, 60000));
    CHECK_EQ(rdma_get_cm_event(chan, &e), 0);
    if (e->event != type) {
        fprintf(stderr, "event %s (%d) instead of %s\n", rdma_event_str(e->event), e->status,
                rdma_event_str(type));
        _exit(1);
    }
    return e;
}

int eat(enum rdma_cm_event_type type)
{
    struct rdma_cm_event *e = next_event(type);
    int status = e->status;

    CHECK_EQ(rdma_ack_cm_event(e), 0);
    return status;
}

struct rdma_cm_id *id_of(enum rdma_cm_event_type type)
{
    struct rdma_cm_event *e = next_event(type);
    struct rdma_cm_id *id = e->id;

    CHECK_EQ(rdma_ack_cm_event(e), 0);
    return id;
}

/* Makes a QP on an id; the library makes the CQs. */
void give_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr qi = {.qp_type = id->qp_type, .cap = {16, 16, 2, 2, 32}};

    CHECK_EQ(rdma_create_qp(id, NULL, &qi), 0);
    CHECK(id->qp && id->send_cq && id->recv_cq && id->pd);
}

void resolve(struct rdma_cm_id *id, const char *host, int port)
{
    CHECK_EQ(rdma_resolve_addr(id, NULL, at(host, port), 1000), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    CHECK(id->verbs);
    CHECK_EQ(rdma_resolve_route(id, 1000), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
}

struct rdma_cm_id *listen_at(const char *host, int port, int backlog)
{
    struct rdma_cm_id *id = new_id((void *)0x77);

    CHECK_EQ(rdma_bind_addr(id, at(host, port)), 0);
    CHECK_EQ(rdma_listen(id, backlog), 0);
    return id;
}

/* Accepts one request, with a QP; returns the id. */
struct rdma_cm_id *accept_one(void)
{
    struct rdma_conn_param p = {.responder_resources = 2,
                                .initiator_depth = 2,
                                .rnr_retry_count = 7,
                                .private_data = "reply",
                                .private_data_len = 5};
    struct rdma_cm_id *id = id_of(RDMA_CM_EVENT_CONNECT_REQUEST);

    give_qp(id);
    CHECK_EQ(rdma_accept(id, &p), 0);
    CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    return id;
}

static struct rdma_cm_id *ask_at(const char *host, int port)
{
    struct rdma_conn_param p = {
        .responder_resources = 2, .initiator_depth = 2, .retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *id = new_id(NULL);

    resolve(id, host, port);
    give_qp(id);
    CHECK_EQ(rdma_connect(id, &p), 0);
    return id;
}

struct rdma_cm_id *ask(int port)
{
    return ask_at("127.0.0.1", port);
}

struct rdma_cm_id *connect_to(const char *host, int port)
{
    struct rdma_cm_id *id = ask_at(host, port);

    CHECK_EQ(eat(RDMA_CM_EVENT_ESTABLISHED), 0);
    return id;
}

void drop(struct rdma_cm_id *id)
{
    if (id->qp != NULL)
        rdma_destroy_qp(id);
    CHECK_EQ(rdma_destroy_id(id), 0);
}

void all_gone(void)
{
    rdma_destroy_event_channel(chan);
    static const char *const kinds[] = {"live_cm_id", "live_cm_channel", "live_cm_event",
                                        "live_qp",    "live_cq",         "live_channel",
                                        "live_pd"};
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        CHECK_EQ(counter(kinds[i]), 0);
}

void finished(struct rdma_cm_id *id, struct rdma_cm_id *other)
{
    drop(id);
    if (other != NULL)
        drop(other);
    all_gone();
}
