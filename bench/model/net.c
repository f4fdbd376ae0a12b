/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gives the work of the loop to modelled adapters as the requests that bmi_ib would post, and
 * takes the processor's time for posts, completions and registrations.
 */
#include "bench/model/net.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/fabric/loop_int.h"

/* The requests of one work.  Freed at the last completion. */
struct job {
    struct rme_link *link;
    struct loop_work *work;
    uint32_t arriving, ending;
    struct request request[];
};

/* Queues of all links, freed by net_stop. */
struct link_queue {
    struct queue queue;
    struct link_queue *next;
};

static struct link_queue *queues;
static struct node *opening;
static struct rme_fabric_ops ops;

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);

    if (memory == NULL) {
        fprintf(stderr, "model: %zu bytes: out of memory\n", size);
        exit(1);
    }
    return memory;
}

static struct node *node_of(const struct loop_fabric *f)
{
    return f->model;
}

/* ---- Requests ---- */

static void arrived(struct request *r, uint64_t now)
{
    struct job *job = r->arg;

    node_set_now(now);
    if (--job->arriving == 0)
        loop_timed_arrival(job->link, job->work);
}

static void ended(struct request *r, uint64_t now)
{
    struct job *job = r->arg;

    node_set_now(now);
    if (--job->ending)
        return;
    if (job->request[0].kind >= REQUEST_BIND)
        loop_timed_arrival(job->link, job->work);
    loop_timed_end(job->link, job->work);
    free(job);
}

static uint32_t requests_of(const struct loop_work *w)
{
    const struct rme_rdma_op *x = w->rdma_op;

    if (x == NULL)
        return w->tx != NULL ? 1 : w->binds + w->nkeys;
    return x->npiece +
           (x->notify == RME_NOTIFY_MSG || (x->notify == RME_NOTIFY_IMM && !x->npiece));
}

static void fill(struct request *r, const struct loop_work *w, uint32_t at, bool alone)
{
    const struct rme_rdma_op *x = w->rdma_op;

    r->segments = 1;
    if (x == NULL && w->tx == NULL) {
        r->kind = w->binds ? REQUEST_BIND : REQUEST_INVALIDATE;
    } else if (x == NULL || (at == x->npiece && x->notify == RME_NOTIFY_MSG)) {
        r->kind = REQUEST_SEND;
        r->bytes = w->tx->length;
        r->fenced = x != NULL;
        r->notifies = true;
        r->closes = w->tx->closes != 0;
        r->prompt = alone && r->bytes <= ((struct node *)r->arg)->device->inlined;
    } else {
        r->kind = x->read ? REQUEST_READ : REQUEST_WRITE;
        r->notifies = x->notify == RME_NOTIFY_IMM && at + 1 >= x->npiece;
        r->fenced = r->notifies;
        r->segments = at < x->npiece ? x->piece[at].nseg : 1;
        for (uint32_t i = 0; at < x->npiece && i < x->piece[at].nseg; i++)
            r->bytes += x->piece[at].seg[i].length;
    }
}

static void post(struct rme_link *link, struct loop_work *w, bool alone)
{
    uint32_t n = requests_of(w);
    struct job *job = allocate(sizeof *job + n * sizeof *job->request);

    job->link = link;
    job->work = w;
    job->arriving = job->ending = n;
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = &job->request[i];
        r->arg = node_of(link->fabric);
        fill(r, w, i, alone);
        r->arg = job;
        r->arrived = arrived;
        r->done = ended;
        queue_post(link->model, r, node_now());
    }
}

static struct queue *queue_of(struct rme_link *link)
{
    struct node *n = node_of(link->fabric);

    if (link->model == NULL) {
        struct link_queue *q = allocate(sizeof *q);
        queue_init(&q->queue, &n->adapter, &node_of(link->peer->fabric)->adapter,
                   n->device->depth);
        q->next = queues;
        queues = q;
        link->model = &q->queue;
    }
    return link->model;
}

static void flushed(struct rme_link *link, struct loop_work *work)
{
    const struct device *d = queue_of(link)->here->device;
    uint32_t n = 0;

    for (const struct loop_work *w = work; w; w = w->next)
        n += requests_of(w);
    node_charge(d->doorbell + d->wqe * n);
    for (struct loop_work *w = work; w; w = w->next)
        post(link, w, n == 1);
}

static void notified(struct loop_fabric *f)
{
    node_wake(node_of(f));
}

static const struct loop_timing timing = {.flushed = flushed, .notified = notified};

/* ---- The fabric's functions that take time ---- */

static int timed_open(const struct rme_fabric_config *config, struct rme_fabric **out)
{
    int rc = loop_fabric()->open(config, out);

    if (rc == 0) {
        ((struct loop_fabric *)*out)->model = opening;
        opening->stats = config->stats;
        ((struct loop_fabric *)*out)->caps.limits = opening->device->limits;
        ((struct loop_fabric *)*out)->caps.segments_apart = opening->device->segments_apart;
        ((struct loop_fabric *)*out)->caps.chains_reads = opening->device->chains_reads;
    }
    return rc;
}

static int timed_reg(struct rme_fabric *f, void *base, size_t length, unsigned access,
                     struct rme_mr *mr)
{
    node_charge(cost_of_pages(&node_of((struct loop_fabric *)f)->device->reg, length));
    return loop_fabric()->reg(f, base, length, access, mr);
}

static void timed_dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    node_charge(cost_of_pages(&node_of((struct loop_fabric *)f)->device->dereg, mr->length));
    loop_fabric()->dereg(f, mr);
}

static void timed_flush(struct rme_fabric *f)
{
    node_charge_copies(node_of((struct loop_fabric *)f));
    loop_fabric()->flush(f);
}

static int timed_poll(struct rme_fabric *f, struct rme_event *events, int max)
{
    int n = loop_fabric()->poll(f, events, max);

    node_charge(n * node_of((struct loop_fabric *)f)->device->cqe);
    return n;
}

const struct rme_fabric_ops *net_fabric(void)
{
    ops = *loop_fabric();
    ops.open = timed_open;
    ops.reg = timed_reg;
    ops.dereg = timed_dereg;
    ops.flush = timed_flush;
    ops.poll = timed_poll;
    return &ops;
}

void net_opens(struct node *n)
{
    opening = n;
}

void net_start(void)
{
    loop_time(&timing);
}

void net_stop(void)
{
    loop_time(NULL);
    while (queues != NULL) {
        struct link_queue *q = queues;
        queues = q->next;
        free(q);
    }
}
