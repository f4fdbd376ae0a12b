/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protocol state of a peer, and the end of its operations with its links.
 *
 * When a link is given up nothing more is sent or matched on it: its ops leave their queues,
 * end with the error, and wait in peer->draining for the link to be down, because a device may
 * use their memory until then.
 */

#include "proto/proto.h"

static void created(struct rme_peer *peer)
{
    peer->sends = &peer->proto->sends;
    peer->rndv = &peer->proto->rndv;
    for (int stream = 0; stream < RME_STREAMS; stream++)
        list_init(&peer->sends->sendq[stream]);
    list_init(&peer->sends->waitq);
    list_init(&peer->proto->messages);
    list_init(&peer->proto->unexpected);
    list_init(&peer->proto->pulls);
    list_init(&peer->proto->complete);
    rme_early_cts_init(&peer->rndv->early);
    rme_ring_init(peer, &peer->proto->ring);
}

static void connected(struct rme_peer *peer)
{
    struct rme_early_cts *early = &peer->rndv->early;

    for (int stream = 0; stream < RME_STREAMS; stream++)
        peer->rndv->rts_out[stream] = peer->proto->rts_in[stream] = 0;
    peer->rts_full = false;
    peer->proto->links++;
    early->seen = early->sent = 0;
}

/* Ends the ops of a peer without a link, because connecting has failed. */
static void unreachable(struct rme_peer *peer, int error)
{
    struct list_head *node;

    while ((node = list_pop(&peer->ops)) != NULL)
        rme_op_stop(peer->rme, container_of(node, struct rme_op, of_peer), RME_STOP_LINK,
                    error);
}

static void disconnected(struct rme_peer *peer, int error)
{
    struct rme *rme = peer->rme;
    struct list_head *node;

    while ((node = list_pop(&peer->ops)) != NULL) {
        struct rme_op *op = container_of(node, struct rme_op, of_peer);

        op->refcount++;
        list_add_tail(&op->of_peer, &peer->draining);
        rme_op_stop(rme, op, RME_STOP_LINK, error);
    }
    while (!list_empty(&peer->proto->messages))
        rme_message_free(container_of(peer->proto->messages.next, struct rme_message, link));
    rme_unexp_disconnected(peer);
    rme_early_cts_drop(&peer->rndv->early);
    list_del_init(&peer->rndv->early.answer.link);
    list_del_init(&peer->ring->control.link);
    rme_xfer_end_turn(peer);
}

static void link_down(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    struct list_head *node;

    rme_xfers_lost(peer);
    rme_frags_lost(peer);
    rme_ring_down(peer);
    while ((node = list_pop(&peer->draining)) != NULL)
        rme_op_put(rme, container_of(node, struct rme_op, of_peer));
}

const struct rme_peer_ops rme_proto_peer_ops = {
    .proto_size = sizeof(struct rme_peer_proto),
    .created = created,
    .connected = connected,
    .disconnected = disconnected,
    .link_down = link_down,
    .unreachable = unreachable,
    .discard = rme_unexp_discard,
    .has_messages = rme_unexp_has_messages,
    .deliver = rme_unexp_deliver,
};
