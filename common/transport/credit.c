/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Flow control with credits; doc/design/credits.md proves the following.
 *
 * - For A -> B: have at A + messages in flight + unreturned at B + credits in flight to A is
 *   the number that B advertised, so a receive buffer is ready for each message.
 * - The sum of the returned credits is the number of messages that the peer has consumed.
 * - At least one side keeps a reserve: data needs 3 credits in hand, control 2, CREDIT 1.
 * - A side without reserve spends its last credit, but not on a message that returns none while
 *   all credits that this side has advertised are unreturned.
 * - CREDIT is due once half of the advertised credits are unreturned, so neither side waits for
 *   the other, and an exchange of CREDIT messages alone ends.
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
