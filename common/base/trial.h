/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How long something takes: the best of a few runs.  Of several things that are compared a
 * round takes each once, so that a disturbance meets all of them.
 */
#ifndef RME_TRIAL_H
#define RME_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

struct rme_trial {
    uint32_t things;
    uint32_t unseen; /* rounds at first that do not count */
    uint32_t least;  /* rounds that count, however long they take; at least 1 */
    uint32_t most;
    uint64_t until; /* ns of rme_now_ns(): no other round begins after it */
};

/* Does a thing once.  Returns the nanoseconds that it took, at least 1; 0: it failed. */
typedef uint64_t rme_trial_run(void *arg, uint32_t thing);

/* The best time of each thing, in nanoseconds.  A run that fails ends it: false, and `best` is
 * worth nothing. */
bool rme_trial(const struct rme_trial *trial, rme_trial_run *run, void *arg, uint64_t *best);

#endif
