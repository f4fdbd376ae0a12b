/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Unexpected messages.  Small ones arrive eagerly and are copied at once into the buffer that
 * the host will get.  Larger ones, and those of a sender whose window is full, arrive as RTS
 * and are pulled: an op of kind PULL receives them like any rendezvous.  A pull starts when the
 * pulled messages of the peer that the host has not fetched leave room in the window, so the
 * memory used for a peer is bounded, and a host that fetches nothing does not block expected
 * messages.
 *
 * Each peer's messages are delivered in the order of sending: messages wait in
 * peer->proto->unexpected, and move from its head to peer->proto->complete as they become
 * complete.  The first complete message of each peer is in rme->protocols->unexpected: the host
 * fetches from the peers in turn, so a peer that sends many messages delays another peer by one
 * message.  Complete messages outlive their peer.  A hash table finds a fetched buffer by its
 * address, so an invalid pointer of the host is harmless.
 */
#include <errno.h>

#include "base/addr_int.h"
#include "proto/proto.h"

void rme_unexp_publish(struct rme *rme)
{
    struct list_head *node;

    if (list_empty(&rme->protocols->unpublished))
        return;
    while ((node = list_pop(&rme->protocols->unpublished)) != NULL)
        list_add_tail(node, &rme->protocols->unexpected);
    rme->protocols->unexpected_changes++;
    rme_wait_notify(rme, RME_WAIT_UNEXPECTED);
}

void rme_unexp_deliver(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;

    while (!list_empty(&peer->proto->unexpected)) {
        struct rme_message *u =
            container_of(peer->proto->unexpected.next, struct rme_message, link);

        if (!u->complete || peer->completing_ops != 0)
            return;
        list_del_init(&u->link);
        if (list_empty(&peer->proto->complete)) {
            list_add_tail(&u->link, &rme->protocols->unpublished);
        } else { /* the host's list contains one of the peer already */
            rme->protocols->unexpected_changes++;
            rme_wait_notify(rme, RME_WAIT_UNEXPECTED);
        }
        list_add_tail(&u->waiting, &peer->proto->complete);
        rme_peer_count(peer, RME_C_UNEXPECTED_RECEIVED, 1);
        rme_peer_count(peer, RME_C_BYTES_RECEIVED, u->total);
        if (!rme_is_ending(rme))
            rme_unexp_publish(rme);
    }
}

void rme_unexp_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_message *u;

    if (message->payload_length > RME_UNEXPECTED_MAX ||
        rme_window_got(&peer->holding[RME_UNEXPECTED_STREAM], message->payload_length) != 0) {
        rme_peer_protocol_error(peer, "more unexpected messages than the window allows");
        return;
    }
    u = rme_message_copy(peer, message->tag, message->payload, message->payload_length);
    if (u == NULL)
        return;
    u->from = peer->proto->links;
    rme_peer_count(peer, RME_C_RECVS_EAGER, 1);
    u->complete = true;
    list_add_tail(&u->link, &peer->proto->unexpected);
    rme_unexp_deliver(peer);
}

/* ---- Pulling ---- */

/* bytes of a pull in addition to its message */
#define PULL_KEPT (sizeof(struct rme_op) + sizeof(struct rme_rndv))

/* Cost of a pull against the window: that of an eager message, so that empty messages are
 * bounded, too. */
static uint32_t pull_cost(const struct rme_message *u)
{
    return (uint32_t)u->total + RME_HELD_COST;
}

/* Makes a message with the memory for that of `rts`, in its place, and starts the pull, which
 * frees `rts`.  False: no memory. */
static bool pull(struct rme_peer *peer, struct rme_message *rts)
{
    struct rme *rme = peer->rme;
    struct rme_message *full = rme_message_new(peer, rts->tag, rts->total);
    struct rme_op *op = full != NULL ? rme_op_new(&rme->operations->table, 1) : NULL;

    if (op == NULL) {
        if (full != NULL)
            rme_message_free(full);
        return false;
    }
    full->pulled = true;
    full->total = rts->total;
    list_add_tail(&full->link, &rts->link);
    list_del_init(&rts->link);
    list_del_init(&rts->waiting);
    rme_table_drop(&rme->table, &rts->by_handle);
    /* held until the peer returns credits, which may take any time */
    rme_quota_add(peer, RME_QUOTA_RX, PULL_KEPT);
    op->kind = RME_OP_PULL;
    op->state = RME_OP_FREE;
    op->tag = full->tag;
    op->user = full;
    op->seg[0] = (struct rme_seg){full->data, full->total};
    op->total = full->total;
    rme_op_attach(op, peer);
    rme_op_step(op, RME_OP_POSTED);
    peer->proto->pulled += pull_cost(full);
    peer->proto->rts_in[RME_UNEXPECTED_STREAM]--;
    rme_rndv_receive(rme, op, rts);
    rme_message_free(rts);
    return true;
}

/* Starts pulls, in order, while there is room. */
static void pull_more(struct rme_peer *peer)
{
    struct rme_message *rts;

    while ((rts = list_first(&peer->proto->pulls, struct rme_message, waiting)) != NULL &&
           rme_peer_listens(peer)) {
        if (peer->proto->pulled != 0 &&
            peer->proto->pulled + pull_cost(rts) >
                peer->rme->tuning.eager_window[RME_UNEXPECTED_STREAM])
            return;
        if (!pull(peer, rts)) {
            rme_peer_fail(peer, -ENOMEM, "no memory to pull a message");
            return;
        }
    }
}

void rme_unexp_rts_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_message *u;

    if (message->total > RME_UNEXPECTED_MAX) {
        rme_peer_protocol_error(peer, "an unexpected message above the size limit");
        return;
    }
    u = rme_message_from_rts(peer, RME_UNEXPECTED_STREAM, message);
    if (u == NULL)
        return;
    rme_message_wait(u);
    list_add_tail(&u->link, &peer->proto->unexpected);
    list_add_tail(&u->waiting, &peer->proto->pulls);
    rme_rts_hold(peer, RME_UNEXPECTED_STREAM);
    pull_more(peer);
}

void rme_unexp_pulled(struct rme *rme, struct rme_op *op)
{
    struct rme_message *u = op->user;
    struct rme_peer *peer = u->peer;

    rme_rx_uncharge(peer, PULL_KEPT);
    if (op->error == 0 && !u->dropped) {
        u->complete = true;
    } else {
        peer->proto->pulled -= pull_cost(u);
        rme_message_free(u);
    }
    rme_op_leave(rme, op);
    rme_unexp_deliver(peer);
    pull_more(peer);
    rme_peer_put(peer);
}

/* Sends the FIN that answers the cancel of an RTS, which counts as held until then. */
static bool send_answer(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_message *rts = container_of(control, struct rme_message, answer);
    bool unexpected = (rts->flags & RME_WIRE_F_UNEXPECTED) != 0;

    if (!rme_cancel_answer(peer, rts->from))
        return false;
    peer->proto->rts_in[unexpected ? RME_UNEXPECTED_STREAM : RME_EXPECTED]--;
    rme_message_free(rts);
    return true;
}

bool rme_message_cancelled(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    unsigned unexpected = cancel->flags & RME_WIRE_F_UNEXPECTED;
    struct rme_message *rts;
    struct rme_keyed *keyed;

    if ((cancel->flags & RME_WIRE_F_FROM_SENDER) == 0 || cancel->to != 0)
        return false;
    keyed = rme_table_find(&peer->rme->table, rme_handle_key(peer, cancel->from),
                           RME_HANDLE_MESSAGE);
    if (keyed == NULL)
        return false;
    rts = container_of(keyed, struct rme_message, by_handle);
    if ((rts->flags & RME_WIRE_F_UNEXPECTED) != unexpected)
        return false;
    rme_table_drop(&peer->rme->table, &rts->by_handle);
    rme_match_remove(&peer->rme->table, &rts->match);
    list_del_init(&rts->waiting);
    list_del_init(&rts->link);
    list_add_tail(&rts->link, &peer->proto->messages);
    rts->answer.send = send_answer;
    list_add_tail(&rts->answer.link, &peer->endings);
    rme_peer_schedule(peer);
    rme_unexp_deliver(peer); /* the messages behind it */
    return true;
}

/* ---- Delivering ---- */

struct rme_message *rme_unexp_take(struct rme *rme)
{
    struct list_head *node = list_pop(&rme->protocols->unexpected);
    struct rme_message *u;
    struct rme_peer *peer;

    if (node == NULL)
        return NULL;
    rme->protocols->unexpected_changes++;
    u = container_of(node, struct rme_message, link);
    peer = u->peer;
    list_del_init(&u->waiting);
    if (!list_empty(&peer->proto->complete)) {
        struct rme_message *next =
            container_of(peer->proto->complete.next, struct rme_message, waiting);

        /* which may have arrived after the end of an op that is not reported yet */
        list_add_tail(&next->link, rme_is_ending(rme) ? &rme->protocols->unpublished
                                                      : &rme->protocols->unexpected);
    }
    rme_rx_uncharge(peer, u->rx_buffered);
    if (u->pulled) {
        peer->proto->pulled -= pull_cost(u);
        pull_more(peer);
    } else if (u->from == peer->proto->links) {
        rme_window_free(peer, RME_UNEXPECTED_STREAM, u->total);
    }
    u->sender = peer->addr;
    u->sender->held++;
    rme_addr_get(u->sender);
    rme_table_put(&rme->table, &u->match.keyed, (uintptr_t)u->data, RME_BY_BUFFER);
    return u;
}

/* Frees a message that the host has fetched. */
static void lent_free(struct rme *rme, struct rme_keyed *lent)
{
    struct rme_message *u = container_of(lent, struct rme_message, match.keyed);

    rme_table_take(&rme->table, lent);
    u->sender->held--;
    rme_addr_put(u->sender);
    rme_message_recycle(rme, u);
}

bool rme_unexp_free(struct rme *rme, const void *buffer)
{
    struct rme_keyed *lent = rme_table_find(&rme->table, (uintptr_t)buffer, RME_BY_BUFFER);

    if (lent != NULL)
        lent_free(rme, lent);
    return lent != NULL;
}

/* ---- Dropping ---- */

static void drop(struct rme_peer *peer, bool all)
{
    struct rme_message *u, *next;

    list_for_each_safe(u, &peer->proto->unexpected, link, next) {
        if (u->is_rts || (u->complete && all))
            rme_message_free(u);
        else if (all)
            u->dropped = true; /* its pull ends with the link */
    }
    peer->proto->rts_in[RME_UNEXPECTED_STREAM] = 0;
}

/* Drops messages that cannot be completed without the link; the complete ones behind them are
 * delivered. */
void rme_unexp_disconnected(struct rme_peer *peer)
{
    drop(peer, false);
    rme_unexp_deliver(peer);
}

/* Drops all messages of a peer, including deliverable ones. */
void rme_unexp_discard(struct rme_peer *peer)
{
    struct list_head *node;

    drop(peer, true);
    while ((node = list_pop(&peer->proto->complete)) != NULL)
        rme_message_free(container_of(node, struct rme_message, waiting));
}

void rme_unexp_clear(struct rme *rme)
{
    for (uint32_t i = 0; i <= rme->table.mask; i++) {
        struct rme_keyed *next, *node = rme->table.chain[i];

        for (; node != NULL; node = next) {
            next = node->next;
            if (node->kind == RME_BY_BUFFER)
                lent_free(rme, node);
        }
    }
}

/* Has the peer messages that are not delivered yet? */
bool rme_unexp_has_messages(const struct rme_peer *peer)
{
    return !list_empty(&peer->proto->complete) || !list_empty(&peer->proto->unexpected);
}
