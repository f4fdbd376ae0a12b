/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * memory.h - data of objects in memory, in chunks.  Freed chunks are kept for later objects.
 * Any number of threads may move different bytes.
 */
#ifndef IOD_MEMORY_H
#define IOD_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define MEMORY_CHUNK 65536u

struct memory;
struct memory_file;

/* Makes a memory of at most `limit` bytes, including the tables of chunks.  NULL: no memory. */
struct memory *memory_new(uint64_t limit);
void memory_free(struct memory *memory); /* without files */

/* Makes a file, with one reference; its bytes are undefined until written.  Returns 0, -EXFULL
 * or -ENOMEM. */
int memory_file_new(struct memory *memory, uint64_t size, struct memory_file **out);
void memory_file_get(struct memory_file *file);
void memory_file_put(
    struct memory_file *file); /* frees with the last reference; NULL allowed */

/* Moves `length` bytes from `offset` on.  Returns 0, or -EINVAL outside the file. */
int memory_move(struct memory_file *file, uint64_t offset, char *bytes, uint64_t length,
                bool write);

#endif
