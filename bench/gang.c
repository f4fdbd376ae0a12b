/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench/ends.h"
#include "bench/gang.h"

enum { NICER = 10 };

void gang_step_over(struct gang *g, uint64_t word)
{
    char go;

    if (write(g->said[1], &word, sizeof(word)) != sizeof(word) ||
        read(g->go[g->step++][0], &go, 1) != 1)
        _exit(1);
}

uint64_t gang_all_over(const struct gang *g)
{
    uint64_t sum = 0, word;

    for (unsigned i = 0; i < g->processes; i++) {
        if (read(g->said[0], &word, sizeof(word)) != sizeof(word))
            ends_die("a process of clients", ECHILD);
        sum += word;
    }
    return sum;
}

uint64_t gang_next_step(struct gang *g)
{
    char go = 0;

    for (unsigned i = 0; i < g->processes; i++)
        if (write(g->go[g->step][1], &go, 1) != 1)
            ends_die("a process of clients", errno);
    g->step++;
    return gang_all_over(g);
}

void gang_start(struct gang *g, unsigned total,
                void (*run)(struct gang *g, unsigned part, const void *arg), const void *arg)
{
    g->pid = calloc(g->processes, sizeof(*g->pid));
    if (!g->pid)
        ends_die("processes", ENOMEM);
    if (pipe(g->said) < 0)
        ends_die("a pipe", errno);
    for (unsigned i = 0; i < GANG_STEPS; i++)
        if (pipe(g->go[i]) < 0)
            ends_die("a pipe", errno);
    for (unsigned i = 0; i < g->processes; i++) {
        g->pid[i] = fork();
        if (g->pid[i] < 0)
            ends_die("a process", errno);
        if (g->pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            errno = 0;
            /* elsewhere the server has its own machine */
            if (nice(NICER) == -1 && errno != 0)
                ends_die("nice", errno);
            close(g->said[0]);
            run(g, total / g->processes + (i < total % g->processes), arg);
            _exit(0);
        }
    }
    close(g->said[1]);
}

void gang_end(struct gang *g)
{
    for (unsigned i = 0; i < g->processes; i++)
        ends_stop(g->pid[i]);
    close(g->said[0]);
    for (unsigned i = 0; i < GANG_STEPS; i++) {
        close(g->go[i][0]);
        close(g->go[i][1]);
    }
    free(g->pid);
    g->pid = NULL;
}
