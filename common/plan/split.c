/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "plan/split.h"

struct rme_split_size rme_split(const struct rme_mseg *local, uint64_t lskip,
                                const struct rme_wire_segment *remote, uint64_t rskip,
                                uint64_t length, const struct rme_split_limits *limits,
                                struct rme_rdma_seg *piece, struct rme_sge *seg)
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
        room = min_u64(min_u64(remote->length - rskip, limits->max_piece), length);
        for (; room > 0 && nsge < limits->max_sge; nsge++) {
            uint64_t part;

            while (lskip >= local->length) {
                lskip -= local->length;
                local++;
            }
            part = min_u64(local->length - lskip, room);
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

void rme_seg_copy_list(const struct rme_seg *seg, uint32_t nseg, uint64_t offset, void *flat,
                       uint64_t length, bool scatter)
{
    struct rme_walk walk = rme_walk(seg, nseg, offset, length);
    struct rme_seg part;

    while (rme_walk_next(&walk, &part)) {
        memcpy(scatter ? part.base : flat, scatter ? flat : part.base, part.length);
        flat = (char *)flat + part.length;
    }
}
