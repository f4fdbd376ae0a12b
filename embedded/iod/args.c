/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/args.h"
#include "embedded/iod/name.h"
#include "embedded/iod/proto.h"
#include "embedded/iod/text.h"
#include "embedded/program/program.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *program = "bmi";

static void set_program(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');

    program = slash != NULL ? slash + 1 : argv0;
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
    if (line != NULL)
        text_no_controls(line); /* one line, with any name */
    fprintf(stderr, "%s: %s\n", program,
            line != NULL ? line : "no memory; close other programs");
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
    return strchr(address, ',') == NULL ||
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

/* Makes the options for getopt, with --help and --version, and their letters. */
static void complete(const struct args_option *options, struct option *all, char *letters)
{
    static const struct args_option common[] = {
        {"help", 'h', ARGS_FLAG, NULL, 0, 0}, {"version", 'V', ARGS_FLAG, NULL, 0, 0}, {0}};

    *letters++ = ':'; /* distinguishes a missing value from an unknown option */
    for (const struct args_option *o = options; o; o = o == common + 1 ? NULL : o + 1) {
        if (o->name == NULL)
            o = common;
        *all++ = (struct option){
            o->name, o->kind == ARGS_FLAG ? no_argument : required_argument, NULL, o->letter};
        *letters++ = o->letter;
        if (o->kind != ARGS_FLAG)
            *letters++ = ':';
    }
    *all = (struct option){0};
    *letters = 0;
}

static bool read_access(const char *option, const char *text, struct access **access)
{
    char why[400];

    access_free(*access);
    *access = access_new(text, why, sizeof why);
    return *access != NULL || args_complain("%s: %s", option, why);
}

/* Sets the value of an option. */
static bool set(const struct args_option *o, const char *text)
{
    char option[40];

    snprintf(option, sizeof option, "--%s", o->name);
    switch (o->kind) {
    case ARGS_FLAG:
        *(bool *)o->value = true;
        return true;
    case ARGS_TEXT:
        *(const char **)o->value = text;
        return true;
    case ARGS_NUMBER:
        return args_number(option, text, o->least, o->most, o->value);
    case ARGS_SERVERS:
        args_list_free(o->value);
        return args_list(option, text, o->value);
    case ARGS_ACCESS:
        return read_access(option, text, o->value);
    }
    return false;
}

static enum args_result wrong_option(const char *text, int option, const char *letters)
{
    if (option == ':')
        args_complain("option '%s' needs a value; see %s --help", text, program);
    else if (optopt == 0)
        args_complain("unknown option '%s'; see %s --help", text, program);
    else if (strchr(letters, optopt) != NULL)
        args_complain("option '%s' takes no value; see %s --help", text, program);
    else
        args_complain("unknown option '-%c'; see %s --help", optopt, program);
    return ARGS_WRONG;
}

enum args_result args_read(int argc, char **argv, const struct args_option *options,
                           const char *help)
{
    struct option all[OPTIONS_MAX + 3];
    char letters[2 * OPTIONS_MAX + 8];
    int option;

    set_program(argv[0]);
    opterr = 0;
    complete(options, all, letters);
    while ((option = getopt_long(argc, argv, letters, all, NULL)) != -1) {
        const struct args_option *o = options;

        if (option == ':' || option == '?')
            return wrong_option(argv[optind - 1], option, letters);
        if (option == 'h')
            fputs(help, stdout);
        else if (option == 'V')
            printf("%s (%s) %s\n", program, PACKAGE_NAME, PACKAGE_VERSION);
        if (option == 'h' || option == 'V')
            return args_output("") ? ARGS_DONE : ARGS_WRONG;
        while (o->letter != option)
            o++;
        if (!set(o, optarg))
            return ARGS_WRONG;
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

/* Takes the next address of a list.  Returns false after a printed error. */
static bool add_address(const char *option, char *address, struct args_list *list)
{
    while (*address && address[strlen(address) - 1] == '/')
        address[strlen(address) - 1] = 0;
    if (!is_address(address))
        return args_complain("%s: invalid server '%s'; give addresses like ib://host:port",
                             option, address);
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->item[i], address) == 0)
            return args_complain("%s: %s comes twice; name each server once", option, address);
    if (list->count == IOD_STRIPE_MAX)
        return args_complain("%s: more than %d servers; give at most that many", option,
                             IOD_STRIPE_MAX);
    list->item[list->count++] = address;
    return true;
}

bool args_list(const char *option, const char *text, struct args_list *list)
{
    bool good;

    *list = (struct args_list){.text = strdup(text),
                               .item = calloc(IOD_STRIPE_MAX, sizeof(char *))};
    good = (list->text != NULL && list->item != NULL) || args_complain("%s: no memory", option);
    for (char *at = list->text, *next; good && at != NULL; at = next) {
        next = strchr(at, ',');
        if (next != NULL)
            *next++ = 0;
        good = add_address(option, at, list);
    }
    if (!good)
        args_list_free(list);
    return good;
}

void args_list_free(struct args_list *list)
{
    free(list->item);
    free(list->text);
    *list = (struct args_list){0};
}
