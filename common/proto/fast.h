/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages that are written into memory which the receiver has delegated to the sender.  fast.c
 * tells how. */
#ifndef RME_FAST_H
#define RME_FAST_H

#include <stdbool.h>
#include <stdint.h>

#include "op/operations.h"

struct rme_fast_area;
struct rme_fast_hold;
struct rme_message;

extern const struct rme_protocol rme_protocol_fast;

#define RME_FAST_SEGS 8u /* of one write: its header, and the host's memory */

/* The payload of a message that came before its receive, and stays in lent memory. */
struct rme_early {
    struct rme_node link;  /* in the peer's rme_fast.early */
    uint32_t number, bulk; /* what the peer's rme_credit.taken and bulk were before it */
    const void *place;     /* there; NULL: it is not, or not any more */
    void *aside;           /* its copy: the message's; NULL: there is none */
};

/* What a peer has of it. */
struct rme_fast {
    struct rme_fast_area *given; /* ours, that the peer may write into, or waits for */
    struct rme_fast_hold *held;  /* the peer's, that we may write into; NULL: none */
    uint32_t wants;              /* RTS of the peer that could have been written there */
    uint8_t in_vain; /* times in a row that one could not be made, or came back unused */
    struct rme_node
        early; /* messages that stay in `given` (struct rme_early), the oldest first */
    struct rme_control release; /* RELEASE, when it is to be said */
    struct rme_node leaving;    /* what we held and have released, but our device uses */
};

/* What is done without the engine's lock: memory that is made ready, or given back. */
struct rme_fast_job {
    struct rme_node link;
    /* called with the lock, and returns with it; it is released meanwhile */
    void (*run)(struct rme *rme, struct rme_fast_job *job);
};

/* What the process has of it. */
struct rme_fast_pool {
    struct rme_node areas;   /* granted, the least recently used first */
    struct rme_node lent;    /* likewise, in the order in which they were granted */
    struct rme_node waiting; /* areas that are still to be made, in order */
    struct rme_node jobs;    /* struct rme_fast_job */
    uint64_t bytes;          /* of all areas that are made */
    uint64_t stages;         /* bytes of all stages */
    uint32_t leaving;        /* areas that were asked for again and are not back */
    uint32_t asked_at;       /* the clock, when the last of them was */
    uint32_t clock;          /* such messages, and RTS that could have been, modulo 2^32 */
    uint64_t looked_at;      /* when idle areas were looked for, ms */
    uint32_t looked_clock;   /* and the clock then */
    /* what we hold of peers and have a stage for: the least recently used first, and in the
     * order in which they were granted */
    struct rme_node holds, granted;
    uint32_t sent; /* messages to peers that were such, or would have been, modulo 2^32 */
};

/* ---- fast.c: the sender ---- */

/* May this be written into the peer's memory now, and does the planner want it?  Credits are
 * another matter. */
bool rme_fast_fits(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag);
/* Likewise, and shall it be copied, so that its memory is the host's again at once? */
bool rme_fast_copies(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                     uint32_t nseg, uint64_t size, int32_t tag);
/* May a message in so many pieces be written from where it is?  The header is one more.
 * `zoned`: it is one piece, in a zone; other memory has to stay pinned until it is written. */
static inline bool rme_fast_gathers(const struct rme *rme, uint64_t pieces, bool zoned)
{
    return !rme->caps->reports_apart && pieces < RME_FAST_SEGS && pieces < rme->caps->max_sge &&
           (zoned || !rme->pin.on_demand);
}
/* The peer, which has lent us memory, has said what it has taken: sends of which it is shown
 * are over. */
void rme_fast_told(struct rme_peer *peer);
/* Writes it from a copy: its memory is the host's again.  False: no credit. */
bool rme_fast_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag);
/* Such a write, or RELEASE behind them, is complete: a transfer whose owner is NULL. */
void rme_fast_moved(struct rme_peer *peer, struct rme_xfer *xfer);

/* Bytes that the peer has lent us. */
uint64_t rme_fast_held(const struct rme_peer *peer);

/* ---- fast_area.c: the receiver ---- */

/* Largest payload, if everything else allows it. */
uint64_t rme_fast_most(const struct rme *rme, enum rme_stream stream);
/* Bytes that we have lent it. */
uint64_t rme_fast_given(const struct rme_peer *peer);

/* An RTS of so many bytes came: the peer is granted memory if it would use it. */
void rme_fast_wanted(struct rme_peer *peer, uint64_t size);
/* Is this immediate one of a message in memory that the peer was granted? */
bool rme_fast_named(const struct rme_peer *peer, uint32_t imm);
/* That message, decoded; its payload stays where it is.  -EPROTO. */
int rme_fast_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message);
/* Is it still there?  What had to wait behind RELEASE is not. */
bool rme_fast_there(const struct rme_peer *peer, const struct rme_wire_message *message);
/* It has been taken: the memory that it had goes back to the peer with its credit. */
void rme_fast_took(struct rme_peer *peer, const struct rme_wire_message *message);
/* RME_EV_CLOSED.  True: it was an area of this peer. */
bool rme_fast_closed(struct rme_peer *peer, const void *closed);
/* The owner's part of the protocol's row. */
void rme_fast_area_left(struct rme_peer *peer);
/* The peer has given its area back, and nothing stays in it. */
void rme_fast_area_released(struct rme_peer *peer);

/* ---- fast_early.c: likewise, messages that come before their receives ---- */

/* May the payload of a message that was just decoded stay where it is? */
bool rme_fast_may_stay(const struct rme_peer *peer, const struct rme_wire_message *arrived);
/* It does. */
void rme_fast_stay(struct rme_message *message, const void *place);
/* It is not needed there any more. */
void rme_fast_leave(struct rme_message *message);
/* What has just been taken of the peer counts: more than may stay there, or all, is copied
 * aside.  That may give the link up. */
void rme_fast_bound(struct rme_peer *peer, bool all);
/* RELEASE. */
void rme_fast_released(struct rme_peer *peer, const struct rme_wire_message *message);

/* Areas that nobody writes to are asked for again; `now` is rme_now(). */
void rme_fast_look(struct rme *rme, uint64_t now);
/* When that is to be done at the latest, UINT64_MAX: nothing is lent. */
uint64_t rme_fast_look_at(const struct rme *rme);

/* ---- Both ---- */

/* No device works for the link any more. */
void rme_fast_area_down(struct rme_peer *peer);
/* Does the first of the jobs. */
void rme_fast_work(struct rme *rme);

/* Names of places in areas, in immediates: no operation has one of them. */
#define RME_FAST_FIRST_NAME 0xffff0000u

#endif
