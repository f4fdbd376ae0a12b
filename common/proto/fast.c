/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fast writes [000 4.5.2, 003 4.1].  A message that is larger than a receive buffer, and not so
 * large that copies would cost more than a rendezvous, is written into memory that its receiver
 * has lent to us for such messages: an area, registered beforehand, ours alone.  This file is
 * the holder's side, fast_area.c the owner's.
 *
 * Normal path.  Such a message is an EAGER or UNEXPECTED one in every respect but where its
 * bytes are.  Its header, its length and its payload are put together in memory of our own (the
 * stage, a block of a zone as large as the area, where a message has the same place as in the
 * area), and written in one request with an immediate that names the place.  The send is
 * complete when the bytes are in the stage.  The receiver takes the immediate for the message:
 * it finds the header at the place, checks a copy of it, and goes on as if it had come in a
 * receive buffer.  It is copied to its receive.  If there is none yet it stays where it is for
 * a while, and is copied aside if that is too long (fast_early.c).  So the place becomes free
 * again whether or not the host receives it.
 *
 * How places come back.  Each such message takes a credit, like any.  The credits that come
 * back say which messages have been taken (credit.c), in order, so also which places are free,
 * as those of messages that stay are kept back: nothing else needs to be said.  We take places
 * in order (fast_ring.h).
 *
 * Local completions.  Where the fabric has quiet transfers, what the peer has taken is all that
 * the stage needs: our device looks at that part of it no more.  So but each LOUD-th write is
 * quiet, and it gives the descriptions of those before it back.  Elsewhere each write is
 * reported, and its place is used again only when it was, as the stage is used with it.
 *
 * Why order is kept.  The immediate is an ordered one: in the stream of messages, where an
 * EAGER or RTS would be, and the write is handed to the fabric at the moment when such a
 * message would be.  So messages of a tag meet their receives in the order of sending whatever
 * way they take, and windows, refusals (refuse.c) and invitations (invite.c) count it like an
 * EAGER one.  An invitation of the exact size is taken first: it saves both copies.
 *
 * No room.  The owner says by itself what it has taken when that is half of the area, or at the
 * latest when all that it has not returned is three quarters of it, be the messages matched or
 * not.  So who finds no room while at least that much is in the area waits: the first expected
 * message of the queue, and what is behind it, as they would for a credit.  The room comes
 * whatever the owner's host receives: from the owner, who has what it needs to say that by the
 * proof of credit.c, as we have credits if it has none; or from our own device. To wait is
 * better than a rendezvous, which costs a receiver that is behind already two messages more.
 * Who finds no room while there is less in the area (it is too large for what is left), goes by
 * rendezvous, as do unexpected messages, and those that have let others of the queue pass
 * (send.c): nobody is overtaken for ever by smaller ones.  And so does everybody where reports
 * are apart (fabric.h): the owner may have said of all messages in the area that they are
 * taken, and each report of ours that it has not told of holds the place of one; of those it
 * need not tell.
 *
 * Cancel.  A send that is QUEUED is cancelled like any; one that has been written is complete.
 * Nothing in between waits for a peer.
 *
 * Giving back.  WITHDRAW asks for the area.  From then on nothing is written there; when our
 * device has done with what was, but for quiet writes, RELEASE says so, behind all messages
 * that are in the area.  Behind quiet writes it is a transfer that is not, and the stage goes
 * when that is complete.  We also release one that we cannot use.
 *
 * Failure path.  The end of the link ends the writes; the stage goes when the link is down.
 * The area is the receiver's, and so is the care for what a wrong peer does with it.
 */
#include <errno.h>
#include <stdlib.h>

#include "proto/arrive.h"
#include "proto/fast_ring.h"
#include "proto/message.h"
#include "proto/rndv.h"
#include "proto/send.h"

#define AREA_MOST (4u << 20) /* of an area we use no more, in bytes */
#define WRITES    128u       /* messages in an area at a time, at most */
#define LOUD      16u        /* so many writes, one of which is not quiet */

/* A message in the area, until its place is free. */
struct fast_write {
    struct rme_xfer xfer;
    struct rme_piece piece;
    struct rme_lseg seg;
    struct rme_fast_hold *hold;
    uint32_t units; /* of the ring */
    uint32_t bytes;
    uint32_t number; /* its place among the messages of the link: rme_credit.spent less apart */
    bool done;       /* our device has done with it */
};

/* An area of a peer.  It is the peer's talk's, or its job's once the link is gone. */
struct rme_fast_hold {
    struct rme_fast_job job; /* the stage is made */
    struct rme_peer *peer;   /* NULL: the link went while the stage was made */
    bool making;
    bool ending; /* it is to be released */
    bool gone;   /* it was, and is in the peer's `leaving` by this: */
    struct rme_node leaving;
    struct rme_xfer last; /* RELEASE, if writes are at our device */
    uint64_t address, key;
    uint32_t name; /* of its first unit */
    size_t size;
    uint32_t late; /* with so many bytes that it has not returned the peer sends CREDIT */
    char *stage;
    uint64_t lkey;
    struct rme_fast_ring ring;
    uint32_t first, count; /* writes: oldest, how many */
    uint32_t taken;        /* of those, from the oldest on: their places are free */
    uint32_t bytes;        /* of the others */
    uint32_t pending;      /* transfers at our device */
    uint32_t loud;         /* of those, that are not quiet */
    uint32_t quiet;        /* writes since the last that was not */
    struct fast_write write[WRITES];
};

/* ---- Sending ---- */

static uint32_t units_of(uint64_t size)
{
    return (uint32_t)((RME_WIRE_FAST_SIZE + size + RME_WIRE_FAST_UNIT - 1) /
                      RME_WIRE_FAST_UNIT);
}

/* Has the peer taken it? */
static bool is_taken(const struct rme_credit *credit, const struct fast_write *write)
{
    return credit->spent - credit->apart - write->number >= credit->spent - credit->told;
}

/* Places of messages that the peer has taken are free. */
static void reclaim(struct rme_fast_hold *hold)
{
    const struct rme_credit *credit = &hold->peer->credit;

    while (hold->taken < hold->count) {
        struct fast_write *oldest = &hold->write[(hold->first + hold->taken) % WRITES];

        if (!(oldest->done || hold->peer->rme->caps->quiet) || !is_taken(credit, oldest))
            break;
        rme_fast_ring_free(&hold->ring, oldest->units);
        hold->bytes -= oldest->bytes;
        hold->taken++;
    }
    while (hold->taken > 0 && hold->write[hold->first].done) {
        hold->first = (hold->first + 1) % WRITES;
        hold->count--;
        hold->taken--;
    }
}

static bool has_room(struct rme_fast_hold *hold, uint64_t size)
{
    uint32_t at, skip;

    reclaim(hold);
    return hold->count < WRITES && rme_fast_ring_room(&hold->ring, units_of(size), &at, &skip);
}

/* Is there an invitation that is meant for a message of this size? */
static bool is_invited(const struct rme_peer *peer, enum rme_stream stream, uint64_t size,
                       int32_t tag)
{
    const struct rme_invites *invites = &peer->talk->invites;

    return stream == RME_EXPECTED && invites->held != NULL && invites->tag == tag &&
           invites->held->length == size;
}

static bool is_planned(struct rme_peer *peer, const struct rme_seg *seg, uint32_t nseg,
                       uint64_t size)
{
    struct rme *rme = peer->rme;
    struct rme_plan_in in = rme_rndv_plan_in(rme, size);
    bool ready = nseg == 1 && rme_zone_owns(rme->zone, seg[0].base, seg[0].length);
    struct rme_plan plan;

    in.fast_max = size;
    in.send = rme_rndv_side(rme, nseg, ready, true);
    in.recv.server = (peer->hello.flags & RME_HELLO_F_SERVER) != 0;
    in.has_read = (peer->hello.flags & RME_HELLO_F_READ) != 0;
    rme_plan(&in, &plan);
    return plan.proto == RME_PROTO_FAST;
}

/* Whether a message is one for the area, and may go there. */
enum fit { FIT_NOT, FIT_FULL, FIT_LATER, FIT_NOW };

/* Expected messages wait: a smaller unexpected one does not take the room that the first of
 * them waits for. */
static bool is_first(const struct rme_peer *peer, enum rme_stream stream)
{
    return stream == RME_EXPECTED ||
           (peer->talk->holds == 0 && rme_node_alone(&peer->talk->sendq[RME_EXPECTED]));
}

static enum fit look(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                     uint32_t nseg, uint64_t size, int32_t tag)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;

    if (hold == NULL || hold->making || hold->ending ||
        size > rme_fast_most(peer->rme, stream) || is_invited(peer, stream, size, tag) ||
        !is_planned(peer, seg, nseg, size))
        return FIT_NOT;
    if (!rme_window_fits(&peer->window[stream], size) || !is_first(peer, stream))
        return FIT_FULL;
    if (has_room(hold, size))
        return FIT_NOW;
    return hold->bytes >= hold->late && !peer->rme->caps->reports_apart ? FIT_LATER : FIT_FULL;
}

bool rme_fast_fits(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag)
{
    return look(peer, stream, seg, nseg, size, tag) == FIT_NOW;
}

/* The next write, of so many bytes; there is room. */
static struct fast_write *write_new(struct rme_fast_hold *hold, uint64_t size, uint32_t *at)
{
    struct fast_write *write = &hold->write[(hold->first + hold->count) % WRITES];
    uint32_t units = units_of(size), skip;

    (void)rme_fast_ring_room(&hold->ring, units, at, &skip);
    rme_fast_ring_take(&hold->ring, *at, units, skip);
    hold->count++;
    write->hold = hold;
    write->units = units + skip;
    write->bytes = (uint32_t)size + RME_WIRE_FAST_SIZE;
    hold->bytes += write->bytes;
    write->done = false;
    return write;
}

static void post(struct rme_fast_hold *hold, struct fast_write *write, uint32_t at,
                 uint64_t bytes)
{
    struct rme_peer *peer = hold->peer;
    uint64_t offset = (uint64_t)at * RME_WIRE_FAST_UNIT;
    bool quiet = peer->rme->caps->quiet && ++hold->quiet < LOUD;

    if (!quiet)
        hold->quiet = 0;
    hold->pending++;
    hold->loud += !quiet;
    write->number = peer->credit.spent - peer->credit.apart;
    write->seg = (struct rme_lseg){hold->stage + offset, bytes, hold->lkey};
    write->piece = (struct rme_piece){hold->address + offset, hold->key, &write->seg, 1};
    write->xfer = (struct rme_xfer){.notify = RME_NOTIFY_IMM,
                                    .ordered = true,
                                    .quiet = quiet,
                                    .imm = hold->name + at,
                                    .piece = &write->piece,
                                    .npiece = 1,
                                    .bytes = bytes};
    peer->rme->ops->xfer(peer->link, &write->xfer);
}

bool rme_fast_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;
    struct rme_wire_message message;
    struct fast_write *write;
    uint32_t at;
    char *stage;

    if (!rme_peer_may(peer, RME_CREDIT_DATA))
        return false;
    write = write_new(hold, size, &at);
    rme_peer_header(peer, stream == RME_EXPECTED ? RME_WIRE_EAGER : RME_WIRE_UNEXPECTED,
                    &message);
    message.tag = tag;
    if (stream == RME_EXPECTED)
        rme_invite_sent(&peer->talk->invites, tag, 0);
    stage = hold->stage + (size_t)at * RME_WIRE_FAST_UNIT;
    rme_wire_encode_fast(&message, (uint32_t)size, stage);
    rme_seg_gather(seg, nseg, 0, stage + RME_WIRE_FAST_SIZE, size);
    rme_window_sent(&peer->window[stream], size);
    post(hold, write, at, RME_WIRE_FAST_SIZE + size);
    rme_peer_count(peer, RME_C_SENDS_FAST, 1);
    rme_send_copied(peer, stream, size);
    return true;
}

uint64_t rme_fast_held(const struct rme_peer *peer)
{
    const struct rme_fast_hold *hold = peer->talk->fast.held;

    return hold != NULL ? hold->size : 0;
}

static bool fits(const struct rme_op *op)
{
    return op->rndv == NULL &&
           rme_fast_fits(op->peer, rme_op_stream(op), op->seg, op->nseg, op->size, op->tag);
}

/* Room for an expected message that is the first of the queue is waited for, if it is sure to
 * come. */
static enum rme_started start(struct rme *rme, struct rme_op *op)
{
    enum rme_stream stream = rme_op_stream(op);
    enum fit fit = op->rndv == NULL
                       ? look(op->peer, stream, op->seg, op->nseg, op->size, op->tag)
                       : FIT_NOT;

    if (fit == FIT_LATER && stream == RME_EXPECTED && op->slot == NULL)
        return RME_START_STUCK;
    if (fit != FIT_NOW) {
        rme_count_add(rme, RME_C_FAST_FULL, fit != FIT_NOT);
        return RME_START_OTHER;
    }
    if (!rme_fast_send(op->peer, stream, op->seg, op->nseg, op->size, op->tag))
        return RME_START_STUCK;
    rme_send_leave(op);
    rme_op_end(rme, op, 0);
    return RME_START_GONE;
}

/* ---- The area that we hold ---- */

static void hold_free(struct rme *rme, struct rme_fast_hold *hold)
{
    if (hold->stage != NULL)
        (void)rme_zone_put(rme->zone, hold->stage);
    rme->protocols->fast.stages -= hold->size;
    free(hold);
}

/* It is the peer's again as soon as RELEASE is on its way. */
static bool send_release(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    rme_node_remove(&control->link);
    rme_peer_header(peer, RME_WIRE_RELEASE, &message);
    rme_wire_encode(&message, tx);
    rme_count(peer->rme, RME_C_CONTROL_SENT);
    peer->talk->fast.held = NULL;
    if (hold == NULL || hold->pending == 0) {
        peer->rme->ops->tx_send(peer->link, tx, RME_WIRE_HEADER_SIZE);
        if (hold != NULL)
            hold_free(peer->rme, hold);
        return true;
    }
    hold->gone = true;
    hold->pending++;
    hold->last = (struct rme_xfer){
        .notify = RME_NOTIFY_MSG, .tx = tx, .tx_length = RME_WIRE_HEADER_SIZE};
    rme_node_append(&peer->talk->fast.leaving, &hold->leaving);
    peer->rme->ops->xfer(peer->link, &hold->last);
    return true;
}

static void drop_release(struct rme_peer *peer, struct rme_control *control)
{
    (void)peer;
    rme_node_remove(&control->link);
}

static const struct rme_control_kind release_kind = {send_release, drop_release};

static void say_release(struct rme_peer *peer)
{
    rme_node_append(&peer->control, &peer->talk->fast.release.link);
    rme_peer_kick(peer);
}

/* It is released if it shall be and nobody uses the stage but for quiet writes.  On a link that
 * is given up nothing is said. */
static void end_if_idle(struct rme_fast_hold *hold)
{
    struct rme_peer *peer = hold->peer;

    if (hold->ending && !hold->making && hold->loud == 0 && rme_peer_listens(peer) &&
        rme_node_alone(&peer->talk->fast.release.link))
        say_release(peer);
}

/* The stage: a block of a zone. */
static void make_stage(struct rme *rme, struct rme_fast_job *job)
{
    struct rme_fast_hold *hold = rme_entry(job, struct rme_fast_hold, job);
    const struct rme_mr *mr;

    pthread_mutex_unlock(&rme->lock);
    hold->stage = rme_zone_alloc(rme->zone, hold->size);
    rme_lock(rme);
    hold->making = false;
    if (hold->peer == NULL) {
        hold_free(rme, hold);
        return;
    }
    if (hold->stage == NULL || rme_zone_find(rme->zone, hold->stage, hold->size, &mr) != 0)
        hold->ending = true;
    else
        hold->lkey = mr->lkey;
    end_if_idle(hold);
}

static void granted(struct rme_peer *peer, const struct rme_wire_message *message)
{
    const struct rme_tuning *tuning = &peer->rme->tuning;
    struct rme_fast_pool *pool = &peer->rme->protocols->fast;
    uint64_t room = tuning->fast_pool - rme_least(pool->stages, tuning->fast_pool);
    struct rme_wire_segment segment;
    struct rme_fast_hold *hold;

    if (peer->talk->fast.held != NULL || !rme_node_alone(&peer->talk->fast.release.link) ||
        message->nsegment != 1 || peer->rme->tuning.fast_bytes == 0 || !peer->credit.exact) {
        rme_peer_protocol_error(peer, "a grant of memory that cannot be");
        return;
    }
    rme_wire_segment_at(message, 0, &segment);
    room = rme_least(rme_least(room, AREA_MOST), rme_least(segment.length, tuning->fast_bytes));
    hold = room >= RME_WIRE_FAST_UNIT ? calloc(1, sizeof(*hold)) : NULL;
    if (hold == NULL) {
        say_release(peer);
        return;
    }
    hold->peer = peer;
    hold->address = segment.address;
    hold->key = segment.key;
    hold->late = (uint32_t)rme_least(segment.length - segment.length / 4, UINT32_MAX);
    hold->name = message->from;
    hold->ring.units = (uint32_t)(room / RME_WIRE_FAST_UNIT);
    hold->size = (size_t)hold->ring.units * RME_WIRE_FAST_UNIT;
    pool->stages += hold->size;
    hold->making = true;
    hold->job.run = make_stage;
    rme_node_append(&peer->rme->protocols->fast.jobs, &hold->job.link);
    peer->talk->fast.held = hold;
}

/* If we hold none, our RELEASE has crossed it. */
static void withdrawn(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;

    (void)message;
    if (hold == NULL)
        return;
    hold->ending = true;
    rme_peer_kick(peer);
    end_if_idle(hold);
}

void rme_fast_moved(struct rme_peer *peer, struct rme_xfer *xfer)
{
    struct fast_write *write = NULL;
    struct rme_fast_hold *hold;

    if (xfer->notify == RME_NOTIFY_IMM)
        write = rme_entry(xfer, struct fast_write, xfer);
    hold = write != NULL ? write->hold : rme_entry(xfer, struct rme_fast_hold, last);
    hold->pending--;
    if (hold->gone) {
        if (hold->pending == 0) {
            rme_node_remove(&hold->leaving);
            hold_free(peer->rme, hold);
        }
        return;
    }
    write->done = true;
    hold->loud -= !xfer->quiet;
    end_if_idle(hold);
    if (peer->talk->holds != 0 || !rme_node_alone(&peer->talk->sendq[RME_EXPECTED]))
        rme_peer_kick(peer);
}

static void down(struct rme_peer *peer)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;
    struct rme_node *node;

    rme_fast_area_down(peer);
    while ((node = rme_node_take(&peer->talk->fast.leaving)) != NULL)
        hold_free(peer->rme, rme_entry(node, struct rme_fast_hold, leaving));
    if (hold == NULL)
        return;
    peer->talk->fast.held = NULL;
    hold->peer = NULL;
    if (!hold->making)
        hold_free(peer->rme, hold);
}

void rme_fast_work(struct rme *rme)
{
    struct rme_node *node = rme_node_take(&rme->protocols->fast.jobs);
    struct rme_fast_job *job = rme_entry(node, struct rme_fast_job, link);

    job->run(rme, job);
}

static void made(struct rme_peer *peer)
{
    rme_node_init(&peer->talk->fast.early);
    rme_node_init(&peer->talk->fast.release.link);
    rme_node_init(&peer->talk->fast.leaving);
    peer->talk->fast.release.kind = &release_kind;
}

static void started(struct rme_peer *peer)
{
    peer->talk->fast.wants = 0;
    peer->talk->fast.refused = false;
}

static void init(struct rme_protocols *protocols)
{
    rme_node_init(&protocols->fast.areas);
    rme_node_init(&protocols->fast.jobs);
}

const struct rme_protocol rme_protocol_fast = {
    .name = "fast",
    .init = init,
    .start = start,
    .in_turn = fits,
    .arrived = {[RME_WIRE_GRANT] = granted,
                [RME_WIRE_WITHDRAW] = withdrawn,
                [RME_WIRE_RELEASE] = rme_fast_released},
    .made = made,
    .started = started,
    .left = rme_fast_area_left,
    .down = down,
};
