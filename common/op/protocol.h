/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The interface of a protocol to the engine.  A protocol is one or more rows of the table in
 * proto/proto.c, one for each of its files, so that a protocol is added or removed without a
 * change of another.  NULL functions are skipped.  All are called with the engine's lock held.
 */
#ifndef RME_PROTOCOL_H
#define RME_PROTOCOL_H

#include "transport/peer.h"

struct rme_op;
struct rme_protocols;

/* Kinds of arrivals: the types of messages.  The RTS of an unexpected message is a kind of its
 * own, with a number that is not a type. */
#define RME_ARRIVAL_UNEXPECTED_RTS 0u
#define RME_ARRIVALS               19u

typedef void (*rme_arrived_fn)(struct rme_peer *peer, const struct rme_wire_message *message);

/* Results of `start`. */
enum rme_started {
    /* not for this protocol, or not now: the next protocol in the table is tried */
    RME_START_OTHER,
    RME_START_GONE,    /* started, or ended */
    RME_START_STUCK,   /* no credit or buffer: no other send can start either */
    RME_START_PREPARE, /* its memory is being registered or packed; rme_send_ready follows */
    /* waits for flow control of the peer's host, or for the preparation of other sends */
    RME_START_WAIT,
};

struct rme_protocol {
    /* initialises the protocol's state of the process */
    void (*init)(struct rme_protocols *protocols);

    /* starts the first QUEUED send of its tag; called for each protocol in the order of the
     * table */
    enum rme_started (*start)(struct rme *rme, struct rme_op *op);
    /* returns true if `start` would return neither RME_START_OTHER nor RME_START_WAIT; NULL:
     * false */
    bool (*may_start)(const struct rme_op *op);

    /* handles CANCEL of the peer; called for each protocol until one returns true: the message
     * named an object of this protocol */
    bool (*cancelled)(struct rme_peer *peer, const struct rme_wire_message *cancel);

    /* handlers of messages, by kind of arrival; at most one protocol handles a kind */
    rme_arrived_fn arrived[RME_ARRIVALS];

    /* a peer was created; its link is up; the link is given up: discards state; the link is
     * down, and no device uses its memory: frees buffers */
    void (*on_create)(struct rme_peer *peer);
    void (*on_connect)(struct rme_peer *peer);
    void (*on_disconnect)(struct rme_peer *peer);
    void (*on_link_down)(struct rme_peer *peer);
    /* the host wants no more arrivals of the peer: discards them */
    void (*discard_rx)(struct rme_peer *peer);
    /* returns true if arrivals of the peer have not been fetched by the host */
    bool (*is_needed)(const struct rme_peer *peer);

    /* The functions below are called for an op whose op->protocol is this one. */
    /* continues: memory is ready, or data has moved */
    void (*ready)(struct rme *rme, struct rme_op *op);
    /* stops the op; it ends with this error when no reference to its memory is left */
    void (*failed)(struct rme *rme, struct rme_op *op, int error);
    /* the link is given up: drops pending control messages */
    void (*silenced)(struct rme_op *op);
    /* the result is set: starts nothing more */
    void (*ended)(struct rme *rme, struct rme_op *op);
    /* no reference to its memory is left: frees op->rndv */
    void (*freed)(struct rme *rme, struct rme_op *op);
};

#endif
