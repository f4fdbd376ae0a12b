/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A job over one TCP connection; see tcp_exchange.h. */
#include "bench/tcp_exchange.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "bench/memory.h"
#include "bench/pattern.h"
#include "bench/sockets.h"

#define PIPE_BYTES                                                                             \
    65536 /* bytes of requests in flight; with more, both sides could block on full sockets */

/* Buffers of one direction. */
struct side {
    uint64_t size;    /* bytes of a message */
    size_t bytes;     /* of memory */
    bool huge;        /* memory in huge pages */
    uint64_t buffers; /* messages with their own memory */
    size_t segments;  /* of a message */
    unsigned char *memory;
    struct iovec *iov;
    bool to_server;
};

struct tcp_exchange {
    int fd;
    bool server;
    struct job job;
    struct side in, out;
    uint64_t phase, total, bad;
    int sender_error;
};

static void side_free(struct side *side)
{
    memory_free(side->memory, side->bytes, side->huge);
    free(side->iov);
}

static int side_init(struct side *side, const struct job *job, bool noncontiguous,
                     bool to_server, uint64_t size)
{
    uint64_t extent = noncontiguous && job->extent ? job->extent : size;
    uint64_t stride = noncontiguous && job->extent ? job->stride : size;
    uint64_t slot, i;

    side->size = size;
    side->to_server = to_server;
    side->buffers = job_buffers(job, job->window);
    side->segments = size ? size / extent : 1;
    side->huge = job->memory != JOB_USER;
    side->bytes = side->buffers * side->segments * stride + 1;
    side->iov = calloc(side->buffers * side->segments, sizeof *side->iov);
    side->memory = memory_new(side->bytes, side->huge);
    if (!side->iov || !side->memory)
        return -ENOMEM;
    memset(side->memory, 0, side->bytes);
    for (slot = 0; slot < side->buffers; slot++)
        for (i = 0; i < side->segments; i++)
            side->iov[slot * side->segments + i] =
                (struct iovec){side->memory + (slot * side->segments + i) * stride, extent};
    return 0;
}

int tcp_exchange_new(int fd, const struct job *job, bool server, struct tcp_exchange **out)
{
    struct tcp_exchange *exchange = calloc(1, sizeof *exchange);
    uint64_t reply = job->test == JOB_REQUEST ? job->reply : job->size;
    bool noncontiguous = !server || job->both;
    int rc;

    if (!exchange)
        return -ENOMEM;
    exchange->fd = fd;
    exchange->server = server;
    exchange->job = *job;
    rc = side_init(&exchange->in, job, noncontiguous && job->test != JOB_REQUEST, server,
                   server ? job->size : reply);
    if (!rc)
        rc = side_init(&exchange->out, job, noncontiguous && job->test != JOB_REQUEST, !server,
                       server ? reply : job->size);
    if (rc) {
        tcp_exchange_free(exchange);
        return rc;
    }
    *out = exchange;
    return 0;
}

void tcp_exchange_free(struct tcp_exchange *exchange)
{
    side_free(&exchange->in);
    side_free(&exchange->out);
    free(exchange);
}

uint64_t tcp_exchange_bad(const struct tcp_exchange *exchange)
{
    return exchange->bad;
}

static int send_one(struct tcp_exchange *exchange, uint64_t number)
{
    const struct side *side = &exchange->out;
    const struct iovec *iov =
        side->iov + job_buffer(&exchange->job, side->buffers, number) * side->segments;
    uint64_t key = pattern_key(exchange->phase, number, side->to_server), offset = 0;
    size_t i;

    for (i = 0; exchange->job.verify && i < side->segments; offset += iov[i++].iov_len)
        pattern_fill(iov[i].iov_base, iov[i].iov_len, key, offset);
    return sockets_send_list(exchange->fd, iov, side->segments);
}

static int receive_one(struct tcp_exchange *exchange, uint64_t number)
{
    const struct side *side = &exchange->in;
    const struct iovec *iov =
        side->iov + job_buffer(&exchange->job, side->buffers, number) * side->segments;
    uint64_t key = pattern_key(exchange->phase, number, side->to_server), offset = 0;
    int rc = sockets_receive_list(exchange->fd, iov, side->segments);
    bool right = true;
    size_t i;

    for (i = 0; !rc && exchange->job.verify && i < side->segments; offset += iov[i++].iov_len)
        right = right && pattern_matches(iov[i].iov_base, iov[i].iov_len, key, offset);
    exchange->bad += !right;
    return rc;
}

static int send_all(struct tcp_exchange *exchange)
{
    uint64_t i;
    int rc = 0;

    for (i = 0; !rc && i < exchange->total; i++)
        rc = send_one(exchange, i);
    return rc;
}

static int receive_all(struct tcp_exchange *exchange)
{
    uint64_t i;
    int rc = 0;

    for (i = 0; !rc && i < exchange->total; i++)
        rc = receive_one(exchange, i);
    return rc;
}

/* Receives each message of the peer and answers it. */
static int echo(struct tcp_exchange *exchange)
{
    uint64_t i;
    int rc = 0;

    for (i = 0; !rc && i < exchange->total; i++) {
        rc = receive_one(exchange, i);
        if (!rc)
            rc = send_one(exchange, i);
    }
    return rc;
}

/* Sends messages, up to `window` of them without a reply. */
static int ask(struct tcp_exchange *exchange, uint64_t window)
{
    uint64_t sent = 0, answered = 0;
    int rc = 0;

    while (!rc && answered < exchange->total) {
        if (sent < exchange->total && sent - answered < window)
            rc = send_one(exchange, sent++);
        else
            rc = receive_one(exchange, answered++);
    }
    return rc;
}

static uint64_t ask_window(const struct job *job)
{
    uint64_t larger = job->size > job->reply ? job->size : job->reply, fit;

    if (job->test == JOB_PINGPONG)
        return 1;
    fit = larger ? PIPE_BYTES / larger : job->window;
    if (fit < 1)
        fit = 1;
    return fit < job->window ? fit : job->window;
}

static void *sender(void *arg)
{
    struct tcp_exchange *exchange = arg;

    exchange->sender_error = send_all(exchange);
    return NULL;
}

static int both_ways(struct tcp_exchange *exchange)
{
    pthread_t thread;
    int rc;

    if (pthread_create(&thread, NULL, sender, exchange))
        return -ENOMEM;
    rc = receive_all(exchange);
    pthread_join(thread, NULL);
    return rc ? rc : exchange->sender_error;
}

int tcp_exchange_phase(struct tcp_exchange *exchange, uint64_t phase)
{
    const struct job *job = &exchange->job;

    exchange->phase = phase;
    exchange->total = phase ? job->count : job->warm;
    exchange->bad = 0;
    if (job->test != JOB_STREAM)
        return exchange->server ? echo(exchange) : ask(exchange, ask_window(job));
    if (job->direction == JOB_BOTH)
        return both_ways(exchange);
    return (job->direction == JOB_PUT) == exchange->server ? receive_all(exchange)
                                                           : send_all(exchange);
}
