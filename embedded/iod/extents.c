/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/extents.h"
#include "embedded/iod/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int extent_list_add(struct extent_list *list, uint64_t offset, uint64_t length)
{
    struct iod_extent *last = list->count ? &list->item[list->count - 1] : NULL;

    if (length == 0)
        return 0;
    if (last && last->offset + last->length == offset) {
        last->length += length;
        return 0;
    }
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        struct iod_extent *item = realloc(list->item, room * sizeof *item);
        if (!item)
            return -ENOMEM;
        list->item = item;
        list->room = room;
    }
    list->item[list->count].offset = offset;
    list->item[list->count].length = length;
    list->count++;
    return 0;
}

void extent_list_free(struct extent_list *list)
{
    free(list->item);
    list->item = NULL;
    list->count = list->room = 0;
}

uint64_t extent_list_bytes(const struct extent_list *list)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < list->count; i++)
        sum += list->item[i].length;
    return sum;
}

/* Finds the next data range at or behind `at`, in file offsets; length 0: none before `end`. */
static int next_data(int fd, uint64_t at, uint64_t end, struct iod_extent *range)
{
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    off_t hole;

    range->offset = end;
    range->length = 0;
    if (data < 0 && errno == ENXIO)
        return 0;
    if (data < 0 && errno == EINVAL) { /* the file system does not report holes */
        range->offset = at;
        range->length = end - at;
        return 0;
    }
    if (data < 0)
        return -errno;
    if ((uint64_t)data >= end)
        return 0;
    hole = lseek(fd, data, SEEK_HOLE);
    if (hole < 0 && errno != ENXIO)
        return -errno;
    range->offset = (uint64_t)data;
    range->length = (hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole) - (uint64_t)data;
    return 0;
}

int extents_of_file(int fd, uint64_t base, uint64_t from, uint64_t size, size_t max,
                    struct extent_list *list, uint64_t *next)
{
    uint64_t at = from;
    size_t limit = list->count + max;

    while (at < size && list->count < limit) {
        struct iod_extent range;
        int error = next_data(fd, base + at, base + size, &range);

        if (!error)
            error = extent_list_add(list, range.offset - base, range.length);
        if (error)
            return error;
        at = range.offset - base + range.length;
    }
    *next = at;
    return 0;
}

int extents_of_object(const struct extent_list *file, const struct iod_layout *layout,
                      struct extent_list *object)
{
    for (size_t i = 0; i < file->count; i++) {
        struct iod_extent range =
            layout_object_range(layout, file->item[i].offset, file->item[i].length);
        int error = extent_list_add(object, range.offset, range.length);
        if (error)
            return error;
    }
    return 0;
}

uint64_t extent_cursor_take(struct extent_cursor *cursor, uint64_t max, uint64_t *offset)
{
    const struct iod_extent *item;
    uint64_t length;

    if (cursor->at >= cursor->count || max == 0)
        return 0;
    item = &cursor->item[cursor->at];
    length = item->length - cursor->inside;
    if (length > max)
        length = max;
    *offset = item->offset + cursor->inside;
    cursor->inside += length;
    if (cursor->inside == item->length) {
        cursor->at++;
        cursor->inside = 0;
    }
    return length;
}

void extent_cursor_skip(struct extent_cursor *cursor, uint64_t bytes)
{
    uint64_t offset, step;

    while ((step = extent_cursor_take(cursor, bytes, &offset)) > 0)
        bytes -= step;
}
