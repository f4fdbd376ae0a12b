/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A protocol: a row of the table in proto/talk.c, or several, one for each of its files.  All
 * that the rest of the engine asks of one is here, so that one is added or removed without
 * opening another.  A function that is NULL has nothing to do.  The engine's lock is held.
 */
#ifndef RME_PROTOCOL_H
#define RME_PROTOCOL_H

#include "transport/peer.h"

struct rme_op;
struct rme_protocols;

/* What may arrive: a message of each type, but that an RTS of an unexpected message is a thing
 * of its own, with a number that is no type. */
#define RME_ARRIVAL_UNEXPECTED_RTS 0u
#define RME_ARRIVALS               19u

typedef void (*rme_arrived_fn)(struct rme_peer *peer, const struct rme_wire_message *message);

/* What became of an operation that a protocol was asked to start. */
enum rme_started {
    /* it is not for this protocol, or not now: the next one in the table is asked */
    RME_START_OTHER,
    RME_START_GONE,    /* it is started, or was ended */
    RME_START_STUCK,   /* no credit or buffer: nothing else can go either */
    RME_START_PREPARE, /* its memory is made ready; rme_send_ready follows */
    /* it has to wait for the peer's host, or for others whose memory is made ready */
    RME_START_TURN,
};

struct rme_protocol {
    /* what it keeps for the process is set up */
    void (*init)(struct rme_protocols *protocols);

    /* a QUEUED send, the first one of its tag: each protocol is asked, in the order of the
     * table */
    enum rme_started (*start)(struct rme *rme, struct rme_op *op);
    /* would that be anything but RME_START_OTHER and RME_START_TURN for this send?  NULL: no */
    bool (*in_turn)(const struct rme_op *op);

    /* the peer gives up something by CANCEL: each protocol is asked; true: it was one of its
     * own, and is seen to */
    bool (*cancelled)(struct rme_peer *peer, const struct rme_wire_message *cancel);

    /* messages: each kind has one taker */
    rme_arrived_fn arrived[RME_ARRIVALS];

    /* a peer, a new link with it, and the end of that link: what is kept for it goes, and when
     * no device works for it any more (down) what devices had of it */
    void (*made)(struct rme_peer *peer);
    void (*started)(struct rme_peer *peer);
    void (*left)(struct rme_peer *peer);
    void (*down)(struct rme_peer *peer);
    /* the host wants nothing more that comes from a peer */
    void (*unwanted)(struct rme_peer *peer);
    /* is there something of a peer that the host is still to get? */
    bool (*is_needed)(const struct rme_peer *peer);

    /* an op that it has taken over (op->protocol) */
    /* memory is ready, or data has moved: it goes on */
    void (*ready)(struct rme *rme, struct rme_op *op);
    /* it shall end so, once nobody uses its memory */
    void (*failed)(struct rme *rme, struct rme_op *op, int error);
    /* its link is given up: what it has to say is forgotten */
    void (*silenced)(struct rme_op *op);
    /* its outcome is known: it starts nothing more */
    void (*ended)(struct rme *rme, struct rme_op *op);
    /* nobody uses its memory any more */
    void (*freed)(struct rme *rme, struct rme_op *op);
};

#endif
