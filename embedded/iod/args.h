/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* args.h - command lines.  Each failure prints one line on standard error, beginning with the
 * program's name. */
#ifndef IOD_ARGS_H
#define IOD_ARGS_H

#include <getopt.h>
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

/* Sets the program's name for messages from argv[0]. */
void args_set_program(const char *argv0);

/*
 * Parses the options of a command line.  `options` ends with a zero row, and `val` is the
 * letter of an option.  `set` handles an option, and prints errors of its value itself.
 * Returns ARGS_DONE after --help (prints `help`) or --version, ARGS_WRONG after a printed
 * error, or ARGS_READ; `optind` is then the first name.
 */
enum args_result { ARGS_READ, ARGS_DONE, ARGS_WRONG };

enum args_result args_read(int argc, char **argv, const struct option *options,
                           const char *help,
                           bool (*set)(int option, const char *text, void *settings),
                           void *settings);

/* Parses a number with an optional suffix K, M or G (powers of 1024), between `least` and
 * `most`. */
bool args_number(const char *option, const char *text, uint64_t least, uint64_t most,
                 uint64_t *value);

/* Formats bytes as a short text: "64K", "5G", "1000".  Exact: a unit is used only if it
 * divides. */
const char *args_size_text(uint64_t bytes, char *text, size_t size);

/* List of addresses, to be freed by args_list_free(). */
struct args_list {
    char *text; /* all addresses, each terminated */
    char **item;
    int count;
};

enum args_fault { ARGS_GOOD, ARGS_NO_ADDRESS, ARGS_TWICE, ARGS_NO_MEMORY };

/* Splits a list at commas.  On ARGS_NO_ADDRESS and ARGS_TWICE the last item is the faulty one.
 * The caller frees the list in any case. */
enum args_fault args_split(const char *text, struct args_list *list);

/*
 * Splits the list of an option, and prints errors.  Each address must look like
 * "scheme://host:port"; duplicates and more than `most` addresses are errors.
 */
bool args_list(const char *option, const char *text, int most, struct args_list *list);
/* Parses "HOST|NET/BITS,..." of an option, and prints errors; frees an earlier *access. */
bool args_access(const char *option, const char *text, struct access **access);

void args_list_free(struct args_list *list);

#endif
