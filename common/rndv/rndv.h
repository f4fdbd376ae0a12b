/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rendezvous: messages moved by RDMA, in fragments, between the memory of a send and that of a
 * receive.  rndv.c describes the protocol.  Direct calls run downwards in this list:
 *   early_cts.c  receiver goes first         rts.c      starts, and answers of the peer
 *   put.c        sender writes               get.c      receiver reads
 *   xfer.c       transfers, and their limits
 *   stop.c       cancel and errors
 *   rndv.c       life, handles, load
 *   mem.c        local memory that a device can use
 *   window.c     memory open to the peer
 *   msg.c        RTS, CTS, FIN, CANCEL
 * A file that has to continue or stop an op of a file above calls a function of the op's stage.
 */
#ifndef RME_RNDV_H
#define RME_RNDV_H

#include <stdlib.h>

#include "base/list.h"
#include "base/table.h"
#include "fabric.h"
#include "memory/mreg.h"
#include "op/message.h"
#include "op/operations.h"
#include "op/tags.h"
#include "transport/peer.h"
#include "wire/wire.h"

/* Ways to make memory usable.  Each is tried when the one before was refused. */
enum rme_memory {
    RME_MEMORY_DIRECT,  /* the device reads or writes the host's memory */
    RME_MEMORY_PACK,    /* copied through a block of a zone */
    RME_MEMORY_RESERVE, /* copied through the engine's reserve block, one fragment at a time */
};

/* Blocks kept for the case that no memory can be registered.  The head of mem.c explains why
 * two classes are needed. */
enum rme_reserve_class { RME_RESERVE_INITIATOR, RME_RESERVE_TARGET, RME_RESERVES };

struct rme_reserve {
    void *block;
    const struct rme_mr *mr;  /* of the zone, or `own` */
    struct rme_mr own;        /* of this block, where a peer must not get the key of a slab */
    bool used;                /* by a fragment, in rme_frag.reserve */
    struct list_head waiting; /* fragments that wait for the block */
};

/*
 * What an op does in one of its states, by its role in an algorithm.  NULL: nothing to do; of
 * messages: not expected.
 */
struct rme_rndv_stage {
    /* Continues after memory became usable or data moved.  May end the op. */
    void (*advance)(struct rme *rme, struct rme_op *op);
    /* CTS: the receiver has opened a window. */
    void (*opened)(struct rme_op *op, const struct rme_wire_message *cts);
    /* The peer reports that it has written the first window, or read what RTS offered. */
    void (*moved)(struct rme *rme, struct rme_op *op, uint64_t end);
};

/*
 * State of a rendezvous.  The op owns it: rme_rndv_new() takes it from the engine's list, or,
 * if that is empty, from the heap, and rme_rndv_free() gives it back when no reference to the
 * op's memory is left.
 */
struct rme_rndv {
    struct rme_op *op;
    const struct rme_rndv_stage *stages; /* by the state of the op */
    struct rme_control control;
    uint8_t ctrl;         /* type of `control`: FIN or CANCEL */
    uint8_t memory;       /* enum rme_memory of the next fragment */
    bool reads;           /* the receiver reads, else the sender writes */
    bool refused;         /* registration of its memory was refused */
    bool rts_out;         /* RTS was sent and counts in rme_peer_rndv.rts_out */
    bool peer_stop;       /* stopped by the peer, whose CANCEL is answered */
    bool refuses;         /* FIN refuses an eager message, whose place is the key of `theirs` */
    bool reports;         /* the last transfer is posted, with the report of the op: */
    uint32_t report;      /* the peer has it when rme_credit.acked reaches this count */
    uint64_t closes;      /* key of the peer's window that FIN closes; 0: none */
    int stop_error;       /* result of a stopped op, which starts nothing new; 0: not stopped */
    struct rme_keyed own; /* by the local handle in messages */
    /* by the peer's handle, in the table once the op of the peer is known */
    struct rme_keyed theirs;
    uint32_t max_segs; /* maximum of segments per fragment */
    uint64_t most;     /* maximum of bytes of a fragment in a block of a zone */
    unsigned access;   /* rights of the next fragment; REMOTE_READ: RTS shall offer it */
    uint64_t prepared; /* end of the last fragment made */
    uint64_t done;     /* bytes transferred */
    uint64_t opened;   /* end of the last remote window */
    uint32_t moves;    /* transfers posted */
    uint64_t cancel_by;
    struct rme_load *load; /* load that counts this message; NULL: none */
    struct list_head frags;
    struct list_head remote_windows;
};

enum rme_frag_state {
    /* waits for a thread that registers or packs, or for the reserve block of targets */
    RME_FRAG_WAIT,
    RME_FRAG_BUSY,   /* being registered or packed by a thread, without the lock */
    RME_FRAG_READY,  /* the device may use it */
    RME_FRAG_QUEUED, /* its CTS or its transfer is queued */
    RME_FRAG_POSTED, /* the peer may access it, or its transfer was passed to the fabric */
};

/*
 * A fragment: a range of a message as local memory that a device can use.  At the target it is
 * open to the peer, at the initiator it is one transfer.  The fragments of an op that the peer
 * or a device may use precede all others of the op.
 */
struct rme_frag {
    struct list_head link;  /* in rndv->frags, ordered by offset */
    struct list_head queue; /* in rme->rndv_state->work or rme_reserve.waiting */
    struct rme_op *op;
    uint8_t state;
    uint8_t memory;
    bool gone;  /* freed, but BUSY, or its windows are still being invalidated */
    bool early; /* its windows count in rme->offered */
    unsigned access;
    uint64_t offset, length;
    struct rme_control control;  /* queued CTS, or in peer->rdma_queue or peer->moving */
    void *block;                 /* PACK, RESERVE */
    struct rme_reserve *reserve; /* whose block this fragment holds; NULL: none */
    uint64_t charged;            /* PACK: size of the block in the peer's quota */
    struct rme_mreg_hold *hold;  /* DIRECT; PACK where registered for this fragment alone */
    struct rme_range *range;     /* open ranges, one for each mseg; see window.c */
    uint32_t nrange;             /* 0: not open */
    uint32_t nmseg;
    struct list_head invalidating; /* in peer->invalidating */
    struct rme_rdma_op rdma_op;    /* the transfer; its pieces are allocated */
    struct rme_mseg mseg[]; /* memory for the device: the block, or the host's segments */
};

/* A remote window: memory of the peer that is open to this side. */
struct rme_remote_window {
    struct list_head link; /* in rndv->remote_windows */
    uint64_t offset, length;
    uint32_t nsegment;
    struct rme_wire_segment segment[];
};

#define RME_RNDV_OWN 64u /* rendezvous that need no allocation */

/* State of the engine. */
struct rme_rndv_state {
    bool forceful;         /* cancels of the host do not wait for the peer */
    struct list_head work; /* fragments to be registered or packed without the lock */
    struct list_head free; /* those of `own` that are unused, by `control` */
    struct rme_rndv own[RME_RNDV_OWN];
    struct rme_reserve reserve[RME_RESERVES];
    size_t reserve_size;
};

/* State of a peer, for one link: memory that is open to the sender before RTS (early_cts.c). */
struct rme_early_cts {
    /* receive whose early CTS is neither matched nor void; NULL: none */
    struct rme_op *receive;
    uint32_t seen; /* EAGER and RTS of expected messages received, modulo 2^32 */
    /* void early CTS in a row, then also receives that did not send one */
    uint32_t fail_streak;

    struct rme_remote_window *held; /* of the peer's early CTS; NULL: none */
    int32_t tag;                    /* of its message */
    uint32_t from;                  /* handle of the peer's receive */
    struct rme_control answer;      /* FIN to the peer's last CANCEL of an early CTS */
    uint32_t cancelled;             /* handle of its receive */
    uint32_t sent;                  /* EAGER and RTS of expected messages sent, modulo 2^32 */
};

/* State of a peer. */
struct rme_peer_rndv {
    uint32_t rts_out[RME_STREAMS]; /* RTS held by the peer */
    uint32_t shape; /* segments of the peer's last receive by rendezvous; 0: unknown */
    struct rme_early_cts early;
};

/*
 * Returns the key of a handle, which is unique as long as any message of the peer can be in
 * flight: each side counts its handles up for each peer, and they repeat after 2^32 others.
 * The peer is responsible for its own ones; of equal ones the last one is found.
 */
static inline uint64_t rme_handle_key(const struct rme_peer *peer, uint32_t handle)
{
    return (uint64_t)peer->serial << 32 | handle;
}

/* Returns the local handle. */
static inline uint32_t rme_rndv_handle(const struct rme_op *op)
{
    return (uint32_t)op->rndv->own.key;
}

/* Returns the peer's handle; 0: unknown. */
static inline uint32_t rme_rndv_peer_handle(const struct rme_op *op)
{
    return (uint32_t)op->rndv->theirs.key;
}

/* Returns the first fragment of an op; NULL: none. */
static inline struct rme_frag *rme_frag_first(const struct rme_op *op)
{
    return list_first(&op->rndv->frags, struct rme_frag, link);
}

static inline void rme_rndv_advance(struct rme *rme, struct rme_op *op)
{
    const struct rme_rndv_stage *stage = &op->rndv->stages[op->state];

    if (stage->advance != NULL)
        stage->advance(rme, op);
}

/* ---- msg.c: messages, and the objects that they name ---- */

/* Sends RTS of an op, with its offer unless `frag` is NULL, in the buffer `tx`. */
void rme_rts_send(struct rme_op *op, struct rme_frag *frag, void *tx);
/* Sends CTS with these flags for an open fragment, in the buffer `tx`. */
void rme_cts_send(struct rme_frag *frag, uint8_t flags, int32_t tag, uint32_t to, void *tx);
/* Queues FIN or CANCEL of an op, in place of one that is still queued: FIN says more. */
void rme_ctrl_queue(struct rme_op *op, enum rme_wire_type type);
/* Takes FIN or CANCEL of an op out of the queue; false: none is queued.  The caller drops the
 * reference of the message to the op. */
bool rme_ctrl_unqueue(struct rme_op *op);
/* Writes the FIN that follows the last transfer of a window. */
void rme_fin_put(struct rme_peer *peer, struct rme_frag *frag, void *tx);
/* Sends FIN, the answer to CANCEL, for an operation of the peer that has no other end here;
 * false: no credit or buffer. */
bool rme_cancel_answer(struct rme_peer *peer, uint32_t to);

/* Finds an op of this peer by its own handle; NULL: none. */
struct rme_op *rme_rndv_find(struct rme_peer *peer, uint32_t handle);
/* Finds the send that this CTS or FIN answers; NULL: none. */
struct rme_op *rme_rndv_answered(struct rme_peer *peer, uint32_t handle);
/* Finds the op that CANCEL means; NULL: none. */
struct rme_op *rme_cancel_find(struct rme_peer *peer, const struct rme_wire_message *cancel);
/* Does FIN with success report the end of reads of what RTS of the op has offered? */
bool rme_fin_is_valid(const struct rme_op *op, const struct rme_wire_message *fin);
/* Records the window of a CTS.  Returns false after failing the link: the window is
 * invalid, or memory is short. */
bool rme_remote_window_add(struct rme_op *op, const struct rme_wire_message *cts);
/* Creates a remote window from a message.  NULL: no memory. */
struct rme_remote_window *rme_remote_window_new(const struct rme_wire_message *message);
/* Returns the window of the byte at this offset; NULL: not open yet. */
static inline struct rme_remote_window *rme_remote_window_at(const struct rme_op *op,
                                                             uint64_t at)
{
    struct rme_remote_window *window;

    list_for_each(window, &op->rndv->remote_windows, link)
        if (window->offset + window->length > at)
            break;
    return window;
}

/* ---- window.c ---- */

/* Returns the maximum of segments per fragment, limited by a message of this type in a buffer
 * of `size` bytes, and by the number of memory windows. */
uint32_t rme_mw_segments_max(const struct rme *rme, uint8_t type, size_t size);
/* Opens a fragment to the peer, before its message is sent; `early`: the fragment may stay open
 * long before its use (offer, early CTS).  -EAGAIN: no window is available. */
int rme_frag_bind(struct rme_peer *peer, struct rme_frag *frag, bool early);
/* Takes a buffer for the CTS of a fragment, and opens the fragment.  NULL: not now; unless
 * `early`, the peer is scheduled later, or its link has failed, which may free the fragment. */
void *rme_frag_tx(struct rme_frag *frag, bool early);
/* Opens a fragment and sends its CTS, queued in peer->control. */
bool rme_frag_send_window(struct rme_peer *peer, struct rme_control *control);
/* Close a fragment, or all fragments of an op, whether or not the peer has used them.  The op
 * ends when no fragment of it is open. */
void rme_frag_invalidate(struct rme *rme, struct rme_frag *frag);
void rme_frags_invalidate(struct rme *rme, struct rme_op *op);
/* Removes a fragment that is closed, or whose link is down, from the counts of windows. */
void rme_frag_uncount(struct rme_frag *frag);
/* Schedules the peers that wait for memory windows. */
void rme_mws_free(struct rme *rme);

/* ---- mem.c ---- */

/* Returns the maximum of bytes of a peer's transfers that are with the device. */
static inline uint64_t rme_xfer_limit(const struct rme_peer *peer)
{
    return peer->load.ops == 0 ? peer->rme->tuning.rdma_bytes
                               : peer->rme->tuning.rdma_bytes / 2;
}
/* Returns the maximum of bytes of a peer's next transfer, of a message of which `rest` bytes
 * are left. */
static inline uint64_t rme_xfer_max(const struct rme_peer *peer, uint64_t rest)
{
    bool alone = peer->rdma_ops == 0 && list_empty(&peer->rdma_queue);

    return alone && rest <= rme_xfer_limit(peer) ? rest : peer->rme->tuning.rdma_bytes / 2;
}
/* Returns how many bytes from `at` on one transfer can move; 0: no window. */
static inline uint64_t rme_remote_window_room(const struct rme_op *op, uint64_t at)
{
    const struct rme_remote_window *window = rme_remote_window_at(op, at);

    return window == NULL ? 0
                          : min_u64(window->offset + window->length - at,
                                    rme_xfer_max(op->peer, op->size - at));
}
/* Makes the next fragment of an op, up to two at a time [000 4.5.3].  1: made; 0: none is
 * needed, or none can be made now; -ENOMEM, -EFAULT: the op is to be stopped. */
int rme_frag_next(struct rme *rme, struct rme_op *op);
/* Frees a fragment that no local device uses.  A BUSY fragment is freed by its thread later, an
 * open one when it is closed. */
void rme_frag_free(struct rme *rme, struct rme_frag *frag);
/* Frees the fragments of an op that neither the peer nor a device uses. */
void rme_frags_drop(struct rme *rme, struct rme_op *op);
/* Ends the fragments of an op, none of which is in use from there on, at the offset `end`. */
void rme_frags_cut(struct rme *rme, struct rme_op *op, uint64_t end);
/* Copies received data from the fragment's block to the host's memory. */
void rme_frag_unpack(struct rme *rme, struct rme_frag *frag);
/* Returns true if the transfer of this fragment has to wait, because it needs the reserve block
 * and another fragment has the block.  The peer is scheduled when the block is free. */
bool rme_frag_waits(struct rme *rme, struct rme_frag *frag);
/* Gives a fragment that needs the reserve block the block, packed if the op sends.  Called when
 * its transfer is about to be posted and rme_frag_waits() is false. */
void rme_frag_posts(struct rme *rme, struct rme_frag *frag);
/* Registers or packs the first fragment of rme->rndv_state->work, without the lock.  Returns
 * its op with a reference.  *error: 0 or negative; 1: the fragment was freed meanwhile. */
struct rme_op *rme_frag_work(struct rme *rme, int *error);
/* Handles RME_EV_MW_INVALIDATED. */
void rme_frag_invalidated(struct rme *rme, struct rme_frag *frag);
/* Completes all pending closes when the link is down. */
void rme_frags_lost(struct rme_peer *peer);
int rme_reserve_open(struct rme *rme);
/* minimum of zone bytes for all reserve blocks */
#define RME_RESERVES_MIN (RME_RESERVES * RME_ZONE_MIN_BLOCK)
void rme_reserve_close(struct rme *rme);

/* ---- rndv.c: life ---- */

/* Makes an op a rendezvous, under a new handle.  False: no memory. */
bool rme_rndv_new(struct rme *rme, struct rme_op *op, const struct rme_rndv_stage *stages);
/* Frees op->rndv of an op without references to its memory, and sets it to NULL. */
void rme_rndv_free(struct rme *rme, struct rme_op *op);
extern const struct rme_op_ops rme_rndv_op_ops; /* for op/ */
void rme_rndv_set_peer_handle(struct rme_op *op, uint32_t handle);
/* Enters TARGET or MOVING, counts the op in the load of the side that moves, and advances. */
void rme_rndv_begin(struct rme *rme, struct rme_op *op, enum rme_op_state state,
                    const struct rme_rndv_stage *stages);
/* Unpacks and frees the fragments up to `done`, which the peer has moved; ends the op with the
 * last one. */
void rme_rndv_target_done(struct rme *rme, struct rme_op *op, uint64_t done);
/* Prepares the state of an engine. */
void rme_rndv_init(struct rme_rndv_state *state);

/*
 * Describes this side of a message to the planner: memory of `segments` segments, `ready` if it
 * is registered independently of the message (memory of zones).  rme_rndv_own_side() describes
 * the memory of an operation.
 */
struct rme_plan_side rme_rndv_side(const struct rme *rme, uint64_t segments, bool ready);
struct rme_plan_side rme_rndv_own_side(struct rme *rme, const struct rme_op *op);
/* Describes this engine and its device to the planner; the caller fills in the two sides. */
struct rme_plan_in rme_rndv_plan_in(const struct rme *rme, uint64_t bytes);
/* Likewise for a sender, with its own side; the receiver's is unknown. */
struct rme_plan_in rme_rndv_plan_in_send(const struct rme *rme, uint64_t bytes,
                                         struct rme_plan_side own);

/* ---- stop.c ---- */

enum rme_stop_cause {
    RME_STOP_HOST,   /* the host cancels */
    RME_STOP_MEMORY, /* memory was refused */
    RME_STOP_CANCEL, /* the peer cancels */
    RME_STOP_FIN,    /* the peer's end has failed */
    RME_STOP_LINK,   /* the link is given up */
    RME_STOP_CAUSES
};

/* Ends an op, or lets it end with this error, as the table in stop.c has it. */
void rme_op_stop(struct rme *rme, struct rme_op *op, enum rme_stop_cause cause, int error);
/* Ends an op, and the peer's end of it by FIN.  The peer has no transfer in flight and starts
 * none. */
void rme_rndv_finish(struct rme *rme, struct rme_op *op, int error);
rme_cancelled_fn rme_rndv_cancelled;
/* Returns true if a CANCEL has had no answer, or a transfer of a cancelled op has not ended,
 * for cancel_ms.  Otherwise sets peer->cancel_by to the next deadline. */
bool rme_cancel_overdue(struct rme_peer *peer, uint64_t now);
/* Prepares one fragment (rme_frag_work), and continues or stops its op. */
void rme_rndv_work(struct rme *rme);
/* Returns the first fragment of an op, which is made if there is none; NULL: after stopping the
 * op, or of an empty message. */
struct rme_frag *rme_rndv_first(struct rme *rme, struct rme_op *op);
/* Makes fragments of an op.  Returns the first one that is ready and not queued, which the
 * caller queues; NULL: none now, or after stopping the op. */
struct rme_frag *rme_rndv_prepare(struct rme *rme, struct rme_op *op);

/* ---- xfer.c ---- */

/* Moves the next fragments: of the side that moves, in state MOVING. */
void rme_xfers_advance(struct rme *rme, struct rme_op *op);
/* Returns true if the limits of the peer and of the process permit one more transfer of the
 * peer, of this size. */
bool rme_xfer_may(const struct rme_peer *peer, uint64_t bytes);
/* Posts the first queued transfer of a peer.  Returns false if the transfer waits for the
 * reserve block, for a limit, or for a credit or buffer. */
bool rme_xfer_progress(struct rme_peer *peer);
/* Removes a peer from the peers that wait for the limit of the process, and schedules the next
 * one. */
void rme_xfer_end_turn(struct rme_peer *peer);
void rme_xfer_done(struct rme *rme, struct rme_rdma_op *rdma_op);
/* Ends the ops whose data the peer has acknowledged, after a header or an immediate. */
void rme_xfers_end_acked(struct rme_peer *peer);
static inline void rme_xfers_acked(struct rme_peer *peer)
{
    if (!list_empty(&peer->moving))
        rme_xfers_end_acked(peer);
}
/* Completes or drops all posted transfers when the link is down. */
void rme_xfers_lost(struct rme_peer *peer);

/* ---- put.c, get.c ---- */

extern const struct rme_rndv_stage rme_put_stages[RME_OP_STATES], rme_get_stages[RME_OP_STATES];

/* Handles the first CTS of a send: the receiver wants it written. */
void rme_put_begin(struct rme_op *op, const struct rme_wire_message *cts);
/* Starts a receive that the sender shall write, or that reads what `rts` offers. */
void rme_put_receive(struct rme *rme, struct rme_op *op);
void rme_get_receive(struct rme *rme, struct rme_op *op, struct rme_message *rts);

/* ---- rts.c: starts, and answers ---- */

rme_arrived_fn rme_cts_arrived, rme_fin_arrived;
rme_start_fn rme_rndv_start;
/* Returns true if the start would not return RME_START_WAIT. */
bool rme_rndv_may_start(const struct rme_op *op);
/* Makes a send a rendezvous, and plans it with the receiver's side unknown: the use of its
 * memory, and whether the memory is offered.  False: no memory; the op has ended. */
bool rme_rndv_plan_send(struct rme *rme, struct rme_op *op);

/* Starts a receive (or pull) that an RTS has matched.  May fail the link. */
void rme_rndv_receive(struct rme *rme, struct rme_op *op, struct rme_message *rts);
/* Ends a receive that is too small for the eager message of op->size bytes at `place`, once FIN
 * has reported that to the sender.  May fail the link. */
void rme_rndv_refuse(struct rme *rme, struct rme_op *op, uint32_t place);
/* The peer reports that the first window of a receive is written, by an immediate or by FIN,
 * which names the window's end.  False: there is no such window. */
bool rme_rndv_written(struct rme_peer *peer, uint32_t handle, uint64_t end);

/* ---- early_cts.c: the receiver ---- */

void rme_early_cts_init(struct rme_early_cts *early);
/* Lets a receive, the oldest of its tag, open its memory, if possible, after a receive was
 * posted.  `ring_max`: bytes of the largest message for the peer's eager ring; 0: none. */
void rme_early_cts_try(struct rme *rme, struct rme_op *op, uint64_t ring_max);
/* Voids the early CTS, because an EAGER or RTS has met the receive, which is POSTED again. */
void rme_early_cts_void(struct rme *rme, struct rme_op *op);

/* ---- early_cts.c: the sender ---- */

rme_arrived_fn rme_early_cts_arrived;
rme_start_fn rme_early_cts_start;
rme_cancelled_fn rme_early_cts_cancelled;

/* Drops the held window, if any. */
static inline void rme_early_cts_drop(struct rme_early_cts *early)
{
    free(early->held);
    early->held = NULL;
}
/* Notes an EAGER or RTS, which voids the held window for its tag. */
static inline void rme_early_cts_message_sent(struct rme_early_cts *early, int32_t tag)
{
    early->sent++;
    if (early->held != NULL && early->tag == tag)
        rme_early_cts_drop(early);
}
/* Is a window held for an expected message of this tag and size? */
static inline bool rme_early_cts_is_for(const struct rme_early_cts *early, int32_t tag,
                                        uint64_t size)
{
    return early->held != NULL && early->tag == tag && early->held->length == size;
}

#endif
