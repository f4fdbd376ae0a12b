/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* args.h - command lines.  Each failure prints one line on standard error, beginning with the
 * program's name. */
#ifndef IOD_ARGS_H
#define IOD_ARGS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "embedded/iod/access.h"

/* Prints "<program>: <line>" on standard error.  Returns false, to end a check. */
bool args_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Set by SIGINT, SIGTERM and SIGHUP after args_catch_signals(); a signal that was ignored at
 * the start stays ignored. */
extern volatile sig_atomic_t args_interrupted;
void args_catch_signals(void);

/* Splits "ADDR/NAME" for the `size` bytes of `address`; prints errors of the address.  *name:
 * NULL for another text. */
bool args_remote(const char *text, char *address, size_t size, const char **name);

/* Warns once of an unknown key in --options. */
void args_ignored(const char *key);

/* Flushes standard output.  On failure prints the cause, the remedy and `rest`, and returns
 * false. */
bool args_output(const char *rest);

/* List of addresses, to be freed by args_list_free(). */
struct args_list {
    char *text; /* all addresses, each terminated */
    char **item;
    int count;
};

/*
 * Option with its value: ARGS_FLAG sets a bool, ARGS_TEXT a const char *, ARGS_NUMBER a
 * uint64_t between `least` and `most` (a suffix K, M or G is a power of 1024), ARGS_SERVERS a
 * struct args_list, ARGS_ACCESS a struct access *.
 */
enum args_kind { ARGS_FLAG, ARGS_TEXT, ARGS_NUMBER, ARGS_SERVERS, ARGS_ACCESS };

struct args_option {
    const char *name;
    char letter;
    enum args_kind kind;
    void *value;
    uint64_t least, most;
};

/*
 * Parses the options of a command line; a row without name ends `options`.  Returns ARGS_DONE
 * after --help (prints `help`) or --version, ARGS_WRONG after a printed error, or ARGS_READ;
 * `optind` is then the first name.
 */
enum args_result { ARGS_READ, ARGS_DONE, ARGS_WRONG };

enum args_result args_read(int argc, char **argv, const struct args_option *options,
                           const char *help);

/* The row of --timeout, and of --options. */
#define ARGS_TIMEOUT(seconds)                                                                  \
    {                                                                                          \
        "timeout", 't', ARGS_NUMBER, seconds, 1, 86400                                         \
    }
#define ARGS_OPTIONS(settings)                                                                 \
    {                                                                                          \
        "options", 'o', ARGS_TEXT, settings, 0, 0                                              \
    }

/* Parses a number as that of an option. */
bool args_number(const char *option, const char *text, uint64_t least, uint64_t most,
                 uint64_t *value);

/* Formats bytes as a short text: "64K", "5G", "1000".  Exact: a unit is used only if it
 * divides. */
const char *args_size_text(uint64_t bytes, char *text, size_t size);

/* Splits a list of different addresses like "scheme://host:port" at commas; prints errors. */
bool args_list(const char *option, const char *text, struct args_list *list);
void args_list_free(struct args_list *list);

#endif
