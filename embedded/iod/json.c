/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/json.h"
#include "embedded/iod/text.h"

void json_string(FILE *out, const char *text, size_t length)
{
    fputc('"', out);
    for (size_t i = 0, bytes; i < length; i += bytes ? bytes : 1) {
        unsigned char c = (unsigned char)text[i];

        bytes = text_character(text + i, length - i);
        if (bytes == 0)
            fprintf(out, "\\udc%02x", c);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else if (c == 0xc2 && (unsigned char)text[i + 1] < 0xa0) /* U+0080 to U+009F */
            fprintf(out, "\\u%04x", (unsigned char)text[i + 1]);
        else
            fwrite(text + i, 1, bytes, out);
    }
    fputc('"', out);
}
