/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Measures durations as the best of a few runs.  Several things are compared in rounds of one
 * run each, so that a disturbance affects all of them. */
#ifndef RME_TRIAL_H
#define RME_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

struct rme_trial {
    uint32_t things;
    uint32_t unseen; /* first rounds that are not counted */
    uint32_t least;  /* minimum of counted rounds, made even after `until`; at least 1 */
    uint32_t most;
    uint64_t until; /* ns of rme_now_ns(), after which no round begins */
};

/* Runs a thing once.  Returns the duration in ns, at least 1; 0: failed. */
typedef uint64_t rme_trial_run(void *arg, uint32_t thing);

/* Measures the best time of each thing in ns.  False: a run failed, and `best` is invalid. */
bool rme_trial(const struct rme_trial *trial, rme_trial_run *run, void *arg, uint64_t *best);

#endif
