/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* heap.h - return of freed memory to the system, for programs that run for months. */
#ifndef EMBEDDED_HEAP_H
#define EMBEDDED_HEAP_H

#include <stddef.h>

/* Bytes of freed memory that malloc may keep. */
#define HEAP_SPARE ((size_t)4 << 20)

/*
 * Returns freed memory to the system if malloc keeps more than HEAP_SPARE bytes.  malloc alone
 * returns only memory behind the last block in use, so one block allocated in a burst keeps the
 * memory of the whole burst.  The time grows with the amount of free memory, and malloc of
 * other threads is blocked meanwhile: call when idle, or every few seconds.  Any thread.  Does
 * nothing where malloc has no such function.
 */
void heap_trim(void);

#endif
