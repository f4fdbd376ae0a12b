/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Slabs of a zone: a mapping with one registration, cut into blocks of one size.  The zone's
 * lock guards their blocks; making and freeing one may take long, and needs no lock.
 */
#ifndef RME_SLAB_H
#define RME_SLAB_H

#include <sys/queue.h>

#include "base/itree.h"
#include "memory/zone.h"

/* A mapping is a multiple of this, and begins at one. */
#define RME_SLAB_SMALLEST ((size_t)256 << 10)

struct rme_slab {
    TAILQ_ENTRY(rme_slab) link; /* in a list of the zone */
    struct rme_inode place;     /* its mapping, in the zone's tree */
    char *base;
    size_t size;  /* of its blocks together */
    size_t block; /* bytes of a block */
    int class;
    uint64_t all;   /* a bit for each block */
    uint64_t free;  /* a bit for each free block */
    unsigned holds; /* transfers that may still use a block of it, see rme_zone_hold */
    bool registered;
    struct rme_mr mr;
    bool readable; /* by peers, with the key of `to_read` */
    struct rme_mr to_read;
};

/* How much a slab's registration matters. */
enum rme_slab_effort {
    RME_SLAB_PLAIN, /* it is not even tried */
    RME_SLAB_QUIET, /* a refusal gives no slab; the caller tries something smaller */
    RME_SLAB_LAST,  /* a refusal is told, and the slab is plain memory */
};

/* Maps a slab of the given shape (class, size, block, all) and registers it if asked to.  NULL:
 * no memory. */
struct rme_slab *rme_slab_new(const struct rme_zone_config *config,
                              const struct rme_slab *shape, enum rme_slab_effort effort);
/* Nobody uses a block of it any more. */
void rme_slab_free(const struct rme_zone_config *config, struct rme_slab *slab);

/* Takes a block of a slab that has a free one, and gives it back. */
void *rme_slab_take(struct rme_slab *slab);
void rme_slab_put(struct rme_slab *slab, void *block);
/* Does the range, which begins in its mapping, lie in one block in use? */
bool rme_slab_in_use(const struct rme_slab *slab, const void *start, size_t length);

/* What a slab with so many bytes in blocks takes of the address space. */
size_t rme_slab_mapped(size_t size);

#endif
