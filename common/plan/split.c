/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "plan/split.h"

uint32_t rme_split(const struct rme_mseg *local, const struct rme_wire_segment *remote,
                   uint64_t rskip, uint64_t length, uint32_t max_sge, uint64_t max_piece,
                   struct rme_rdma_seg *piece, struct rme_sge *seg)
{
    uint64_t lskip = 0;
    uint32_t count = 0;

    for (; length > 0; piece++, count++) {
        uint64_t room;

        while (rskip >= remote->length) {
            rskip -= remote->length;
            remote++;
        }
        *piece = (struct rme_rdma_seg){
            .raddr = remote->address + rskip, .rkey = remote->key, .seg = seg};
        room = min_u64(min_u64(remote->length - rskip, max_piece), length);
        for (; room > 0 && piece->nseg < max_sge; piece->nseg++) {
            uint64_t part;

            while (lskip >= local->length) {
                lskip -= local->length;
                local++;
            }
            part = min_u64(local->length - lskip, room);
            *seg++ = (struct rme_sge){
                .base = (char *)local->base + lskip, .length = part, .lkey = local->lkey};
            lskip += part;
            rskip += part;
            room -= part;
            length -= part;
        }
    }
    return count;
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
