/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * blocks.c - see blocks.h.
 *
 * The sums of whole blocks are computed from the message in memory.  A block that a message
 * covers in part is written, read back and summed.  Other parts of the block may be written
 * concurrently, so one thread at a time does this (`edge`); the last one records the sum of the
 * whole block.
 */
#include "config.h"
#include "embedded/iod/blocks.h"
#include "embedded/iod/crc32c.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define ENTRY  4u
#define BATCH  128u  /* blocks whose sums are read or written together */
#define WINDOW 4096u /* table entries that a scan reads together */

void blocks_init(struct blocks *b, int fd, uint64_t base, uint64_t size)
{
    *b = (struct blocks){.fd = fd, .base = base, .size = size};
    pthread_mutex_init(&b->edge, NULL);
}

void blocks_destroy(struct blocks *b)
{
    pthread_mutex_destroy(&b->edge);
}

uint64_t blocks_count(const struct blocks *b)
{
    return (b->size + BLOCK_SIZE - 1) / BLOCK_SIZE;
}

static uint64_t table_at(const struct blocks *b, uint64_t block)
{
    return b->base + blocks_count(b) * BLOCK_SIZE + block * ENTRY;
}

uint64_t blocks_file_size(const struct blocks *b)
{
    return table_at(b, blocks_count(b));
}

/* ---- the file ---- */

static int read_all(int fd, void *to, size_t length, uint64_t offset)
{
    char *at = to;

    while (length) {
        ssize_t n = pread(fd, at, length, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        at += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return 0;
}

static int write_all(int fd, const void *from, size_t length, uint64_t offset)
{
    const char *at = from;

    while (length) {
        ssize_t n = pwrite(fd, at, length, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return 0;
}

/* ---- sums ---- */

static const unsigned char zeros[BLOCK_SIZE];

/* Returns the sum of a block; 0 for a block of zeros only. */
static uint32_t sum_of(const void *block)
{
    uint32_t sum = crc32c(0, block, BLOCK_SIZE);

    if (sum != 0 && memcmp(block, zeros, BLOCK_SIZE) != 0)
        return sum;
    return memcmp(block, zeros, BLOCK_SIZE) == 0 ? 0 : 1;
}

static uint32_t get_entry(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

static void put_entry(unsigned char *at, uint32_t sum)
{
    for (unsigned i = 0; i < ENTRY; i++)
        at[i] = (unsigned char)(sum >> (8 * i));
}

/* ---- writing ---- */

static int write_part(struct blocks *b, uint64_t offset, char *from, size_t length)
{
    uint64_t block = offset / BLOCK_SIZE;
    unsigned char whole[BLOCK_SIZE], entry[ENTRY];
    int error;

    pthread_mutex_lock(&b->edge);
    error = write_all(b->fd, from, length, b->base + offset);
    if (!error)
        error = read_all(b->fd, whole, BLOCK_SIZE, b->base + block * BLOCK_SIZE);
    if (!error) {
        put_entry(entry, sum_of(whole));
        error = write_all(b->fd, entry, ENTRY, table_at(b, block));
    }
    pthread_mutex_unlock(&b->edge);
    return error;
}

/* Writes up to BATCH whole blocks: the runs that are not zeros, then the sums. */
static int write_batch(struct blocks *b, uint64_t block, char *from, size_t n)
{
    unsigned char entry[BATCH * ENTRY];
    size_t begin = 0;
    bool any = false;
    int error = 0;

    for (size_t i = 0; i <= n && !error; i++) {
        uint32_t sum = i < n ? sum_of(from + i * BLOCK_SIZE) : 0;

        if (i < n)
            put_entry(entry + i * ENTRY, sum);
        if (sum) {
            any = true;
            continue;
        }
        if (i > begin)
            error = write_all(b->fd, from + begin * BLOCK_SIZE, (i - begin) * BLOCK_SIZE,
                              b->base + (block + begin) * BLOCK_SIZE);
        begin = i + 1;
    }
    if (error || !any)
        return error;
    return write_all(b->fd, entry, n * ENTRY, table_at(b, block));
}

/* ---- reading ---- */

static int read_part(struct blocks *b, uint64_t offset, char *to, size_t length)
{
    uint64_t block = offset / BLOCK_SIZE;
    char whole[BLOCK_SIZE];
    unsigned char entry[ENTRY];
    int error = read_all(b->fd, whole, BLOCK_SIZE, b->base + block * BLOCK_SIZE);

    if (!error)
        error = read_all(b->fd, entry, ENTRY, table_at(b, block));
    if (!error && get_entry(entry) != sum_of(whole))
        error = -EUCLEAN;
    if (!error)
        memcpy(to, whole + offset % BLOCK_SIZE, length);
    return error;
}

static int read_batch(struct blocks *b, uint64_t block, char *to, size_t n)
{
    unsigned char entry[BATCH * ENTRY];
    int error = read_all(b->fd, to, n * BLOCK_SIZE, b->base + block * BLOCK_SIZE);

    if (!error)
        error = read_all(b->fd, entry, n * ENTRY, table_at(b, block));
    for (size_t i = 0; i < n && !error; i++)
        if (get_entry(entry + i * ENTRY) != sum_of(to + i * BLOCK_SIZE))
            error = -EUCLEAN;
    return error;
}

/* ---- common ---- */

/* Functions that read, or write, a part of a block and up to BATCH whole blocks. */
struct mover {
    int (*part)(struct blocks *b, uint64_t offset, char *memory, size_t length);
    int (*batch)(struct blocks *b, uint64_t block, char *memory, size_t n);
};

static int move_run(struct blocks *b, const struct mover *mover, uint64_t offset, char *memory,
                    uint64_t length)
{
    int error = 0;

    while (length && !error) {
        size_t inside = (size_t)(offset % BLOCK_SIZE);
        uint64_t step = BLOCK_SIZE - inside;

        if (inside || length < BLOCK_SIZE) {
            step = step < length ? step : length;
            error = mover->part(b, offset, memory, (size_t)step);
        } else {
            uint64_t n = length / BLOCK_SIZE < BATCH ? length / BLOCK_SIZE : BATCH;

            step = n * BLOCK_SIZE;
            error = mover->batch(b, offset / BLOCK_SIZE, memory, (size_t)n);
        }
        memory += step;
        offset += step;
        length -= step;
    }
    return error;
}

static int move(struct blocks *b, const struct mover *mover, struct extent_cursor at,
                char *memory, uint64_t length)
{
    uint64_t offset, step;
    int error = 0;

    while (!error && (step = extent_cursor_take(&at, length, &offset)) > 0) {
        error = move_run(b, mover, offset, memory, step);
        memory += step;
        length -= step;
    }
    return error ? error : length ? -EINVAL : 0;
}

int blocks_read(struct blocks *b, struct extent_cursor at, void *memory, uint64_t length)
{
    static const struct mover reader = {.part = read_part, .batch = read_batch};

    return move(b, &reader, at, memory, length);
}

int blocks_write(struct blocks *b, struct extent_cursor at, const void *memory, uint64_t length)
{
    static const struct mover writer = {.part = write_part, .batch = write_batch};

    return move(b, &writer, at, (char *)(uintptr_t)memory, length); /* not modified */
}

/* ---- the table ---- */

/* Advances *block to the next block whose entry may not be 0, skipping holes of the table. */
static int skip_holes(const struct blocks *b, uint64_t *block)
{
    off_t data = lseek(b->fd, (off_t)table_at(b, *block), SEEK_DATA);
    uint64_t begin = table_at(b, 0);

    if (data < 0 && errno == ENXIO) {
        *block = blocks_count(b);
        return 0;
    }
    if (data < 0)
        return errno == EINVAL ? 0 : -errno; /* a file system without holes */
    if (((uint64_t)data - begin) / ENTRY > *block)
        *block = ((uint64_t)data - begin) / ENTRY;
    return 0;
}

static void count_entry(struct blocks_sum *seen, uint64_t block, uint32_t sum)
{
    unsigned char record[12];

    for (unsigned i = 0; i < 8; i++)
        record[i] = (unsigned char)(block >> (8 * i));
    put_entry(record + 8, sum);
    seen->sum = crc32c(seen->sum, record, sizeof record);
    seen->count++;
}

/* Appends the block's bytes of the object to the list; *full: the list has no room. */
static int list_block(const struct blocks *b, uint64_t block, size_t most,
                      struct extent_list *list, bool *full)
{
    uint64_t offset = block * BLOCK_SIZE;
    uint64_t length = b->size - offset < BLOCK_SIZE ? b->size - offset : BLOCK_SIZE;
    const struct iod_extent *last = list->count ? &list->item[list->count - 1] : NULL;

    *full = list->count >= most && (!last || last->offset + last->length != offset);
    return *full ? 0 : extent_list_add(list, offset, length);
}

int blocks_walk(struct blocks *b, struct blocks_scan *scan, size_t max,
                struct extent_list *list)
{
    unsigned char window[WINDOW * ENTRY];
    uint64_t count = blocks_count(b);
    size_t most = list ? list->count + max : 0;
    bool full = false;

    while (scan->next < count && !full) {
        uint64_t n;
        int error = skip_holes(b, &scan->next);

        n = count - scan->next < WINDOW ? count - scan->next : WINDOW;
        if (!error)
            error = read_all(b->fd, window, (size_t)n * ENTRY, table_at(b, scan->next));
        for (uint64_t i = 0; i < n && !error && !full; i++) {
            uint32_t sum = get_entry(window + i * ENTRY);

            if (sum && list)
                error = list_block(b, scan->next, most, list, &full);
            if (error || full)
                break;
            if (sum)
                count_entry(&scan->seen, scan->next, sum);
            scan->next++;
        }
        if (error)
            return error;
    }
    return 0;
}
