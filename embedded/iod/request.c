/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * request.c - requests, from the unexpected message to the reply.
 *
 * A request is decoded in place; the message is kept until the request ends.  Disk work runs as
 * a job on a worker, which then replies; READ and WRITE start a flow, whose end replies.  A
 * long request gets keep-alives, so that a client can distinguish a busy server from a dead
 * one.  A request ends when its reply and its last keep-alive are complete, or failed because
 * the client is gone.
 *
 * Clients are not trusted: the decoder checks all numbers, handles are looked up among those of
 * the requesting peer, and requests of a peer beyond SERVER_PEER_REQUESTS unanswered ones are
 * dropped, or beyond one of a peer that is not admitted.
 */
#include "config.h"
#include "embedded/iod/server_impl.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/fileio.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- end of a request ---- */

static void request_count_bytes(struct request *r, int64_t n)
{
    r->bytes += (uint64_t)n;
    r->server->request_bytes += (uint64_t)n;
}

static void request_free(struct request *r)
{
    struct peer *peer = r->peer;

    *r->at = r->next;
    if (r->next != NULL)
        r->next->at = r->at;
    request_count_bytes(r, -(int64_t)r->bytes);
    if (r->message != NULL)
        BMI_unexpected_free(peer->addr, r->message);
    BMI_set_info(peer->addr, BMI_DEC_ADDR_REF, NULL);
    peer->request_count--;
    free(r->reply);
    free(r);
    peer_put(peer);
}

static void request_settle(struct request *r)
{
    if (!r->working && !r->replying && !r->keeping)
        request_free(r);
}

void request_forget(struct request *r)
{
    r->working = false;
    request_settle(r);
}

static void reply_done(struct net_op *op, int error, int64_t actual)
{
    struct request *r = (struct request *)((char *)op - offsetof(struct request, reply_op));
    struct server *server = r->server;

    (void)actual;
    pthread_mutex_lock(&server->lock);
    op->id = 0;
    if (error)
        peer_log(r->peer, LOG_DETAILS, "reply to %s lost: %s", iod_op_name(r->decoded.op),
                 strerror(-error));
    r->replying = false;
    request_settle(r);
    pthread_mutex_unlock(&server->lock);
}

static void keep_done(struct net_op *op, int error, int64_t actual)
{
    struct request *r = (struct request *)((char *)op - offsetof(struct request, keep_op));
    struct server *server = r->server;

    (void)error;
    (void)actual;
    pthread_mutex_lock(&server->lock);
    op->id = 0;
    r->keeping = false;
    request_settle(r);
    pthread_mutex_unlock(&server->lock);
}

/* ---- replies ---- */

static int post_reply(struct request *r, void *bytes, int64_t length, struct net_op *op)
{
    return net_send(r->server->context, r->peer->addr, bytes, length, BMI_EXT_ALLOC, r->tag,
                    op);
}

/* Encodes a reply into allocated memory; NULL with *length < 0 on failure. */
static uint8_t *encode_reply(const struct iod_message *reply, int64_t *length)
{
    uint8_t room[IOD_REPLY_MAX];
    uint8_t *bytes = NULL;

    *length = iod_reply_encode(reply, room, sizeof room);
    if (*length > 0)
        bytes = malloc((size_t)*length);
    if (bytes != NULL)
        memcpy(bytes, room, (size_t)*length);
    else if (*length > 0)
        *length = -ENOMEM;
    return bytes;
}

void request_reply(struct request *r, const struct iod_message *reply)
{
    int64_t length;

    r->reply = encode_reply(reply, &length);
    r->working = false;
    r->since = clock_ms();
    if (length > 0)
        request_count_bytes(r, length);
    if (length < 0)
        peer_log(r->peer, LOG_ERRORS, "no reply to %s: %s", iod_op_name(reply->op),
                 strerror((int)-length));
    else if (!r->peer->gone)
        r->replying = post_reply(r, r->reply, length, &r->reply_op) == 0;
    request_settle(r);
}

/* Errors, with their causes (NULL: the system's text) and remedies, for users without access to
 * this server. */
static const struct explanation {
    int error;
    const char *cause, *remedy;
} explanations[] = {
    {ENOENT, NULL, "see what there is with bmi-ls"},
    {ENOSPC, NULL, "free space on the server's disk or use another server"},
    {EXFULL, "the server's memory for objects is full",
     "give the server a larger --store memory:SIZE, or remove objects with bmi-rm"},
    {EDQUOT, NULL, "raise the quota of the server's user or free space"},
    {EACCES, NULL, "give the server's user access to its store"},
    {EPERM, NULL, "give the server's user access to its store"},
    {EROFS, NULL, "mount the server's store read-write"},
    {ENOMEM, NULL, "give the server more memory or ask for fewer buffers"},
    {ENAMETOOLONG, NULL, "choose a shorter name"},
    {EBUSY, NULL, "wait for other copies to end"},
    {EMFILE, NULL, "raise the server's limit of open files (ulimit -n)"},
    {ENFILE, NULL, "raise the server's limit of open files (ulimit -n)"},
    {EUCLEAN, "the object is damaged", "copy the file in again, or remove it with bmi-rm"},
    {ENODATA, "the object is damaged", "copy the file in again, or remove it with bmi-rm"},
    {ESTALE, NULL, "copy the file in again"},
    {ESHUTDOWN, NULL, "start it again and copy again"},
    {EIDRM, "the server's folder was removed",
     "make the folder again and start the server again"},
    {ETIMEDOUT, NULL, "copy again"},
    {EBADF, NULL, "copy again: the server was restarted or gave the transfer up"},
    {EIO, NULL, "check the server's disk and log"},
    {EISDIR, "a folder, a link or another non-file has this name in the store",
     "move it out of the server's folder"},
    {EEXIST, "another part of this copy is here",
     "this server has two names in the list: name each server once"},
    {EFBIG, NULL,
     "stripe the file over more servers, or use one whose file system takes larger files"},
};

static struct explanation explanation_of(int error)
{
    struct explanation e = {error, NULL, "are client and server of the same release?"};

    for (size_t i = 0; i < sizeof explanations / sizeof explanations[0]; i++)
        if (explanations[i].error == error)
            e = explanations[i];
    if (error == EFBIG && file_size_is_limited())
        e.remedy = "raise the server's file size limit (ulimit -f)";
    if (e.cause == NULL)
        e.cause = strerror(error);
    return e;
}

static void refuse(struct request *r, int error, const char *text)
{
    struct iod_message reply = {.op = r->decoded.op,
                                .status = iod_status_from_errno(error),
                                .text = iod_string_of(text)};

    SERVER_COUNT(r->peer, refused, 1);
    peer_log(r->peer, LOG_DECISIONS, "%s refused: %s", iod_op_name(r->decoded.op), text);
    request_reply(r, &reply);
}

void request_refuse(struct request *r, int error, const char *what)
{
    struct explanation e = explanation_of(error < 0 ? -error : error);
    char text[IOD_TEXT_MAX];

    snprintf(text, sizeof text, "%s: %s; %s", what, e.cause, e.remedy);
    refuse(r, e.error, text);
}

void request_keep_alive(struct request *r)
{
    struct iod_message reply = {.op = r->decoded.op, .flags = IOD_FLAG_WORKING};
    int64_t length = iod_reply_encode(&reply, r->keep, sizeof r->keep);

    if (length > 0 && !r->keeping && !r->peer->gone)
        r->keeping = post_reply(r, r->keep, length, &r->keep_op) == 0;
}

/* ---- execution ---- */

static void report_unread(void *arg, const char *name, int error)
{
    struct explanation e = explanation_of(-error);
    struct request *r = arg;

    pthread_mutex_lock(&r->server->lock);
    peer_log(r->peer, LOG_ERRORS, "%s: is not listed: %s; %s", name, e.cause, e.remedy);
    pthread_mutex_unlock(&r->server->lock);
}

static void work_list(struct request *r)
{
    struct server *server = r->server; /* a reply may end the request */
    struct iod_message reply = {.op = IOD_OP_LIST};
    struct iod_entry after = {.name = r->decoded.name, .id = r->decoded.id};
    struct store_unread unread = {.report = report_unread, .arg = r};
    uint8_t *packed = malloc(IOD_REPLY_MAX);
    bool more = false;
    int error = -ENOMEM;

    if (packed != NULL)
        error = store_list(server->store, &after, packed, IOD_REPLY_MAX - IOD_KEEP_MAX,
                           &reply.entries, &more, &unread);
    pthread_mutex_lock(&server->lock);
    if (error) {
        request_refuse(r, error, "reading the store");
    } else {
        reply.flags = more ? IOD_FLAG_MORE : 0;
        reply.unread = unread.count;
        request_reply(r, &reply);
    }
    pthread_mutex_unlock(&server->lock);
    free(packed);
}

/* Ends a request whose result has no recipient, with the lock held.  Returns false for other
 * requests. */
static bool drop_vain(struct request *r)
{
    switch (r->decoded.op) {
    case IOD_OP_LIST:
        if (!r->peer->gone && r->server->draining)
            request_refuse(r, ESHUTDOWN, "the server is ending");
        else if (r->peer->gone)
            request_forget(r);
        else
            return false;
        return true;
    case IOD_OP_PUT_OPEN:
    case IOD_OP_GET_OPEN:
        if (!r->peer->gone)
            return false;
        transfer_unreserve(r->peer);
        request_forget(r);
        return true;
    default:
        return false;
    }
}

/* Executes a request on a worker. */
static void request_work(struct job *job)
{
    struct request *r = (struct request *)((char *)job - offsetof(struct request, job));
    struct server *server = r->server;
    static void (*const work[])(struct request *) = {
        [IOD_OP_PUT_OPEN] = work_put_open, [IOD_OP_GET_OPEN] = work_get_open,
        [IOD_OP_SEAL] = work_seal,         [IOD_OP_COMMIT] = work_commit,
        [IOD_OP_LIST] = work_list,         [IOD_OP_REMOVE] = work_remove,
    };
    bool dropped;

    pthread_mutex_lock(&server->lock);
    dropped = drop_vain(r);
    pthread_mutex_unlock(&server->lock);
    if (!dropped)
        work[r->decoded.op](r);
}

/* Starts a request that needs an open transfer. */
static void request_for_transfer(struct request *r)
{
    struct transfer *t = transfer_find(r->peer, r->decoded.handle);
    struct iod_message kept = {.op = IOD_OP_KEEP};

    if (t == NULL) {
        request_refuse(r, EBADF, "no such transfer is open");
        return;
    }
    if (r->decoded.op == IOD_OP_CLOSE) {
        transfer_close(t, r, ECANCELED);
        return;
    }
    t->used_at = r->since;
    if (r->decoded.op == IOD_OP_KEEP) {
        request_reply(r, &kept);
        return;
    }
    if (transfer_is_busy(t)) {
        request_refuse(r, EBUSY, "the transfer does something else");
        return;
    }
    r->transfer = t;
    if (r->decoded.op == IOD_OP_WRITE || r->decoded.op == IOD_OP_READ) {
        transfer_start_flow(t, r);
    } else {
        t->busy = true;
        workers_add(r->server->workers, &r->job);
    }
}

static void request_start(struct request *r)
{
    switch (r->decoded.op) {
    case IOD_OP_PUT_OPEN:
    case IOD_OP_GET_OPEN:
        if (r->server->draining)
            request_refuse(r, ESHUTDOWN, "the server is ending");
        else if (!transfer_reserve(r->peer))
            request_refuse(r, EBUSY, "too many open transfers");
        else
            workers_add(r->server->workers, &r->job);
        return;
    case IOD_OP_LIST:
    case IOD_OP_REMOVE:
        workers_add(r->server->workers, &r->job);
        return;
    case IOD_OP_WRITE:
    case IOD_OP_READ:
    case IOD_OP_KEEP:
    case IOD_OP_SEAL:
    case IOD_OP_COMMIT:
    case IOD_OP_CLOSE:
        request_for_transfer(r);
        return;
    }
}

/* Makes a request, which takes over the message and the reference to its address; NULL: no
 * memory, both are released. */
static struct request *request_new(struct peer *peer, struct BMI_unexpected_info *info)
{
    struct request *r = calloc(1, sizeof *r);

    if (r == NULL) {
        peer_log(peer, LOG_ERRORS, "request dropped: no memory");
        BMI_unexpected_free(info->addr, info->buffer);
        BMI_set_info(info->addr, BMI_DEC_ADDR_REF, NULL);
        return NULL;
    }
    r->server = peer->server;
    r->peer = peer;
    peer_use(peer);
    r->message = info->buffer;
    r->tag = info->tag;
    r->since = clock_ms();
    r->working = true;
    r->job = (struct job){.run = request_work};
    r->reply_op.done = reply_done;
    r->keep_op.done = keep_done;
    r->next = r->server->requests;
    r->at = &r->server->requests;
    if (r->next != NULL)
        r->next->at = &r->next;
    r->server->requests = r;
    peer->request_count++;
    SERVER_COUNT(peer, requests, 1);
    return r;
}

/* Frees the message, so that the request uses no more memory than its refusal. */
static void drop_message(struct request *r)
{
    BMI_unexpected_free(r->peer->addr, r->message);
    r->message = NULL;
    r->decoded = (struct iod_message){.op = r->decoded.op};
}

/* Checks a request and starts or refuses it. */
static void request_judge(struct request *r, int64_t size)
{
    struct server *server = r->server;
    int error = iod_request_decode(r->message, (size_t)size, &r->decoded);

    if (error) {
        SERVER_COUNT(r->peer, malformed, 1);
        drop_message(r);
        request_refuse(r, error,
                       error == -EINVAL ? "a value of the request is out of range"
                                        : "malformed request");
    } else if (!r->peer->admitted) {
        drop_message(r);
        refuse(r, EACCES,
               "this server does not serve your host; start the server with an --allow that "
               "admits the host");
    } else if (server->request_bytes + (uint64_t)size > SERVER_REQUEST_BYTES) {
        drop_message(r);
        request_refuse(r, EBUSY, "the server has too many unanswered requests");
    } else {
        request_count_bytes(r, size);
        request_start(r);
    }
}

void request_arrived(struct server *server, struct BMI_unexpected_info *info)
{
    struct peer *peer;
    struct request *r;

    pthread_mutex_lock(&server->lock);
    peer = peer_get(server, info->addr);
    if (peer != NULL && peer->request_count < (peer->admitted ? SERVER_PEER_REQUESTS : 1)) {
        r = request_new(peer, info);
        if (r != NULL)
            request_judge(r, info->size);
    } else {
        if (peer != NULL) {
            SERVER_COUNT(peer, refused, 1);
            peer_log(peer, LOG_DETAILS, "request dropped: too many unanswered");
        } else {
            log_line(LOG_DETAILS, "a request of a new client was dropped: no memory");
        }
        BMI_unexpected_free(info->addr, info->buffer);
        BMI_set_info(info->addr, BMI_DEC_ADDR_REF, NULL);
    }
    if (peer != NULL)
        peer_put(peer);
    pthread_mutex_unlock(&server->lock);
}
