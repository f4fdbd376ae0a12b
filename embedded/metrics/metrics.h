/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * metrics.h - what an engine counts, as text that Prometheus reads (its exposition format,
 * version 0.0.4).
 *
 * Names, help and types come from the engine's one table of counters.  A name is "rme_", that
 * of the counter, its unit where the name does not have it, and "_total" for what only grows.
 */
#ifndef EMBEDDED_METRICS_H
#define EMBEDDED_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "common/rme.h"

/* The head of one metric: its help and its type ("counter", "gauge", "histogram"). */
void metrics_head(FILE *out, const char *name, const char *type, const char *help);

/* A label's value, with what needs an escape escaped; no quotes around it. */
void metrics_label(FILE *out, const char *value);

/*
 * All counters and gauges, each with the label network="NETWORK", and the times of the stages
 * of operations, in seconds, as one histogram with labels kind, protocol and stage.  Errors are
 * those of `out`, at its end.
 */
void metrics_engine(FILE *out, struct rme *rme, const char *network);

#endif
