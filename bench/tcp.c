/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Jobs over plain TCP: a connection per client and server, blocking calls, the same buffers and
 * messages as over BMI.
 *
 *   client                                      server
 *   the job                              ->
 *                                        <-     report (error set if refused)
 *   for each phase: one byte "go" if a stream is sent to the client  ->
 *   messages                             <->    messages
 *                                        <-     report
 */
#include "bench/tcp.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/budget.h"
#include "bench/exchange.h"
#include "bench/memory.h"
#include "bench/pattern.h"
#include "bench/sockets.h"
#include "bench/transport.h"

/* Bytes of requests in flight; with more, both sides could block on full sockets. */
#define PIPE_BYTES 65536

/* Buffers of one direction. */
struct side {
    size_t bytes; /* of memory */
    bool huge;
    uint64_t buffers; /* messages with their own memory */
    size_t segments;  /* of a message */
    unsigned char *memory;
    struct iovec *iov; /* of all buffers */
};

/* One end of a job. */
struct end {
    int fd;
    bool server;
    struct job job;
    struct side in, out;
    uint64_t phase, total, bad;
    int error;              /* of the second thread */
    struct latency latency; /* of a client's ping-pong */
};

static int side_open(struct side *side, const struct job *job, bool noncontiguous,
                     uint64_t size)
{
    uint64_t extent = noncontiguous && job->extent ? job->extent : size;
    uint64_t stride = noncontiguous && job->extent ? job->stride : size;

    side->buffers = job_buffers(job, job->window);
    side->segments = size ? size / extent : 1;
    side->huge = job->memory != JOB_USER;
    side->bytes = side->buffers * side->segments * stride + 1;
    side->iov = calloc(side->buffers * side->segments, sizeof *side->iov);
    side->memory = memory_new(side->bytes, side->huge);
    if (side->iov == NULL || side->memory == NULL)
        return -ENOMEM;
    memset(side->memory, 0, side->bytes);
    for (uint64_t i = 0; i < side->buffers * side->segments; i++)
        side->iov[i] = (struct iovec){side->memory + i * stride, extent};
    return 0;
}

static void end_close(struct end *end)
{
    memory_free(end->in.memory, end->in.bytes, end->in.huge);
    memory_free(end->out.memory, end->out.bytes, end->out.huge);
    free(end->in.iov);
    free(end->out.iov);
    end->in = end->out = (struct side){0};
}

static int end_open(struct end *end, int fd, const struct job *job, bool server)
{
    uint64_t reply = job->test == JOB_REQUEST ? job->reply : job->size;
    bool noncontiguous = (!server || job->both) && job->test != JOB_REQUEST;
    int rc;

    *end = (struct end){.fd = fd, .server = server, .job = *job};
    rc = side_open(&end->in, job, noncontiguous, server ? job->size : reply);
    if (!rc)
        rc = side_open(&end->out, job, noncontiguous, server ? reply : job->size);
    if (rc)
        end_close(end);
    return rc;
}

static int move_one(struct end *end, uint64_t number, bool sending)
{
    const struct side *side = sending ? &end->out : &end->in;
    const struct iovec *iov =
        side->iov + job_buffer(&end->job, side->buffers, number) * side->segments;
    uint64_t key = pattern_key(end->phase, number, sending != end->server), offset = 0;
    bool right = true;
    int rc = sending ? 0 : sockets_move(end->fd, iov, side->segments, false);

    for (size_t i = 0; !rc && end->job.verify && i < side->segments; offset += iov[i++].iov_len)
        if (sending)
            pattern_fill(iov[i].iov_base, iov[i].iov_len, key, offset);
        else
            right = right && pattern_matches(iov[i].iov_base, iov[i].iov_len, key, offset);
    if (!right)
        end->bad++;
    return sending ? sockets_move(end->fd, iov, side->segments, true) : rc;
}

static int move_all(struct end *end, bool sending)
{
    int rc = 0;

    for (uint64_t i = 0; !rc && i < end->total; i++)
        rc = move_one(end, i, sending);
    return rc;
}

static void *send_all(void *arg)
{
    struct end *end = arg;

    end->error = move_all(end, true);
    return NULL;
}

/* Sends up to `window` messages without a reply; the server answers each. */
static int converse(struct end *end)
{
    const struct job *job = &end->job;
    uint64_t larger = job->size > job->reply ? job->size : job->reply;
    uint64_t window = job->test == JOB_PINGPONG ? 1 : job->window, out = 0, in = 0;
    int rc = 0;

    if (larger && window > PIPE_BYTES / larger)
        window = larger < PIPE_BYTES ? PIPE_BYTES / larger : 1;
    while (!rc && (end->server ? out : in) < end->total) {
        bool sending = end->server ? out < in : out < end->total && out - in < window;

        rc = move_one(end, sending ? out++ : in++, sending);
        if (!sending)
            latency_take(&end->latency);
    }
    return rc;
}

/* Runs the messages of a phase, without its report. */
static int run_phase(struct end *end, uint64_t phase)
{
    const struct job *job = &end->job;
    pthread_t thread;
    int rc;

    end->phase = phase;
    end->total = phase ? job->count : job->warm;
    end->bad = 0;
    latency_begin(&end->latency);
    if (job->test != JOB_STREAM)
        return converse(end);
    if (job->direction != JOB_BOTH)
        return move_all(end, (job->direction == JOB_PUT) != end->server);
    if (pthread_create(&thread, NULL, send_all, end))
        return -ENOMEM;
    rc = move_all(end, false);
    pthread_join(thread, NULL);
    return rc ? rc : end->error;
}

/* ---- The server ---- */

static int send_report(int fd, const struct report *report)
{
    unsigned char wire[REPORT_WIRE_SIZE];

    report_encode(report, wire);
    return sockets_send(fd, wire, sizeof wire);
}

static int serve_phase(struct end *end, uint64_t number)
{
    struct report report = {.cpu_start = cpu_ns()};
    char go;
    int rc = exchange_needs_go(&end->job) ? sockets_receive(end->fd, &go, 1) : 0;

    if (!rc)
        rc = run_phase(end, number);
    report.cpu_end = cpu_ns();
    report.bad = end->bad;
    return rc ? rc : send_report(end->fd, &report);
}

/* Serves one job; non-zero if the client disconnected or violated the protocol. */
static int serve_job(int fd, struct budget *budget)
{
    unsigned char wire[JOB_WIRE_SIZE];
    struct report report = {0};
    struct job job;
    struct end end;
    int rc = sockets_wait(fd);

    if (!rc)
        rc = sockets_receive(fd, wire, sizeof wire);
    if (!rc)
        rc = job_decode(&job, wire, sizeof wire);
    if (rc)
        return rc;
    if (!budget_take(budget, job_memory(&job))) {
        report.error = ENOBUFS;
        send_report(fd, &report);
        return -1;
    }
    rc = end_open(&end, fd, &job, true);
    report.error = (uint64_t)-rc;
    if (send_report(fd, &report) && !rc)
        rc = -1;
    if (!rc && job.warm)
        rc = serve_phase(&end, 0);
    if (!rc)
        rc = serve_phase(&end, 1);
    end_close(&end);
    budget_give(budget, job_memory(&job));
    return rc;
}

static void serve(int fd, void *arg)
{
    while (!serve_job(fd, arg))
        ;
}

int tcp_serve(const char *address, uint64_t memory, char *why)
{
    static struct budget budget; /* used by threads that outlive the listener */

    budget.limit = memory;
    return sockets_serve(address, serve, &budget, why);
}

/* ---- A client process ---- */

struct link {
    const char *server;
    int fd;
    struct end end;
    struct report said;
    uint64_t phase;
    int error;
    bool started;
    pthread_t thread;
};

struct tcp_client {
    struct job job;
    struct part part;
    unsigned servers;
    struct link link[MAX_SERVERS];
};

static int fail_at(char *why, const struct link *link, const char *what, int error)
{
    snprintf(why, WHY_SIZE, "%s: %s: %s", link->server, what, strerror(-error));
    return -1;
}

static struct link *part_link(struct tcp_client *client, unsigned i)
{
    return &client->link[(client->part.first + i) % client->servers];
}

static void tcp_close(void *state)
{
    struct tcp_client *client = state;

    for (unsigned i = 0; i < client->servers; i++) {
        end_close(&client->link[i].end);
        if (client->link[i].fd >= 0)
            close(client->link[i].fd);
    }
    free(client);
}

static int tcp_open(char *const *servers, unsigned count, const char *options, void **state,
                    char *why)
{
    struct tcp_client *client = calloc(1, sizeof *client);

    (void)options;
    *state = client;
    if (client == NULL) {
        snprintf(why, WHY_SIZE, "out of memory");
        return -1;
    }
    for (unsigned i = 0; i < count; i++) {
        struct link *link = &client->link[client->servers++];
        int rc;

        *link = (struct link){.server = servers[i], .fd = -1};
        rc = sockets_connect(servers[i], &link->fd);
        if (rc) {
            link->fd = -1;
            return fail_at(why, link, "cannot connect", rc);
        }
    }
    return 0;
}

static int receive_report(struct link *link)
{
    unsigned char wire[REPORT_WIRE_SIZE];
    int rc = sockets_receive(link->fd, wire, sizeof wire);

    if (!rc)
        rc = report_decode(&link->said, wire, sizeof wire);
    return rc ? rc : -(int)link->said.error;
}

/* Runs one link's part of a phase. */
static void *phase_thread(void *arg)
{
    struct link *link = arg;

    link->error = exchange_needs_go(&link->end.job) ? sockets_send(link->fd, "g", 1) : 0;
    if (!link->error)
        link->error = run_phase(&link->end, link->phase);
    if (!link->error)
        link->error = receive_report(link);
    return NULL;
}

static int phase(void *state, uint64_t number, char *why)
{
    struct tcp_client *client = state;

    for (unsigned i = client->part.count; i-- > 0;) {
        struct link *link = part_link(client, i);

        link->phase = number;
        link->error = -EAGAIN; /* no thread */
        if (i)
            link->started = !pthread_create(&link->thread, NULL, phase_thread, link);
        else
            phase_thread(link);
    }
    for (unsigned i = 1; i < client->part.count; i++)
        if (part_link(client, i)->started)
            pthread_join(part_link(client, i)->thread, NULL);
    for (unsigned i = 0; i < client->part.count; i++)
        if (part_link(client, i)->error)
            return fail_at(why, part_link(client, i), "the exchange failed",
                           part_link(client, i)->error);
    return 0;
}

static int tcp_prepare(void *state, const struct job *job, struct part part, char *why)
{
    struct tcp_client *client = state;

    client->job = *job;
    client->part = part;
    for (unsigned i = 0; i < part.count; i++) {
        struct link *link = part_link(client, i);
        unsigned char wire[JOB_WIRE_SIZE];
        int rc;

        end_close(&link->end);
        rc = end_open(&link->end, link->fd, job, false);
        job_encode(job, wire);
        if (!rc)
            rc = sockets_send(link->fd, wire, sizeof wire);
        if (!rc)
            rc = receive_report(link);
        if (rc)
            return fail_at(why, link, "the server refused the job", rc);
    }
    return job->warm ? phase(client, 0, why) : 0;
}

static int tcp_run(void *state, struct outcome *outcome, char *why)
{
    struct tcp_client *client = state;

    if (outcome_time(outcome, phase, client, why))
        return -1;
    for (unsigned i = 0; i < client->part.count; i++) {
        struct link *link = part_link(client, i);

        outcome_add(outcome, &client->job, (unsigned)(link - client->link), &link->said,
                    link->end.bad);
        if (client->job.test == JOB_PINGPONG) /* of one link */
            outcome->latency = link->end.latency;
    }
    return 0;
}

const struct transport tcp_transport = {
    .name = "tcp",
    .open = tcp_open,
    .prepare = tcp_prepare,
    .run = tcp_run,
    .close = tcp_close,
};
