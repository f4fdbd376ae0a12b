/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Eager messages by RDMA write [000 4.5.2, 003 4.1].  A message that is larger than a receive
 * buffer, but small enough for copies to cost less than a rendezvous, is written into a ring:
 * memory that its receiver has registered beforehand and granted to this sender alone.  This
 * file is the sender's side, rx_ring.c the receiver's.
 *
 * Normal path.  Such a message is an EAGER message in every respect except the location of its
 * bytes.  Header, length and payload are composed in a staging buffer, where a
 * message has the same place as in the ring, and written by one request with an immediate that
 * names the place.  The send is complete when the bytes are in the staging buffer.  The
 * receiver handles the immediate like a message, checks a copy of the header, and copies the
 * payload to its receive, or to other memory if no receive matches.  So the place becomes free
 * again whether or not the host receives the message.
 *
 * Return of places.  Each such message uses a credit, like any message.  Returned credits
 * identify the messages that the peer has taken (credit.c), in order, and so the free places.
 * No further message is necessary.  Places are used in the order of the ring: the next one
 * begins behind the last, or at the beginning of the ring if it does not fit before the end, or
 * if the ring is empty.
 *
 * Local completions.  On fabrics with unsignalled transfers, the peer's count suffices to reuse
 * the staging buffer: the device no longer reads that part.  So only every 16th write is
 * signalled, and its CQE completes the writes before it.  On other fabrics each write is
 * signalled, and its place is reused after both the CQE and the peer's count.
 *
 * Which messages.  Size decides (rme_eager_rdma_most()): the two copies cost less than the two
 * additional messages of a rendezvous.  Larger messages from one piece of memory that a
 * rendezvous would copy as well are written, too.
 *
 * Why order is kept.  The immediate's place in the stream of messages is that of an EAGER or
 * RTS, and the write is handed to the fabric at the moment when such a message would be.  So
 * messages of a tag match their receives in the order of sending, regardless of protocol, and
 * windows, refusals (eager.c) and invitations (early_cts.c) count the write like an EAGER.  An
 * invitation of the exact size has precedence, because it saves both copies.
 *
 * No room.  The receiver returns credits with a CREDIT message when half of the ring has been
 * taken.  So a send that finds no room while at least three quarters are unreturned waits: the
 * first expected message of the queue, and all messages behind it, as for a credit.  The room
 * comes independently of the receives of the peer's host: from the peer, which has the credits
 * to send CREDIT (credit.c proves that, because this side has credits if the peer has none); or
 * from a CQE of the local device.  Waiting is better than a rendezvous, which costs a receiver
 * that is already behind two more messages.  A send that finds no room while less is unreturned
 * is too large for the rest of the ring, and goes by rendezvous.  So do unexpected messages,
 * and messages that let others pass in the queue (send.c), because smaller messages could
 * otherwise overtake them without bound.
 *
 * Cancel.  A QUEUED send is cancelled like any other; a written one is complete.  No state in
 * between waits for a peer.
 *
 * Release.  WITHDRAW asks for the ring.  No new write begins after that, and RELEASE follows as
 * a transfer, behind all messages in the ring.  The staging buffer is freed when the device has
 * completed all writes and RELEASE.  A ring granted before that, or without memory for a
 * staging buffer, is released at once, and its owner grants one again later.
 *
 * Failure path.  The end of the link ends the writes; the staging buffer is freed when the link
 * is down.  The ring belongs to the receiver, and so does the protection against a peer that
 * misuses it.
 */
#include <stdlib.h>

#include "proto/proto.h"

#define WRITES  128u /* maximal number of messages in a ring, and a power of two */
#define UNQUIET 16u  /* one of this many writes is signalled */

/* A message in the ring, until its place is free and its CQE has come. */
struct fast_write {
    struct rme_rdma_op rdma_op;
    struct rme_rdma_seg piece;
    struct rme_sge seg;
    bool busy;       /* its CQE has not come */
    uint32_t number; /* rme_credit.spent with it */
    uint64_t at;     /* its first unit of the ring */
    uint64_t end;    /* the ring's `top` behind it */
};

/* A ring granted by a peer.  The writes are numbered, modulo 2^32. */
struct rme_eager_rdma_tx {
    struct rme_eager_ring staging;
    struct rme_wire_segment ring;
    bool released;           /* RELEASE is sent; freed when `pending` is 0 */
    uint64_t tail, top;      /* the units in use, counted from the grant on */
    uint64_t bytes;          /* of the writes whose places are in use */
    uint32_t head, placed;   /* the next write; the first one whose place is in use */
    uint32_t pending;        /* transfers without a CQE */
    struct rme_rdma_op last; /* RELEASE */
    struct fast_write write[WRITES];
};

static struct fast_write *write_at(struct rme_eager_rdma_tx *tx, uint32_t number)
{
    return &tx->write[number % WRITES];
}

/* ---- Completion ---- */

/* Frees the places of messages that the peer has taken. */
static void reclaim(struct rme_eager_rdma_tx *tx)
{
    const struct rme_credit *credit = &tx->staging.peer->credit;
    bool unsignalled = tx->staging.peer->rme->caps->unsignalled;

    for (; tx->placed != tx->head; tx->placed++) {
        const struct fast_write *write = write_at(tx, tx->placed);

        if ((write->busy && !unsignalled) ||
            credit->spent - write->number < credit->spent - credit->acked)
            return;
        tx->tail = write->end;
        tx->bytes -= write->seg.length;
    }
    tx->top = tx->tail = 0;
}

static void tx_free(struct rme_eager_rdma_tx *tx)
{
    tx->staging.peer->proto->eager_rdma.tx = NULL;
    rme_eager_ring_unmap(&tx->staging, RME_QUOTA_STAGING);
    free(tx);
}

void rme_eager_rdma_moved(struct rme_peer *peer, struct rme_rdma_op *rdma_op)
{
    struct rme_eager_rdma_tx *tx = peer->proto->eager_rdma.tx;

    tx->pending--;
    if (rdma_op != &tx->last) {
        container_of(rdma_op, struct fast_write, rdma_op)->busy = false;
        if (!list_empty(&peer->sends->sendq[RME_EXPECTED]))
            rme_peer_schedule(peer);
    }
    if (tx->released && tx->pending == 0)
        tx_free(tx);
}

/* ---- Sending ---- */

/* Finds the place of a message of `size` bytes, for the next write.  False: no room. */
static bool find_room(struct rme_eager_rdma_tx *tx, uint64_t size)
{
    uint64_t count =
        (RME_WIRE_RING_SIZE + size + RME_WIRE_RING_ALIGN - 1) / RME_WIRE_RING_ALIGN;
    uint64_t units = tx->staging.size / RME_WIRE_RING_ALIGN, at, end;
    struct fast_write *write = write_at(tx, tx->head);

    reclaim(tx);
    at = tx->top % units;
    end = tx->top + count;
    if (at + count > units) {
        end += units - at;
        at = 0;
    }
    if (end - tx->tail > units || write->busy || tx->head - tx->placed == WRITES)
        return false;
    write->at = at;
    write->end = end;
    return true;
}

/* Result of the check whether a message can be written now. */
enum fit { FIT_NOT, FIT_FULL, FIT_LATER, FIT_NOW };

/* Does the message suit the ring by its size? */
static bool suits(const struct rme *rme, enum rme_stream stream, const struct rme_seg *seg,
                  uint32_t nseg, uint64_t size)
{
    return size <= rme_eager_rdma_most(rme, stream, 0) ||
           (size <= rme_eager_rdma_most(rme, stream, nseg) &&
            (nseg > 1 ||
             rme_zone_find(rme->zone, seg[0].base, seg[0].length, RME_ACCESS_LOCAL) == NULL));
}

static enum fit look(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                     uint32_t nseg, uint64_t size, int32_t tag)
{
    struct rme_eager_rdma_tx *tx = peer->proto->eager_rdma.tx;

    if (tx == NULL || tx->released || (peer->proto->eager_rdma.due & RME_WIRE_F_RELEASE) != 0 ||
        !suits(peer->rme, stream, seg, nseg, size) ||
        (stream == RME_EXPECTED && rme_early_cts_is_for(&peer->rndv->early, tag, size)))
        return FIT_NOT;
    /* an unexpected message does not take the room for which an expected one waits */
    if (!rme_window_fits(&peer->eager_window[stream], size) ||
        (stream != RME_EXPECTED && !list_empty(&peer->sends->sendq[RME_EXPECTED])))
        return FIT_FULL;
    if (find_room(tx, size))
        return FIT_NOW;
    /* with three quarters unreturned the peer is bound to send CREDIT */
    return tx->bytes >= tx->ring.length - tx->ring.length / 4 ? FIT_LATER : FIT_FULL;
}

bool rme_eager_rdma_send(struct rme_peer *peer, enum rme_stream stream,
                         const struct rme_seg *seg, uint32_t nseg, uint64_t size, int32_t tag)
{
    struct rme_eager_rdma_tx *tx = peer->proto->eager_rdma.tx;
    uint64_t length = RME_WIRE_RING_SIZE + size, offset;
    struct rme_wire_message message;
    struct fast_write *write;
    char *place;

    if (look(peer, stream, seg, nseg, size, tag) != FIT_NOW ||
        !rme_peer_may(peer, RME_CREDIT_DATA))
        return false;
    write = write_at(tx, tx->head++);
    tx->top = write->end;
    tx->bytes += length;
    tx->pending++;
    offset = write->at * RME_WIRE_RING_ALIGN;
    place = tx->staging.base + offset;
    rme_peer_head(peer, RME_WIRE_EAGER, tag, &message);
    message.flags |= rme_stream_flag(stream);
    peer->rme->pending |= RME_PENDING_FLUSH;
    rme_wire_encode_ring(&message, (uint32_t)size, place);
    rme_seg_copy(seg, nseg, 0, place + RME_WIRE_RING_SIZE, size, false);
    rme_peer_count(peer, RME_C_SENDS_EAGER_RDMA, 1);

    write->busy = true;
    write->number = peer->credit.spent;
    write->seg = (struct rme_sge){place, length, tx->staging.mr.lkey};
    write->piece =
        (struct rme_rdma_seg){tx->ring.address + offset, tx->ring.key, &write->seg, 1};
    write->rdma_op = (struct rme_rdma_op){.notify = RME_NOTIFY_IMM,
                                          .unsignalled = peer->rme->caps->unsignalled &&
                                                         tx->head % UNQUIET != 0,
                                          .imm = RME_WIRE_RING_NAME + (uint32_t)write->at,
                                          .piece = &write->piece,
                                          .npiece = 1,
                                          .bytes = length};
    peer->rme->ops->rdma_op(peer->link, &write->rdma_op);
    rme_eager_sent(peer, stream, tag, size);
    return true;
}

/* Starts a send.  The first expected message of the queue waits for room if the room is certain
 * to come. */
enum rme_started rme_eager_rdma_start(struct rme *rme, struct rme_op *op)
{
    enum rme_stream stream = rme_op_stream(op);
    enum fit fit = op->rndv != NULL
                       ? FIT_NOT
                       : look(op->peer, stream, op->seg, op->nseg, op->size, op->tag);

    if (fit == FIT_LATER && stream == RME_EXPECTED && !rme_match_is_first(&op->match))
        return RME_START_STUCK;
    if (fit != FIT_NOW) {
        rme_count_add(rme, RME_C_EAGER_RING_FULL, fit != FIT_NOT);
        return RME_START_OTHER;
    }
    if (!rme_eager_rdma_send(op->peer, stream, op->seg, op->nseg, op->size, op->tag))
        return RME_START_STUCK;
    rme_send_leave(op);
    rme_op_end(rme, op, 0);
    return RME_START_GONE;
}

/* ---- Grant and release ---- */

/* Sends RELEASE behind all writes; the ring is the peer's again from then on. */
static void release(struct rme_peer *peer, struct rme_eager_rdma_tx *tx, void *buffer)
{
    tx->released = true;
    tx->pending++;
    tx->last = (struct rme_rdma_op){
        .notify = RME_NOTIFY_MSG, .tx = buffer, .tx_length = RME_WIRE_HEADER_SIZE};
    peer->rme->ops->rdma_op(peer->link, &tx->last);
}

static bool send_due(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_eager_rdma *eager_rdma = &peer->proto->eager_rdma;

    while (eager_rdma->due != 0) {
        struct rme_eager_rdma_tx *tx = eager_rdma->tx;
        uint16_t flag = eager_rdma->due & -eager_rdma->due;
        void *buffer = rme_peer_tx(peer, RME_CREDIT_CONTROL);
        struct rme_wire_message message;

        if (buffer == NULL)
            return false;
        eager_rdma->due &= ~flag;
        rme_peer_header(peer, RME_WIRE_CREDIT, &message);
        message.flags |= flag;
        if (flag == RME_WIRE_F_GRANT)
            rme_eager_rdma_describe(peer, &message, buffer);
        if (flag == RME_WIRE_F_RELEASE && tx != NULL && !tx->released) {
            rme_wire_encode(&message, buffer);
            rme_count(peer->rme, RME_C_CONTROL_SENT);
            release(peer, tx, buffer);
        } else { /* a ring that could not be used needs no transfer */
            rme_peer_send_control(peer, &message, buffer);
        }
    }
    list_del_init(&control->link);
    return true;
}

void rme_eager_rdma_init(struct rme_eager_rdma *eager_rdma)
{
    *eager_rdma = (struct rme_eager_rdma){.control.send = send_due};
    list_init(&eager_rdma->control.link);
}

/* Makes the state of a granted ring, and its staging buffer.  False: no memory. */
static bool tx_new(struct rme_peer *peer, const struct rme_wire_segment *ring)
{
    uint64_t size = min_u64(ring->length, peer->rme->tuning.eager_ring_bytes);
    struct rme_eager_rdma_tx *tx = calloc(1, sizeof(*tx));

    if (tx == NULL || size < RME_WIRE_RING_ALIGN ||
        !rme_eager_ring_map(&tx->staging, peer, RME_QUOTA_STAGING, size, RME_ACCESS_LOCAL)) {
        free(tx);
        return false;
    }
    tx->ring = *ring;
    peer->proto->eager_rdma.tx = tx;
    return true;
}

void rme_eager_rdma_granted(struct rme_peer *peer, const struct rme_wire_message *message)
{
    const struct rme_eager_rdma_tx *tx = peer->proto->eager_rdma.tx;
    struct rme_wire_segment ring;

    if ((tx != NULL && !tx->released) ||
        (peer->proto->eager_rdma.due & RME_WIRE_F_RELEASE) != 0 ||
        peer->rme->tuning.eager_ring_bytes == 0) {
        rme_peer_protocol_error(peer, "an unexpected GRANT");
        return;
    }
    rme_wire_segment_at(message, 0, &ring);
    if (tx != NULL || !tx_new(peer, &ring))
        rme_eager_rdma_say(peer, RME_WIRE_F_RELEASE);
}

/* Without a ring, a RELEASE has crossed this WITHDRAW. */
void rme_eager_rdma_withdrawn(struct rme_peer *peer)
{
    const struct rme_eager_rdma_tx *tx = peer->proto->eager_rdma.tx;

    if (tx != NULL && !tx->released)
        rme_eager_rdma_say(peer, RME_WIRE_F_RELEASE);
}

void rme_eager_rdma_down(struct rme_peer *peer)
{
    struct rme_eager_rdma_tx *tx = peer->proto->eager_rdma.tx;

    rme_eager_rdma_rx_free(peer);
    if (tx != NULL)
        tx_free(tx);
    rme_eager_rdma_init(&peer->proto->eager_rdma);
}
