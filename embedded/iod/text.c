/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/text.h"

#include <stdbool.h>
#include <string.h>

size_t text_character(const char *string, size_t length)
{
    const unsigned char *text = (const unsigned char *)string;
    /* range of the second byte, which excludes overlong forms, surrogates and values above
     * U+10FFFF */
    unsigned char least = 0x80, most = 0xbf;
    size_t bytes;

    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    bytes = text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    if (text[0] == 0xe0)
        least = 0xa0;
    else if (text[0] == 0xed)
        most = 0x9f;
    else if (text[0] == 0xf0)
        least = 0x90;
    else if (text[0] == 0xf4)
        most = 0x8f;
    if (bytes > length || text[1] < least || text[1] > most)
        return 0;
    for (size_t i = 2; i < bytes; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

/* Returns true for a control character; `bytes` as returned by text_character(). */
static bool is_control(const unsigned char *text, size_t bytes)
{
    if (bytes == 0) /* may be one for a terminal without UTF-8 */
        return text[0] < 0xa0;
    return text[0] < ' ' || text[0] == 127 || (text[0] == 0xc2 && text[1] < 0xa0);
}

size_t text_no_controls(char *text)
{
    size_t left = strlen(text), length = 0;

    for (const char *at = text; left;) {
        size_t bytes = text_character(at, left), step = bytes ? bytes : 1;

        if (is_control((const unsigned char *)at, bytes)) {
            text[length++] = '?';
        } else {
            memmove(text + length, at, step);
            length += step;
        }
        at += step;
        left -= step;
    }
    text[length] = 0;
    return length;
}
