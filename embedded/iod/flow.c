/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * flow.c - see flow.h.
 *
 * A flow has `depth` slots; each has one message at a time in these states:
 *
 *   sending     IDLE -> FILE (a worker reads) -> READY (ordered) -> NET (posted) -> IDLE
 *   receiving   IDLE -> NET (posted) -> FILE (a worker writes) -> IDLE
 *
 * All messages have one tag, and BMI matches them in the order of posting.  Messages are
 * therefore posted strictly in order (`next_post`), with the flow's lock, while file operations
 * run ahead or behind, out of order, on any number of workers.  A slot keeps its buffer between
 * messages unless others wait for one.
 *
 * Lock order: owner, flow, pool, BMI.
 */
#include "config.h"
#include "embedded/iod/flow.h"
#include "embedded/iod/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum slot_state { SLOT_IDLE, SLOT_FILE, SLOT_READY, SLOT_NET };

struct slot {
    struct net_op op;
    struct job job;
    struct flow *flow;
    enum slot_state state;
    struct buffer *buffer;
    uint64_t number; /* number of the message */
    int64_t length;
};

struct flow {
    struct flow_config c;
    pthread_mutex_t lock;
    uint64_t messages;
    uint64_t next;      /* next message to start */
    uint64_t next_post; /* next message to post, when sending */
    uint64_t bytes;
    int64_t moved_at;
    int error;
    enum flow_side side;
    bool stopped;   /* start nothing more */
    bool waiting;   /* in the pool's queue, or a buffer was granted */
    bool reporting; /* the `failed` job is queued or running */
    bool finished;
    int busy; /* slots in FILE or NET */
    int held; /* buffers held */
    struct waiter waiter;
    struct job failed_job, done_job;
    struct slot slot[];
};

static void advance(struct flow *f);

static struct flow *flow_of_waiter(struct job *job)
{
    return (struct flow *)((char *)job - offsetof(struct flow, waiter.job));
}

/* ---- errors ---- */

static void run_failed(struct job *job)
{
    struct flow *f = (struct flow *)((char *)job - offsetof(struct flow, failed_job));

    f->c.failed(f->c.arg);
    pthread_mutex_lock(&f->lock);
    f->reporting = false;
    advance(f);
    pthread_mutex_unlock(&f->lock);
}

static void cancel_posted(struct flow *f)
{
    for (uint32_t i = 0; i < f->c.depth; i++)
        if (f->slot[i].state == SLOT_NET)
            net_cancel(f->c.context, &f->slot[i].op);
}

/*
 * Records an error; the first one is kept.  A network error cancels all messages.  A file error
 * does not cancel posted sends, for which the peer has receives.  A file error while receiving
 * would leave sends of the peer unmatched, so a draining flow continues to receive and discard
 * until its owner cancels it.
 */
static void set_error(struct flow *f, int error, enum flow_side side)
{
    bool first = f->error == 0;

    if (first) {
        f->error = error;
        f->side = side;
    }
    if (side == FLOW_NETWORK && !f->stopped) {
        f->stopped = true;
        cancel_posted(f);
    } else if (!f->c.drain || side == FLOW_MEMORY) {
        f->stopped = true;
    } else if (first && f->c.failed != NULL) {
        f->reporting = true;
        workers_add(f->c.workers, &f->failed_job);
    }
}

/* ---- one message ---- */

static void slot_idle(struct slot *s)
{
    struct flow *f = s->flow;

    s->state = SLOT_IDLE;
    if (s->buffer != NULL && pool_wanted(f->c.pool)) {
        pool_put(f->c.pool, s->buffer);
        s->buffer = NULL;
        f->held--;
    }
}

/* Handles a complete message. */
static void slot_finished(struct slot *s)
{
    s->flow->bytes += (uint64_t)s->length;
    s->flow->moved_at = clock_ms();
    slot_idle(s);
}

static void slot_to_worker(struct slot *s)
{
    s->state = SLOT_FILE;
    s->flow->busy++;
    workers_add(s->flow->c.workers, &s->job);
}

/* Runs the file operation of a message, on a worker. */
static void run_file(struct job *job)
{
    struct slot *s = (struct slot *)((char *)job - offsetof(struct slot, job));
    struct flow *f = s->flow;
    int error = -ECANCELED;
    bool stopped;

    pthread_mutex_lock(&f->lock);
    stopped = f->stopped;
    pthread_mutex_unlock(&f->lock);
    if (!stopped)
        error = f->c.move(f->c.file, s->number * f->c.message, s->buffer->bytes,
                          (uint64_t)s->length, !f->c.send);
    pthread_mutex_lock(&f->lock);
    f->busy--;
    f->moved_at = clock_ms();
    if (error) {
        set_error(f, error, FLOW_FILE);
        slot_idle(s);
    } else if (f->c.send) {
        s->state = SLOT_READY;
    } else {
        slot_finished(s);
    }
    advance(f);
    pthread_mutex_unlock(&f->lock);
}

/* Handles a message that was received or sent. */
static void slot_transferred(struct slot *s, int64_t actual)
{
    struct flow *f = s->flow;

    f->moved_at = clock_ms();
    if (f->c.send) {
        slot_finished(s);
    } else if (actual != s->length) {
        set_error(f, -EPROTO, FLOW_NETWORK);
        slot_idle(s);
    } else if (f->error) {
        slot_idle(s);
    } else {
        slot_to_worker(s);
    }
}

static void net_done(struct net_op *op, int error, int64_t actual)
{
    struct slot *s = (struct slot *)((char *)op - offsetof(struct slot, op));
    struct flow *f = s->flow;

    pthread_mutex_lock(&f->lock);
    op->id = 0;
    f->busy--;
    if (error) {
        set_error(f, error, FLOW_NETWORK);
        slot_idle(s);
    } else {
        slot_transferred(s, actual);
    }
    advance(f);
    pthread_mutex_unlock(&f->lock);
}

static void slot_post(struct slot *s)
{
    struct flow *f = s->flow;
    int64_t actual = s->length;
    int result;

    s->state = SLOT_NET;
    if (f->c.send)
        result = net_send(f->c.context, f->c.addr, s->buffer->bytes, s->length, BMI_PRE_ALLOC,
                          f->c.tag, &s->op);
    else
        result = net_recv(f->c.context, f->c.addr, s->buffer->bytes, s->length, BMI_PRE_ALLOC,
                          f->c.tag, &s->op, &actual);
    if (result == 0) {
        f->busy++;
    } else if (result > 0) {
        slot_transferred(s, actual);
    } else {
        set_error(f, result, FLOW_NETWORK);
        slot_idle(s);
    }
}

/* ---- starting and ending ---- */

static struct slot *find_idle(struct flow *f)
{
    struct slot *idle = NULL;

    for (uint32_t i = 0; i < f->c.depth; i++) {
        if (f->slot[i].state != SLOT_IDLE)
            continue;
        if (f->slot[i].buffer != NULL)
            return &f->slot[i];
        idle = &f->slot[i];
    }
    return idle;
}

/* Gives the slot a buffer.  Only a flow without buffers queues for one. */
static bool find_buffer(struct flow *f, struct slot *s)
{
    if (s->buffer == NULL && f->held > 0) {
        s->buffer = pool_try(f->c.pool);
        f->held += s->buffer != NULL;
    } else if (s->buffer == NULL && !f->waiting) {
        int got = pool_get(f->c.pool, &f->waiter);
        if (got == 0) {
            f->waiting = true;
        } else if (got > 0) {
            s->buffer = f->waiter.buffer;
            f->held++;
        } else {
            set_error(f, got, FLOW_MEMORY);
        }
    }
    return s->buffer != NULL;
}

static void run_granted(struct job *job)
{
    struct flow *f = flow_of_waiter(job);
    struct slot *s;

    pthread_mutex_lock(&f->lock);
    f->waiting = false;
    /* the peer waited for this side; its silence starts now */
    f->moved_at = clock_ms();
    s = find_idle(f);
    s->buffer = f->waiter.buffer;
    f->held++;
    advance(f);
    pthread_mutex_unlock(&f->lock);
}

static void slot_start(struct slot *s)
{
    struct flow *f = s->flow;
    uint64_t left = f->c.size - f->next * f->c.message;

    s->number = f->next++;
    s->length = left < f->c.message ? (int64_t)left : (int64_t)f->c.message;
    if (s->buffer->filled < (size_t)s->length)
        s->buffer->filled = (size_t)s->length;
    if (f->c.send)
        slot_to_worker(s);
    else
        slot_post(s);
}

static struct slot *find_ready(struct flow *f)
{
    for (uint32_t i = 0; i < f->c.depth; i++)
        if (f->slot[i].state == SLOT_READY && (f->slot[i].number == f->next_post || f->stopped))
            return &f->slot[i];
    return NULL;
}

static bool at_end(const struct flow *f)
{
    return f->busy == 0 && !f->waiting && !f->reporting && !f->finished &&
           (f->stopped || f->next == f->messages);
}

static void finish(struct flow *f)
{
    f->finished = true;
    workers_add(f->c.workers, &f->done_job);
}

/*
 * Starts work and detects the end, which no other function does.  Called with the lock after
 * each event: completed message, completed file operation, granted buffer, cancel.  At the end
 * nothing is in flight and nothing is left to start.  A separate job reports the end, because
 * the detecting thread may hold locks of the flow's owner.
 */
static void advance(struct flow *f)
{
    bool again = true;

    while (again) {
        struct slot *s = f->stopped || f->next == f->messages ? NULL : find_idle(f);

        again = false;
        if (s != NULL && find_buffer(f, s)) {
            slot_start(s);
            again = true;
        }
        s = find_ready(f);
        if (s != NULL && f->stopped) {
            slot_idle(s);
            again = true;
        } else if (s != NULL) {
            f->next_post++;
            slot_post(s);
            again = true;
        }
    }
    if (f->stopped && f->waiting && pool_unwait(f->c.pool, &f->waiter))
        f->waiting = false;
    if (at_end(f))
        finish(f);
}

static void run_done(struct job *job)
{
    struct flow *f = (struct flow *)((char *)job - offsetof(struct flow, done_job));

    /* The thread that queued this job may still hold the lock. */
    pthread_mutex_lock(&f->lock);
    pthread_mutex_unlock(&f->lock);
    for (uint32_t i = 0; i < f->c.depth; i++) /* here, because clearing them takes time */
        if (f->slot[i].buffer != NULL)
            pool_put(f->c.pool, f->slot[i].buffer);
    f->c.done(f->c.arg);
}

int flow_start(const struct flow_config *config, struct flow **out)
{
    struct flow *f = calloc(1, sizeof *f + config->depth * sizeof f->slot[0]);

    if (f == NULL)
        return -ENOMEM;
    f->c = *config;
    f->messages = (config->size + config->message - 1) / config->message;
    f->moved_at = clock_ms();
    f->waiter.job = (struct job){.run = run_granted};
    f->failed_job = (struct job){.run = run_failed};
    f->done_job = (struct job){.run = run_done};
    for (uint32_t i = 0; i < config->depth; i++) {
        f->slot[i].flow = f;
        f->slot[i].op.done = net_done;
        f->slot[i].job = (struct job){.run = run_file};
    }
    pthread_mutex_init(&f->lock, NULL);
    *out = f;
    pthread_mutex_lock(&f->lock);
    advance(f);
    pthread_mutex_unlock(&f->lock);
    return 0;
}

void flow_cancel(struct flow *f, int error)
{
    pthread_mutex_lock(&f->lock);
    if (!f->error) {
        f->error = error;
        f->side = FLOW_NETWORK;
    }
    f->stopped = true;
    cancel_posted(f);
    advance(f);
    pthread_mutex_unlock(&f->lock);
}

struct flow_status flow_status(struct flow *f)
{
    struct flow_status status;

    pthread_mutex_lock(&f->lock);
    status = (struct flow_status){.error = f->error,
                                  .side = f->side,
                                  .bytes = f->bytes,
                                  .moved_at = f->moved_at,
                                  .stopped = f->stopped};
    for (uint32_t i = 0; i < f->c.depth; i++)
        status.waits_for_peer |= f->slot[i].state == SLOT_NET;
    pthread_mutex_unlock(&f->lock);
    return status;
}

void flow_free(struct flow *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f);
}
