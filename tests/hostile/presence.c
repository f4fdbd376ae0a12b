/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attacks by the presence and number of links, and by jobs of bmi-perf's server. */
#include "attack.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench/job.h"
#include "bench/session.h"

#define SILENT 32
#define LINKS  1000
#define TAG    0x40000000

/* Opens links that send nothing, link requests that are closed unanswered, and link requests
 * that stay open with their answers ignored. */
void attack_silent(struct attack *a)
{
    struct link *up[SILENT] = {0}, *half[SILENT] = {0};
    int error;

    for (unsigned i = 0; i < SILENT; i++) {
        up[i] = attack_open(a, &(struct link_plan){0});
        half[i] = link_begin(&a->target, &(struct link_plan){0}, &error);
        if (i % 3 == 0)
            usleep(1000);
        if (i % 3 < 2) {
            link_drop(half[i]);
            half[i] = NULL;
        }
    }
    while (!attack_over(a) && a->round % 2 == 1)
        usleep(10000);
    for (unsigned i = 0; i < SILENT; i++) {
        link_drop(up[i]);
        link_drop(half[i]);
    }
}

void attack_storm(struct attack *a)
{
    struct link *link = attack_open(a, &(struct link_plan){0});

    if (a->round % 2 == 0)
        link_close(link);
    else
        link_drop(link);
}

/* Sends some messages of every kind, and a last one that is valid, invalid or missing. */
static void misbehave(struct attack *a, struct link *link, unsigned n)
{
    static const uint8_t rubbish[LINK_MESSAGE] = {0xff, 1, 2, 3};
    struct rme_wire_message m = {
        .type = RME_WIRE_RTS, .from = 1 + n, .tag = TAG, .total = 1 << 20};

    attack_say(a, link, &m);
    m.flags = RME_WIRE_F_UNEXPECTED;
    m.total = 5000;
    attack_say(a, link, &m);
    m = (struct rme_wire_message){.type = RME_WIRE_EAGER, .tag = TAG};
    if (link_say(link, &m, NULL, rubbish, 3000) == 0)
        a->messages++;
    m = (struct rme_wire_message){
        .type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED, .tag = 1};
    if (link_say(link, &m, NULL, rubbish, 3000) == 0)
        a->messages++;
    if (n % 3 == 0) {
        link_send_bytes(link, rubbish, 1);
    } else if (n % 3 == 1) {
        m = (struct rme_wire_message){.type = RME_WIRE_BYE};
        attack_say(a, link, &m);
    }
    if (n % 2 == 0)
        link_drop(link);
    else
        link_close(link);
}

/* Opens all links at once, as far as the server accepts them, and closes them all. The round
 * ends by number, not by time. */
void attack_links(struct attack *a)
{
    enum { AT_ONCE = 100 };
    struct link *link[AT_ONCE];

    for (unsigned n = 0; n < LINKS; n += AT_ONCE) {
        for (unsigned i = 0; i < AT_ONCE; i++)
            link[i] = attack_open(a, &(struct link_plan){0});
        for (unsigned i = 0; i < AT_ONCE; i++)
            if (link[i] != NULL)
                misbehave(a, link[i], n + i);
    }
    a->deadline = 0;
}

/* ---- Processes ---- */

/* Opens links, sends requests, and is killed. */
void attack_leaver(struct attack *a)
{
    enum { EACH = 8 };
    struct rme_wire_message m = {.type = RME_WIRE_RTS, .tag = TAG, .total = 1 << 20};

    for (unsigned i = 0; i < EACH; i++) {
        struct link *link = attack_open(a, &(struct link_plan){0});

        for (m.from = 1; link != NULL && m.from <= 3; m.from++)
            attack_say(a, link, &m);
    }
    raise(SIGKILL);
}

void attack_deaths(struct attack *a)
{
    enum { DOZEN = 12 };
    char *argv[] = {"hostile",
                    "leaver",
                    a->victim == VICTIM_IOD ? "iod" : "perf",
                    (char *)(uintptr_t)a->address,
                    "0",
                    NULL};
    pid_t pid[DOZEN];
    int status;

    for (unsigned i = 0; i < DOZEN; i++)
        if (posix_spawn(&pid[i], "/proc/self/exe", NULL, NULL, argv, environ) != 0)
            pid[i] = 0;
    for (unsigned i = 0; i < DOZEN; i++)
        if (pid[i] == 0 || waitpid(pid[i], &status, 0) < 0 || !WIFSIGNALED(status))
            complain(a, "a process that was to be killed was not");
    link_close(attack_enter(a)); /* the server may detect the deaths one after the other */
}

/* ---- Jobs of bmi-perf ---- */

/* Makes a job within the server's limits that uses them fully. */
static struct job greedy_job(unsigned n)
{
    switch (n % 4) {
    case 0: /* two messages of 1 GiB */
        return (struct job){
            .test = JOB_STREAM, .size = 1 << 30, .count = 100, .window = 2, .tag = 2};
    case 1: /* a message of 2^28 operations */
        return (struct job){.test = JOB_STREAM,
                            .size = 1 << 28,
                            .count = 100,
                            .window = 4,
                            .extent = 1,
                            .stride = 1,
                            .split = 1,
                            .tag = 2};
    case 2: /* 4096 messages with a buffer between them */
        return (struct job){.test = JOB_STREAM,
                            .direction = JOB_BOTH,
                            .size = 1 << 20,
                            .count = 100,
                            .window = 4096,
                            .buffers = 1,
                            .extent = 4096,
                            .stride = 4096,
                            .split = 1,
                            .tag = 2};
    default: /* memory from BMI_memalloc */
        return (struct job){.test = JOB_STREAM,
                            .direction = JOB_BOTH,
                            .memory = JOB_BMI,
                            .size = 1 << 25,
                            .count = 100,
                            .window = 32,
                            .tag = 2};
    }
}

void attack_jobs(struct attack *a)
{
    struct link *link[16];
    unsigned char wire[JOB_WIRE_SIZE];

    for (unsigned i = 0; i < 16; i++) {
        struct job job = greedy_job(i);
        struct rme_wire_message m = {
            .type = RME_WIRE_EAGER, .flags = RME_WIRE_F_UNEXPECTED, .tag = SESSION_OPEN_TAG};

        job_encode(&job, wire);
        link[i] = attack_open(a, &(struct link_plan){0});
        if (link[i] != NULL && link_say(link[i], &m, NULL, wire, sizeof wire) == 0)
            a->messages++;
    }
    for (int i = 0; i < 100 && !attack_over(a); i++)
        usleep(10000);
    for (unsigned i = 0; i < 16; i++)
        link_close(link[i]);
}
