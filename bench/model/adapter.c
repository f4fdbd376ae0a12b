/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/model/adapter.h"

#include <stddef.h>

#include "bench/model/events.h"

#define PAGE 4096

static double later(double a, double b)
{
    return a > b ? a : b;
}

static uint64_t whole(double ns)
{
    return (uint64_t)(ns + 0.5);
}

void queue_init(struct queue *q, struct adapter *here, struct adapter *there, uint32_t depth)
{
    *q = (struct queue){.here = here, .there = there, .depth = depth, .wake = NEVER};
    q->last = &q->first;
}

double cost_of_pages(const struct call_cost *cost, uint64_t bytes)
{
    return cost->call + cost->page * (double)((bytes + PAGE - 1) / PAGE);
}

static void issue_all(struct queue *q, uint64_t now);

/* ---- Ends ---- */

static void end(void *arg, uint64_t now)
{
    struct request *r = arg;
    struct queue *q = r->queue;

    q->issued--;
    q->reads -= r->kind == REQUEST_READ;
    if (r->kind == REQUEST_READ && r->arrived != NULL)
        r->arrived(r, now);
    if (r->done != NULL)
        r->done(r, now);
    issue_all(q, now);
}

static void arrive(void *arg, uint64_t now)
{
    struct request *r = arg;

    events_add(now + whole(r->queue->here->device->flight), end, r);
    if (r->arrived != NULL)
        r->arrived(r, now);
}

/* ---- Data ---- */

/* Moves the data of a request from a port to another one, and returns when it is there:
 * `way` after its last byte, a first packet being stored on its way. */
static double move(struct adapter *from, struct adapter *to, double start, uint64_t bytes,
                   double byte, double overhead, double way)
{
    const struct device *d = from->device;
    double length = byte * (double)bytes;
    uint64_t first = bytes < d->mtu ? bytes : d->mtu;

    start = later(start, from->out_free);
    from->out_free = start + overhead + length;
    to->in_free =
        later(start + length + way + d->first_byte * (double)first, to->in_free + length);
    return to->in_free;
}

static void push(struct request *r, double start)
{
    struct queue *q = r->queue;
    const struct device *d = q->here->device;
    bool send = r->kind == REQUEST_SEND;
    double way = d->flight + (r->notifies ? d->deliver : 0) + (r->closes ? d->invalidate : 0) +
                 (r->prompt ? d->inline_byte * (double)r->bytes : 0);

    events_add(whole(move(q->here, q->there, start, r->bytes, send ? d->send_byte : d->byte,
                          d->overhead, way)),
               arrive, r);
}

/* The request of a read is at the peer's adapter, which answers without its processor. */
static void answer(void *arg, uint64_t now)
{
    struct request *r = arg;
    struct queue *q = r->queue;
    const struct device *d = q->here->device;

    events_add(whole(move(q->there, q->here, (double)now, r->bytes, d->read_byte,
                          d->read_overhead, d->read_trip / 2)),
               end, r);
}

/* ---- Issue ---- */

static void issue(struct queue *q, struct request *r, double start)
{
    const struct device *d = q->here->device;
    double gap = d->gap + d->segment * (r->segments ? r->segments - 1 : 0);

    q->issued++;
    switch (r->kind) {
    case REQUEST_SEND:
    case REQUEST_WRITE:
        push(r, start);
        break;
    case REQUEST_READ:
        gap += d->read_gap - d->gap;
        q->reads++;
        events_add(whole(start + d->read_trip / 2), answer, r);
        break;
    case REQUEST_BIND:
    case REQUEST_INVALIDATE: /* the next one is fenced behind it */
        gap = r->kind == REQUEST_BIND ? d->bind : d->invalidate;
        events_add(whole(start + gap), end, r);
        break;
    }
    q->free = start + gap;
    q->here->free = start + d->port_gap;
}

static bool is_blocked(const struct queue *q, const struct request *r)
{
    return q->issued == q->depth || (r->fenced && q->reads) ||
           (r->kind == REQUEST_READ && q->reads == q->here->device->reads);
}

static void awake(void *arg, uint64_t now)
{
    struct queue *q = arg;

    if (q->wake == now) {
        q->wake = NEVER;
        issue_all(q, now);
    }
}

static void issue_all(struct queue *q, uint64_t now)
{
    struct request *r;

    while ((r = q->first) != NULL && !is_blocked(q, r)) {
        double start = later(r->ready, q->free);
        uint64_t at = whole(start);
        if (at > now) {
            if (q->wake > at) {
                q->wake = at;
                events_add(at, awake, q);
            }
            return;
        }
        q->first = r->next;
        if (q->first == NULL)
            q->last = &q->first;
        issue(q, r, later(later(start, (double)now - 0.5), q->here->free));
    }
}

static void enter(void *arg, uint64_t now)
{
    struct request *r = arg;
    struct queue *q = r->queue;

    r->next = NULL;
    *q->last = r;
    q->last = &r->next;
    issue_all(q, now);
}

void queue_post(struct queue *q, struct request *r, uint64_t at)
{
    /* the trip of a read includes the fetch */
    bool fetched = !r->prompt && r->kind != REQUEST_READ;

    r->queue = q;
    r->ready = (double)at + (fetched ? q->here->device->fetch : 0);
    events_add(at, enter, r);
}
