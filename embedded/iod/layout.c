/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/layout.h"

uint64_t layout_object_size(const struct iod_layout *layout)
{
    uint64_t strips = layout->size / layout->strip; /* full strips, over all servers */
    uint64_t full = strips / layout->count;
    uint64_t turn = strips % layout->count; /* index of the server with the partial strip */

    if (layout->index < turn)
        return (full + 1) * layout->strip;
    return full * layout->strip + (layout->index == turn ? layout->size % layout->strip : 0);
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
