/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ordinary memory for messages, the same for BMI and plain TCP. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Maps `size` zeroed bytes, page-aligned; NULL if out of memory. `huge`: aligned to huge pages,
 * which are requested from the kernel and may be refused; otherwise the kernel's default
 * applies. A separate mapping, so results do not depend on earlier allocations.
 */
void *memory_new(size_t size, bool huge);

/* Unmaps memory, with the same size and kind; NULL is permitted. */
void memory_free(void *memory, size_t size, bool huge);

#endif
