/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/timer.h"
#include "base/trial.h"

/* Runs one round; counted rounds keep the better times. */
static bool take_each(const struct rme_trial *trial, rme_trial_run *run, void *arg, bool first,
                      uint64_t *best)
{
    for (uint32_t thing = 0; thing < trial->things; thing++) {
        uint64_t took = run(arg, thing);

        if (took == 0)
            return false;
        if (first || took < best[thing])
            best[thing] = took;
    }
    return true;
}

bool rme_trial(const struct rme_trial *trial, rme_trial_run *run, void *arg, uint64_t *best)
{
    for (uint32_t round = 0; round < trial->unseen; round++)
        if (!take_each(trial, run, arg, true, best))
            return false;
    for (uint32_t round = 0; round < trial->most; round++) {
        if (round >= trial->least && rme_now_ns() >= trial->until)
            break;
        if (!take_each(trial, run, arg, round == 0, best))
            return false;
    }
    return true;
}
