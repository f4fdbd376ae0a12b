/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two listeners that know each other only by the addresses they looked up.
 *
 * A process sends over the link that it made, and what others send to it comes over links that they made.  The address of such
 * a link is told to the host with the first unexpected message from it, and there the host then posts receives.  Hosts that
 * send each other only expected messages (OrangeFS's test-bmi-s2s) never learn it: each posts its receives at the address that
 * it looked up, over whose link nothing can come, because nobody on the other side can name that link.
 *
 * So the two ends that cannot have any other partner meet here: a receive at an address that was looked up, to which the host
 * has sent no unexpected message; and an expected message over a link that somebody else made, whose host has sent none either
 * (RME_WIRE_F_NAMELESS).  Both lead to the same engine, by the incarnation in its hello.  The receive moves to the message's
 * link; all that follows, a rendezvous, a cancel, the loss of that link, is as if it had been posted there.
 *
 * Why nothing else could be meant.  A host that has posted no unexpected message for an address has made no request there that
 * could be answered, and has announced no data.  OrangeFS's servers need that to be exact: each counts the tags of its own
 * requests from 1, so of two that ask each other something, one would otherwise take the data that belongs to the other's
 * request for its own answer.  The sender judges, by what its host has posted when the message goes, not the receiver by what has
 * arrived: a request that waits for its window is overtaken by the data that it announces.
 *
 * When the two can meet: a message finds no receive on its own link; a receive is posted and no message waits for it; a link
 * is up, so that it is known where an address leads.  After each of the three nothing is left that could be matched, so the
 * order of messages and that of receives is kept.  It looks at all peers, and only hosts of that kind ever pay for it.
 *
 * An incarnation is no secret: whoever has once connected to an engine can repeat it and be taken for that engine here, and only
 * here.  Hosts of requests and answers are not exposed to that.
 */
#include "engine.h"

/* Do both lead to the same engine?  An address that was never connected leads nowhere yet. */
static bool same_engine(const struct rme_peer *active, const struct rme_peer *passive)
{
    return rme_mutual_may(active) && active->was_up && passive->passive &&
           active->hello.incarnation == passive->hello.incarnation;
}

/* Does such a message wait there?  Once the sender names its link, it sends no more of them: they are the oldest. */
static bool nameless(const struct rme_slot *slot)
{
    const struct rme_node *first = slot->messages.next;

    return first != &slot->messages && (rme_entry(first, struct rme_message, link)->flags & RME_WIRE_F_NAMELESS) != 0;
}

static void move_to(struct rme_op *op, struct rme_peer *passive)
{
    rme_node_remove(&op->of_peer);
    op->peer = passive;
    rme_node_append(&passive->ops, &op->of_peer);
    rme_peer_work(passive);
}

struct rme_op *rme_mutual_recv(struct rme *rme, struct rme_peer *passive, int32_t tag)
{
    for (struct rme_node *node = rme->peers.next; node != &rme->peers; node = node->next) {
        struct rme_peer *active = rme_entry(node, struct rme_peer, of_engine);
        struct rme_slot *slot;
        struct rme_op *op;

        if (!same_engine(active, passive))
            continue;
        slot = rme_match_find(&rme->match, rme_match_key(active->serial, tag));
        if (slot == NULL || rme_node_alone(&slot->recvs))
            continue;
        op = rme_entry(slot->recvs.next, struct rme_op, link);
        rme_op_leave_slot(rme, op);
        move_to(op, passive);
        return op;
    }
    return NULL;
}

bool rme_mutual_posted(struct rme *rme, struct rme_op *op)
{
    const struct rme_peer *active = op->peer;

    for (struct rme_node *node = rme->peers.next; node != &rme->peers; node = node->next) {
        struct rme_peer *passive = rme_entry(node, struct rme_peer, of_engine);
        struct rme_slot *slot;

        if (!same_engine(active, passive))
            continue;
        slot = rme_match_find(&rme->match, rme_match_key(passive->serial, op->tag));
        if (slot == NULL || !nameless(slot))
            continue;
        rme_op_leave_slot(rme, op);
        move_to(op, passive);
        rme_recv_match(rme, op, slot);
        return true;
    }
    return false;
}

void rme_mutual_up(struct rme_peer *active)
{
    struct rme_node *node = active->ops.next;

    while (node != &active->ops) {
        struct rme_op *op = rme_entry(node, struct rme_op, of_peer);

        node = node->next;
        if (op->kind == RME_OP_RECV && op->state == RME_OP_POSTED)
            rme_mutual_posted(active->rme, op);
    }
}
