/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* iod.c - the program bmi-iod, around server.h. */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/log.h"
#include "embedded/iod/proto.h"
#include "embedded/iod/server.h"
#include "embedded/iod/store.h"
#include "embedded/program/program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define IDLE_MS  250  /* ms; maximum delay of a signal's effect */
#define ABORT_MS 2000 /* time for aborted transfers to end */

static volatile sig_atomic_t want_report;
static volatile sig_atomic_t want_end;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        want_report = 1;
    else
        want_end++;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    program_catch(SIGINT, on_signal);
    program_catch(SIGHUP, on_signal);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL); /* a file size limit then fails the write */
}

#define FILES_MAX 65536 /* sufficient open files for the server's own limits */

/* Raises the limit of open files, which objects and connections need. */
static void raise_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= FILES_MAX)
        return;
    files.rlim_cur = files.rlim_max < FILES_MAX ? files.rlim_max : FILES_MAX;
    setrlimit(RLIMIT_NOFILE, &files); /* a failure leaves the limit unchanged */
}

static const char help[] =
    "usage: bmi-iod --listen ADDR --store DIR [OPTION]...\n"
    "Stores objects for bmi-cp, bmi-ls and bmi-rm in a folder, or in memory.\n"
    "\n"
    "  -l, --listen ADDR        serve at ib://host:port (several with commas)\n"
    "  -a, --allow HOST,...     serve these hosts and networks (NET/BITS) only\n"
    "  -d, --store DIR          keep objects in this folder, which must exist\n"
    "      --store memory:SIZE  keep objects in memory, at most SIZE, until the server ends\n"
    "  -o, --options STR        key=value,... for the BMI methods\n"
    "  -t, --threads N          threads for the disk (4)\n"
    "  -m, --memory SIZE        memory of all data buffers (256M)\n"
    "  -b, --buffer-size SIZE   size of a buffer, the longest data message (512K)\n"
    "  -n, --transfers N        open transfers of one client (64)\n"
    "  -c, --client-timeout S   drop a client that is silent for S seconds (60)\n"
    "  -g, --grace S            time for open transfers to end after a signal (5)\n"
    "  -s, --fsync              a copy is on the disk before it is reported complete\n"
    "  -M, --metrics FILE       write the counters to this file, for Prometheus\n"
    "  -q, --quiet              log errors only\n"
    "  -v, --verbose            log details\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "SIGUSR1 prints one line per client and the counters.  SIGTERM, SIGINT and SIGHUP end the\n"
    "server; a second signal ends it immediately.\n";

struct settings {
    struct server_config server;
    struct access *allow;
    int grace_ms;
    char store[40]; /* "memory:BYTES" */
};

static bool is_listen(const char *text)
{
    struct args_list list;

    if (!args_list("--listen", text, IOD_STRIPE_MAX, &list))
        return false;
    args_list_free(&list);
    return true;
}

/* Converts the size of "memory:SIZE" to bytes. */
static bool read_store(const char *text, struct settings *s)
{
    size_t prefix = strlen(STORE_MEMORY);
    uint64_t bytes = 0;

    if (strncmp(text, STORE_MEMORY, prefix) != 0)
        return true;
    if (!args_number("--store memory", text + prefix, 65536, UINT64_C(1) << 50, &bytes))
        return false;
    snprintf(s->store, sizeof s->store, STORE_MEMORY "%llu", (unsigned long long)bytes);
    s->server.folder = s->store;
    return true;
}

static bool set_option(int option, const char *text, void *settings)
{
    struct settings *s = settings;
    uint64_t n = 0;

    switch (option) {
    case 'a':
        return args_access("--allow", text, &s->allow);
    case 'l':
        s->server.listen = text;
        return is_listen(text);
    case 'd':
        s->server.folder = text;
        return read_store(text, s);
    case 'o':
        s->server.options = text;
        return true;
    case 't':
        if (!args_number("--threads", text, 1, 64, &n))
            return false;
        s->server.threads = (int)n;
        return true;
    case 'm':
        return args_number("--memory", text, IOD_BUFFER_MIN, UINT64_C(1) << 40,
                           &s->server.memory);
    case 'b':
        if (!args_number("--buffer-size", text, IOD_BUFFER_MIN, IOD_BUFFER_MAX, &n))
            return false;
        s->server.buffer_size = (uint32_t)n;
        return true;
    case 'n':
        if (!args_number("--transfers", text, 1, 10000, &n))
            return false;
        s->server.peer_transfers = (uint32_t)n;
        return true;
    case 'c':
        if (!args_number("--client-timeout", text, 1, 86400, &n))
            return false;
        s->server.client_timeout_ms = (int)n * 1000;
        return true;
    case 'g':
        if (!args_number("--grace", text, 0, 3600, &n))
            return false;
        s->grace_ms = (int)n * 1000;
        return true;
    case 's':
        s->server.sync = true;
        return true;
    case 'M':
        s->server.metrics = text;
        return true;
    case 'q':
        log_set_level(LOG_ERRORS);
        return true;
    case 'v':
        log_set_level(LOG_DETAILS);
        return true;
    }
    return false;
}

static enum args_result read_arguments(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},
        {"allow", required_argument, NULL, 'a'},
        {"store", required_argument, NULL, 'd'},
        {"options", required_argument, NULL, 'o'},
        {"threads", required_argument, NULL, 't'},
        {"memory", required_argument, NULL, 'm'},
        {"buffer-size", required_argument, NULL, 'b'},
        {"transfers", required_argument, NULL, 'n'},
        {"client-timeout", required_argument, NULL, 'c'},
        {"grace", required_argument, NULL, 'g'},
        {"fsync", no_argument, NULL, 's'},
        {"metrics", required_argument, NULL, 'M'},
        {"quiet", no_argument, NULL, 'q'},
        {"verbose", no_argument, NULL, 'v'},
        {0},
    };
    enum args_result result = args_read(argc, argv, options, help, set_option, s);

    if (result != ARGS_READ)
        return result;
    if (optind < argc)
        args_complain("unexpected argument '%s'; see bmi-iod --help", argv[optind]);
    else if (!s->server.listen)
        args_complain("no address to serve; give --listen ib://host:port");
    else if (!s->server.folder)
        args_complain("no folder for the objects; give --store DIR, or --store memory:SIZE");
    else
        return ARGS_READ;
    return ARGS_WRONG;
}

/* Serves until SIGTERM, and then until nothing is open or the time is over.  Returns 0 or
 * -errno. */
static int serve(struct server *server, int grace_ms)
{
    int64_t deadline = 0;
    int ends = 0, error = 0;

    while (!error && !(ends && (server_is_idle(server) || clock_ms() > deadline))) {
        error = server_run(server, ends ? 20 : IDLE_MS);
        if (want_report) {
            want_report = 0;
            server_report(server);
            server_export(server);
        }
        if (want_end > ends) {
            ends = want_end;
            deadline = clock_ms() + (ends > 1 ? 0 : grace_ms);
            program_notify("STOPPING=1\nSTATUS=ending");
            log_line(LOG_DECISIONS,
                     ends > 1 ? "ending now" : "ending, open transfers may finish");
            server_drain(server);
        }
    }
    return error;
}

/* Aborts open transfers and waits briefly for their end. */
static void wind_down(struct server *server)
{
    int64_t deadline = clock_ms() + ABORT_MS;

    server_abort(server);
    while (!server_is_idle(server) && clock_ms() < deadline)
        if (server_run(server, 20) < 0)
            break;
}

int main(int argc, char **argv)
{
    struct settings s = {
        .server = {.threads = 4,
                   .memory = UINT64_C(256) << 20,
                   .buffer_size = 512u << 10,
                   .peer_transfers = 64,
                   .client_timeout_ms = 60000},
        .grace_ms = 5000,
    };
    enum args_result result;
    struct server *server = NULL;
    char port[24] = "";
    int error;

    if (!program_streams())
        return 1;
    result = read_arguments(argc, argv, &s);
    if (result != ARGS_READ) {
        access_free(s.allow);
        return result == ARGS_DONE ? 0 : 1;
    }
    s.server.allow = s.allow;
    catch_signals();
    raise_files();
    if (server_open(&s.server, &server) < 0) {
        access_free(s.allow);
        return 1;
    }
    if (!strchr(s.server.listen, ',')) /* with several addresses the port is only that of the
                                        * first */
        snprintf(port, sizeof port, ", port %d", server_port(server));
    log_line(LOG_ERRORS, "listening on %s%s, objects in %s", s.server.listen, port,
             s.server.folder);
    program_notify("READY=1\nSTATUS=listening on %s%s", s.server.listen, port);
    error = serve(server, s.grace_ms);
    if (error)
        log_line(LOG_ERRORS, "BMI failed: %s; restart the server", strerror(-error));
    wind_down(server);
    server_close(server);
    access_free(s.allow);
    log_line(LOG_DECISIONS, "ended");
    return error ? 1 : 0;
}
