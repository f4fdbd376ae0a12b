/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The server over BMI: one thread, any number of clients. Each opening request starts a session
 * (session.h), which proceeds through its phases with its flows and control messages.
 *
 * A session is running a phase or ending. The end follows the report of the last phase, or a
 * failure. Then operations in flight are cancelled, and the session is freed when they have
 * completed. The receives of a phase are posted before the report that lets the client start
 * the phase.
 *
 * Memory for all clients together is limited (budget.h), and so are the sessions of one
 * address; requests beyond are refused. A refused session lives until its report has been sent.
 * Refusals are also limited: a client that does not receive one gets no further ones.
 */
#include "bench/bmi_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench/budget.h"
#include "bench/doctor/raw.h"
#include "bench/exchange.h"
#include "bench/inspect.h"
#include "bench/lastline.h"
#include "bench/session.h"
#include "bench/transport.h"
#include "embedded/heap/heap.h"
#include "embedded/program/program.h"

#define IDLE_MS 500 /* ms; longest delay before a signal is noticed */
/* interval of returning freed memory to the system */
#define TRIM_NS          UINT64_C(5000000000)
#define UNEXPECTED_BATCH 16
#define MAX_SESSIONS     4096
#define MAX_OF_ADDRESS   16 /* sessions of one address */
/* refusals in flight beyond all sessions; one beyond those of an address */
#define MAX_REFUSALS 64

struct session {
    struct session *next;
    struct server *server;
    BMI_addr_t addr;
    bmi_msg_tag_t tag;
    bool ending;
    bool has_exchange;
    uint64_t phase;
    uint64_t cpu; /* at the begin of the phase */
    struct exchange exchange;
    struct control go, report;
    struct report said;
    unsigned char wire[REPORT_WIRE_SIZE];
    char *text;     /* counters, or NULL */
    uint64_t taken; /* bytes taken from the server's budget */
};

struct server {
    bmi_context_id context;
    struct session *sessions;
    unsigned count;
    struct budget budget;
    char network[17];    /* scheme of the server's address */
    uint64_t trimmed_at; /* ns */
};

/* ---- Ends ---- */

/* Ends a session: cancels its operations; the session is freed when they have completed. */
static void session_end(struct session *session)
{
    session->ending = true;
    if (session->has_exchange)
        exchange_cancel(&session->exchange);
    control_cancel(&session->go);
}

static bool session_idle(const struct session *session)
{
    return !session->go.busy && !session->report.busy &&
           (!session->has_exchange || exchange_idle(&session->exchange));
}

static void session_free(struct session *session)
{
    if (session->has_exchange)
        exchange_close(&session->exchange);
    BMI_set_info(session->addr, BMI_DEC_ADDR_REF, NULL);
    free(session->text);
    budget_give(&session->server->budget, session->taken);
    free(session);
}

/* Frees ended sessions without operations in flight. */
static void sweep(struct server *server)
{
    struct session **at = &server->sessions;

    while (*at != NULL) {
        struct session *session = *at;
        if (session->ending && session_idle(session)) {
            *at = session->next;
            server->count--;
            session_free(session);
        } else {
            at = &session->next;
        }
    }
}

/* ---- Phases ---- */

static void go_came(struct control *control)
{
    struct session *session = control->arg;

    if (control->error || exchange_go(&session->exchange) < 0)
        session_end(session);
}

static int report_send(struct session *session)
{
    report_encode(&session->said, session->wire);
    return control_send(&session->report, session->addr, session->wire, REPORT_WIRE_SIZE,
                        session->tag, false);
}

/* Posts what the phase needs before the client may begin. The "go" of a JOB_REQUEST never
 * arrives; its receive lets the server notice the client's death. */
static int phase_begin(struct session *session, uint64_t phase)
{
    const struct job *job = &session->exchange.job;
    int rc = exchange_begin(&session->exchange, phase);

    session->phase = phase;
    if (!rc && !session->go.busy && (exchange_needs_go(job) || job->test == JOB_REQUEST))
        rc = control_receive(&session->go, session->addr, NULL, 0, session->tag);
    return rc;
}

/* Handles the end of a phase: prepares the next one, then reports to the client. */
static void phase_end(struct session *session)
{
    bool last = session->phase == 1;

    session->said.bad = exchange_bad(&session->exchange);
    session->said.cpu_start = session->cpu;
    session->said.cpu_end = session->cpu = cpu_ns();
    if ((!last && phase_begin(session, 1)) || report_send(session) || last)
        session_end(session);
}

/* Checks each session for the end of its phase, and for failures. */
static void advance(struct server *server)
{
    struct session *session;

    for (session = server->sessions; session != NULL; session = session->next) {
        if (session->ending || !session->has_exchange)
            continue;
        if (exchange_error(&session->exchange) || session->report.error)
            session_end(session);
        else if (!session->report.busy && exchange_complete(&session->exchange))
            phase_end(session);
    }
}

/* ---- Requests ---- */

static unsigned sessions_of(const struct server *server, BMI_addr_t addr)
{
    const struct session *session;
    unsigned count = 0;

    for (session = server->sessions; session != NULL; session = session->next)
        count += session->addr == addr;
    return count;
}

/* Creates a session; said.error is set if it is refused. NULL: not even a refusal can be
 * sent. */
static struct session *session_new(struct server *server, BMI_addr_t addr,
                                   const struct job *job)
{
    unsigned of_address = sessions_of(server, addr);
    struct session *session;

    if (server->count >= MAX_SESSIONS + MAX_REFUSALS || of_address > MAX_OF_ADDRESS ||
        (session = calloc(1, sizeof *session)) == NULL)
        return NULL;
    if (server->count >= MAX_SESSIONS || of_address == MAX_OF_ADDRESS)
        session->said.error = EUSERS;
    session->server = server;
    session->addr = addr;
    session->tag = (bmi_msg_tag_t)job->tag;
    session->go.context = session->report.context = server->context;
    session->go.then = go_came;
    session->go.arg = session;
    session->next = server->sessions;
    server->sessions = session;
    server->count++;
    return session;
}

/* Takes bytes of the server's budget for the session. */
static bool session_take(struct session *session, uint64_t bytes)
{
    if (!budget_take(&session->server->budget, bytes))
        return false;
    session->taken += bytes;
    return true;
}

/* Opens a raw connection and writes its port as text. */
static int make_raw(struct session *session, size_t *length)
{
    int port = raw_serve();

    if (port < 0)
        return bmi_errno_to_pvfs(port);
    *length = (size_t)snprintf(session->text, SESSION_TEXT_MAX, "%d\n", port);
    return 0;
}

/* Composes the text for a client. Returns 0 or -BMI_E…. */
static int make_text(struct session *session, enum job_test test, size_t *length)
{
    bool metrics = test == JOB_METRICS;
    size_t size = metrics ? SESSION_METRICS_MAX : SESSION_TEXT_MAX;

    if (!session_take(session, size))
        return -BMI_ENOBUFS;
    session->text = malloc(size);
    if (session->text == NULL)
        return -BMI_ENOMEM;
    if (metrics)
        return inspect_metrics(session->addr, session->server->network, session->text, size,
                               length);
    if (test == JOB_RAW)
        return make_raw(session, length);
    *length = inspect_counters(session->addr, session->text, size);
    return 0;
}

/* Sends the text, or a report of the failure. */
static void answer_text(struct session *session, enum job_test test)
{
    size_t length = 0;
    int rc = make_text(session, test, &length);

    session->said.error = rc ? (uint64_t)bmi_error_to_errno(rc) : 0;
    if (rc)
        report_send(session);
    else
        control_send(&session->report, session->addr, session->text, length, session->tag,
                     false);
    session_end(session);
}

/* Sends a report of the refusal. */
static void answer_refusal(struct session *session)
{
    report_send(session);
    session_end(session);
}

/* Starts a job, or refuses it. */
static void answer_job(struct session *session, const struct job *job)
{
    int rc = -BMI_ENOBUFS;

    if (session_take(session, job_memory(job)))
        rc = exchange_open(&session->exchange, job, session->addr, session->server->context,
                           true);
    session->has_exchange = !rc;
    session->cpu = cpu_ns();
    if (!rc)
        rc = phase_begin(session, job->warm ? 0 : 1);
    session->said.error = rc ? (uint64_t)bmi_error_to_errno(rc) : 0;
    if (report_send(session) || rc)
        session_end(session);
}

static struct session *session_of(struct server *server, BMI_addr_t addr, bmi_msg_tag_t tag)
{
    struct session *session = server->sessions;

    while (session != NULL && (session->addr != addr || session->tag != tag || session->ending))
        session = session->next;
    return session;
}

/* Handles an opening request; `error` is the result of job_decode(). */
static struct session *opened(struct server *server, BMI_addr_t addr, const struct job *job,
                              int error)
{
    struct session *session = error == -EPROTO ? NULL : session_new(server, addr, job);

    if (session == NULL)
        return NULL;
    if (!session->said.error)
        session->said.error = (uint64_t)-error;
    if (session->said.error)
        answer_refusal(session);
    else if (job->test == JOB_COUNTERS || job->test == JOB_METRICS || job->test == JOB_RAW)
        answer_text(session, job->test);
    else
        answer_job(session, job);
    return session;
}

/* Handles an unexpected message. The reference to its address passes to a new session, or is
 * released. */
static void unexpected(struct server *server, const struct BMI_unexpected_info *info)
{
    struct session *session = NULL;
    struct job job;

    if (info->tag != SESSION_OPEN_TAG) {
        session = session_of(server, info->addr, info->tag - 1);
        if (session != NULL && session->has_exchange &&
            exchange_request(&session->exchange, info->buffer, info->size))
            session_end(session);
        session = NULL;
    } else {
        int error = job_decode(&job, info->buffer, (size_t)info->size);

        session = opened(server, info->addr, &job, error);
    }
    BMI_unexpected_free(info->addr, info->buffer);
    if (session == NULL)
        BMI_set_info(info->addr, BMI_DEC_ADDR_REF, NULL);
}

/* Called when nothing has arrived for a while. */
static void rest(struct server *server)
{
    uint64_t now = clock_ns();

    if (now - server->trimmed_at < TRIM_NS)
        return;
    server->trimmed_at = now;
    heap_trim();
}

static int serve(struct server *server, const volatile sig_atomic_t *stop)
{
    struct BMI_unexpected_info info[UNEXPECTED_BATCH];
    int i, rc, count;

    while (!*stop) {
        count = 0;
        rc = BMI_testunexpected(UNEXPECTED_BATCH, &count, info, 0);
        for (i = 0; rc >= 0 && i < count; i++)
            unexpected(server, &info[i]);
        if (rc >= 0)
            rc = pending_reap(server->context, count ? 0 : IDLE_MS);
        if (rc < 0)
            return rc;
        advance(server);
        sweep(server);
        if (rc == 0 && count == 0)
            rest(server);
    }
    return 0;
}

int bmi_serve(const char *address, const char *options, uint64_t memory,
              const volatile sig_atomic_t *stop, char *why)
{
    struct server server = {.budget = {.limit = memory}};
    struct lastline last;
    char said[LASTLINE_SIZE];
    const char *scheme_end = strstr(address, "://");
    char *copy = options != NULL ? strdup(options) : NULL;
    char method[32];
    int rc;

    if (scheme_end == NULL || scheme_end - address > 16) {
        snprintf(why, WHY_SIZE, "%s: not a BMI address; give one like ib://host:port", address);
        free(copy);
        return -1;
    }
    memcpy(server.network, address, (size_t)(scheme_end - address));
    snprintf(method, sizeof method, "bmi_%.*s", (int)(scheme_end - address), address);
    lastline_begin(&last, true);
    rc = BMI_initialize(method, address, BMI_INIT_SERVER | BMI_AUTO_REF_COUNT, copy);
    lastline_get(&last, said);
    lastline_end(&last);
    free(copy);
    if (rc < 0) {
        snprintf(why, WHY_SIZE, "%.300s: cannot listen: %s%s%s", address,
                 strerror(bmi_error_to_errno(rc)), *said ? "; " : "", said);
        return -1;
    }
    if (*said)
        fprintf(stderr, "bmi-perf: %s\n", said);
    rc = BMI_open_context(&server.context);
    if (rc >= 0) {
        int port = 0;

        (void)BMI_get_info(0, BMI_TCP_GET_PORT, &port);
        printf("listening on %s, port %d\n", address, port);
        fflush(stdout);
        program_notify("READY=1\nSTATUS=listening on %s, port %d", address, port);
        rc = serve(&server, stop);
        raw_stop();
        BMI_close_context(server.context);
    }
    if (rc < 0)
        snprintf(why, WHY_SIZE, "%s: %s", address, bmi_status_string(rc));
    BMI_finalize();
    while (server.sessions != NULL) {
        struct session *session = server.sessions;
        server.sessions = session->next;
        session_free(session);
    }
    return rc < 0 ? -1 : 0;
}
