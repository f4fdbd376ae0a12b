/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks and their checksums, compared with plain memory. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/blocks.h"

#include <unistd.h>

#define SIZE (10 * BLOCK_SIZE + 123)
#define BASE 4096

static char model[SIZE];
static struct blocks blocks;
static int fd;

static void begin(void)
{
    char path[] = "/tmp/test_blocks.XXXXXX";

    fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    blocks_init(&blocks, fd, BASE, SIZE);
    assert_int_equal(ftruncate(fd, (off_t)blocks_file_size(&blocks)), 0);
    memset(model, 0, sizeof model);
}

static void end(void)
{
    blocks_destroy(&blocks);
    close(fd);
}

static struct extent_cursor range(struct iod_extent *extent, uint64_t offset, uint64_t length)
{
    *extent = (struct iod_extent){offset, length};
    return (struct extent_cursor){.item = extent, .count = 1};
}

static void put(uint64_t offset, uint64_t length, int seed)
{
    struct iod_extent extent;

    for (uint64_t i = 0; i < length; i++)
        model[offset + i] = seed ? (char)((offset + i) * 7 + (unsigned)seed) : 0;
    assert_int_equal(
        blocks_write(&blocks, range(&extent, offset, length), model + offset, length), 0);
}

static int get(uint64_t offset, uint64_t length, char *to)
{
    struct iod_extent extent;

    return blocks_read(&blocks, range(&extent, offset, length), to, length);
}

static void assert_all(void)
{
    static char got[SIZE];

    assert_int_equal(get(0, SIZE, got), 0);
    assert_memory_equal(got, model, SIZE);
}

static void written_data_is_read_back(void **state)
{
    struct iod_extent items[] = {{5, 10}, {4000, 5000}, {SIZE - 3, 3}};
    struct extent_cursor from = {.item = items, .count = 3};
    char got[5013];

    (void)state;
    begin();
    put(0, 1, 1); /* parts of one block, one by one */
    put(1, 100, 1);
    put(101, BLOCK_SIZE - 101, 1);
    put(BLOCK_SIZE, 2 * BLOCK_SIZE, 2); /* whole blocks */
    put(3 * BLOCK_SIZE, BLOCK_SIZE, 0); /* zeros */
    put(4 * BLOCK_SIZE + 7, 3 * BLOCK_SIZE, 3);
    put(9 * BLOCK_SIZE, SIZE - 9 * BLOCK_SIZE, 4);
    assert_all();
    assert_int_equal(blocks_read(&blocks, from, got, sizeof got), 0);
    assert_memory_equal(got, model + 5, 10);
    assert_memory_equal(got + 10, model + 4000, 5000);
    assert_memory_equal(got + 5010, model + SIZE - 3, 3);
    assert_int_equal(blocks_read(&blocks, from, got, sizeof got + 1), -EINVAL);
    end();
}

static void block_table_locates_data(void **state)
{
    struct extent_list list = {0};
    struct blocks_scan scan = {0}, all = {0};

    (void)state;
    begin();
    put(2 * BLOCK_SIZE, 2 * BLOCK_SIZE, 1);
    put(6 * BLOCK_SIZE + 5, 1, 1);
    put(7 * BLOCK_SIZE, BLOCK_SIZE, 0);
    put(SIZE - 1, 1, 1);
    assert_int_equal(blocks_walk(&blocks, &all, 0, NULL), 0);
    assert_true(all.seen.count == 4 && all.next == 11);
    assert_int_equal(blocks_walk(&blocks, &scan, 2, &list), 0);
    assert_int_equal(list.count, 2);
    assert_true(list.item[0].offset == 2 * BLOCK_SIZE && list.item[0].length == 2 * BLOCK_SIZE);
    assert_true(list.item[1].offset == 6 * BLOCK_SIZE && list.item[1].length == BLOCK_SIZE);
    assert_int_equal(blocks_walk(&blocks, &scan, 2, &list), 0);
    assert_int_equal(list.count, 3);
    assert_true(list.item[2].offset == 10 * BLOCK_SIZE && list.item[2].length == 123);
    assert_true(scan.seen.sum == all.seen.sum && scan.seen.count == 4);
    extent_list_free(&list);
    end();
}

/* Changing any byte of the file behind the head makes a block unreadable, or changes a
 * table. */
static void every_byte_counts(void **state)
{
    static char got[SIZE];
    struct blocks_scan before = {0};
    uint64_t size;

    (void)state;
    begin();
    put(0, 2 * BLOCK_SIZE, 1);
    put(9 * BLOCK_SIZE + 9, 2 * BLOCK_SIZE - 9 - (11 * BLOCK_SIZE - SIZE), 2);
    assert_int_equal(blocks_walk(&blocks, &before, 0, NULL), 0);
    size = blocks_file_size(&blocks);
    for (uint64_t at = BASE; at < size; at += at < BASE + 11 * BLOCK_SIZE ? 61 : 1) {
        struct blocks_scan scan = {0};
        uint64_t block = at < BASE + 11 * BLOCK_SIZE ? (at - BASE) / BLOCK_SIZE
                                                     : (at - BASE - 11 * BLOCK_SIZE) / 4;
        uint64_t last = block == 10 ? SIZE - 1 : (block + 1) * BLOCK_SIZE - 1;
        char byte;

        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
        assert_int_equal(get(0, SIZE, got), -EUCLEAN);
        assert_int_equal(get(last, 1, got), -EUCLEAN);
        assert_int_equal(get(block * BLOCK_SIZE, 1, got), -EUCLEAN);
        if (at >= BASE + 11 * BLOCK_SIZE) {
            assert_int_equal(blocks_walk(&blocks, &scan, 0, NULL), 0);
            assert_true(scan.seen.sum != before.seen.sum ||
                        scan.seen.count != before.seen.count);
        }
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    assert_all();
    assert_int_equal(ftruncate(fd, (off_t)size - 1), 0);
    assert_int_equal(get(SIZE - 1, 1, got), -ENODATA);
    end();
}

static void block_file_sizes(void **state)
{
    struct blocks_scan scan = {0};

    (void)state;
    begin();
    blocks.size = 0;
    assert_true(blocks_count(&blocks) == 0 && blocks_file_size(&blocks) == BASE);
    assert_int_equal(blocks_walk(&blocks, &scan, 0, NULL), 0);
    assert_true(scan.seen.count == 0);
    blocks.size = 1;
    assert_true(blocks_file_size(&blocks) == BASE + BLOCK_SIZE + 4);
    blocks.size = IOD_SIZE_MAX;
    assert_true(blocks_file_size(&blocks) > IOD_SIZE_MAX);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_data_is_read_back),
        cmocka_unit_test(block_table_locates_data),
        cmocka_unit_test(every_byte_counts),
        cmocka_unit_test(block_file_sizes),
    };

    return cmocka_run_group_tests_name("iod/blocks", tests, NULL, NULL);
}
