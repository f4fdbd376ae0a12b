/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How many receive buffers a link is promised: at first, when it is used, and when it is idle.
 * credit.c has the account, and says why one is enough; what is beyond that comes out of
 * rme->credit_pool and goes back with a PONG, or the link.
 *
 * A device gives no receive back that was posted to a link's own queue.  So where links have
 * their own (caps.keeps_rx), what a PONG gives up stays lent: it is what the link gets first
 * when it would use more again, and goes back one by one as the link's messages use it; how
 * many did is looked at when the link speaks of its credits, and when its timer does.
 *
 * Who asks for a link and has no shared queue promises the least that there is, as long as the
 * link is not used.  It gets what is usual when the peer lacks credits, as any link does, or
 * when so many messages have come that it is not idle: below that, a fabric may hand buffers to
 * its device one by one.  What was promised beyond the first goes back with a PONG, but the
 * device keeps it until messages have used it.  So such a link says PING as long as there is
 * more than promised: each PONG takes one of them away.
 *
 * A link of so few owes a CREDIT message for each message that it gets.  But what came is often
 * a request, and its answer takes the credit along, if the CREDIT message does not go at once.
 * So the peer waits in rme->answers until a call has nothing for the host, which then has
 * answered what it would, or for RME_ANSWER_CALLS where each call has something.  A host that
 * makes no calls takes no messages either.  What is taken while another thread sleeps in the
 * fabric does not wait: that thread may sleep for the peer's next message, and who took this
 * one may never call again.
 */
#include "transport/peer.h"

#include <errno.h>

#define USED 16u /* messages after which a link is in use */

uint32_t rme_grant_ask(const struct rme *rme)
{
    return rme->caps->shared_rx != 0 ? rme->tuning.credits : RME_HELLO_CREDITS_MIN;
}

uint32_t rme_grant_first(const struct rme *rme, const struct rme_hello *hello)
{
    const uint8_t lean = RME_HELLO_F_LEAN | RME_HELLO_F_EXACT;
    const struct rme_credit_pool *pool = &rme->credit_pool;
    uint32_t left = pool->limit > pool->lent ? pool->limit - pool->lent : 0;

    if (rme->caps->shared_rx != 0 && (hello->flags & lean) == lean)
        return 1;
    if (pool->lent < pool->limit / 4 && rme->tuning.credits - 1 <= left)
        return rme->tuning.credits;
    if ((hello->flags & lean) == lean)
        return 1;
    return RME_HELLO_CREDITS_MIN - 1 <= left ? RME_HELLO_CREDITS_MIN : 0;
}

void rme_grant_lend(struct rme_peer *peer, uint32_t count)
{
    struct rme *rme = peer->rme;

    rme->credit_pool.lent += count - peer->lent;
    peer->lent = count;
    rme->stats.value[RME_C_CREDITS_LENT] = rme->credit_pool.lent;
}

void rme_grant_settle(struct rme_peer *peer)
{
    uint32_t used = peer->credit.taken - peer->spare_from;

    if (used > peer->spare)
        used = peer->spare;
    peer->spare -= used;
    peer->spare_from = peer->credit.taken;
    rme_grant_lend(peer, peer->lent - used);
}

/* The fabric has so many more for it: they are promised. */
static void promise(struct rme_peer *peer, uint32_t more)
{
    uint32_t again = more < peer->spare ? more : peer->spare; /* they are lent already */

    rme_credit_grow(&peer->credit, more);
    peer->spare -= again;
    rme_grant_lend(peer, peer->lent + more - again);
    peer->grew = true;
}

void rme_grant_reserve(struct rme_peer *peer)
{
    uint32_t promised = peer->credit.promised + peer->credit.grown;

    if (promised >= RME_CREDITS_RESERVE)
        return;
    rme_grant_settle(peer);
    if (peer->rme->ops->rx_reserve(peer->link, RME_CREDITS_RESERVE - promised) == 0)
        promise(peer, RME_CREDITS_RESERVE - promised);
}

void rme_grant_grow(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    uint32_t promised, wanted, more, spare;
    int error;

    rme_grant_settle(peer);
    spare = peer->spare;
    promised = peer->credit.promised + peer->credit.grown;
    wanted = promised < rme->tuning.credits ? rme->tuning.credits : 2 * promised;
    if (wanted > rme->tuning.credits_max)
        wanted = rme->tuning.credits_max;
    if (wanted <= promised || !rme_keep_may_grow(&rme->keep))
        return;
    more = wanted - promised;
    if (more > spare)
        more = spare + rme_credit_pool_lends(&rme->credit_pool, peer->lent, more - spare);
    error = more == 0 ? -ENOSPC : rme->ops->rx_reserve(peer->link, more);
    while (error == -ENOSPC && more > 1) /* the network has less: as many as it has */
        error = rme->ops->rx_reserve(peer->link, more /= 2);
    if (error == 0)
        promise(peer, more);
}

void rme_grant_rest(struct rme_peer *peer)
{
    peer->used_at = peer->credit.taken + USED;
}

void rme_grant_used(struct rme_peer *peer)
{
    if (!peer->passive &&
        peer->credit.promised + peer->credit.grown < peer->rme->tuning.credits)
        rme_grant_more(peer);
}

/* The promise is so many smaller; what the link has beyond it is to be used up. */
static void shrink(struct rme_peer *peer, uint32_t count)
{
    if (peer->rme->ops->rx_release(peer->link, count) != 0 && !peer->rme->caps->keeps_rx) {
        peer->ping_due = true;
        rme_peer_kick(peer);
    }
}

void rme_peer_pinged(struct rme_peer *peer, uint32_t asked)
{
    shrink(peer, 0);
    rme_grant_rest(peer);
    peer->asked = asked;
    peer->pong_due = true;
    if (peer->grew && rme_credit_surplus(&peer->credit) != 0)
        /* the link is idle for us as well; each asks once, else two would do it for ever */
        peer->ping_due = true;
    peer->grew = false;
    rme_peer_kick(peer);
}

void rme_peer_yielded(struct rme_peer *peer, uint32_t count)
{
    rme_grant_settle(peer);
    rme_grant_rest(peer);
    if (rme_credit_yielded(&peer->credit, count) != 0) {
        rme_peer_protocol_error(peer, "more credits returned than granted");
        return;
    }
    shrink(peer, count);
    if (count == 0)
        return;
    if (peer->rme->caps->keeps_rx)
        peer->spare += count;
    else
        rme_grant_lend(peer, peer->lent - count);
    rme_count_add(peer->rme, RME_C_CREDITS_YIELDED, count);
}

void rme_grant_due(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    bool waits = peer->credit.promised < RME_CREDITS_RESERVE && peer->credit.grown == 0 &&
                 !rme->sleeping && !rme->closing;

    if (!waits) {
        rme_node_remove(&peer->answer);
        rme_peer_kick(peer);
    } else if (rme_node_alone(&peer->answer)) {
        rme_node_append(&rme->answers, &peer->answer);
    }
}

void rme_grant_unanswered(struct rme *rme)
{
    struct rme_node *node;

    rme->answer_calls = 0;
    while ((node = rme_node_take(&rme->answers)) != NULL) {
        struct rme_peer *peer = rme_entry(node, struct rme_peer, answer);

        if (rme_credit_due(&peer->credit))
            rme_peer_kick(peer);
    }
}
