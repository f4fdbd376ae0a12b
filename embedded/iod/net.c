/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/net.h"
#include "embedded/bmi/gossip.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_BATCH                        32
#define EMULATOR(name, address, emulator) " or run under " emulator " (" #name ")"

static void keep_line(void *arg, char kind, const char *line)
{
    struct net_log *log = arg;
    void (*show)(const char *);
    size_t used;

    (void)kind;
    pthread_mutex_lock(&log->lock);
    used = strlen(log->text);
    snprintf(log->text + used, sizeof log->text - used, "%s%s", used ? "; " : "", line);
    show = log->line;
    pthread_mutex_unlock(&log->lock);
    if (show != NULL)
        show(line);
}

void net_log_begin(struct net_log *log, void (*line)(const char *line))
{
    pthread_mutex_init(&log->lock, NULL);
    log->text[0] = 0;
    log->line = line;
    gossip_set_sink(keep_line, log);
}

void net_log_follow(struct net_log *log, void (*line)(const char *line))
{
    char text[sizeof log->text];

    pthread_mutex_lock(&log->lock);
    memcpy(text, log->text, sizeof text);
    log->line = line;
    pthread_mutex_unlock(&log->lock);
    if (text[0])
        line(text);
}

void net_log_end(struct net_log *log)
{
    gossip_set_sink(NULL, NULL);
    pthread_mutex_destroy(&log->lock);
}

void net_log_explain(struct net_log *log, int error, char *text, size_t size)
{
    pthread_mutex_lock(&log->lock);
    snprintf(text, size, "%s", log->text[0] ? log->text : net_error_text(error));
    pthread_mutex_unlock(&log->lock);
}

static int from_bmi(int error)
{
    int value = bmi_error_to_errno(error);

    return value < 0 ? value : -value;
}

/* Converts "ib://a:1,tcp://b:2" to "bmi_ib,bmi_tcp".  Returns allocated memory; NULL: none. */
static char *methods_of(const char *listen)
{
    char *methods = calloc(5, strlen(listen) + 1);

    for (const char *at = listen; methods != NULL && at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        sprintf(methods + strlen(methods), "bmi_%.*s,", (int)strcspn(at, ":,"), at);
    }
    return methods;
}

int net_open(const char *listen, const char *options, bmi_context_id *context)
{
    int flags =
        listen != NULL ? BMI_INIT_SERVER | BMI_AUTO_REF_COUNT | BMI_TCP_BIND_SPECIFIC : 0;
    char *methods = listen != NULL ? methods_of(listen) : NULL;
    int error = -ENOMEM;

    if (listen == NULL || methods != NULL)
        error = from_bmi(BMI_initialize(methods, listen, flags, (char *)(uintptr_t)options));
    free(methods);
    if (error)
        return error;
    error = from_bmi(BMI_open_context(context));
    if (error)
        BMI_finalize();
    return error;
}

void net_close(bmi_context_id context)
{
    BMI_close_context(context);
    BMI_finalize();
}

int net_poll(bmi_context_id context, int idle_ms)
{
    bmi_op_id_t id[POLL_BATCH];
    bmi_error_code_t error[POLL_BATCH];
    bmi_size_t actual[POLL_BATCH];
    void *user[POLL_BATCH];
    int count = 0;
    int result = BMI_testcontext(POLL_BATCH, id, &count, error, actual, user, idle_ms, context);

    if (result < 0)
        return from_bmi(result);
    for (int i = 0; i < count; i++) {
        struct net_op *op = user[i];
        op->done(op, from_bmi(error[i]), actual[i]);
    }
    return count;
}

/* Converts the result of a post to that of net.h. */
static int posted(int result, struct net_op *op)
{
    if (result == 0)
        return 0;
    op->id = 0;
    return result > 0 ? 1 : from_bmi(result);
}

int net_send(bmi_context_id context, BMI_addr_t to, const void *bytes, int64_t length,
             enum bmi_buffer_type type, bmi_msg_tag_t tag, struct net_op *op)
{
    return posted(BMI_post_send(&op->id, to, bytes, length, type, tag, op, context, NULL), op);
}

int net_recv(bmi_context_id context, BMI_addr_t from, void *bytes, int64_t length,
             enum bmi_buffer_type type, bmi_msg_tag_t tag, struct net_op *op, int64_t *actual)
{
    return posted(
        BMI_post_recv(&op->id, from, bytes, length, actual, type, tag, op, context, NULL), op);
}

int net_send_request(bmi_context_id context, BMI_addr_t to, const void *request, int64_t length,
                     bmi_msg_tag_t tag, struct net_op *op)
{
    return posted(BMI_post_sendunexpected(&op->id, to, request, length, BMI_EXT_ALLOC, tag, op,
                                          context, NULL),
                  op);
}

void net_cancel(bmi_context_id context, struct net_op *op)
{
    if (op->id)
        BMI_cancel(op->id, context);
}

const char *net_error_text(int error)
{
    switch (error < 0 ? -error : error) {
    case ECONNREFUSED:
        return "connection refused; is bmi-iod running there, on this port?";
    case ENONET:
        return "unknown host; check the name";
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "host unreachable; check the address and the network";
    case ETIMEDOUT:
        return "no answer; check the address, and that bmi-iod is running and not stopped";
    case ECONNRESET:
    case EPIPE:
        return "connection lost: the server died or was restarted; start it and copy again";
    case EADDRINUSE:
        return "the address is in use; stop the other server or take another port";
    case EADDRNOTAVAIL:
        return "not an address of this host; give one that is";
    case ENODEV:
        return "no usable device; install an adapter" BMI_METHODS(EMULATOR);
    case ENOPROTOOPT:
    case EPROTONOSUPPORT:
        return "no such network method; use an address like ib://host:port";
    case EMSGSIZE:
        return "a message was larger than agreed; are client and server of the same release?";
    case ENOMEM:
        return "no memory for the network; close other programs, or raise the limit of locked "
               "memory (ulimit -l)";
    case EPROTO:
        return "invalid reply; are client and server of the same release?";
    case ECANCELED:
        return "cancelled; copy again";
    }
    return "network error; --verbose shows details";
}
