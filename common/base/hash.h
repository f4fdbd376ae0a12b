/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* FNV-1a, the hash of texts. */
#ifndef RME_HASH_H
#define RME_HASH_H

#include <stddef.h>
#include <stdint.h>

#define RME_HASH_NONE 2166136261u /* of no byte */

/* Returns the hash of a text and `length` bytes behind it; `hash` is that of the text. */
static inline uint32_t rme_hash(uint32_t hash, const void *bytes, size_t length)
{
    for (const uint8_t *at = bytes; length > 0; length--)
        hash = (hash ^ *at++) * 16777619u;
    return hash;
}

#endif
