/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many clients of one server over ib://:
 *
 *   crowd [--options LIST] [--hold] [CLIENTS [PROCESSES [SECONDS]]]
 *       CLIENTS (10000) engines in PROCESSES (one per 500 clients) connect to one server at
 *       the same time; each sends a request, and all must be answered. Then all send another
 *       request, one after another in each process. Then all are idle for SECONDS (5). Prints
 *       these times, the server's memory per client, its processor use while all are idle, and
 *       the cost of one client's request, alone and among all: time, and instructions of the
 *       server.
 *   crowd [--options LIST] churn [COUNT [PROCESSES]]
 *       COUNT (100000) connections made and closed by PROCESSES (10) engines at a time. Prints
 *       the memory of the server after the first hundredth and at the end.
 * The baseline of librdmacm alone is cmtime of rdmacm-utils.
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
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/ends.h"
#include "bench/gang.h"

enum { REQUEST = 1, REPLY = 2, TIMES = 4000, COUNTED = 100, NAP_MS = 2 };

const char ends_program[] = "crowd";

struct client {
    struct rme *rme;
    struct rme_addr *server;
    rme_id reply;
    bool answered;
};

/* Arguments of a gang's clients. */
struct come {
    const char *uri, *options;
    bool hold;
};

static int held[2] = {-1, -1}; /* pipe; the server begins when there is a word in it */

static double now(void)
{
    return ends_now_us() / 1e6;
}

static void nap(void)
{
    (void)poll(NULL, 0, NAP_MS);
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
                ends_die("a reply", error);
            rme_unexpected_free(rme, u.buffer);
        }
        rme_test_context(rme, 0, done, 16, 1000);
    }
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
        ends_die("a request", error);
    c->answered = false;
}

/* Returns whether the reply has arrived. */
static bool poll_client(struct client *c, int wait_ms)
{
    struct rme_done done;

    while (!c->answered && rme_test_context(c->rme, 0, &done, 1, wait_ms) == 1) {
        if (done.error)
            ends_die("a request", done.error);
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

static void be_clients(struct gang *g, unsigned n, const void *arg)
{
    const struct come *of = arg;
    struct client *client = calloc(n, sizeof(*client));

    if (!client)
        ends_die("clients", ENOMEM);
    for (unsigned i = 0; i < n; i++)
        client[i] = (struct client){.rme = ends_open(NULL, of->options),
                                    .server = ends_address(of->uri)};
    gang_step_over(g, 0);
    for (unsigned i = 0; i < n; i++) /* connects */
        ask(&client[i]);
    if (of->hold) {
        while (turned_away(client, n) == 0) {
            poll_all(client, n);
            nap();
        }
        gang_step_over(g, 0);
    }
    for (unsigned left = n, before = n; left; before = left) {
        left = poll_all(client, n);
        if (left == before)
            nap(); /* the server needs the processor */
    }
    gang_step_over(g, turned_away(client, n));
    for (unsigned i = 0; i < n; i++) {
        ask(&client[i]);
        while (!poll_client(&client[i], 100))
            ;
    }
    gang_step_over(g, 0);
    pause();
}

/* Connects and closes `n` times. */
static void come_and_go(struct gang *g, unsigned n, const void *arg)
{
    const struct come *of = arg;
    struct rme *rme = ends_open(NULL, of->options);
    unsigned first = n / 100 ? n / 100 : 1;

    for (unsigned i = 0; i < n; i++) {
        struct rme_addr *addr = ends_address(of->uri);
        int error = rme_addr_reach(rme, addr, 60000);

        if (error)
            ends_die("a connection", error);
        rme_addr_free(addr);
        if (i + 1 == first)
            gang_step_over(g, 0);
    }
    gang_step_over(g, 0);
    pause();
}

/* ---- Figures ---- */

/* Returns the median time of a request, in microseconds. */
static double request_time(const char *uri, const char *options)
{
    static double times[TIMES];
    struct client one = {.rme = ends_open(NULL, options), .server = ends_address(uri)};

    for (unsigned i = 0; i < 2 * TIMES; i++) {
        double begin = ends_now_us();

        ask(&one);
        while (!poll_client(&one, 100))
            ;
        times[i % TIMES] = ends_now_us() - begin;
    }
    rme_close(one.rme);
    rme_addr_free(one.server);
    qsort(times, TIMES, sizeof(times[0]), ends_by_size);
    return times[TIMES / 2];
}

/* Sends TIMES requests, which introduce the client, then, after a word from `may`, COUNTED
 * ones. */
static void be_counted(const char *uri, const char *options, int may, int does)
{
    struct client one = {.rme = ends_open(NULL, options), .server = ends_address(uri)};
    char word = 0;

    for (unsigned i = 0; i < TIMES + COUNTED; i++) {
        if (i == TIMES && (write(does, &word, 1) != 1 || read(may, &word, 1) != 1))
            _exit(1);
        ask(&one);
        while (!poll_client(&one, 100))
            ;
    }
    if (write(does, &word, 1) != 1)
        _exit(1);
    pause();
}

/* Returns the instructions of the server's thread for one request, including those of
 * libraries; 0: cannot be traced. */
static double request_instructions(pid_t server, const char *uri, const char *options)
{
    int may[2], does[2], status;
    struct pollfd over;
    double steps = 0;
    char word = 0;

    if (pipe(may) < 0 || pipe(does) < 0)
        ends_die("a pipe", errno);
    over = (struct pollfd){.fd = does[0], .events = POLLIN};
    pid_t pid = fork();
    if (pid < 0)
        ends_die("a process", errno);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_counted(uri, options, may[0], does[1]);
    }
    if (read(does[0], &word, 1) != 1)
        ends_die("the client that is counted", ECHILD);
    if (ptrace(PTRACE_SEIZE, server, NULL, NULL) == 0) {
        ptrace(PTRACE_INTERRUPT, server, NULL, NULL);
        waitpid(server, &status, 0);
        if (write(may[1], &word, 1) != 1)
            ends_die("the client that is counted", errno);
        do {
            for (unsigned i = 0; i < 100 && WIFSTOPPED(status); i++, steps++)
                if (ptrace(PTRACE_SINGLESTEP, server, NULL, NULL) < 0 ||
                    waitpid(server, &status, 0) < 0)
                    ends_die("the server", errno);
        } while (poll(&over, 1, 0) == 0);
        ptrace(PTRACE_DETACH, server, NULL, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (unsigned i = 0; i < 2; i++) {
        close(may[i]);
        close(does[i]);
    }
    return steps / COUNTED;
}

/* Returns a number of /proc/PID/FILE, behind NAME at the start of a line; -1: not found. */
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

/* Returns the processor time used by a process, in seconds. */
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

static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* ---- Modes ---- */

static int churn(const char *options, unsigned count, unsigned processes)
{
    struct gang g = {.processes = processes};
    char uri[64];
    int port;
    pid_t server = ends_start_server(options, serve, &port);

    snprintf(uri, sizeof(uri), "ib://127.0.0.1:%d", port);
    struct come of = {.uri = uri, .options = options};
    gang_start(&g, count, come_and_go, &of);
    gang_all_over(&g);
    printf("after %u connections: %.0f KiB resident, %.0f KiB mapped\n", count / 100,
           figure(server, "status", "VmRSS:"), figure(server, "status", "VmSize:"));
    fflush(stdout);
    double begin = now();
    gang_next_step(&g);
    printf("after %u connections: %.0f KiB resident, %.0f KiB mapped; %.0f a second\n", count,
           figure(server, "status", "VmRSS:"), figure(server, "status", "VmSize:"),
           count / (now() - begin));
    gang_end(&g);
    ends_stop(server);
    return 0;
}

static int crowd(const char *options, bool hold, unsigned clients, unsigned processes,
                 unsigned seconds)
{
    struct gang g = {.processes = processes};
    double alone = 0, counted = 0;
    char uri[64], go = 0;
    int port;

    if (hold && pipe(held) < 0)
        ends_die("a pipe", errno);
    pid_t server = ends_start_server(options, serve, &port);
    snprintf(uri, sizeof(uri), "ib://127.0.0.1:%d", port);
    if (!hold) {
        alone = request_time(uri, options);
        counted = request_instructions(server, uri, options);
    }
    double before = figure(server, "status", "VmRSS:"),
           locked = figure(server, "status", "VmLck:");
    struct come of = {.uri = uri, .options = options, .hold = hold};
    gang_start(&g, clients, be_clients, &of);
    double begin = now();
    gang_all_over(&g);
    printf("%u engines of %u processes opened in %.2f s\n", clients, g.processes,
           now() - begin);
    fflush(stdout);
    begin = now();
    if (hold) {
        gang_next_step(&g);
        printf("in each process a connection was refused\n");
        if (write(held[1], &go, 1) != 1)
            ends_die("the server", errno);
    }
    uint64_t again = gang_next_step(&g);
    printf("all connected and answered in %.2f s, %llu requests were made again\n",
           now() - begin, (unsigned long long)again);
    fflush(stdout);
    begin = now();
    gang_next_step(&g);
    printf("all answered once more, one after another, in %.2f s\n", now() - begin);
    printf("server's memory: %.0f KiB before, %.1f KiB more for each client (%.1f locked)\n",
           before, (figure(server, "status", "VmRSS:") - before) / clients,
           (figure(server, "status", "VmLck:") - locked) / clients);
    fflush(stdout);
    double busy = used(server);
    sleep(seconds);
    printf("all silent: %.2f %% of a processor\n", (used(server) - busy) / seconds * 100);
    if (!hold) {
        printf("a request: %.1f us alone, %.1f us among them\n", alone,
               request_time(uri, options));
        printf("a request: %.0f instructions of the server alone, %.0f among them\n", counted,
               request_instructions(server, uri, options));
    }
    gang_end(&g);
    ends_stop(server);
    return 0;
}

int main(int argc, char **argv)
{
    const char *options = NULL;
    bool hold = false;

    if (argc > 2 && !strcmp(argv[1], "--options")) {
        options = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc > 1 && !strcmp(argv[1], "--hold")) {
        hold = true;
        argc--;
        argv++;
    }
    raise_limits();
    if (argc > 1 && !strcmp(argv[1], "churn"))
        return churn(options,
                     (unsigned)ends_number(argc > 2 ? argv[2] : NULL, 100000, 10000000),
                     (unsigned)ends_number(argc > 3 ? argv[3] : NULL, 10, 1000));
    unsigned clients = (unsigned)ends_number(argc > 1 ? argv[1] : NULL, 10000, 1000000);
    unsigned processes =
        (unsigned)ends_number(argc > 2 ? argv[2] : NULL, (clients + 499) / 500, 1000);
    return crowd(options, hold, clients, processes,
                 (unsigned)ends_number(argc > 3 ? argv[3] : NULL, 5, 3600));
}
