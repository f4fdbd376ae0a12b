/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slabs of a zone: a mapping with one registration, cut into blocks of one size.  The zone's
 * lock guards the blocks.  Creating and freeing a slab may take long and needs no lock. */
#ifndef RME_SLAB_H
#define RME_SLAB_H

#include <sys/queue.h>

#include "base/itree.h"
#include "memory/zone.h"

/* Size and alignment of a mapping are multiples of this. */
#define RME_SLAB_SMALLEST ((size_t)256 << 10)

struct rme_slab {
    TAILQ_ENTRY(rme_slab) link; /* in a list of the zone */
    struct rme_inode place;     /* mapping, in the tree of the zone */
    char *base;
    size_t size;  /* bytes of all blocks */
    size_t block; /* bytes of a block */
    int class;
    uint64_t all;   /* one bit for each block */
    uint64_t free;  /* one bit for each free block */
    unsigned holds; /* transfers that may still use a block, see rme_zone_hold */
    bool registered;
    struct rme_mr mr;
    bool readable; /* peers may read it, with the key of `to_read` */
    struct rme_mr to_read;
};

/* Effort to register a slab. */
enum rme_slab_effort {
    RME_SLAB_PLAIN, /* no registration */
    RME_SLAB_QUIET, /* fails if refused; the caller tries something smaller */
    RME_SLAB_LAST,  /* logs a refusal, and returns plain memory */
};

/* Maps a slab of the given shape (class, size, block, all) and registers it as asked.  NULL: no
 * memory. */
struct rme_slab *rme_slab_new(const struct rme_zone_config *config,
                              const struct rme_slab *shape, enum rme_slab_effort effort);
/* Unmaps a slab without used blocks. */
void rme_slab_free(const struct rme_zone_config *config, struct rme_slab *slab);

/* Take a block of a slab that has a free one, and return it. */
void *rme_slab_take(struct rme_slab *slab);
void rme_slab_put(struct rme_slab *slab, void *block);
/* Returns true if the range, which begins in the slab's mapping, lies in one used block. */
bool rme_slab_in_use(const struct rme_slab *slab, const void *start, size_t length);

/* Returns the address space that a slab with `size` bytes of blocks takes. */
size_t rme_slab_mapped(size_t size);

#endif
