/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/name.h"
#include "embedded/iod/text.h"
#include "embedded/program/program.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *program = "bmi";

void args_set_program(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');

    program = slash ? slash + 1 : argv0;
    if (strncmp(program, "lt-", 3) == 0) /* libtool's prefix before the installation */
        program += 3;
}

bool args_complain(const char *format, ...)
{
    char *line = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&line, format, args) < 0)
        line = NULL;
    va_end(args);
    if (line)
        text_no_controls(line); /* one line, with any name */
    fprintf(stderr, "%s: %s\n", program, line ? line : "no memory; close other programs");
    free(line);
    return false;
}

volatile sig_atomic_t args_interrupted;

static void on_signal(int number)
{
    (void)number;
    args_interrupted = 1;
}

void args_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    program_catch(SIGINT, on_signal);
    program_catch(SIGHUP, on_signal);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL); /* a file size limit then fails the write */
    sigaction(SIGTERM, &action, NULL);
}

bool args_remote(const char *text, char *address, size_t size, const char **name)
{
    size_t length;

    *name = NULL;
    if (!name_split_remote(text, &length, name))
        return true;
    if (length >= size)
        return args_complain("%.60s...: the address is too long; use a shorter one", text);
    memcpy(address, text, length);
    address[length] = 0;
    return !strchr(address, ',') ||
           args_complain("%s: one address belongs before a name; give several by bmi-cp's "
                         "--servers",
                         text);
}

void args_ignored(const char *key)
{
    static bool told;

    if (!told)
        args_complain("unknown option \"%s\" ignored; bmi-perf --options lists all, "
                      "NEWS the removed ones",
                      key);
    told = true;
}

bool args_output(const char *rest)
{
    return program_output(program, rest);
}

#define OPTIONS_MAX 30

/* Appends --help and --version to the options, and makes the letters for getopt. */
static void complete(const struct option *options, struct option *all, char *letters)
{
    static const struct option common[] = {
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0}};
    int n = 0;

    while (options[n].name && n < OPTIONS_MAX) {
        all[n] = options[n];
        n++;
    }
    memcpy(all + n, common, sizeof common);
    *letters++ = ':'; /* distinguishes a missing value from an unknown option */
    for (; all->name; all++) {
        *letters++ = (char)all->val;
        if (all->has_arg == required_argument)
            *letters++ = ':';
    }
    *letters = 0;
}

enum args_result args_read(int argc, char **argv, const struct option *options,
                           const char *help,
                           bool (*set)(int option, const char *text, void *settings),
                           void *settings)
{
    struct option all[OPTIONS_MAX + 3];
    char letters[2 * OPTIONS_MAX + 8];
    int option;

    args_set_program(argv[0]);
    opterr = 0;
    complete(options, all, letters);
    while ((option = getopt_long(argc, argv, letters, all, NULL)) != -1) {
        switch (option) {
        case 'h':
            fputs(help, stdout);
            return args_output("") ? ARGS_DONE : ARGS_WRONG;
        case 'V':
            printf("%s (%s) %s\n", program, PACKAGE_NAME, PACKAGE_VERSION);
            return args_output("") ? ARGS_DONE : ARGS_WRONG;
        case ':':
            args_complain("option '%s' needs a value; see %s --help", argv[optind - 1],
                          program);
            return ARGS_WRONG;
        case '?':
            if (optopt == 0)
                args_complain("unknown option '%s'; see %s --help", argv[optind - 1], program);
            else if (strchr(letters, optopt))
                args_complain("option '%s' takes no value; see %s --help", argv[optind - 1],
                              program);
            else
                args_complain("unknown option '-%c'; see %s --help", optopt, program);
            return ARGS_WRONG;
        default:
            if (!set(option, optarg, settings))
                return ARGS_WRONG;
        }
    }
    return ARGS_READ;
}

bool args_number(const char *option, const char *text, uint64_t least, uint64_t most,
                 uint64_t *value)
{
    uint64_t number;

    if (!program_size(text, &number))
        return args_complain("%s: '%s' is not a number; give one like 4 or 64K", option, text);
    if (number < least || number > most)
        return args_complain("%s: %s is out of range; give %llu to %llu", option, text,
                             (unsigned long long)least, (unsigned long long)most);
    *value = number;
    return true;
}

const char *args_size_text(uint64_t bytes, char *text, size_t size)
{
    static const char units[] = {'G', 'M', 'K'};

    for (int i = 0; i < 3; i++) {
        int shift = 30 - 10 * i;
        if (bytes && bytes % (UINT64_C(1) << shift) == 0) {
            snprintf(text, size, "%llu%c", (unsigned long long)(bytes >> shift), units[i]);
            return text;
        }
    }
    snprintf(text, size, "%llu", (unsigned long long)bytes);
    return text;
}

/* Returns true for "scheme://something" without a name. */
static bool is_address(const char *text)
{
    size_t length;
    const char *name;

    return name_split_remote(text, &length, &name) && text[length] == 0 &&
           strstr(text, "://")[3] != 0;
}

enum args_fault args_split(const char *text, struct args_list *list)
{
    int room = 1;

    for (const char *at = text; *at; at++)
        room += *at == ',';
    *list =
        (struct args_list){.text = strdup(text), .item = calloc((size_t)room, sizeof(char *))};
    if (!list->text || !list->item)
        return ARGS_NO_MEMORY;
    for (char *at = list->text, *next; at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        while (*at && at[strlen(at) - 1] == '/')
            at[strlen(at) - 1] = 0;
        list->item[list->count++] = at;
        if (!is_address(at))
            return ARGS_NO_ADDRESS;
        for (int i = 0; i < list->count - 1; i++)
            if (strcmp(list->item[i], at) == 0)
                return ARGS_TWICE;
    }
    return ARGS_GOOD;
}

bool args_list(const char *option, const char *text, int most, struct args_list *list)
{
    enum args_fault fault = args_split(text, list);
    const char *last = list->count ? list->item[list->count - 1] : "";

    if (fault == ARGS_NO_MEMORY)
        args_complain("%s: no memory", option);
    else if (fault == ARGS_NO_ADDRESS)
        args_complain("%s: invalid server '%s'; give addresses like ib://host:port", option,
                      last);
    else if (fault == ARGS_TWICE)
        args_complain("%s: %s comes twice; name each server once", option, last);
    else if (list->count > most)
        args_complain("%s: %d servers; give at most %d", option, list->count, most);
    else
        return true;
    args_list_free(list);
    return false;
}

bool args_access(const char *option, const char *text, struct access **access)
{
    char why[400];

    access_free(*access);
    *access = access_new(text, why, sizeof why);
    return *access || args_complain("%s: %s", option, why);
}

void args_list_free(struct args_list *list)
{
    free(list->item);
    free(list->text);
    *list = (struct args_list){0};
}
