/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* workers.h - threads for work that may block on a disk.  Jobs of a turn start in the order of
 * their addition; turns alternate, one job each, so that many jobs of one turn do not delay
 * others.  Long jobs use at most half of the threads. */
#ifndef IOD_WORKERS_H
#define IOD_WORKERS_H

#include <stdbool.h>

struct workers;

/* Queue of jobs of one origin.  Initially zero; outlives its jobs. */
struct turn {
    struct job *first, *last;
    struct turn *next;
};

/* Job, a member of the structure that it works on. */
struct job {
    void (*run)(struct job *job);
    struct turn *turn; /* NULL: the common turn */
    bool is_long;      /* occupies a thread for as long as many other jobs */
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
