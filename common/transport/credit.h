/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Flow control of one link, as arithmetic: receive buffers (credits) and held messages
 * (windows).  See credit.c. */
#ifndef RME_CREDIT_H
#define RME_CREDIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* What a message is for; the value is how many credits must be in hand to send it. */
enum rme_credit_class {
    RME_CREDIT_RETURN = 1, /* a CREDIT message with at least one credit in it */
    /* what ends or moves operations: CTS, OFFER, GO, FIN, CANCEL, immediates … */
    RME_CREDIT_CONTROL = 2,
    RME_CREDIT_DATA = 3, /* what starts something: EAGER, UNEXPECTED, RTS, PING */
};

/* Who was promised fewer keeps no reserve: it may spend the last one, by the rule of
 * credit.c. */
#define RME_CREDITS_RESERVE 4u

struct rme_credit {
    uint32_t have;     /* receive buffers of the peer that we may use */
    uint32_t promised; /* receive buffers of ours that belong to the peer */
    /* of those, used by the peer and given back, but the peer does not know yet */
    uint32_t owed;
    uint32_t grown;   /* buffers that are promised with the next CREDIT message */
    uint32_t spent;   /* messages and immediates sent so far, modulo 2^32 */
    uint32_t told;    /* of those, so many the peer says that it has taken */
    uint32_t apart;   /* of those, reports that have no place among the others (fabric.h) */
    uint32_t granted; /* what the peer has promised us: at first, and by `more` since */
    uint32_t first_promised, first_granted; /* nobody goes below these */
    uint32_t taken; /* messages and immediates of the peer that were taken, modulo 2^32 */
    /* Bytes of lent memory in them, modulo 2^32; of those, what has come back to the peer; and
     * with how many a CREDIT message is due, 0: never. */
    uint32_t bulk, bulk_given, bulk_due;
    /* If `keeps`: what was taken from these two counts on is not returned yet, as messages stay
     * in lent memory (fast_early.c). */
    uint32_t keeps_from, keeps_bulk;
    bool keeps;
    bool withholds; /* the peer gets back what control takes, and no more (keep.c) */
    /* then: messages that start something and may still come of it, if it keeps its reserve */
    uint32_t starts_left;
    bool lean;    /* the peer promised fewer than RME_CREDITS_RESERVE at first */
    bool exact;   /* both sides return what they took and nothing else, see credit.c */
    bool untold;  /* among what is owed is a report (an immediate or FIN) of the peer */
    bool stalled; /* something had to wait for `have`: the next header says so */
};

void rme_credit_start(struct rme_credit *credit, uint32_t promised, uint32_t have);

/* Are there enough in hand, beyond the reserve? */
static inline bool rme_credit_may(const struct rme_credit *credit, enum rme_credit_class class)
{
    return credit->have >= (uint32_t) class;
}

/*
 * If not: may it go nevertheless, as nobody reserves anything of so few?  `returns`: credits
 * that it brings back to the peer.  `aside`: messages of the peer that have arrived and are
 * taken later.
 */
bool rme_credit_may_last(const struct rme_credit *credit, uint32_t returns, uint32_t aside);

/* A message or an immediate goes out. */
static inline void rme_credit_spend(struct rme_credit *credit)
{
    credit->have--;
    credit->spent++;
}

/* The credits that a message going out now returns; they are no longer owed. */
uint16_t rme_credit_give_some(struct rme_credit *credit);
static inline uint16_t rme_credit_give(struct rme_credit *credit)
{
    uint16_t give = (uint16_t)credit->owed;

    if (credit->withholds || credit->keeps || credit->owed > UINT16_MAX)
        return rme_credit_give_some(credit);
    credit->owed = 0;
    credit->bulk_given = credit->bulk;
    credit->untold = false;
    return give;
}

/* The same of buffers that the peer did not have before: for CREDIT messages. */
uint32_t rme_credit_give_more(struct rme_credit *credit);

/* A message brought `count` credits back, and `more` new ones.  -EPROTO: more than a peer can
 * have, or than were used. */
int rme_credit_gain(struct rme_credit *credit, uint32_t count, uint32_t more);

/* The peer used one of our buffers, and it was given back to the device.  -EPROTO: it had none
 * left. */
static inline int rme_credit_used(struct rme_credit *credit)
{
    if (credit->owed >= credit->promised)
        return -EPROTO;
    credit->owed++;
    credit->taken++;
    return 0;
}

/* From now on the peer gets back what it was promised, or what control takes only. */
void rme_credit_withhold(struct rme_credit *credit, bool withholds);

/* A message of the peer that starts something was taken. */
static inline void rme_credit_started(struct rme_credit *credit)
{
    if (credit->withholds && credit->starts_left != 0)
        credit->starts_left--;
}

/* `count` more buffers are there for the peer. */
void rme_credit_grow(struct rme_credit *credit, uint32_t count);

/* Buffers that the peer may be asked to give up, since it uses none. */
uint32_t rme_credit_surplus(const struct rme_credit *credit);
/*
 * With a message that has just been paid for, and returns so many: gives up so many of the
 * peer's buffers at most, and keeps what it takes to go on.  How many.
 */
uint32_t rme_credit_yield(struct rme_credit *credit, uint32_t asked, uint32_t returned);
/* The peer has given up so many of ours.  -EPROTO: it cannot have had them. */
int rme_credit_yielded(struct rme_credit *credit, uint32_t count);

/* May credits be kept back?  Who has few returns, or was promised few, gets all of them. */
static inline bool rme_credit_may_keep(const struct rme_credit *credit)
{
    return credit->promised >= 2 * RME_CREDITS_RESERVE &&
           (!credit->lean || credit->granted >= RME_CREDITS_RESERVE);
}

/* Of what is owed: what is kept back, and what may be returned now. */
static inline uint32_t rme_credit_back(const struct rme_credit *credit)
{
    return credit->keeps ? credit->taken - credit->keeps_from : 0;
}

static inline uint32_t rme_credit_ready(const struct rme_credit *credit)
{
    uint32_t ready = credit->owed - rme_credit_back(credit);
    uint32_t in_hand = credit->promised - credit->owed; /* or on the way, either way */
    uint32_t few = 0;

    if (!credit->withholds)
        return ready;
    if (credit->promised >= RME_CREDITS_RESERVE && in_hand < RME_CREDIT_CONTROL &&
        credit->starts_left != 0)
        few = RME_CREDIT_CONTROL - in_hand;
    return ready < few ? ready : few;
}

/* Likewise, bytes of lent memory. */
static inline uint32_t rme_credit_bulk_back(const struct rme_credit *credit)
{
    return credit->keeps ? credit->bulk - credit->keeps_bulk : 0;
}

/* Is so much of the lent memory not returned that the peer may wait for it? */
static inline bool rme_credit_bulk_late(const struct rme_credit *credit)
{
    return credit->bulk_due != 0 &&
           credit->bulk - credit->bulk_given >= credit->bulk_due + credit->bulk_due / 2;
}

/* Is more kept back than there may be? */
static inline bool rme_credit_keeps_much(const struct rme_credit *credit)
{
    return (credit->owed >= credit->promised / 2 &&
            rme_credit_back(credit) > credit->promised / 4) ||
           (rme_credit_bulk_late(credit) && rme_credit_bulk_back(credit) >= credit->bulk_due);
}

/* Buffers that are promised with the next CREDIT message, if it goes now. */
static inline uint32_t rme_credit_more(const struct rme_credit *credit)
{
    return credit->withholds && credit->promised >= RME_CREDITS_RESERVE ? 0 : credit->grown;
}

/* Must a CREDIT message go when nothing else does? */
static inline bool rme_credit_due(const struct rme_credit *credit)
{
    uint32_t bulk;

    if (credit->owed < credit->promised / 2 && credit->bulk_due == 0 && credit->grown == 0)
        return false;
    bulk = credit->bulk - credit->bulk_given - rme_credit_bulk_back(credit);
    return (rme_credit_ready(credit) != 0 &&
            (credit->owed >= credit->promised / 2 ||
             (credit->bulk_due != 0 && bulk >= credit->bulk_due) ||
             rme_credit_bulk_late(credit))) ||
           rme_credit_more(credit) != 0;
}

/*
 * Buffers that links get beyond their first ones, where all links share one queue of them.
 */
struct rme_credit_pool {
    uint32_t limit; /* so many at most */
    uint32_t lent;  /* so many have been promised to links */
};

/* Of `wanted` more, how many may a link have that has got `has` from the pool? */
uint32_t rme_credit_pool_lends(const struct rme_credit_pool *pool, uint32_t has,
                               uint32_t wanted);

/*
 * Messages that the receiver may have to hold.  Each costs its payload and RME_HELD_COST for
 * its bookkeeping, so that messages without bytes are bounded too.  Sums run modulo 2^32;
 * windows are smaller than 2^31.
 */
#define RME_HELD_COST 64u

struct rme_window {
    uint32_t limit; /* the peer's, from its hello */
    uint32_t sent;  /* cost sent so far */
    uint32_t taken; /* cost that the peer reports as no longer held */
};

static inline bool rme_window_fits(const struct rme_window *window, uint64_t payload)
{
    return (uint64_t)(uint32_t)(window->sent - window->taken) + payload + RME_HELD_COST <=
           window->limit;
}
static inline void rme_window_sent(struct rme_window *window, uint64_t payload)
{
    window->sent += (uint32_t)payload + RME_HELD_COST;
}
/* -EPROTO: the peer has taken what was never sent. */
static inline int rme_window_report(struct rme_window *window, uint32_t taken)
{
    if ((uint32_t)(taken - window->taken) > (uint32_t)(window->sent - window->taken))
        return -EPROTO;
    window->taken = taken;
    return 0;
}

/* The other end of a window. */
struct rme_holding {
    uint32_t limit; /* ours, as our hello said */
    uint32_t got;   /* cost received so far */
    uint32_t taken; /* cost no longer held: goes into every header */
};

/* -EPROTO: the peer exceeds its window. */
static inline int rme_holding_got(struct rme_holding *holding, uint64_t payload)
{
    if ((uint64_t)(uint32_t)(holding->got - holding->taken) + payload + RME_HELD_COST >
        holding->limit)
        return -EPROTO;
    holding->got += (uint32_t)payload + RME_HELD_COST;
    return 0;
}
static inline void rme_holding_took(struct rme_holding *holding, uint64_t payload)
{
    holding->taken += (uint32_t)payload + RME_HELD_COST;
}

#endif
