/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * name.h - object names and where they stand.
 *
 * In the store an object is one file directly in the store's folder.  Its file name is the
 * object's name with every byte outside [A-Za-z0-9._-], and a dot at the start, written as %XX;
 * where that has more than 255 bytes, it is "%=" and a byte that the name lacks, then the name
 * with that byte in place of slashes.  So no name can leave the folder, hide, or meet the
 * server's own files, which begin with a dot.  The mapping is one-to-one: what is not the
 * encoding of a name is no object.
 */
#ifndef IOD_NAME_H
#define IOD_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "embedded/iod/proto.h"

#define NAME_FILE_MAX                                                                          \
    256 /* bytes of an encoded name with its final zero: what file systems take */

/* Encodes; 0, -EINVAL (empty, or a zero byte in it), -ENAMETOOLONG (longer than IOD_NAME_MAX
 * and no such result fits into `size`). */
int name_encode(const struct iod_string *name, char *file, size_t size);

/* Decodes a file name; the length, or -EINVAL when it is not what name_encode() writes. */
int name_decode(const char *file, char *name, size_t size);

/*
 * Splits "scheme://address/name" at the slash behind the address.  Returns true for such a
 * text; *address_length is what belongs to the address, *name stands behind the slash (at the
 * final zero when there is none).
 */
bool name_split_remote(const char *text, size_t *address_length, const char **name);

#endif
