/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/name.h"

#include <errno.h>
#include <string.h>

static const char hex_digits[] = "0123456789ABCDEF";

/* Not isalnum(): that one depends on the locale. */
static bool plain(unsigned char c, bool first)
{
    if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
        return true;
    return c == '_' || c == '-' || (c == '.' && !first);
}

static int hex_value(char c)
{
    const char *at = c ? strchr(hex_digits, c) : NULL;

    return at ? (int)(at - hex_digits) : -1;
}

int name_encode(const struct iod_string *name, char *file, size_t size)
{
    size_t out = 0;

    if (name->length == 0)
        return -EINVAL;
    for (uint32_t i = 0; i < name->length; i++) {
        unsigned char c = (unsigned char)name->text[i];
        size_t need = plain(c, i == 0) ? 1 : 3;

        if (c == 0)
            return -EINVAL;
        if (out + need >= size)
            return -ENAMETOOLONG;
        if (need == 1) {
            file[out++] = (char)c;
        } else {
            file[out++] = '%';
            file[out++] = hex_digits[c >> 4];
            file[out++] = hex_digits[c & 15];
        }
    }
    file[out] = 0;
    return 0;
}

int name_decode(const char *file, char *name, size_t size)
{
    size_t out = 0;

    for (const char *at = file; *at; at++) {
        int c = (unsigned char)*at;
        bool escaped = c == '%';

        if (escaped) {
            int high = hex_value(at[1]);
            int low = high < 0 ? -1 : hex_value(at[2]);
            if (low < 0)
                return -EINVAL;
            c = high * 16 + low;
            at += 2;
        }
        if (c == 0 || escaped == plain((unsigned char)c, out == 0) || out + 1 >= size)
            return -EINVAL;
        name[out++] = (char)c;
    }
    if (out == 0)
        return -EINVAL;
    name[out] = 0;
    return (int)out;
}

bool name_split_remote(const char *text, size_t *address_length, const char **name)
{
    size_t scheme =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+");
    const char *slash;

    if (scheme == 0 || strncmp(text + scheme, "://", 3) != 0)
        return false;
    slash = strchr(text + scheme + 3, '/');
    *address_length = slash ? (size_t)(slash - text) : strlen(text);
    *name = slash ? slash + 1 : text + *address_length;
    return true;
}
