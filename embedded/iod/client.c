/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * client.c - see client.h.
 *
 * The receive of the reply is posted when its request was sent, because tags can be guessed and
 * the memory of the request is reused.  Keep-alives arrive on the same receive, which is posted
 * again.  A server that owes an answer and is silent for the timeout,
 * or a broken connection, fails the session.
 *
 * The session's thread posts and completes all operations of this file, without locks.  Workers
 * report the end of flows; the thread looks every millisecond, because no network event wakes
 * it when only disk work remains.
 */
#include "config.h"
#include "embedded/iod/client.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/text.h"
#include "embedded/bmi/core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIVE_UP_MS    500  /* maximum ms of each step that ends a failed session */
#define FLOW_GRACE_MS 500  /* ms for the server to explain a broken flow */
#define KEEP_MS       2000 /* ms between keep-alives to an idle server */
#define FLOWS_MS      1    /* ms between checks while data moves, also to the disk */
#define IDLE_MS       100  /* ms between checks otherwise */

/* ---- failures ---- */

static bool fail_with(struct client *client, const char *lead, const char *format, va_list args)
{
    if (!client->failed) {
        size_t at = (size_t)snprintf(client->why, sizeof client->why, "%s", lead);
        if (at < sizeof client->why)
            vsnprintf(client->why + at, sizeof client->why - at, format, args);
        client->failed = true;
        text_no_controls(client->why); /* one line, with any name or reply */
    }
    return false;
}

bool client_fail(struct client *client, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail_with(client, "", format, args);
    va_end(args);
    return false;
}

bool remote_fail(struct remote *remote, const char *format, ...)
{
    const char *subject = remote->client->subject;
    char lead[600];
    va_list args;

    snprintf(lead, sizeof lead, "%.300s%s%.250s: ", remote->uri, subject != NULL ? "/" : "",
             subject != NULL ? subject : "");
    va_start(args, format);
    fail_with(remote->client, lead, format, args);
    va_end(args);
    return false;
}

bool remote_lost(struct remote *remote, int error)
{
    const char *what = net_error_text(error);
    char cause[CLIENT_WHY];

    remote->lost = true;
    if (error != -ENONET && error != -EHOSTUNREACH && error != -ENETUNREACH)
        return remote_fail(remote, "%s", what);
    net_log_explain(&remote->client->log, error, cause, sizeof cause);
    return strcmp(cause, what) == 0
               ? remote_fail(remote, "%s", what)
               : remote_fail(remote, "%s: %s",
                             error == -ENONET ? "unknown host" : "host unreachable", cause);
}

/* ---- one request ---- */

static void post_reply_receive(struct remote *r);

/* Handles a network failure of a request. */
static void request_broke(struct remote *r, int error)
{
    if (r->state != REMOTE_ASKED || r->client->failed)
        return;
    net_cancel(r->client->context, &r->request_op);
    net_cancel(r->client->context, &r->reply_op);
    remote_lost(r, error);
}

/* Handles a reply.  Returns true after a keep-alive: the answer is pending. */
static bool reply_arrived(struct remote *r, int64_t actual)
{
    int error = iod_reply_decode(r->reply_bytes, (size_t)actual, &r->reply);

    r->received_at = clock_ms();
    if (error || r->reply.op != r->asked.op) {
        remote_fail(r, "invalid reply; are client and server of the same release?");
    } else if (r->reply.flags & IOD_FLAG_WORKING) {
        return true;
    } else {
        r->state = REMOTE_ANSWERED;
        if (r->reply.status != IOD_OK) {
            if (!r->lenient)
                remote_fail(r, "%.*s", (int)r->reply.text.length, r->reply.text.text);
        } else if (r->reply.op == IOD_OP_PUT_OPEN || r->reply.op == IOD_OP_GET_OPEN) {
            r->open = true;
            r->handle = r->reply.handle;
        }
    }
    return false;
}

static void reply_done(struct net_op *op, int error, int64_t actual)
{
    struct remote *r = (struct remote *)((char *)op - offsetof(struct remote, reply_op));

    op->id = 0;
    r->receiving = false;
    if (error)
        request_broke(r, error);
    else if (r->state == REMOTE_ASKED && reply_arrived(r, actual))
        post_reply_receive(r);
}

/* Posts the receive of a reply; handles replies that have arrived already. */
static void post_reply_receive(struct remote *r)
{
    int64_t actual = 0;
    int result;

    do {
        result = net_recv(r->client->context, r->addr, r->reply_bytes, IOD_REPLY_MAX,
                          BMI_PRE_ALLOC, r->tag, &r->reply_op, &actual);
    } while (result > 0 && reply_arrived(r, actual));
    r->receiving = result == 0;
    if (result < 0)
        request_broke(r, result);
}

static void request_done(struct net_op *op, int error, int64_t actual)
{
    struct remote *r = (struct remote *)((char *)op - offsetof(struct remote, request_op));

    (void)actual;
    op->id = 0;
    r->requesting = false;
    if (error)
        request_broke(r, error);
    else if (r->state == REMOTE_ASKED)
        post_reply_receive(r);
}

static void send_request(struct remote *r)
{
    int result;

    r->received_at = clock_ms();
    r->tag = r->client->tag++;
    result = net_send_request(r->client->context, r->addr, r->request, r->request_length,
                              r->tag, &r->request_op);
    r->requesting = result == 0;
    if (result < 0)
        request_broke(r, result);
    else if (result > 0)
        post_reply_receive(r);
}

bool remote_ask(struct remote *r, const struct iod_message *request)
{
    if (r->client->failed)
        return false;
    if (r->requesting || r->receiving) /* the operations of an abandoned request have not
                                        * ended */
        return remote_lost(r, -ETIMEDOUT);
    r->request_length = iod_request_encode(request, r->request, sizeof r->request);
    if (r->request_length < 0)
        return remote_fail(r, "cannot encode the request (%s); use a shorter name",
                           strerror((int)-r->request_length));
    r->asked = *request;
    r->state = REMOTE_ASKED;
    send_request(r);
    return !r->client->failed;
}

/* ---- waiting ---- */

static bool flows_run(const struct client *client)
{
    for (int i = 0; i < client->count; i++)
        if (client->remote[i]->flow != NULL)
            return true;
    return false;
}

/* Checks the silence of a server.  A server that has answered may still owe data, or its
 * acceptance. */
static void check_silence(struct remote *r, int64_t now)
{
    bool expects_answer = r->state == REMOTE_ASKED;
    int64_t last = r->received_at;

    if (r->flow != NULL) {
        struct flow_status status = flow_status(r->flow);

        expects_answer |= status.waits_for_peer;
        last = status.moved_at > last ? status.moved_at : last;
    }
    if (!expects_answer || now - last <= r->client->o.timeout_ms)
        return;
    r->lost = true;
    remote_fail(r,
                "no answer for %d s; check the address, and that bmi-iod is running and not "
                "stopped, or give a longer --timeout",
                r->client->o.timeout_ms / 1000);
}

/* Waits for the server to explain a broken flow, else reports the flow's error. */
static void check_flow(struct remote *r, int64_t now)
{
    struct flow_status status;

    if (r->flow == NULL || !atomic_load(&r->flow_ended))
        return;
    status = flow_status(r->flow);
    if (!status.error || status.side != FLOW_NETWORK)
        return;
    if (!r->flow_broke_at)
        r->flow_broke_at = now;
    if (now - r->flow_broke_at > FLOW_GRACE_MS)
        remote_lost(r, status.error);
}

/* Keeps an idle server's object open while others work, unless the last answer is still
 * needed. */
static void send_alive(struct remote *r, int64_t now)
{
    struct iod_message request = {.op = IOD_OP_KEEP, .handle = r->handle};
    bool idle =
        r->state == REMOTE_IDLE || (r->state == REMOTE_ANSWERED &&
                                    (r->asked.op == IOD_OP_SEAL || r->asked.op == IOD_OP_KEEP));

    if (r->open && idle && r->flow == NULL && now - r->received_at >= KEEP_MS)
        remote_ask(r, &request);
}

static void check_servers(struct client *client)
{
    int64_t now = clock_ms();

    for (int i = 0; i < client->count && !client->failed; i++) {
        check_flow(client->remote[i], now);
        check_silence(client->remote[i], now);
        send_alive(client->remote[i], now);
    }
    if (client->o.interrupted != NULL && *client->o.interrupted)
        client_fail(client, "%s: interrupted; nothing was changed, start again",
                    client->subject);
    if (client->tick != NULL)
        client->tick(client, client->tick_arg);
}

void client_flow_ended(void *remote)
{
    struct remote *r = remote;

    atomic_store(&r->flow_ended, true);
}

bool client_wait(struct client *client, bool (*finished)(struct client *client))
{
    while (!client->failed && !finished(client)) {
        int result = net_poll(client->context, flows_run(client) ? FLOWS_MS : IDLE_MS);

        if (result < 0)
            return client_fail(client, "network error: %s", net_error_text(result));
        check_servers(client);
    }
    return !client->failed;
}

static bool all_answered(struct client *client)
{
    for (int i = 0; i < client->count; i++)
        if (client->remote[i]->state == REMOTE_ASKED)
            return false;
    return true;
}

bool client_wait_answers(struct client *client)
{
    return client_wait(client, all_answered);
}

bool client_ask_all(struct client *client, const struct iod_message *request, int from)
{
    for (int i = from; i < client->count; i++) {
        struct remote *r = client->remote[i];
        struct iod_message own = *request;

        if (!r->used)
            continue;
        own.handle = r->handle;
        own.layout = r->layout;
        if (!remote_ask(r, &own))
            return false;
    }
    return client_wait_answers(client);
}

/* ---- start and end ---- */

bool client_open(struct client *client, const struct client_options *options)
{
    char text[CLIENT_WHY], key[64];
    int error;

    *client = (struct client){.o = *options, .tag = 16};
    error = workers_start(options->threads, &client->workers);
    if (error) {
        client->workers = NULL;
        return client_fail(client, "cannot start threads: %s; allow more processes (ulimit -u)",
                           strerror(-error));
    }
    net_log_begin(&client->log, options->line);
    error = net_open(NULL, options->options, &client->context);
    if (error) {
        net_log_explain(&client->log, error, text, sizeof text);
        net_log_end(&client->log);
        workers_stop(client->workers);
        client->workers = NULL;
        return client_fail(client, "cannot start the network: %s", text);
    }
    if (options->ignored != NULL && options->options != NULL &&
        bmi_has_unknown(options->options, key, sizeof key))
        options->ignored(key);
    return true;
}

static struct remote *add_remote(struct client *client, const char *uri)
{
    struct remote *r = calloc(1, sizeof *r);
    struct remote **grown =
        realloc(client->remote, ((size_t)client->count + 1) * sizeof *grown);
    char text[CLIENT_WHY];
    int error;

    if (grown != NULL)
        client->remote = grown;
    if (r != NULL)
        r->uri = strdup(uri);
    if (r == NULL || r->uri == NULL || grown == NULL) {
        client_fail(client, "no memory for server %s", uri);
        goto failed;
    }
    r->client = client;
    r->used = true;
    r->request_op.done = request_done;
    r->reply_op.done = reply_done;
    error = bmi_error_to_errno(BMI_addr_lookup(&r->addr, uri, NULL));
    if (error) {
        net_log_explain(&client->log, error, text, sizeof text);
        remote_fail(r, "%s", text);
        goto failed;
    }
    r->reply_bytes = BMI_memalloc(r->addr, IOD_REPLY_MAX, BMI_RECV);
    if (r->reply_bytes == NULL) {
        remote_fail(r, "no memory for replies; close other programs");
        goto failed;
    }
    client->remote[client->count++] = r;
    return r;

failed:
    if (r != NULL)
        free(r->uri);
    free(r);
    return NULL;
}

struct remote *client_remote(struct client *client, const char *uri)
{
    for (int i = 0; i < client->count; i++)
        if (strcmp(client->remote[i]->uri, uri) == 0)
            return client->remote[i];
    return add_remote(client, uri);
}
static bool remote_is_quiet(const struct remote *r)
{
    return !r->requesting && !r->receiving && (r->flow == NULL || atomic_load(&r->flow_ended));
}

/* Waits briefly for operations to end.  Those with lost servers may last until the device gives
 * up on them. */
static void settle(struct client *client, bool lost_too)
{
    int64_t deadline = clock_ms() + GIVE_UP_MS;
    bool quiet = false;

    while (!quiet && clock_ms() < deadline) {
        quiet = true;
        for (int i = 0; i < client->count; i++)
            if (lost_too || !client->remote[i]->lost)
                quiet &= remote_is_quiet(client->remote[i]);
        if (!quiet && net_poll(client->context, 10) < 0)
            return;
    }
}

static void cancel_all(struct client *client)
{
    for (int i = 0; i < client->count; i++) {
        struct remote *r = client->remote[i];

        r->state = r->state == REMOTE_ASKED ? REMOTE_IDLE : r->state;
        net_cancel(client->context, &r->request_op);
        net_cancel(client->context, &r->reply_op);
        if (r->flow != NULL)
            flow_cancel(r->flow, -ECANCELED);
    }
    settle(client, true);
}

/* Closes objects at the servers, ignoring failures. */
static void close_objects(struct client *client)
{
    char why[CLIENT_WHY];
    bool failed = client->failed;

    memcpy(why, client->why, sizeof why);
    client->failed = false;
    for (int i = 0; i < client->count; i++) {
        struct remote *r = client->remote[i];
        struct iod_message request = {.op = IOD_OP_CLOSE, .handle = r->handle};

        if (r->open && !r->lost && !r->requesting && !r->receiving)
            remote_ask(r, &request);
        client->failed = false;
    }
    settle(client, false);
    client->failed = failed;
    memcpy(client->why, why, sizeof why);
}

static void remote_free(struct remote *r)
{
    if (r->flow != NULL)
        flow_free(r->flow);
    if (r->reply_bytes != NULL)
        BMI_memfree(r->addr, r->reply_bytes, IOD_REPLY_MAX, BMI_RECV);
    free(r->uri);
    free(r);
}

/* Ends an open session.  No worker runs afterwards. */
static void end_session(struct client *client)
{
    bool ended = true;

    if (client->failed)
        cancel_all(client);
    close_objects(client);
    cancel_all(client);
    for (int i = 0; i < client->count; i++)
        ended &= remote_is_quiet(client->remote[i]);
    workers_stop(client->workers);
    /* otherwise BMI may use the memory until stopped, and the process ends */
    if (ended) {
        for (int i = 0; i < client->count; i++)
            remote_free(client->remote[i]);
        free(client->remote);
        if (client->pool != NULL)
            pool_free(client->pool);
    }
    net_close(client->context);
    net_log_end(&client->log);
    client->workers = NULL;
}

void client_close(struct client *client)
{
    if (client->workers != NULL)
        end_session(client);
}
