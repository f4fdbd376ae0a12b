/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * folder.h - a store on a real folder, for the tests of the store.  Objects hold text.
 */
#ifndef TESTS_UNIT_IOD_FOLDER_H
#define TESTS_UNIT_IOD_FOLDER_H

#include "tests/unit/common/unit.h"
#include "embedded/iod/store.h"

extern char folder[64]; /* folder of the running test */

/* Create the test's folder; remove it with its files. */
int folder_set_up(void **state);
int folder_tear_down(void **state);

struct store *open_it(void);
int files(const char *prefix); /* number of files whose names begin with `prefix` */

/* Begins upload 7 to a single server. */
struct object *begin(struct store *store, const char *name, uint64_t size);
void write_text(struct object *object, const char *text);
int read_text(struct object *object, char *text); /* reads all; returns the status */
void seal_and_commit(struct object *object, uint64_t version);
/* store_commit() without its list of removed files */
int commit(struct object *object, uint64_t *number);
/* begin, write, seal and commit */
void put(struct store *store, const char *name, const char *text);
int look_up(struct store *store, const char *name, struct object **object);
void assert_holds(struct store *store, const char *name, const char *text);

/* Begins part `index` of two of the file `s`; prepares part 1, whose client leaves. */
struct object *begin_part(struct store *store, uint64_t upload, uint32_t index,
                          const char *text);
void prepare(struct store *store, uint64_t upload, uint64_t version, const char *text);

#endif
