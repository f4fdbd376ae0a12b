/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/layout.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#define BATCH_PIECES 64

/* Position in the memory. */
struct memory_cursor {
    const struct iovec *piece;
    int left;
    size_t inside;
};

/* Sets `piece` to the next segments, `length` bytes at most; returns their number. */
static int gather(struct memory_cursor at, uint64_t length, struct iovec *piece)
{
    int n = 0;

    for (; at.left > 0 && length > 0 && n < BATCH_PIECES; at.piece++, at.left--) {
        size_t room = at.piece->iov_len - at.inside;
        size_t step = room < length ? room : (size_t)length;

        if (step)
            piece[n++] = (struct iovec){(char *)at.piece->iov_base + at.inside, step};
        length -= step;
        at.inside = 0;
    }
    return n;
}

static void advance(struct memory_cursor *at, size_t n)
{
    at->inside += n;
    for (; at->left > 0 && at->inside >= at->piece->iov_len; at->piece++, at->left--)
        at->inside -= at->piece->iov_len;
}

/* Moves one contiguous range of the file. */
static int move_run(int fd, struct memory_cursor *at, uint64_t offset, uint64_t length,
                    bool write)
{
    struct iovec piece[BATCH_PIECES];

    while (length) {
        int pieces = gather(*at, length, piece);
        ssize_t n = !pieces ? 0
                    : write ? pwritev(fd, piece, pieces, (off_t)offset)
                            : preadv(fd, piece, pieces, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return !pieces ? -EINVAL : n < 0 ? -errno : write ? -EIO : -ENODATA;
        advance(at, (size_t)n);
        offset += (uint64_t)n;
        length -= (uint64_t)n;
    }
    return 0;
}

int file_move(const struct file_part *part, uint64_t offset, const struct iovec *memory,
              int pieces, uint64_t length, bool write)
{
    struct memory_cursor at = {.piece = memory, .left = pieces};
    int error = 0;

    for (uint64_t run; length && !error; offset += run, length -= run) {
        run = layout_contiguous(&part->layout, offset);
        run = run < length ? run : length;
        error = move_run(part->fd, &at, part->base + layout_file_offset(&part->layout, offset),
                         run, write);
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
