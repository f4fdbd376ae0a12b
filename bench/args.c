/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Command line of bmi-perf; see args.h. */
#include "config.h"
#include "bench/args.h"
#include "bench/budget.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* BMI_METHODS is a list of strings here. */
#define ADDRESS(name, address, emulator)                                                       \
    "                                               " #name "://" address "\n"

static const char usage[] =
    "Usage: bmi-perf doctor [ADDR]                  check this machine, and the network to a\n"
    "                                               bmi-perf server\n"
    "       bmi-perf server ADDR                    serve over BMI; ADDR like\n"
    // clang-format off
    BMI_METHODS(ADDRESS)
    // clang-format on
    "       bmi-perf lat|bw|rate|list ADDR...       measure against these servers\n"
    "       bmi-perf compare ADDR... HOST:PORT...   BMI and plain TCP in turn, and their "
    "ratio\n"
    "       bmi-perf idle ADDR...                   processor time of idle servers\n"
    "       bmi-perf tcp-server HOST:PORT           serve over plain TCP sockets\n"
    "       bmi-perf tcp-lat|tcp-bw|tcp-rate|tcp-list HOST:PORT...  the same over TCP\n"
    "       bmi-perf tcp-store HOST:PORT DIR        keep files for tcp-put and tcp-get\n"
    "       bmi-perf tcp-put FILE NAME HOST:PORT... copy a file in, striped over the servers\n"
    "       bmi-perf tcp-get NAME FILE HOST:PORT... copy it out\n"
    "       bmi-perf --explain SIZE[xN] [ADDR]      limits, and the protocol chosen, N "
    "segments;\n"
    "                                               on the network of ADDR (default ib)\n"
    "       bmi-perf --session ADDR                 limits and state of a session with this\n"
    "                                               bmi-perf server\n"
    "       bmi-perf --counters ADDR                counters of this bmi-perf server in\n"
    "                                               Prometheus format\n"
    "       bmi-perf --options                      all options of the engine and its "
    "networks\n"
    "\n"
    "  --sizes LIST     bytes of a message: 8,64,1K and ranges 8-1M (doubling)\n"
    "  --count N        messages of one measurement (default: by size)\n"
    "  --warm N         messages before it (default: a tenth, at most 1000)\n"
    "  --rounds N       measurements; median, minimum and maximum are printed (default 5)\n"
    "  --window N       messages in flight (default: bw, list 8; rate 64)\n"
    "  --buffers N      separate buffers, shared by the messages in flight (default: 1; rate\n"
    "                   and any test with --verify: one each)\n"
    "  --pool N         bw, list: the client uses N buffers in rotation\n"
    "  --reuse P        with --pool: P percent of the messages use a recent buffer again\n"
    "  --clients N      client processes (default 1; idle 100); each uses all servers, lat "
    "one\n"
    "  --direction D    put (to the server), get, both (default put)\n"
    "  --memory M       user (ordinary memory), huge (likewise, in huge pages) or bmi (from\n"
    "                   BMI_memalloc; huge over TCP); default user\n"
    "  --extent SIZE    list: bytes of a segment (default 2K; size 512K)\n"
    "  --stride SIZE    list: from segment to segment (default: twice the extent)\n"
    "  --split N        list: segments of one operation, at most 4096 (default 64)\n"
    "  --holes N        list: N of the gaps between segments are unmapped (the client's\n"
    "                   user memory; not over TCP)\n"
    "  --pack           list: the client copies the segments into new memory, and sends that\n"
    "                   (not over TCP)\n"
    "  --alone          list: no comparison with the same bytes in one piece\n"
    "  --list-both      list: the server's memory is noncontiguous as well\n"
    "  --unexpected     rate: unexpected requests and replies\n"
    "  --reply SIZE     rate --unexpected: bytes of a reply (default 4K)\n"
    "  --test T         compare: lat, bw, rate or list (default bw)\n"
    "  --seconds N      idle: how long (default 10)\n"
    "  --verify         verify all contents (included in the time)\n"
    "  --server-memory SIZE  server, tcp-server: for all clients together (default 1G), and "
    "half\n"
    "                   of it for one job\n"
    "  --counters       print how the engine's counters changed, on both sides\n"
    "  --report FILE    doctor: write all lines to a file, too\n"
    "  --json           print JSON\n"
    "  --bmi-options S  options for BMI: key=value,key=value\n"
    "  --version        print the version\n"
    "\n"
    "MB/s are 10^6 bytes per second of payload.\n";

enum {
    OPT_SIZES = 256,
    OPT_COUNT,
    OPT_WARM,
    OPT_ROUNDS,
    OPT_WINDOW,
    OPT_BUFFERS,
    OPT_CLIENTS,
    OPT_DIRECTION,
    OPT_MEMORY,
    OPT_EXTENT,
    OPT_STRIDE,
    OPT_SPLIT,
    OPT_BOTH,
    OPT_POOL,
    OPT_REUSE,
    OPT_HOLES,
    OPT_PACK,
    OPT_ALONE,
    OPT_UNEXPECTED,
    OPT_REPLY,
    OPT_TEST,
    OPT_SECONDS,
    OPT_VERIFY,
    OPT_SERVER_MEMORY,
    OPT_COUNTERS,
    OPT_REPORT,
    OPT_JSON,
    OPT_BMI_OPTIONS,
    OPT_EXPLAIN,
    OPT_SESSION,
    OPT_OPTIONS,
    OPT_HELP,
    OPT_VERSION
};

static const struct option options[] = {
    {"sizes", required_argument, NULL, OPT_SIZES},
    {"count", required_argument, NULL, OPT_COUNT},
    {"warm", required_argument, NULL, OPT_WARM},
    {"rounds", required_argument, NULL, OPT_ROUNDS},
    {"window", required_argument, NULL, OPT_WINDOW},
    {"buffers", required_argument, NULL, OPT_BUFFERS},
    {"clients", required_argument, NULL, OPT_CLIENTS},
    {"direction", required_argument, NULL, OPT_DIRECTION},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"extent", required_argument, NULL, OPT_EXTENT},
    {"stride", required_argument, NULL, OPT_STRIDE},
    {"split", required_argument, NULL, OPT_SPLIT},
    {"list-both", no_argument, NULL, OPT_BOTH},
    {"pool", required_argument, NULL, OPT_POOL},
    {"reuse", required_argument, NULL, OPT_REUSE},
    {"holes", required_argument, NULL, OPT_HOLES},
    {"pack", no_argument, NULL, OPT_PACK},
    {"alone", no_argument, NULL, OPT_ALONE},
    {"unexpected", no_argument, NULL, OPT_UNEXPECTED},
    {"reply", required_argument, NULL, OPT_REPLY},
    {"test", required_argument, NULL, OPT_TEST},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"server-memory", required_argument, NULL, OPT_SERVER_MEMORY},
    {"counters", no_argument, NULL, OPT_COUNTERS},
    {"report", required_argument, NULL, OPT_REPORT},
    {"json", no_argument, NULL, OPT_JSON},
    {"bmi-options", required_argument, NULL, OPT_BMI_OPTIONS},
    {"explain", required_argument, NULL, OPT_EXPLAIN},
    {"session", no_argument, NULL, OPT_SESSION},
    {"options", no_argument, NULL, OPT_OPTIONS},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

bool args_size(const char *text, uint64_t *value)
{
    char *end;
    unsigned shift = 0;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (*end && strchr("kK", *end))
        shift = 10;
    else if (*end && strchr("mM", *end))
        shift = 20;
    else if (*end && strchr("gG", *end))
        shift = 30;
    if (errno || *value > UINT64_MAX >> shift || end[shift ? 1 : 0])
        return false;
    *value <<= shift;
    return true;
}

static bool add_size(struct args *args, uint64_t size)
{
    if (args->nsizes == MAX_SIZES || size > JOB_MAX_SIZE)
        return false;
    args->sizes[args->nsizes++] = size;
    return true;
}

/* Adds a range of sizes: "8-1M" is 8, 16, … 1M. */
static bool add_range(struct args *args, char *text, char *dash)
{
    uint64_t from, to;

    *dash = 0;
    if (!args_size(text, &from) || !args_size(dash + 1, &to) || !from || from > to)
        return false;
    for (; from <= to; from *= 2)
        if (!add_size(args, from))
            return false;
    return true;
}

static bool parse_sizes(struct args *args, const char *list)
{
    char *copy = strdup(list), *rest = copy, *item;
    uint64_t size;
    bool ok = copy != NULL;

    args->nsizes = 0;
    while (ok && (item = strsep(&rest, ",")) != NULL) {
        char *dash = strchr(item, '-');
        ok =
            dash ? add_range(args, item, dash) : args_size(item, &size) && add_size(args, size);
    }
    free(copy);
    return ok;
}

/* Looks up a name in `names`, ended by NULL; stores its index in *value. */
static bool parse_name(const char *text, const char *const *names, unsigned *value)
{
    for (*value = 0; names[*value]; ++*value)
        if (!strcmp(text, names[*value]))
            return true;
    return false;
}

static bool parse_unsigned(const char *text, unsigned least, unsigned most, unsigned *value)
{
    uint64_t v;

    if (!args_size(text, &v) || v < least || v > most)
        return false;
    *value = (unsigned)v;
    return true;
}

static bool take(struct args *args, int option, const char *value)
{
    static const char *const directions[] = {"put", "get", "both", NULL};
    static const char *const memories[] = {"user", "bmi", "huge", NULL};
    static const char *const tests[] = {"lat", "bw", "rate", "list", NULL};
    unsigned n;

    switch (option) {
    case OPT_SIZES:
        return parse_sizes(args, value);
    case OPT_COUNT:
        return args_size(value, &args->count) && args->count;
    case OPT_WARM:
        args->warm_given = true;
        return args_size(value, &args->warm);
    case OPT_ROUNDS:
        return parse_unsigned(value, 1, 1000, &args->rounds);
    case OPT_WINDOW:
        return args_size(value, &args->window) && args->window;
    case OPT_BUFFERS:
        return args_size(value, &args->buffers) && args->buffers;
    case OPT_CLIENTS:
        return parse_unsigned(value, 1, 4096, &args->clients);
    case OPT_DIRECTION:
        args->direction_given = true;
        if (!parse_name(value, directions, &n))
            return false;
        args->direction = (enum job_direction)n;
        return true;
    case OPT_MEMORY:
        if (!parse_name(value, memories, &n))
            return false;
        args->memory = (enum job_memory)n;
        return true;
    case OPT_EXTENT:
        return args_size(value, &args->extent) && args->extent;
    case OPT_STRIDE:
        return args_size(value, &args->stride) && args->stride;
    case OPT_SPLIT:
        return args_size(value, &args->split) && args->split;
    case OPT_POOL:
        return args_size(value, &args->pool) && args->pool;
    case OPT_REUSE:
        return args_size(value, &args->reuse);
    case OPT_HOLES:
        return args_size(value, &args->holes) && args->holes;
    case OPT_SERVER_MEMORY:
        return args_size(value, &args->server_memory) && args->server_memory;
    case OPT_REPLY:
        return args_size(value, &args->reply);
    case OPT_TEST:
        args->test = value;
        return parse_name(value, tests, &n);
    case OPT_SECONDS:
        return parse_unsigned(value, 1, 3600, &args->seconds);
    case OPT_BMI_OPTIONS:
        args->bmi_options = value;
        return true;
    case OPT_REPORT:
        args->report = value;
        return *value;
    case OPT_EXPLAIN:
        args->explain = value;
        return true;
    case OPT_BOTH:
        return args->both = true;
    case OPT_PACK:
        return args->pack = true;
    case OPT_ALONE:
        return args->alone = true;
    case OPT_UNEXPECTED:
        return args->unexpected = true;
    case OPT_VERIFY:
        return args->verify = true;
    case OPT_COUNTERS:
        return args->counters = true;
    case OPT_JSON:
        return args->json = true;
    case OPT_SESSION:
        return args->session = true;
    case OPT_OPTIONS:
        return args->options = true;
    }
    return false;
}

int args_parse(struct args *args, int argc, char **argv)
{
    int option, index = 0;

    *args = (struct args){.mode = "",
                          .rounds = 5,
                          .seconds = 10,
                          .test = "bw",
                          .reply = 4096,
                          .server_memory = BUDGET_DEFAULT};
    argv[0] = "bmi-perf"; /* name in getopt's messages */
    while ((option = getopt_long(argc, argv, "hV", options, &index)) != -1) {
        if (option == OPT_HELP || option == 'h') {
            fputs(usage, stdout);
            return 1;
        }
        if (option == OPT_VERSION || option == 'V') {
            puts("bmi-perf (" PACKAGE_NAME ") " PACKAGE_VERSION);
            return 1;
        }
        if (option == '?') {
            fputs("bmi-perf: see bmi-perf --help\n", stderr);
            return -1;
        }
        if (!take(args, option, optarg)) {
            fprintf(stderr, "bmi-perf: --%s does not take '%s'; see bmi-perf --help\n",
                    options[index].name, optarg);
            return -1;
        }
    }
    if (optind < argc && !args->session && !args->explain && !strstr(argv[optind], "://"))
        args->mode = argv[optind++];
    args->positional = argv + optind;
    args->npositional = (unsigned)(argc - optind);
    return 0;
}
