/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client process over BMI. A session with a server begins with an unexpected message that
 * describes the job. The server answers when it is ready, and again at the end of each phase.
 */
#include "bench/transport.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench/exchange.h"
#include "bench/inspect.h"
#include "bench/lastline.h"
#include "bench/session.h"
#include "embedded/bmi/core.h"
#include "embedded/bmi/methods.h"

#define SILENCE_MS 60000 /* the server is lost after this time without any event */
#define SLICE_MS   1000

struct session {
    const char *server;
    BMI_addr_t addr;
    bool open; /* has an exchange */
    struct exchange exchange;
    struct control request, go, report;
    unsigned char request_wire[JOB_WIRE_SIZE], report_wire[REPORT_WIRE_SIZE];
    struct report said; /* the last report */
};

struct bmi_client {
    struct lastline last;
    bool initialized;
    bool context_open;
    bmi_context_id context;
    uint64_t next_tag;
    struct job job;
    struct part part;
    unsigned servers;
    struct latency latency;
    struct session session[MAX_SERVERS];
};

static int fail(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(char *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, WHY_SIZE, format, args);
    va_end(args);
    return -1;
}

/* Reports an error with BMI's last error line. */
static int fail_at(char *why, struct bmi_client *client, const struct session *session,
                   const char *what, int error)
{
    char said[LASTLINE_SIZE];

    lastline_get(&client->last, said);
    if (error == -BMI_ENOPROTOOPT) /* its text says nothing about addresses */
        return fail(why, "%s: %s: %s%s", session->server, what,
                    *said ? said : "no network has such addresses; give one like ",
                    *said ? "" : BMI_ADDRESS_FORMS);
    return fail(why, "%s: %s: %s%s%s", session->server, what,
                strerror(bmi_error_to_errno(error)), *said ? "; " : "", said);
}

static int fail_refused(char *why, const struct session *session)
{
    const char *more = "";

    switch (session->said.error) {
    case ENOBUFS:
        more = "; the job needs more memory than the server allows; raise its --server-memory";
        break;
    case EUSERS:
        more = "; its limit of sessions is reached; wait for another client to end";
        break;
    case EINVAL:
        more = "; are client and server of the same release?";
        break;
    }
    return fail(why, "%s: the server refused: %s%s", session->server,
                strerror((int)session->said.error), more);
}

static struct session *part_session(struct bmi_client *client, unsigned i)
{
    return &client->session[(client->part.first + i) % client->servers];
}

/* ---- Opening and closing ---- */

static void session_drop(struct bmi_client *client, struct session *session)
{
    int slices = SILENCE_MS / SLICE_MS;

    if (!session->open)
        return;
    exchange_cancel(&session->exchange);
    control_cancel(&session->request);
    control_cancel(&session->go);
    control_cancel(&session->report);
    while (slices-- && (!exchange_idle(&session->exchange) || session->request.busy ||
                        session->go.busy || session->report.busy))
        if (pending_reap(client->context, SLICE_MS) < 0)
            return;
    exchange_close(&session->exchange);
    session->open = false;
}

static void bmi_close(void *state)
{
    struct bmi_client *client = state;
    unsigned i;

    for (i = 0; i < client->servers; i++)
        session_drop(client, &client->session[i]);
    if (client->context_open)
        BMI_close_context(client->context);
    if (client->initialized)
        BMI_finalize();
    lastline_end(&client->last);
    free(client);
}

static int bmi_open(char *const *servers, unsigned count, const char *options, void **state,
                    char *why)
{
    struct bmi_client *client = calloc(1, sizeof *client);
    char *copy = options != NULL ? strdup(options) : NULL;
    unsigned i;
    int rc;

    *state = client;
    if (client == NULL)
        return fail(why, "out of memory");
    lastline_begin(&client->last, false);
    rc = BMI_initialize(NULL, NULL, 0, NULL);
    if (rc < 0) {
        fail(why, "cannot start BMI: %s", bmi_status_string(rc));
        goto out;
    }
    client->initialized = true;
    client->next_tag = SESSION_FIRST_TAG;
    rc = BMI_open_context(&client->context);
    if (rc < 0) {
        fail(why, "BMI context: %s", bmi_status_string(rc));
        goto out;
    }
    client->context_open = true;
    for (i = 0; i < count && rc >= 0; i++) {
        struct session *session = &client->session[client->servers++];
        session->server = servers[i];
        rc = BMI_addr_lookup(&session->addr, servers[i], copy);
        if (rc < 0)
            fail_at(why, client, session, "cannot use this address", rc);
        session->request.context = session->go.context = session->report.context =
            client->context;
    }
out:
    free(copy);
    return rc < 0 ? -1 : 0;
}

/* ---- Waiting ---- */

static int session_error(const struct session *session)
{
    if (session->request.error)
        return session->request.error;
    if (session->go.error)
        return session->go.error;
    if (session->report.error)
        return session->report.error;
    return session->open ? exchange_error(&session->exchange) : 0;
}

/* Returns whether the session's report and all messages of its phase have arrived. */
static bool session_ready(const struct session *session)
{
    return session->report.arrived && !session->request.busy && !session->go.busy &&
           (!session->open ||
            (exchange_complete(&session->exchange) && exchange_idle(&session->exchange)));
}

/* Waits until all sessions of the part are ready. */
static int wait_ready(struct bmi_client *client, char *why)
{
    uint64_t last = clock_ns();
    unsigned i = 0;

    while (i < client->part.count) {
        struct session *session = part_session(client, i);
        int rc, error = session_error(session);

        if (error)
            return fail_at(why, client, session, "the exchange failed", error);
        if (session_ready(session)) {
            i++;
            continue;
        }
        rc = pending_reap(client->context, SLICE_MS);
        if (rc < 0)
            return fail_at(why, client, session, "waiting failed", rc);
        if (rc > 0)
            last = clock_ns();
        else if (clock_ns() - last > SILENCE_MS * UINT64_C(1000000))
            return fail(why, "%s: no answer for %d s; is a bmi-perf server running there?",
                        session->server, SILENCE_MS / 1000);
    }
    return 0;
}

/* Waits likewise, and decodes the reports of these sessions. */
static int wait_all(struct bmi_client *client, char *why)
{
    if (wait_ready(client, why))
        return -1;
    for (unsigned i = 0; i < client->part.count; i++) {
        struct session *session = part_session(client, i);
        if (report_decode(&session->said, session->report_wire, (size_t)session->report.actual))
            return fail(why, "%s: not a bmi-perf server of this version", session->server);
        if (session->said.error)
            return fail_refused(why, session);
    }
    return 0;
}

/* ---- Jobs ---- */

/* Sends a job, whose answer goes to `answer`. */
static int ask(struct bmi_client *client, struct session *session, const struct job *job,
               void *answer, size_t size, char *why)
{
    int rc;

    session->request.error = session->go.error = session->report.error = 0;
    job_encode(job, session->request_wire);
    rc =
        control_receive(&session->report, session->addr, answer, size, (bmi_msg_tag_t)job->tag);
    if (!rc)
        rc = control_send(&session->request, session->addr, session->request_wire,
                          JOB_WIRE_SIZE, SESSION_OPEN_TAG, true);
    return rc ? fail_at(why, client, session, "cannot send", rc) : 0;
}

static uint64_t take_tag(struct bmi_client *client)
{
    uint64_t tag = client->next_tag;

    client->next_tag = SESSION_NEXT_TAG(tag);
    return tag;
}

static int session_open(struct bmi_client *client, struct session *session, char *why)
{
    struct job job = client->job;
    int rc;

    job.tag = take_tag(client);
    rc = exchange_open(&session->exchange, &job, session->addr, client->context, false);
    if (rc < 0)
        return fail_at(why, client, session, "no memory for the messages", rc);
    session->open = true;
    if (job.test == JOB_PINGPONG) /* of one session */
        session->exchange.latency = &client->latency;
    return ask(client, session, &job, session->report_wire, REPORT_WIRE_SIZE, why);
}

static int phase(void *state, uint64_t number, char *why)
{
    struct bmi_client *client = state;
    unsigned i;

    for (i = 0; i < client->part.count; i++) {
        struct session *session = part_session(client, i);
        bmi_msg_tag_t tag = (bmi_msg_tag_t)session->exchange.job.tag;
        int rc = control_receive(&session->report, session->addr, session->report_wire,
                                 REPORT_WIRE_SIZE, tag);
        if (!rc)
            rc = exchange_begin(&session->exchange, number);
        if (!rc && exchange_needs_go(&client->job))
            rc = control_send(&session->go, session->addr, NULL, 0, tag, false);
        if (rc)
            return fail_at(why, client, session, "cannot send", rc);
    }
    return wait_all(client, why);
}

static int bmi_prepare(void *state, const struct job *job, struct part part, char *why)
{
    struct bmi_client *client = state;
    unsigned i;

    for (i = 0; i < client->servers; i++)
        session_drop(client, &client->session[i]);
    client->job = *job;
    client->part = part;
    for (i = 0; i < part.count; i++)
        if (session_open(client, part_session(client, i), why))
            return -1;
    if (wait_all(client, why))
        return -1;
    return job->warm ? phase(client, 0, why) : 0;
}

static int bmi_run(void *state, struct outcome *outcome, char *why)
{
    struct bmi_client *client = state;

    if (outcome_time(outcome, phase, client, why))
        return -1;
    for (unsigned i = 0; i < client->part.count; i++) {
        struct session *session = part_session(client, i);
        outcome_add(outcome, &client->job, (unsigned)(session - client->session),
                    &session->said, exchange_bad(&session->exchange));
    }
    if (client->job.test == JOB_PINGPONG)
        outcome->latency = client->latency;
    return 0;
}

/* Requests text from a server: JOB_COUNTERS, JOB_METRICS or JOB_RAW. */
static int server_text(struct bmi_client *client, struct session *session, enum job_test test,
                       char *text, size_t size, char *why)
{
    struct job job = {.test = test, .window = 1, .count = 1, .tag = take_tag(client)};

    session_drop(client, session);
    client->part = (struct part){(unsigned)(session - client->session), 1};
    if (ask(client, session, &job, text, size - 1, why) || wait_ready(client, why))
        return -1;
    text[session->report.actual] = 0;
    if (!report_decode(&session->said, text, (size_t)session->report.actual))
        return fail_refused(why, session);
    return 0;
}

static int bmi_counters(void *state, int server, char *text, size_t size, char *why)
{
    struct bmi_client *client = state;

    if (server >= 0)
        return server_text(client, &client->session[server], JOB_COUNTERS, text, size, why);
    inspect_counters(client->session[0].addr, text, size);
    return 0;
}

void bmi_warn_ignored(const char *options)
{
    char key[64];

    if (options != NULL && bmi_has_unknown(options, key, sizeof key))
        fprintf(stderr,
                "bmi-perf: unknown option \"%s\" ignored; bmi-perf --options lists all, "
                "NEWS the removed ones\n",
                key);
}

int bmi_metrics(void *state, char *text, size_t size, char *why)
{
    struct bmi_client *client = state;

    return server_text(client, &client->session[0], JOB_METRICS, text, size, why);
}

int bmi_raw(void *state, unsigned *port, char *why)
{
    struct bmi_client *client = state;
    char text[SESSION_TEXT_MAX];
    int rc = server_text(client, &client->session[0], JOB_RAW, text, sizeof text, why);

    *port = (unsigned)strtoul(text, NULL, 10);
    return rc;
}

const struct transport bmi_transport = {
    .name = "bmi",
    .open = bmi_open,
    .prepare = bmi_prepare,
    .run = bmi_run,
    .counters = bmi_counters,
    .close = bmi_close,
};
