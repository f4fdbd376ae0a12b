/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ordinary memory for messages, the same for BMI and for plain TCP. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * `size` bytes of zeros, at the beginning of a page; NULL: there are none.  With `huge` they
 * begin at a huge page and the kernel is asked for such pages, which it may refuse; without,
 * they are what the kernel gives to any program.  It is a mapping of its own, so what was there
 * before does not matter.
 */
void *memory_new(size_t size, bool huge);

/* Gives it back, with the same size and kind; NULL is nothing. */
void memory_free(void *memory, size_t size, bool huge);

#endif
