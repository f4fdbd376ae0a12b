/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* workers.h - threads that do what may block on a disk.  Jobs of one turn start in the order in
 * which they were added; turns with jobs alternate, one job each, so that whoever adds many
 * delays nobody else's.  Long jobs have half of the threads, those of all turns together. */
#ifndef IOD_WORKERS_H
#define IOD_WORKERS_H

#include <stdbool.h>

struct workers;

/* Jobs that wait, of one origin.  Zeroed at first; outlives them. */
struct turn {
    struct job *first, *last;
    struct turn *next;
};

/* Something to run; part of the structure that it works on. */
struct job {
    void (*run)(struct job *job);
    struct turn *turn; /* NULL: the one that all such share */
    bool is_long;      /* keeps a thread for as long as many others together */
    struct job *next;
};

/* Starts `count` threads.  0 or -errno. */
int workers_start(int count, struct workers **out);

/* Adds a job, from any thread.  It must not be added again before it runs. */
void workers_add(struct workers *workers, struct job *job);

/* Runs all jobs, also those that running jobs add, then ends the threads and frees all. */
void workers_stop(struct workers *workers);

#endif
