/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Operations in flight; see pending.h. */
#include "bench/pending.h"

#define BATCH 64

int pending_reap(bmi_context_id context, int idle_ms)
{
    bmi_op_id_t id[BATCH];
    bmi_error_code_t error[BATCH];
    bmi_size_t actual[BATCH];
    void *user[BATCH];
    int i, rc, count = 0;

    rc = BMI_testcontext(BATCH, id, &count, error, actual, user, idle_ms, context);
    if (rc < 0)
        return rc;
    for (i = 0; i < count; i++) {
        struct pending *pending = user[i];
        pending->done(pending, error[i], actual[i]);
    }
    return count;
}

static void control_done(struct pending *pending, bmi_error_code_t error, bmi_size_t actual)
{
    struct control *control = (struct control *)pending;

    control->busy = false;
    control->arrived = !error;
    control->error = error;
    control->actual = actual;
    if (control->then != NULL)
        control->then(control);
}

static void prepare(struct control *control)
{
    control->pending.done = control_done;
    control->busy = true;
    control->arrived = false;
    control->error = 0;
}

/* Handles the result of a post: 0: in flight, 1: completed in the call, negative: failed. */
static int posted(struct control *control, int rc, bmi_size_t actual)
{
    if (rc > 0) {
        control_done(&control->pending, 0, actual);
        return 0;
    }
    if (rc < 0)
        control->busy = false;
    return rc;
}

int control_send(struct control *control, BMI_addr_t peer, const void *data, size_t size,
                 bmi_msg_tag_t tag, bool unexpected)
{
    int rc;

    prepare(control);
    if (unexpected)
        rc = BMI_post_sendunexpected(&control->id, peer, data, (bmi_size_t)size, BMI_EXT_ALLOC,
                                     tag, control, control->context, NULL);
    else
        rc = BMI_post_send(&control->id, peer, data, (bmi_size_t)size, BMI_EXT_ALLOC, tag,
                           control, control->context, NULL);
    return posted(control, rc, (bmi_size_t)size);
}

int control_receive(struct control *control, BMI_addr_t peer, void *data, size_t size,
                    bmi_msg_tag_t tag)
{
    bmi_size_t actual = 0;
    int rc;

    prepare(control);
    rc = BMI_post_recv(&control->id, peer, data, (bmi_size_t)size, &actual, BMI_EXT_ALLOC, tag,
                       control, control->context, NULL);
    return posted(control, rc, actual);
}

void control_cancel(struct control *control)
{
    if (control->busy)
        BMI_cancel(control->id, control->context);
}
