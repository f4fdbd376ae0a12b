/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fileio.h - moves one message between memory and a file.  Both may be fragmented: the memory
 * in segments, the file by extents and striping.
 */
#ifndef IOD_FILEIO_H
#define IOD_FILEIO_H

#include <stdbool.h>
#include <sys/uio.h>

#include "embedded/iod/extents.h"

/* Maps a byte of the object to a byte of the local file: by `layout`, plus `base`. */
struct file_map {
    struct iod_layout layout;
    uint64_t base;
};

/* File with the bytes of an object. */
struct file_part {
    int fd;
    struct file_map map;
    bool sparse; /* unwritten parts read as zeros: zeros are skipped */
};

/*
 * Reads or writes `length` bytes at the positions of `from` (a copy), filling the segments of
 * memory in order.  `sparse`: blocks of zeros are not written; the file must read as zeros
 * there.  Returns 0 or -errno; -ENODATA if a read reached the end of the file.
 */
int file_read(int fd, const struct file_map *map, struct extent_cursor from,
              const struct iovec *memory, int pieces, uint64_t length);
int file_write(int fd, const struct file_map *map, struct extent_cursor from,
               const struct iovec *memory, int pieces, uint64_t length, bool sparse);

/*
 * Syncs the names in a folder.  A file system that refuses this for folders (EINVAL) needs no
 * sync, which is not a failure.  Returns 0 or -errno.
 */
int file_sync_folder(int fd);

/* Returns true if the process has a file size limit (ulimit -f), to explain EFBIG. */
bool file_size_is_limited(void);

#endif
