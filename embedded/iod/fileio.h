/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fileio.h - moves one message between memory and a file.  The memory may lie in pieces, and so
 * may the bytes in the file: by extents, and by striping.
 */
#ifndef IOD_FILEIO_H
#define IOD_FILEIO_H

#include <stdbool.h>
#include <sys/uio.h>

#include "embedded/iod/extents.h"

/* From a byte of the object to a byte of the file at hand: by `layout`, then `base` bytes
 * further. */
struct file_map {
    struct iod_layout layout;
    uint64_t base;
};

/* A file, and where the bytes of an object are in it. */
struct file_part {
    int fd;
    struct file_map map;
    bool sparse; /* it reads as zeros where nothing was written: zeros are left out */
};

/*
 * Reads or writes `length` bytes: those that `from` (a copy) steps over.  They fill the pieces
 * of memory in order, which hold at least as many.  Blocks of zeros are not written when
 * `sparse`: the file must read as zeros there already. 0 or -errno; -ENODATA when a read met
 * the end of the file.
 */
int file_read(int fd, const struct file_map *map, struct extent_cursor from,
              const struct iovec *memory, int pieces, uint64_t length);
int file_write(int fd, const struct file_map *map, struct extent_cursor from,
               const struct iovec *memory, int pieces, uint64_t length, bool sparse);

/*
 * Writes the names in a folder to the disk.  A file system that refuses that for folders
 * (EINVAL) has nothing of its own to write out: that is no failure.  0 or -errno.
 */
int file_sync_folder(int fd);

/* Of EFBIG: has the process a limit (ulimit -f)?  Else the file system takes no more. */
bool file_size_is_limited(void);

#endif
