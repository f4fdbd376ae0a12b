/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Flow control with credits.  The rules guarantee that no message is sent without a receive
 * buffer, and that two peers never block each other by waiting for credits.
 *
 * Sum of credits.  For one direction A -> B let G be the number that B advertised (`advertised`
 * at B).  At any moment
 *
 *     have at A  +  messages in flight A -> B  +  unreturned at B  +  credits in flight B -> A
       =  G.
 *
 * Each event keeps the sum:
 *
 * - Sending moves 1 from `have` to flight.
 * - Arrival moves 1 from flight to `unreturned`, after the buffer was given back to the device.
 * - Any message B -> A moves to flight all of `unreturned` but the part that is withheld.  Its
 *   arrival moves these credits to `have`.
 * - Growth adds the same number to G and to the credits in flight.
 * - Giving up moves credits from `have` to flight A -> B.  Their arrival removes them, and the
 *   same number from G.
 *
 * Messages in flight are at most G, and buffers of the device at least G: so the receiver is
 * always ready.
 *
 * Credits as acknowledgements.  Credits are returned in the order in which messages and
 * immediates are consumed.  `credits` of a header returns nothing else, so the sum of all
 * returned credits is the number of messages that the peer had consumed when sending the header
 * (`acked`).  op/end.c needs this number to be exact; therefore CREDIT messages advertise new
 * buffers in a field of their own.
 *
 * Giving up.  A side that has advertised more than at first sends PING on an idle link.  The
 * other side gives up the credits in hand except those of the reserve (PONG).  The buffers
 * belong to the asking side only after PONG, because messages could use them before.  No side
 * goes below the promise of its hello, so G >= 4 holds still, and all arguments below, made for
 * any G, hold for the smaller one.
 *
 * The reserve.  Data needs 3 credits in hand, control 2, a CREDIT message 1.  A CREDIT message
 * returns or advertises at least one credit; one about a ring or a window is control.
 * B must send a CREDIT message once `unreturned` reaches max(G/2, 1), unless another message
 * returns the credits before.
 *
 * No deadlock.  Let nothing be in flight.  Then have(A) = G - unreturned(B), and likewise in
 * the other direction.  Let A wait with data or control, so have(A) <= 2.  Then unreturned(B)
 * >= G - 2 >= G/2 because G >= 4: B must send a CREDIT message, and does unless have(B) = 0.
 * The last credit is spent on CREDIT messages only.  So if have(B) = 0, the last message of B
 * was a CREDIT message, which has arrived and gave A at least one credit.  If now have(A) = 0
 * as well, A has spent that credit later, on a CREDIT message, which has arrived at B after B's
 * last message.  So B has a credit: a contradiction.  Hence one of the two has a credit and
 * must send a CREDIT message.  The other side then gets at least G/2 - 1 >= 1 credits.  By the
 * same argument every waiting message is sent eventually, because operations in control class
 * never wait for data class.
 *
 * A single credit.  A receive queue shared by all links keeps its buffers, so a thousand idle
 * links should not have eight each.  The accepting side therefore advertises one credit, the
 * minimum with which the other side can send at all.  Only one side of a link can have so few,
 * because a connection request advertises 4 or more.  Let A be the single-credit side and B the
 * accepting side.  B keeps the reserve.  A keeps none while granted fewer than 4: any message
 * may take its last credit, with one exception.  If as many messages of B as A has advertised
 * have arrived and are still unreturned, the last credit of A is reserved for a message that
 * returns at least one.  An immediate returns none, and a header may return none while credits
 * are withheld.
 *
 * Let nothing be in flight, and have(A) = 0.  Then unreturned(B) = G >= 1, so B must send a
 * CREDIT message, and does unless have(B) = 0.  B may delay the CREDIT message, because a reply
 * of its host may return the credit: until a call of its host returns nothing, or for
 * RME_CREDIT_WAIT_CALLS calls (grant.c).  B spends its last credit on CREDIT messages only.  So
 * if have(B) = 0, the last message of B was a CREDIT message, which gave A at least one credit.
 * Since then A has returned nothing, because otherwise B would have a credit.  So from the
 * arrival of that message on, all credits that A has advertised were unreturned at A, and A
 * cannot have spent its last credit: a contradiction.
 *
 * Now let B wait: have(B) <= 2.  Then unreturned(A) >= G/2, and A must send a CREDIT message.
 * A does if have(A) > 0; if not, B sends A a credit by the argument above.  Once A has been
 * granted 4 or more, both keep the reserve, a special case of A's rule.  CREDIT messages of A
 * use its one credit, too, but cannot block its other messages indefinitely: one CREDIT message
 * gives B all its credits, so the next message of B returns A's credit and is not paid for with
 * B's last credit.  Then the exception does not hold.
 *
 * Growth.  With each message that takes its last credit A reports a need for more credits, and
 * a side that has to wait for a credit reports this in its next header.  B then advertises more
 * in a CREDIT message: the usual number with a first growth, then twice as many each time, up
 * to a limit.  All credits beyond the first of each link of a shared queue are a quota
 * (quota.c), because their buffers stay in the queue when the links are gone.  A link gets
 * at most a sixteenth of its own and the rest (grant.c).  So a few links get as many as needed,
 * and many links leave credits to later ones.  A very large number of
 * links may exhaust it: a further link has one credit, waits for a reply after each message,
 * and gets more when others idle or end.
 *
 * Ring.  Credits also acknowledge messages in the ring of a peer (ring/tx.c).
 * So a CREDIT message is due as well when the unreturned credits stand for half of the ring.  A
 * sender waits for room in the ring only while three quarters are unreturned, so it waits as
 * for a credit: let nothing be in flight; then the owner must send a CREDIT message, and can by
 * the argument above.
 *
 * Withholding.  From a peer that makes this side buffer too much (rx_account.c) B withholds the
 * credits that A needs to start something.  B returns only the number that A lacks of 2 in
 * hand, and advertises at least 4 first.  If A keeps its reserve, only data of A is blocked.
 * Let nothing be in flight, and A wait with control: then have(A) <= 1, so B owes G - have(A)
 * >= G/2, of which at least one may be returned, and B must send a CREDIT message.  B can, and
 * B's own messages are sent, by the argument above, which assumes only that a CREDIT message
 * returns one or more.  B then sends one CREDIT message for each message of A, and A one for at
 * least two of B, so the exchange ends.  Only if both withhold from each other is each CREDIT
 * message answered by another one, until one of the hosts takes something.
 *
 * No endless exchange.  CREDIT messages use credits, too.  But one is sent for at least G/2 >=
 * 2 messages received, or to advertise more, which has a limit.  So an exchange of CREDIT
 * messages alone ends.  With a single credit one side answers each CREDIT message, but the
 * other only every second one, which is enough.
 *
 * Windows and RTS slots.  A message without room in the window is sent as RTS; a sender without
 * a free slot, too, waits for either.  A slot is free after the answer to its RTS, whose header
 * reports the window.  So the wait lasts only while the receiver holds rts_max RTS without an
 * answer (`rts_full`).  Then a CREDIT message of the control class reports the window after the
 * RTS of the last slot, and after each release of room.  Let A wait with nothing in flight.  If
 * B holds fewer RTS, an answer is queued at B, or its operation waits for memory, and is sent
 * by the argument above.  Else all room that B has released since its last header makes a
 * report due, so A knows the room: A waits for the host of B alone.  No report answers another
 * one.
 *
 * Buffers are given back at once, whether or not the message found a receive, so held messages
 * never block the link.  The windows limit the messages that the receiver holds.  A sender
 * whose window is full sends descriptors (RTS) only, and the hello of the receiver limits their
 * number.
 */
#include <errno.h>

#include "transport/credit.h"

#define CREDITS_MAX (1u << 20) /* limit of buffers for one peer */

void rme_credit_start(struct rme_credit *credit, uint32_t advertised, uint32_t have)
{
    *credit = (struct rme_credit){.have = have,
                                  .advertised = advertised,
                                  .granted = have,
                                  .first_advertised = advertised,
                                  .first_granted = have};
}

bool rme_credit_may_last(const struct rme_credit *credit, uint32_t returns)
{
    if (credit->granted >= RME_CREDITS_RESERVE || credit->have == 0)
        return false;
    return credit->have > 1 || returns != 0 || credit->unreturned < credit->advertised;
}

uint32_t rme_credit_give_more(struct rme_credit *credit)
{
    uint32_t give = rme_credit_more(credit);

    credit->advertised += give;
    credit->grown -= give;
    return give;
}

int rme_credit_gain(struct rme_credit *credit, uint32_t count, uint32_t more)
{
    if ((uint64_t)credit->have + count + more > CREDITS_MAX ||
        count > credit->spent - credit->acked)
        return -EPROTO;
    credit->have += count + more;
    credit->granted += more;
    credit->acked += count;
    return 0;
}

void rme_credit_throttle(struct rme_credit *credit, bool throttled)
{
    /* the credits in hand, those until the peer keeps a reserve, and one more */
    if (throttled && !credit->throttled)
        credit->starts_left = credit->advertised - credit->unreturned + RME_CREDITS_RESERVE + 1;
    credit->throttled = throttled;
}

uint32_t rme_credit_reduce(struct rme_credit *credit, uint32_t asked, uint32_t returned)
{
    uint32_t account = credit->first_granted >= RME_CREDITS_RESERVE ? (uint32_t)RME_CREDIT_DATA
                                                                    : returned == 0;
    uint32_t spare = credit->have > account ? credit->have - account : 0;
    uint32_t more = credit->granted - credit->first_granted;

    if (asked > spare)
        asked = spare;
    if (asked > more)
        asked = more;
    credit->have -= asked;
    credit->granted -= asked;
    return asked;
}

int rme_credit_reduced(struct rme_credit *credit, uint32_t count)
{
    if (count > credit->advertised - credit->first_advertised ||
        count > credit->advertised - credit->unreturned)
        return -EPROTO;
    credit->advertised -= count;
    return 0;
}
