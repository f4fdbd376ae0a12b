/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* workers.h - threads for work that may block on a disk.  Jobs start in the order of their
 * addition. */
#ifndef IOD_WORKERS_H
#define IOD_WORKERS_H

#include <stdbool.h>

struct workers;

/* Job, a member of the structure that it works on. */
struct job {
    void (*run)(struct job *job);
    struct job *next;
};

/* Starts `count` threads.  Returns 0 or -errno. */
int workers_start(int count, struct workers **out);

/* Adds a job.  Any thread.  The job must not be added again before it runs. */
void workers_add(struct workers *workers, struct job *job);

/* Runs all jobs, including those added by running jobs, then ends the threads and frees
 * everything. */
void workers_stop(struct workers *workers);

#endif
