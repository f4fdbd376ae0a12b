/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fileio.h - moves one message between memory in segments and a file with striping. */
#ifndef IOD_FILEIO_H
#define IOD_FILEIO_H

#include <stdbool.h>
#include <sys/uio.h>

#include "embedded/iod/proto.h"

/* File with the bytes of an object, at the places of `layout` plus `base`. */
struct file_part {
    int fd;
    struct iod_layout layout;
    uint64_t base;
};

/* Moves `length` bytes from byte `offset` of the object on between the file and the segments of
 * memory, in order.  Returns 0 or -errno; -ENODATA if a read reached the end of the file. */
int file_move(const struct file_part *part, uint64_t offset, const struct iovec *memory,
              int pieces, uint64_t length, bool write);

/*
 * Syncs the names in a folder.  A file system that refuses this for folders (EINVAL) needs no
 * sync, which is not a failure.  Returns 0 or -errno.
 */
int file_sync_folder(int fd);

/* Returns true if the process has a file size limit (ulimit -f), to explain EFBIG. */
bool file_size_is_limited(void);

#endif
