/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* text.h - text that comes from others: names, and what a server says. */
#ifndef IOD_TEXT_H
#define IOD_TEXT_H

#include <stddef.h>

/* How many bytes the character has that stands first in `length` bytes, at least one; 0: it is
 * not UTF-8. */
size_t text_character(const char *text, size_t length);

/* Makes a ? of each control character, those of U+0080 to U+009F and their bytes outside UTF-8
 * too, so that the text is one line and commands no terminal.  Returns its new length. */
size_t text_no_controls(char *text);

#endif
