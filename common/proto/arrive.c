/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arrivals of a peer; protocols.c has the functions of the message types. */
#include <errno.h>

#include "proto/account.h"

void rme_take_message(struct rme_peer *peer, int error, const struct rme_wire_message *message,
                      size_t length, bool in_ring)
{
    uint32_t more = message->type == RME_WIRE_CREDIT ? (uint32_t)message->tag : 0;
    const struct rme_arrival *row =
        &rme_arrivals[message->type < RME_ARRIVALS ? message->type : 0];
    bool flag = (message->flags & row->flag) != 0;

    if (error == -EPROTO) {
        rme_peer_protocol_error(peer, in_ring ? "a malformed message in the ring"
                                              : "a malformed message");
    } else if (!rme_head_take(peer, message, more)) {
        rme_peer_protocol_error(peer, "invalid credits or window");
    } else {
        peer->heard = true;
        rme_xfers_acked(peer);
        if (row->arrived[flag] != NULL)
            row->arrived[flag](peer, message);
    }
    if (!rme_peer_listens(peer) ||
        !rme_message_account(peer, message->type, message->flags, row->starts[flag]))
        rme_log_invalid(peer, message->type, message->flags, length);
}

void rme_take_immediate(struct rme_peer *peer, uint32_t imm)
{
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more immediates than credits");
        return;
    }
    peer->credit.unacked = true;
    if (!rme_rndv_written(peer, imm, 0))
        rme_peer_protocol_error(peer, "an immediate without a matching receive");
    if (peer->credit.consumed == RME_GRANT_USED)
        rme_grant_used(peer);
    if (rme_credit_due(&peer->credit))
        rme_peer_schedule(peer);
}
