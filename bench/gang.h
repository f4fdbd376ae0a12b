/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * gang.h - processes that execute the same steps together: a step begins when all processes
 * have completed the previous one.
 *
 * A failure ends the process, as described in ends.h.
 */
#ifndef BENCH_GANG_H
#define BENCH_GANG_H

#include <stdint.h>
#include <sys/types.h>

#define GANG_STEPS 4

struct gang {
    unsigned processes; /* set by the caller; the other fields by gang.c */
    unsigned step;
    /* go: one pipe per step, so that no process takes another one's word */
    int said[2], go[GANG_STEPS][2];
    pid_t *pid;
};

/* Starts the processes. Each calls `run` with its part of `total`, and ends when `run` returns
 * or the caller's process ends. */
void gang_start(struct gang *g, unsigned total,
                void (*run)(struct gang *g, unsigned part, const void *arg), const void *arg);
/* Called in a process: reports `word` at the end of a step; returns when the next step may
 * begin. */
void gang_step_over(struct gang *g, uint64_t word);
/* Waits until all have completed their step; returns the sum of their words. */
uint64_t gang_all_over(const struct gang *g);
/* Starts the next step, and waits for its end. */
uint64_t gang_next_step(struct gang *g);
/* Kills all processes and waits for their exit. */
void gang_end(struct gang *g);

#endif
