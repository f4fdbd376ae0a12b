/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/name.h"

#include <errno.h>
#include <string.h>

static const char hex_digits[] = "0123456789ABCDEF";

int name_encode(const struct iod_string *name, char *file, size_t size)
{
    size_t out = 0;

    if (name->length == 0 || memchr(name->text, 0, name->length) != NULL)
        return -EINVAL;
    for (uint32_t i = 0; i < name->length; i++) {
        unsigned char c = (unsigned char)name->text[i];
        bool escaped = c == '/' || c == '%' || (c == '.' && i == 0);

        if (out + (escaped ? 3 : 1) >= size)
            return -ENAMETOOLONG;
        file[out++] = escaped ? '%' : (char)c;
        if (escaped) {
            file[out++] = hex_digits[c >> 4];
            file[out++] = hex_digits[c & 15];
        }
    }
    file[out] = 0;
    return 0;
}

/* Returns the value of two hexadecimal digits; 0: others. */
static int hex_value(const char *text)
{
    const char *high = text[0] ? strchr(hex_digits, text[0]) : NULL;
    const char *low = high != NULL && text[1] ? strchr(hex_digits, text[1]) : NULL;

    return low != NULL ? (int)(high - hex_digits) * 16 + (int)(low - hex_digits) : 0;
}

int name_decode(const char *file, char *name, size_t size)
{
    char again[NAME_FILE_MAX];
    struct iod_string string = {.text = name};

    for (const char *at = file; *at; at++) {
        int c = *at == '%' ? hex_value(at + 1) : (unsigned char)*at;

        if (c == 0 || string.length + 1 >= size)
            return -EINVAL;
        at += *at == '%' ? 2 : 0;
        name[string.length++] = (char)c;
    }
    name[string.length] = 0;
    return name_encode(&string, again, sizeof again) == 0 && strcmp(again, file) == 0
               ? (int)string.length
               : -EINVAL;
}

bool name_split_remote(const char *text, size_t *address_length, const char **name)
{
    size_t scheme =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+");
    const char *slash;

    if (scheme == 0 || strncmp(text + scheme, "://", 3) != 0)
        return false;
    slash = strchr(text + scheme + 3, '/');
    *address_length = slash != NULL ? (size_t)(slash - text) : strlen(text);
    *name = slash != NULL ? slash + 1 : text + *address_length;
    return true;
}
