/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* bmi-perf: measures BMI over its networks, and plain TCP as a baseline. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "bench/args.h"
#include "bench/bmi_server.h"
#include "bench/doctor/doctor.h"
#include "bench/inspect.h"
#include "bench/modes.h"
#include "bench/tcp.h"
#include "bench/transport.h"
#include "embedded/program/program.h"

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static int report(int rc, const char *why)
{
    if (rc)
        fprintf(stderr, "bmi-perf: %s\n", why);
    return rc ? 1 : 0;
}

static int wrong_use(const char *what)
{
    fprintf(stderr, "bmi-perf: %s; see bmi-perf --help\n", what);
    return 2;
}

static int mode_server(const struct args *args)
{
    struct sigaction action = {.sa_handler = on_signal};
    char why[WHY_SIZE];

    if (args->npositional != 1)
        return wrong_use("server takes one address");
    program_catch(SIGINT, on_signal);
    sigaction(SIGTERM, &action, NULL);
    return report(
        bmi_serve(args->positional[0], args->bmi_options, args->server_memory, &stop, why),
        why);
}

static int mode_tcp_server(const struct args *args)
{
    char why[WHY_SIZE];

    if (args->npositional != 1)
        return wrong_use("tcp-server takes one address");
    return report(tcp_serve(args->positional[0], args->server_memory, why), why);
}

static int mode_tcp_store(const struct args *args)
{
    char why[WHY_SIZE];

    if (args->npositional != 2)
        return wrong_use("tcp-store takes an address and a folder");
    return report(tcp_store(args->positional[0], args->positional[1], why), why);
}

static int mode_tcp_copy(const struct args *args)
{
    char **p = args->positional;
    char why[WHY_SIZE];
    bool put = !strcmp(args->mode, "tcp-put");

    if (args->npositional < 3)
        return wrong_use("tcp-put and tcp-get take two names and at least one address");
    if (args->npositional - 2 > MAX_SERVERS)
        return wrong_use("too many servers");
    return report(
        tcp_copy(put, p[put ? 0 : 1], p[put ? 1 : 0], p + 2, args->npositional - 2, why), why);
}

static const struct {
    const char *name;
    int (*run)(const struct args *args);
} modes[] = {
    {"doctor", mode_doctor},    {"server", mode_server},       {"lat", mode_measure},
    {"bw", mode_measure},       {"rate", mode_measure},        {"list", mode_measure},
    {"compare", mode_measure},  {"idle", mode_idle},           {"tcp-server", mode_tcp_server},
    {"tcp-lat", mode_measure},  {"tcp-bw", mode_measure},      {"tcp-rate", mode_measure},
    {"tcp-list", mode_measure}, {"tcp-store", mode_tcp_store}, {"tcp-put", mode_tcp_copy},
    {"tcp-get", mode_tcp_copy},
};

/* Returns whether the mode prints figures, which alone support JSON. */
static bool json_is_for(const struct args *args, size_t mode)
{
    return !args->json || modes[mode].run == mode_measure || modes[mode].run == mode_idle;
}

static int run(const struct args *args)
{
    bool looks = args->options || args->explain != NULL || args->session || !*args->mode;

    if (args->json && looks)
        return wrong_use("--json is for modes that measure");
    if (args->options)
        return inspect_options();
    if (args->explain != NULL)
        return args->npositional <= 1
                   ? inspect_explain(args->explain, args->positional[0], args->bmi_options)
                   : wrong_use("--explain takes one address at most");
    if (args->counters && !*args->mode)
        return args->npositional == 1 ? inspect_server(args->positional[0], args->bmi_options)
                                      : wrong_use("--counters takes a mode, or one address");
    if (args->session)
        return args->npositional == 1 ? inspect_session(args->positional[0], args->bmi_options)
                                      : wrong_use("--session takes one address");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(args->mode, modes[i].name))
            return json_is_for(args, i) ? modes[i].run(args)
                                        : wrong_use("--json is for modes that measure");
    return wrong_use(*args->mode ? "no such mode" : "no mode given");
}

int main(int argc, char **argv)
{
    struct args args;
    int rc;

    if (!program_streams())
        return 1;
    rc = args_parse(&args, argc, argv);
    rc = rc == 0 ? run(&args) : rc < 0 ? 2 : 0;
    return rc ? rc : !program_output("bmi-perf", "");
}
