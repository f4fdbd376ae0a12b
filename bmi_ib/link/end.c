/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * end.c - the end of a connection.
 *
 * ib_link_fail() handles each failure, in any state.  A link without a QP ends at once.  A QP
 * is drained first: in the error state the device flushes all requests, and markers behind them
 * signal the last one (qp.c).  The CQEs must then be taken from the CQ, because the destruction
 * of the QP discards them, and used receives of an SRQ with them.  So the QP is destroyed after
 * its CQ was found empty once (ib_link_reap()); the buffers return to their pools and LINK_DOWN
 * is due.  If a call fails or the markers are late, the QP is destroyed without them, which
 * also ends all access to memory.
 *
 * Retries: a link that fails before it was up, without an answer of the peer's engine, starts
 * again with the next address, or the next rail (rails.c); likewise a link that is not up after
 * way_timeout_ms, while another way exists.  A link that the peer refuses as stale retries the
 * same address: the peer had a connection with the number of a QP that is gone here, and has
 * ended it.
 */
#include <errno.h>
#include <stdlib.h>
#include "bmi_ib/link/links.h"

#define LAST_WQE_MS 50 /* ms to wait for "last WQE reached" */
#define STALE_TRIES                                                                            \
    4 /* retries of an address while the peer reports a stale connection of this process */

/* ---- Freed ---- */

/* Returns the drain list that holds the link.  The loss of a link has a cost independent of the
 * number of links, because the lists of draining links are sorted by deadline, or by the order
 * of CQEs, and due LINK_DOWN events have a list of their own. */
static struct ib_link_list *drain_list(struct rme_link *l)
{
    return l->waning ? &l->f->waning : &l->f->draining;
}

static void leave_drained(struct rme_link *l)
{
    TAILQ_REMOVE(&l->cq->drained, l, drain_entry);
    l->f->drained--;
    l->drained = false;
}

/* Separates a link and its secondary QP, one of which is about to be freed. */
static void part(struct rme_link *l)
{
    if (l->side)
        l->side->main = NULL;
    if (l->main) {
        l->main->side = NULL;
        l->main->may_stripe = l->main->offer != NULL; /* a later secondary QP is possible */
        ib_resume(l->main->f);                        /* LINK_DOWN may have waited for this */
    }
    l->side = l->main = NULL;
}

/* Frees a link in any state. */
void ib_link_destroy(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    if (l->state == IB_NAMING)
        ib_resolve_forget(f, l->handle);
    if (l->drained)
        leave_drained(l);
    if (l->qp)
        ib_qp_destroy(l);
    if (l->probe >= 0)
        ib_probe_end(l);
    part(l);
    ib_link_state_set(l, IB_DOWN);
    if (l->draining)
        TAILQ_REMOVE(drain_list(l), l, drain_entry);
    if (l->id)
        rdma_destroy_id(l->id);
    if (l->in_events)
        TAILQ_REMOVE(&f->eventful, l, event_entry);
    if (l->event_down)
        TAILQ_REMOVE(&f->downs, l, down_entry);
    if (l->dirty)
        TAILQ_REMOVE(&f->dirty, l, dirty_entry);
    if (f->srq)
        f->rxq.promised -= l->rx_promised;
    ib_tx_forget(l);
    ib_ring_fini(&l->ring);
    if (l->addresses)
        freeaddrinfo(l->addresses);
    ib_table_remove(l);
    TAILQ_REMOVE(&f->links, l, all_entry);
    free(l->offer);
    free(l);
}

void ib_link_free_sides(struct rme_fabric *f)
{
    struct rme_link *l, *next;
    for (l = f->done.head ? NULL : TAILQ_FIRST(&f->downs); l; l = next) {
        next = TAILQ_NEXT(l, down_entry);
        if (l->is_side)
            ib_link_destroy(l);
    }
}

void ib_links_release(struct rme_fabric *f)
{
    struct rme_link *l;
    while ((l = TAILQ_FIRST(
                &f->links))) /* the engine freed its own links; these were not reported */
        ib_link_destroy(l);
    ib_table_free(f);
}

/* ---- Failure ---- */

/* Returns true if another way may help: the link was never up, and the peer's engine did not
 * answer. */
static bool another_way_helps(const struct rme_link *l)
{
    return !l->passive && !l->was_up && !l->asked && l->error != -EACCES && l->addresses &&
           !l->is_side;
}

/* Starts again with the next way, or ends the link; the device is done with it. */
static void settle(struct rme_link *l)
{
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
    while (another_way_helps(l) && ib_rail_next(l)) {
        l->stale = 0;
        l->error = ib_link_start(l);
        if (!l->error)
            return;
    }
    ib_link_state_set(l, IB_ENDING);
    if (l->busy && !l->asked) { /* another attempt may succeed */
        l->error = -EBUSY;
        l->refused = false;
    }
    if (!l->refused || l->asked || l->is_side || ib_option(l->f, "probe_ms") == 0 ||
        !ib_probe_start(l))
        ib_link_down(l);
}

/* Removes the link from the lists of links that post or wait for buffers. */
static void withdraw(struct rme_link *l)
{
    if (l->dirty) {
        TAILQ_REMOVE(&l->f->dirty, l, dirty_entry);
        l->dirty = false;
    }
    l->event_room = false;
    ib_tx_forget(l);
}

/* Fails the other QP of a striped link, if necessary.  A lost secondary QP fails its link if
 * entries are in flight or windows are open. */
static void take_along(struct rme_link *l)
{
    if (l->side)
        ib_link_fail(l->side, l->error, false);
    else if (l->main && (l->entered != l->passed || !LIST_EMPTY(&l->windows)))
        ib_link_fail(l->main, l->error, true);
}

/* Ends a request that was reported to the engine and not answered.  Its event may be in the
 * array of this poll, because several rails fill one.  The engine's answer fails; LINK_DOWN is
 * for accepted links only. */
static void take_back(struct rme_link *l, int error)
{
    l->error = error;
    rdma_destroy_id(l->id);
    l->id = NULL;
    ib_link_state_set(l, IB_ENDING);
}

/*
 * Fails a link; the first error counts.  `deliver`: the engine still gets messages that the
 * peer sent before.
 */
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
        if (l->event_request) { /* not reported to the engine */
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
        l->draining = true;
        l->drain_end = ib_now_ms() + (uint64_t)ib_option(l->f, "drain_timeout_ms");
        TAILQ_INSERT_TAIL(&l->f->draining, l, drain_entry);
        ib_qp_drain(l);
        ib_link_drained(l);
        take_along(l);
        break;
    case IB_DRAINING:
        l->deliver = l->deliver && deliver;
        break;
    case IB_ENDING:
    case IB_DOWN:
        break;
    }
}

/* Fails all links, or those of `cq` if not NULL. */
void ib_link_fail_all(struct rme_fabric *f, const struct ib_cq *cq, int error)
{
    struct rme_link *l, *next;
    for (l = TAILQ_FIRST(&f->links); l; l = next) {
        next = TAILQ_NEXT(l, all_entry);
        if (!cq || l->cq == cq)
            ib_link_fail(l, error, true);
    }
}

/* Ends the drain if all its steps are done. */
void ib_link_drained(struct rme_link *l)
{
    if (!l->draining || !l->send_drained || !l->recv_drained)
        return;
    if (!l->last_wqe) { /* the event may not come; see qp.c */
        uint64_t soon = ib_now_ms() + LAST_WQE_MS;
        if (!l->waning && l->drain_end > soon) {
            TAILQ_REMOVE(&l->f->draining, l, drain_entry);
            TAILQ_INSERT_TAIL(&l->f->waning, l, drain_entry);
            l->waning = true;
            l->drain_end = soon;
        }
        return;
    }
    TAILQ_REMOVE(drain_list(l), l, drain_entry);
    TAILQ_INSERT_TAIL(&l->cq->drained, l, drain_entry);
    l->f->drained++;
    l->f->attention = true;
    l->draining = l->waning = false;
    l->drained = true;
    l->emptied = l->cq->emptied;
    l->polled = l->cq->polled;
}

/* Returns true if all CQEs present at the end of the drain have been taken. */
static bool taken(const struct rme_link *l)
{
    const struct ib_cq *c = l->cq;
    return c->broken || c->emptied != l->emptied || c->polled - l->polled >= c->size;
}

/* Destroys one QP whose last CQE was taken, which is one stride (qp.c). */
void ib_link_reap(struct rme_fabric *f)
{
    for (unsigned i = 0; i < f->cqs; i++) {
        struct rme_link *l = TAILQ_FIRST(&f->cq[i].drained);
        if (l && taken(l)) {
            leave_drained(l);
            ib_qp_destroy(l);
            settle(l);
            return;
        }
    }
}

/* Abandons the drains of a list whose time is over. */
static void give_up(struct rme_fabric *f, const struct ib_link_list *list)
{
    struct rme_link *l;
    uint64_t now = TAILQ_EMPTY(list) ? 0 : ib_now_ms();
    while ((l = TAILQ_FIRST(list)) && l->drain_end <= now) {
        if (!l->send_drained || !l->recv_drained)
            ib_log(f, RME_LOG_WARN, "%s: not all %s flushed in time; destroying the queue pair",
                   l->peer, l->send_drained ? "receives" : "sends");
        l->send_drained = l->recv_drained = l->last_wqe = true;
        ib_link_drained(l); /* removes the link from the list */
    }
}

/* Abandons a way that has taken too long; one per call, because it may be a stride (qp.c). */
static void leave_ways(struct rme_fabric *f)
{
    struct rme_link *l = TAILQ_FIRST(&f->ways);
    if (!l || l->way_end > ib_now_ms())
        return;
    ib_log(f, RME_LOG_INFO, "%s: %s for %lld ms; trying another address or device", l->peer,
           ib_link_state_name[l->state], (long long)ib_option(f, "way_timeout_ms"));
    ib_link_fail(l, -ETIMEDOUT, false);
}

/* Handles timeouts of drains and ways. */
void ib_link_timers(struct rme_fabric *f)
{
    give_up(f, &f->draining);
    give_up(f, &f->waning);
    leave_ways(f);
}

int ib_link_deadline(struct rme_fabric *f)
{
    const struct rme_link *draining = TAILQ_FIRST(&f->draining),
                          *waning = TAILQ_FIRST(&f->waning), *way = TAILQ_FIRST(&f->ways);
    uint64_t first = ib_probe_deadline(f), look = ib_tx_deadline(f), now;
    if (look < first)
        first = look;
    if (f->drained || f->resume) /* another rail, polled later, may have set `resume` */
        return 0;
    if (draining && draining->drain_end < first)
        first = draining->drain_end;
    if (waning && waning->drain_end < first)
        first = waning->drain_end;
    if (way && way->way_end < first)
        first = way->way_end;
    if (first == UINT64_MAX)
        return -1;
    now = ib_now_ms();
    return first > now ? (int)(first - now) : 0;
}
