/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fileio.c - see fileio.h.
 *
 * A message is moved in order, through the file (extents, strips) and the memory (segments).  A
 * `batch` collects memory for one contiguous range of the file and passes it to preadv or
 * pwritev.
 */
#include "config.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/layout.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BATCH_PIECES 64
#define ZERO_BLOCK   4096u

struct batch {
    int fd;
    bool write;
    uint64_t offset; /* offset of the batch in the file */
    uint64_t length;
    struct iovec piece[BATCH_PIECES];
    int pieces;
};

/* Position in the memory. */
struct memory_cursor {
    const struct iovec *piece;
    int left;
    size_t inside;
};

/* Removes `n` bytes from the front. */
static void batch_advance(struct batch *b, size_t n)
{
    int gone = 0;

    b->offset += n;
    b->length -= n;
    while (gone < b->pieces && n >= b->piece[gone].iov_len)
        n -= b->piece[gone++].iov_len;
    b->pieces -= gone;
    memmove(b->piece, b->piece + gone, (size_t)b->pieces * sizeof b->piece[0]);
    if (b->pieces) {
        b->piece[0].iov_base = (char *)b->piece[0].iov_base + n;
        b->piece[0].iov_len -= n;
    }
}

static int batch_flush(struct batch *b)
{
    while (b->length) {
        ssize_t n = b->write ? pwritev(b->fd, b->piece, b->pieces, (off_t)b->offset)
                             : preadv(b->fd, b->piece, b->pieces, (off_t)b->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return b->write ? -EIO : -ENODATA;
        batch_advance(b, (size_t)n);
    }
    b->pieces = 0;
    return 0;
}

/* Appends memory that belongs at `offset`; flushes first unless adjacent to the batch. */
static int batch_add(struct batch *b, void *base, size_t length, uint64_t offset)
{
    struct iovec *last = b->pieces ? &b->piece[b->pieces - 1] : NULL;
    bool follows = b->length && b->offset + b->length == offset;

    if (follows && (char *)last->iov_base + last->iov_len == base) {
        last->iov_len += length;
        b->length += length;
        return 0;
    }
    if (!follows || b->pieces == BATCH_PIECES) {
        int error = batch_flush(b);
        if (error)
            return error;
        b->offset = offset;
    }
    b->piece[b->pieces].iov_base = base;
    b->piece[b->pieces].iov_len = length;
    b->pieces++;
    b->length += length;
    return 0;
}

static bool all_zero(const void *block)
{
    static const char zeros[ZERO_BLOCK];

    return memcmp(block, zeros, ZERO_BLOCK) == 0;
}

/* As batch_add(), but skips aligned blocks of zeros. */
static int batch_add_sparse(struct batch *b, char *base, size_t length, uint64_t offset)
{
    while (length) {
        size_t step = ZERO_BLOCK - (size_t)(offset % ZERO_BLOCK);
        int error = 0;

        if (step > length)
            step = length;
        if (step != ZERO_BLOCK || !all_zero(base))
            error = batch_add(b, base, step, offset);
        if (error)
            return error;
        base += step;
        offset += step;
        length -= step;
    }
    return 0;
}

/* Moves one contiguous range of the file, with as much memory as needed. */
static int move_run(struct batch *b, struct memory_cursor *memory, uint64_t offset,
                    uint64_t length, bool sparse)
{
    while (length) {
        size_t room, step;
        char *base;
        int error;

        if (!memory->left)
            return -EINVAL;
        room = memory->piece->iov_len - memory->inside;
        step = room < length ? room : (size_t)length;
        base = (char *)memory->piece->iov_base + memory->inside;
        error =
            sparse ? batch_add_sparse(b, base, step, offset) : batch_add(b, base, step, offset);
        if (error)
            return error;
        memory->inside += step;
        if (memory->inside == memory->piece->iov_len) {
            memory->piece++;
            memory->left--;
            memory->inside = 0;
        }
        offset += step;
        length -= step;
    }
    return 0;
}

static int move(struct batch *b, const struct file_map *map, struct extent_cursor from,
                const struct iovec *memory, int pieces, uint64_t length, bool sparse)
{
    struct memory_cursor at = {.piece = memory, .left = pieces};
    uint64_t offset, step;

    while ((step = extent_cursor_take(&from, length, &offset)) > 0) {
        length -= step;
        while (step) {
            uint64_t run = layout_contiguous(&map->layout, offset);
            int error;

            if (run > step)
                run = step;
            error = move_run(b, &at, map->base + layout_file_offset(&map->layout, offset), run,
                             sparse);
            if (error)
                return error;
            offset += run;
            step -= run;
        }
    }
    return length ? -EINVAL : batch_flush(b);
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

int file_read(int fd, const struct file_map *map, struct extent_cursor from,
              const struct iovec *memory, int pieces, uint64_t length)
{
    struct batch b = {.fd = fd, .write = false};

    return move(&b, map, from, memory, pieces, length, false);
}

int file_write(int fd, const struct file_map *map, struct extent_cursor from,
               const struct iovec *memory, int pieces, uint64_t length, bool sparse)
{
    struct batch b = {.fd = fd, .write = true};

    return move(&b, map, from, memory, pieces, length, sparse);
}
