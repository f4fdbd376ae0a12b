/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shared by all fuzz targets: libFuzzer's entry, and a check that aborts so that libFuzzer
 * reports it. */
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
 * Returns a hash of the events of the last input: of messages and results, not of memory
 * addresses. Targets whose state outlives an input, or is made anew for each, provide this
 * function, because the hash of an input must not depend on earlier inputs (replay_main.c).
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

/* Copies the input into memory of exactly its size, plus a terminating zero if `zero`. */
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
