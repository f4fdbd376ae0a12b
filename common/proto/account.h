/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Accounting of a message that has arrived, in a receive buffer or in a ring, on the short way
 * (rme_take_eager()) or by its type (rme_take_message()). */
#ifndef RME_ACCOUNT_H
#define RME_ACCOUNT_H

#include "proto/proto.h"

/* Returns true if the header of a message that advertises no buffers reports anything new. */
static inline bool rme_head_is_news(const struct rme_peer *peer,
                                    const struct rme_wire_message *head)
{
    return (head->credits | (head->eager_consumed ^ peer->eager_window[RME_EXPECTED].consumed) |
            (head->unexpected_consumed ^ peer->eager_window[RME_UNEXPECTED_STREAM].consumed)) !=
           0;
}

/* Takes the fields that every header has: returned credits, and windows; `more`: newly
 * advertised credits.  False: invalid values, and nothing has changed. */
static inline bool rme_head_take(struct rme_peer *peer, const struct rme_wire_message *head,
                                 uint32_t more)
{
    struct rme_window *expected = &peer->eager_window[RME_EXPECTED],
                      *unexpected = &peer->eager_window[RME_UNEXPECTED_STREAM];

    if (!rme_window_may(expected, head->eager_consumed) ||
        !rme_window_may(unexpected, head->unexpected_consumed) ||
        rme_credit_gain(&peer->credit, head->credits, more) != 0)
        return false;
    expected->consumed = head->eager_consumed;
    unexpected->consumed = head->unexpected_consumed;
    /* there may be a credit, or room in a window */
    if (rme_peer_waits(peer))
        rme_peer_schedule(peer);
    return true;
}

/* Accounts for the credit that a message has used, after the message was processed; grants
 * credits, or schedules their return.  `starts`: see struct rme_arrival.  False: a protocol
 * error. */
static inline bool rme_message_account(struct rme_peer *peer, uint8_t type, uint8_t flags,
                                       bool starts)
{
    if (rme_credit_used(&peer->credit) != 0) {
        rme_peer_protocol_error(peer, "more messages than credits");
        return false;
    }
    if (type == RME_WIRE_FIN && !(flags & RME_WIRE_F_EAGER))
        peer->credit.unacked = true;
    if (starts)
        rme_credit_started(&peer->credit);
    if (flags & RME_WIRE_F_STALLED)
        rme_grant_more(peer);
    if (peer->credit.consumed == RME_GRANT_USED)
        rme_grant_used(peer);
    if (rme_credit_due(&peer->credit))
        rme_grant_due(peer);
    return true;
}

#endif
