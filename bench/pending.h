/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations under way and what happens when they end.  Every operation that the benchmark
 * posts has a struct pending as its user pointer, so one loop can serve all of them.  One
 * thread per context.
 */
#ifndef BENCH_PENDING_H
#define BENCH_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include "embedded/bmi/bmi.h"

struct pending {
    void (*done)(struct pending *pending, bmi_error_code_t error, bmi_size_t actual);
};

/*
 * Waits up to idle_ms for operations of the context to end and calls their done functions.
 * Returns how many ended, or -BMI_E….
 */
int pending_reap(bmi_context_id context, int idle_ms);

/* A single message of the benchmark's own protocol, in memory of the caller. */
struct control {
    struct pending pending;
    bmi_context_id context;
    bmi_op_id_t id;
    bool busy;
    bool arrived;                          /* ended well since it was posted last */
    int error;                             /* ended badly */
    bmi_size_t actual;                     /* bytes received */
    void (*then)(struct control *control); /* called at the end, good or bad; may be NULL */
    void *arg;
};

/* Post it.  Both return 0 or -BMI_E…; a message that ends at once is treated as if it had ended
 * later. */
int control_send(struct control *control, BMI_addr_t peer, const void *data, size_t size,
                 bmi_msg_tag_t tag, bool unexpected);
int control_receive(struct control *control, BMI_addr_t peer, void *data, size_t size,
                    bmi_msg_tag_t tag);
void control_cancel(struct control *control);

#endif
