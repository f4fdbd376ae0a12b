/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A job between two peers over BMI, as one side sees it: the flows of its messages in and out,
 * and what lets what go.
 *
 *   test       client sends     server sends    a message may be sent
 *   stream     put, both        get, both       at once (a server waits for exchange_go)
 *   pingpong   yes              yes             when the last one of the other side is here;
 *                                               the client begins
 *   request    unexpected       replies         `window` at once, then one for each reply;
 *                                               a reply for each request
 */
#ifndef BENCH_EXCHANGE_H
#define BENCH_EXCHANGE_H

#include "bench/flow.h"

struct exchange {
    struct job job;
    bool server;
    struct flow *in, *out; /* NULL where nothing goes */
    uint64_t phase, total; /* messages of this phase */
    uint64_t requests;     /* unexpected requests that came in it … */
    uint64_t bad_requests; /* … and those with wrong contents */
};

/* -BMI_ENOMEM when there is no memory; then nothing stays behind. */
int exchange_open(struct exchange *exchange, const struct job *job, BMI_addr_t peer,
                  bmi_context_id context, bool server);
void exchange_close(struct exchange *exchange);

/* Begins a phase: receives are posted; the client's sends too, as far as they may go. */
int exchange_begin(struct exchange *exchange, uint64_t phase);

/* On a server.  The client is ready for the data of a stream; a request has arrived. */
int exchange_go(struct exchange *exchange);
int exchange_request(struct exchange *exchange, const void *data, bmi_size_t size);

void exchange_cancel(struct exchange *exchange);
bool exchange_complete(const struct exchange *exchange);
bool exchange_idle(const struct exchange *exchange);
int exchange_error(const struct exchange *exchange);
uint64_t exchange_bad(const struct exchange *exchange);

/* Must the client say when it is ready for the server's data? */
bool exchange_needs_go(const struct job *job);

#endif
