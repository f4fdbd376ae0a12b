/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench/transport.h"

#include <string.h>

int outcome_time(struct outcome *outcome, phase_fn phase, void *state, char *why)
{
    uint64_t cpu = cpu_ns();

    memset(outcome, 0, sizeof *outcome);
    outcome->start = clock_ns();
    if (phase(state, 1, why))
        return -1;
    outcome->end = clock_ns();
    outcome->cpu = cpu_ns() - cpu;
    return 0;
}

void outcome_add(struct outcome *outcome, const struct job *job, unsigned server,
                 const struct report *said, uint64_t bad)
{
    outcome->server_cpu_start[server] = said->cpu_start;
    outcome->server_cpu_end[server] = said->cpu_end;
    outcome->bad += said->bad + bad;
    outcome->messages += job->count;
    outcome->bytes += job_bytes(job);
}
