/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A flow: one direction of a job's messages on one side, over BMI. A flow owns the buffers of
 * the window, posts as many operations as window and limit permit, and generates or checks the
 * contents.
 *
 * A message of a noncontiguous job consists of several operations ("pieces") of at most
 * job.split segments; the receiver posts the same pieces. Operation j uses place j modulo
 * (window times pieces) of the ring, and therefore always the same memory. Places share memory
 * if the job has fewer buffers than its window, as in perftest.
 *
 * One thread uses a flow. Errors are -BMI_E….
 */
#ifndef BENCH_FLOW_H
#define BENCH_FLOW_H

#include <stdbool.h>
#include "bench/job.h"
#include "bench/pending.h"

struct flow;

/* Called when a message (all its pieces) is complete. */
typedef void (*flow_message_fn)(void *arg);

struct flow_config {
    const struct job *job; /* copied */
    BMI_addr_t peer;
    bmi_context_id context;
    bool sending;
    bool to_server;          /* direction of the messages; determines the contents */
    bool noncontiguous;      /* memory of this side */
    bool unexpected;         /* sends unexpected messages */
    uint64_t window;         /* messages */
    flow_message_fn message; /* may be NULL */
    void *arg;
};

/* Returns NULL if out of memory. */
struct flow *flow_new(const struct flow_config *config);

/* Frees a flow without operations in flight. */
void flow_free(struct flow *flow);

/*
 * Begins a phase of `total` messages, of which `limit` may be posted; posts as many as
 * possible. flow_allow() permits `more` messages. Both return 0 or the error of a post, which
 * also flow_error() returns.
 */
int flow_begin(struct flow *flow, uint64_t phase, uint64_t total, uint64_t limit);
int flow_allow(struct flow *flow, uint64_t more);

/* Cancels operations in flight, which complete later. */
void flow_cancel(struct flow *flow);

bool flow_complete(const struct flow *flow); /* all messages of the phase are complete */
bool flow_idle(const struct flow *flow);     /* no operation is in flight */
int flow_error(const struct flow *flow);     /* the first error; 0: none */
uint64_t flow_bad(
    const struct flow *flow); /* messages of this phase with wrong contents or length */

#endif
