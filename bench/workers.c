/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Client processes; see workers.h. */
#include "bench/workers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench/session.h"
#include "bench/sockets.h"

enum order { ORDER_PREPARE, ORDER_RUN, ORDER_COUNTERS };

/* Sent by the parent. */
struct command {
    enum order order;
    enum side side;
    struct job job;
    struct part part;
    int server;
};

/* Sent by a child. */
struct answer {
    int failed;
    char why[WHY_SIZE];
    struct outcome outcome;
    char text[SESSION_TEXT_MAX];
};

struct worker {
    pid_t pid;
    int fd; /* socket of the child */
};

struct workers {
    struct workers_config config;
    unsigned count;
    struct worker worker[];
};

/* ---- The child ---- */

struct child {
    const struct workers_config *config;
    bool first; /* gets the counters for all clients */
    const struct transport *transport[SIDES];
    void *state[SIDES]; /* NULL until needed */
};

static int child_open(struct child *child, enum side side, char *why)
{
    int rc;

    if (child->state[side] != NULL)
        return 0;
    rc = child->transport[side]->open(child->config->servers[side], child->config->count[side],
                                      child->config->options, &child->state[side], why);
    if (!rc && side == SIDE_BMI && child->first)
        bmi_warn_ignored(child->config->options);
    return rc;
}

static int obey(struct child *child, const struct command *command, struct answer *answer)
{
    const struct transport *transport = child->transport[command->side];
    int rc = child_open(child, command->side, answer->why);

    if (rc)
        return rc;
    switch (command->order) {
    case ORDER_PREPARE:
        return transport->prepare(child->state[command->side], &command->job, command->part,
                                  answer->why);
    case ORDER_RUN:
        return transport->run(child->state[command->side], &answer->outcome, answer->why);
    case ORDER_COUNTERS:
        return transport->counters(child->state[command->side], command->server, answer->text,
                                   sizeof answer->text, answer->why);
    }
    return -1;
}

static int child_main(const struct workers_config *config, bool first, int fd)
{
    struct child child = {
        .config = config, .first = first, .transport = {&bmi_transport, &tcp_transport}};
    struct answer *answer = calloc(1, sizeof *answer);
    struct command command;
    int side;

    while (answer != NULL && !sockets_receive(fd, &command, sizeof command)) {
        memset(answer, 0, sizeof *answer);
        answer->failed = obey(&child, &command, answer);
        if (sockets_send(fd, answer, sizeof *answer) || answer->failed)
            break;
    }
    free(answer);
    for (side = 0; side < SIDES; side++)
        if (child.state[side] != NULL)
            child.transport[side]->close(child.state[side]);
    close(fd);
    return 0;
}

/* ---- The parent ---- */

static int start_one(struct workers *workers, char *why)
{
    struct worker *worker = &workers->worker[workers->count];
    pid_t parent = getpid();
    unsigned i;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
        snprintf(why, WHY_SIZE, "cannot start client %u: %s", workers->count, strerror(errno));
        return -1;
    }
    fflush(NULL);
    worker->pid = fork();
    if (worker->pid < 0) {
        snprintf(why, WHY_SIZE, "cannot start client %u: %s", workers->count, strerror(errno));
        close(pair[0]);
        close(pair[1]);
        return -1;
    }
    if (!worker->pid) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* no client survives the parent */
        if (getppid() != parent)
            _exit(1);
        for (i = 0; i < workers->count; i++)
            close(workers->worker[i].fd);
        close(pair[0]);
        _exit(child_main(&workers->config, workers->count == 0, pair[1]));
    }
    close(pair[1]);
    worker->fd = pair[0];
    workers->count++;
    return 0;
}

int workers_start(const struct workers_config *config, struct workers **out, char *why)
{
    struct workers *workers =
        calloc(1, sizeof *workers + config->clients * sizeof workers->worker[0]);
    unsigned i;

    *out = workers;
    if (workers == NULL) {
        snprintf(why, WHY_SIZE, "out of memory");
        return -1;
    }
    workers->config = *config;
    for (i = 0; i < config->clients; i++)
        if (start_one(workers, why))
            return -1;
    return 0;
}

void workers_stop(struct workers *workers)
{
    unsigned i;

    if (workers == NULL)
        return;
    for (i = 0; i < workers->count; i++)
        close(workers->worker[i].fd); /* ends a child that waits for a command */
    for (i = 0; i < workers->count; i++) {
        int tries = 50;
        while (tries-- && waitpid(workers->worker[i].pid, NULL, WNOHANG) == 0)
            usleep(20000);
        if (tries < 0) { /* ends a child that waits for a server */
            kill(workers->worker[i].pid, SIGTERM);
            waitpid(workers->worker[i].pid, NULL, 0);
        }
    }
    free(workers);
}

static int order(struct workers *workers, unsigned i, const struct command *command, char *why)
{
    if (!sockets_send(workers->worker[i].fd, command, sizeof *command))
        return 0;
    snprintf(why, WHY_SIZE, "client %u has died", i);
    return -1;
}

static int collect(struct workers *workers, unsigned i, struct answer *answer, char *why)
{
    if (sockets_receive(workers->worker[i].fd, answer, sizeof *answer)) {
        snprintf(why, WHY_SIZE, "client %u died", i);
        return -1;
    }
    if (answer->failed)
        snprintf(why, WHY_SIZE, "%s", answer->why);
    return answer->failed;
}

/* Returns the servers used by client `i`: one in a ping-pong, else all, each client starting
 * with another one. */
static struct part part_of(const struct workers *workers, const struct command *command,
                           unsigned i)
{
    unsigned count = workers->config.count[command->side];

    return (struct part){i % count, command->job.test == JOB_PINGPONG ? 1 : count};
}

static void add(struct outcome *total, const struct outcome *one, bool first)
{
    int i;

    total->start = first || one->start < total->start ? one->start : total->start;
    total->end = one->end > total->end ? one->end : total->end;
    total->messages += one->messages;
    total->bytes += one->bytes;
    total->bad += one->bad;
    total->cpu += one->cpu;
    latency_add(&total->latency, &one->latency);
    for (i = 0; i < MAX_SERVERS; i++) {
        if (!one->server_cpu_end[i])
            continue;
        if (!total->server_cpu_end[i] || one->server_cpu_start[i] < total->server_cpu_start[i])
            total->server_cpu_start[i] = one->server_cpu_start[i];
        if (one->server_cpu_end[i] > total->server_cpu_end[i])
            total->server_cpu_end[i] = one->server_cpu_end[i];
    }
}

int workers_run(struct workers *workers, enum side side, const struct job *job,
                struct outcome *total, char *why)
{
    struct command command = {.side = side, .job = *job};
    struct answer *answer = malloc(sizeof *answer);
    int rc = answer != NULL ? 0 : -1;
    unsigned i;

    memset(total, 0, sizeof *total);
    for (command.order = ORDER_PREPARE; !rc && command.order <= ORDER_RUN; command.order++) {
        for (i = 0; !rc && i < workers->count; i++) {
            command.part = part_of(workers, &command, i);
            rc = order(workers, i, &command, why);
        }
        for (i = 0; !rc && i < workers->count; i++) {
            rc = collect(workers, i, answer, why);
            if (!rc && command.order == ORDER_RUN)
                add(total, &answer->outcome, i == 0);
        }
    }
    free(answer);
    return rc;
}

int workers_counters(struct workers *workers, int server, char *text, size_t size, char *why)
{
    struct command command = {.order = ORDER_COUNTERS, .side = SIDE_BMI, .server = server};
    struct answer *answer = malloc(sizeof *answer);
    int rc = answer != NULL ? order(workers, 0, &command, why) : -1;

    if (!rc)
        rc = collect(workers, 0, answer, why);
    if (!rc)
        snprintf(text, size, "%s", answer->text);
    free(answer);
    return rc;
}
