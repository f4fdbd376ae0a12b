/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory that a peer has lent us, as fast.c and fast_hold.c know it. */
#ifndef RME_FAST_HOLD_H
#define RME_FAST_HOLD_H

#include "proto/fast.h"
#include "proto/fast_ring.h"

#define RME_FAST_WRITES 128u /* messages in an area at a time, at most */
#define RME_FAST_LOUD   16u  /* so many writes, one of which is not quiet */

/* A message in the area, until its place is free and our device has reported it. */
struct rme_fast_write {
    struct rme_xfer xfer;
    struct rme_piece piece;
    struct rme_lseg seg[RME_FAST_SEGS];
    struct rme_fast_hold *hold;
    struct rme_op *op;          /* the send that ends with it; NULL: it has ended */
    struct rme_mreg_hold *mreg; /* of the host's memory */
    uint32_t zoned;             /* a bit for each of its segments: its slab is held */
    uint32_t units;             /* of the ring */
    uint32_t bytes;
    uint32_t number; /* its place among the messages of the link: rme_credit.spent less apart */
    bool done;       /* our device has done with it */
};

/* An area of a peer.  It is the peer's talk's, or its job's once the link is gone. */
struct rme_fast_hold {
    struct rme_fast_job job; /* the stage is made */
    struct rme_peer *peer;   /* NULL: the link went while the stage was made */
    bool making;
    bool ending;                   /* it is to be released */
    struct rme_node used, granted; /* in the pool's holds and granted; alone if ending */
    uint32_t used_at, granted_at;  /* the pool's `sent` */
    bool gone;                     /* it was, and is in the peer's `leaving` by this: */
    struct rme_node leaving;
    struct rme_xfer last; /* RELEASE, if writes are at our device */
    uint64_t address, key;
    uint32_t name; /* of its first unit */
    size_t size;
    uint32_t late; /* with so many bytes that it has not returned the peer sends CREDIT */
    char *stage;
    uint64_t lkey;
    struct rme_fast_ring ring;
    uint32_t first, count; /* writes: oldest, how many */
    uint32_t taken;        /* of those, from the oldest on: their places are free */
    uint32_t bytes;        /* of the others */
    uint32_t pending;      /* transfers at our device */
    uint32_t loud;         /* of those, that are not quiet */
    uint32_t quiet;        /* writes since the last that was not */
    uint32_t sends;        /* that have not ended */
    struct rme_fast_write write[RME_FAST_WRITES];
};

/* Has the peer taken it? */
static inline bool rme_fast_is_taken(const struct rme_credit *credit,
                                     const struct rme_fast_write *write)
{
    return credit->spent - credit->apart - write->number >= credit->spent - credit->told;
}

/* ---- fast_hold.c: the protocol's row ---- */

extern const struct rme_control_kind rme_fast_release_kind;
void rme_fast_granted(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_fast_withdrawn(struct rme_peer *peer, const struct rme_wire_message *message);
void rme_fast_hold_down(struct rme_peer *peer);
/* A message goes there. */
void rme_fast_hold_used(struct rme_fast_hold *hold);
/* A message of this size goes another way, as nothing is held of the peer. */
void rme_fast_hold_missed(struct rme_peer *peer, enum rme_stream stream, uint64_t size);

#endif
