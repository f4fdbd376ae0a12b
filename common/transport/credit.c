/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Why nothing is ever sent without a receive buffer, and why two peers never wait for each
 * other's credits for ever.
 *
 * The account.  For one direction A -> B let G be what B promised (promised at B).  At any
 * moment
 *
 *     have at A  +  messages in flight A -> B  +  owed at B  +  credits in flight B -> A  =  G.
 *
 * Each event keeps the sum: sending moves 1 from `have` to flight; arrival moves 1 from flight
 * to `owed` (the buffer has been given back to the device before); any message B -> A moves all
 * of `owed` to flight that is not kept back (see Lent memory); its arrival moves them to
 * `have`; growing adds the same number to G and to the credits in flight (to a peer that does
 * not understand that: to G and `owed`); giving up moves some from `have` to flight A -> B, and
 * their arrival takes them and as many of G away.  Messages in flight are at most G, buffers of
 * the device are at least G: the receiver is always ready.
 *
 * What credits tell.  They are returned in the order in which messages and immediates are
 * taken.  So if `credits` of a header returns nothing else, the sum of what came back says how
 * many of ours the peer had taken when it spoke (`told`), and with that it knows what those
 * did.  Therefore new buffers are promised in a field of their own, of CREDIT messages.
 * defer.c needs that to be exact.  A peer that does not say so in its hello mixes both, and
 * `told` may be too large by its growth.  Where the fabric lets reports overtake (`apart`), the
 * sum says how many, not which: then of the others at least `told` less all reports are taken,
 * and those in the order of sending.
 *
 * Giving up.  Who has promised more than at first asks a link on which nothing happens (PING),
 * and the other side gives up what it has in hand but for the few of the reserve (PONG).  Only
 * then are the buffers the asker's again, as they could be in use before.  Neither goes below
 * what the hellos promised, so G >= 4 still, and all that is said below of any G holds for the
 * smaller one.  Who does not know what it was granted, because the peer is not exact, gives
 * nothing up.
 *
 * The reserve.  Data needs 3 credits in hand, control 2, a CREDIT message 1, and a CREDIT
 * message always returns at least one, or promises one more.  B must send a CREDIT message once
 * `owed` reaches G/2 (and 1), if no other message takes them along before.
 *
 * No deadlock.  Let nothing be in flight; then have(A) = G - owed(B) and likewise for the other
 * direction.  Say that A waits with data or control, so have(A) <= 2.  Then owed(B) >= G - 2 >=
 * G/2 as G >= 4: B must send a CREDIT message, and does unless have(B) = 0.  The last credit is
 * spent on CREDIT messages only, so if have(B) = 0 the last message of B was a CREDIT message;
 * it has arrived, and A got at least one credit by it.  If now have(A) = 0 as well, A has spent
 * that one later, on a CREDIT message which has arrived at B after B's last message, and so B
 * has a credit: a contradiction.  So one of the two has a credit and a duty to send a CREDIT
 * message; it goes, the other gets at least G/2 - 1 >= 1 credits, and by the same argument
 * everything that waits is sent in the end, since operations in control class never wait for
 * data class.
 *
 * A single credit.  A queue that all links share keeps the buffers that it was given, so a
 * thousand idle links should not have eight each.  Who accepts a link therefore promises one,
 * the least that lets the other side speak at all, if that side is lean: it knows the rule that
 * follows.  Only one side of a link can be that poor: a hello that asks for a link promises 4
 * or more.  Let A be the lean side and B the one that accepted.  B keeps the reserve.  A keeps
 * none while it has been granted fewer than 4: whatever it sends may take its last credit, with
 * one exception: if as many messages of B as A has promised have arrived and are owed still, or
 * wait to be taken (defer.c), the last credit of A is only for a message that returns at least
 * one.  An immediate returns none, and a header may return none where some are withheld.  Let
 * nothing be in flight, and A have 0.  Then owed(B) = G >= 1, so B must send a CREDIT message,
 * and does unless have(B) = 0; not at once, as an answer of its host may take the credit along,
 * but at the latest when a call of its host has nothing for it, or after ANSWER_CALLS of them
 * (grant.c).  B spends its last one on CREDIT messages only, so if have(B) = 0 the last message
 * of B was a CREDIT message by which A got at least one credit.  Since then A has returned
 * nothing, as B would have it.  So from the arrival of that message on all that A has promised
 * was owed or aside at A, and A cannot have spent its last credit: a contradiction.  Let now B
 * wait: have(B) <= 2, so owed(A) >= G/2 once those aside are taken, which needs nobody but our
 * own device, and A must send a CREDIT message.  It does if it has a credit, and if not, B
 * sends it one as was just shown.  Once A has been granted 4 or more, both keep the reserve,
 * which is a special case of A's rule.  A never waits for ever behind CREDIT messages of its
 * own, which use its one credit, too.  One of them gives B all its credits, so the next message
 * of B carries A's credit back and is not paid for with B's last: then the exception does not
 * hold.
 *
 * Growth.  A says with each message that takes its last credit that it would use more, and
 * whoever has to wait for one says so in its next header.  B then promises more in a CREDIT
 * message: as many as are usual with a first growth, as many again with each further one, up to
 * a limit.  All that links of a shared queue have beyond their first credit comes out of one
 * pool, since that is what the queue is left with when they are gone.  No link gets more than
 * one sixteenth of what it would find in the pool if it had none:  so a few can have all that
 * they use, and many leave something to those who come after them, unless they are very many.
 * These have one credit, wait for an answer after each message, and find more when others idle
 * or go.
 *
 * Lent memory.  Credits also say which messages in memory that was lent to a peer have been
 * taken (fast.c).  So a CREDIT message is due as well when those that may be returned stand for
 * half of that memory, and when all that are owed stand for three quarters.  Messages that stay
 * there (fast_early.c) keep theirs back, and those of all behind them.  When G/2 are owed at
 * most G/4 are kept back, so a CREDIT message that must go returns G/4 or more: at least 2,
 * since nothing is kept back with G < 8, and what then is owed is less than G/2.  When the
 * memory's three quarters are owed, less than half of it is kept back, so a quarter is
 * returned.  So who waits for a place waits as for a credit: let nothing be in flight; then the
 * owner must send a CREDIT message, and that it can is shown as above.  Where reports are apart
 * nobody waits for one: what comes back may be the credits of reports.
 *
 * Withholding.  From a peer that makes us keep too much (keep.c) B withholds what A would need
 * to start something: it returns what A lacks of 2 in hand, no more, and promises at least 4
 * first.  A, if it keeps its reserve, is kept from data only.  Let nothing be in flight, and A
 * wait with control: then have(A) <= 1, so B owes G - have(A) >= G/2, of which one at least may
 * be returned, and B must send a CREDIT message.  That it can, and that B's own messages go, is
 * shown as above, where a CREDIT message is only said to return one or more.  B sends one for
 * each message of A then, and A one for at least two of B, so that dies out.  Only if both
 * withhold from each other is each CREDIT message answered by another one, until one of the
 * hosts takes something.
 *
 * No endless exchange.  CREDIT messages use credits too.  But one is sent for at least G/2 >= 2
 * messages received, or to promise more, which has a limit, so an exchange of nothing but
 * CREDIT messages dies out.  With a single credit one side answers each CREDIT message, but the
 * other only every second one, which is enough.
 *
 * Buffers are given back at once, whether or not the message found a receive, so held messages
 * never block the link; what the receiver holds aside is bounded by the windows.  A sender
 * whose window is full sends descriptors (RTS) only, whose number is bounded by the receiver's
 * hello.
 */
#include <errno.h>

#include "transport/credit.h"

#define CREDITS_MAX (1u << 20) /* nobody has more buffers for one peer */
/* a link gets at most this part of what is left of the pool, and what it has of it */
#define POOL_PARTS 16u

void rme_credit_start(struct rme_credit *credit, uint32_t promised, uint32_t have)
{
    *credit = (struct rme_credit){.have = have,
                                  .promised = promised,
                                  .granted = have,
                                  .first_promised = promised,
                                  .first_granted = have,
                                  .lean = have < RME_CREDITS_RESERVE};
}

bool rme_credit_may_last(const struct rme_credit *credit, uint32_t returns, uint32_t aside)
{
    if (!credit->lean || credit->granted >= RME_CREDITS_RESERVE || credit->have == 0)
        return false;
    return credit->have > 1 || returns != 0 || credit->owed + aside < credit->promised;
}

uint16_t rme_credit_give_some(struct rme_credit *credit)
{
    uint32_t ready = rme_credit_ready(credit);
    uint16_t give = ready > UINT16_MAX ? UINT16_MAX : (uint16_t)ready;

    credit->owed -= give;
    if (!credit->withholds)
        credit->bulk_given = credit->bulk - rme_credit_bulk_back(credit);
    credit->untold = credit->untold && (give < ready || credit->withholds);
    return give;
}

uint32_t rme_credit_give_more(struct rme_credit *credit)
{
    uint32_t give = rme_credit_more(credit);

    credit->promised += give;
    credit->grown -= give;
    return give;
}

int rme_credit_gain(struct rme_credit *credit, uint32_t count, uint32_t more)
{
    if ((uint64_t)credit->have + count + more > CREDITS_MAX)
        return -EPROTO;
    if (credit->exact && count > credit->spent - credit->told)
        return -EPROTO;
    credit->have += count + more;
    credit->granted += more;
    credit->told += count;
    return 0;
}

void rme_credit_withhold(struct rme_credit *credit, bool withholds)
{
    /* what it has, what it gets until it keeps a reserve, and one more */
    if (withholds && !credit->withholds)
        credit->starts_left = credit->promised - credit->owed + RME_CREDITS_RESERVE + 1;
    credit->withholds = withholds;
}

void rme_credit_grow(struct rme_credit *credit, uint32_t count)
{
    if (credit->exact) {
        credit->grown += count;
        return;
    }
    credit->promised += count;
    credit->owed += count;
}

uint32_t rme_credit_surplus(const struct rme_credit *credit)
{
    if (!credit->exact || credit->promised <= credit->first_promised)
        return 0;
    return credit->promised - credit->first_promised;
}

uint32_t rme_credit_yield(struct rme_credit *credit, uint32_t asked, uint32_t returned)
{
    uint32_t keep = !credit->lean ? (uint32_t)RME_CREDIT_DATA : returned == 0;
    uint32_t spare = credit->have > keep ? credit->have - keep : 0;
    uint32_t more = credit->granted - credit->first_granted;

    if (!credit->exact)
        return 0;
    if (asked > spare)
        asked = spare;
    if (asked > more)
        asked = more;
    credit->have -= asked;
    credit->granted -= asked;
    return asked;
}

int rme_credit_yielded(struct rme_credit *credit, uint32_t count)
{
    if (count > rme_credit_surplus(credit) || count > credit->promised - credit->owed)
        return -EPROTO;
    credit->promised -= count;
    return 0;
}

uint32_t rme_credit_pool_lends(const struct rme_credit_pool *pool, uint32_t has,
                               uint32_t wanted)
{
    uint64_t left = pool->limit > pool->lent ? pool->limit - pool->lent : 0;
    uint64_t most = (left + has + POOL_PARTS - 1) / POOL_PARTS;

    if (most <= has)
        return 0;
    return wanted < most - has ? wanted : (uint32_t)(most - has);
}
