/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The planner: how one message travels.  A pure function of sizes, shapes, loads and a device's
 * cost table; the flow chart of [004 5.1] decides who does the RDMA, the costs decide the
 * rest.  Times are nanoseconds.
 *
 * It is asked when a link begins (what goes eagerly), by the sender of a message that does not
 * (the receiver's side unknown: its own memory, and whether it offers that), by a receiver that
 * is first (whether it invites), and by the receiver that has matched a rendezvous (read or
 * write, and its own memory).  Nothing else in the engine takes any of these decisions, and
 * rme_plan_explain shows them by the same calls.  What the engine bounds (copies that wait with
 * an offer, windows, transfers under way) is no decision of this kind: it is told where it is
 * done.
 */
#ifndef RME_PLAN_H
#define RME_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct rme_caps;
struct rme_fabric;
struct rme_fabric_ops;
struct rme_mreg;

/* What things cost on this device and machine. */
struct rme_costs {
    double copy_warm;  /* the processor copies a byte that it has used a moment ago */
    double copy_cold;  /* or that it has to fetch from memory */
    double copy_piece; /* overhead of a piece copied */
    double reg_call;   /* registration + deregistration: overhead (b of T = a*p + b) */
    double reg_page;   /* and per page (a) */
    double message;    /* a small message from post to arrival, its request included */
    double post;       /* one RDMA work request, */
    double read;       /* and how much more if it reads */
    double sge;        /* one more local segment in it */
    double find;       /* to find that memory is registered, and still the same */
    double find_piece; /* and for each further segment of a list */
    double hold;       /* to hold it, and its operation, until a request is complete */
};

enum rme_proto {
    RME_PROTO_EAGER,
    RME_PROTO_FAST, /* written by the sender into memory that the receiver has lent it */
    RME_PROTO_RNDV_WRITE,
    RME_PROTO_RNDV_READ,
    RME_PROTO_COUNT
};
enum rme_prefer { RME_PREFER_AUTO, RME_PREFER_WRITE, RME_PREFER_READ }; /* the option `rndv` */
/* The option `lists`: what becomes of memory in several segments [001 4.1]. */
enum rme_lists {
    RME_LISTS_AUTO,   /* the costs say; what is gathered is registered in groups */
    RME_LISTS_PACK,   /* copied */
    RME_LISTS_GROUP,  /* gathered, registered in groups */
    RME_LISTS_SINGLE, /* gathered, each segment registered by itself */
    RME_LISTS_HYBRID  /* smaller ones than pack_threshold copied, larger ones in groups */
};

/* units of an operation that are made ready at a time [000 4.5.3] */
#define RME_UNITS_AHEAD  2u
#define RME_PACK_UNIT    (256u << 10) /* largest unit that is copied, in bytes */
#define RME_INVITE_LEAST (16u << 10)  /* smaller receives do not invite, in bytes */

/* Large messages that one process has to move, from the decision until they are over. */
struct rme_load {
    uint32_t ops;
    uint64_t bytes;
};

/* One side of a transfer. */
struct rme_plan_side {
    uint64_t segments; /* as the device will see them if they are not packed; 0: unknown */
    bool ready;        /* its memory is registered already */
    /* a registration that is made for it is kept, and found by the next message */
    bool kept;
    bool server;
    uint64_t load_ops;   /* messages that it has to move by RDMA */
    uint64_t load_bytes; /* bytes of those */
    uint64_t packed;     /* bytes of copies that it has already, as far as that is known */
};

struct rme_plan_in {
    uint64_t bytes;
    struct rme_plan_side send, recv;
    /* what rme_plan_eager_max said; 0 when the window has no room: eager is only what has no
     * bytes */
    uint64_t eager_max;
    /* largest message for which there is room in memory that the receiver has lent; 0: none */
    uint64_t fast_max;
    /* messages of the sender that are under way, and go on while this one waits */
    uint64_t under_way;
    uint64_t unit; /* option: bytes of a pipeline unit */
    /* option: smaller messages are copied though their registration would be kept, and with
     * RME_LISTS_HYBRID smaller lists; 0: by costs */
    uint64_t pack_threshold;
    /* option: a server with more operations outstanding is under heavy load */
    uint64_t heavy_ops;
    enum rme_prefer prefer;
    enum rme_lists lists;
    uint32_t max_sge, max_read_sge; /* local segments that one request has room for */
    /* the receiver's device can read, and there is, or may be, something to read */
    bool has_read;
    bool slow_read;       /* … but much slower than it writes */
    bool nothing_to_read; /* as yet: to read, the receiver would have to ask for it first */
    /* asked by a receiver that has been offered all of it, and has nothing else with the sender
     */
    bool offered;
    bool invites; /* a receiver may open its memory before it is asked */
    /* each segment that the peer is to reach is opened and closed by a request of its own */
    bool opens;
    /* what is written into lent memory may be gathered from the sender's, if registered */
    bool gathers;
    const struct rme_costs *costs;
};

struct rme_plan {
    enum rme_proto proto;
    bool send_pack, recv_pack; /* copy through a registered bounce buffer on that side */
    bool offer;                /* the sender tells of its memory along with RTS, to be read */
    bool invite;               /* a receiver that is first opens its memory, to be written */
    bool crowded;              /* with fewer under way it would be written into lent memory */
    /* RDMA work requests it will take (estimate when a side is unknown) */
    uint64_t requests;
    const char *why; /* the rule that decided on the protocol, a constant string */
    const char *why_send, *why_recv; /* those for the memory of each side */
};

/* Lists with less payload than this are packed; 0: the costs say. */
static inline uint64_t rme_plan_list_threshold(enum rme_lists lists, uint64_t pack_threshold)
{
    switch (lists) {
    case RME_LISTS_AUTO:
        return 0;
    case RME_LISTS_HYBRID:
        return pack_threshold;
    case RME_LISTS_PACK:
        return UINT64_MAX;
    case RME_LISTS_GROUP:
    case RME_LISTS_SINGLE:
        break;
    }
    return 1;
}

/* Decides.  Pure: no state, no lock, no failure. */
void rme_plan(const struct rme_plan_in *in, struct rme_plan *plan);

/* Largest payload that goes eagerly, if so many bytes fit a buffer and the option eager_max
 * says `most`. */
uint64_t rme_plan_eager_max(const struct rme_costs *costs, uint64_t fit, uint64_t most);

/* What a receiver that is first takes for granted of the side of a message that it has not
 * heard of. */
static inline struct rme_plan_side rme_plan_unseen_sender(bool server, uint64_t load_ops,
                                                          uint64_t load_bytes)
{
    return (struct rme_plan_side){.segments = 1,
                                  .ready = true,
                                  .server = server,
                                  .load_ops = load_ops,
                                  .load_bytes = load_bytes};
}

/* Bytes of a unit of memory that has to be made ready; `unit` is the option.  What is ready
 * already is one unit. */
static inline uint64_t rme_plan_unit(uint64_t unit, bool pack)
{
    return pack && unit > RME_PACK_UNIT ? RME_PACK_UNIT : unit;
}

/*
 * Does a sender with that load rather send RTS than write to an invitation?  The receiver, who
 * has opened its memory because it is not loaded, may then read what RTS offers.
 */
static inline bool rme_plan_declines(const struct rme_load *own, bool offers)
{
    return offers && own->ops != 0;
}

/*
 * What two hosts and their devices do for a message by one protocol with given packing, in
 * nanoseconds; `requests` may be NULL.  The bytes on the wire are left out: they are the same
 * by all protocols, but where reads are slow, and there nobody reads by choice.  What overlaps
 * within a message is not looked at either: only one of many units has that, whatever its
 * protocol.  But the time in which messages travel is shared by all that are under way: each
 * has its part, and its own request.
 */
double rme_plan_cost(const struct rme_plan_in *in, enum rme_proto proto, bool send_pack,
                     bool recv_pack, uint64_t *requests);

const char *rme_proto_name(enum rme_proto proto);

/* Preset costs, before anything is measured. */
extern const struct rme_costs rme_costs_preset;

/*
 * Measures what can be without a peer, on an open fabric, in about 20 ms: copies and
 * registrations, and what pieces cost the device.  No lock held.  What cannot be measured, or
 * shall not be, keeps its preset; `hold` always does, `message` does where the fabric's caps do
 * not say it, and `post` and `sge` are never less than theirs.  They decide whether memory that
 * was lent is used (fast_bytes), and whether from a copy, and what becomes of a list; `message`
 * also how much of a buffer above 4608 bytes is used for eager messages; nothing else.
 */
void rme_costs_measure(const struct rme_fabric_ops *ops, struct rme_fabric *fabric,
                       bool measure, struct rme_costs *out);

/* Likewise what it costs to find memory in the cache of registrations, a piece and a list;
 * without a cache these keep their presets.  Nothing is left there. */
void rme_costs_measure_find(struct rme_mreg *mreg, struct rme_costs *out);

/*
 * Prints what the two ends of a message are asked and answer: the cost table, the predicted
 * times of every protocol and the choice, a line each.  `send` is what the sender asks; `recv`
 * what the receiver asks when it has matched the message, of which send.segments and send.ready
 * are set here to what RTS will say.
 */
void rme_plan_explain(FILE *out, const struct rme_plan_in *send,
                      const struct rme_plan_in *recv);

#endif
