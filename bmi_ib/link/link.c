/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * link.c - a connection: states, events, QP and end.
 *
 * Active:  NAMING -> ADDRESSING -> ROUTING -> CONNECTING -> UP
 * Passive: REQUESTED -> ACCEPTING -> UP
 * Both:    UP -> DRAINING -> DRAINED -> ENDING -> DOWN
 *
 * cm.c has the events of rdma_cm and the calls of the engine.
 *
 * Events of links are bits, so that no event needs memory.  A poll delivers them in the order
 * request, up, room, and down last, after all messages and completed transfers.
 *
 * ib_link_fail() handles each failure, in any state.  A link without a QP ends at once.  A QP
 * is drained first: in the error state the device flushes all requests, and markers behind them
 * signal the last one (qp_drain()).  The CQEs must then be taken from the CQ, because the
 * destruction of the QP discards them, and used receives of an SRQ with them.  So the QP is
 * destroyed after the CQ was found empty once (ib_link_free_drained()); the buffers return to
 * their pools and LINK_DOWN is due.  If a call fails or the markers are late, the QP is
 * destroyed without them, which also ends all access to memory.
 *
 * The loss of a link has a cost nearly independent of the number of links: deadlines are in a
 * tree, drained links are sorted by the order of CQEs, and links with events have a list.
 *
 * Retries: a link that fails before it was up, without an answer of the peer's engine, starts
 * again with the next address, or the next rail (rails.c); likewise a link that is not up after
 * IB_ROUTE_TIMEOUT_MS, while another route exists.  A link that the peer refuses as stale
 * retries the same address: the peer had a connection with the number of a QP that was
 * destroyed here, and has ended it.
 *
 * QP operations: the creation, stop or destruction of a QP takes up to a millisecond in the
 * kernel, with the engine's lock held.  Each is counted (qp_ops), and a poll does one at most
 * (ib_cm_events(), ib_link_free_drained()), so that other messages wait for one QP operation
 * only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/probe.h"
#include "bmi_ib/link/links.h"

#define STALE_TRIES                                                                            \
    4 /* retries of an address while the peer reports a stale connection of this process */

const char *const ib_link_state_name[] = {
#define IB_LINK_NAME(id, name) [IB_##id] = name,
    IB_LINK_STATES(IB_LINK_NAME)
#undef IB_LINK_NAME
};

void ib_link_enter(struct rme_link *l, struct ib_rail *rail)
{
    l->rail = rail;
    do
        l->handle = ++rail->last_handle;
    while (!l->handle || ib_link_by_handle(rail, l->handle) != NULL);
    rme_table_put(&rail->table, &l->by_handle, l->handle, IB_BY_HANDLE);
    list_add_tail(&l->all_entry, &rail->links);
}

struct rme_link *ib_link_new(struct ib_rail *rail)
{
    struct rme_link *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return NULL;
    l->state = IB_DOWN; /* until ib_link_state_set */
    l->deliver = true;
    ib_rx_queue_init(&l->rxq);
    list_init(&l->mws);
    ib_link_enter(l, rail);
    return l;
}

/* Returns true if an event of rdma_cm or of the resolver is expected. */
static bool is_rising(enum ib_link_state s)
{
    return s == IB_NAMING || s == IB_ADDRESSING || s == IB_ROUTING || s == IB_CONNECTING ||
           s == IB_ACCEPTING;
}

static bool is_unsettled(enum ib_link_state s)
{
    return is_rising(s) || s == IB_DRAINING;
}

void ib_link_route(struct rme_link *l)
{
    struct rme_fabric *fabric = l->rail->fabric;
    if (ib_rail_more(l))
        rme_timer_set(&fabric->timers, &l->timer, ib_now_ms() + fabric->route_timeout_ms);
    else
        rme_timer_stop(&fabric->timers, &l->timer);
}

void ib_link_state_set(struct rme_link *l, enum ib_link_state state)
{
    struct ib_rail *rail = l->rail;
    rail->fabric->unsettled += (unsigned)is_unsettled(state) - (unsigned)is_unsettled(l->state);
    rail->draining += (unsigned)(state == IB_DRAINING) - (unsigned)(l->state == IB_DRAINING);
    if (!is_rising(state))
        rme_timer_stop(&rail->fabric->timers, &l->timer);
    if (l->state == IB_NAMING)
        ib_resolve_cancel(rail->fabric, l->handle);
    if (l->state != state) {
        ib_log(rail, RME_LOG_DEBUG, "%s: %s -> %s", l->peer, ib_link_state_name[l->state],
               ib_link_state_name[state]);
        rme_probe_fabric_link(l->handle, (int)l->state, (int)state);
    }
    l->state = state;
}

/* Returns a remedy for a connection that was not made; NULL: none, "": already logged. */
static const char *remedy(const struct rme_link *l)
{
    if (l->error == -ENONET)
        return "";
    if (l->error == -EBUSY)
        return "connection backlog full on the server; raise net.rdma_ucm.max_backlog there "
               "(sysctl)";
    if (l->error == -ECONNREFUSED)
        return "no server listens there by RDMA: start one, or use the server's method "
               "(bmi_tcp, and the bmi_ib shipped with OrangeFS, listen by TCP)";
    return NULL;
}

static bool emit_hello(struct rme_link *l, enum rme_event_type type, bool with_answer)
{
    struct rme_event *e = ib_event(l->rail, type, l);
    if (e == NULL)
        return false;
    e->error = type == RME_EV_LINK_DOWN ? l->error : 0;
    e->why = remedy(l);
    e->hello = with_answer ? l->answer : NULL;
    e->hello_length = with_answer ? l->answer_length : 0;
    return true;
}

void ib_emit_links(struct ib_rail *rail)
{
    struct rme_link *l, *next;
    bool last = list_empty(&rail->rx_ready) && rail->done.head == NULL;
    for (l = list_first(&rail->eventful, struct rme_link, event_entry);
         l != NULL && rail->out_used < rail->out_max; l = next) {
        unsigned events;
        next = list_next(l, &rail->eventful, event_entry);
        events = l->events;
        if (events & IB_EVENT_REQUEST && emit_hello(l, RME_EV_LINK_REQUEST, true))
            events &= ~IB_EVENT_REQUEST;
        if (events & IB_EVENT_UP && emit_hello(l, RME_EV_LINK_UP, !l->passive))
            events &= ~IB_EVENT_UP;
        if (events == IB_EVENT_ROOM && emit_hello(l, RME_EV_TX_ROOM, false))
            events = 0;
        if (events == IB_EVENT_DOWN && last &&
            emit_hello(l, RME_EV_LINK_DOWN, l->error == -EACCES && l->answer_length)) {
            events = 0;
            ib_link_state_set(l, IB_DOWN);
        }
        ib_link_events(l, events);
    }
}

void ib_link_established(struct rme_link *l)
{
    char path[RME_PATH_TEXT];
    if (l->state != IB_CONNECTING && l->state != IB_ACCEPTING)
        return;
    l->was_up = true;
    ib_link_state_set(l, IB_UP);
    ib_path_text(l, false, path, sizeof(path));
    if (path[0])
        ib_log(l->rail, l->passive ? RME_LOG_DEBUG : RME_LOG_INFO, "%s: by %s", l->peer, path);
    ib_link_events(l, l->events | IB_EVENT_UP);
    if (l->queue.head != NULL)
        ib_link_dirty(l);
}

/* ---- Start ---- */

int ib_no_route(int status)
{
    switch (status) {
    case 0:
    case -ENODEV:
    case -ENETUNREACH:
    case -EADDRNOTAVAIL:
    case -EHOSTDOWN:
    case -EINVAL:
        return -EHOSTUNREACH;
    default:
        return status < 0 ? status : -EHOSTUNREACH;
    }
}

static int start(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    struct sockaddr_storage own;
    struct sockaddr *source;
    if (l->bound) {
        source = ib_rail_source(rail, l->address->ai_addr);
    } else if (ib_path_source(rail, l->address->ai_addr, &own, &source)) {
        ib_log(rail, RME_LOG_WARN, "%s: the option gid has an address of another family",
               l->peer);
        return -EHOSTUNREACH;
    }
    if (rdma_create_id(rail->fabric->cm, &l->id, l, RDMA_PS_TCP)) {
        l->id = NULL;
        return ib_errno();
    }
    l->deliver = true; /* an earlier attempt may have failed */
    if (rdma_resolve_addr(l->id, source, l->address->ai_addr, IB_RESOLVE_MS)) {
        int error = ib_no_route(ib_errno());
        rdma_destroy_id(l->id);
        l->id = NULL;
        return error;
    }
    ib_link_state_set(l, IB_ADDRESSING);
    ib_link_route(l);
    return 0;
}

/* Removes a link from the lists of its rail for posting: nothing is left to post. */
static void leave_queues(struct rme_link *l)
{
    if (l->dirty)
        list_del_init(&l->dirty_entry);
    l->dirty = false;
    ib_tx_cancel_wait(l);
}

/*
 * Moves a link without a QP to another rail, where the link has another handle: late references
 * to the old handle find no link.  Of the rail's lists and tables, the link is in those of all
 * links and of handles only: qp_destroy() removes the link from those of its QP, windows and
 * pending posts, a drained link is taken off before, and events follow the move.
 */
void ib_link_move(struct rme_link *l, struct ib_rail *to)
{
    if (l->rail == to)
        return;
    rme_table_take(&l->rail->table, &l->by_handle);
    list_del_init(&l->all_entry);
    l->rxq.held = 0;
    ib_link_enter(l, to);
}

bool ib_link_next(struct rme_link *l)
{
    struct ib_rail *rail;
    while ((rail = ib_rail_next(l)) != NULL) {
        ib_link_move(l, rail);
        l->stale = 0;
        l->error = start(l);
        if (!l->error)
            return true;
    }
    return false;
}

/* ---- QP ---- */

static void release_share(struct rme_link *l)
{
    l->rail->cq.used -= l->cq_share;
    l->cq_share = 0;
}

int ib_qp_create(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    uint32_t share;
    int error;
    struct ibv_qp_init_attr attr;
    rail->fabric->qp_ops++;
    share = ib_cq_share(rail, 0);
    error = ib_srq_recover(rail);
    if (!error)
        error = ib_cq_reserve(rail, share);
    if (error) {
        ib_log(
            rail, RME_LOG_ERROR,
            error == -EIO
                ? "%s: a failed queue is not replaced yet (%s): its connections have not ended"
                : "%s: no room in the completion queue (%s): close connections, lower "
                  "sq_depth, or set srq=on",
            l->peer, strerror(-error));
        return error;
    }
    l->cq_share = share;
    l->ring = (struct ib_ring){.depth = rail->dev.sq_depth};
    attr = (struct ibv_qp_init_attr){
        .qp_context = rail, /* owner of asynchronous events */
        .send_cq = rail->cq.cq,
        .recv_cq = rail->cq.cq,
        .srq = rail->srq,
        .qp_type = IBV_QPT_RC,
        .cap =
            {
                .max_send_wr = rail->dev.sq_depth + 1,
                .max_recv_wr = rail->srq != NULL ? 0 : rail->dev.rq_depth + 1, /* + 1: marker */
                .max_send_sge = rail->caps.max_sge,
                .max_recv_sge = rail->srq != NULL ? 0 : 1,
                .max_inline_data = rail->dev.max_inline,
            },
    };
    if (rdma_create_qp(l->id, rail->dev.pd, &attr)) {
        error = ib_errno();
        ib_log(
            rail, RME_LOG_ERROR,
            "%s: no queue pair: %s; close connections, or raise the memlock limit (ulimit -l)",
            l->peer, strerror(-error));
        release_share(l);
        return error;
    }
    l->qp = l->id->qp;
    l->undrained = IB_DRAIN_ALL;
    rme_table_put(&rail->table, &l->by_qp, l->qp->qp_num, IB_BY_QP);
    return 0;
}

static bool mark_send(struct rme_link *l)
{
    struct ibv_send_wr wr = {
        .wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, l->handle),
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
    };
    struct ibv_send_wr *bad;
    return ibv_post_send(l->qp, &wr, &bad) == 0;
}

static bool mark_recv(struct rme_link *l)
{
    struct ibv_recv_wr wr = {.wr_id = ib_wr_id(IB_WR_MARK_RECV, 0, l->handle)};
    struct ibv_recv_wr *bad;
    return ibv_post_recv(l->qp, &wr, &bad) == 0;
}

/*
 * Starts the drain; ib_link_drained() ends it.
 *
 * In the error state the device completes all posted requests as flushed, in order.  A marker
 * on each queue completes last, for which each queue reserves an entry; after both, nothing of
 * the link is left with the device.  The receive marker is posted before the change of state,
 * because rxe flushes a receive queue only at that change.  The send marker is posted after the
 * change, because the device would send a marker posted before.  (A message of a peer that
 * ignores credits may consume the receive marker; all earlier receives are complete
 * nevertheless.)
 *
 * With an SRQ the QP has no receive queue to mark.  The device raises "last WQE reached" when
 * it takes no more receives from the SRQ for this QP; rxe does not.  Without the event, a
 * receive taken and not completed would be missing from the pool.
 *
 * Only wr_id, status and qp_num of a flushed CQE are used.  A part of the drain whose call
 * fails counts as done, and with a failed CQ so do all parts: qp_destroy() ends all access, and
 * the drain only ensures that no CQE is left.
 */
static void qp_drain(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    unsigned done;
    int ret;
    rail->fabric->qp_ops++;
    done = rail->cq.broken                        ? IB_DRAIN_ALL
           : rail->srq == NULL || ib_is_rxe(rail) ? IB_DRAIN_LAST
                                                  : 0;
    if (rail->srq != NULL || !mark_recv(l))
        done |= IB_DRAIN_RECVS;
    ret = ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
    if (ret) {
        ib_log(rail, RME_LOG_WARN,
               "%s: cannot stop the queue pair: %s; destroying the queue pair", l->peer,
               strerror(-ib_error(ret)));
        ib_link_drained(l, IB_DRAIN_ALL);
        return;
    }
    if (l->was_up || l->passive)
        rdma_disconnect(l->id); /* notifies the peer, without waiting for a reply */
    if (!mark_send(l))
        done |= IB_DRAIN_SENDS;
    ib_link_drained(l, done);
}

/* Ends all access by the device and frees the resources of the link. */
static void qp_destroy(struct rme_link *l)
{
    l->rail->fabric->qp_ops++;
    leave_queues(l);
    ib_rdma_op_purge(l);
    ib_mws_drop(l->rail, &l->mws);
    rdma_destroy_qp(l->id);
    l->qp = NULL;
    rme_table_take(&l->rail->table, &l->by_qp);
    ib_rx_reclaim(l);
    release_share(l);
}

/* ---- Freed ---- */

/* Frees a link in any state. */
void ib_link_destroy(struct rme_link *l)
{
    struct ib_rail *rail = l->rail;
    if (l->state == IB_DRAINED)
        list_del_init(&l->drain_entry);
    if (l->qp != NULL)
        qp_destroy(l);
    ib_link_state_set(l, IB_DOWN);
    if (l->id != NULL)
        rdma_destroy_id(l->id);
    ib_link_events(l, 0);
    leave_queues(l);
    if (l->addresses != NULL)
        freeaddrinfo(l->addresses);
    rme_table_take(&rail->table, &l->by_handle);
    list_del_init(&l->all_entry);
    free(l);
}

void ib_links_release(struct ib_rail *rail)
{
    struct rme_link *l; /* the engine freed its own links; these were not reported */
    while ((l = list_first(&rail->links, struct rme_link, all_entry)) != NULL)
        ib_link_destroy(l);
}

/* ---- Failure ---- */

/* Starts again with the next route, or ends the link.  No request of a QP is left. */
static void retry_or_end(struct rme_link *l)
{
    if (l->qp != NULL)
        qp_destroy(l);
    if (l->id != NULL) {
        rdma_destroy_id(l->id);
        l->id = NULL;
    }
    if (l->error == -ESTALE) {
        l->error =
            l->stale > STALE_TRIES || l->asked || l->rail->dev.dead ? -ECONNRESET : start(l);
        if (!l->error)
            return;
    }
    l->busy |= l->error == -EBUSY;
    /* another way may help if the peer's engine did not answer */
    if (!l->passive && !l->was_up && !l->asked && l->error != -EACCES && l->addresses != NULL &&
        ib_link_next(l))
        return;
    ib_link_state_set(l, IB_ENDING);
    if (l->busy && !l->asked) /* another attempt may succeed */
        l->error = -EBUSY;
    ib_link_events(l, l->events | IB_EVENT_DOWN);
}

void ib_link_fail(struct rme_link *l, int error, bool deliver)
{
    switch (l->state) {
    case IB_NAMING:
    case IB_ADDRESSING:
    case IB_ROUTING:
        l->error = error;
        retry_or_end(l);
        break;
    case IB_REQUESTED:
        if (l->events & IB_EVENT_REQUEST) { /* not reported to the engine */
            ib_link_destroy(l);
            break;
        }
        /* the engine's answer fails; LINK_DOWN is for accepted links only */
        rdma_destroy_id(l->id);
        l->id = NULL;
        ib_link_state_set(l, IB_DOWN);
        break;
    case IB_CONNECTING:
    case IB_ACCEPTING:
    case IB_UP:
        l->error = error;
        l->deliver = deliver && l->state != IB_CONNECTING; /* not reported as up */
        leave_queues(l);
        ib_link_events(l, l->events & ~IB_EVENT_ROOM);
        ib_link_state_set(l, IB_DRAINING);
        rme_timer_set(&l->rail->fabric->timers, &l->timer,
                      ib_now_ms() + l->rail->fabric->drain_ms);
        qp_drain(l);
        break;
    case IB_DRAINING:
    case IB_DRAINED:
        l->deliver = l->deliver && deliver;
        break;
    case IB_ENDING:
    case IB_DOWN:
        break;
    }
}

void ib_link_fail_all(struct ib_rail *rail, int error, const char *why)
{
    struct rme_link *l, *next;
    ib_log(rail, RME_LOG_ERROR, "device %s: all its connections fail: %s (%s)%s",
           rail->dev.name, why, strerror(-error),
           rail->dev.dead ? "; waiting for the device to return" : "");
    for (l = list_first(&rail->links, struct rme_link, all_entry); l != NULL; l = next) {
        next = list_next(l, &rail->links, all_entry);
        ib_link_fail(l, error, true);
    }
}

void ib_link_device_lost(struct ib_rail *rail, const char *why)
{
    if (rail->dev.dead)
        return;
    rail->dev.dead = true;
    rail->fabric->reopen_at = 1;
    ib_link_fail_all(rail, -ENODEV, why);
}

void ib_link_drained(struct rme_link *l, unsigned parts)
{
    struct ib_rail *rail = l->rail;
    l->undrained &= (uint8_t)~parts;
    if (l->state != IB_DRAINING || l->undrained)
        return;
    list_add_tail(&l->drain_entry, &rail->drained);
    ib_link_state_set(l, IB_DRAINED);
    rail->attention = true;
    l->emptied = rail->cq.emptied;
    l->polled = rail->cq.polled;
}

const struct ib_link_ops ib_link_ops = {
    .fail = ib_link_fail,
    .fail_all = ib_link_fail_all,
    .drained = ib_link_drained,
    .established = ib_link_established,
};

/* Destroys one QP, which is one QP operation, once all CQEs that existed at the end of its
 * drain are taken. */
void ib_link_free_drained(struct ib_rail *rail)
{
    struct rme_link *l = list_first(&rail->drained, struct rme_link, drain_entry);
    const struct ib_cq *c = &rail->cq;
    if (l == NULL ||
        !(c->broken || c->emptied != l->emptied || c->polled - l->polled >= c->size))
        return;
    list_del_init(&l->drain_entry);
    retry_or_end(l);
}

/* Abandons drains whose time is over, and one route that has taken too long: each route may be
 * a QP operation. */
void ib_link_timers(struct rme_fabric *f)
{
    uint64_t now = ib_now_ms();
    struct rme_timer *t;
    while ((t = rme_timers_due(&f->timers, now)) != NULL) {
        struct rme_link *l = container_of(t, struct rme_link, timer);
        if (l->state != IB_DRAINING) {
            ib_log(f, RME_LOG_INFO, "%s: %s for %u ms; trying another address or device",
                   l->peer, ib_link_state_name[l->state], f->route_timeout_ms);
            ib_link_fail(l, -ETIMEDOUT, false);
            return;
        }
        if (l->undrained & (IB_DRAIN_SENDS | IB_DRAIN_RECVS))
            ib_log(f, RME_LOG_WARN, "%s: not all %s flushed in time; destroying the queue pair",
                   l->peer, l->undrained & IB_DRAIN_SENDS ? "sends" : "receives");
        ib_link_drained(l, IB_DRAIN_ALL);
    }
}

int ib_link_deadline(struct rme_fabric *f)
{
    uint64_t first = rme_timers_next(&f->timers), now = ib_now_ms();
    if (f->reopen_at && f->reopen_at < first)
        first = f->reopen_at;
    for (unsigned i = 0; i < f->rails; i++) {
        uint64_t room = ib_tx_deadline(f->rail[i]);
        if (!list_empty(&f->rail[i]->drained))
            return 0;
        if (room < first)
            first = room;
    }
    return first == UINT64_MAX ? -1 : first > now ? (int)(first - now) : 0;
}
