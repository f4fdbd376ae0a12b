/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tunables: one table per owner (the engine, each fabric), from which parsing and `bmi-perf
 * --options`, which is their manual, come.  Values are integers (switches are 0 and 1; choices
 * are named) or short strings.
 */
#ifndef RME_OPTIONS_H
#define RME_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct rme_options;

/* One tunable.  A table ends with a row whose name is NULL. */
struct rme_option_row {
    const char *name;
    const char *unit; /* "bytes", "ms", "count", "switch", "name" (a string option) … */
    int64_t preset;   /* default value */
    int64_t min, max; /* allowed range; both 0 for a string option */
    const char *text; /* prose: what it does, when to change it */
    const char *preset_string; /* default of a string option; NULL for integers */
};

/*
 * The values of `count` tables together, all at their defaults.  NULL: no memory.  Two rows of
 * one name are a mistake of ours, found by a unit test.
 */
struct rme_options *rme_options_new(const struct rme_option_row *const *tables, int count);
void rme_options_free(struct rme_options *options);

/*
 * Sets values from "key=value,key=value".  Numbers may carry K, M or G (1024); switches also
 * on/off, yes/no, true/false.  Unknown keys are skipped: another method may own them.  A value
 * that is malformed or out of range gives -EINVAL, and `why` (of `size` bytes) says key, value
 * and allowed range; earlier keys stay set.
 */
int rme_options_parse(struct rme_options *options, const char *text, char *why, size_t size);

/* The first key of "key=value,…" that is in none of the tables, and its length; NULL when all
 * are. */
const char *rme_options_stranger(const struct rme_options *options, const char *text,
                                 size_t *length);

/* A value by name.  The name must be in one of the tables (a unit test greps for that); 0 or ""
 * otherwise. */
int64_t rme_option(const struct rme_options *options, const char *name);
const char *rme_option_string(const struct rme_options *options, const char *name);
int rme_option_find(const struct rme_options *options, const char *name, int64_t *value);

/* A number that shall be no larger, as more cannot be had.  True: somebody has asked for more.
 */
bool rme_option_cap(struct rme_options *options, const char *name, int64_t most);

/* The engine's own table. */
extern const struct rme_option_row rme_engine_options[];

#endif
