/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The planner decides the protocol and the use of memory of a message: a pure function that
 * compares sizes, shapes and loads with a few limits in bytes (struct rme_limits of the fabric,
 * options, and the constants below).  The flow chart of [004 5.1] decides on the side that
 * posts RDMA.
 *
 * Calls for a message:
 * - by its sender, which compares the size with the limits of the link (rme_plan_copied(), the
 *   first step of rme_plan(), inline): eager, ring, or rendezvous;
 * - by the sender of a rendezvous (the receiver's side is unknown): the use of its own memory,
 *   and the offer;
 * - by a receiver whose receive is posted first: early CTS;
 * - by the receiver that has matched a rendezvous: read or write, and the use of its own
 *   memory.
 * No other code of the engine takes these decisions, and rme_plan_explain() shows them by the
 * same calls.  Bounds of the engine (credits, windows, room in a ring, offered bounce buffers,
 * transfers in flight) are not decisions of the planner, and are described where they apply: a
 * message without room is offered to the next protocol (proto/protocols.c).
 */
#ifndef RME_PLAN_H
#define RME_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fabric.h"

enum rme_proto {
    RME_PROTO_EAGER,
    RME_PROTO_RING, /* written by the sender into its ring */
    RME_PROTO_RNDV_WRITE,
    RME_PROTO_RNDV_READ,
    RME_PROTO_COUNT
};
enum rme_prefer { RME_PREFER_AUTO, RME_PREFER_WRITE, RME_PREFER_READ }; /* option `rndv` */
/* Option `list_mode`: treatment of memory in several segments [001 4.1]. */
enum rme_lists {
    RME_LISTS_AUTO, /* limits decide */
    RME_LISTS_PACK, /* copied */
    RME_LISTS_GROUP /* in place, registered in groups */
};

#define RME_PACK_FRAG (256u << 10) /* bytes of the largest fragment that is copied */
#define RME_HEAVY_OPS 64u          /* a server with more operations is under heavy load */
/* bytes of the smallest receive that may send an early CTS */
#define RME_EARLY_CTS_MIN (16u << 10)

/* Large messages that one process has to move, from the decision until their end. */
struct rme_load {
    uint32_t ops;
    uint64_t bytes;
};

/* One side of a transfer. */
struct rme_plan_side {
    /* number used by the device, unless packed; 0: unknown; at a sender before RTS, the
     * receiver's of the message before */
    uint64_t segments;
    bool ready; /* the memory is registered already */
    /* a new registration stays cached for the next message */
    bool kept;
    bool server;
    struct rme_load load; /* that the process has to move by RDMA */
};

struct rme_plan_in {
    uint64_t bytes;
    struct rme_plan_side send, recv;
    uint64_t eager_max; /* 0: not asked for, because the message is not copied */
    uint64_t ring_max;  /* largest message for the ring; 0: none */
    uint64_t frag_size; /* option: bytes of a fragment */
    /* option: smaller messages of one segment are copied even if their registration would be
     * cached; 0: the limit of one use decides */
    uint64_t pack_threshold;
    enum rme_prefer prefer;
    enum rme_lists lists;
    uint32_t max_sge, max_read_sge; /* maximal number of local segments of a request */
    /* the receiver's device can read, and the sender's memory is, or may be, offered */
    bool has_read;
    bool slow_read;       /* reads are much slower than writes */
    bool nothing_to_read; /* RTS has offered no memory */
    bool has_early_cts;   /* a receiver may open its memory before RTS */
    bool early;           /* the plan of a receiver before RTS */
    bool sender;          /* the plan of a sender before RTS */
    bool busy;            /* the receiver holds other RTS of the sender */
    /* each segment open to the peer is bound and invalidated by requests of its own */
    bool opens;
    bool each; /* without windows: each segment open to the peer is registered for that */
    const struct rme_limits *limits;
};

struct rme_plan {
    enum rme_proto proto;
    bool send_pack, recv_pack; /* copy through a registered bounce buffer on that side */
    bool offer;                /* RTS offers the sender's memory for reads */
    /* a receiver whose receive is posted first opens its memory for writes */
    bool early_cts;
    uint64_t requests; /* number of RDMA work requests (an estimate if a side is unknown) */
    const char *why;   /* reason for the protocol, a constant string */
    const char *why_send, *why_recv; /* reasons for the use of each side's memory */
};

/* Sizes that limits and openings give a process, once. */
struct rme_plan_sizes {
    uint64_t ring;   /* largest message for a ring, wherever it lies */
    uint64_t cached; /* smallest one whose memory stays registered */
};
struct rme_plan_sizes rme_plan_sizes(const struct rme_plan_in *in);

/* Largest payload for a ring: `anywhere`, rme_plan_sizes.ring, wherever it lies; or more if a
 * rendezvous would copy its `segments`, memory that is not registered already; 0: not known. */
uint64_t rme_plan_ring_max(const struct rme_limits *limits, uint64_t anywhere,
                           uint64_t pack_threshold, uint64_t segments);

/* Largest eager payload of a link whose buffers have `room` bytes; `option`: eager_max. */
static inline uint64_t rme_plan_eager_max(uint64_t room, uint64_t option)
{
    return room < option ? room : option;
}

/* First step of rme_plan(): EAGER or RING for a message that is copied through buffers of the
 * engine on both sides, else RNDV_WRITE for a rendezvous of either kind. */
static inline enum rme_proto rme_plan_copied(uint64_t bytes, uint64_t eager_max,
                                             uint64_t ring_max)
{
    if (bytes <= eager_max)
        return RME_PROTO_EAGER;
    return bytes <= ring_max ? RME_PROTO_RING : RME_PROTO_RNDV_WRITE;
}

/* Decides on one message.  Pure: no state, no lock, no failure. */
void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan);

/* Assumptions of a receiver about the unknown sender of a message. */
static inline struct rme_plan_side rme_plan_unseen_sender(bool server, struct rme_load load)
{
    return (struct rme_plan_side){.segments = 1, .ready = true, .server = server, .load = load};
}

/* Largest offer whose memory is registered as a whole and stays cached, in fragments.  4 MiB
 * with loads that decide, 8 in flight over the software HCA: 2.0 times the bandwidth of writes
 * alone. */
#define RME_OFFERED_FRAGS 16

/* Bytes of a fragment of memory that has to be prepared; `frag_size` is the option.  Registered
 * memory is one fragment. */
static inline uint64_t rme_plan_frag_size(uint64_t frag_size, bool pack)
{
    return pack && frag_size > RME_PACK_FRAG ? RME_PACK_FRAG : frag_size;
}

extern const char *const rme_proto_name[RME_PROTO_COUNT];

/* Limits of an adapter: those of a fabric that has no others. */
extern const struct rme_limits rme_limits_adapter;

/*
 * Prints the limits, and the planner's answers for the two ends of a message.  `send` is
 * the input of the sender; `recv` is the input of the receiver that has matched the message,
 * where this function sets send.segments and send.ready to the values that RTS will carry.
 */
void rme_plan_explain(FILE *out, const struct rme_plan_in *send,
                      const struct rme_plan_in *recv);

#endif
