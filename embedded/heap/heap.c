/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/heap/heap.h"

#if defined HAVE_MALLINFO2 && defined HAVE_MALLOC_TRIM

#include <malloc.h>

void heap_trim(void)
{
    if (mallinfo2().fordblks > HEAP_SPARE)
        malloc_trim(0);
}

#else

void heap_trim(void)
{
}

#endif
