/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many clients of one server over ib://:
 *
 *   crowd [--options LIST] [--hold] [CLIENTS [PROCESSES [SECONDS]]]
 *
 * CLIENTS (10000) engines in PROCESSES (one per 500 clients) connect to one server at the same
 * time; each sends a request, and all must be answered. Then all send another request, one
 * after another in each process. Then all are idle for SECONDS (5). Prints these times, the
 * server's memory per client, its processor use while all are idle, and percentiles of the time
 * of one client's request, alone and among all. The baseline of librdmacm alone is cmtime of
 * rdmacm-utils.
 *
 * With --hold the server handles no request before each process has had one rejected. Each
 * process must therefore have more clients than the backlog permits (EMUVERBS_BACKLOG).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/job.h"
#include "bench/latency.h"
#include "bmi_ib/bmi_ib.h"
#include "rme.h"

enum { REQUEST = 1, REPLY = 2, TIMES = 4000, NAP_MS = 2, NICER = 10, STEPS = 4 };

struct client {
    struct rme *rme;
    struct rme_addr *server;
    rme_id reply;
    bool answered;
};

/* Processes that execute the same steps together. */
struct gang {
    const char *uri, *options;
    bool hold;
    unsigned processes, step;
    /* go: one pipe per step, so that no process takes another one's word */
    int said[2], go[STEPS][2];
    pid_t *pid;
};

static int held[2] = {-1, -1}; /* pipe; the server begins when there is a word in it */

static double now(void)
{
    return (double)clock_ns() / 1e9;
}

static void nap(void)
{
    (void)poll(NULL, 0, NAP_MS);
}

/* Ends the process; `error` is an errno value of either sign. */
static void die(const char *what, int error) __attribute__((noreturn));
static void die(const char *what, int error)
{
    fprintf(stderr, "crowd: %s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(1);
}

static void make_pipe(int fd[2])
{
    if (pipe(fd) < 0)
        die("a pipe", errno);
}

/* Returns as fork() does; the child ends with its parent. */
static pid_t start(void)
{
    pid_t pid = fork();

    if (pid < 0)
        die("a process", errno);
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- Engines ---- */

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    (void)arg;
    if (level <= RME_LOG_WARN)
        fprintf(stderr, "crowd: %s\n", line);
}

static struct rme_addr *parse(const char *uri)
{
    struct rme_addr *addr;
    int error = rme_addr_parse("ib", uri, &addr);

    if (error)
        die(uri, error);
    return addr;
}

/* Opens an engine and its first context. `listen` NULL: the engine only connects. */
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

/* ---- The server ---- */

static void serve(struct rme *rme)
{
    static char text[64];
    void *base = text;
    int64_t length = sizeof(text);
    struct rme_list list = {.base = &base, .length = &length, .count = 1};
    char go;

    if (held[0] >= 0 && read(held[0], &go, 1) != 1)
        _exit(1);
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

/* Starts a server on a free port of 127.0.0.1, stored in *port. */
static pid_t start_server(const char *options, int *port)
{
    int fd[2];
    pid_t pid;

    make_pipe(fd);
    pid = start();
    if (pid == 0) {
        struct rme_addr *addr = parse("ib://127.0.0.1:0");
        struct rme *rme = open_engine(addr, options);

        rme_addr_free(addr);
        *port = rme_listen_port(rme);
        if (write(fd[1], port, sizeof(*port)) == sizeof(*port))
            serve(rme);
        _exit(1);
    }
    close(fd[1]);
    if (read(fd[0], port, sizeof(*port)) != sizeof(*port))
        die("the server", ECHILD);
    close(fd[0]);
    return pid;
}

/* ---- Steps ---- */

/* In a process: reports `word` at the end of a step; returns when the next step may begin. */
static void step_over(struct gang *g, uint64_t word)
{
    char go;

    if (write(g->said[1], &word, sizeof(word)) != sizeof(word) ||
        read(g->go[g->step++][0], &go, 1) != 1)
        _exit(1);
}

/* Waits until all have completed their step; returns the sum of their words. */
static uint64_t all_over(const struct gang *g)
{
    uint64_t sum = 0, word;

    for (unsigned i = 0; i < g->processes; i++) {
        if (read(g->said[0], &word, sizeof(word)) != sizeof(word))
            die("a process of clients", ECHILD);
        sum += word;
    }
    return sum;
}

/* Starts the next step, and waits for its end. */
static uint64_t next_step(struct gang *g)
{
    char go = 0;

    for (unsigned i = 0; i < g->processes; i++)
        if (write(g->go[g->step][1], &go, 1) != 1)
            die("a process of clients", errno);
    g->step++;
    return all_over(g);
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

/* Returns whether the reply has arrived. */
static bool poll_client(struct client *c, int wait_ms)
{
    struct rme_done done;

    while (!c->answered && rme_test_context(c->rme, 0, &done, 1, wait_ms) == 1) {
        if (done.error)
            die("a request", done.error);
        c->answered = done.user == c;
    }
    return c->answered;
}

/* Returns the number of clients without a reply. */
static unsigned poll_all(struct client *client, unsigned n)
{
    unsigned left = 0;

    for (unsigned i = 0; i < n; i++)
        left += !poll_client(&client[i], 0);
    return left;
}

static uint64_t turned_away(const struct client *client, unsigned n)
{
    uint64_t again = 0;

    for (unsigned i = 0; i < n; i++)
        again += rme_counter_value(client[i].rme, "connects_again");
    return again;
}

static void be_clients(struct gang *g, unsigned n)
{
    struct client *client = calloc(n, sizeof(*client));

    if (client == NULL)
        die("clients", ENOMEM);
    for (unsigned i = 0; i < n; i++)
        client[i] =
            (struct client){.rme = open_engine(NULL, g->options), .server = parse(g->uri)};
    step_over(g, 0);
    for (unsigned i = 0; i < n; i++) /* connects */
        ask(&client[i]);
    if (g->hold) {
        while (turned_away(client, n) == 0) {
            poll_all(client, n);
            nap();
        }
        step_over(g, 0);
    }
    for (unsigned left = n, before = n; left; before = left) {
        left = poll_all(client, n);
        if (left == before)
            nap(); /* the server needs the processor */
    }
    step_over(g, turned_away(client, n));
    for (unsigned i = 0; i < n; i++) {
        ask(&client[i]);
        while (!poll_client(&client[i], 100))
            ;
    }
    step_over(g, 0);
    pause();
}

static void start_gang(struct gang *g, unsigned clients)
{
    g->pid = calloc(g->processes, sizeof(*g->pid));
    if (g->pid == NULL)
        die("processes", ENOMEM);
    make_pipe(g->said);
    for (unsigned i = 0; i < STEPS; i++)
        make_pipe(g->go[i]);
    for (unsigned i = 0; i < g->processes; i++) {
        g->pid[i] = start();
        if (g->pid[i] == 0) {
            errno = 0;
            /* elsewhere the server has its own machine */
            if (nice(NICER) == -1 && errno != 0)
                die("nice", errno);
            close(g->said[0]);
            be_clients(g, clients / g->processes + (i < clients % g->processes));
            _exit(0);
        }
    }
    close(g->said[1]);
}

/* ---- Figures ---- */

/* Prints percentiles of the time of TIMES requests, after as many that introduce the client. */
static void print_request_times(const char *where, const char *uri, const char *options)
{
    static struct latency times;
    struct client one = {.rme = open_engine(NULL, options), .server = parse(uri)};

    for (unsigned i = 0; i < 2 * TIMES; i++) {
        if (i == TIMES)
            latency_begin(&times);
        ask(&one);
        while (!poll_client(&one, 100))
            ;
        if (i >= TIMES)
            latency_take(&times);
    }
    rme_close(one.rme);
    rme_addr_free(one.server);
    printf("a request %s: p50 %.1f us, p99 %.1f us, p99.9 %.1f us\n", where,
           latency_percentile(&times, 0.5) / 1e3, latency_percentile(&times, 0.99) / 1e3,
           latency_percentile(&times, 0.999) / 1e3);
}

/* Returns a number of KiB of /proc/PID/status; -1: not found. */
static double memory(pid_t pid, const char *name)
{
    char path[64], line[256];
    double value = -1;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *in = fopen(path, "r");
    while (in != NULL && fgets(line, sizeof(line), in) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtod(line + strlen(name), NULL);
    if (in != NULL)
        fclose(in);
    return value;
}

/* Returns the processor time used by a process, in seconds. */
static double used(pid_t pid)
{
    struct timespec time = {0};
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int crowd(struct gang *g, unsigned clients, unsigned seconds)
{
    char uri[64], go = 0;
    int port;

    if (g->hold)
        make_pipe(held);
    pid_t server = start_server(g->options, &port);
    snprintf(uri, sizeof(uri), "ib://127.0.0.1:%d", port);
    if (!g->hold)
        print_request_times("alone", uri, g->options);
    double before = memory(server, "VmRSS:"), locked = memory(server, "VmLck:");
    g->uri = uri;
    start_gang(g, clients);
    double begin = now();
    all_over(g);
    printf("%u engines of %u processes opened in %.2f s\n", clients, g->processes,
           now() - begin);
    fflush(stdout);
    begin = now();
    if (g->hold) {
        next_step(g);
        printf("in each process a connection was refused\n");
        if (write(held[1], &go, 1) != 1)
            die("the server", errno);
    }
    uint64_t again = next_step(g);
    printf("all connected and answered in %.2f s, %llu requests were made again\n",
           now() - begin, (unsigned long long)again);
    fflush(stdout);
    begin = now();
    next_step(g);
    printf("all answered once more, one after another, in %.2f s\n", now() - begin);
    printf("server's memory: %.0f KiB before, %.1f KiB more for each client (%.1f locked)\n",
           before, (memory(server, "VmRSS:") - before) / clients,
           (memory(server, "VmLck:") - locked) / clients);
    fflush(stdout);
    double busy = used(server);
    sleep(seconds);
    printf("all silent: %.2f %% of a processor\n", (used(server) - busy) / seconds * 100);
    if (!g->hold)
        print_request_times("among them", uri, g->options);
    for (unsigned i = 0; i < g->processes; i++)
        stop(g->pid[i]);
    free(g->pid);
    stop(server);
    return 0;
}

/* Returns a number from 1 to `most`, or `unset` without a text. */
static unsigned number(const char *text, unsigned unset, unsigned most)
{
    char *end;
    unsigned long n = text != NULL ? strtoul(text, &end, 10) : unset;

    if (n == 0 || n > most || (text != NULL && *end)) {
        fprintf(stderr, "crowd: %s is not a number from 1 to %u\n", text != NULL ? text : "",
                most);
        exit(2);
    }
    return (unsigned)n;
}

int main(int argc, char **argv)
{
    struct gang g = {.options = NULL};
    struct rlimit files;

    if (argc > 2 && !strcmp(argv[1], "--options")) {
        g.options = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc > 1 && !strcmp(argv[1], "--hold")) {
        g.hold = true;
        argc--;
        argv++;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    unsigned clients = number(argc > 1 ? argv[1] : NULL, 10000, 1000000);
    g.processes = number(argc > 2 ? argv[2] : NULL, (clients + 499) / 500, 1000);
    return crowd(&g, clients, number(argc > 3 ? argv[3] : NULL, 5, 3600));
}
