/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* args.h - values on command lines.  Every failure prints one line on standard error, led by
 * the program's name. */
#ifndef IOD_ARGS_H
#define IOD_ARGS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "embedded/iod/access.h"

/* Prints "<program>: <line>" on standard error.  Returns false, so that it can end a check. */
bool args_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Complains once that there is no such key for --options. */
void args_ignored(const char *key);

/* Writes out what was printed on standard output.  If that fails, complains with `rest` behind
 * the cause and the remedy, and returns false. */
bool args_output(const char *rest);

/* The program's name for messages; from argv[0]. */
void args_set_program(const char *argv0);

/*
 * Walks the options of a command line.  `options` ends with a zero row; `val` of each is its
 * letter.  `set` takes each option, and complains itself about a value.  ARGS_DONE: --help
 * (which prints `help`) or --version was asked for, which belong to every program; ARGS_WRONG:
 * somebody complained; ARGS_READ: `optind` is where names begin.
 */
enum args_result { ARGS_READ, ARGS_DONE, ARGS_WRONG };

enum args_result args_read(int argc, char **argv, const struct option *options,
                           const char *help,
                           bool (*set)(int option, const char *text, void *settings),
                           void *settings);

/* A number of `unit` with an optional K, M or G (powers of 1024), between least and most. */
bool args_number(const char *option, const char *text, uint64_t least, uint64_t most,
                 uint64_t *value);

/* Bytes as a short text: "64K", "5G", "1000".  Exact: no unit when it does not divide. */
const char *args_size_text(uint64_t bytes, char *text, size_t size);

/* A list of addresses, cut at commas.  Freed by args_list_free(). */
struct args_list {
    char *text; /* all addresses, each terminated */
    char **item;
    int count;
};

enum args_fault { ARGS_GOOD, ARGS_NO_ADDRESS, ARGS_TWICE, ARGS_NO_MEMORY };

/* Cuts a list.  At a fault the last item is the one at fault (if it is not the memory); free
 * the list in any case. */
enum args_fault args_split(const char *text, struct args_list *list);

/*
 * The same for an option, with complaints.  Each address must look like "scheme://host:port",
 * none may come twice, there may be at most `most`.
 */
bool args_list(const char *option, const char *text, int most, struct args_list *list);
/* "HOST|NET/BITS,..." of an option, with complaints; *access, an earlier one, is freed. */
bool args_access(const char *option, const char *text, struct access **access);

void args_list_free(struct args_list *list);

#endif
