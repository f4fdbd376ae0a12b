/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations: those posted by the host, and pulls (the engine's own receives of large
 * unexpected messages).
 *
 * The table owns all ops.  The id of an op is the address of the host's part, which a host may
 * read at any time until the engine is closed (struct rme_config).  The op that has been free
 * for the longest time is reused first, and RME_OP_RESTING free ops are not reused, so a stale
 * id does not name a new op soon.  Messages carry handles instead (rme_rndv.own).  When no op
 * is live, the memory of those above a few thousand returns to the system.
 */
#ifndef RME_OP_H
#define RME_OP_H

#include "op/match.h"
#include "rme.h"
#include "plan/split.h"

struct rme_peer;
struct rme_rndv;

enum rme_op_kind { RME_OP_SEND, RME_OP_UNEXPECTED, RME_OP_RECV, RME_OP_PULL };

/* doc/architecture.md has the transitions. */
enum rme_op_state {
    RME_OP_FREE,       /* in the free list */
    RME_OP_QUEUED,     /* a send waits for the link, for credits, its turn or its memory */
    RME_OP_POSTED,     /* a receive waits for a message */
    RME_OP_EARLY_CTS,  /* as POSTED, and its memory is advertised to the sender */
    RME_OP_RTS,        /* RTS sent; waits for the receiver's choice */
    RME_OP_TARGET,     /* the peer moves the data; the memory is open to the peer */
    RME_OP_MOVING,     /* this process moves the data */
    RME_OP_CANCELLING, /* the peer was asked to release the memory */
    RME_OP_ENDING,     /* the outcome is known; a device or thread still uses the memory */
    RME_OP_DONE,       /* the completion waits for the host */
};
#define RME_OP_STATES (RME_OP_DONE + 1)

#define RME_OP_INLINE_SEGS 4u
#define RME_OP_KEEP_SEGS   64u /* segments of an unused op that stay allocated, at most */
#define RME_OP_CHUNK       64u /* ops in the first allocation; each one doubles their number */
#define RME_OP_CHUNKS      15
#define RME_OP_KEEP_CHUNKS 6u  /* chunks of an idle table: 4,032 ops, 1 MB */
#define RME_OP_RESTING     32u /* free ops that are not reused yet */

struct rme_op {
    rme_id id; /* constant */
    uint8_t kind;
    uint8_t state;
    uint8_t ctx;
    int32_t tag;
    struct rme_peer *peer;
    void *user;
    struct list_head of_peer; /* in peer->ops or peer->draining */
    struct list_head link;    /* in the queue of its state */
    /* POSTED, EARLY_CTS: in the table of receives; QUEUED: by RME_BY_BLOCKED_TAG (send.c);
     * UNEXPECTED: by RME_BY_REQUEST_TAG until finished (end.c) */
    struct rme_match match;
    struct rme_seg *seg; /* the host's memory; `own_seg`, or on the heap */
    uint32_t nseg;
    uint32_t seg_room;
    uint64_t total;  /* bytes of the host's memory */
    uint32_t closes; /* rme_ctx.closes of its context at the post */
    /* sends: position in the peer's order of posting, modulo 2^32; failed receives: that of the
     * last send to be reported before (end.c) */
    uint32_t posted;
    /* rme_op_new clears the fields from here to `dereg_flush` */
    uint64_t size; /* bytes of the message; 0: unknown yet */
    int error;     /* result, from ENDING on: 0 or a negative errno */
    /* references to its memory by threads, devices and peers; ENDING lasts until 0 */
    uint32_t refcount;
    uint16_t invalidating; /* fragments of it whose invalidation is pending */
    bool completing;       /* counted in peer->completing_ops until it is reported; see end.c */
    bool dereg_flush;      /* its completion waits for the next rme_mreg_dereg_flush */
    struct rme_rndv *rndv; /* NULL: not a rendezvous; owned by the op until rme_rndv_free */
    struct rme_seg own_seg[RME_OP_INLINE_SEGS];
};

struct rme_op_table {
    struct rme_op *chunk[RME_OP_CHUNKS]; /* in whole pages; NULL: never used */
    char *parts[RME_OP_CHUNKS];          /* the host's, of the same ops */
    uint32_t nchunk;                     /* the first ones, in use */
    struct list_head free;
    uint64_t live, room;
    const void *host; /* first content of the host's part; NULL: only the id */
    size_t host_size;
};

/* Prepares a table whose ops have copies of `host`. */
void rme_op_table_init(struct rme_op_table *table, const void *host, size_t host_size);
/* Frees all ops, including live ones. */
void rme_op_table_clear(struct rme_op_table *table);

/* Returns a free op with room for `nseg` segments; NULL: memory is short, or 2^21 ops are
 * live. */
struct rme_op *rme_op_find_free(struct rme_op_table *table, uint32_t nseg);
/* Returns the host's part of an op. */
static inline rme_id *rme_op_host(const struct rme_op *op)
{
    return (rme_id *)(uintptr_t)op->id;
}
/* Takes a free op with room for `nseg` segments out of the table, in no list; NULL as above. */
static inline struct rme_op *rme_op_new(struct rme_op_table *table, uint32_t nseg)
{
    struct rme_op *op = container_of(table->free.next, struct rme_op, link);

    if (table->live + RME_OP_RESTING >= table->room || nseg > op->seg_room)
        op = rme_op_find_free(table, nseg);
    if (op == NULL)
        return NULL;
    list_del_init(&op->link);
    op->nseg = nseg;
    op->size = 0;
    op->error = 0;
    op->refcount = 0;
    op->invalidating = 0;
    op->completing = false;
    op->rndv = NULL;
    op->dereg_flush = false;
    table->live++;
    __atomic_store_n(rme_op_host(op), op->id, __ATOMIC_RELAXED);
    return op;
}
/* Frees allocated segments. */
void rme_op_drop_segs(struct rme_op *op);
/* Returns the memory of the last chunks to the system; no op is live. */
void rme_op_shrink(struct rme_op_table *table);
/* Returns an op without a peer to the end of the free list. */
static inline void rme_op_recycle(struct rme_op_table *table, struct rme_op *op)
{
    if (op->seg_room > RME_OP_KEEP_SEGS)
        rme_op_drop_segs(op);
    op->state = RME_OP_FREE;
    op->peer = NULL;
    list_del_init(&op->link);
    list_add_tail(&op->link, &table->free);
    __atomic_store_n(rme_op_host(op), 0, __ATOMIC_RELAXED);
    if (--table->live == 0 && table->nchunk > RME_OP_KEEP_CHUNKS)
        rme_op_shrink(table);
}

/* Returns the live op of an id; NULL: none. */
struct rme_op *rme_op_find(const struct rme_op_table *table, rme_id id);

static inline bool rme_op_sends(const struct rme_op *op)
{
    return op->kind == RME_OP_SEND || op->kind == RME_OP_UNEXPECTED;
}

#endif
