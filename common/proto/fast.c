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
 * the stage needs: our device looks at that part of it no more.  So but each 16th write is
 * quiet, and it gives the descriptions of those before it back.  Elsewhere each write is
 * reported, and its place is used again only when it was, as the stage is used with it.
 *
 * Gathering.  Where the planner finds that it costs less than the copy, only the header is in
 * the stage, and the write gathers the payload from the host's own memory, if that is
 * registered already; nothing is registered for it, what is not is copied.  The send is ENDING
 * from then on: its outcome is known, but its memory is the device's, and nobody's else.  It
 * is reported, and the memory the host's again, when the write is complete here, or when the
 * peer shows that it has taken the message, which it cannot do before the device has read all
 * of it.  That is looked at before the message that shows it is taken, so the host hears of
 * its send before it hears an answer.  The registration, or the slab of a zone, is held until
 * the write is complete in any case, as a device may read once more what the network has lost
 * the receipt of.  What comes on demand no registration would hold: it is copied.  A write that
 * gathers is never quiet, as its host waits.  Where reports are apart the peer's word comes too
 * late to keep that order, and everything is copied.
 *
 * In a crowd.  With many messages under way nobody waits for the two that a rendezvous has
 * more, and its data may be moved by both sides.  Then the planner sends large messages, whose
 * copies cost most, by rendezvous though there is room.
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
 * when that is complete.  We also release one for which we have no stage.
 *
 * Failure path.  The end of the link ends the writes; the stage goes when the link is down.
 * The area is the receiver's, and so is the care for what a wrong peer does with it.
 */
#include <errno.h>
#include <stdlib.h>

#include "proto/arrive.h"
#include "proto/fast_hold.h"
#include "proto/message.h"
#include "proto/rndv.h"
#include "proto/send.h"

/* ---- Sending ---- */

static uint32_t units_of(uint64_t size)
{
    return (uint32_t)((RME_WIRE_FAST_SIZE + size + RME_WIRE_FAST_UNIT - 1) /
                      RME_WIRE_FAST_UNIT);
}

/* Places of messages that the peer has taken are free. */
static void reclaim(struct rme_fast_hold *hold)
{
    const struct rme_credit *credit = &hold->peer->credit;

    while (hold->taken < hold->count) {
        struct rme_fast_write *oldest =
            &hold->write[(hold->first + hold->taken) % RME_FAST_WRITES];

        if (!(oldest->done || hold->peer->rme->caps->quiet) ||
            !rme_fast_is_taken(credit, oldest))
            break;
        rme_fast_ring_free(&hold->ring, oldest->units);
        hold->bytes -= oldest->bytes;
        hold->taken++;
    }
    while (hold->taken > 0 && hold->write[hold->first].done) {
        hold->first = (hold->first + 1) % RME_FAST_WRITES;
        hold->count--;
        hold->taken--;
    }
}

static bool has_room(struct rme_fast_hold *hold, uint64_t size)
{
    uint32_t at, skip;

    reclaim(hold);
    return hold->count < RME_FAST_WRITES &&
           rme_fast_ring_room(&hold->ring, units_of(size), &at, &skip);
}

/* Is there an invitation that is meant for a message of this size? */
static bool is_invited(const struct rme_peer *peer, enum rme_stream stream, uint64_t size,
                       int32_t tag)
{
    const struct rme_invites *invites = &peer->talk->invites;

    return stream == RME_EXPECTED && invites->held != NULL && invites->tag == tag &&
           invites->held->length == size;
}

/* What goes on while a message to this peer waits for an answer: messages that the peer has not
 * taken yet, as far as we know, and those that wait for their receives or are being moved. */
static uint64_t under_way(struct rme_peer *peer)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;

    uint32_t waiting = peer->talk->rts_out[RME_EXPECTED], moving = peer->rme->under_way;

    reclaim(hold);
    return (uint64_t)(hold->count - hold->taken) + (waiting > moving ? waiting : moving);
}

/* Whether a message is one for the area, and may go there. */
enum fit { FIT_NOT, FIT_CROWDED, FIT_FULL, FIT_LATER, FIT_NOW };

/* FIT_NOW: the planner wants it there. */
static enum fit ask_planner(struct rme_peer *peer, const struct rme_seg *seg, uint32_t nseg,
                            uint64_t size, bool *copied)
{
    struct rme *rme = peer->rme;
    struct rme_plan_in in = rme_rndv_plan_in(rme, size);
    bool ready = nseg == 1 && rme_zone_owns(rme->zone, seg[0].base, seg[0].length);
    struct rme_plan plan;

    in.fast_max = size;
    in.gathers = rme_fast_gathers(rme, nseg, ready);
    in.send = rme_rndv_side(rme, nseg, ready, true);
    in.recv = rme_rndv_far_side(rme, (peer->hello.flags & RME_HELLO_F_SERVER) != 0);
    in.under_way = under_way(peer);
    in.has_read = (peer->hello.flags & RME_HELLO_F_READ) != 0;
    rme_plan(&in, &plan);
    *copied = plan.send_pack;
    return plan.proto == RME_PROTO_FAST ? FIT_NOW : plan.crowded ? FIT_CROWDED : FIT_NOT;
}

/* Expected messages wait: a smaller unexpected one does not take the room that the first of
 * them waits for. */
static bool is_first(const struct rme_peer *peer, enum rme_stream stream)
{
    return stream == RME_EXPECTED ||
           (peer->talk->holds == 0 && rme_node_alone(&peer->talk->sendq[RME_EXPECTED]));
}

/* `copied`: and shall it be copied, else it is gathered if its memory is registered. */
static enum fit look(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                     uint32_t nseg, uint64_t size, int32_t tag, bool *copied)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;
    enum fit planned;

    if (hold == NULL || hold->making || hold->ending ||
        size > rme_fast_most(peer->rme, stream) || is_invited(peer, stream, size, tag))
        return FIT_NOT;
    planned = ask_planner(peer, seg, nseg, size, copied);
    if (planned != FIT_NOW)
        return planned;
    if (!rme_window_fits(&peer->window[stream], size) || !is_first(peer, stream))
        return FIT_FULL;
    if (has_room(hold, size))
        return FIT_NOW;
    return hold->bytes >= hold->late && !peer->rme->caps->reports_apart ? FIT_LATER : FIT_FULL;
}

bool rme_fast_fits(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag)
{
    bool copied;

    return look(peer, stream, seg, nseg, size, tag, &copied) == FIT_NOW;
}

bool rme_fast_copies(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                     uint32_t nseg, uint64_t size, int32_t tag)
{
    bool copied;

    return look(peer, stream, seg, nseg, size, tag, &copied) == FIT_NOW && copied;
}

/* The next write, of so many bytes; there is room. */
static struct rme_fast_write *write_new(struct rme_fast_hold *hold, uint64_t size, uint32_t *at)
{
    struct rme_fast_write *write = &hold->write[(hold->first + hold->count) % RME_FAST_WRITES];
    uint32_t units = units_of(size), skip;

    (void)rme_fast_ring_room(&hold->ring, units, at, &skip);
    rme_fast_ring_take(&hold->ring, *at, units, skip);
    rme_fast_hold_used(hold);
    hold->count++;
    write->hold = hold;
    write->op = NULL;
    write->mreg = NULL;
    write->zoned = 0;
    write->units = units + skip;
    write->bytes = (uint32_t)size + RME_WIRE_FAST_SIZE;
    hold->bytes += write->bytes;
    write->done = false;
    return write;
}

/* The first of its segments is in the stage, and `inside` bytes long. */
static void post(struct rme_fast_hold *hold, struct rme_fast_write *write, uint32_t at,
                 uint64_t inside, uint32_t nseg)
{
    struct rme_peer *peer = hold->peer;
    uint64_t offset = (uint64_t)at * RME_WIRE_FAST_UNIT;
    bool quiet = peer->rme->caps->quiet && write->op == NULL && ++hold->quiet < RME_FAST_LOUD;

    if (!quiet)
        hold->quiet = 0;
    hold->pending++;
    hold->loud += !quiet;
    write->number = peer->credit.spent - peer->credit.apart;
    write->seg[0] = (struct rme_lseg){hold->stage + offset, inside, hold->lkey};
    write->piece = (struct rme_piece){hold->address + offset, hold->key, write->seg, nseg};
    write->xfer = (struct rme_xfer){.notify = RME_NOTIFY_IMM,
                                    .ordered = true,
                                    .quiet = quiet,
                                    .imm = hold->name + at,
                                    .piece = &write->piece,
                                    .npiece = 1,
                                    .bytes = write->bytes};
    peer->rme->ops->xfer(peer->link, &write->xfer);
}

/* The next write, with its header in the stage, which is returned. */
static char *compose(struct rme_peer *peer, enum rme_stream stream, uint64_t size, int32_t tag,
                     struct rme_fast_write **write, uint32_t *at)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;
    struct rme_wire_message message;
    char *stage;

    *write = write_new(hold, size, at);
    rme_peer_head(peer, stream == RME_EXPECTED ? RME_WIRE_EAGER : RME_WIRE_UNEXPECTED, tag,
                  &message);
    peer->rme->pending |= RME_PENDING_FLUSH;
    if (stream == RME_EXPECTED)
        rme_invite_sent(&peer->talk->invites, tag, 0);
    stage = hold->stage + (size_t)*at * RME_WIRE_FAST_UNIT;
    rme_wire_encode_fast(&message, (uint32_t)size, stage);
    rme_window_sent(&peer->window[stream], size);
    rme_peer_count(peer, RME_C_SENDS_FAST, 1);
    return stage;
}

bool rme_fast_send(struct rme_peer *peer, enum rme_stream stream, const struct rme_seg *seg,
                   uint32_t nseg, uint64_t size, int32_t tag)
{
    struct rme_fast_write *write;
    uint32_t at;
    char *stage;

    if (!rme_peer_may(peer, RME_CREDIT_DATA))
        return false;
    stage = compose(peer, stream, size, tag, &write, &at);
    rme_seg_gather(seg, nseg, 0, stage + RME_WIRE_FAST_SIZE, size);
    post(peer->talk->fast.held, write, at, write->bytes, 1);
    rme_send_copied(peer, stream, size);
    return true;
}

/* ---- Gathering ---- */

/* Writes it from where it is, if that is registered; there is a credit.  The send has ended,
 * but its memory is in use. */
static bool gather(struct rme *rme, struct rme_op *op, enum rme_stream stream)
{
    struct rme_mseg mseg[RME_FAST_SEGS - 1];
    struct rme_mreg_hold *mreg;
    struct rme_fast_write *write;
    uint32_t at;

    for (uint32_t i = 0; i < op->nseg; i++)
        mseg[i] = (struct rme_mseg){.base = op->seg[i].base, .length = op->seg[i].length};
    if (rme_mreg_try(rme->mreg, mseg, op->nseg, RME_ACCESS_LOCAL, &mreg) != 0)
        return false;
    (void)compose(op->peer, stream, op->size, op->tag, &write, &at);
    for (uint32_t i = 0; i < op->nseg; i++) {
        write->seg[i + 1] = (struct rme_lseg){mseg[i].base, mseg[i].length, mseg[i].lkey};
        if (rme_zone_hold(rme->zone, mseg[i].base, mseg[i].length))
            write->zoned |= 1u << (i + 1);
    }
    write->mreg = mreg;
    write->op = op;
    op->pins++;
    op->peer->talk->fast.held->sends++;
    post(op->peer->talk->fast.held, write, at, RME_WIRE_FAST_SIZE, op->nseg + 1);
    rme_count(rme, RME_C_FAST_GATHERED);
    rme_send_eager(op->peer, stream, op->size);
    rme_times_went(op, RME_PROTO_FAST);
    rme_send_leave(op);
    rme_op_end(rme, op, 0);
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
    bool copied = true;
    enum fit fit = op->rndv == NULL
                       ? look(op->peer, stream, op->seg, op->nseg, op->size, op->tag, &copied)
                       : FIT_NOT;

    if (op->peer->talk->fast.held == NULL)
        rme_fast_hold_missed(op->peer, stream, op->size);
    if (fit == FIT_LATER && stream == RME_EXPECTED && op->slot == NULL)
        return RME_START_STUCK;
    if (fit != FIT_NOW) {
        rme_count_add(rme, RME_C_FAST_FULL, fit == FIT_FULL || fit == FIT_LATER);
        rme_count_add(rme, RME_C_FAST_CROWDED, fit == FIT_CROWDED);
        return RME_START_OTHER;
    }
    if (!rme_peer_may(op->peer, RME_CREDIT_DATA))
        return RME_START_STUCK;
    if (!copied && gather(rme, op, stream))
        return RME_START_GONE;
    if (!rme_fast_send(op->peer, stream, op->seg, op->nseg, op->size, op->tag))
        return RME_START_STUCK;
    rme_times_went(op, RME_PROTO_FAST);
    rme_send_leave(op);
    rme_op_end(rme, op, 0);
    return RME_START_GONE;
}

/* ---- The row ---- */

static void made(struct rme_peer *peer)
{
    rme_node_init(&peer->talk->fast.early);
    rme_node_init(&peer->talk->fast.release.link);
    rme_node_init(&peer->talk->fast.leaving);
    peer->talk->fast.release.kind = &rme_fast_release_kind;
}

static void started(struct rme_peer *peer)
{
    peer->talk->fast.wants = 0;
    peer->talk->fast.in_vain = 0;
}

static void init(struct rme_protocols *protocols)
{
    rme_node_init(&protocols->fast.areas);
    rme_node_init(&protocols->fast.lent);
    rme_node_init(&protocols->fast.waiting);
    rme_node_init(&protocols->fast.jobs);
    rme_node_init(&protocols->fast.holds);
    rme_node_init(&protocols->fast.granted);
}

static void down(struct rme_peer *peer)
{
    rme_fast_area_down(peer);
    rme_fast_hold_down(peer);
}

const struct rme_protocol rme_protocol_fast = {
    .init = init,
    .start = start,
    .in_turn = fits,
    .arrived = {[RME_WIRE_GRANT] = rme_fast_granted,
                [RME_WIRE_WITHDRAW] = rme_fast_withdrawn,
                [RME_WIRE_RELEASE] = rme_fast_released},
    .made = made,
    .started = started,
    .left = rme_fast_area_left,
    .down = down,
};
