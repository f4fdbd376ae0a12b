/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stripe arithmetic compared with its definition, byte by byte. */
#include "tests/unit/common/unit.h"
#include "embedded/iod/layout.h"

/* Distributes the bytes of a file one by one; every function must agree. */
static void compare_with_dealing(uint64_t size, uint64_t strip, uint32_t count)
{
    uint64_t have[8] = {0};
    struct iod_layout l = {.strip = strip, .count = count};

    for (uint64_t at = 0; at <= size; at++) {
        l.size = at;
        for (l.index = 0; l.index < count; l.index++)
            assert_true(layout_object_size(&l) == have[l.index]);
        l.index = (uint32_t)(at / strip % count);
        assert_true(layout_file_offset(&l, have[l.index]) == at);
        if (count > 1)
            assert_true(layout_contiguous(&l, have[l.index]) == strip - at % strip);
        if (at < size)
            have[l.index]++;
    }
}

static void small_files(void **state)
{
    static const uint64_t sizes[] = {0, 1, 6, 7, 8, 13, 14, 15, 27, 28, 29, 200};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint32_t count = 1; count <= 5; count++) {
            compare_with_dealing(sizes[i], 7, count);
            compare_with_dealing(sizes[i], 64, count);
        }
}

static void beyond_4_gib(void **state)
{
    struct iod_layout l = {
        .size = (UINT64_C(5) << 30) + 1, .strip = 65536, .index = 0, .count = 2};

    (void)state;
    assert_true(layout_object_size(&l) == (UINT64_C(5) << 29) + 1);
    assert_true(layout_file_offset(&l, UINT64_C(5) << 29) == UINT64_C(5) << 30);
    l.index = 1;
    assert_true(layout_object_size(&l) == UINT64_C(5) << 29);
    assert_true(layout_file_offset(&l, 0) == 65536);
}

static void largest_layout_fits(void **state)
{
    struct iod_layout l = {
        .size = IOD_SIZE_MAX, .strip = IOD_STRIP_MAX, .index = 255, .count = 256};
    uint64_t size = layout_object_size(&l);

    (void)state;
    assert_true(size == IOD_SIZE_MAX / 256);
    assert_true(layout_file_offset(&l, size - 1) == IOD_SIZE_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_files),
        cmocka_unit_test(beyond_4_gib),
        cmocka_unit_test(largest_layout_fits),
    };

    return cmocka_run_group_tests_name("iod/layout", tests, NULL, NULL);
}
