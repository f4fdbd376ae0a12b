/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* json.h - a string as JSON. */
#ifndef IOD_JSON_H
#define IOD_JSON_H

#include <stddef.h>
#include <stdio.h>

/* Prints `length` bytes in quotes; control characters are escaped, bytes of UTF-8 stay as they
 * are. */
void json_string(FILE *out, const char *text, size_t length);

#endif
