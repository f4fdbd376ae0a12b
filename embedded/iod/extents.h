/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* extents.h - data ranges of a file, and their mapping to a striped file's objects. */
#ifndef IOD_EXTENTS_H
#define IOD_EXTENTS_H

#include "embedded/iod/proto.h"

/* Growing list; initially zero, freed by extent_list_free(). */
struct extent_list {
    struct iod_extent *item;
    size_t count;
    size_t room;
};

/* Appends a range at or behind the end of the last one; merges adjacent ranges.  Returns 0 or
 * -ENOMEM. */
int extent_list_add(struct extent_list *list, uint64_t offset, uint64_t length);
void extent_list_free(struct extent_list *list);
uint64_t extent_list_bytes(const struct extent_list *list);

/*
 * Appends data ranges of an open file between base+from and base+size (as offsets from `base`),
 * at most `max`.  *next: where to continue, `size` at the end.  If the file system does not
 * report holes, everything is data.  Returns 0 or -errno.
 */
int extents_of_file(int fd, uint64_t base, uint64_t from, uint64_t size, size_t max,
                    struct extent_list *list, uint64_t *next);

/* Appends the ranges of one server's object that hold the ranges of the file.  Returns 0 or
 * -ENOMEM. */
int extents_of_object(const struct extent_list *file, const struct iod_layout *layout,
                      struct extent_list *object);

/* Position in an array of extents: byte `inside` of extent `at`. */
struct extent_cursor {
    const struct iod_extent *item;
    size_t count;
    size_t at;
    uint64_t inside;
};

/* Returns the length of the longest range from here in one extent, at most `max` bytes, and
 * advances; 0 at the end. */
uint64_t extent_cursor_take(struct extent_cursor *cursor, uint64_t max, uint64_t *offset);

/* Advances by `bytes`. */
void extent_cursor_skip(struct extent_cursor *cursor, uint64_t bytes);

#endif
