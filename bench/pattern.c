/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents of messages; see pattern.h. */
#include "bench/pattern.h"

#include <endian.h>
#include <string.h>

/* Mixes all bits of x into all bits of the result (a multiply-xorshift hash). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

uint64_t pattern_key(uint64_t phase, uint64_t number, bool to_server)
{
    return mix(number * 4 + phase * 2 + to_server + 1);
}

/* Returns the eight bytes at 8 * index of a message. */
static uint64_t word(uint64_t key, uint64_t index)
{
    return htole64(mix(key + index));
}

/* Returns the number of bytes in the range of the word at `offset`; *skip: their start. */
static size_t part(uint64_t offset, size_t length, size_t *skip)
{
    size_t n = 8 - offset % 8;

    *skip = offset % 8;
    return n < length ? n : length;
}

void pattern_fill(void *memory, size_t length, uint64_t key, uint64_t offset)
{
    unsigned char *at = memory;
    size_t skip, n;

    for (; length; at += n, offset += n, length -= n) {
        uint64_t w = word(key, offset / 8);
        n = part(offset, length, &skip);
        memcpy(at, (unsigned char *)&w + skip, n);
    }
}

bool pattern_matches(const void *memory, size_t length, uint64_t key, uint64_t offset)
{
    const unsigned char *at = memory;
    size_t skip, n;

    for (; length; at += n, offset += n, length -= n) {
        uint64_t w = word(key, offset / 8);
        n = part(offset, length, &skip);
        if (memcmp(at, (unsigned char *)&w + skip, n))
            return false;
    }
    return true;
}
