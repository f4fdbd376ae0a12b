/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * transfer.c - transfers: objects that a client has open for writing or reading.
 *
 * Upload: PUT_OPEN, WRITE, SEAL, COMMIT.  Download: GET_OPEN, READ, CLOSE.  At most one thing
 * works on a transfer at a time: a job (`busy`) or a flow.
 * A transfer is closed by the client, the loss of the client, a timeout, or a commit.  Closing
 * waits for the work in progress; a job then releases the object (which removes an uncommitted
 * upload) and frees the transfer.
 *
 * A flow that cannot write (disk full) continues to receive and discards the data: its request
 * is answered with the error immediately, the client stops and closes, and no message is left
 * unmatched on either side.
 */
#include "config.h"
#include "embedded/iod/server_impl.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct transfer *transfer_find(struct peer *peer, uint64_t handle)
{
    for (struct transfer *t = peer->transfers; t; t = t->next)
        if (t->handle == handle && !t->closing)
            return t;
    return NULL;
}

bool transfer_is_busy(const struct transfer *t)
{
    return t->busy || t->flow != NULL;
}

/* ---- limits ---- */

bool transfer_reserve(struct peer *peer)
{
    struct server *server = peer->server;

    if (peer->transfer_count >= SERVER_PEER_TRANSFERS ||
        peer->transfer_count >= server->transfers_max / 2 ||
        server->transfers >= server->transfers_max)
        return false;
    peer->transfer_count++;
    server->transfers++;
    return true;
}

void transfer_unreserve(struct peer *peer)
{
    peer->transfer_count--;
    peer->server->transfers--;
}

/* ---- closing ---- */

static void transfer_remove(struct transfer *t)
{
    struct transfer **at = &t->peer->transfers;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    t->peer->buffers -= t->buffers;
    transfer_unreserve(t->peer);
}

/* Releases object and transfer, on a worker. */
static void transfer_release(struct job *job)
{
    struct transfer *t =
        (struct transfer *)((char *)job - offsetof(struct transfer, close_job));
    struct server *server = t->server;
    struct peer *peer = t->peer;

    /* without the lock: nothing else works on the transfer */
    store_release(t->object, t->closer != NULL);
    pthread_mutex_lock(&server->lock);
    transfer_remove(t);
    if (t->upload && !t->committed) {
        SERVER_COUNT(peer, discarded, 1);
        peer_log(peer, LOG_DECISIONS, "%s: upload discarded", t->name);
    }
    if (t->closer != NULL) {
        struct iod_message reply = {.op = IOD_OP_CLOSE};
        request_reply(t->closer, &reply);
    }
    free(t);
    peer_put(peer);
    pthread_mutex_unlock(&server->lock);
}

static void transfer_settle(struct transfer *t)
{
    if (t->closing && !transfer_is_busy(t) && !t->released) {
        t->released = true;
        workers_add(t->server->workers, &t->close_job);
    }
}

void transfer_close(struct transfer *t, struct request *closer, int error)
{
    t->closing = true;
    if (closer != NULL)
        t->closer = closer;
    if (t->active != NULL) {
        request_forget(t->active);
        t->active = NULL;
    }
    if (t->flow != NULL)
        flow_cancel(t->flow, -error);
    transfer_settle(t);
}

void transfer_job_ended(struct transfer *t)
{
    t->busy = false;
    t->used_at = clock_ms();
    transfer_settle(t);
}

/* ---- opening ---- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns a random handle, so that a client that reconnects does not get the handle of another
 * one. */
static uint64_t new_handle(struct server *server)
{
    uint64_t random = 0;

    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        random = (uint64_t)clock_ms();
    return (random << 20) | (++server->last_handle & 0xfffff);
}

/* Returns how many buffers a transfer may use: the transfers of a client half of all together,
 * and one each beyond. */
static uint32_t grant_buffers(const struct peer *peer, uint32_t wanted)
{
    const struct server_config *c = &peer->server->config;
    uint64_t half = c->memory / c->buffer_size / 2;
    uint64_t left = half > peer->buffers ? half - peer->buffers : 1;

    return left < wanted ? (uint32_t)left : wanted;
}

/*
 * Makes a transfer, with the lock held.  Takes over the object, also without memory (NULL).
 * The transfer is busy until its job calls transfer_job_ended(); if the client is gone, it is
 * closed then.
 */
static struct transfer *transfer_new(struct request *r, struct object *object, bool upload)
{
    struct transfer *t = calloc(1, sizeof *t);
    const struct iod_message *q = &r->decoded;
    const struct pool *pool = r->server->pool;

    if (t == NULL) {
        store_release(object, true);
        return NULL;
    }
    t->server = r->server;
    t->peer = r->peer;
    peer_use(t->peer);
    t->busy = true;
    t->handle = new_handle(r->server);
    t->upload = upload;
    t->whole = layout_object_size(&object_meta(object)->layout) == 0;
    t->object = object;
    t->buffer_size = smaller(q->buffer_size, (uint32_t)pool_buffer_size(pool));
    t->buffers = grant_buffers(r->peer, q->buffers);
    r->peer->buffers += t->buffers;
    t->close_job = (struct job){.run = transfer_release};
    t->used_at = clock_ms();
    snprintf(t->name, sizeof t->name, "%.*s", (int)q->name.length, q->name.text);
    t->next = r->peer->transfers;
    r->peer->transfers = t;
    if (r->peer->gone)
        transfer_close(t, NULL, ECONNRESET);
    return t;
}

/* Fills in the reply with the open object. */
static void describe(struct iod_message *reply, const struct transfer *t,
                     const struct object_meta *meta)
{
    reply->handle = t->handle;
    reply->buffer_size = t->buffer_size;
    reply->buffers = t->buffers;
    reply->layout = meta->layout;
    reply->id = meta->id;
    reply->mode = meta->mode;
}

void work_put_open(struct request *r)
{
    struct server *server = r->server; /* a reply may end the request */
    const struct iod_message *q = &r->decoded;
    struct iod_message reply = {.op = q->op};
    struct object_meta meta = {.layout = q->layout, .id = q->id, .mode = q->mode};
    struct object *object = NULL;
    struct transfer *t = NULL;
    int error;

    error = store_create(server->store, &q->name, &meta, &object);
    pthread_mutex_lock(&server->lock);
    if (!error)
        t = transfer_new(r, object, true);
    if (t == NULL) {
        transfer_unreserve(r->peer);
        request_refuse(r, error ? error : ENOMEM, "opening the upload");
    } else {
        peer_log(r->peer, LOG_DECISIONS, "%s: upload of part %u of %u, %llu bytes", t->name,
                 q->layout.index + 1, q->layout.count,
                 (unsigned long long)layout_object_size(&q->layout));
        describe(&reply, t, object_meta(object));
        request_reply(r, &reply);
        transfer_job_ended(t);
    }
    pthread_mutex_unlock(&server->lock);
}

void work_get_open(struct request *r)
{
    struct server *server = r->server; /* a reply may end the request */
    const struct iod_message *q = &r->decoded;
    struct iod_message reply = {.op = q->op};
    struct object *object = NULL;
    struct transfer *t = NULL;
    int error = store_lookup(server->store, &q->name, q->id, &object);

    pthread_mutex_lock(&server->lock);
    if (!error)
        t = transfer_new(r, object, false);
    if (t != NULL) {
        peer_log(r->peer, LOG_DECISIONS, "%s: download of part %u of %u, %llu bytes", t->name,
                 object_meta(object)->layout.index + 1, object_meta(object)->layout.count,
                 (unsigned long long)layout_object_size(&object_meta(object)->layout));
        SERVER_COUNT(r->peer, downloads, 1);
        describe(&reply, t, object_meta(object));
        request_reply(r, &reply);
        transfer_job_ended(t);
    } else {
        transfer_unreserve(r->peer);
        request_refuse(r, error ? error : ENOMEM,
                       error == -ENOENT   ? "no such object"
                       : error == -ESTALE ? "this copy of the object is not here"
                       : error == -EBUSY  ? "this copy of the object is not complete"
                                          : "opening the object");
    }
    pthread_mutex_unlock(&server->lock);
}

/* ---- jobs on an open transfer ---- */

static void end_job(struct request *r, int error, const char *what,
                    const struct iod_message *reply)
{
    struct transfer *t = r->transfer;

    if (error)
        request_refuse(r, error, what);
    else
        request_reply(r, reply);
    transfer_job_ended(t);
}

void work_seal(struct request *r)
{
    struct transfer *t = r->transfer;
    struct server *server = r->server;
    struct iod_message reply = {.op = IOD_OP_SEAL};
    int error = t->upload && t->whole ? store_seal(t->object) : -EINVAL;

    pthread_mutex_lock(&server->lock);
    t->sealed |= error == 0;
    end_job(r, error, t->whole ? "writing the object's end" : "data is missing", &reply);
    pthread_mutex_unlock(&server->lock);
}

void work_remove(struct request *r)
{
    struct server *server = r->server; /* a reply may end the request */
    struct iod_message reply = {.op = IOD_OP_REMOVE};
    int error = store_remove(server->store, &r->decoded.name, r->decoded.id);

    pthread_mutex_lock(&server->lock);
    if (error)
        request_refuse(r, error, "removing the object");
    else
        request_reply(r, &reply);
    pthread_mutex_unlock(&server->lock);
}

void work_commit(struct request *r)
{
    struct transfer *t = r->transfer;
    struct server *server = r->server;
    struct iod_message reply = {.op = IOD_OP_COMMIT};
    bool lost = false;
    int error = t->sealed ? store_commit(t->object, &lost) : -EINVAL;

    pthread_mutex_lock(&server->lock);
    if (!error) {
        reply.flags = lost ? IOD_FLAG_REPLACED : 0;
        t->committed = true;
        t->closing = true;
        SERVER_COUNT(t->peer, uploads, 1);
        peer_log(t->peer, LOG_DECISIONS, "%s: upload committed", t->name);
    }
    end_job(r, error, "giving the object its name", &reply);
    pthread_mutex_unlock(&server->lock);
}

/* ---- data ---- */

static void refuse_for_flow(struct transfer *t, const struct flow_status *status)
{
    enum flow_side side = status->side;
    int error = status->error;

    const char *what = t->upload ? "writing the object" : "reading the object";

    if (side == FLOW_MEMORY)
        what = "getting a buffer";
    else if (side == FLOW_NETWORK && error == -ETIMEDOUT)
        what = "the client was silent for too long";
    else if (side == FLOW_NETWORK)
        what = t->upload ? "receiving data" : "sending data";
    request_refuse(t->active, error, what);
    t->active = NULL;
}

/* Handles a disk failure, on a worker: further data is discarded. */
static void flow_failed(void *arg)
{
    struct transfer *t = arg;
    struct flow_status status = flow_status(t->flow);

    pthread_mutex_lock(&t->server->lock);
    if (t->active != NULL)
        refuse_for_flow(t, &status);
    pthread_mutex_unlock(&t->server->lock);
}

/* Handles the end of the flow, on a worker. */
static void flow_ended(void *arg)
{
    struct transfer *t = arg;
    struct server *server = t->server;
    struct iod_message reply = {.op = t->upload ? IOD_OP_WRITE : IOD_OP_READ};
    struct flow_status status;

    pthread_mutex_lock(&server->lock);
    status = flow_status(t->flow);
    if (t->upload)
        SERVER_COUNT(t->peer, bytes_in, status.bytes);
    else
        SERVER_COUNT(t->peer, bytes_out, status.bytes);
    flow_free(t->flow);
    t->flow = NULL;
    t->used_at = clock_ms();
    t->whole = t->upload && !status.error;
    if (t->active != NULL && status.error) {
        refuse_for_flow(t, &status);
    } else if (t->active != NULL) {
        request_reply(t->active, &reply);
        t->active = NULL;
    }
    transfer_settle(t);
    pthread_mutex_unlock(&server->lock);
}

void transfer_start_flow(struct transfer *t, struct request *r)
{
    struct flow_config config = {
        .context = t->server->context,
        .workers = t->server->workers,
        .pool = t->server->pool,
        .addr = t->peer->addr,
        .tag = r->decoded.data_tag,
        .send = !t->upload,
        .drain = t->upload,
        .move = object_move,
        .file = t->object,
        .size = layout_object_size(&object_meta(t->object)->layout),
        .message = t->buffer_size,
        .depth = t->buffers,
        .failed = flow_failed,
        .done = flow_ended,
        .arg = t,
    };
    int error;

    if (t->upload != (r->decoded.op == IOD_OP_WRITE)) {
        request_refuse(r, EINVAL, "the transfer has the other direction");
        return;
    }
    if (t->sealed) {
        request_refuse(r, EINVAL, "the transfer is complete");
        return;
    }
    t->active = r;
    t->whole = false;
    error = flow_start(&config, &t->flow);
    if (error) {
        t->active = NULL;
        request_refuse(r, error, "starting the transfer");
    }
}
