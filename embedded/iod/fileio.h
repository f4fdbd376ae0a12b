/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fileio.h - moves one message between memory and a file with striping. */
#ifndef IOD_FILEIO_H
#define IOD_FILEIO_H

#include <stdbool.h>

#include "embedded/iod/proto.h"

/* File with the bytes of an object, at the places of `layout` plus `base`. */
struct file_part {
    int fd;
    struct iod_layout layout;
    uint64_t base;
};

/* Moves `length` bytes from byte `offset` of the object on between the file, a struct
 * file_part, and memory.  Returns 0 or -errno; -ENODATA if a read reached the end of the
 * file. */
int file_move(void *file, uint64_t offset, char *bytes, uint64_t length, bool write);

/*
 * Syncs the names in a folder.  A file system that refuses this for folders (EINVAL) needs no
 * sync, which is not a failure.  Returns 0 or -errno.
 */
int file_sync_folder(int fd);

/* Returns true if the process has a file size limit (ulimit -f), to explain EFBIG. */
bool file_size_is_limited(void);

#endif
