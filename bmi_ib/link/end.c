/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * end.c - the end of a connection.
 *
 * Every failure goes through ib_link_fail, in whatever state.  A link without a queue pair ends
 * at once.  One with a queue pair is drained first: the pair goes to the error state, which
 * makes the device give every request back as flushed; marker requests behind them tell when
 * the last one came (qp.c).  Then everything of this pair is in the completion queue, and has
 * to be taken from there: destroying the pair throws away what is left, and with it receives of
 * the shared queue that were used.  So the pair is destroyed when the queue was found empty
 * once (ib_link_reap); the buffers return to their pools and LINK_DOWN is due.  When the device
 * does not play along (a call fails, the markers do not come in time) the pair is destroyed
 * without them, which also ends all access to memory.
 *
 * A name with several addresses is tried address by address: a link that fails before it was
 * up, without an answer of the peer's engine, starts again with the next one, or with the next
 * rail where there are several (rails.c), and so does one that is not up in way_timeout_ms,
 * while there is another.  One that the peer refuses as stale starts again with the same: the
 * peer has found a connection with the number of our queue pair that is gone here, and has
 * ended it while refusing.
 *
 * However many links there are, the loss of one looks at no other: those that wait for their
 * time are in lists in the order in which it is over, those that wait for a completion queue in
 * the order in which it lets them go, and those whose down is due in a list of their own.
 */
#include <errno.h>
#include <stdlib.h>
#include "bmi_ib/link/links.h"

#define LAST_WQE_MS 50 /* patience for "last WQE reached" */
#define STALE_TRIES                                                                            \
    4 /* for one address, when the peer still has a connection of ours that is gone */

/* ---- Freed ---- */

/* The list that a link which drains is in. */
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

/* A link or a side is about to be freed: nobody names it any more. */
static void part(struct rme_link *l)
{
    if (l->side)
        l->side->main = NULL;
    if (l->main) {
        l->main->side = NULL;
        l->main->may_stripe = l->main->offer != NULL; /* another one, later */
        l->main->f->resume = true;                    /* its own end may have waited for this */
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
                &f->links))) /* the engine freed its own; what is left never reached it */
        ib_link_destroy(l);
    ib_table_free(f);
}

/* ---- Failure ---- */

/* Nobody there, or no way there: worth another way. */
static bool another_way_helps(const struct rme_link *l)
{
    return !l->passive && !l->was_up && !l->asked && l->error != -EACCES && l->addresses &&
           !l->is_side;
}

/* The device is done with the link: start again with the next address, or end. */
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
    if (l->busy && !l->asked) { /* another attempt may find room there */
        l->error = -EBUSY;
        l->refused = false;
    }
    if (!l->refused || l->asked || l->is_side || ib_option(l->f, "probe_ms") == 0 ||
        !ib_probe_start(l))
        ib_link_down(l);
}

/* Takes the link out of everything that posts or waits on its behalf. */
static void withdraw(struct rme_link *l)
{
    if (l->dirty) {
        TAILQ_REMOVE(&l->f->dirty, l, dirty_entry);
        l->dirty = false;
    }
    l->event_room = false;
    ib_tx_forget(l);
}

/* A queue pair of a striped link is lost: does the other one go with it?  A side takes its link
 * along if something is under way over it, or open to the peer. */
static void take_along(struct rme_link *l)
{
    if (l->side)
        ib_link_fail(l->side, l->error, false);
    else if (l->main && (l->entered != l->passed || !LIST_EMPTY(&l->windows)))
        ib_link_fail(l->main, l->error, true);
}

/* A request is over that the engine has heard of and not answered: it may be in the array that
 * the engine gets from this poll, as several rails fill one.  The engine is told by the answer,
 * which fails; LINK_DOWN is for links that were accepted, and nobody's here. */
static void take_back(struct rme_link *l, int error)
{
    l->error = error;
    rdma_destroy_id(l->id);
    l->id = NULL;
    ib_link_state_set(l, IB_ENDING);
}

/*
 * The link is lost, for this reason; the first one counts.  `deliver`: what the peer sent
 * before still reaches the engine.
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
        if (l->event_request) { /* the engine never heard of it */
            ib_link_destroy(l);
            break;
        }
        take_back(l, error);
        break;
    case IB_CONNECTING:
    case IB_ACCEPTING:
    case IB_UP:
        l->error = error;
        l->deliver = deliver && l->state != IB_CONNECTING; /* the engine never saw it up */
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

/* All links, or those of one completion queue. */
void ib_link_fail_all(struct rme_fabric *f, const struct ib_cq *cq, int error)
{
    struct rme_link *l, *next;
    for (l = TAILQ_FIRST(&f->links); l; l = next) {
        next = TAILQ_NEXT(l, all_entry);
        if (!cq || l->cq == cq)
            ib_link_fail(l, error, true);
    }
}

/* A step of the drain was made: is it over? */
void ib_link_drained(struct rme_link *l)
{
    if (!l->draining || !l->send_drained || !l->recv_drained)
        return;
    if (!l->last_wqe) { /* see qp.c: the event may never reach us */
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
    l->draining = l->waning = false;
    l->drained = true;
    l->emptied = l->cq->emptied;
    l->polled = l->cq->polled;
}

/* Has everything been taken that was in the completion queue when the link was drained? */
static bool taken(const struct rme_link *l)
{
    const struct ib_cq *c = l->cq;
    return c->broken || c->emptied != l->emptied || c->polled - l->polled >= c->size;
}

/* Destroys a queue pair whose last completion was taken: one stride (qp.c). */
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

/* Gives up on those of a list whose time is over. */
static void give_up(struct rme_fabric *f, const struct ib_link_list *list)
{
    struct rme_link *l;
    uint64_t now = TAILQ_EMPTY(list) ? 0 : ib_now_ms();
    while ((l = TAILQ_FIRST(list)) && l->drain_end <= now) {
        if (!l->send_drained || !l->recv_drained)
            ib_log(f, RME_LOG_WARN, "%s: not all %s flushed in time; destroying the queue pair",
                   l->peer, l->send_drained ? "receives" : "sends");
        l->send_drained = l->recv_drained = l->last_wqe = true;
        ib_link_drained(l); /* which takes it out */
    }
}

/* Leaves a way that was tried for long enough; one at a look, as that may be a stride (qp.c).
 */
static void leave_ways(struct rme_fabric *f)
{
    struct rme_link *l = TAILQ_FIRST(&f->ways);
    if (!l || l->way_end > ib_now_ms())
        return;
    ib_log(f, RME_LOG_INFO, "%s: %s for %lld ms; trying another address or device", l->peer,
           ib_link_state_name[l->state], (long long)ib_option(f, "way_timeout_ms"));
    ib_link_fail(l, -ETIMEDOUT, false);
}

/* Gives up on queue pairs that do not drain, and on ways that do not lead to the peer. */
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
    if (f->drained || f->resume) /* or what another rail let go on after it was polled */
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
