/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* raw.h - the loops of perftest over a modelled device, and the published rows beside them. */
#ifndef BENCH_MODEL_RAW_H
#define BENCH_MODEL_RAW_H

#include <stdio.h>

#include "bench/model/adapter.h"

/* Half a round trip, of a read the whole operation: ns. */
double raw_latency(const struct device *d, enum request_kind kind, uint64_t bytes);
/* ns for a message, with 128 of them in flight. */
double raw_interval(const struct device *d, enum request_kind kind, uint64_t bytes);

/* Prints each published row beside the model's: a page in Markdown.  Returns the number of
 * rows that differ by more than a tenth. */
int validate(FILE *out);

/* Returns the same for sends by a queue of `depth` entries, at most 127, of which the last of
 * each half is signalled. */
double raw_interval_depth(const struct device *d, uint64_t bytes, uint32_t depth);

#endif
