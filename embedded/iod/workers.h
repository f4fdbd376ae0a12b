/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* workers.h - threads that do what may block on a disk.  Jobs start in the order in which they
 * were added. */
#ifndef IOD_WORKERS_H
#define IOD_WORKERS_H

struct workers;

/* Something to run; part of the structure that it works on. */
struct job {
    void (*run)(struct job *job);
    struct job *next;
};

/* Starts `count` threads.  0 or -errno. */
int workers_start(int count, struct workers **out);

/* Adds a job, from any thread.  It must not be added again before it runs. */
void workers_add(struct workers *workers, struct job *job);

/* Runs all jobs, also those that running jobs add, then ends the threads and frees all. */
void workers_stop(struct workers *workers);

#endif
