/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory that was freed goes back to the system, for programs that run for months. */
#ifndef EMBEDDED_HEAP_H
#define EMBEDDED_HEAP_H

#include <stddef.h>

/* Freed memory that malloc may keep for what comes next, in bytes. */
#define HEAP_SPARE ((size_t)4 << 20)

/*
 * Gives freed memory back to the system if malloc keeps more than HEAP_SPARE of it.  malloc by
 * itself gives back only what lies behind the last block in use, so that one block made in a
 * burst keeps the memory of the whole burst.  It takes the longer the more memory is free, and
 * holds up other threads' malloc meanwhile: for a time when there is little to do, or every few
 * seconds.  Any thread may call it.  Nothing happens where malloc has no such function.
 */
void heap_trim(void);

#endif
