/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ends.h - engines over ib:// for the programs that need several processes: a server in a
 * child, clients, and what goes wrong.
 *
 * Whatever fails ends the process with a line that names the program, what was tried and why.
 */
#ifndef BENCH_ENDS_H
#define BENCH_ENDS_H

#include <stdint.h>
#include <sys/types.h>

#include "rme.h"

/* What the program is called in those lines; it defines it. */
extern const char ends_program[];

/* `error` is one of errno, of either sign. */
void ends_die(const char *what, int error) __attribute__((noreturn));

/* Microseconds of a clock that only goes on. */
double ends_now_us(void);

/* An engine with its first context open.  `listen` NULL: it connects only. */
struct rme *ends_open(const struct rme_addr *listen, const char *options);

/* The caller's reference. */
struct rme_addr *ends_address(const char *text);

/* A child with an engine that listens on 127.0.0.1, on a port that was free; `serve` does not
 * return.  The child ends with its parent.  Its pid; the port in *port. */
pid_t ends_start_server(const char *options, void (*serve)(struct rme *rme), int *port);

/* Kills a child and waits for its death. */
void ends_stop(pid_t pid);

/* The number that `text` says, from 1 to `most`; `unset` without a text.  Ends with status 2
 * when it is none. */
uint64_t ends_number(const char *text, uint64_t unset, uint64_t most);

/* For qsort() of doubles. */
int ends_by_size(const void *a, const void *b);

#endif
