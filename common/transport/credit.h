/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Flow control of one link as arithmetic: receive buffers (credits) and held messages
 * (windows).  See credit.c. */
#ifndef RME_CREDIT_H
#define RME_CREDIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* Classes of messages; the value is the number of credits that must be in hand to send one. */
enum rme_credit_class {
    RME_CREDIT_RETURN = 1, /* CREDIT with at least one credit */
    /* messages that end or move operations: CTS, FIN, CANCEL, immediates
     * … */
    RME_CREDIT_CONTROL = 2,
    RME_CREDIT_DATA = 3, /* messages that start something: EAGER, RTS, unsolicited CTS, PING */
};

/* A side that was advertised fewer credits keeps no reserve: by the rule of credit.c, the side
 * may spend its last credit. */
#define RME_CREDITS_RESERVE 4u

struct rme_credit {
    uint32_t have;       /* receive buffers of the peer that this side may use */
    uint32_t advertised; /* receive buffers of this side advertised to the peer */
    /* part of `advertised`: used by the peer, given back to the device and not yet returned to
     * the peer */
    uint32_t unreturned;
    uint32_t grown;   /* buffers advertised with the next CREDIT message */
    uint32_t spent;   /* messages and immediates sent, modulo 2^32 */
    uint32_t acked;   /* part of `spent` that the peer reported as consumed */
    uint32_t granted; /* credits advertised by the peer: at first, and in `more` since */
    uint32_t first_advertised, first_granted; /* minimum of each side */
    uint32_t consumed; /* messages and immediates of the peer that were consumed, modulo 2^32 */
    /*
     * Bytes of the ring used by the consumed messages, modulo 2^32; the part of them
     * returned to the peer; and the number of unreturned bytes for which a CREDIT message is
     * due, 0: never.
     */
    uint32_t ring_bytes, ring_returned, ring_due;
    /* the peer gets back only the credits that control messages need (rx_account.c) */
    bool throttled;
    /* if `throttled`: messages that start something and that may still arrive from a peer that
     * keeps its reserve */
    uint32_t starts_left;
    bool unacked; /* an immediate or FIN of the peer is among the unreturned credits */
    bool stalled; /* a message lacked a credit: flag STALLED in the next header */
    /* the peer may wait for a report of its windows, which any header is */
    bool window_due;
};

void rme_credit_start(struct rme_credit *credit, uint32_t advertised, uint32_t have);

/* True if the credits in hand suffice for a message of this class. */
static inline bool rme_credit_may(const struct rme_credit *credit, enum rme_credit_class class)
{
    return credit->have >= (uint32_t) class;
}

/*
 * Called if rme_credit_may() is false: true if a link without a reserve may send the message
 * nevertheless.  `returns`: credits that the message returns to the peer.
 */
bool rme_credit_may_last(const struct rme_credit *credit, uint32_t returns);

/* Accounts for a message or an immediate that is sent. */
static inline void rme_credit_spend(struct rme_credit *credit)
{
    credit->have--;
    credit->spent++;
}

/* Returns the newly advertised buffers that a CREDIT message sent now announces. */
uint32_t rme_credit_give_more(struct rme_credit *credit);

/* Accounts for `count` credits returned and `more` new ones advertised by a message.  -EPROTO:
 * more than a peer can have, or more than were used. */
int rme_credit_gain(struct rme_credit *credit, uint32_t count, uint32_t more);

/* Accounts for a buffer that the peer used and that was given back to the device.  -EPROTO: the
 * peer had no credit left. */
static inline int rme_credit_used(struct rme_credit *credit)
{
    if (credit->unreturned >= credit->advertised)
        return -EPROTO;
    credit->unreturned++;
    credit->consumed++;
    return 0;
}

/* Starts or ends withholding all credits but those that control messages need. */
void rme_credit_throttle(struct rme_credit *credit, bool throttled);

/* Accounts for a consumed message of the peer that starts something. */
static inline void rme_credit_started(struct rme_credit *credit)
{
    if (credit->throttled && credit->starts_left != 0)
        credit->starts_left--;
}

/* Gives up at most `asked` credits with a message that has been paid for and returns `returned`
 * credits; keeps the minimum that the link needs.  Returns the number given up. */
uint32_t rme_credit_reduce(struct rme_credit *credit, uint32_t asked, uint32_t returned);
/* Accounts for `count` buffers that the peer gave up.  -EPROTO: the peer cannot have had
 * them. */
int rme_credit_reduced(struct rme_credit *credit, uint32_t count);

/* Number of unreturned credits that may be returned. */
static inline uint32_t rme_credit_ready(const struct rme_credit *credit)
{
    uint32_t in_hand =
        credit->advertised - credit->unreturned; /* or in flight, in either direction */
    uint32_t few = 0;

    if (!credit->throttled)
        return credit->unreturned;
    if (credit->advertised >= RME_CREDITS_RESERVE && in_hand < RME_CREDIT_CONTROL &&
        credit->starts_left != 0)
        few = RME_CREDIT_CONTROL - in_hand;
    return credit->unreturned < few ? credit->unreturned : few;
}

/* Number of credits that a message sent now returns to the peer. */
static inline uint16_t rme_credit_gives(const struct rme_credit *credit)
{
    uint32_t give = rme_credit_ready(credit);

    return give > UINT16_MAX ? UINT16_MAX : (uint16_t)give;
}
/* Accounts for a message that is sent and returns this number. */
static inline void rme_credit_gave(struct rme_credit *credit, uint16_t give)
{
    credit->unreturned -= give;
    if (credit->throttled)
        return;
    credit->ring_returned = credit->ring_bytes;
    if (credit->unreturned == 0)
        credit->unacked = false;
}

/* Number of buffers that a CREDIT message sent now would advertise. */
static inline uint32_t rme_credit_more(const struct rme_credit *credit)
{
    return credit->throttled && credit->advertised >= RME_CREDITS_RESERVE ? 0 : credit->grown;
}

/* True if a CREDIT message must be sent when no other message is. */
static inline bool rme_credit_due(const struct rme_credit *credit)
{
    bool much = credit->unreturned >= credit->advertised / 2 ||
                (credit->ring_due != 0 &&
                 credit->ring_bytes - credit->ring_returned >= credit->ring_due);

    return (much && rme_credit_ready(credit) != 0) ||
           (credit->grown != 0 && rme_credit_more(credit) != 0);
}

/*
 * Messages that the receiver may have to hold.  Each message costs its payload and
 * RME_HELD_COST for its bookkeeping, so that messages without payload are limited too.  Sums
 * are modulo 2^32; windows are smaller than 2^31.
 */
#define RME_HELD_COST 64u

/* A window, of the sender or of the receiver. */
struct rme_window {
    uint32_t limit;    /* set by the hello of the receiver */
    uint32_t total;    /* cost of all messages */
    uint32_t consumed; /* cost no longer held: in every header of the receiver */
};

/* True if a message does not exceed the window. */
static inline bool rme_window_fits(const struct rme_window *window, uint64_t payload)
{
    return (uint64_t)(uint32_t)(window->total - window->consumed) + payload + RME_HELD_COST <=
           window->limit;
}
/* Accounts for a message that fits. */
static inline void rme_window_add(struct rme_window *window, uint64_t payload)
{
    window->total += (uint32_t)payload + RME_HELD_COST;
}
/* Accounts for a message of the peer, or returns -EPROTO. */
static inline int rme_window_got(struct rme_window *window, uint64_t payload)
{
    if (!rme_window_fits(window, payload))
        return -EPROTO;
    rme_window_add(window, payload);
    return 0;
}
static inline void rme_window_consumed(struct rme_window *window, uint64_t payload)
{
    window->consumed += (uint32_t)payload + RME_HELD_COST;
}
/* True if the peer may report this: not more than was sent. */
static inline bool rme_window_may(const struct rme_window *window, uint32_t consumed)
{
    return (uint32_t)(consumed - window->consumed) <=
           (uint32_t)(window->total - window->consumed);
}
/* Accounts for a report of the peer, or returns -EPROTO. */
static inline int rme_window_report(struct rme_window *window, uint32_t consumed)
{
    if (!rme_window_may(window, consumed))
        return -EPROTO;
    window->consumed = consumed;
    return 0;
}

#endif
