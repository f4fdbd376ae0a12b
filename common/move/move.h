/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Moving the data of one message by RDMA: memory of ours as a device can use it (unit.c), what
 * of it is open to the peer (expose.c), what of the peer's is open to us (opening.c), and the
 * transfers between them (move.c).  Which message, and who moves it, is the protocols'
 * business: they hear of what has come about through the op's row (op/protocol.h).
 */
#ifndef RME_MOVE_H
#define RME_MOVE_H

#include "base/list.h"
#include "base/name.h"
#include "fabric.h"
#include "memory/mreg.h"
#include "op/operations.h"
#include "transport/peer.h"
#include "wire/wire.h"

/* How memory is made ready: each way is tried when the one before was refused. */
enum rme_memory {
    RME_MEMORY_DIRECT,  /* the device reads or writes the host's memory */
    RME_MEMORY_PACK,    /* a block of a zone in between, and a copy */
    RME_MEMORY_RESERVE, /* the engine's last block of its class, in turn */
};

/* Blocks kept for the case that no memory can be registered.  See unit.c for why there are two
 * classes. */
enum rme_reserve_class { RME_RESERVE_MOVE, RME_RESERVE_EXPOSE, RME_RESERVES };

struct rme_reserve {
    void *block;
    bool has_shown;          /* there are keys for peers */
    struct rme_mr shown[2];  /* of the block alone, to be read, to be written by a peer */
    struct rme_unit *user;   /* who has it */
    struct rme_node waiting; /* units in turn */
};

/* id, name, what it means */
#define RME_UNIT_STATES(X)                                                                     \
    X(WORK, "work", "waits for a thread that registers or packs")                              \
    X(BUSY, "busy", "being registered or packed by a thread, without the lock")                \
    X(TURN, "turn", "waits for the reserve block that is opened to peers")                     \
    X(READY, "ready", "the device may use it")

enum rme_unit_state {
#define RME_UNIT_ENUM(id, name, text) RME_UNIT_##id,
    RME_UNIT_STATES(RME_UNIT_ENUM)
#undef RME_UNIT_ENUM
};

/* A range of a message, as memory of ours that a device can use. */
struct rme_unit {
    struct rme_node link;  /* in rndv->units, in order of offset; or kept for reuse */
    struct rme_node queue; /* in rme->work or a reserve's waiting ring */
    struct rme_op *op;     /* NULL: given up while BUSY */
    uint8_t state;
    bool exposed; /* its CTS or OFFER is queued or gone */
    bool told;    /* gone: the peer may use it */
    bool gone;    /* freed, but what is open of it is being closed */
    uint8_t memory;
    unsigned access;
    uint64_t offset, length;
    uint64_t moved; /* bytes whose transfers are complete */
    struct rme_control control;
    void *block;                /* PACK, RESERVE */
    uint64_t ration;            /* PACK: of what its peer has of the zones (ration.c) */
    struct rme_mreg_hold *hold; /* DIRECT */
    struct rme_mseg *mseg;      /* what the device may use: the block, or the host's segments */
    uint32_t nmseg, mseg_room;
    struct rme_mseg own_mseg[4];
    struct rme_range *range; /* what of mseg is open to the peer, one for each; see expose.c */
    uint32_t nrange;         /* 0: nothing */
    uint32_t range_room;
    uint32_t offered; /* of nrange, in rme->offered */
    struct rme_range own_range[2];
    struct rme_node closing; /* in peer->closing */
};

/* Memory of the peer that is open to us. */
struct rme_opening {
    struct rme_node link; /* in rndv->openings */
    uint64_t offset, length;
    uint32_t nsegment;
    struct rme_wire_segment segment[];
};

/* One transfer: what a unit and an opening have in common. */
struct rme_move {
    struct rme_node link; /* in peer->xferq, peer->moving or kept for reuse */
    struct rme_op *op;
    struct rme_unit *unit;
    struct rme_xfer xfer;
    bool posted;   /* the fabric has it */
    bool missed;   /* it had its turn, and its peer no room or credit: none passes it */
    bool reported; /* the report behind it is posted, too */
    /* the peer cannot have taken it before it has taken so many (rme_credit.told) */
    uint32_t report;
    uint64_t end; /* offset behind it */
    struct rme_piece *piece;
    struct rme_lseg *seg;
    uint32_t piece_room, seg_room;
    struct rme_piece own_piece[2];
    struct rme_lseg own_seg[4];
};

struct rme_rndv {
    struct rme_node link; /* kept for reuse */
    struct rme_op *op;
    struct rme_control control;
    uint8_t say;            /* RME_SAY_*: what waits to be said */
    uint8_t memory;         /* how units are made from now on */
    bool reads;             /* the receiver reads, else the sender writes */
    bool whole;             /* it is one transfer, see rme_move_whole */
    bool invited;           /* to be written into an invitation: its report is ordered */
    bool offers;            /* RTS shall offer memory */
    bool refused;           /* its memory could not be registered */
    bool rts_out;           /* RTS has gone; it counts in peer->rts_out */
    bool introduced;        /* the peer knows our handle */
    bool stop;              /* given up by us: start nothing more */
    bool peer_stop;         /* given up by the peer: likewise, and acknowledge */
    int stop_error;         /* how the op ends when it was given up */
    int fin_error;          /* what FIN says */
    struct rme_name own;    /* what we call it on the wire */
    struct rme_name theirs; /* set once the op at the other side is known */
    uint32_t max_segs;      /* segments of a unit at most */
    uint64_t most;          /* bytes of a unit in a block of a zone at most */
    unsigned access;        /* of units made from now on */
    uint64_t prepared;      /* units exist up to here */
    uint64_t at;            /* moves, or what the peer was told, up to here */
    uint64_t done;          /* bytes in place */
    uint64_t opened;        /* openings exist up to here */
    uint32_t nunit;
    uint32_t moves;      /* outstanding or queued */
    uint64_t move_bytes; /* and their bytes */
    uint64_t cancel_by;
    struct rme_load *load; /* what it counts in; NULL: nothing */
    struct rme_node units;
    struct rme_node openings;
};

struct rme_mover {
    struct rme_table names;              /* struct rme_name */
    struct rme_node work;                /* units that want a thread without the lock */
    struct rme_pool units, moves, rndvs; /* for reuse */
    struct rme_reserve reserve[RME_RESERVES];
    size_t reserve_size;
    uint64_t packed;  /* bytes of zones that all peers have (ration.c) */
    uint32_t packers; /* peers that have some */
};

/* What the peer calls its end; 0: not known yet. */
static inline uint32_t rme_rndv_peer_handle(const struct rme_rndv *r)
{
    return r->theirs.set ? rme_name_number(&r->theirs) : 0;
}

/* ---- opening.c ---- */

/* Takes note of memory that the peer opened.  False: the link is given up, as it is not where
 * it should be, or for want of memory. */
bool rme_rndv_open(struct rme_op *op, const struct rme_wire_message *message);
/* The same as an object; NULL: no memory. */
struct rme_opening *rme_opening_new(const struct rme_wire_message *message);

/* ---- ration.c ---- */

/* The next unit of the peer would be so long, in a block of a zone: how long it may be, and 0:
 * there is no block for it. */
uint64_t rme_ration(const struct rme_peer *peer, uint64_t length);
/* Says how a new unit is made, if it is not direct, and how long it is, of `rest` bytes at
 * most.  False: not now. */
bool rme_ration_unit(const struct rme_op *op, struct rme_unit *unit, uint64_t rest);
/* There is no block of this length: units of the op are shorter from now on.  False: they
 * cannot be. */
bool rme_ration_cut(struct rme_op *op, uint64_t length);
/* The unit, which has its length, takes a block; and has it no longer, if it had one. */
void rme_ration_take(struct rme_peer *peer, struct rme_unit *unit);
void rme_ration_give(struct rme_peer *peer, struct rme_unit *unit);

/* ---- unit.c ---- */

/* Makes the next unit of an op, up to two at a time.  False: there is none to make now, or no
 * memory (the op is stopped). */
bool rme_unit_next(struct rme *rme, struct rme_op *op);
/* Forgets a unit that no device of ours uses; one that is BUSY is only given up, one that is
 * open is closed first. */
void rme_unit_free(struct rme *rme, struct rme_unit *unit);
/* Copies out of the block what was received into it. */
void rme_unit_unpack(struct rme *rme, struct rme_unit *unit);
/* Is the reserve block in use, by another one, that a transfer of this unit needs, or one of
 * its op before it?  The peer is kicked when it is not any more. */
bool rme_unit_waits(struct rme *rme, const struct rme_unit *unit);
/* A transfer of it is about to be posted, and it need not wait: from now on it has the block
 * that it needs, with the data of a send. */
void rme_unit_posts(struct rme *rme, struct rme_unit *unit);
/* Registers the first unit of rme->work, with the lock released meanwhile. */
void rme_unit_work(struct rme *rme);
/* RME_EV_CLOSED. */
void rme_unit_closed(struct rme *rme, struct rme_unit *unit);
/* Windows may be free again: those that wait for them try. */
void rme_windows_free(struct rme *rme);
/* The link is down: what was being closed is closed. */
void rme_units_lost(struct rme_peer *peer);
void rme_unit_clear(struct rme *rme);
int rme_reserve_open(struct rme *rme);
/* What all its blocks have at the least, in bytes of zones. */
#define RME_RESERVES_LEAST (RME_RESERVES * RME_ZONE_MIN_BLOCK)
void rme_reserve_close(struct rme *rme);

/* ---- expose.c ---- */

/* Segments of a unit at most that a message of this type, in a buffer of `size` bytes, can tell
 * of, and that can be open. */
uint32_t rme_exposed_max(const struct rme *rme, uint8_t type, size_t size);
/* Opens a unit to the peer, before it is told.  False: it has to wait, and the peer is kicked;
 * or the link has failed. */
bool rme_unit_open(struct rme_peer *peer, struct rme_unit *unit);
/* The same for what may be open long before anybody uses it.  False: it cannot be had now. */
bool rme_unit_offer(struct rme_peer *peer, struct rme_unit *unit);
/* A CTS or OFFER that waits in peer->control: `control` of a unit. */
extern const struct rme_control_kind rme_control_window;
/* The peer has done with a unit, or with all units of an op, or shall have: its op ends when
 * nothing of it is open. */
void rme_unit_close(struct rme *rme, struct rme_unit *unit);
void rme_units_close(struct rme *rme, struct rme_op *op);
/* The op has ended but for that: what the peer says from now on waits for it if it is a
 * send. */
void rme_unit_shutting(struct rme_op *op);
/* It is open no longer, or its link is not there any more. */
void rme_unit_forget(struct rme *rme, struct rme_unit *unit);
/* Puts the segments of a unit, and what opens them, into a message. */
void rme_unit_describe(const struct rme_peer *peer, const struct rme_unit *unit, void *tx,
                       uint8_t type);

/* ---- move.c ---- */

/* Would a message of this size be posted as one transfer if nothing else moved? */
bool rme_move_whole(const struct rme *rme, uint64_t bytes);
/* May the device have so many bytes besides what it has of this peer? */
bool rme_move_room(const struct rme_peer *peer, uint64_t bytes);
/* May the device have one more of this peer besides what it has of all? */
bool rme_move_has_turn(const struct rme_peer *peer);
/* Bytes of one transfer of the op at most. */
static inline uint64_t rme_move_most(const struct rme *rme, const struct rme_op *op)
{
    return op->rndv->whole ? op->size : rme->tuning.xfer_bytes / 2;
}
/* Starts transfers that units and openings allow, as many as the device may have. */
void rme_move_start(struct rme *rme, struct rme_op *op);
/* Posts the first waiting transfer of a peer that has its memory; false: throttled, or no
 * credit or buffer, or there is none. */
bool rme_move_push(struct rme_peer *peer);
/*
 * If the process's throttle has room, the next peer that waits for it is kicked.  Every push
 * calls it in the end, so a peer that cannot use its turn passes it on.
 */
void rme_move_turn(struct rme *rme);
void rme_move_done(struct rme *rme, struct rme_xfer *xfer);
/* The peer of a transfer that the fabric has. */
struct rme_peer *rme_move_peer(const struct rme_xfer *xfer);
void rme_move_clear(struct rme *rme);
/* Forgets a transfer: one not posted, or any of a link that is down. */
void rme_move_free(struct rme *rme, struct rme_move *move);

#endif
