/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ordinary memory for messages; see memory.h. */
#include "bench/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGE      ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

void *memory_new(size_t size, bool huge)
{
    size_t page = huge ? HUGE_PAGE : PAGE;
    size_t whole = (size + page - 1) / page * page; /* the last part is to lie in such a page, too */
    void *memory;

    if (whole < size || posix_memalign(&memory, page, whole ? whole : page))
        return NULL;
    if (huge)
        madvise(memory, whole, MADV_HUGEPAGE); /* refused: then they are small */
    return memory;
}
