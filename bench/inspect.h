/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Looking inside the engine behind BMI: counters, session attributes, options, and the
 * planner's table. */
#ifndef BENCH_INSPECT_H
#define BENCH_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "embedded/bmi/bmi.h"

/*
 * Writes the counters and stage times of that engine as Prometheus reads them: *length bytes,
 * without the final zero.  -BMI_ENOSYS: the address's method is no engine of ours; -BMI_ENOMEM;
 * -BMI_EMSGSIZE: no room.
 */
int inspect_metrics(BMI_addr_t addr, const char *network, char *text, size_t size,
                    size_t *length);

/*
 * Writes the counters of the engine that serves this address, "name value unit" a line, into
 * text (of `size` bytes), and if asked for the times that operations spent in their stages, as
 * many as there is room for. Returns the bytes written, without the final zero; 0 when the
 * address's method is no engine of ours. A server's text travels, and without stages in one
 * eager message, so that no measurement has more messages and registrations for it.
 */
size_t inspect_counters(BMI_addr_t addr, bool stages, char *text, size_t size);

/* Prints what changed between two such texts, one counter a line, or as one JSON object, which
 * does not end its line. */
void inspect_print_difference(FILE *out, const char *who, const char *before, const char *after,
                              bool json);

/* The option that the engine behind this address has warned of, as there is none of that name;
 * NULL: there was none.  The text is the engine's. */
const char *inspect_ignored(BMI_addr_t addr);

/* The modes --options, --explain SIZE[xN] [ADDR], --session ADDR and --counters ADDR.  Each
 * returns the exit status. */
int inspect_options(void);
int inspect_explain(const char *what, const char *address, const char *options);
int inspect_server(const char *address, const char *options);
int inspect_session(const char *address, const char *options);

#endif
