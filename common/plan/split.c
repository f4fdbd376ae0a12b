/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "plan/split.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct rme_split_size rme_split(const struct rme_mseg *local, uint64_t lskip, const struct rme_wire_segment *remote,
                                uint64_t rskip, uint64_t length, const struct rme_split_limits *limits,
                                struct rme_piece *piece, struct rme_lseg *seg)
{
    struct rme_split_size size = {0, 0};

    while (length > 0) {
        uint64_t room;
        uint32_t nsge = 0;

        while (rskip >= remote->length) {
            rskip -= remote->length;
            remote++;
        }
        if (piece != NULL) {
            piece[size.npiece].raddr = remote->address + rskip;
            piece[size.npiece].rkey = remote->key;
            piece[size.npiece].seg = seg + size.nseg;
        }
        room = least(least(remote->length - rskip, limits->max_piece), length);
        for (; room > 0 && nsge < limits->max_sge; nsge++) {
            uint64_t part;

            while (lskip >= local->length) {
                lskip -= local->length;
                local++;
            }
            part = least(local->length - lskip, room);
            if (seg != NULL) {
                seg[size.nseg].base = (char *)local->base + lskip;
                seg[size.nseg].length = part;
                seg[size.nseg].lkey = local->lkey;
            }
            size.nseg++;
            lskip += part;
            rskip += part;
            room -= part;
            length -= part;
        }
        if (piece != NULL)
            piece[size.npiece].nseg = nsge;
        size.npiece++;
    }
    return size;
}

uint32_t rme_seg_count(const struct rme_seg *seg, uint32_t nseg, uint64_t offset, uint64_t length, uint32_t max,
                       uint64_t *covered)
{
    uint32_t count = 0;

    *covered = 0;
    for (uint32_t i = 0; i < nseg && *covered < length && count < max; i++) {
        if (offset >= seg[i].length) {
            offset -= seg[i].length;
            continue;
        }
        *covered += least(seg[i].length - offset, length - *covered);
        offset = 0;
        count++;
    }
    return count;
}

void rme_seg_cut(const struct rme_seg *seg, uint32_t nseg, uint64_t offset, uint64_t length, struct rme_seg *out)
{
    for (uint32_t i = 0; i < nseg && length > 0; i++) {
        uint64_t part;

        if (offset >= seg[i].length) {
            offset -= seg[i].length;
            continue;
        }
        part = least(seg[i].length - offset, length);
        out->base = (char *)seg[i].base + offset;
        out->length = part;
        out++;
        offset = 0;
        length -= part;
    }
}

void rme_seg_gather(const struct rme_seg *seg, uint32_t nseg, uint64_t offset, void *to, uint64_t length)
{
    for (uint32_t i = 0; i < nseg && length > 0; i++) {
        uint64_t part;

        if (offset >= seg[i].length) {
            offset -= seg[i].length;
            continue;
        }
        part = least(seg[i].length - offset, length);
        memcpy(to, (char *)seg[i].base + offset, part);
        to = (char *)to + part;
        offset = 0;
        length -= part;
    }
}

void rme_seg_scatter(const struct rme_seg *seg, uint32_t nseg, uint64_t offset, const void *from, uint64_t length)
{
    for (uint32_t i = 0; i < nseg && length > 0; i++) {
        uint64_t part;

        if (offset >= seg[i].length) {
            offset -= seg[i].length;
            continue;
        }
        part = least(seg[i].length - offset, length);
        memcpy((char *)seg[i].base + offset, from, part);
        from = (const char *)from + part;
        offset = 0;
        length -= part;
    }
}
