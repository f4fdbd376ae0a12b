/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* extents.h - the ranges of a file that hold data, and what becomes of them when the file is
 * striped. */
#ifndef IOD_EXTENTS_H
#define IOD_EXTENTS_H

#include "embedded/iod/proto.h"

/* A growing list; starts zeroed, ends with extent_list_free(). */
struct extent_list {
    struct iod_extent *item;
    size_t count;
    size_t room;
};

/* Appends a range that begins at or behind the end of the last one; joins it when it begins
 * there.  0 or -ENOMEM. */
int extent_list_add(struct extent_list *list, uint64_t offset, uint64_t length);
void extent_list_free(struct extent_list *list);
uint64_t extent_list_bytes(const struct extent_list *list);

/*
 * Appends the data ranges of an open file between base+from and base+size (offsets are given
 * less `base`), at most `max` of them.  *next is where to go on, `size` at the end.  Where the
 * file system cannot tell, all is data.  0 or -errno.
 */
int extents_of_file(int fd, uint64_t base, uint64_t from, uint64_t size, size_t max,
                    struct extent_list *list, uint64_t *next);

/* Appends the ranges of one server's object that hold the ranges of the file.  0 or -ENOMEM. */
int extents_of_object(const struct extent_list *file, const struct iod_layout *layout,
                      struct extent_list *object);

/* A place in an array of extents: byte `inside` of extent `at`. */
struct extent_cursor {
    const struct iod_extent *item;
    size_t count;
    size_t at;
    uint64_t inside;
};

/* The longest piece of at most `max` bytes from here on that lies in one extent; steps behind
 * it.  0 at the end. */
uint64_t extent_cursor_take(struct extent_cursor *cursor, uint64_t max, uint64_t *offset);

/* Steps over `bytes` bytes. */
void extent_cursor_skip(struct extent_cursor *cursor, uint64_t bytes);

#endif
