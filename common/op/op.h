/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations: what the host posted, and pulls (the engine's own receives of large unexpected
 * messages).
 *
 * An op lives in a table.  A stale id is recognised: it is generation and index, and the
 * generation changes whenever the op is recycled.  Its memory is an op until the engine's lock
 * is released after that.  What peers call an op is another matter (name.h).
 */
#ifndef RME_OP_H
#define RME_OP_H

#include "base/list.h"
#include "rme.h"
#include "plan/split.h"

struct rme_peer;
struct rme_protocol;
struct rme_rndv;
struct rme_slot;
struct rme_watch;

/* id, name */
#define RME_OP_KINDS(X)                                                                        \
    X(SEND, "send")                                                                            \
    X(UNEXPECTED, "unexpected")                                                                \
    X(RECV, "receive")                                                                         \
    X(PULL, "pull")

enum rme_op_kind {
#define RME_OP_KIND_ENUM(id, name) RME_OP_##id,
    RME_OP_KINDS(RME_OP_KIND_ENUM)
#undef RME_OP_KIND_ENUM
};

/* id, name, what it means */
#define RME_OP_STATES(X)                                                                       \
    X(FREE, "free", "in the free list")                                                        \
    X(QUEUED, "queued",                                                                        \
      "a send waits for the link, for credits, for its turn or for its memory")                \
    X(POSTED, "posted", "a receive waits for a message")                                       \
    X(INVITING, "inviting",                                                                    \
      "a receive waits for a message, and its memory is advertised to the sender")             \
    X(RTS, "rts", "RTS sent; waits for the receiver's choice")                                 \
    X(EXPOSED, "exposed", "the peer moves the data; the memory is open to the peer")           \
    X(MOVING, "moving", "this process moves the data")                                         \
    X(CANCELLING, "cancelling", "the peer was asked to release the memory")                    \
    X(ENDING, "ending", "the outcome is known; a device or thread still uses the memory")      \
    X(DONE, "done", "the completion waits for the host")

enum rme_op_state {
#define RME_OP_ENUM(id, name, text) RME_OP_##id,
    RME_OP_STATES(RME_OP_ENUM)
#undef RME_OP_ENUM
        RME_OP_STATE_COUNT
};

#define RME_OP_INLINE_SEGS 4u
#define RME_OP_INDEX_BITS  20
#define RME_OP_CHUNK       256u /* ops allocated at a time */

struct rme_op {
    rme_id id;
    uint8_t kind;
    uint8_t state;
    uint8_t ctx;
    int32_t tag;
    struct rme_peer *peer;
    void *user;
    struct rme_node of_peer; /* in peer->ops or peer->dying */
    struct rme_node link;    /* in the one queue that its state calls for */
    struct rme_seg *seg;     /* its memory: segs of its own or on the heap */
    uint32_t nseg;
    uint32_t seg_room;
    uint64_t total; /* bytes of its memory */
    uint32_t turn;  /* of its context when it was posted */
    /* a send that was QUEUED: its place among those of the peer, modulo 2^32 */
    uint32_t posted;
    /* 0 at first, together */
    struct rme_slot *slot;               /* POSTED, INVITING: where it waits */
    const struct rme_protocol *protocol; /* that has taken it over, with `rndv`; NULL: none */
    struct rme_rndv *rndv;
    struct rme_watch *watch; /* that measures its stages; NULL: none */
    uint64_t size;           /* bytes of the message, once known */
    int error;               /* once it ends */
    /* threads, devices and peers that may still use its memory; it is DONE only at 0 */
    uint32_t pins;
    uint16_t closing; /* units of it that are being closed */
    bool shutting;    /* a send that has ended, but for that: in peer->shutting */
    bool reap;        /* its registrations end only at the next rme_mreg_reap */
    struct rme_seg own_seg[RME_OP_INLINE_SEGS];
};

struct rme_op_table {
    struct rme_op *chunk[(1u << RME_OP_INDEX_BITS) / RME_OP_CHUNK]; /* NULL: not there */
    uint32_t nchunk;                                                /* all behind are NULL */
    rme_id used; /* no id of a chunk that was given back has a higher count of uses */
    struct rme_node free;
    uint64_t live;
};

void rme_op_table_init(struct rme_op_table *table);
/* Frees all ops, live ones too. */
void rme_op_table_clear(struct rme_op_table *table);

/* A free op with a new id, room for `nseg` segments, in no ring; NULL: no memory, or 2^20 are
 * live. */
struct rme_op *rme_op_new(struct rme_op_table *table, uint32_t nseg);
/* Makes it free; its id is never valid again. */
void rme_op_recycle(struct rme_op_table *table, struct rme_op *op);

/* Frees the memory of ops of which none is live.  Ids stay unique.  Looks at all ops. */
void rme_op_table_trim(struct rme_op_table *table);

/* The live op of an id; NULL when it is not live any more or never was. */
struct rme_op *rme_op_find(const struct rme_op_table *table, rme_id id);

/* From each state, a bit for each that may follow. */
extern const unsigned rme_op_steps[RME_OP_STATE_COUNT];

static inline bool rme_op_may_step(enum rme_op_state from, enum rme_op_state to)
{
    return (rme_op_steps[from] >> to & 1) != 0;
}

const char *rme_op_state_name(enum rme_op_state state);
const char *rme_op_kind_name(enum rme_op_kind kind);

static inline bool rme_op_sends(const struct rme_op *op)
{
    return op->kind == RME_OP_SEND || op->kind == RME_OP_UNEXPECTED;
}

#endif
