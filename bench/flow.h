/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A flow: one direction of a job's messages on one side, over BMI.  It owns the buffers of the
 * window, keeps as many operations posted as window and limit allow, and makes or checks the
 * contents.
 *
 * A message of a noncontiguous job goes as several operations ("pieces") of at most job.split
 * segments; its receiver posts the same pieces.  Operation number j uses place j modulo (window
 * times pieces) of the ring, and thereby always the same memory.  Places share memory when the
 * job has fewer buffers than its window, as they do with perftest.
 *
 * One thread uses a flow.  Errors are -BMI_E….
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
    bool to_server;          /* which way the messages go; for the contents */
    bool noncontiguous;      /* this side's memory is */
    bool unexpected;         /* sends unexpected messages */
    uint64_t window;         /* messages */
    flow_message_fn message; /* may be NULL */
    void *arg;
};

/* NULL when there is no memory. */
struct flow *flow_new(const struct flow_config *config);

/* Nothing of it may be under way. */
void flow_free(struct flow *flow);

/*
 * Begins a phase of `total` messages of which `limit` may go at once, and posts what it can.
 * flow_allow lets `more` go.  Both return 0 or the error of a post, which flow_error keeps too.
 */
int flow_begin(struct flow *flow, uint64_t phase, uint64_t total, uint64_t limit);
int flow_allow(struct flow *flow, uint64_t more);

/* Cancels what is under way; it is still to be waited for. */
void flow_cancel(struct flow *flow);

bool flow_complete(const struct flow *flow); /* all messages of the phase are through */
bool flow_idle(const struct flow *flow);     /* nothing is under way */
int flow_error(const struct flow *flow);     /* the first error, 0 for none */
uint64_t flow_bad(
    const struct flow *flow); /* messages of this phase with wrong contents or length */

#endif
