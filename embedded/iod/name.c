/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/name.h"

#include <errno.h>
#include <string.h>

static const char hex_digits[] = "0123456789ABCDEF";

#define LONG_FORM "%=" /* not followed by a hexadecimal digit */

/* Returns true for bytes that are not escaped.  isalnum() depends on the locale. */
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

/* Writes "%=", a byte for the slashes, and the name with that byte for each slash.  The byte is
 * the first from ':' on that is not in the name, which with at most 240 bytes lacks 15 at
 * least. */
static int encode_long(const struct iod_string *name, char *file, size_t size)
{
    unsigned char slash = ':';

    if (name->length > IOD_NAME_MAX || name->length + 4 > size)
        return -ENAMETOOLONG;
    while (memchr(name->text, slash, name->length))
        slash = slash == 255 ? 1 : slash + 1;
    memcpy(file, LONG_FORM, 2);
    file[2] = (char)slash;
    for (uint32_t i = 0; i < name->length; i++)
        file[3 + i] = (char)(name->text[i] == '/' ? slash : name->text[i]);
    file[3 + name->length] = 0;
    return 0;
}

int name_encode(const struct iod_string *name, char *file, size_t size)
{
    size_t out = 0;

    if (name->length == 0 || memchr(name->text, 0, name->length))
        return -EINVAL;
    for (uint32_t i = 0; i < name->length; i++) {
        unsigned char c = (unsigned char)name->text[i];
        size_t need = plain(c, i == 0) ? 1 : 3;

        if (out + need >= size)
            return encode_long(name, file, size);
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

/* Decodes the long form, which name_encode() writes only if the short form does not fit. */
static int decode_long(const char *file, char *name, size_t size)
{
    char again[NAME_FILE_MAX];
    size_t length = strnlen(file, NAME_FILE_MAX);
    struct iod_string string;

    if (length < 4 || length > IOD_NAME_MAX + 3 || length - 3 >= size)
        return -EINVAL;
    length -= 3;
    for (size_t i = 0; i <= length; i++)
        name[i] = (char)(file[3 + i] == file[2] ? '/' : file[3 + i]);
    string = iod_string_of(name);
    return name_encode(&string, again, sizeof again) == 0 && strcmp(again, file) == 0
               ? (int)length
               : -EINVAL;
}

int name_decode(const char *file, char *name, size_t size)
{
    size_t out = 0;

    if (strncmp(file, LONG_FORM, 2) == 0)
        return decode_long(file, name, size);
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
