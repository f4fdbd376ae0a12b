/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Eager messages by RDMA write: the sender's side.  A message that is larger than a receive
 * buffer, but small enough for copies to cost less than a rendezvous, is written into a ring:
 * memory that its receiver has registered beforehand and granted to this sender alone.
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
 * Which messages.  Size decides (rme_ring_msg_max()): the two copies cost less than the two
 * additional messages of a rendezvous.  Larger messages from one piece of memory that a
 * rendezvous would copy as well are written, too.
 *
 * Why order is kept.  The immediate's place in the stream of messages is that of an EAGER or
 * RTS, and the write is handed to the fabric at the moment when such a message would be.  So
 * messages of a tag match their receives in the order of sending, regardless of protocol, and
 * windows, refusals and early CTS count the write like an EAGER (proto/eager.c).
 *
 * No room.  The receiver returns credits with a CREDIT message when half of the ring has been
 * taken.  So a send that finds no room while at least three quarters are unreturned waits: the
 * first expected message of the queue, and all messages behind it, as for a credit.  The room
 * comes independently of the receives of the peer's host: from the peer, which has the credits
 * to send CREDIT (credit.c proves that, because this side has credits if the peer has none); or
 * from a CQE of the local device.  Waiting is better than a rendezvous, which costs a receiver
 * that is already behind two more messages.  A send that finds no room while less is unreturned
 * is too large for the rest of the ring, and goes by rendezvous.  So do unexpected messages,
 * and messages that let others pass in the queue (proto/send.c), because smaller messages could
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

#include "ring/ring.h"

#define WRITES_MAX   128u /* maximal number of messages in a ring, and a power of two */
#define SIGNAL_EVERY 16u  /* one of this many writes is signalled */

/* A message in the ring, until its place is free and its CQE has come. */
struct ring_write {
    struct rme_rdma_op rdma_op;
    struct rme_rdma_seg piece;
    struct rme_sge seg;
    bool busy;       /* its CQE has not come */
    uint32_t number; /* rme_credit.spent with it */
    uint64_t at;     /* its first unit of the ring */
    uint64_t end;    /* the ring's `top` behind it */
};

/* A ring granted by a peer.  The writes are numbered, modulo 2^32. */
struct rme_ring_tx {
    struct rme_ring_memory staging;
    struct rme_wire_segment ring;
    bool released;           /* RELEASE is sent; freed when `pending` is 0 */
    uint64_t tail, top;      /* the units in use, counted from the grant on */
    uint64_t bytes;          /* of the writes whose places are in use */
    uint32_t head, placed;   /* the next write; the first one whose place is in use */
    uint32_t pending;        /* transfers without a CQE */
    bool awaited;            /* the last expected message that was tried waits for room */
    struct rme_rdma_op last; /* RELEASE */
    struct ring_write write[WRITES_MAX];
};

static struct ring_write *write_at(struct rme_ring_tx *tx, uint32_t number)
{
    return &tx->write[number % WRITES_MAX];
}

/* ---- Completion ---- */

/* Has the peer reported the message with this number of rme_credit.spent as consumed? */
static bool is_consumed(const struct rme_credit *credit, uint32_t number)
{
    uint32_t sent_since = credit->spent - number;

    return sent_since >= credit->spent - credit->acked;
}

/* Frees the places of messages that the peer has taken. */
static void reclaim(struct rme_ring_tx *tx)
{
    const struct rme_credit *credit = &tx->staging.peer->credit;
    bool unsignalled = tx->staging.peer->rme->caps->unsignalled;

    for (; tx->placed != tx->head; tx->placed++) {
        const struct ring_write *write = write_at(tx, tx->placed);

        if ((write->busy && !unsignalled) || !is_consumed(credit, write->number))
            return;
        tx->tail = write->end;
        tx->bytes -= write->seg.length;
    }
    tx->top = tx->tail = 0;
    tx->awaited = false;
}

static void tx_free(struct rme_ring_tx *tx)
{
    tx->staging.peer->ring->tx = NULL;
    rme_ring_unmap(&tx->staging, RME_QUOTA_STAGING);
    free(tx);
}

void rme_ring_transfer_done(struct rme_peer *peer, struct rme_rdma_op *rdma_op)
{
    struct rme_ring_tx *tx = peer->ring->tx;

    tx->pending--;
    if (rdma_op != &tx->last) {
        container_of(rdma_op, struct ring_write, rdma_op)->busy = false;
        if (tx->awaited)
            rme_peer_schedule(peer);
    }
    if (tx->released && tx->pending == 0)
        tx_free(tx);
}

/* ---- Sending ---- */

/* Finds the place of a message of `size` bytes, for the next write.  False: no room. */
static bool find_room(struct rme_ring_tx *tx, uint64_t size)
{
    uint64_t count =
        (RME_WIRE_RING_SIZE + size + RME_WIRE_RING_ALIGN - 1) / RME_WIRE_RING_ALIGN;
    uint64_t units = tx->staging.size / RME_WIRE_RING_ALIGN, at, end;
    struct ring_write *write = write_at(tx, tx->head);

    at = tx->top % units;
    end = tx->top + count;
    if (at + count > units) {
        end += units - at;
        at = 0;
    }
    if (end - tx->tail > units || write->busy || tx->head - tx->placed == WRITES_MAX)
        return false;
    write->at = at;
    write->end = end;
    return true;
}

/* Is there a ring to write to? */
static bool is_usable(const struct rme_ring *ring)
{
    return ring->tx != NULL && !ring->tx->released && !ring->due[RME_RING_RELEASE];
}

uint64_t rme_ring_max(const struct rme_peer *peer, enum rme_stream stream,
                      const struct rme_seg *seg, uint32_t nseg, uint64_t size)
{
    const struct rme *rme = peer->rme;
    uint64_t most = is_usable(peer->ring) ? rme_ring_msg_max(rme, stream, 0) : 0;

    if (most == 0 || size <= most ||
        (nseg == 1 &&
         rme_zone_find(rme->zone, seg[0].base, seg[0].length, RME_ACCESS_LOCAL) != NULL))
        return most;
    return rme_ring_msg_max(rme, stream, nseg);
}

/* With three quarters of the ring unreturned the peer is bound to send CREDIT. */
static bool credit_is_certain(const struct rme_ring_tx *tx)
{
    return tx->bytes >= tx->ring.length - tx->ring.length / 4;
}

enum rme_ring_fit rme_ring_admit(struct rme_peer *peer, enum rme_stream stream, uint64_t size)
{
    struct rme_ring_tx *tx = peer->ring->tx;

    if (!is_usable(peer->ring))
        return RME_RING_OTHER;
    reclaim(tx);
    if (stream == RME_EXPECTED)
        tx->awaited = false;
    if (tx->awaited || !rme_window_fits(&peer->eager_window[stream], size))
        return RME_RING_FULL;
    if (find_room(tx, size))
        return RME_RING_ROOM;
    return credit_is_certain(tx) ? RME_RING_WAIT : RME_RING_FULL;
}

void rme_ring_await(struct rme_peer *peer)
{
    peer->ring->tx->awaited = true;
}

bool rme_ring_write(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                    uint32_t nseg, uint64_t size, int32_t tag)
{
    struct rme_ring_tx *tx = peer->ring->tx;
    uint64_t length = RME_WIRE_RING_SIZE + size, offset;
    struct rme_wire_message message;
    struct ring_write *write;
    char *place;

    if (!rme_peer_may(peer, RME_CREDIT_DATA))
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
    rme_peer_count(peer, RME_C_SENDS_RING, 1);

    write->busy = true;
    write->number = peer->credit.spent;
    write->seg = (struct rme_sge){place, length, tx->staging.mr.lkey};
    write->piece =
        (struct rme_rdma_seg){tx->ring.address + offset, tx->ring.key, &write->seg, 1};
    write->rdma_op = (struct rme_rdma_op){.notify = RME_NOTIFY_IMM,
                                          .unsignalled = peer->rme->caps->unsignalled &&
                                                         tx->head % SIGNAL_EVERY != 0,
                                          .imm = RME_WIRE_RING_NAME + (uint32_t)write->at,
                                          .piece = &write->piece,
                                          .npiece = 1,
                                          .bytes = length};
    peer->rme->ops->rdma_op(peer->link, &write->rdma_op);
    return true;
}

/* ---- Grant and release ---- */

/* Sends RELEASE behind all writes; the ring is the peer's again from then on. */
static void release(struct rme_peer *peer, struct rme_ring_tx *tx, void *buffer)
{
    tx->released = true;
    tx->pending++;
    tx->last = (struct rme_rdma_op){
        .notify = RME_NOTIFY_MSG, .tx = buffer, .tx_length = RME_WIRE_HEADER_SIZE};
    peer->rme->ops->rdma_op(peer->link, &tx->last);
}

/* Sends a CREDIT message about a ring; false: no credit or buffer. */
static bool send_credit(struct rme_peer *peer, enum rme_ring_control control)
{
    static const uint8_t flag[] = {[RME_RING_GRANT] = RME_WIRE_F_GRANT,
                                   [RME_RING_WITHDRAW] = RME_WIRE_F_WITHDRAW,
                                   [RME_RING_RELEASE] = RME_WIRE_F_RELEASE};
    void *buffer = rme_peer_tx(peer, RME_CREDIT_CONTROL);
    struct rme_ring_tx *tx = peer->ring->tx;
    struct rme_wire_message message;

    if (buffer == NULL)
        return false;
    rme_peer_header(peer, RME_WIRE_CREDIT, &message);
    message.flags |= flag[control];
    if (control == RME_RING_GRANT)
        rme_ring_describe(peer, &message, buffer);
    if (control == RME_RING_RELEASE && tx != NULL && !tx->released) {
        rme_wire_encode(&message, buffer);
        rme_count(peer->rme, RME_C_CONTROL_SENT);
        release(peer, tx, buffer);
    } else { /* a ring that could not be used needs no transfer */
        rme_peer_send_control(peer, &message, buffer);
    }
    return true;
}

static bool send_due(struct rme_peer *peer, struct rme_control *control)
{
    for (unsigned i = 0; i < RME_RING_CONTROLS; i++) {
        if (peer->ring->due[i] && !send_credit(peer, (enum rme_ring_control)i))
            return false;
        peer->ring->due[i] = false;
    }
    list_del_init(&control->link);
    return true;
}

void rme_ring_init(struct rme_peer *peer, struct rme_ring *ring)
{
    *ring = (struct rme_ring){.control.send = send_due};
    list_init(&ring->control.link);
    rme_ring_wants_restart(ring);
    peer->ring = ring;
}

/* Makes the state of a granted ring, and its staging buffer.  False: no memory. */
static bool tx_new(struct rme_peer *peer, const struct rme_wire_segment *ring)
{
    uint64_t size = min_u64(ring->length, peer->rme->tuning.ring_bytes);
    struct rme_ring_tx *tx = calloc(1, sizeof(*tx));

    if (tx == NULL || size < RME_WIRE_RING_ALIGN ||
        !rme_ring_map(&tx->staging, peer, RME_QUOTA_STAGING, size, RME_ACCESS_LOCAL)) {
        free(tx);
        return false;
    }
    tx->ring = *ring;
    peer->ring->tx = tx;
    return true;
}

void rme_ring_granted(struct rme_peer *peer, const struct rme_wire_message *message)
{
    const struct rme_ring_tx *tx = peer->ring->tx;
    struct rme_wire_segment ring;

    if ((tx != NULL && !tx->released) || peer->ring->due[RME_RING_RELEASE] ||
        peer->rme->tuning.ring_bytes == 0) {
        rme_peer_protocol_error(peer, "an unexpected GRANT");
        return;
    }
    rme_wire_segment_at(message, 0, &ring);
    if (tx != NULL || !tx_new(peer, &ring))
        rme_ring_queue_credit(peer, RME_RING_RELEASE);
}

/* Without a ring, a RELEASE has crossed this WITHDRAW. */
void rme_ring_withdrawn(struct rme_peer *peer)
{
    const struct rme_ring_tx *tx = peer->ring->tx;

    if (tx != NULL && !tx->released)
        rme_ring_queue_credit(peer, RME_RING_RELEASE);
}

void rme_ring_down(struct rme_peer *peer)
{
    struct rme_ring_tx *tx = peer->ring->tx;

    rme_ring_rx_free(peer);
    if (tx != NULL)
        tx_free(tx);
    rme_ring_init(peer, peer->ring);
}
