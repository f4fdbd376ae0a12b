/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * perf_sessions ADDRESS: sends a bmi-perf server requests that it refuses, from one address:
 * more sessions than permitted, and an unknown job. Each must be answered within a few seconds.
 * bmi-perf itself never sends either. Exits with 0 if all answers are right, else with 1 and a
 * line for each wrong answer.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "bench/job.h"
#include "bench/pending.h"
#include "bench/session.h"

#define SESSIONS    16 /* MAX_OF_ADDRESS of bench/bmi_server.c */
#define PATIENCE_NS (UINT64_C(20) * 1000000000)

struct visit {
    struct control request, report;
    unsigned char request_wire[JOB_WIRE_SIZE], report_wire[REPORT_WIRE_SIZE];
};

/* Waits until the control message has ended; returns false on a timeout or error. */
static bool await(struct control *control)
{
    uint64_t deadline = clock_ns() + PATIENCE_NS;

    while (control->busy && clock_ns() < deadline)
        if (pending_reap(control->context, 100) < 0)
            return false;
    return control->arrived;
}

/* Returns whether the session's report has this error, an errno or 0. */
static bool answered(struct visit *visit, BMI_addr_t server, const struct job *job,
                     unsigned error)
{
    bmi_msg_tag_t tag = (bmi_msg_tag_t)job->tag;
    struct report said = {0};

    job_encode(job, visit->request_wire);
    if (control_receive(&visit->report, server, visit->report_wire, REPORT_WIRE_SIZE, tag) ||
        control_send(&visit->request, server, visit->request_wire, JOB_WIRE_SIZE,
                     SESSION_OPEN_TAG, true) ||
        !await(&visit->request) || !await(&visit->report) ||
        report_decode(&said, visit->report_wire, (size_t)visit->report.actual)) {
        printf("session %d is not answered\n", (int)tag);
        return false;
    }
    if (said.error != error)
        printf("session %d: %s instead of %s\n", (int)tag, strerror((int)said.error),
               strerror((int)error));
    return said.error == error;
}

int main(int argc, char **argv)
{
    static struct visit visit[SESSIONS + 4];
    struct job job = {.test = JOB_STREAM, .window = 1, .count = 1, .size = 8};
    bmi_context_id context;
    BMI_addr_t server;
    bool good = true;
    unsigned i;

    if (argc != 2 || BMI_initialize(NULL, NULL, 0, NULL) < 0 ||
        BMI_open_context(&context) < 0 || BMI_addr_lookup(&server, argv[1], NULL) < 0) {
        printf("usage: perf_sessions ADDRESS, of a server that is there\n");
        return 1;
    }
    for (i = 0; i < sizeof visit / sizeof visit[0]; i++) {
        visit[i].request.context = visit[i].report.context = context;
        job.tag = 2 + 2 * i;
        /* the first one is refused and uses no session; the others wait for their streams */
        job.test = i == 0 ? JOB_TESTS : JOB_STREAM;
        good &= answered(&visit[i], server, &job, i == 0 ? EINVAL : i > SESSIONS ? EUSERS : 0);
    }
    BMI_close_context(context);
    BMI_finalize();
    return !good;
}
