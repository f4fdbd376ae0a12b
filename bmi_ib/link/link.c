/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * link.c - states of a connection, and its events.
 *
 * Active:  NAMING -> ADDRESSING -> ROUTING -> CONNECTING -> UP
 * Passive: REQUESTED -> ACCEPTING -> UP
 * Both:    UP -> DRAINING -> DRAINED -> ENDING -> DOWN
 *
 * cm.c has the events of rdma_cm and the calls of the engine, end.c the end of a link.
 *
 * Events of links are bits, so that no event needs memory.  A poll delivers them in the order
 * request, up, room, and down last, after all messages and completed transfers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/link/links.h"
#include "base/probe.h"

const char *const ib_link_state_name[] = {
#define IB_LINK_NAME(id, name) [IB_##id] = name,
    IB_LINK_STATES(IB_LINK_NAME)
#undef IB_LINK_NAME
};

void ib_link_enter(struct rme_link *l, struct rme_fabric *f)
{
    l->f = f;
    do
        l->handle = ++f->last_handle;
    while (!l->handle || ib_link_by_handle(f, l->handle));
    rme_table_put(&f->table, &l->by_handle, l->handle, IB_BY_HANDLE);
    TAILQ_INSERT_TAIL(&f->links, l, all_entry);
}

struct rme_link *ib_link_new(struct rme_fabric *f)
{
    struct rme_link *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->state = IB_DOWN; /* until ib_link_state_set */
    l->deliver = true;
    STAILQ_INIT(&l->rxq.chain);
    LIST_INIT(&l->mws);
    ib_link_enter(l, f);
    return l;
}

/* Returns true if an event of rdma_cm or of the resolver is expected. */
static bool is_rising(enum ib_link_state s)
{
    return s == IB_NAMING || s == IB_ADDRESSING || s == IB_ROUTING || s == IB_CONNECTING ||
           s == IB_ACCEPTING;
}

void ib_link_route(struct rme_link *l, bool begins)
{
    struct rme_fabric *head = l->f->head;
    if (l->on_route)
        TAILQ_REMOVE(&head->routes, l, route_entry);
    l->on_route = begins && ib_rail_more(l);
    if (!l->on_route)
        return;
    l->route_end = ib_now_ms() + head->way_ms;
    TAILQ_INSERT_TAIL(&head->routes, l, route_entry);
}

void ib_link_state_set(struct rme_link *l, enum ib_link_state state)
{
    l->f->head->connecting += (unsigned)is_rising(state) - (unsigned)is_rising(l->state);
    if (!is_rising(state))
        ib_link_route(l, false);
    if (l->state != state) {
        ib_log(l->f, RME_LOG_DEBUG, "%s: %s -> %s", l->peer, ib_link_state_name[l->state],
               ib_link_state_name[state]);
        rme_probe_fabric_link(l->handle, (int)l->state, (int)state);
    }
    l->state = state;
}

/* Returns a remedy for a connection that was not made; NULL: none. */
static const char *remedy(const struct rme_link *l)
{
    if (l->error == -EBUSY)
        return "connection backlog full on the server; raise the option backlog there";
    if (l->error == -ECONNREFUSED)
        return "no server listens there by RDMA: start one, or use the server's method "
               "(bmi_tcp, and the bmi_ib shipped with OrangeFS, listen by TCP)";
    return NULL;
}

static bool emit_hello(struct rme_link *l, enum rme_event_type type, bool with_answer)
{
    struct rme_event *e = ib_event(l->f, type, l);
    if (!e)
        return false;
    e->error = type == RME_EV_LINK_DOWN ? l->error : 0;
    e->why = remedy(l);
    e->hello = with_answer ? l->answer : NULL;
    e->hello_length = with_answer ? l->answer_length : 0;
    return true;
}

/* Delivers LINK_REQUEST, LINK_UP and TX_ROOM events. */
void ib_emit_links(struct rme_fabric *f)
{
    struct rme_link *l, *next;
    for (l = TAILQ_FIRST(&f->eventful); l && f->out_used < f->out_max; l = next) {
        next = TAILQ_NEXT(l, event_entry);
        unsigned events = l->events;
        if (events & IB_EVENT_REQUEST && emit_hello(l, RME_EV_LINK_REQUEST, true))
            events &= ~IB_EVENT_REQUEST;
        if (events & IB_EVENT_UP && emit_hello(l, RME_EV_LINK_UP, !l->passive))
            events &= ~IB_EVENT_UP;
        if (events == IB_EVENT_ROOM && emit_hello(l, RME_EV_TX_ROOM, false))
            events = 0;
        ib_link_events(l, events);
    }
}

/* Delivers LINK_DOWN events, after all earlier events. */
void ib_emit_downs(struct rme_fabric *f)
{
    struct rme_link *l, *next;
    if (!STAILQ_EMPTY(&f->rx_ready) || f->done.head)
        return;
    for (l = TAILQ_FIRST(&f->downs); l && f->out_used < f->out_max; l = next) {
        next = TAILQ_NEXT(l, down_entry);
        if (l->events & IB_EVENT_UP ||
            !emit_hello(l, RME_EV_LINK_DOWN, l->error == -EACCES && l->answer_length))
            continue;
        TAILQ_REMOVE(&f->downs, l, down_entry);
        ib_link_state_set(l, IB_DOWN);
    }
}

void ib_link_established(struct rme_link *l)
{
    if (l->state != IB_CONNECTING && l->state != IB_ACCEPTING)
        return;
    l->was_up = true;
    ib_link_state_set(l, IB_UP);
    char path[IB_PATH_TEXT];
    ib_path_text(l, path, sizeof(path));
    if (path[0])
        ib_log(l->f, l->passive ? RME_LOG_DEBUG : RME_LOG_INFO, "%s: by %s", l->peer, path);
    ib_link_events(l, l->events | IB_EVENT_UP);
    if (l->queue.head)
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

int ib_link_start(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct sockaddr_storage own;
    struct sockaddr *source;
    if (l->bound) {
        source = ib_rail_source(f, l->address->ai_addr);
    } else if (ib_path_source(f, l->address->ai_addr, &own, &source)) {
        ib_log(f, RME_LOG_WARN, "%s: the option gid has an address of another family", l->peer);
        return -EHOSTUNREACH;
    }
    if (rdma_create_id(f->cm, &l->id, l, RDMA_PS_TCP)) {
        l->id = NULL;
        return ib_errno();
    }
    l->deliver = true; /* an earlier attempt may have failed */
    memcpy(&l->sockaddr, l->address->ai_addr, l->address->ai_addrlen);
    if (rdma_resolve_addr(l->id, source, l->address->ai_addr, IB_RESOLVE_MS)) {
        int error = ib_no_route(ib_errno());
        rdma_destroy_id(l->id);
        l->id = NULL;
        return error;
    }
    ib_link_state_set(l, IB_ADDRESSING);
    ib_link_route(l, true);
    return 0;
}
