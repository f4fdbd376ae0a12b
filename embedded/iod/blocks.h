/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * blocks.h - data of an object in its file, with a checksum for each block of 4096 bytes.
 *
 * A table behind the last block has one checksum, 4 bytes, per block.  A block of zeros is a
 * hole with the sum 0; no other block has this sum.  The table, not the file system, thus shows
 * where data is.  The object's head has the checksum of the table (struct blocks_sum).
 *
 * A read verifies each block as a whole, even if only a part is requested: a corrupted block is
 * reported as -EUCLEAN, and none of its bytes is returned.
 *
 * Any number of threads may read, and write different bytes, at the same time.  All functions
 * may block on the disk.
 */
#ifndef IOD_BLOCKS_H
#define IOD_BLOCKS_H

#include <pthread.h>
#include <sys/uio.h>

#include "embedded/iod/extents.h"

#define BLOCK_SIZE 4096u

struct blocks {
    int fd;               /* owned by the caller */
    uint64_t base;        /* offset of the object's data in the file */
    uint64_t size;        /* bytes of the object */
    pthread_mutex_t edge; /* held while a block is written in part */
};

/* Digest of a table: sum and number of all entries that are not 0. */
struct blocks_sum {
    uint32_t sum;
    uint64_t count;
};

void blocks_init(struct blocks *blocks, int fd, uint64_t base, uint64_t size);
void blocks_destroy(struct blocks *blocks);

/* Returns the bytes of the whole file, with the table. */
uint64_t blocks_file_size(const struct blocks *blocks);

/*
 * Moves `length` bytes at the positions of `from` (a copy), all inside the object, between file
 * and contiguous memory.  Writing skips blocks of zeros; the file must read as zeros there.
 * Returns 0 or -errno: -EUCLEAN for a corrupted block, -ENODATA for a truncated file.
 */
int blocks_read(struct blocks *blocks, struct extent_cursor from, void *memory,
                uint64_t length);
int blocks_write(struct blocks *blocks, struct extent_cursor from, const void *memory,
                 uint64_t length);

/* Scan of the table from the start; initially zero. */
struct blocks_scan {
    uint64_t next; /* next block */
    struct blocks_sum seen;
};

/*
 * Continues a scan and appends at most `max` data ranges.  At the end scan->next is the number
 * of blocks, and scan->seen the digest of the table.  With `list` NULL scans to the end.
 * Returns 0 or -errno.
 */
int blocks_walk(struct blocks *blocks, struct blocks_scan *scan, size_t max,
                struct extent_list *list);

uint64_t blocks_count(const struct blocks *blocks);

#endif
