/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * memory.h - data of objects in memory, in chunks that are allocated when first written.  Freed
 * chunks are kept for later objects.  Any number of threads may move different bytes.
 */
#ifndef IOD_MEMORY_H
#define IOD_MEMORY_H

#include <stdbool.h>

#include "embedded/iod/extents.h"

#define MEMORY_CHUNK 65536u

struct memory;
struct memory_file;

/* Makes a memory of at most `limit` bytes, including the tables of chunks.  NULL: no memory. */
struct memory *memory_new(uint64_t limit);
void memory_free(struct memory *memory); /* without files */

/* Makes a file of zeros, with one reference.  Returns 0, -EXFULL or -ENOMEM. */
int memory_file_new(struct memory *memory, uint64_t size, struct memory_file **out);
void memory_file_get(struct memory_file *file);
void memory_file_put(
    struct memory_file *file); /* frees with the last reference; NULL allowed */

/* Moves `length` bytes at the positions of `from`.  Returns 0, -EINVAL outside the file, or
 * when writing -EXFULL or -ENOMEM. */
int memory_move(struct memory_file *file, struct extent_cursor from, char *bytes,
                uint64_t length, bool write);

/* As object_extents(). */
int memory_extents(struct memory_file *file, uint64_t from, size_t max,
                   struct extent_list *list, uint64_t *next);

#endif
