/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Command line of bmi-perf; see args.h. */
#include "config.h"
#include "bench/args.h"
#include "bench/budget.h"
#include "embedded/program/program.h"

#include <getopt.h>
#include <stddef.h>
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

enum kind { FLAG, TEXT, BYTES, NUMBER, NAME, WORD, SIZES, HELP, RELEASE };

static const char *const directions[] = {"put", "get", "both", NULL};
static const char *const memories[] = {"user", "bmi", "huge", NULL}; /* enum job_memory */
static const char *const tests[] = {"lat", "bw", "rate", "list", NULL};

#define AT(field) offsetof(struct args, field)

static const struct rule {
    const char *name;
    enum kind kind;
    size_t at; /* of the value; for one of `names` a number (NAME) or the text (WORD) */
    uint64_t least, most; /* of a text: bytes */
    const char *const *names;
    size_t given; /* of a flag that is set, too; 0: none */
} rules[] = {
    {"sizes", SIZES, 0, 0, 0, NULL, 0},
    {"count", BYTES, AT(count), 1, UINT64_MAX, NULL, 0},
    {"warm", BYTES, AT(warm), 0, UINT64_MAX, NULL, AT(warm_given)},
    {"rounds", NUMBER, AT(rounds), 1, 1000, NULL, 0},
    {"window", BYTES, AT(window), 1, UINT64_MAX, NULL, 0},
    {"buffers", BYTES, AT(buffers), 1, UINT64_MAX, NULL, 0},
    {"clients", NUMBER, AT(clients), 1, 4096, NULL, 0},
    {"direction", NAME, AT(direction), 0, 0, directions, AT(direction_given)},
    {"memory", NAME, AT(memory), 0, 0, memories, 0},
    {"extent", BYTES, AT(extent), 1, UINT64_MAX, NULL, 0},
    {"stride", BYTES, AT(stride), 1, UINT64_MAX, NULL, 0},
    {"split", BYTES, AT(split), 1, UINT64_MAX, NULL, 0},
    {"list-both", FLAG, AT(both), 0, 0, NULL, 0},
    {"pool", BYTES, AT(pool), 1, UINT64_MAX, NULL, 0},
    {"reuse", BYTES, AT(reuse), 0, UINT64_MAX, NULL, 0},
    {"holes", BYTES, AT(holes), 1, UINT64_MAX, NULL, 0},
    {"pack", FLAG, AT(pack), 0, 0, NULL, 0},
    {"alone", FLAG, AT(alone), 0, 0, NULL, 0},
    {"unexpected", FLAG, AT(unexpected), 0, 0, NULL, 0},
    {"reply", BYTES, AT(reply), 0, UINT64_MAX, NULL, 0},
    {"test", WORD, AT(test), 0, 0, tests, 0},
    {"seconds", NUMBER, AT(seconds), 1, 3600, NULL, 0},
    {"verify", FLAG, AT(verify), 0, 0, NULL, 0},
    {"server-memory", BYTES, AT(server_memory), 1, UINT64_MAX, NULL, 0},
    {"counters", FLAG, AT(counters), 0, 0, NULL, 0},
    {"report", TEXT, AT(report), 1, 0, NULL, 0},
    {"json", FLAG, AT(json), 0, 0, NULL, 0},
    {"bmi-options", TEXT, AT(bmi_options), 0, 0, NULL, 0},
    {"explain", TEXT, AT(explain), 0, 0, NULL, 0},
    {"session", FLAG, AT(session), 0, 0, NULL, 0},
    {"options", FLAG, AT(options), 0, 0, NULL, 0},
    {"help", HELP, 0, 0, 0, NULL, 0},
    {"version", RELEASE, 0, 0, 0, NULL, 0},
};

#define RULES (sizeof rules / sizeof *rules)

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
    if (!program_size(text, &from) || !program_size(dash + 1, &to) || !from || from > to)
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
        ok = dash != NULL ? add_range(args, item, dash)
                          : program_size(item, &size) && add_size(args, size);
    }
    free(copy);
    return ok;
}

static bool parse_number(const struct rule *rule, const char *text, void *at)
{
    uint64_t value;

    if (!program_size(text, &value) || value < rule->least || value > rule->most)
        return false;
    if (rule->kind == BYTES)
        *(uint64_t *)at = value;
    else
        *(unsigned *)at = (unsigned)value;
    return true;
}

static bool parse_name(const struct rule *rule, const char *text, void *at)
{
    unsigned i = 0;

    while (rule->names[i] != NULL && strcmp(text, rule->names[i]))
        i++;
    if (rule->kind == WORD)
        *(const char **)at = text;
    else
        *(unsigned *)at = i; /* of an enum */
    return rule->names[i];
}

static bool take(struct args *args, const struct rule *rule, const char *value)
{
    void *at = (char *)args + rule->at;

    if (rule->given)
        *(bool *)((char *)args + rule->given) = true;
    switch (rule->kind) {
    case FLAG:
        return *(bool *)at = true;
    case TEXT:
        *(const char **)at = value;
        return strlen(value) >= rule->least;
    case BYTES:
    case NUMBER:
        return parse_number(rule, value, at);
    case NAME:
    case WORD:
        return parse_name(rule, value, at);
    case SIZES:
        return parse_sizes(args, value);
    case HELP:
        fputs(usage, stdout);
        return true;
    case RELEASE:
        puts("bmi-perf (" PACKAGE_NAME ") " PACKAGE_VERSION);
        return true;
    }
    return false;
}

int args_parse(struct args *args, int argc, char **argv)
{
    struct option options[RULES + 1] = {{NULL, 0, NULL, 0}};
    int option;

    *args = (struct args){.mode = "",
                          .rounds = 5,
                          .seconds = 10,
                          .test = "bw",
                          .reply = 4096,
                          .server_memory = BUDGET_DEFAULT};
    for (size_t i = 0; i < RULES; i++) {
        bool bare = rules[i].kind == FLAG || rules[i].kind >= HELP;
        int letter = rules[i].kind == HELP      ? 'h'
                     : rules[i].kind == RELEASE ? 'V'
                                                : 256 + (int)i;

        options[i] = (struct option){rules[i].name, bare ? no_argument : required_argument,
                                     NULL, letter};
    }
    argv[0] = "bmi-perf"; /* name in getopt's messages */
    while ((option = getopt_long(argc, argv, "hV", options, NULL)) != -1) {
        const struct rule *rule = rules;

        if (option == '?') {
            fputs("bmi-perf: see bmi-perf --help\n", stderr);
            return -1;
        }
        while (options[rule - rules].val != option)
            rule++;
        if (!take(args, rule, optarg)) {
            fprintf(stderr, "bmi-perf: --%s does not take '%s'; see bmi-perf --help\n",
                    rule->name, optarg);
            return -1;
        }
        if (rule->kind >= HELP)
            return 1;
    }
    if (optind < argc && !args->session && args->explain == NULL &&
        strstr(argv[optind], "://") == NULL)
        args->mode = argv[optind++];
    args->positional = argv + optind;
    args->npositional = (unsigned)(argc - optind);
    return 0;
}
