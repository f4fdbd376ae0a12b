/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A job between two peers over BMI, seen from one side: the flows of its messages in and out,
 * and the rules for sending.
 *
 *   test       client sends     server sends    a message may be sent
 *   stream     put, both        get, both       immediately (a server waits for exchange_go)
 *   pingpong   yes              yes             after the peer's last message has arrived;
 *                                               the client begins
 *   request    unexpected       replies         client: `window` together, then one per reply;
 *                                               server: one reply per request
 */
#ifndef BENCH_EXCHANGE_H
#define BENCH_EXCHANGE_H

#include "bench/flow.h"
#include "bench/latency.h"

struct exchange {
    struct job job;
    bool server;
    struct flow *in, *out;   /* NULL: no messages in this direction */
    uint64_t phase, total;   /* messages of this phase */
    uint64_t requests;       /* unexpected requests received in this phase */
    uint64_t bad_requests;   /* of these, requests with wrong contents */
    struct latency *latency; /* of a client's ping-pong; NULL: not wanted. The caller's */
};

/* Returns 0, or -BMI_ENOMEM without side effects. */
int exchange_open(struct exchange *exchange, const struct job *job, BMI_addr_t peer,
                  bmi_context_id context, bool server);
void exchange_close(struct exchange *exchange);

/* Begins a phase: posts receives, and on the client the permitted sends. */
int exchange_begin(struct exchange *exchange, uint64_t phase);

/* Server: the client is ready for the data of a stream; a request has arrived. */
int exchange_go(struct exchange *exchange);
int exchange_request(struct exchange *exchange, const void *data, bmi_size_t size);

void exchange_cancel(struct exchange *exchange);
bool exchange_complete(const struct exchange *exchange);
bool exchange_idle(const struct exchange *exchange);
int exchange_error(const struct exchange *exchange);
uint64_t exchange_bad(const struct exchange *exchange);

/* Returns whether the client must announce that it is ready for the server's data. */
bool exchange_needs_go(const struct job *job);

#endif
