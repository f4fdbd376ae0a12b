/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/layout.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

/* Moves one contiguous range of the file. */
static int move_run(int fd, char *bytes, uint64_t offset, uint64_t length, bool write)
{
    while (length) {
        struct iovec piece = {bytes, length};
        ssize_t n = write ? pwritev(fd, &piece, 1, (off_t)offset)
                          : preadv(fd, &piece, 1, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : write ? -EIO : -ENODATA;
        bytes += n;
        offset += (uint64_t)n;
        length -= (uint64_t)n;
    }
    return 0;
}

int file_move(void *file, uint64_t offset, char *bytes, uint64_t length, bool write)
{
    const struct file_part *part = file;
    int error = 0;

    for (uint64_t run; length && !error; offset += run, bytes += run, length -= run) {
        run = layout_contiguous(&part->layout, offset);
        run = run < length ? run : length;
        error = move_run(part->fd, bytes,
                         part->base + layout_file_offset(&part->layout, offset), run, write);
    }
    return error;
}

int file_sync_folder(int fd)
{
    return fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
}

bool file_size_is_limited(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}
