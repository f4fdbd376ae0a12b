/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many clients of one server over ib://:
 *
 *   crowd [--options LIST] [--hold] [CLIENTS [PROCESSES [SECONDS]]]
 *
 * CLIENTS (10000) engines in PROCESSES (one per 500 clients) connect to one server at the same
 * time; each sends a request, and all must be answered. Then all send another request, one after
 * another in each process. Then all are idle for SECONDS (5). Prints these times, the server's
 * memory per client, its processor use while all are idle, and percentiles of the time of one
 * client's request, alone and among all. The baseline of librdmacm alone is cmtime of
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
#include <sys/resource.h>
#include <unistd.h>

#include "bench/ends.h"
#include "bench/gang.h"
#include "bench/latency.h"

enum { REQUEST = 1, REPLY = 2, TIMES = 4000, NAP_MS = 2 };

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

/* ---- Figures ---- */

/* Prints percentiles of the time of TIMES requests, after as many that introduce the client. */
static void print_request_times(const char *where, const char *uri, const char *options)
{
    static struct latency times;
    struct client one = {.rme = ends_open(NULL, options), .server = ends_address(uri)};

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

static int crowd(const char *options, bool hold, unsigned clients, unsigned processes,
                 unsigned seconds)
{
    struct gang g = {.processes = processes};
    char uri[64], go = 0;
    int port;

    if (hold && pipe(held) < 0)
        ends_die("a pipe", errno);
    pid_t server = ends_start_server(options, serve, &port);
    snprintf(uri, sizeof(uri), "ib://127.0.0.1:%d", port);
    if (!hold)
        print_request_times("alone", uri, options);
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
    if (!hold)
        print_request_times("among them", uri, options);
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
    unsigned clients = (unsigned)ends_number(argc > 1 ? argv[1] : NULL, 10000, 1000000);
    unsigned processes =
        (unsigned)ends_number(argc > 2 ? argv[2] : NULL, (clients + 499) / 500, 1000);
    return crowd(options, hold, clients, processes,
                 (unsigned)ends_number(argc > 3 ? argv[3] : NULL, 5, 3600));
}
