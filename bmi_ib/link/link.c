/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * link.c - the life of a connection.
 *
 * Active:  NAMING -> ADDRESSING -> ROUTING -> CONNECTING -> UP -> DRAINING -> ENDING -> DOWN
 * Passive: REQUESTED -> ACCEPTING -> UP -> DRAINING -> ENDING -> DOWN
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
 * Events of links are flags, delivered by poll in the order request, up, room, and down last,
 * after every message and completed transfer.  So nothing needs memory to report an event.
 *
 * However many links there are, the loss of one looks at no other: those that wait for their
 * time are in lists in the order in which it is over, those that wait for a completion queue in
 * the order in which it lets them go, and those whose down is due in a list of their own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/link/links.h"

#define LAST_WQE_MS 50 /* patience for "last WQE reached" */
#define STALE_TRIES                                                                            \
    4 /* for one address, when the peer still has a connection of ours that is gone */

const char *const ib_link_state_name[] = {
#define IB_LINK_NAME(id, name) [IB_##id] = name,
    IB_LINK_STATES(IB_LINK_NAME)
#undef IB_LINK_NAME
};

/* ---- Made and freed ---- */

struct rme_link *ib_link_new(struct rme_fabric *f)
{
    struct rme_link *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->f = f;
    l->state = IB_DOWN; /* until ib_link_state_set */
    l->deliver = true;
    l->probe = -1;
    STAILQ_INIT(&l->rxq.chain);
    LIST_INIT(&l->windows);
    if (ib_table_put(l)) {
        free(l);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&f->links, l, all_entry);
    return l;
}

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

/* Frees a link in any state. */
void ib_link_destroy(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    if (l->drained)
        leave_drained(l);
    if (l->qp)
        ib_qp_destroy(l);
    if (l->probe >= 0)
        ib_probe_end(l);
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
    free(l);
}

void ib_links_release(struct rme_fabric *f)
{
    struct rme_link *l;
    while ((l = TAILQ_FIRST(
                &f->links))) /* the engine freed its own; what is left never reached it */
        ib_link_destroy(l);
    ib_table_free(f);
}

/* ---- States and events ---- */

/* Is something of rdma_cm or of the resolver on its way? */
static bool is_rising(enum ib_link_state s)
{
    return s == IB_NAMING || s == IB_ADDRESSING || s == IB_ROUTING || s == IB_CONNECTING ||
           s == IB_ACCEPTING;
}

void ib_link_way(struct rme_link *l, bool begins)
{
    struct rme_fabric *head = l->f->head;
    if (l->on_way)
        TAILQ_REMOVE(&head->ways, l, way_entry);
    l->on_way = begins && ib_rail_more(l);
    if (!l->on_way)
        return;
    l->way_end = ib_now_ms() + (uint64_t)ib_option(head, "way_timeout_ms");
    TAILQ_INSERT_TAIL(&head->ways, l, way_entry);
}

void ib_link_state_set(struct rme_link *l, enum ib_link_state state)
{
    l->f->head->connecting += (unsigned)is_rising(state) - (unsigned)is_rising(l->state);
    if (!is_rising(state))
        ib_link_way(l, false);
    if (l->state != state)
        ib_log(l->f, RME_LOG_DEBUG, "%s: %s -> %s", l->peer, ib_link_state_name[l->state],
               ib_link_state_name[state]);
    l->state = state;
}

static void event_done(struct rme_link *l)
{
    if (l->event_request || l->event_up || l->event_room)
        return;
    TAILQ_REMOVE(&l->f->eventful, l, event_entry);
    l->in_events = false;
}

void ib_link_down(struct rme_link *l)
{
    if (!l->event_down)
        TAILQ_INSERT_TAIL(&l->f->downs, l, down_entry);
    l->event_down = true;
}

static const char by_tcp[] =
    "somebody listens there by TCP, as bmi_tcp and the bmi_ib that OrangeFS brings do, and "
    "those do not talk to this bmi_ib: both sides need the same";

static bool emit_hello(struct rme_link *l, enum rme_event_type type, bool with_answer)
{
    struct rme_event *e = ib_event(l->f, type, l);
    if (!e)
        return false;
    e->error = type == RME_EV_LINK_DOWN ? l->error : 0;
    e->why = l->by_tcp            ? by_tcp
             : l->error == -EBUSY ? "too many requests wait there, see its option backlog"
                                  : NULL;
    if (with_answer) {
        e->hello = l->answer;
        e->hello_length = l->answer_length;
    }
    return true;
}

/* Delivers requests, ups and rooms. */
void ib_emit_links(struct rme_fabric *f)
{
    struct rme_link *l, *next;
    for (l = TAILQ_FIRST(&f->eventful); l && f->out_used < f->out_max; l = next) {
        next = TAILQ_NEXT(l, event_entry);
        if (l->event_request && emit_hello(l, RME_EV_LINK_REQUEST, true))
            l->event_request = false;
        if (l->event_up && emit_hello(l, RME_EV_LINK_UP, !l->passive))
            l->event_up = false;
        if (l->event_room && !l->event_up && emit_hello(l, RME_EV_TX_ROOM, false))
            l->event_room = false;
        event_done(l);
    }
}

/* Delivers downs, once everything that happened before is delivered. */
void ib_emit_downs(struct rme_fabric *f)
{
    struct rme_link *l, *next;
    if (!STAILQ_EMPTY(&f->rx_ready) || f->done.head)
        return;
    for (l = TAILQ_FIRST(&f->downs); l && f->out_used < f->out_max; l = next) {
        next = TAILQ_NEXT(l, down_entry);
        if (l->event_up ||
            !emit_hello(l, RME_EV_LINK_DOWN, l->error == -EACCES && l->answer_length))
            continue;
        TAILQ_REMOVE(&f->downs, l, down_entry);
        l->event_down = false;
        ib_link_state_set(l, IB_DOWN);
    }
}

/* ---- Failure ---- */

/* Nobody there, or no way there: worth another way. */
static bool another_way_helps(const struct rme_link *l)
{
    return !l->passive && !l->was_up && !l->asked && l->error != -EACCES && l->addresses;
}

/* The device is done with the link: start again with the next address, or end. */
static void settle(struct rme_link *l)
{
    if (l->id) {
        rdma_destroy_id(l->id);
        l->id = NULL;
    }
    if (l->error == -ESTALE) {
        l->error =
            l->stale > STALE_TRIES || l->asked || l->f->dev.dead ? -ECONNRESET : ib_cm_start(l);
        if (!l->error)
            return;
    }
    l->busy |= l->error == -EBUSY;
    while (another_way_helps(l) && ib_rail_next(l)) {
        l->stale = 0;
        l->error = ib_cm_start(l);
        if (!l->error)
            return;
    }
    ib_link_state_set(l, IB_ENDING);
    if (l->busy && !l->asked) { /* another attempt may find room there */
        l->error = -EBUSY;
        l->refused = false;
    }
    if (!l->refused || l->asked || ib_option(l->f, "probe_ms") == 0 || !ib_probe_start(l))
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
        l->error = error;
        settle(l);
        break;
    case IB_REQUESTED:
        if (l->event_request) { /* the engine never heard of it */
            ib_link_destroy(l);
            break;
        }
        l->error = error;
        settle(l);
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

const struct ib_reports ib_link_reports = {
    .failed = ib_link_fail,
    .all_failed = ib_link_fail_all,
    .marked = ib_link_drained,
    .heard = ib_cm_established,
};

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
            ib_log(f, RME_LOG_WARN,
                   "%s: the device did not give all %s back in time; destroying the queue pair",
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
    ib_log(f, RME_LOG_INFO, "%s: %s for %lld ms: another way is tried", l->peer,
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
    uint64_t first = ib_probe_deadline(f), now;
    if (f->drained)
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

/* ---- What the engine asks ---- */

/* Goes the first way. */
static int begin(struct rme_link *l)
{
    return ib_rail_next(l) ? ib_cm_start(l) : -EHOSTUNREACH;
}

/* Results of the resolver. */
void ib_link_names(struct rme_fabric *f)
{
    struct rme_fabric *rail;
    uint32_t handle;
    struct addrinfo *found;
    int error;
    const char *why;
    while (ib_resolve_result(f, &rail, &handle, &found, &error, &why)) {
        struct rme_link *l = ib_link_by_handle(rail, handle);
        if (!l || l->state != IB_NAMING) { /* given up meanwhile */
            if (found)
                freeaddrinfo(found);
            continue;
        }
        if (error) {
            ib_log(f, RME_LOG_WARN, "%s: the host name cannot be resolved: %s", l->peer,
                   why ? why : strerror(-error));
        } else {
            l->addresses = found;
            error = begin(l);
        }
        if (error)
            ib_link_fail(l, error, false);
    }
}

int ib_link_connect(struct rme_fabric *f, const struct rme_addr *addr, int part,
                    const void *hello, size_t length, uint32_t rx, void *owner,
                    struct rme_link **out)
{
    const struct rme_addr_part *p =
        part >= 0 && part < rme_addr_parts(addr) ? rme_addr_part(addr, part) : NULL;
    if (!p || length > IB_HELLO_MAX)
        return -EINVAL;
    unsigned first;
    struct rme_fabric *rail = ib_rail_first(f, &first);
    if (!rail)
        return -ENODEV;
    struct rme_link *l = ib_link_new(rail);
    if (!l)
        return -ENOMEM;
    l->first = first;
    l->owner = owner;
    memcpy(l->hello, hello, length);
    l->hello_length = length;
    snprintf(l->peer, sizeof(l->peer), strchr(p->host, ':') ? "[%s]:%s" : "%s:%s", p->host,
             p->port);
    int error = ib_rx_reserve(l, rx);
    if (error) {
        ib_link_destroy(l);
        return error;
    }
    ib_link_state_set(l, IB_NAMING);
    if (ib_resolve_numeric(p->host, p->port, &l->addresses) == 0) {
        error = begin(l);
        if (error)
            ib_link_fail(l, error, false);
    } else {
        error = ib_resolve_later(rail, p->host, p->port, l->handle);
        if (error) {
            ib_link_destroy(l);
            return error;
        }
    }
    *out = l;
    return 0;
}

/* On failure the link stays a request; the engine then rejects it. */
int ib_link_accept(struct rme_link *l, const void *hello, size_t length, uint32_t rx,
                   void *owner)
{
    if (l->state != IB_REQUESTED)
        return -ECONNRESET;
    if (length > IB_HELLO_MAX)
        return -EINVAL;
    int error = ib_rx_reserve(l, rx);
    if (error)
        return error;
    error = ib_cm_accept(l, hello, length);
    if (error)
        ib_rx_release(l, rx);
    else
        l->owner = owner;
    return error;
}

void ib_link_reject(struct rme_link *l, const void *hello, size_t length)
{
    if (l->id && rdma_reject(l->id, hello, (uint8_t)length))
        ib_log(l->f, RME_LOG_DEBUG, "%s: rdma_reject: %s", l->peer, strerror(errno));
    ib_link_destroy(l);
}

void ib_link_disconnect(struct rme_link *l, int error)
{
    l->asked = true;
    if (l->probe >= 0)
        ib_probe_end(l);
    ib_link_fail(l, error ? error : -ESHUTDOWN, false);
}

void ib_link_free(struct rme_link *l)
{
    ib_link_destroy(l);
}
