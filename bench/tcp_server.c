/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The server over plain TCP: one thread per client, which requests one job after the other. */
#include "bench/tcp_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/budget.h"
#include "bench/exchange.h"
#include "bench/sockets.h"
#include "bench/tcp_exchange.h"
#include "bench/transport.h"
#include "embedded/program/program.h"

static int send_report(int fd, const struct report *report)
{
    unsigned char wire[REPORT_WIRE_SIZE];

    report_encode(report, wire);
    return sockets_send(fd, wire, sizeof wire);
}

static int do_phase(int fd, const struct job *job, struct tcp_exchange *exchange,
                    uint64_t number)
{
    struct report report = {.cpu_start = cpu_ns()};
    char go;
    int rc = exchange_needs_go(job) ? sockets_receive(fd, &go, 1) : 0;

    if (!rc)
        rc = tcp_exchange_phase(exchange, number);
    report.cpu_end = cpu_ns();
    report.bad = tcp_exchange_bad(exchange);
    return rc ? rc : send_report(fd, &report);
}

/* Serves one job; non-zero if the client disconnected or violated the protocol. */
static int do_job(int fd, struct budget *budget)
{
    unsigned char wire[JOB_WIRE_SIZE];
    struct tcp_exchange *exchange;
    struct report report = {0};
    struct job job;
    int rc = sockets_wait(fd);

    if (!rc)
        rc = sockets_receive(fd, wire, sizeof wire);
    if (!rc)
        rc = job_decode(&job, wire, sizeof wire);
    if (rc)
        return rc;
    if (!budget_take(budget, job_memory(&job))) {
        report.error = ENOBUFS;
        send_report(fd, &report);
        return -1;
    }
    rc = tcp_exchange_new(fd, &job, true, &exchange);
    report.error = (uint64_t)-rc;
    if (send_report(fd, &report) || rc) {
        if (!rc)
            tcp_exchange_free(exchange);
        budget_give(budget, job_memory(&job));
        return -1;
    }
    if (job.warm)
        rc = do_phase(fd, &job, exchange, 0);
    if (!rc)
        rc = do_phase(fd, &job, exchange, 1);
    tcp_exchange_free(exchange);
    budget_give(budget, job_memory(&job));
    return rc;
}

static void serve(int fd, void *arg)
{
    while (!do_job(fd, arg))
        ;
}

int tcp_serve(const char *address, uint64_t memory, char *why)
{
    struct budget *budget =
        calloc(1, sizeof *budget); /* not freed: used by threads that outlive the listener */
    int fd, rc = budget ? sockets_listen(address, &fd) : -ENOMEM;

    if (rc) {
        snprintf(why, WHY_SIZE, "%s: cannot listen: %s", address, strerror(-rc));
        free(budget);
        return -1;
    }
    budget->limit = memory;
    printf("listening on %s, port %d\n", address, sockets_port(fd));
    fflush(stdout);
    program_notify("READY=1\nSTATUS=listening on %s, port %d", address, sockets_port(fd));
    sockets_serve(fd, serve, budget);
    close(fd);
    return 0;
}
