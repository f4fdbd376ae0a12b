/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many clients of one server over ib://:
 *
 *   crowd [--options LIST] [CLIENTS [PROCESSES [SECONDS]]]
 *
 * CLIENTS (10000) engines in PROCESSES (10) connect to one server at the same time; each asks,
 * and all must be answered.  Then all ask once more, one after another in each process.  Then
 * they are silent for SECONDS (5).  Prints how long that took, what memory the server keeps for
 * each client, what of a processor it uses while all are silent, and what one client's request
 * takes alone and among them.
 */
#include "bmi_ib/bmi_ib.h"
#include "rme.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST = 1, REPLY = 2, TIMES = 4000 };

/* What each process says when it has come to the end of a step, and waits for the next. */
struct gang {
    unsigned processes, step;
    int said[2], go[3][2]; /* one for each step: nobody takes another one's word to go on */
};

struct client {
    struct rme *rme;
    struct rme_addr *server;
    rme_id reply;
    bool answered;
};

static void die(const char *what, int error)
{
    fprintf(stderr, "crowd: %s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(1);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level <= RME_LOG_WARN)
        fprintf(stderr, "crowd: %s\n", line);
}

static struct rme *open_engine(const struct rme_addr *listen, const char *options)
{
    struct rme_config config = {
        .fabric = bmi_ib_fabric(), .listen = listen, .options = options, .log = log_line};
    struct rme *rme;
    int error = rme_open(&config, &rme);

    if (!error)
        error = rme_context_open(rme, 0);
    if (error)
        die("cannot open an engine", error);
    return rme;
}

static struct rme_addr *address(const char *text)
{
    struct rme_addr *addr;
    int error = rme_addr_parse("ib", text, &addr);

    if (error)
        die(text, error);
    return addr;
}

/* A step is over; `again`: requests to connect that were made once more. */
static void step_over(struct gang *g, uint64_t again)
{
    char go;

    if (write(g->said[1], &again, sizeof(again)) != sizeof(again) ||
        read(g->go[g->step++][0], &go, 1) != 1)
        _exit(1);
}

/* Waits until all processes have come to the end of their step. */
static uint64_t all_over(const struct gang *g)
{
    uint64_t sum = 0, again;

    for (unsigned i = 0; i < g->processes; i++) {
        if (read(g->said[0], &again, sizeof(again)) != sizeof(again))
            die("a process of clients", ECHILD);
        sum += again;
    }
    return sum;
}

/* Lets all processes go on. */
static uint64_t next_step(struct gang *g)
{
    char go = 0;

    for (unsigned i = 0; i < g->processes; i++)
        if (write(g->go[g->step][1], &go, 1) != 1)
            die("a process of clients", errno);
    g->step++;
    return all_over(g);
}

/* ---- The server ---- */

static void serve(struct rme *rme)
{
    static char text[64];
    void *base = text;
    int64_t length = sizeof(text);
    struct rme_list list = {.base = &base, .length = &length, .count = 1};

    for (;;) {
        struct rme_unexpected u;
        struct rme_done done[16];
        rme_id id;

        while (rme_test_unexpected(rme, &u, 1, 0) == 1) {
            int error = rme_post_send(rme, u.addr, &list, REPLY, 0, NULL, &id);

            if (error < 0 && error != -ECONNRESET)
                die("a reply", error);
            rme_unexpected_free(rme, u.buffer);
        }
        rme_test_context(rme, 0, done, 16, 1000);
    }
}

static pid_t start_server(const char *options, int *port)
{
    int fd[2];
    pid_t pid = -1;

    if (pipe(fd) < 0 || (pid = fork()) < 0)
        die("a server", errno);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct rme *rme = open_engine(address("ib://127.0.0.1:0"), options);

        *port = rme_listen_port(rme);
        if (write(fd[1], port, sizeof(*port)) != sizeof(*port))
            _exit(1);
        serve(rme);
    }
    close(fd[1]);
    if (read(fd[0], port, sizeof(*port)) != sizeof(*port))
        die("the server", ECHILD);
    close(fd[0]);
    return pid;
}

/* ---- Clients ---- */

static void ask(struct client *c)
{
    static char text[64], in[64];
    void *base = text, *to = in;
    int64_t length = sizeof(text);
    struct rme_list request = {.base = &base, .length = &length, .count = 1};
    struct rme_list reply = {.base = &to, .length = &length, .count = 1};
    rme_id id;
    int error = rme_post_recv(c->rme, c->server, &reply, REPLY, 0, c, NULL, &c->reply);

    if (!error)
        error = rme_post_unexpected(c->rme, c->server, &request, REQUEST, 0, NULL, &id);
    if (error < 0)
        die("a request", error);
    c->answered = false;
}

/* Is the answer there?  False as well when it never will be: it was complained of. */
static bool look(struct client *c, int wait_ms)
{
    struct rme_done done;

    while (!c->answered && rme_test_context(c->rme, 0, &done, 1, wait_ms) == 1) {
        if (done.error)
            die("a request", done.error);
        c->answered = done.user == c;
    }
    return c->answered;
}

static void all_ask(struct client *client, unsigned n)
{
    unsigned left = n;

    for (unsigned i = 0; i < n; i++)
        ask(&client[i]);
    while (left) {
        left = 0;
        for (unsigned i = 0; i < n; i++)
            left += !look(&client[i], 0);
    }
}

static void be_clients(struct gang *g, const char *uri, const char *options, unsigned n)
{
    struct client *client = calloc(n, sizeof(*client));
    uint64_t again = 0;

    if (!client)
        die("clients", ENOMEM);
    for (unsigned i = 0; i < n; i++)
        client[i] = (struct client){.rme = open_engine(NULL, options), .server = address(uri)};
    step_over(g, 0);
    all_ask(client, n); /* which connects them */
    for (unsigned i = 0; i < n; i++)
        again += rme_counter_value(client[i].rme, "connects_again");
    step_over(g, again);
    for (unsigned i = 0; i < n; i++) {
        ask(&client[i]);
        while (!look(&client[i], 100))
            ;
    }
    step_over(g, 0);
    pause();
}

/* ---- What is printed ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Microseconds: the median. */
static double request_time(const char *uri, const char *options)
{
    static double times[TIMES];
    struct client one = {.rme = open_engine(NULL, options), .server = address(uri)};

    for (unsigned i = 0; i < 2 * TIMES; i++) {
        double begin = now();

        ask(&one);
        while (!look(&one, 100))
            ;
        times[i % TIMES] = (now() - begin) * 1e6;
    }
    rme_close(one.rme);
    rme_addr_free(one.server);
    qsort(times, TIMES, sizeof(times[0]), by_size);
    return times[TIMES / 2];
}

/* A number of /proc/PID/FILE: behind NAME at the head of a line. */
static double figure(pid_t pid, const char *file, const char *name)
{
    char path[64], line[256];
    double value = -1;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof(line), in))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtod(line + strlen(name), NULL);
    if (in)
        fclose(in);
    return value;
}

/* Seconds of a processor that it has used. */
static double used(pid_t pid)
{
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *in = fopen(path, "r");
    if (in && fgets(text, sizeof(text), in))
        sscanf(strrchr(text, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
               &user, &system);
    if (in)
        fclose(in);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static unsigned number(const char *text, unsigned unset, unsigned most)
{
    char *end;
    unsigned long n = text ? strtoul(text, &end, 10) : unset;

    if (n == 0 || n > most || (text && *end)) {
        fprintf(stderr, "crowd: %s is not a number from 1 to %u\n", text ? text : "", most);
        exit(2);
    }
    return (unsigned)n;
}

static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv)
{
    const char *options = NULL;
    char uri[64];
    int port;

    if (argc > 2 && !strcmp(argv[1], "--options")) {
        options = argv[2];
        argc -= 2;
        argv += 2;
    }
    unsigned clients = number(argc > 1 ? argv[1] : NULL, 10000, 1000000);
    struct gang g = {.processes = number(argc > 2 ? argv[2] : NULL, 10, 1000)};
    unsigned seconds = number(argc > 3 ? argv[3] : NULL, 5, 3600);

    raise_limits();
    pid_t server = start_server(options, &port);
    snprintf(uri, sizeof(uri), "ib://127.0.0.1:%d", port);
    double alone = request_time(uri, options), before = figure(server, "status", "VmRSS:"),
           locked = figure(server, "status", "VmLck:");
    if (pipe(g.said) < 0 || pipe(g.go[0]) < 0 || pipe(g.go[1]) < 0 || pipe(g.go[2]) < 0)
        die("a pipe", errno);
    pid_t *pid = calloc(g.processes, sizeof(*pid));
    if (!pid)
        die("processes", ENOMEM);
    for (unsigned i = 0; i < g.processes; i++) {
        pid[i] = fork();
        if (pid[i] < 0)
            die("a process", errno);
        if (pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(g.said[0]);
            be_clients(&g, uri, options, clients / g.processes + (i < clients % g.processes));
        }
    }
    close(g.said[1]);
    double begin = now();
    all_over(&g);
    printf("%u engines of %u processes opened in %.2f s\n", clients, g.processes,
           now() - begin);
    fflush(stdout);
    begin = now();
    uint64_t again = next_step(&g);
    printf("all connected and answered in %.2f s, %llu requests were made again\n",
           now() - begin, (unsigned long long)again);
    begin = now();
    next_step(&g);
    printf("all answered once more, one after another, in %.2f s\n", now() - begin);
    printf("server's memory: %.0f KiB before, %.1f KiB more for each client (%.1f locked)\n",
           before, (figure(server, "status", "VmRSS:") - before) / clients,
           (figure(server, "status", "VmLck:") - locked) / clients);
    fflush(stdout);
    double busy = used(server);
    sleep(seconds);
    printf("all silent: %.2f %% of a processor\n", (used(server) - busy) / seconds * 100);
    printf("a request: %.1f us alone, ", alone);
    printf("%.1f us among them\n", request_time(uri, options));
    for (unsigned i = 0; i < g.processes; i++)
        kill(pid[i], SIGKILL);
    kill(server, SIGKILL);
    while (wait(NULL) > 0)
        ;
    free(pid);
    return 0;
}
