/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* State of a delegated buffer granted by a peer, for fast.c and fast_hold.c. */
#ifndef RME_FAST_HOLD_H
#define RME_FAST_HOLD_H

#include "proto/fast.h"
#include "proto/fast_ring.h"

#define RME_FAST_WRITES 128u /* maximal number of messages in an area */
#define RME_FAST_LOUD   16u  /* one of this many writes is signalled */

/* A message in the area, until its place is free and its CQE has come. */
struct rme_fast_write {
    struct rme_xfer xfer;
    struct rme_piece piece;
    struct rme_lseg seg[RME_FAST_SEGS];
    struct rme_fast_hold *hold;
    /* the gathering send; NULL: the send has ended, or the payload was copied */
    struct rme_op *op;
    struct rme_mreg_hold *mreg; /* of the host's memory */
    uint32_t zoned;             /* bit i: segment i holds a reference to its slab */
    uint32_t units;             /* of the ring, those skipped before it included */
    uint32_t bytes;
    uint32_t number; /* its place among the messages of the link: rme_credit.spent less apart */
    bool done;       /* complete on the local device */
};

/* A peer's area.  Owned by the peer's rme_talk, or by the job after the link has ended. */
struct rme_fast_hold {
    struct rme_fast_job job; /* allocates the staging buffer */
    struct rme_peer *peer;   /* NULL: the link ended while the staging buffer was allocated */
    bool making;
    bool ending;                   /* to be released */
    struct rme_node used, granted; /* in the pool's holds and granted; in neither if ending */
    uint32_t used_at, granted_at;  /* the pool's `sent` */
    bool gone;                     /* released, and in the peer's `leaving` */
    struct rme_node leaving;
    struct rme_xfer last; /* RELEASE, if writes are in flight */
    uint64_t address, key;
    uint32_t name; /* of its first unit */
    size_t size;
    uint32_t late; /* with this many unreturned bytes the peer is bound to send CREDIT */
    char *stage;
    uint64_t lkey;
    struct rme_fast_ring ring;
    uint32_t first, count; /* index of the oldest write, and number of writes */
    uint32_t taken;        /* consumed writes, from the oldest on: their places are free */
    uint32_t bytes;        /* of the writes that are not consumed */
    uint32_t pending;      /* transfers without a CQE */
    uint32_t loud;         /* signalled ones of those */
    uint32_t quiet;        /* unsignalled writes since the last signalled one */
    uint32_t sends;        /* gathering sends that have not ended */
    struct rme_fast_write write[RME_FAST_WRITES];
};

/* Has the peer consumed the message? */
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
/* Marks the area as used by a message. */
void rme_fast_hold_used(struct rme_fast_hold *hold);
/* Counts a message of this size that goes another way because the peer has granted no area. */
void rme_fast_hold_missed(struct rme_peer *peer, enum rme_stream stream, uint64_t size);

#endif
