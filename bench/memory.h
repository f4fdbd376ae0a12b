/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ordinary memory for messages, the same for BMI and for plain TCP. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * `size` bytes, for free(); NULL: there are none.  With `huge` they begin at a huge page and the
 * kernel is asked for such pages, which it may refuse; without, they begin at a page and are what
 * the kernel gives to any program.  Nothing is written yet.
 */
void *memory_new(size_t size, bool huge);

#endif
