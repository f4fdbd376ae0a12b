/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* json.h - strings in JSON. */
#ifndef IOD_JSON_H
#define IOD_JSON_H

#include <stddef.h>
#include <stdio.h>

/* Prints `length` bytes in quotes.  Control characters, including U+0080 to U+009F, are
 * escaped; UTF-8 is unchanged; an invalid byte 0xXX becomes "\udcXX", as in Python's
 * surrogateescape. */
void json_string(FILE *out, const char *text, size_t length);

#endif
