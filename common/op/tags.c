/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sends that hold their tag (proto/send.c has the rules), and succession in match.h. */
#include "op/tags.h"

struct rme_match *rme_match_succeed(struct rme_match *match)
{
    struct rme_match *next = container_of(match->same.next, struct rme_match, same);

    list_del_init(&match->same);
    next->keyed = match->keyed;
    *next->keyed.at = &next->keyed;
    if (next->keyed.next != NULL)
        next->keyed.next->at = &next->keyed.next;
    match->keyed.at = NULL;
    return next;
}

struct rme_op *rme_tag_holder(const struct rme_peer *peer, int32_t tag)
{
    struct rme_match *first = NULL;

    if (peer->sends->tags_blocked != 0)
        first = rme_match_first(&peer->rme->table, rme_match_key(peer->serial, tag),
                                RME_BY_BLOCKED_TAG);
    return first != NULL ? container_of(first, struct rme_op, match) : NULL;
}

/* Adds a send to `waitq`, one with a slot of its own before those without. */
static void add_waiting(struct rme_op *op, struct list_head *waitq)
{
    struct list_head *at = op->rndv != NULL ? waitq->next : waitq;

    while (at != waitq && container_of(at, struct rme_op, link)->rndv != NULL)
        at = at->next;
    list_add_tail(&op->link, at);
}

void rme_send_wait(struct rme_op *op, struct list_head *waitq)
{
    struct rme_peer *peer = op->peer;

    if (!rme_match_is_first(&op->match)) {
        rme_match_add(&peer->rme->table, NULL, rme_match_key(peer->serial, op->tag),
                      RME_BY_BLOCKED_TAG, &op->match);
        peer->sends->tags_blocked++;
    }
    list_del_init(&op->link);
    if (waitq != NULL)
        add_waiting(op, waitq);
}

void rme_send_leave(struct rme_op *op)
{
    struct rme_peer *peer = op->peer;

    list_del_init(&op->link);
    if (op->kind == RME_OP_UNEXPECTED)
        return;
    peer->sends->preparing -= op->rndv != NULL;
    if (rme_match_is_first(&op->match) && !list_empty(&op->match.same)) {
        op = container_of(rme_match_succeed(&op->match), struct rme_op, match);
        list_del_init(&op->link);
        list_add_tail(&op->link, peer->sends->sendq[RME_EXPECTED].next);
        return;
    }
    peer->sends->tags_blocked -= rme_match_is_first(&op->match);
    rme_match_remove(&peer->rme->table, &op->match);
}

void rme_send_ready(struct rme *rme, struct rme_op *op)
{
    (void)rme;
    if (rme_match_is_first(&op->match) && list_empty(&op->link))
        add_waiting(op, &op->peer->sends->waitq);
    rme_peer_schedule(op->peer);
}
