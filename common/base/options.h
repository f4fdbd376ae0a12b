/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options: one table for the engine and one for each fabric, used for parsing and printed by
 * `bmi-perf --options`.  Values are integers (switches are 0 and 1; choices are named) or short
 * strings.
 */
#ifndef RME_OPTIONS_H
#define RME_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rme.h"

struct rme_options;

/* One option.  The last row of a table has the name NULL. */
struct rme_option_row {
    const char *name;
    /* "bytes", "ms", "count", "switch", "name" (a string option) …; or "first|second|third", of
     * which the first is the default, and the value is the number from 0 on */
    const char *unit;
    int64_t preset;            /* default */
    int64_t min, max;          /* allowed range; both 0 for a string option */
    const char *preset_string; /* default of a string option; NULL for integers */
    const char *text;          /* description: effect, and when to change it */
};

/* Creates the values of `count` tables, all set to their defaults.  NULL: no memory.  Names
 * must be unique (a unit test checks it). */
struct rme_options *rme_options_new(const struct rme_option_row *const *tables, int count);
void rme_options_free(struct rme_options *options);

/*
 * Sets values from "key=value,key=value".  Numbers may have the suffixes K, M or G (1024);
 * switches also accept on/off, yes/no, true/false.  Unknown keys are skipped: another method
 * may have them.  The last value of a key counts.  Old names of renamed options are accepted
 * for one release: `why` (`size` bytes) lists those in the text, or is empty.  -EINVAL:
 * malformed or out of range, with key, value and allowed range in `why`; earlier keys stay set.
 */
int rme_options_parse(struct rme_options *options, const char *text, char *why, size_t size);

/* Return a value by name.  0 or "" for an unknown name (a unit test checks the names in the
 * source). */
RME_API int64_t rme_option(const struct rme_options *options, const char *name);
RME_API const char *rme_option_string(const struct rme_options *options, const char *name);
int rme_option_find(const struct rme_options *options, const char *name, int64_t *value);

/* Limits a number to the available maximum.  True: a larger number was set explicitly. */
bool rme_option_cap(struct rme_options *options, const char *name, int64_t most);

/* The engine's own table. */
extern const struct rme_option_row rme_engine_options[];

#endif
