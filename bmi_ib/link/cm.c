/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cm.c - connections by rdma_cm: its events, the calls of the engine, the resolver's results.
 *
 * The fabric has one non-blocking event channel.  A call starts each step, an event ends it.
 * An event is copied and acknowledged before it is handled, because an id with an
 * unacknowledged event cannot be destroyed.
 *
 * The passive side may receive the first message before ESTABLISHED.  The QP is ready by then,
 * so the message counts as confirmation (ib_link_established() is called for both).
 *
 * Receiver not ready: credits guarantee a posted receive, so peers that keep to them cause no
 * RNR NAK.  A peer that exceeds its credits can use up the receives of an SRQ until the engine
 * closes its connection; other peers retry meanwhile, without limit (option rnr_retry), because
 * the engine's timeouts end links of dead peers.  The receiver sets the delay between retries;
 * that of rdma_cm is the longest, 655 ms, and is replaced when the connection is made.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "bmi_ib/link/links.h"

/* Reject reasons of InfiniBand. */
#define REJECTED_TIMEOUT     4
#define REJECTED_NO_LISTENER 8 /* "invalid service id" */
/* the peer still has a connection with a QP number of this side that is gone */
#define REJECTED_STALE    10
#define REJECTED_CONSUMER 28 /* rdma_reject() was called, or the peer's kernel refused */

#define RNR_TIMER 12 /* 0.64 ms, as encoded in the InfiniBand specification */

int ib_cm_open(struct rme_fabric *f)
{
    int error;
    f->cm = rdma_create_event_channel();
    error = f->cm != NULL ? ib_nonblocking(f->cm->fd) : ib_errno();
    if (!error)
        return ib_wait_add(f, f->cm->fd, IB_HINT_CM);
    ib_log(f, RME_LOG_ERROR, "no rdma_cm event channel: %s; %s", strerror(-error),
           rme_remedy(error, "is /dev/infiniband/rdma_cm accessible?"));
    return error;
}

void ib_cm_close(struct rme_fabric *f)
{
    if (f->cm != NULL)
        rdma_destroy_event_channel(f->cm);
    f->cm = NULL;
}

/* ---- Steps ---- */

/* Returns the rail of the id's device; NULL: none (logged). */
static struct ib_rail *rail_of(struct rme_fabric *f, const struct rdma_cm_id *id,
                               const char *peer)
{
    struct ib_rail *rail = ib_rail_of(f, id->verbs);
    if (rail == NULL)
        ib_log(f, RME_LOG_ERROR,
               "%s is reached by device %s port %u, but device %s%s is used; set the option "
               "device",
               peer, id->verbs ? ibv_get_device_name(id->verbs->device) : "none", id->port_num,
               f->rail[0]->dev.name, f->rails > 1 ? ", or another rail," : "");
    return rail;
}

/* Sets an option of the id, of one byte.  On failure the default holds. */
static void set_option(struct rme_link *l, int name, uint8_t value, const char *what)
{
    if (rdma_set_option(l->id, RDMA_OPTION_ID, name, &value, sizeof(value)))
        ib_log(l->rail, name == RDMA_OPTION_ID_TOS ? RME_LOG_WARN : RME_LOG_DEBUG,
               "%s: cannot set the %s is used: %s", l->peer, what, strerror(errno));
}

/* The default is half a second; soft-RoCE: one second, because a CPU that may be busy or
 * emulated processes packets. */
static void set_ack_timeout(struct rme_link *l)
{
    int64_t value = ib_option(l->rail, "ack_timeout");
    if (!value)
        value = ib_is_rxe(l->rail) ? 18 : 17;
    set_option(l, RDMA_OPTION_ID_ACK_TIMEOUT, (uint8_t)value, "ACK timeout, the path's");
}

static void route(struct rme_link *l)
{
    struct ib_rail *rail = rail_of(l->rail->fabric, l->id, l->peer);
    int64_t class;
    if (rail == NULL || rail->dev.dead) {
        ib_link_fail(l, -EHOSTUNREACH, false);
        return;
    }
    ib_link_move(l, rail);
    class = ib_option(l->rail, "traffic_class");
    set_ack_timeout(l);
    if (class >= 0)
        set_option(l, RDMA_OPTION_ID_TOS, (uint8_t) class, "traffic class, the system's");
    if (rdma_resolve_route(l->id, IB_RESOLVE_MS)) {
        int error = ib_no_route(ib_errno());
        ib_log(l->rail, RME_LOG_INFO, "%s: rdma_resolve_route: %s", l->peer, strerror(-error));
        ib_link_fail(l, error, false);
        return;
    }
    ib_link_state_set(l, IB_ROUTING);
}

/* Sets a short delay between RNR retries of the peer.  On failure the delay is longer. */
static void set_rnr_timer(struct rme_link *l)
{
    struct ibv_qp_attr attr = {.min_rnr_timer = RNR_TIMER};
    int ret = ibv_modify_qp(l->qp, &attr, IBV_QP_MIN_RNR_TIMER);
    if (ret)
        ib_log(l->rail, RME_LOG_DEBUG, "%s: cannot set the RNR timer, the longest is used: %s",
               l->peer, strerror(-ib_error(ret)));
}

/* Creates the QP and posts receives, before the peer can send.  On failure the caller ends the
 * link, with its QP. */
static int prepare(struct rme_link *l, uint32_t rx)
{
    int error = ib_qp_create(l);
    if (error)
        return error;
    error = ib_rx_reserve(l, rx);
    if (!error)
        error = ib_rx_post(l->rail, l);
    if (error)
        ib_log(l->rail, RME_LOG_ERROR, "%s: no receive buffers: %s%s", l->peer,
               strerror(-error),
               error == -ENOSPC ? "; the queues of this device hold no more connections of a "
                                  "process: start a further server process"
                                : "");
    return error;
}

/* Returns the parameters of a request or reply; the read depths are limits of the peer. */
static struct rdma_conn_param parameters(const struct rme_link *l, const void *hello,
                                         size_t length, uint8_t responder, uint8_t initiator)
{
    return (struct rdma_conn_param){
        .private_data = hello,
        .private_data_len = (uint8_t)length,
        .responder_resources = (uint8_t)ib_min(responder, l->rail->dev.read_depth),
        .initiator_depth = (uint8_t)ib_min(initiator, l->rail->dev.read_depth),
        /* rxe: 7 is no limit there, a dead peer would not be detected
         * (doc/verbs-differences.md) */
        .retry_count = ib_is_rxe(l->rail) ? 6 : 7,
        .rnr_retry_count = (uint8_t)ib_option(l->rail, "rnr_retry"),
    };
}

static void request(struct rme_link *l)
{
    struct rdma_conn_param param =
        parameters(l, l->hello, l->hello_length, UINT8_MAX, UINT8_MAX);
    int error = prepare(l, l->rx_first);
    if (!error && rdma_connect(l->id, &param)) {
        error = ib_errno();
        ib_log(l->rail, RME_LOG_INFO, "%s: rdma_connect: %s", l->peer, strerror(-error));
    }
    if (error)
        ib_link_fail(l, error, false);
    else
        ib_link_state_set(l, IB_CONNECTING);
}

/* ---- Events ---- */

/* Copies the peer's private data that the engine may see. */
static void keep_answer(struct rme_link *l, const struct rdma_cm_event *e)
{
    l->answer_length = e->param.conn.private_data_len;
    memcpy(l->answer, e->param.conn.private_data, l->answer_length);
}

/* Handles a connection request. */
static void requested(struct rme_fabric *f, const struct rdma_cm_event *e)
{
    static const uint8_t will_not_do = 1; /* the peer does not retry; without data it does */
    bool later = false;                   /* a device is not opened again yet */
    char peer[IB_PEER_MAX];
    struct ib_rail *rail;
    struct rme_link *l;
    ib_sockaddr_text(rdma_get_peer_addr(e->id), peer, sizeof(peer));
    for (unsigned i = 0; i < f->rails; i++)
        later = later || f->rail[i]->dev.dead;
    rail = later ? ib_rail_of(f, e->id->verbs) : rail_of(f, e->id, peer);
    l = rail != NULL && !rail->dev.dead ? ib_link_new(rail) : NULL;
    if (l == NULL) {
        ib_log(f, RME_LOG_WARN, "%s: connection request refused: %s", peer,
               later ? "a device has failed" : "wrong device, or no memory");
        ib_count(f, REJECTS, 1);
        rdma_reject(e->id, later ? NULL : &will_not_do, later ? 0 : sizeof(will_not_do));
        rdma_destroy_id(e->id);
        return;
    }
    f->qp_ops++; /* for the accept, which follows at once */
    l->passive = true;
    l->id = e->id;
    l->id->context = l;
    l->peer_initiator = e->param.conn.initiator_depth;
    l->peer_responder = e->param.conn.responder_resources;
    memcpy(l->peer, peer, sizeof(peer));
    keep_answer(l, e);
    ib_link_state_set(l, IB_REQUESTED);
    ib_link_events(l, IB_EVENT_REQUEST);
}

static void established(struct rme_link *l, const struct rdma_cm_event *e)
{
    if (l->state == IB_CONNECTING) {
        set_rnr_timer(l);
        keep_answer(l, e);
        l->read_depth = ib_min(e->param.conn.initiator_depth, l->rail->dev.read_depth);
    }
    ib_link_established(l);
}

/*
 * Maps the status of a REJECTED event to a negative errno.  The peer's kernel sends the reason
 * "consumer" without data if the listener's backlog is full or if the peer died before its
 * answer; a retry distinguishes both.  Transports pad data with zeros.
 */
static int reject_error(int status, const void *data, size_t length)
{
    static const uint8_t zeros[IB_HELLO_MAX];
    switch (status) {
    case REJECTED_TIMEOUT:
    case -ETIMEDOUT:
        return -ETIMEDOUT;
    case REJECTED_STALE:
        return -ESTALE;
    case REJECTED_NO_LISTENER:
    case -ECONNREFUSED:
        return -ECONNREFUSED;
    default:
        return memcmp(data, zeros, length)   ? -EACCES
               : status == REJECTED_CONSUMER ? -EBUSY
                                             : -ECONNREFUSED;
    }
}

/* Maps the status of an UNREACHABLE event to a negative errno.  Lack of permission or
 * descriptors comes from software devices, where a retry does not help. */
static int unreachable_error(int status)
{
    switch (status) {
    case -ENETUNREACH:
    case -EHOSTUNREACH:
        return -EHOSTUNREACH;
    case -EPERM:
        return -EACCES;
    case -EMFILE:
    case -ENFILE:
        return status;
    default:
        return -ETIMEDOUT;
    }
}

/* Handles a peer that refuses this side's request, or gives up its own. */
static void rejected(struct rme_link *l, const struct rdma_cm_event *e)
{
    int error =
        reject_error(e->status, e->param.conn.private_data, e->param.conn.private_data_len);
    if (l->state != IB_CONNECTING) {
        ib_link_fail(l, -ECONNRESET, l->state == IB_UP);
        return;
    }
    keep_answer(l, e);
    l->stale += error == -ESTALE;
    ib_log(l->rail, RME_LOG_INFO, "%s: the connection was rejected: %s (reason %d)", l->peer,
           error == -ESTALE  ? "the peer still had an earlier connection of this process"
           : error == -EBUSY ? "connection backlog full at the peer"
                             : strerror(-error),
           e->status);
    ib_link_fail(l, error, false);
}

static void failed(struct rme_link *l, const struct rdma_cm_event *e, int error)
{
    if (l->state < IB_DRAINING)
        ib_log(l->rail, l->state > IB_CONNECTING ? RME_LOG_WARN : RME_LOG_INFO,
               "%s: %s while %s: %s", l->peer, rdma_event_str(e->event),
               ib_link_state_name[l->state], strerror(-error));
    ib_link_fail(l, error, l->state == IB_UP);
}

static void dispatch(struct rme_fabric *f, const struct rdma_cm_event *e)
{
    int status = e->status;
    struct rme_link *l = NULL; /* NULL: a listening id */

    if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        requested(f, e);
    else
        l = e->id->context;
    if (e->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        struct ib_rail *rail = l != NULL ? l->rail : ib_rail_of(f, e->id->verbs);
        if (rail == NULL && f->rails == 1) /* the id has no device: the only one is meant */
            rail = f->rail[0];
        if (rail != NULL)
            ib_link_device_lost(rail, "the device was removed");
    }
    if (l == NULL && e->event == RDMA_CM_EVENT_ADDR_CHANGE)
        ib_listen_drop(f, e->id);
    if (l == NULL)
        return;
    switch (e->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (l->state == IB_ADDRESSING)
            route(l);
        return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (l->state == IB_ROUTING)
            request(l);
        return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        failed(l, e, ib_no_route(status));
        return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE: /* librdmacm handles this event if the id has a QP */
        failed(l, e, -EPROTO);
        return;
    case RDMA_CM_EVENT_CONNECT_ERROR:
        failed(l, e, status == -ETIMEDOUT ? -ETIMEDOUT : -ECONNRESET);
        return;
    case RDMA_CM_EVENT_UNREACHABLE:
        failed(l, e, unreachable_error(status));
        return;
    case RDMA_CM_EVENT_REJECTED:
        rejected(l, e);
        return;
    case RDMA_CM_EVENT_ESTABLISHED:
        established(l, e);
        return;
    case RDMA_CM_EVENT_DISCONNECTED:
        ib_link_fail(l, -ECONNRESET, true);
        return;
    case RDMA_CM_EVENT_ADDR_CHANGE: /* bonding moved the address; a new connection finds the new
                                     * path */
        failed(l, e, -ECONNRESET);
        return;
    default: /* TIMEWAIT_EXIT: the QP number may be reused; the QP is destroyed already */
        return;
    }
}

/* Handles events, up to the first QP operation (link.c). */
void ib_cm_events(struct rme_fabric *f)
{
    unsigned before = f->qp_ops;
    for (int i = 0; i < 64 && f->qp_ops == before; i++) {
        struct rdma_cm_event *e, copy;
        uint8_t data[IB_HELLO_MAX];
        struct rdma_conn_param *p;
        if (rdma_get_cm_event(f->cm, &e)) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK && !f->cm_complained) {
                f->cm_complained = true;
                ib_log(f, RME_LOG_WARN, "rdma_get_cm_event: %s", strerror(errno));
            }
            return;
        }
        copy = *e;
        p = &copy.param.conn;
        if (p->private_data == NULL)
            p->private_data_len = 0;
        if (p->private_data_len > sizeof(data))
            p->private_data_len = sizeof(data);
        if (p->private_data_len)
            memcpy(data, p->private_data, p->private_data_len);
        p->private_data = data;
        rdma_ack_cm_event(e); /* frees the original */
        dispatch(f, &copy);
    }
    atomic_fetch_or(&f->hint, IB_HINT_CM); /* more may be pending: continue at the next poll */
}

/* ---- Calls of the engine ---- */

/* Starts the first way to the peer. */
static void begin(struct rme_link *l)
{
    l->error = l->rail->dev.dead ? -ENODEV : -EHOSTUNREACH;
    if (!ib_link_next(l))
        ib_link_fail(l, l->error, false);
}

/* Handles results of the resolver. */
void ib_link_names(struct rme_fabric *f)
{
    struct ib_name name;
    while (ib_resolve_result(f, &name)) {
        struct rme_link *l = ib_link_by_handle(f->rail[0], name.handle);
        if (l == NULL || l->state != IB_NAMING) { /* the link was abandoned meanwhile */
            if (name.found != NULL)
                freeaddrinfo(name.found);
            continue;
        }
        if (name.error) {
            ib_log(f, RME_LOG_WARN, "%s: cannot resolve the host name: %s; check the name",
                   l->peer, name.why != NULL ? name.why : strerror(-name.error));
            ib_link_fail(l, name.error, false);
        } else {
            l->addresses = name.found;
            begin(l);
        }
    }
}

int ib_link_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out)
{
    const struct rme_addr_part *p =
        part >= 0 && part < rme_addr_parts(addr) ? rme_addr_part(addr, part) : NULL;
    struct rme_link *l;
    if (p == NULL || length > IB_HELLO_MAX)
        return -EINVAL;
    l = ib_link_new(f->rail[0]);
    if (l == NULL)
        return -ENOMEM;
    l->first = f->turn++ % f->rails;
    l->rx_first = rx;
    l->owner = owner;
    memcpy(l->hello, hello, length);
    l->hello_length = length;
    snprintf(l->peer, sizeof(l->peer), strchr(p->host, ':') != NULL ? "[%s]:%s" : "%s:%s",
             p->host, p->port);
    ib_link_state_set(l, IB_NAMING);
    if (ib_resolve_numeric(p->host, p->port, &l->addresses) == 0) {
        begin(l);
    } else {
        int error = ib_resolve_later(f, p->host, p->port, l->handle);
        if (error) {
            ib_link_destroy(l);
            return error;
        }
    }
    *out = l;
    return 0;
}

/* On failure the link stays in REQUESTED, and the engine rejects the request. */
int ib_link_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx,
                   void *owner)
{
    struct rdma_conn_param param;
    int error;
    if (l->state != IB_REQUESTED)
        return -ECONNRESET;
    if (length > IB_HELLO_MAX)
        return -EINVAL;
    param = parameters(l, hello, length, l->peer_responder, l->peer_initiator);
    set_ack_timeout(l);
    error = prepare(l, rx);
    if (error)
        return error;
    if (rdma_accept(l->id, &param)) {
        error = ib_errno();
        ib_log(l->rail, RME_LOG_WARN, "%s: rdma_accept: %s", l->peer, strerror(-error));
        return error;
    }
    set_rnr_timer(l);
    l->read_depth = param.initiator_depth;
    l->owner = owner;
    ib_link_state_set(l, IB_ACCEPTING);
    return 0;
}

void ib_link_reject(struct rme_link *l, const void *hello, size_t length)
{
    if (l->id != NULL && rdma_reject(l->id, hello, (uint8_t)length))
        ib_log(l->rail, RME_LOG_DEBUG, "%s: rdma_reject: %s", l->peer, strerror(errno));
    ib_link_destroy(l);
}

void ib_link_disconnect(struct rme_link *l, int error)
{
    l->asked = true;
    ib_link_fail(l, error ? error : -ESHUTDOWN, false);
}

void ib_link_free(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    ib_link_destroy(l);
    ib_srq_replace(rail);
}
