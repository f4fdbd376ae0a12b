/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * name.h - names of objects, and their files.
 *
 * An object is one file directly in the store's folder.  The file name is the object's name
 * with each slash, each '%' and a leading dot written as %XX.  A name therefore cannot leave
 * the folder, be hidden, or collide with the server's own files, which begin with a dot.  The
 * mapping is one-to-one: a file whose name is not an encoding is not an object.
 */
#ifndef IOD_NAME_H
#define IOD_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "embedded/iod/proto.h"

#define NAME_FILE_MAX                                                                          \
    256 /* bytes of an encoded name with its final zero, the limit of file systems */

/* Encodes a name.  Returns 0, -EINVAL (empty, or contains a zero byte) or -ENAMETOOLONG (does
 * not fit into `size`). */
int name_encode(const struct iod_string *name, char *file, size_t size);

/* Decodes a file name.  Returns the length, or -EINVAL if name_encode() does not write the
 * name. */
int name_decode(const char *file, char *name, size_t size);

/*
 * Splits "scheme://address/name" at the slash behind the address.  Returns true for such a
 * text, with the address in *address_length bytes and *name behind the slash (at the final zero
 * if there is none).
 */
bool name_split_remote(const char *text, size_t *address_length, const char **name);

#endif
