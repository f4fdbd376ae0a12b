/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/layout.h"

uint64_t layout_object_before(const struct iod_layout *layout, uint64_t file_offset)
{
    uint64_t strips = file_offset / layout->strip; /* full strips, over all servers */
    uint64_t rest = file_offset % layout->strip;
    uint64_t full = strips / layout->count;
    uint64_t turn = strips % layout->count; /* index of the server with the partial strip */

    if (layout->index < turn)
        return (full + 1) * layout->strip;
    return full * layout->strip + (layout->index == turn ? rest : 0);
}

uint64_t layout_object_size(const struct iod_layout *layout)
{
    return layout_object_before(layout, layout->size);
}

uint64_t layout_file_offset(const struct iod_layout *layout, uint64_t offset)
{
    uint64_t strip = offset / layout->strip;

    return (strip * layout->count + layout->index) * layout->strip + offset % layout->strip;
}

uint64_t layout_contiguous(const struct iod_layout *layout, uint64_t offset)
{
    if (layout->count == 1)
        return IOD_SIZE_MAX;
    return layout->strip - offset % layout->strip;
}

struct iod_extent layout_object_range(const struct iod_layout *layout, uint64_t file_offset,
                                      uint64_t length)
{
    uint64_t from = layout_object_before(layout, file_offset);
    struct iod_extent range = {from, layout_object_before(layout, file_offset + length) - from};

    return range;
}
