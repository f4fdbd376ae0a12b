/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* text.h - text from other parties: names, and replies of servers. */
#ifndef IOD_TEXT_H
#define IOD_TEXT_H

#include <stddef.h>

/* Returns the bytes of the first character in `length` bytes, at least one; 0: not UTF-8. */
size_t text_character(const char *text, size_t length);

/* Replaces each control character by '?', including U+0080 to U+009F and their bytes outside
 * UTF-8, so that the text is one line without terminal commands.  Returns the new length. */
size_t text_no_controls(char *text);

#endif
