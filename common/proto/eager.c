/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Eager messages, and the matching of all expected messages.
 *
 * A send copies the payload once, from the host's memory into a buffer of the fabric, and is
 * then complete.  A message that matches a posted receive is copied a second time, from the
 * fabric's buffer to the host's memory.  An unmatched message is copied to memory of the
 * engine, so that receive buffers never wait for the host.  The window bounds the unmatched
 * bytes (credit.h).  A sender whose window is full sends RTS instead, regardless of size.  A
 * message that is larger than its receive is refused.
 *
 * Memory of unmatched messages of 2 KiB and more is kept for the next ones, up to one window:
 * malloc() would give the end of the heap back after each burst, and half of the time of the
 * next burst would be page faults.
 *
 * Order.  All expected messages of a peer, eager or RTS, leave one queue and arrive in one
 * stream.  Each message matches the oldest receive of its (peer, tag), or waits behind the
 * older messages of the tag: first in, first out, across protocols.
 *
 * Refusal.  An eager message that is larger than its receive ends the receive with an error,
 * once FIN with the flag EAGER was sent.  FIN names the message by its place in the stream: the
 * cost of all eager messages up to it, which both sides count for the window (credit.h).  The
 * sender logs the loss in one line and counts it; the send stays complete, whether or not its
 * host has fetched the completion.  With eager_max=0 every message that could be refused goes
 * by rendezvous, where both sides wait for the match.  A cancel of the receive before FIN is
 * sent ends the receive, and the sender gets no report.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/account.h"

#define SPARE_MIN 2048u /* smallest room of a message whose memory is kept */

bool rme_eager_send_now(struct rme_peer *peer, enum rme_stream stream, const void *base,
                        uint64_t size, int32_t tag)
{
    bool (*send_now)(struct rme_link *, const void *, size_t, const void *, size_t) =
        peer->rme->ops->send_now;
    struct rme_wire_message message;
    uint8_t head[RME_WIRE_HEADER_SIZE];

    if (send_now == NULL || peer->tx_wait || !rme_credit_may(&peer->credit, RME_CREDIT_DATA))
        return false;
    rme_head_fill(peer, RME_WIRE_EAGER, tag, &message);
    message.flags |= rme_stream_flag(stream);
    rme_wire_copy_head(head, &message);
    if (!send_now(peer->link, head, sizeof(head), base, size))
        return false;
    rme_head_sent(peer, &message);
    rme_eager_sent(peer, stream, tag, size);
    return true;
}

bool rme_eager_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag)
{
    struct rme *rme = peer->rme;
    struct rme_wire_message message;
    char *tx = rme_peer_tx(peer, RME_CREDIT_DATA);

    if (tx == NULL)
        return false;
    rme_peer_head(peer, RME_WIRE_EAGER, tag, &message);
    message.flags |= rme_stream_flag(stream);
    rme_wire_copy_head(tx, &message);
    rme_seg_copy(seg, nseg, 0, tx + RME_WIRE_HEADER_SIZE, size, false);
    rme->ops->tx_send(peer->link, tx, RME_WIRE_HEADER_SIZE + size);
    rme->pending |= RME_PENDING_FLUSH;
    rme_eager_sent(peer, stream, tag, size);
    return true;
}

enum rme_proto rme_message_plan(const struct rme_peer *peer, enum rme_stream stream,
                                const struct rme_seg *seg, uint32_t nseg, uint64_t size)
{
    if (rme_plan_copied(size, peer->eager_max[stream], 0) == RME_PROTO_EAGER)
        return RME_PROTO_EAGER;
    return rme_plan_copied(size, 0, rme_ring_max(peer, stream, seg, nseg, size));
}

enum rme_started rme_eager_start(struct rme *rme, struct rme_op *op)
{
    if (!rme_window_fits(&op->peer->eager_window[rme_op_stream(op)], op->size))
        return RME_START_OTHER;
    if (!rme_eager_send(op->peer, rme_op_stream(op), op->seg, op->nseg, op->size, op->tag))
        return RME_START_STUCK;
    rme_send_leave(op);
    if (op->kind == RME_OP_UNEXPECTED)
        rme_op_end(rme, op, 0);
    else
        rme_op_complete(rme, op);
    return RME_START_GONE;
}

/* ---- The ring of the peer ---- */

/* May the message be written into the ring now?  An early CTS of the exact size has precedence,
 * because it saves both copies. */
static enum rme_ring_fit ring_admit(struct rme_peer *peer, enum rme_stream stream,
                                    uint64_t size, int32_t tag)
{
    if (stream == RME_EXPECTED && rme_early_cts_is_for(&peer->rndv->early, tag, size))
        return RME_RING_OTHER;
    return rme_ring_admit(peer, stream, size);
}

bool rme_ring_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag)
{
    if (ring_admit(peer, stream, size, tag) != RME_RING_ROOM ||
        !rme_ring_write(peer, stream, seg, nseg, size, tag))
        return false;
    rme_eager_sent(peer, stream, tag, size);
    return true;
}

/* Starts a send.  The first expected message of the queue waits for room if the room is certain
 * to come. */
enum rme_started rme_ring_start(struct rme *rme, struct rme_op *op)
{
    enum rme_stream stream = rme_op_stream(op);
    enum rme_ring_fit fit = ring_admit(op->peer, stream, op->size, op->tag);

    if (fit == RME_RING_WAIT && stream == RME_EXPECTED && !rme_match_is_first(&op->match)) {
        rme_ring_await(op->peer);
        return RME_START_STUCK;
    }
    if (fit != RME_RING_ROOM) {
        rme_count_add(rme, RME_C_RING_FULL, fit != RME_RING_OTHER);
        return RME_START_OTHER;
    }
    if (!rme_ring_write(op->peer, stream, op->seg, op->nseg, op->size, op->tag))
        return RME_START_STUCK;
    rme_eager_sent(op->peer, stream, op->tag, op->size);
    rme_send_leave(op);
    rme_op_end(rme, op, 0);
    return RME_START_GONE;
}

/* Ends a receive with the payload of the message at `place`.  False: the receive is too small,
 * and the message refused. */
static inline __attribute__((always_inline)) bool deliver(struct rme_peer *peer,
                                                          struct rme_op *op,
                                                          const void *payload, uint64_t size,
                                                          uint32_t place)
{
    op->size = size;
    if (size > op->total) {
        rme_rndv_refuse(peer->rme, op, place);
        return false;
    }
    rme_window_free(peer, RME_EXPECTED, size);
    if (__builtin_expect(op->nseg == 1, 1))
        memcpy(op->seg->base, payload, size);
    else
        rme_seg_copy(op->seg, op->nseg, 0, (void *)(uintptr_t)payload, size, true);
    rme_count_add(peer->rme, RME_C_BYTES_COPIED, size);
    rme_peer_count(peer, RME_C_RECVS_EAGER, 1);
    rme_op_complete(peer->rme, op);
    return true;
}

/* Takes the oldest receive for an EAGER or RTS out of the table; NULL: none. */
static inline __attribute__((always_inline)) struct rme_op *take_recv(struct rme *rme,
                                                                      struct rme_peer *peer,
                                                                      int32_t tag)
{
    struct rme_match *first =
        rme_match_first(&rme->table, rme_match_key(peer->serial, tag), RME_BY_TAG);
    struct rme_op *op;

    peer->rndv->early.seen++;
    if (first == NULL || first->is_message)
        return NULL;
    op = container_of(first, struct rme_op, match);
    rme_match_remove(&rme->table, first);
    if (op->state == RME_OP_EARLY_CTS)
        rme_early_cts_void(rme, op);
    return op;
}

/* Lets an unmatched message wait for its receive. */
static void buffer_message(struct rme *rme, struct rme_message *message)
{
    struct rme_peer *peer = message->peer;
    struct rme_table *table = &rme->table;
    uint64_t key = rme_match_key(peer->serial, message->tag);

    message->match.is_message = true;
    rme_match_add(table, rme_match_first(table, key, RME_BY_TAG), key, RME_BY_TAG,
                  &message->match);
    list_add_tail(&message->link, &peer->proto->messages);
}

/* Takes the memory that was kept last, if it suits a message with this room; NULL: none. */
static struct rme_message *take_spare(struct rme *rme, size_t room)
{
    struct list_head *node = room >= SPARE_MIN ? list_pop(&rme->protocols->spare) : NULL;
    struct rme_message *spare;

    if (node == NULL)
        return NULL;
    spare = container_of(node, struct rme_message, link);
    rme->protocols->spare_bytes -= spare->room;
    if (spare->room >= room && spare->room / 2 <= room)
        return spare;
    free(spare);
    return NULL;
}

void rme_message_recycle(struct rme *rme, struct rme_message *message)
{
    struct rme_protocols *protocols = rme->protocols;

    if (message->room < SPARE_MIN ||
        message->room + protocols->spare_bytes > rme->tuning.eager_window[RME_EXPECTED]) {
        free(message);
        return;
    }
    protocols->spare_bytes += message->room;
    list_add_tail(&message->link, protocols->spare.next); /* at the head */
}

void rme_message_clear(struct rme *rme)
{
    struct list_head *node;

    while ((node = list_pop(&rme->protocols->spare)) != NULL)
        free(container_of(node, struct rme_message, link));
}

struct rme_message *rme_message_new(struct rme_peer *peer, int32_t tag, size_t room)
{
    struct rme_message *message = take_spare(peer->rme, room);
    size_t size = message != NULL ? message->room : room;

    if (message == NULL)
        message = malloc(sizeof(*message) + room);
    if (message == NULL) {
        rme_peer_fail(peer, -ENOMEM, "no memory to buffer a message");
        return NULL;
    }
    memset(message, 0, sizeof(*message));
    message->room = size;
    list_init(&message->match.same);
    list_init(&message->link);
    list_init(&message->waiting);
    list_init(&message->answer.link);
    message->rx_buffered = sizeof(*message) + size;
    rme_quota_add(peer, RME_QUOTA_RX, message->rx_buffered);
    message->peer = peer;
    message->tag = tag;
    return message;
}

struct rme_message *rme_message_copy(struct rme_peer *peer, int32_t tag, const void *payload,
                                     size_t size)
{
    struct rme_message *message = rme_message_new(peer, tag, size);

    if (message == NULL)
        return NULL;
    message->total = size;
    memcpy(message->data, payload, size);
    rme_count_add(peer->rme, RME_C_BYTES_COPIED, size);
    return message;
}

void rme_message_free(struct rme_message *message)
{
    struct rme *rme = message->peer->rme;

    rme_table_drop(&rme->table, &message->by_handle);
    rme_match_remove(&rme->table, &message->match);
    list_del_init(&message->link);
    list_del_init(&message->waiting);
    list_del_init(&message->answer.link);
    rme_rx_uncharge(message->peer, message->rx_buffered);
    free(message->remote_window);
    rme_message_recycle(rme, message);
}

/* Keeps a message without a receive. */
__attribute__((noinline)) static void buffer_eager(struct rme_peer *peer, int32_t tag,
                                                   const void *payload, size_t size)
{
    struct rme_message *message = rme_message_copy(peer, tag, payload, size);

    if (message == NULL)
        return;
    message->from = peer->holding[RME_EXPECTED].total;
    rme_count(peer->rme, RME_C_UNMATCHED_EAGER);
    buffer_message(peer->rme, message);
}

/* Matches an expected message that has arrived whole, in a receive buffer or in the ring.
 * False: the link has ended. */
static inline __attribute__((always_inline)) bool arrived_whole(struct rme_peer *peer,
                                                                int32_t tag,
                                                                const void *payload,
                                                                size_t size)
{
    struct rme_window *holding = &peer->holding[RME_EXPECTED];
    struct rme_op *op;

    if (rme_window_got(holding, size) != 0) {
        rme_peer_protocol_error(peer, "more eager messages than the window allows");
        return false;
    }
    op = take_recv(peer->rme, peer, tag);
    if (op != NULL && deliver(peer, op, payload, size, holding->total))
        return true;
    if (op == NULL)
        buffer_eager(peer, tag, payload, size);
    return rme_peer_listens(peer);
}

void rme_eager_arrived(struct rme_peer *peer, const struct rme_wire_message *arrived)
{
    (void)arrived_whole(peer, arrived->tag, arrived->payload, arrived->payload_length);
}

bool rme_take_eager(struct rme_peer *peer, const void *data, size_t length)
{
    size_t size = length - RME_WIRE_HEADER_SIZE;
    struct rme_wire_message head;

    if (length < RME_WIRE_HEADER_SIZE || peer->state != RME_PEER_UP)
        return false;
    rme_wire_copy_head(&head, data);
    if (head.type != RME_WIRE_EAGER || (head.flags & ~RME_WIRE_F_STALLED) != 0 ||
        (rme_head_is_news(peer, &head) && !rme_head_take(peer, &head, 0)))
        return false;
    peer->heard = true;
    rme_xfers_acked(peer);
    if (!arrived_whole(peer, head.tag, (const char *)data + RME_WIRE_HEADER_SIZE, size) ||
        !rme_message_account(peer, RME_WIRE_EAGER, head.flags, true))
        rme_log_invalid(peer, RME_WIRE_EAGER, head.flags, length);
    return true;
}

void rme_message_wait(struct rme_message *message)
{
    struct rme_peer *peer = message->peer;
    const struct rme_remote_window *offer = message->remote_window;
    size_t bytes = 0;

    rme_table_put(&peer->rme->table, &message->by_handle, rme_handle_key(peer, message->from),
                  RME_HANDLE_MESSAGE);
    if (offer != NULL)
        bytes = sizeof(*offer) + offer->nsegment * sizeof(offer->segment[0]);
    message->rx_buffered += bytes;
    rme_quota_add(peer, RME_QUOTA_RX, bytes);
}

struct rme_message *rme_message_from_rts(struct rme_peer *peer, enum rme_stream stream,
                                         const struct rme_wire_message *arrived)
{
    struct rme_message *message;

    if (rme_rts_is_full(peer, stream)) {
        rme_peer_protocol_error(peer, "more RTS than the limit");
        return NULL;
    }
    message = rme_message_new(peer, arrived->tag, 0);
    if (message == NULL)
        return NULL;
    rme_ring_wanted(peer, arrived->total, arrived->shape);
    message->is_rts = true;
    message->flags = arrived->flags;
    message->from = arrived->from;
    message->shape = arrived->shape;
    message->load = (struct rme_load){arrived->load_ops, arrived->load_bytes};
    message->total = arrived->total;
    if (arrived->rndv_window == 0)
        return message;
    message->remote_window = rme_remote_window_new(arrived);
    if (message->remote_window != NULL)
        return message;
    rme_message_free(message);
    rme_peer_fail(peer, -ENOMEM, "no memory to buffer an offer");
    return NULL;
}

void rme_rts_arrived(struct rme_peer *peer, const struct rme_wire_message *arrived)
{
    struct rme *rme = peer->rme;
    struct rme_message *message = rme_message_from_rts(peer, RME_EXPECTED, arrived);
    struct rme_op *op;

    if (message == NULL)
        return;
    op = take_recv(rme, peer, arrived->tag);
    if (op != NULL) {
        rme_rndv_receive(rme, op, message);
        rme_message_free(message);
        return;
    }
    buffer_message(rme, message);
    rme_message_wait(message);
    rme_rts_hold(peer, RME_EXPECTED);
}

void rme_recv_match(struct rme *rme, struct rme_op *op, struct rme_match *first)
{
    struct rme_message *message = container_of(first, struct rme_message, match);

    rme_match_remove(&rme->table, first);
    rme_table_drop(&rme->table, &message->by_handle);
    list_del_init(&message->link); /* the link may end meanwhile, which frees what waits */
    if (message->is_rts) {
        op->peer->proto->rts_in[RME_EXPECTED]--;
        rme_rndv_receive(rme, op, message);
    } else {
        (void)deliver(op->peer, op, message->data, message->total, message->from);
    }
    rme_message_free(message);
}

void rme_refusal_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme *rme = peer->rme;
    int error = rme_wire_status_error(message->status);

    if (error == 0 || (int32_t)(peer->eager_window[RME_EXPECTED].total - message->to) < 0) {
        rme_peer_protocol_error(peer, "a refusal of no send");
        return;
    }
    rme_count(rme, RME_C_EAGER_REFUSED);
    rme_log_put(
        rme->log, RME_LOG_WARN,
        "%s: a message of %" PRIu64 " bytes with tag %" PRId32
        " is lost: larger than its receive of %" PRIu64
        " bytes (%s), and the eager send had completed; post a larger receive there, or set "
        "eager_max=0 here so that such sends fail",
        rme_peer_name(peer), message->total, message->tag, message->offset, strerror(-error));
}
