/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/ends.h"
#include "bmi_ib/bmi_ib.h"

void ends_die(const char *what, int error)
{
    fprintf(stderr, "%s: %s: %s\n", ends_program, what, strerror(error < 0 ? -error : error));
    exit(1);
}

double ends_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level <= RME_LOG_WARN)
        fprintf(stderr, "%s: %s\n", ends_program, line);
}

struct rme *ends_open(const struct rme_addr *listen, const char *options)
{
    struct rme_config config = {
        .fabric = bmi_ib_fabric(), .listen = listen, .options = options, .log = log_line};
    struct rme *rme;
    int error = rme_open(&config, &rme);

    if (!error)
        error = rme_context_open(rme, 0);
    if (error)
        ends_die("cannot open an engine", error);
    return rme;
}

struct rme_addr *ends_address(const char *text)
{
    struct rme_addr *addr;
    int error = rme_addr_parse("ib", text, &addr);

    if (error)
        ends_die(text, error);
    return addr;
}

pid_t ends_start_server(const char *options, void (*serve)(struct rme *rme), int *port)
{
    int fd[2];
    pid_t pid = -1;

    if (pipe(fd) < 0 || (pid = fork()) < 0)
        ends_die("a server", errno);
    if (pid == 0) {
        struct rme_addr *addr = ends_address("ib://127.0.0.1:0");
        struct rme *rme;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fd[0]);
        rme = ends_open(addr, options);
        rme_addr_free(addr);
        *port = rme_listen_port(rme);
        if (write(fd[1], port, sizeof(*port)) != sizeof(*port))
            _exit(1);
        close(fd[1]);
        serve(rme);
        _exit(1);
    }
    close(fd[1]);
    if (read(fd[0], port, sizeof(*port)) != sizeof(*port))
        ends_die("the server", ECHILD);
    close(fd[0]);
    return pid;
}

void ends_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

uint64_t ends_number(const char *text, uint64_t unset, uint64_t most)
{
    char *end;
    unsigned long long n = text ? strtoull(text, &end, 10) : unset;

    if (n == 0 || n > most || (text && *end)) {
        fprintf(stderr, "%s: %s is not a number from 1 to %llu\n", ends_program,
                text ? text : "", (unsigned long long)most);
        exit(2);
    }
    return n;
}
