/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A job between two peers; see exchange.h. */
#include "bench/exchange.h"

#include <string.h>
#include "bench/pattern.h"

bool exchange_needs_go(const struct job *job)
{
    return job->test == JOB_STREAM && job->direction != JOB_PUT;
}

/* Handles a received message, which may permit another send. */
static void message_in(void *arg)
{
    struct exchange *exchange = arg;

    if (exchange->latency != NULL)
        latency_take(exchange->latency);
    if (exchange->out != NULL && exchange->job.test != JOB_STREAM)
        flow_allow(exchange->out, 1); /* errors remain in the flow */
}

static bool carries(const struct job *job, bool to_server)
{
    if (job->test != JOB_STREAM)
        return true;
    return job->direction == JOB_BOTH || job->direction == (to_server ? JOB_PUT : JOB_GET);
}

int exchange_open(struct exchange *exchange, const struct job *job, BMI_addr_t peer,
                  bmi_context_id context, bool server)
{
    struct flow_config config = {.peer = peer, .context = context, .arg = exchange};
    struct job back = *job; /* messages from the server */

    memset(exchange, 0, sizeof *exchange);
    exchange->job = *job;
    exchange->server = server;
    config.noncontiguous = !server || job->both;
    if (job->test == JOB_REQUEST) {
        back.size = job->reply;
        back.extent = 0;
    }

    config.sending = true;
    config.job = server ? &back : job;
    config.to_server = !server;
    config.unexpected = !server && job->test == JOB_REQUEST;
    config.window = job->test == JOB_PINGPONG ? 1 : job->window;
    if (carries(job, !server) && (exchange->out = flow_new(&config)) == NULL)
        return -BMI_ENOMEM;

    config.sending = false;
    config.job = server ? job : &back;
    config.to_server = server;
    config.unexpected = false;
    config.message = message_in;
    config.window = job->test == JOB_PINGPONG ? 2 : job->window;
    if (carries(job, server) && !(server && job->test == JOB_REQUEST) &&
        (exchange->in = flow_new(&config)) == NULL) {
        exchange_close(exchange);
        return -BMI_ENOMEM;
    }
    return 0;
}

void exchange_close(struct exchange *exchange)
{
    flow_free(exchange->in);
    flow_free(exchange->out);
    exchange->in = exchange->out = NULL;
}

int exchange_begin(struct exchange *exchange, uint64_t phase)
{
    const struct job *job = &exchange->job;
    uint64_t total = phase ? job->count : job->warm, limit = total;
    int rc = 0;

    if (exchange->server)
        limit = 0;
    else if (job->test == JOB_PINGPONG)
        limit = 1;
    else if (job->test == JOB_REQUEST)
        limit = job->window;
    exchange->phase = phase;
    exchange->total = total;
    exchange->requests = exchange->bad_requests = 0;
    if (exchange->latency != NULL)
        latency_begin(exchange->latency);
    if (exchange->in != NULL)
        rc = flow_begin(exchange->in, phase, total, total);
    if (!rc && exchange->out != NULL)
        rc = flow_begin(exchange->out, phase, total, limit);
    return rc;
}

int exchange_go(struct exchange *exchange)
{
    return exchange->out != NULL ? flow_allow(exchange->out, exchange->total) : 0;
}

int exchange_request(struct exchange *exchange, const void *data, bmi_size_t size)
{
    uint64_t key = pattern_key(exchange->phase, exchange->requests++, true);

    if (size != (bmi_size_t)exchange->job.size ||
        (exchange->job.verify && !pattern_matches(data, (size_t)size, key, 0)))
        exchange->bad_requests++;
    return exchange->out != NULL ? flow_allow(exchange->out, 1) : 0;
}

void exchange_cancel(struct exchange *exchange)
{
    if (exchange->in != NULL)
        flow_cancel(exchange->in);
    if (exchange->out != NULL)
        flow_cancel(exchange->out);
}

bool exchange_complete(const struct exchange *exchange)
{
    return (exchange->in == NULL || flow_complete(exchange->in)) &&
           (exchange->out == NULL || flow_complete(exchange->out));
}

bool exchange_idle(const struct exchange *exchange)
{
    return (exchange->in == NULL || flow_idle(exchange->in)) &&
           (exchange->out == NULL || flow_idle(exchange->out));
}

int exchange_error(const struct exchange *exchange)
{
    if (exchange->in != NULL && flow_error(exchange->in))
        return flow_error(exchange->in);
    return exchange->out != NULL ? flow_error(exchange->out) : 0;
}

uint64_t exchange_bad(const struct exchange *exchange)
{
    return exchange->bad_requests + (exchange->in != NULL ? flow_bad(exchange->in) : 0);
}
