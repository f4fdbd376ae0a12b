/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * layout.h - stripe arithmetic.  A file is cut into strips, dealt round-robin to `count`
 * servers; each server's strips lie one behind the other in its object.  Pure functions of a
 * valid layout (strip > 0, index < count, offsets below 2^62); no step can overflow.
 */
#ifndef IOD_LAYOUT_H
#define IOD_LAYOUT_H

#include "embedded/iod/proto.h"

/* Bytes of the object of server `layout->index`. */
uint64_t layout_object_size(const struct iod_layout *layout);

/* Where byte `offset` of the object lies in the file. */
uint64_t layout_file_offset(const struct iod_layout *layout, uint64_t offset);

/* How many bytes of the object from `offset` on are one piece in the file too. */
uint64_t layout_contiguous(const struct iod_layout *layout, uint64_t offset);

/* How many bytes of the object lie in the file's first `file_offset` bytes. */
uint64_t layout_object_before(const struct iod_layout *layout, uint64_t file_offset);

/* The range of the object that lies in a range of the file; its length may be 0. */
struct iod_extent layout_object_range(const struct iod_layout *layout, uint64_t file_offset,
                                      uint64_t length);

#endif
