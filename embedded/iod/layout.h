/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * layout.h - stripe arithmetic.  A file is cut into strips, distributed round-robin to `count`
 * servers; the strips of a server are contiguous in its object.  Pure functions of a valid
 * layout (strip > 0, index < count, offsets below 2^62), which cannot overflow.
 */
#ifndef IOD_LAYOUT_H
#define IOD_LAYOUT_H

#include "embedded/iod/proto.h"

/* Returns the bytes of the object of server `layout->index`. */
uint64_t layout_object_size(const struct iod_layout *layout);

/* Returns the offset in the file of byte `offset` of the object. */
uint64_t layout_file_offset(const struct iod_layout *layout, uint64_t offset);

/* Returns the number of bytes from `offset` of the object on that are contiguous in the file,
 * too. */
uint64_t layout_contiguous(const struct iod_layout *layout, uint64_t offset);

#endif
