/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* json.h - a string as JSON. */
#ifndef IOD_JSON_H
#define IOD_JSON_H

#include <stddef.h>
#include <stdio.h>

/* Prints `length` bytes in quotes.  Control characters, those of U+0080 to U+009F too, are
 * escaped, and UTF-8 stays as it is; a byte 0xXX that does not belong to UTF-8 becomes
 * "\udcXX", as Python's surrogateescape has it. */
void json_string(FILE *out, const char *text, size_t length);

#endif
