/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * metrics.h - counters of an engine in the text format of Prometheus (exposition format 0.0.4).
 *
 * Names, help and types come from the engine's table of counters.  A name is "rme_", the
 * counter's name, its unit unless part of the name, and "_total" for monotonic counters.
 */
#ifndef EMBEDDED_METRICS_H
#define EMBEDDED_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "common/rme.h"

/* Prints the head of a metric: its help and its type ("counter", "gauge"). */
void metrics_head(FILE *out, const char *name, const char *type, const char *help);

/* Prints a label's value, escaped, without quotes. */
void metrics_label(FILE *out, const char *value);

/*
 * Prints all counters and gauges with the label network="NETWORK".  The caller checks `out` for
 * errors.
 */
void metrics_engine(FILE *out, struct rme *rme, const char *network);

#endif
