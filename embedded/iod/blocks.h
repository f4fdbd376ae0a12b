/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * blocks.h - an object's bytes in its file, with a check sum for each block of 4096.
 *
 * Behind the object's last block stands a table of one sum, 4 bytes, for each block.  A block
 * of zeros is a hole and its sum is 0; no other block has that sum.  So the table also says
 * where data is, and it is the table, not the file system, that is asked.  What the table
 * itself should be is said by `struct blocks_sum`, which the object's head keeps.
 *
 * Every block that is read is compared with its sum, whole, also when only a part of it is
 * asked for: a byte that changed on the disk is -EUCLEAN, and none of the block's bytes is
 * given out.
 *
 * Reading and writing may be done by any number of threads at once, writing to different bytes.
 * All functions may block on the disk.
 */
#ifndef IOD_BLOCKS_H
#define IOD_BLOCKS_H

#include <pthread.h>
#include <sys/uio.h>

#include "embedded/iod/extents.h"

#define BLOCK_SIZE 4096u

struct blocks {
    int fd;               /* the caller's */
    uint64_t base;        /* where the object's bytes begin in the file */
    uint64_t size;        /* bytes of the object */
    pthread_mutex_t edge; /* held while a block is written in part */
};

/* What a table holds: all its sums that are not 0, in one, and how many they are. */
struct blocks_sum {
    uint32_t sum;
    uint64_t count;
};

void blocks_init(struct blocks *blocks, int fd, uint64_t base, uint64_t size);
void blocks_destroy(struct blocks *blocks);

/* Bytes of the whole file, table included. */
uint64_t blocks_file_size(const struct blocks *blocks);

/*
 * Moves the `length` bytes that `from` (a copy) steps over, all inside the object, between file
 * and memory, which is one piece of at least as many bytes.  Writing leaves blocks of zeros
 * out:  the file must read as zeros there.  0 or -errno: -EUCLEAN a block is not what was
 * written, -ENODATA the file ends too early.
 */
int blocks_read(struct blocks *blocks, struct extent_cursor from, void *memory,
                uint64_t length);
int blocks_write(struct blocks *blocks, struct extent_cursor from, const void *memory,
                 uint64_t length);

/* A walk through the table from the start; zeroed at first. */
struct blocks_scan {
    uint64_t next; /* the block to go on with */
    struct blocks_sum seen;
};

/*
 * Walks on, and appends where data is, at most `max` ranges.  At the end scan->next is the
 * number of blocks, and scan->seen what the whole table holds.  `list` may be NULL: then it
 * walks to the end.  0 or -errno.
 */
int blocks_walk(struct blocks *blocks, struct blocks_scan *scan, size_t max,
                struct extent_list *list);

uint64_t blocks_count(const struct blocks *blocks);

#endif
