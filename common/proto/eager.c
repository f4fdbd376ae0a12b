/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Eager messages, and the matching of all expected messages.
 *
 * A send copies the payload once, from the host's memory into a buffer of the fabric, and is
 * then complete.  A message that matches a posted receive is copied a second time, from the
 * fabric's buffer to the host's memory.  An unmatched message is copied to memory of the
 * engine, so that receive buffers never wait for the host.  The window bounds the unmatched
 * bytes (credit.h).  A sender whose window is full sends RTS instead, regardless of size.  A
 * message that is larger than its receive is refused (refuse.c).
 *
 * Order.  All expected messages of a peer, eager or RTS, leave one queue and arrive in one
 * stream.  Each message matches the oldest receive of its (peer, tag), or waits behind the
 * older messages of the tag: first in, first out, across protocols.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/message.h"
#include "proto/refuse.h"
#include "proto/rndv.h"
#include "proto/send.h"

/* buffered bytes for a peer above which further offers are dropped */
#define OFFERS_KEPT (256u << 10)

bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag, bool now)
{
    struct rme *rme = peer->rme;
    struct rme_wire_message message;
    size_t length = RME_WIRE_HEADER_SIZE + size;
    char *tx = rme_peer_tx(peer, RME_CREDIT_DATA);

    if (tx == NULL)
        return false;
    rme_peer_head(peer, stream == RME_EXPECTED ? RME_WIRE_EAGER : RME_WIRE_UNEXPECTED, tag,
                  &message);
    if (stream == RME_EXPECTED)
        rme_invite_sent(&peer->talk->invites, tag, 0);
    rme_wire_encode_head(&message, tx);
    rme_seg_gather(seg, nseg, 0, tx + RME_WIRE_HEADER_SIZE, size);
    rme_window_sent(&peer->window[stream], size);
    if (!now || rme->ops->tx_post == NULL) {
        rme->ops->tx_send(peer->link, tx, length);
        rme->pending |= RME_PENDING_FLUSH;
    } else if (!rme->ops->tx_post(peer->link, tx, length)) {
        rme->pending |= RME_PENDING_FLUSH;
    }
    rme_send_copied(peer, stream, size);
    return true;
}

static bool in_turn(const struct rme_op *op)
{
    return op->rndv == NULL && rme_eager_fits(op->peer, rme_op_stream(op), op->size);
}

static enum rme_started start(struct rme *rme, struct rme_op *op)
{
    if (!in_turn(op))
        return RME_START_OTHER;
    if (!rme_eager_send(op->peer, rme_op_stream(op), op->seg, op->nseg, op->size, op->tag,
                        false))
        return RME_START_STUCK;
    rme_times_went(op, RME_PROTO_EAGER);
    rme_send_leave(op);
    rme_op_complete(rme, op);
    return RME_START_GONE;
}

/* Copies the payload of the message at `place` to its receive and ends the receive.  `proto` is
 * the protocol that carried the message. */
static void deliver(struct rme *rme, struct rme_op *op, const void *payload, uint64_t size,
                    uint32_t place, enum rme_proto proto)
{
    op->size = size;
    if (size > op->total) {
        rme_refuse(op, place);
        rme_op_end(rme, op, -EMSGSIZE);
        return;
    }
    rme_holding_took(&op->peer->holding[RME_EXPECTED], size);
    rme_seg_scatter(op->seg, op->nseg, 0, payload, size);
    rme_count_add(rme, RME_C_BYTES_COPIED, size);
    rme_peer_count(op->peer, RME_C_RECVS_EAGER, 1);
    rme_times_went(op, proto);
    rme_op_complete(rme, op);
}

/* Takes the oldest receive for a message (its RTS, or NULL) out of its slot; NULL: none.  A
 * receive that is being cancelled matches only an RTS that is bound to its invitation. */
static struct rme_op *take_recv(struct rme *rme, struct rme_peer *peer, int32_t tag,
                                const struct rme_message *rts)
{
    struct rme_slot *slot;
    struct rme_op *op;

    do {
        slot = rme_match_find(&rme->operations->match, rme_match_key(peer->serial, tag));
        if (slot == NULL || rme_node_alone(&slot->recvs))
            return NULL;
        op = rme_entry(slot->recvs.next, struct rme_op, link);
        rme_op_leave_slot(rme, op);
    } while (op->state == RME_OP_CANCELLING && (rts == NULL || !rme_invite_meets(op, rts)));
    return op;
}

/* Buffers an unmatched message.  False: no memory. */
static bool keep(struct rme *rme, struct rme_message *message)
{
    struct rme_peer *peer = message->peer;

    message->slot =
        rme_match_get(&rme->operations->match, rme_match_key(peer->serial, message->tag));
    if (message->slot == NULL)
        return false;
    rme_node_append(&message->slot->messages, &message->link);
    rme_node_append(&peer->talk->messages, &message->of_peer);
    if (message->is_rts)
        rme_message_name(message);
    return true;
}

/*
 * Sends CANCEL_ACK for a message that was never matched, and frees the message.  Until then
 * both sides count the message as an RTS held here, so rts_max bounds the answers that wait for
 * credits.
 */
static bool send_forgotten(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_message *forgotten = rme_entry(control, struct rme_message, control);

    if (!rme_rndv_send_ack(peer, forgotten->from))
        return false;
    peer->talk->rts_in[forgotten->flags & RME_WIRE_F_UNEXPECTED ? RME_UNEXPECTED_STREAM
                                                                : RME_EXPECTED]--;
    rme_node_remove(&forgotten->control.link);
    rme_message_free(forgotten);
    return true;
}

static void drop_forgotten(struct rme_peer *peer, struct rme_control *control)
{
    (void)peer;
    rme_message_free(rme_entry(control, struct rme_message, control));
}

static const struct rme_control_kind forgotten_kind = {send_forgotten, drop_forgotten};

static struct rme_message *message_new(struct rme_peer *peer, int32_t tag, size_t payload)
{
    struct rme_message *message = malloc(sizeof(*message) + payload);

    if (message == NULL)
        return NULL;
    memset(message, 0, sizeof(*message));
    rme_node_init(&message->link);
    rme_node_init(&message->of_peer);
    rme_node_init(&message->control.link);
    message->control.kind = &forgotten_kind;
    message->kept = sizeof(*message) + payload;
    rme_keep(peer, message->kept);
    message->peer = peer;
    message->tag = tag;
    return message;
}

void rme_message_name(struct rme_message *message)
{
    rme_name_set(&message->peer->rme->mover->names, &message->name, message->peer->serial,
                 RME_NAME_MESSAGE, message->from);
}

static struct rme_message *find(struct rme_peer *peer, uint32_t from)
{
    struct rme_name *name =
        rme_name_find(&peer->rme->mover->names, peer->serial, RME_NAME_MESSAGE, from);

    return name != NULL ? rme_entry(name, struct rme_message, name) : NULL;
}

struct rme_message *rme_message_cancelled(struct rme_peer *peer,
                                          const struct rme_wire_message *cancel,
                                          bool unexpected)
{
    struct rme_message *message;

    if ((cancel->flags & RME_WIRE_F_FROM_SENDER) == 0 || cancel->to != 0 ||
        ((cancel->flags & RME_WIRE_F_UNEXPECTED) != 0) != unexpected)
        return NULL;
    message = find(peer, cancel->from);
    return message != NULL && (message->unexp != NULL) == unexpected ? message : NULL;
}

/* Removes a message from its slot and its names. */
static void take_out(struct rme *rme, struct rme_message *message)
{
    rme_name_drop(&rme->mover->names, &message->name);
    rme_node_remove(&message->link);
    rme_node_remove(&message->of_peer);
    if (message->slot != NULL)
        rme_match_release(&rme->operations->match, message->slot);
    message->slot = NULL;
}

void rme_message_free(struct rme_message *message)
{
    rme_name_drop(&message->peer->rme->mover->names, &message->name);
    rme_unkeep(message->peer, message->kept);
    free(message->opening);
    free(message);
}

static enum rme_proto came_by(const struct rme_peer *peer,
                              const struct rme_wire_message *arrived)
{
    return rme_fast_there(peer, arrived) ? RME_PROTO_FAST : RME_PROTO_EAGER;
}

static void eager_arrived(struct rme_peer *peer, const struct rme_wire_message *arrived)
{
    struct rme *rme = peer->rme;
    struct rme_message *message;
    struct rme_op *op;

    if (rme_holding_got(&peer->holding[RME_EXPECTED], arrived->payload_length) != 0) {
        rme_peer_protocol_error(peer, "more eager messages than the window allows");
        return;
    }
    peer->talk->invites.seen++;
    op = take_recv(rme, peer, arrived->tag, NULL);
    if (op != NULL) {
        if (op->state == RME_OP_INVITING)
            rme_invite_void(rme, op);
        deliver(rme, op, arrived->payload, arrived->payload_length,
                peer->holding[RME_EXPECTED].got,
                op->watch != NULL ? came_by(peer, arrived) : RME_PROTO_EAGER);
        return;
    }
    message = message_new(peer, arrived->tag, arrived->payload_length);
    if (message == NULL) {
        rme_message_no_memory(peer);
        return;
    }
    message->flags = arrived->flags;
    message->total = arrived->payload_length;
    message->from = peer->holding[RME_EXPECTED].got;
    message->proto = came_by(peer, arrived);
    rme_count(rme, RME_C_UNMATCHED_EAGER);
    memcpy(message->data, arrived->payload, arrived->payload_length);
    rme_count_add(rme, RME_C_BYTES_COPIED, arrived->payload_length);
    if (!keep(rme, message)) {
        rme_message_free(message);
        rme_message_no_memory(peer);
    }
}

void rme_message_shorten(struct rme_message *message)
{
    size_t bytes;

    if (message->opening == NULL)
        return;
    bytes = sizeof(*message->opening) +
            message->opening->nsegment * sizeof(message->opening->segment[0]);
    if (message->peer->kept + bytes <= OFFERS_KEPT) {
        message->kept += bytes;
        rme_keep(message->peer, bytes);
        return;
    }
    free(message->opening);
    message->opening = NULL;
    message->shortened = true;
}

struct rme_message *rme_message_from_rts(struct rme_peer *peer,
                                         const struct rme_wire_message *arrived)
{
    struct rme_message *message = message_new(peer, arrived->tag, 0);

    if (message == NULL)
        return NULL;
    message->is_rts = true;
    message->flags = arrived->flags;
    message->from = arrived->from;
    message->shape = arrived->shape;
    message->load_ops = arrived->load_ops;
    message->load_bytes = arrived->load_bytes;
    message->total = arrived->total;
    if (arrived->window == 0)
        return message;
    message->opening = rme_opening_new(arrived);
    if (message->opening == NULL) {
        rme_message_free(message);
        return NULL;
    }
    return message;
}

static void rts_arrived(struct rme_peer *peer, const struct rme_wire_message *arrived)
{
    struct rme *rme = peer->rme;
    struct rme_message *message;
    struct rme_op *op;

    if (peer->talk->rts_in[RME_EXPECTED] >= rme->tuning.rts_max) {
        rme_peer_protocol_error(peer, "more RTS than the limit");
        return;
    }
    message = rme_message_from_rts(peer, arrived);
    if (message == NULL) {
        rme_message_no_memory(peer);
        return;
    }
    peer->talk->invites.seen++;
    rme_fast_wanted(peer, arrived->total);
    op = take_recv(rme, peer, arrived->tag, message);
    if (op != NULL) {
        rme_rndv_receive(rme, op, message);
        rme_message_free(message);
    } else if (keep(rme, message)) {
        rme_message_shorten(message);
        peer->talk->rts_in[RME_EXPECTED]++;
    } else {
        rme_message_free(message);
        rme_message_no_memory(peer);
    }
}

void rme_recv_match(struct rme *rme, struct rme_op *op, struct rme_slot *slot)
{
    struct rme_message *message = rme_entry(slot->messages.next, struct rme_message, link);

    take_out(rme, message);
    if (message->is_rts) {
        op->peer->talk->rts_in[RME_EXPECTED]--;
        rme_rndv_receive(rme, op, message);
    } else {
        deliver(rme, op, message->data, message->total, message->from, message->proto);
    }
    rme_message_free(message);
}

void rme_message_forget(struct rme_message *message)
{
    struct rme_peer *peer = message->peer;

    take_out(peer->rme, message);
    rme_node_append(&peer->endings, &message->control.link);
    rme_peer_kick(peer);
}

/* The sender cancels an expected message that no receive has matched. */
static bool cancelled(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    struct rme_message *message = rme_message_cancelled(peer, cancel, false);

    if (message == NULL)
        return false;
    rme_message_forget(message);
    return true;
}

static void made(struct rme_peer *peer)
{
    rme_node_init(&peer->talk->messages);
}

static void started(struct rme_peer *peer)
{
    for (int stream = 0; stream < RME_STREAMS; stream++)
        peer->talk->rts_out[stream] = peer->talk->rts_in[stream] = 0;
}

static void left(struct rme_peer *peer)
{
    while (!rme_node_alone(&peer->talk->messages)) {
        struct rme_message *message =
            rme_entry(peer->talk->messages.next, struct rme_message, of_peer);

        take_out(peer->rme, message);
        rme_message_free(message);
    }
}

const struct rme_protocol rme_protocol_eager = {
    .start = start,
    .in_turn = in_turn,
    .cancelled = cancelled,
    .arrived = {[RME_WIRE_EAGER] = eager_arrived, [RME_WIRE_RTS] = rts_arrived},
    .made = made,
    .started = started,
    .left = left,
};
