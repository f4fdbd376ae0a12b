/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * gang.h - processes that go through the same steps together: nobody begins a step before all
 * have come to the end of the one before.
 *
 * Whatever fails ends the process, as ends.h says.
 */
#ifndef BENCH_GANG_H
#define BENCH_GANG_H

#include <stdint.h>
#include <sys/types.h>

#define GANG_STEPS 4

struct gang {
    unsigned processes; /* the caller's; the rest is gang.c's */
    unsigned step;
    int said[2], go[GANG_STEPS][2]; /* one for each: nobody takes another one's word to go on */
    pid_t *pid;
};

/* Starts the processes.  Each calls `run` with its part of `total`, and ends when it returns
 * or the caller's process ends. */
void gang_start(struct gang *g, unsigned total,
                void (*run)(struct gang *g, unsigned part, const void *arg), const void *arg);
/* In a process: a step is over, and it has this to say.  Returns when the next may begin. */
void gang_step_over(struct gang *g, uint64_t word);
/* Waits until all are at the end of their step: the sum of what they say. */
uint64_t gang_all_over(const struct gang *g);
/* Lets all begin the next step, and waits for its end. */
uint64_t gang_next_step(struct gang *g);
/* Kills all of them and waits for their deaths. */
void gang_end(struct gang *g);

#endif
