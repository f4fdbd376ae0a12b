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
    "  -m, --memory SIZE        memory of all data buffers (256M)\n"
    "  -b, --buffer-size SIZE   size of a buffer, the longest data message (512K)\n"
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

/* Values of the options. */
static struct {
    struct server_config server;
    struct access *allow;
    uint64_t buffer_size, client_timeout, grace;
    bool quiet, verbose;
    char store[40]; /* "memory:BYTES" */
} s = {
    .server = {.memory = UINT64_C(256) << 20},
    .buffer_size = 512u << 10,
    .client_timeout = 60,
    .grace = 5,
};

static const struct args_option options[] = {
    {"listen", 'l', ARGS_TEXT, &s.server.listen, 0, 0},
    {"allow", 'a', ARGS_ACCESS, &s.allow, 0, 0},
    {"store", 'd', ARGS_TEXT, &s.server.folder, 0, 0},
    ARGS_OPTIONS(&s.server.options),
    {"memory", 'm', ARGS_NUMBER, &s.server.memory, IOD_BUFFER_MIN, UINT64_C(1) << 40},
    {"buffer-size", 'b', ARGS_NUMBER, &s.buffer_size, IOD_BUFFER_MIN, IOD_BUFFER_MAX},
    {"client-timeout", 'c', ARGS_NUMBER, &s.client_timeout, 1, 86400},
    {"grace", 'g', ARGS_NUMBER, &s.grace, 0, 3600},
    {"fsync", 's', ARGS_FLAG, &s.server.sync, 0, 0},
    {"metrics", 'M', ARGS_TEXT, &s.server.metrics, 0, 0},
    {"quiet", 'q', ARGS_FLAG, &s.quiet, 0, 0},
    {"verbose", 'v', ARGS_FLAG, &s.verbose, 0, 0},
    {0},
};

static bool is_listen(const char *text)
{
    struct args_list list;
    bool good = args_list("--listen", text, &list);

    if (good)
        args_list_free(&list);
    return good;
}

/* Converts the size of "memory:SIZE" to bytes. */
static bool read_store(const char *text)
{
    size_t prefix = strlen(STORE_MEMORY);
    uint64_t bytes = 0;

    if (strncmp(text, STORE_MEMORY, prefix) != 0)
        return true;
    if (!args_number("--store memory", text + prefix, 65536, UINT64_C(1) << 50, &bytes))
        return false;
    snprintf(s.store, sizeof s.store, STORE_MEMORY "%llu", (unsigned long long)bytes);
    s.server.folder = s.store;
    return true;
}

static enum args_result read_arguments(int argc, char **argv)
{
    enum args_result result = args_read(argc, argv, options, help);

    if (result != ARGS_READ)
        return result;
    s.server.allow = s.allow;
    s.server.buffer_size = (uint32_t)s.buffer_size;
    s.server.client_timeout_ms = (int)s.client_timeout * 1000;
    log_set_level(s.verbose ? LOG_DETAILS : s.quiet ? LOG_ERRORS : LOG_DECISIONS);
    if (optind < argc)
        args_complain("unexpected argument '%s'; see bmi-iod --help", argv[optind]);
    else if (s.server.listen == NULL)
        args_complain("no address to serve; give --listen ib://host:port");
    else if (s.server.folder == NULL)
        args_complain("no folder for the objects; give --store DIR, or --store memory:SIZE");
    else if (is_listen(s.server.listen) && read_store(s.server.folder))
        return ARGS_READ;
    return ARGS_WRONG;
}

/* Serves until SIGTERM, and then until nothing is open or the time is over.  Returns 0 or
 * -errno. */
static int serve(struct server *server)
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
            deadline = clock_ms() + (ends > 1 ? 0 : (int64_t)s.grace * 1000);
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

/* Serves with the options; returns the exit status. */
static int run(void)
{
    static struct server *server;
    char port[24] = "";
    int error;

    catch_signals();
    raise_files();
    if (server_open(&s.server, &server) < 0)
        return 1;
    if (strchr(s.server.listen, ',') ==
        NULL) /* with several addresses the port is only that of the
                                        * first */
        snprintf(port, sizeof port, ", port %d", server_port(server));
    log_line(LOG_ERRORS, "listening on %s%s, objects in %s", s.server.listen, port,
             s.server.folder);
    program_notify("READY=1\nSTATUS=listening on %s%s", s.server.listen, port);
    error = serve(server);
    if (error)
        log_line(LOG_ERRORS, "BMI failed: %s; restart the server", strerror(-error));
    wind_down(server);
    server_close(server);
    log_line(LOG_DECISIONS, "ended");
    return error ? 1 : 0;
}

int main(int argc, char **argv)
{
    enum args_result result;
    int status;

    if (!program_streams())
        return 1;
    result = read_arguments(argc, argv);
    status = result == ARGS_READ ? run() : result == ARGS_DONE ? 0 : 1;
    access_free(s.allow);
    return status;
}
