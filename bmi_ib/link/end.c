/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * end.c - the end of a connection.
 *
 * ib_link_fail() handles each failure, in any state.  A link without a QP ends at once.  A QP
 * is drained first: in the error state the device flushes all requests, and markers behind them
 * signal the last one (qp.c).  The CQEs must then be taken from the CQ, because the destruction
 * of the QP discards them, and used receives of an SRQ with them.  So the QP is destroyed after
 * its CQ was found empty once (ib_link_free_drained()); the buffers return to their pools and
 * LINK_DOWN is due.  If a call fails or the markers are late, the QP is destroyed without them,
 * which also ends all access to memory.
 *
 * The loss of a link has a cost independent of the number of links: draining links are sorted
 * by deadline, drained ones by the order of CQEs, and due LINK_DOWN events have a list of their
 * own.
 *
 * Retries: a link that fails before it was up, without an answer of the peer's engine, starts
 * again with the next address, or the next rail (rails.c); likewise a link that is not up after
 * IB_WAY_MS, while another way exists.  A link that the peer refuses as stale retries the
 * same address: the peer had a connection with the number of a QP that is gone here, and has
 * ended it.
 */
#include <errno.h>
#include <stdlib.h>
#include "bmi_ib/link/links.h"

#define STALE_TRIES                                                                            \
    4 /* retries of an address while the peer reports a stale connection of this process */

/* ---- Freed ---- */

/* Frees a link in any state. */
void ib_link_destroy(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    if (l->state == IB_NAMING)
        ib_resolve_forget(f, l->handle);
    if (l->state == IB_DRAINING)
        TAILQ_REMOVE(&f->draining, l, drain_entry);
    if (l->state == IB_DRAINED)
        TAILQ_REMOVE(&f->drained, l, drain_entry);
    if (l->state == IB_ENDING)
        TAILQ_REMOVE(&f->downs, l, down_entry);
    if (l->qp)
        ib_qp_destroy(l);
    ib_link_state_set(l, IB_DOWN);
    if (l->id)
        rdma_destroy_id(l->id);
    ib_link_events(l, 0);
    if (l->dirty)
        TAILQ_REMOVE(&f->dirty, l, dirty_entry);
    ib_tx_forget(l);
    if (l->addresses)
        freeaddrinfo(l->addresses);
    rme_table_take(&f->table, &l->by_handle);
    TAILQ_REMOVE(&f->links, l, all_entry);
    free(l);
}

void ib_links_release(struct rme_fabric *f)
{
    struct rme_link *l;
    while ((l = TAILQ_FIRST(
                &f->links))) /* the engine freed its own links; these were not reported */
        ib_link_destroy(l);
    rme_table_clear(&f->table);
}

/* ---- Failure ---- */

/* Returns true if another way may help: the link was never up, and the peer's engine did not
 * answer. */
static bool another_route_helps(const struct rme_link *l)
{
    return !l->passive && !l->was_up && !l->asked && l->error != -EACCES && l->addresses;
}

/* Starts again with the next route, or ends the link.  No request of a QP is left. */
static void settle(struct rme_link *l)
{
    if (l->qp)
        ib_qp_destroy(l);
    if (l->id) {
        rdma_destroy_id(l->id);
        l->id = NULL;
    }
    if (l->error == -ESTALE) {
        l->error = l->stale > STALE_TRIES || l->asked || l->f->dev.dead ? -ECONNRESET
                                                                        : ib_link_start(l);
        if (!l->error)
            return;
    }
    l->busy |= l->error == -EBUSY;
    while (another_route_helps(l) && ib_rail_next(l)) {
        l->stale = 0;
        l->error = ib_link_start(l);
        if (!l->error)
            return;
    }
    ib_link_state_set(l, IB_ENDING);
    if (l->busy && !l->asked) /* another attempt may succeed */
        l->error = -EBUSY;
    TAILQ_INSERT_TAIL(&l->f->downs, l, down_entry);
    ib_tells(l->f);
}

/* Removes the link from the lists of links that post or wait for buffers. */
static void withdraw(struct rme_link *l)
{
    if (l->dirty) {
        TAILQ_REMOVE(&l->f->dirty, l, dirty_entry);
        l->dirty = false;
    }
    ib_link_events(l, l->events & ~IB_EVENT_ROOM);
    ib_tx_forget(l);
}

/* Ends a request that was reported to the engine and not answered.  The engine's answer fails;
 * LINK_DOWN is for accepted links only. */
static void take_back(struct rme_link *l, int error)
{
    l->error = error;
    rdma_destroy_id(l->id);
    l->id = NULL;
    ib_link_state_set(l, IB_DOWN);
}

void ib_link_fail(struct rme_link *l, int error, bool deliver)
{
    switch (l->state) {
    case IB_NAMING:
    case IB_ADDRESSING:
    case IB_ROUTING:
        if (l->state == IB_NAMING)
            ib_resolve_forget(l->f, l->handle);
        l->error = error;
        settle(l);
        break;
    case IB_REQUESTED:
        if (l->events & IB_EVENT_REQUEST) { /* not reported to the engine */
            ib_link_destroy(l);
            break;
        }
        take_back(l, error);
        break;
    case IB_CONNECTING:
    case IB_ACCEPTING:
    case IB_UP:
        l->error = error;
        l->deliver = deliver && l->state != IB_CONNECTING; /* not reported as up */
        withdraw(l);
        ib_link_state_set(l, IB_DRAINING);
        l->drain_end = ib_now_ms() + l->f->drain_ms;
        TAILQ_INSERT_TAIL(&l->f->draining, l, drain_entry);
        ib_qp_drain(l);
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

void ib_link_fail_all(struct rme_fabric *f, int error)
{
    struct rme_link *l, *next;
    for (l = TAILQ_FIRST(&f->links); l; l = next) {
        next = TAILQ_NEXT(l, all_entry);
        ib_link_fail(l, error, true);
    }
}

void ib_link_drained(struct rme_link *l, unsigned parts)
{
    struct rme_fabric *f = l->f;
    l->undrained &= (uint8_t)~parts;
    if (l->state != IB_DRAINING || l->undrained)
        return;
    TAILQ_REMOVE(&f->draining, l, drain_entry);
    TAILQ_INSERT_TAIL(&f->drained, l, drain_entry);
    ib_link_state_set(l, IB_DRAINED);
    f->attention = true;
    l->emptied = f->cq.emptied;
    l->polled = f->cq.polled;
}

/* Returns true if all CQEs present at the end of the drain have been taken. */
static bool taken(const struct rme_link *l)
{
    const struct ib_cq *c = &l->f->cq;
    return c->broken || c->emptied != l->emptied || c->polled - l->polled >= c->size;
}

/* Destroys one QP whose last CQE was taken, which is one QP operation (qp.c). */
void ib_link_free_drained(struct rme_fabric *f)
{
    struct rme_link *l = TAILQ_FIRST(&f->drained);
    if (!l || !taken(l))
        return;
    TAILQ_REMOVE(&f->drained, l, drain_entry);
    settle(l);
}

/* Abandons the drains whose time is over. */
static void give_up(struct rme_fabric *f)
{
    struct rme_link *l;
    uint64_t now = TAILQ_EMPTY(&f->draining) ? 0 : ib_now_ms();
    while ((l = TAILQ_FIRST(&f->draining)) && l->drain_end <= now) {
        if (l->undrained & (IB_DRAIN_SENDS | IB_DRAIN_RECVS))
            ib_log(f, RME_LOG_WARN, "%s: not all %s flushed in time; destroying the queue pair",
                   l->peer, l->undrained & IB_DRAIN_SENDS ? "sends" : "receives");
        ib_link_drained(l, IB_DRAIN_ALL); /* removes the link from the list */
    }
}

/* Abandons a route that has taken too long; one per call, because it may be a QP operation
 * (qp.c). */
static void leave_routes(struct rme_fabric *f)
{
    struct rme_link *l = TAILQ_FIRST(&f->routes);
    if (!l || l->route_end > ib_now_ms())
        return;
    ib_log(f, RME_LOG_INFO, "%s: %s for %u ms; trying another address or device", l->peer,
           ib_link_state_name[l->state], f->way_ms);
    ib_link_fail(l, -ETIMEDOUT, false);
}

/* Handles timeouts of drains and routes. */
void ib_link_timers(struct rme_fabric *f)
{
    give_up(f);
    leave_routes(f);
}

int ib_link_deadline(struct rme_fabric *f)
{
    const struct rme_link *draining = TAILQ_FIRST(&f->draining),
                          *route_at = TAILQ_FIRST(&f->routes);
    uint64_t first = ib_tx_deadline(f), now;
    if (!TAILQ_EMPTY(&f->drained))
        return 0;
    if (draining && draining->drain_end < first)
        first = draining->drain_end;
    if (route_at && route_at->route_end < first)
        first = route_at->route_end;
    if (first == UINT64_MAX)
        return -1;
    now = ib_now_ms();
    return first > now ? (int)(first - now) : 0;
}
