/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What every fuzz target shares: libFuzzer's entry, and a check that ends the process so that
 * libFuzzer sees it. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
