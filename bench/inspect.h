/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Internals of the engine behind BMI: counters, session attributes, options, the planner's
 * table. */
#ifndef BENCH_INSPECT_H
#define BENCH_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "embedded/bmi/bmi.h"

/*
 * Writes the counters of the engine behind `addr` in Prometheus format: *length
 * bytes, without the final zero. Returns 0; -BMI_ENOSYS if the method of the address has no
 * engine; -BMI_ENOMEM; -BMI_EMSGSIZE if they do not fit.
 */
int inspect_metrics(BMI_addr_t addr, const char *network, char *text, size_t size,
                    size_t *length);

/*
 * Writes the counters of the engine that serves this address, "name value unit" per line, into
 * text (of `size` bytes). Returns the bytes written, without the final zero; 0 if the method of
 * the address has no engine. The text fits into one eager message, so measurements have no
 * additional messages and registrations.
 */
size_t inspect_counters(BMI_addr_t addr, char *text, size_t size);

/* Prints the differences between two such texts, one counter per line, or as one JSON object
 * without a final newline. */
void inspect_print_difference(FILE *out, const char *who, const char *before, const char *after,
                              bool json);

/* Writes a line for each peer of the engine of an address in use. */
void inspect_peers(const char *address, void (*write)(void *arg, const char *line), void *arg);

/* The modes --options, --explain SIZE[xN] [ADDR], --counters ADDR and --session ADDR. Each
 * returns the exit status. */
int inspect_options(void);
int inspect_explain(const char *what, const char *address, const char *options);
int inspect_server(const char *address, const char *options);
int inspect_session(const char *address, const char *options);

#endif
