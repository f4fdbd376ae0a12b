/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Number of receive buffers advertised to a link at first, in use and idle (option credits;
 * doc/design/credits.md).  Credits beyond the first are a quota, the option credits_pool, and
 * return with PONG or, where posted receives cannot be withdrawn (caps.keeps_rx), at the end of
 * the link.
 *
 * Without a shared queue, a connection request advertises the minimum until the peer lacks
 * credits or has sent RME_GRANT_USED messages: below that number, a fabric may hand buffers to
 * its device one by one.
 *
 * A link with few credits needs a CREDIT message after each message of the peer, but the reply
 * to a request returns the credit as well.  So the peer waits in rme->credit_waiting until a
 * call returns nothing to the host, or for RME_CREDIT_WAIT_CALLS calls that return something.
 * A reply to the first peer of this stack removes the peer from the stack; a peer further down
 * gets no CREDIT message in the end if a reply has returned its credits.  The CREDIT message is
 * not delayed while another thread sleeps in the fabric: that thread may sleep for the next
 * message of the peer, and the thread that took this one may never call again.
 */
#include <errno.h>

#include "plan/split.h"
#include "transport/peer.h"

/* A link gets at most this part of its own credits and the rest of the pool: fair shares gave a
 * busy link beside 200 idle ones 6 credits instead of 42, and a message 1,620 instructions
 * instead of 1,545 (tests/instructions). */
#define POOL_PARTS 16u

uint32_t rme_grant_ask(const struct rme *rme)
{
    return rme->caps->shared_rx != 0 ? rme->tuning.credits : RME_HELLO_CREDITS_MIN;
}

uint32_t rme_grant_first(const struct rme *rme)
{
    const struct rme_quota *quota = &rme->quota[RME_QUOTA_CREDITS];
    bool usual = rme->caps->shared_rx == 0 && quota->used < quota->limit / 4 &&
                 rme->tuning.credits - 1 <= rme_quota_left(quota);

    return usual ? rme->tuning.credits : 1;
}

/* Reserves `more` buffers at the fabric and advertises them. */
static int advertise(struct rme_peer *peer, uint32_t more)
{
    int error = peer->rme->ops->rx_reserve(peer->link, more);

    if (error != 0)
        return error;
    peer->credit.grown += more;
    rme_quota_add(peer, RME_QUOTA_CREDITS, more);
    return 0;
}

void rme_grant_reserve(struct rme_peer *peer)
{
    uint32_t advertised = peer->credit.advertised + peer->credit.grown;

    if (advertised < RME_CREDITS_RESERVE)
        (void)advertise(peer, RME_CREDITS_RESERVE - advertised);
}

/* Returns how many more credits of the pool the link may get. */
static uint64_t room(const struct rme_peer *peer)
{
    uint64_t has = peer->quota[RME_QUOTA_CREDITS];
    uint64_t left = rme_quota_left(&peer->rme->quota[RME_QUOTA_CREDITS]);

    return rme_quota_rest((left + has + POOL_PARTS - 1) / POOL_PARTS, has);
}

void rme_grant_grow(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    uint32_t advertised = peer->credit.advertised + peer->credit.grown;
    uint32_t wanted = advertised < rme->tuning.credits ? rme->tuning.credits : 2 * advertised;
    uint32_t more;

    if (wanted > rme->tuning.credits_max)
        wanted = rme->tuning.credits_max;
    if (wanted <= advertised || rme_rx_account_is_tight(rme))
        return;
    more = (uint32_t)min_u64(wanted - advertised, room(peer));
    while (more != 0 && advertise(peer, more) == -ENOSPC)
        more /= 2; /* the network has fewer */
}

void rme_grant_used(struct rme_peer *peer)
{
    if (!peer->passive &&
        peer->credit.advertised + peer->credit.grown < peer->rme->tuning.credits)
        rme_grant_more(peer);
}

void rme_peer_reduced(struct rme_peer *peer, uint32_t count)
{
    if (count == 0)
        return;
    if (peer->rme->caps->keeps_rx || rme_credit_reduced(&peer->credit, count) != 0) {
        rme_peer_protocol_error(peer, "more credits returned than granted");
        return;
    }
    peer->rme->ops->rx_release(peer->link, count);
    rme_quota_add(peer, RME_QUOTA_CREDITS, -(uint64_t)count);
    rme_count_add(peer->rme, RME_C_CREDITS_REDUCED, count);
}

void rme_grant_due(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;

    if (peer->credit.advertised >= RME_CREDITS_RESERVE || peer->credit.grown != 0 ||
        rme->sleeping) {
        if (peer->credit_waits)
            rme_grant_send_waiting(rme);
        rme_peer_schedule(peer);
    } else if (!peer->credit_waits) {
        peer->credit_waits = true;
        peer->credit_next = rme->credit_waiting;
        rme->credit_waiting = peer;
    }
}
