/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that reveal lost, stale, shifted or swapped bytes: a function of a key and of the
 * place in the message. */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the key of message `number` of a phase, to the server or from it. */
uint64_t pattern_key(uint64_t phase, uint64_t number, bool to_server);

/* Write, or compare, bytes offset … offset+length-1 of the message with this key. */
void pattern_fill(void *memory, size_t length, uint64_t key, uint64_t offset);
bool pattern_matches(const void *memory, size_t length, uint64_t key, uint64_t offset);

#endif
