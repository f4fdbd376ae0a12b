/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Division of local and remote memory into work requests: pure functions on lists of
 * segments. */
#ifndef RME_SPLIT_H
#define RME_SPLIT_H

#include <string.h>
#include "fabric.h"
#include "memory/mreg.h"
#include "wire/wire.h"

/* A segment of the memory of an operation. */
struct rme_seg {
    void *base;
    uint64_t length;
};

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* An iteration over [offset, offset + length) of a list, or the part of it that exists. */
struct rme_walk {
    const struct rme_seg *seg, *end;
    uint64_t skip, length;
};

static inline struct rme_walk rme_walk(const struct rme_seg *seg, uint32_t nseg,
                                       uint64_t offset, uint64_t length)
{
    return (struct rme_walk){seg, seg + nseg, offset, length};
}

/* Finds the next part with bytes; false: none. */
static inline bool rme_walk_next(struct rme_walk *walk, struct rme_seg *part)
{
    while (walk->length > 0 && walk->seg != walk->end) {
        const struct rme_seg *seg = walk->seg++;

        if (walk->skip < seg->length) {
            part->base = (char *)seg->base + walk->skip;
            part->length = min_u64(seg->length - walk->skip, walk->length);
            walk->skip = 0;
            walk->length -= part->length;
            return true;
        }
        walk->skip -= seg->length;
    }
    return false;
}

/*
 * Cuts `length` bytes into pieces, each one contiguous remote range against at most max_sge
 * local segments, and returns their number.  The bytes begin with the local list and `rskip`
 * bytes into the remote list; the caller ensures that both lists contain them.  max_sge and
 * max_piece, bytes of a piece, are at least 1.  Empty segments are skipped.  With cuts = number
 * of remote segments + length / max_piece, `seg` has room for cuts + number of local segments,
 * and `piece` for cuts + that room / max_sge + 1: a piece that ends elsewhere has max_sge
 * segments, and only the cuts divide local ones.
 */
uint32_t rme_split(const struct rme_mseg *local, const struct rme_wire_segment *remote,
                   uint64_t rskip, uint64_t length, uint32_t max_sge, uint64_t max_piece,
                   struct rme_rdma_seg *piece, struct rme_sge *seg);

/* Copies between a list of several segments and contiguous memory (rme_seg_copy). */
void rme_seg_copy_list(const struct rme_seg *seg, uint32_t nseg, uint64_t offset, void *flat,
                       uint64_t length, bool scatter);

/* Copies `length` bytes from `offset` of the list on, or the part that exists, to contiguous
 * memory, or with `scatter` from there. */
static inline void rme_seg_copy(const struct rme_seg *seg, uint32_t nseg, uint64_t offset,
                                void *flat, uint64_t length, bool scatter)
{
    if (nseg == 1 && offset == 0 && length <= seg->length)
        memcpy(scatter ? seg->base : flat, scatter ? flat : seg->base, length);
    else
        rme_seg_copy_list(seg, nseg, offset, flat, length, scatter);
}

#endif
