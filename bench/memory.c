/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ordinary memory for messages; see memory.h. */
#include "bench/memory.h"

#include <stdint.h>
#include <sys/mman.h>

#define PAGE      ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

/* Rounds up to whole pages of the kind, so that the last part is also in such a page. 0: too
 * large. */
static size_t whole(size_t size, bool huge)
{
    size_t page = huge ? HUGE_PAGE : PAGE;

    return size > SIZE_MAX / 2 ? 0 : (size + !size + page - 1) / page * page;
}

void *memory_new(size_t size, bool huge)
{
    size_t length = whole(size, huge), spare = huge ? HUGE_PAGE : 0, before;
    char *memory;

    if (!length)
        return NULL;
    memory =
        mmap(NULL, length + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (!huge)
        return memory;
    before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (before)
        munmap(memory, before);
    if (before < spare)
        munmap(memory + before + length, spare - before);
    madvise(memory + before, length, MADV_HUGEPAGE); /* small pages if refused */
    return memory + before;
}

void memory_free(void *memory, size_t size, bool huge)
{
    if (memory != NULL)
        munmap(memory, whole(size, huge));
}
