/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ends.h - engines over ib:// for programs with several processes: a server in a child,
 * clients, failures.
 *
 * A failure ends the process with a line that names program, failed step and reason.
 */
#ifndef BENCH_ENDS_H
#define BENCH_ENDS_H

#include <stdint.h>
#include <sys/types.h>

#include "rme.h"

/* Name of the program in these lines; defined by the program. */
extern const char ends_program[];

/* `error` is an errno value of either sign. */
void ends_die(const char *what, int error) __attribute__((noreturn));

/* Returns monotonic time in microseconds. */
double ends_now_us(void);

/* Opens an engine and its first context. `listen` NULL: the engine only connects. */
struct rme *ends_open(const struct rme_addr *listen, const char *options);

/* Returns an address reference owned by the caller. */
struct rme_addr *ends_address(const char *text);

/* Forks a child with an engine that listens on a free port of 127.0.0.1, stored in *port;
 * `serve` does not return. The child ends with its parent. Returns its process ID. */
pid_t ends_start_server(const char *options, void (*serve)(struct rme *rme), int *port);

/* Kills a child and waits for its exit. */
void ends_stop(pid_t pid);

/* Parses a number from 1 to `most`; returns `unset` if `text` is NULL. Ends the process with
 * status 2 if invalid. */
uint64_t ends_number(const char *text, uint64_t unset, uint64_t most);

#endif
