/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages that are written into a delegated buffer of the receiver.  See fast.c. */
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

/* The payload of an unmatched message that may stay in the delegated buffer. */
struct rme_early {
    struct rme_node link;  /* in the peer's rme_fast.early */
    uint32_t number, bulk; /* the peer's rme_credit.taken and bulk before this message */
    const void *place;     /* the payload in the delegated buffer; NULL: not there (any more) */
    void *aside;           /* its copy, owned by the message; NULL: none */
};

/* State of a peer. */
struct rme_fast {
    /* own area, granted to the peer or still to be granted; NULL: none */
    struct rme_fast_area *given;
    struct rme_fast_hold *held; /* the peer's area, granted to this side; NULL: none */
    uint32_t wants;             /* RTS of the peer that would have fitted an area */
    /* times in a row that making an area failed, or an area came back unused */
    uint8_t in_vain;
    /* messages that stay in `given` (struct rme_early), the oldest first */
    struct rme_node early;
    struct rme_control release; /* RELEASE, while queued */
    /* holds that are released but still in use by the local device */
    struct rme_node leaving;
};

/* A task that runs without the engine's lock: memory is prepared, or freed. */
struct rme_fast_job {
    struct rme_node link;
    /* called with the lock, returns with it, and drops it meanwhile */
    void (*run)(struct rme *rme, struct rme_fast_job *job);
};

/* State of the engine. */
struct rme_fast_pool {
    struct rme_node areas;   /* granted, the least recently used first */
    struct rme_node lent;    /* likewise, in the order of their grants */
    struct rme_node waiting; /* areas without memory, in the order of their requests */
    struct rme_node jobs;    /* struct rme_fast_job */
    uint64_t bytes;          /* of all areas with memory */
    uint64_t stages;         /* of all staging buffers */
    uint32_t leaving;        /* areas withdrawn and not yet freed */
    uint32_t asked_at;       /* `clock` at the last withdrawal */
    /* messages in areas, grants, and RTS that would have fitted one, modulo 2^32 */
    uint32_t clock;
    uint64_t looked_at;    /* time of the last search for idle areas, ms */
    uint32_t looked_clock; /* `clock` at that time */
    /* peers' areas with a staging buffer here: the least recently used first, and in the order
     * of their grants */
    struct rme_node holds, granted;
    /* messages to peers that were written to an area, or would have fitted one, modulo 2^32 */
    uint32_t sent;
};

/* ---- fast.c: the sender ---- */

/* Can the message be written into the peer's area now, and does the planner choose that?  Does
 * not check credits. */
bool rme_fast_fits(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag);
/* Likewise, and is the payload copied, so that its memory is the host's again at once? */
bool rme_fast_copies(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                     uint32_t nseg, uint64_t size, int32_t tag);
/* Can a message in `pieces` pieces be gathered?  The header is one more piece.  `zoned`: a
 * single piece in a zone; other memory has to stay pinned until the write is complete. */
static inline bool rme_fast_gathers(const struct rme *rme, uint64_t pieces, bool zoned)
{
    return !rme->caps->reports_apart && pieces < RME_FAST_SEGS && pieces < rme->caps->max_sge &&
           (zoned || !rme->pin.on_demand);
}
/* Ends the gathering sends that the peer has consumed, after the count of consumed messages of
 * a peer with a delegated buffer has been updated. */
void rme_fast_told(struct rme_peer *peer);
/* Writes the message from a copy: its memory is the host's again.  False: no credit. */
bool rme_fast_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag);
/* Handles the completion of a write, or of the RELEASE behind it: a transfer whose owner is
 * NULL. */
void rme_fast_moved(struct rme_peer *peer, struct rme_xfer *xfer);

/* Bytes of the delegated buffer that the peer has granted, as far as staged; 0: none. */
uint64_t rme_fast_held(const struct rme_peer *peer);

/* ---- fast_area.c: the receiver ---- */

/* Largest payload of such a message, before credits, windows and room are considered. */
uint64_t rme_fast_most(const struct rme *rme, enum rme_stream stream);
/* Bytes granted to the peer; 0: none. */
uint64_t rme_fast_given(const struct rme_peer *peer);

/* Notes an RTS of `size` bytes: the peer is granted an area if the message would have fitted
 * one. */
void rme_fast_wanted(struct rme_peer *peer, uint64_t size);
/* Does this immediate name a message in the area granted to the peer? */
bool rme_fast_named(const struct rme_peer *peer, uint32_t imm);
/* Decodes that message; its payload stays in place.  -EPROTO. */
int rme_fast_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message);
/* Is the payload still in the area?  Not for a message deferred until after RELEASE. */
bool rme_fast_there(const struct rme_peer *peer, const struct rme_wire_message *message);
/* Notes that the message has been taken: its place returns to the peer with its credit. */
void rme_fast_took(struct rme_peer *peer, const struct rme_wire_message *message);
/* Handles RME_EV_CLOSED.  True: the event was for an area of this peer. */
bool rme_fast_closed(struct rme_peer *peer, const void *closed);
/* Hook `left` of the protocol's row, for the owner's part. */
void rme_fast_area_left(struct rme_peer *peer);
/* Takes the peer's area back; no payload stays in it. */
void rme_fast_area_released(struct rme_peer *peer);

/* ---- fast_early.c: the receiver, messages that precede their receives ---- */

/* May the payload of a message that was just decoded stay in place? */
bool rme_fast_may_stay(const struct rme_peer *peer, const struct rme_wire_message *arrived);
/* Leaves the payload of the message in place. */
void rme_fast_stay(struct rme_message *message, const void *place);
/* Ends the stay of the payload. */
void rme_fast_leave(struct rme_message *message);
/* Copies payloads out of the area, the oldest first: those above the bounds, or all.  Called
 * after a message or immediate of the peer was counted.  May fail the link. */
void rme_fast_bound(struct rme_peer *peer, bool all);
/* Handles RELEASE. */
void rme_fast_released(struct rme_peer *peer, const struct rme_wire_message *message);

/* Withdraws idle areas; `now` is rme_now(). */
void rme_fast_look(struct rme *rme, uint64_t now);
/* Time by which rme_fast_look() is due; UINT64_MAX: no area is granted or idle ones stay. */
uint64_t rme_fast_look_at(const struct rme *rme);

/* ---- Both ---- */

/* Frees the state of a link; no device works for the link any more. */
void rme_fast_area_down(struct rme_peer *peer);
/* Runs the first job of the pool. */
void rme_fast_work(struct rme *rme);

/* Immediates from here on name places in areas; no operation has such a name. */
#define RME_FAST_FIRST_NAME 0xffff0000u

#endif
