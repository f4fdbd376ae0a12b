/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations in flight and their completion functions. Each operation posted by the benchmark
 * has a struct pending as its user pointer, so one loop serves all of them. One thread per
 * context.
 */
#ifndef BENCH_PENDING_H
#define BENCH_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include "embedded/bmi/bmi.h"

struct pending {
    void (*done)(struct pending *pending, bmi_error_code_t error, bmi_size_t actual);
};

/* Waits up to idle_ms for operations of the context to complete and calls their done functions.
 * Returns the number of completed operations, or -BMI_E…. */
int pending_reap(bmi_context_id context, int idle_ms);

/* A control message of the benchmark, in the caller's memory. */
struct control {
    struct pending pending;
    bmi_context_id context;
    bmi_op_id_t id;
    bool busy;
    bool arrived;                          /* completed successfully since it was posted */
    int error;                             /* error of the completion; 0: none */
    bmi_size_t actual;                     /* bytes received */
    void (*then)(struct control *control); /* called at completion; may be NULL */
    void *arg;
};

/* Post a message. Both return 0 or -BMI_E…; immediate completion is handled like a later
 * one. */
int control_send(struct control *control, BMI_addr_t peer, const void *data, size_t size,
                 bmi_msg_tag_t tag, bool unexpected);
int control_receive(struct control *control, BMI_addr_t peer, void *data, size_t size,
                    bmi_msg_tag_t tag);
void control_cancel(struct control *control);

#endif
