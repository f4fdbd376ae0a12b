/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What every fuzz target shares: libFuzzer's entry, and a check that ends the process so that
 * libFuzzer sees it. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * A number for all that happened in the last input.  Targets have it whose world lives on from
 * one input to the next, or is made anew: whatever came before, an input has the same one
 * (replay_main.c).  It is of what was said and what came of it, not of addresses in memory.
 */
uint64_t fuzz_trace(void);

static inline void fuzz_note(uint64_t *trace, uint64_t what)
{
    *trace = (*trace ^ what) * UINT64_C(0x9e3779b97f4a7c15);
    *trace ^= *trace >> 29;
}

#define FUZZ_CHECK(condition)                                                                  \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

/* A copy of the input that ends exactly where its memory ends, with a zero behind it if `zero`.
 */
static inline char *fuzz_copy(const uint8_t *data, size_t size, int zero)
{
    char *copy = calloc(1, size + (zero ? 1 : size == 0));

    if (copy == NULL)
        abort();
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

#endif
