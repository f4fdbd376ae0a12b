/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of many freed small blocks is returned to the system. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/heap/heap.h"

#include <malloc.h>
#include <stdbool.h>

#define BLOCKS 8192
#define SIZE   4000

/* Returns the process's resident anonymous memory in bytes. */
static size_t resident(void)
{
    unsigned long kib = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");

    assert_non_null(status);
    while (fgets(line, sizeof line, status) != NULL && sscanf(line, "RssAnon: %lu", &kib) != 1)
        ;
    fclose(status);
    assert_true(kib > 0);
    return (size_t)kib << 10;
}

static void freed_memory_goes_back(void **state)
{
    static char *block[BLOCKS + 1]; /* the last one keeps malloc from trimming the heap's end */
    size_t before = resident();
    bool trims = false;

    (void)state;
    for (int i = 0; i <= BLOCKS; i++) {
        block[i] = malloc(SIZE);
        assert_non_null(block[i]);
        memset(block[i], 1, SIZE);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(block[i]);
#if defined HAVE_MALLINFO2 && defined HAVE_MALLOC_TRIM
    /* Another malloc, a sanitizer's or valgrind's, is not trimmed by the code under test. */
    trims = mallinfo2().fordblks >= (size_t)BLOCKS * SIZE / 2;
#endif
    if (trims) {
        assert_true(resident() - before > (size_t)BLOCKS * SIZE / 2);
        heap_trim();
        assert_true(resident() - before < 2 * HEAP_SPARE);
    }
    assert_int_equal(block[BLOCKS][SIZE - 1], 1);
    free(block[BLOCKS]);
    if (!trims)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(freed_memory_goes_back)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
