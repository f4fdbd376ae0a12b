/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tables of the protocols and of the messages: a new protocol is a row of the first, a new
 * message an entry of the second.
 */
#include <errno.h>

#include "proto/proto.h"

/* In the order in which a send is offered to them. */
static const struct rme_protocol protocols[] = {
    {RME_PROTO_EAGER, rme_eager_start, rme_message_cancelled},
    {RME_PROTO_RING, rme_ring_start, NULL},
    {RME_PROTO_RNDV_WRITE, rme_early_cts_start, rme_early_cts_cancelled},
    {RME_PROTO_RNDV_READ, rme_rndv_start, rme_rndv_cancelled},
};
#define PROTOCOLS (sizeof(protocols) / sizeof(protocols[0]))

enum rme_started rme_send_start(struct rme_op *op)
{
    enum rme_proto plan = rme_send_plan(op);
    enum rme_started started = RME_START_OTHER;

    for (const struct rme_protocol *row = protocols; started == RME_START_OTHER; row++)
        if (row->plan >= plan)
            started = row->start(op->peer->rme, op);
    return started;
}

/* Offers CANCEL to the protocols, the last one first: early CTS answers a CANCEL that names no
 * operation of a rendezvous.  An operation that has ended is not found: its end was reported
 * before. */
static void cancelled(struct rme_peer *peer, const struct rme_wire_message *message)
{
    for (const struct rme_protocol *row = protocols + PROTOCOLS; row-- > protocols;)
        if (row->cancelled != NULL && row->cancelled(peer, message))
            return;
}

/* Handles the messages of a ring; of a plain CREDIT, only the header counts. */
static void credit_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    if (message->flags & RME_WIRE_F_GRANT)
        rme_ring_granted(peer, message);
    else if (message->flags & RME_WIRE_F_WITHDRAW)
        rme_ring_withdrawn(peer);
    else if (message->flags & RME_WIRE_F_RELEASE)
        rme_ring_released(peer);
}

/* Writes of this side may be complete but not yet reported by the device.  LINK_DOWN ends the
 * remaining operations. */
static void bye_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    (void)message;
    peer->bye_in = true;
    rme_peer_disconnect(peer, -ECONNRESET);
}

static void ping_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    peer->asked = (uint32_t)message->tag;
    peer->pong_due = true;
    rme_peer_schedule(peer);
}

static void pong_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    rme_peer_reduced(peer, (uint32_t)message->tag);
}

/* A type 0 stands for the unknown ones: only the header counts. */
const struct rme_arrival rme_arrivals[RME_ARRIVALS] = {
    [RME_WIRE_EAGER] = {{rme_eager_arrived, rme_unexp_arrived},
                        {true, true},
                        RME_WIRE_F_UNEXPECTED},
    [RME_WIRE_RTS] = {{rme_rts_arrived, rme_unexp_rts_arrived},
                      {true, true},
                      RME_WIRE_F_UNEXPECTED},
    [RME_WIRE_CTS] = {{rme_cts_arrived, rme_early_cts_arrived},
                      {false, true},
                      RME_WIRE_F_UNSOLICITED},
    [RME_WIRE_FIN] = {{rme_fin_arrived, rme_refusal_arrived}, {false, false}, RME_WIRE_F_EAGER},
    [RME_WIRE_CANCEL] = {{cancelled}, {false}, 0},
    [RME_WIRE_CREDIT] = {{credit_arrived}, {false}, 0},
    [RME_WIRE_BYE] = {{bye_arrived}, {false}, 0},
    [RME_WIRE_PING] = {{ping_arrived}, {true}, 0},
    [RME_WIRE_PONG] = {{pong_arrived}, {false}, 0},
};
