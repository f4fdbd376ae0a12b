/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Eager messages by RDMA write [000 4.5.2, 003 4.1].  A message that is larger than a receive
 * buffer, but small enough for copies to cost less than a rendezvous, is written into a
 * delegated buffer (an area, the eager ring): memory that its receiver has registered
 * beforehand and granted to this sender alone.  This file is the user's side, fast_area.c the
 * owner's.
 *
 * Normal path.  Such a message is an EAGER or UNEXPECTED message in every respect except the
 * location of its bytes.  Header, length and payload are composed in the staging buffer (a zone
 * block of the size of the delegated buffer or of its first part, fast_hold.c, where a message
 * has the same place as in the delegated buffer), and written by one request with an immediate
 * that names the place.  The send is complete when the bytes are in the staging buffer.  The
 * receiver handles the immediate like a message: the receiver finds the header at the place,
 * checks a copy of the header, and goes on as if the message had arrived in a receive buffer.
 * The payload is copied to its receive.  Without a matching receive the payload may stay in
 * place for a while, and is copied to other memory after that (fast_early.c).  So the place
 * becomes free again whether or not the host receives the message.
 *
 * Return of places.  Each such message uses a credit, like any message.  Returned credits
 * identify the consumed messages (credit.c), in order, and so the free places, because the
 * credits of messages that stay are withheld.  No further message is necessary.  Places are
 * used in ring order (fast_ring.h).
 *
 * Local completions.  On fabrics with unsignalled transfers, the peer's count of consumed
 * messages suffices to reuse the staging buffer: the device no longer reads that part.  So only
 * every 16th write is signalled, and its CQE completes the writes before it.  On other fabrics
 * each write is signalled, and its place is reused after both the CQE and the peer's count,
 * because the staging buffer is reused with the place.
 *
 * Gathering.  Where the planner finds gathering cheaper than the copy, the staging buffer holds
 * only the header, and the write gathers the payload from the host's memory, provided that this
 * memory is registered already.  Gathering never registers memory; unregistered memory is
 * copied.  The send is then ENDING: its outcome is known, but the device still reads its
 * memory.  The send is reported, and its memory returned to the host, at the CQE of the write,
 * or when the peer's count shows that the peer has consumed the message, which implies that the
 * device has read all of it.  The count is evaluated before the message that carries it is
 * processed, so the host learns the end of its send before the host gets an answer.  The
 * registration, or the slab of a zone, is held until the CQE in any case, because the device
 * may retransmit when an ACK was lost.  On-demand paged memory is copied, because no
 * registration pins its pages.  A gathering write is always signalled, because its host waits.
 * On fabrics with `reports_apart` the peer's count is too late to keep that order, and
 * everything is copied.
 *
 * Many messages in flight.  The two additional messages of a rendezvous then overlap with other
 * messages, and both sides can move the data of a rendezvous.  The planner therefore sends
 * large messages, whose copies cost most, by rendezvous even when there is room.
 *
 * Why order is kept.  The immediate is ordered: its place in the stream of messages is that of
 * an EAGER or RTS, and the write is handed to the fabric at the moment when such a message
 * would be.  So messages of a tag match their receives in the order of sending, regardless of
 * protocol, and windows, refusals (cancel.c) and invitations (invite.c) count the write like an
 * EAGER.  An invitation of the exact size has precedence, because it saves both copies.
 *
 * No room.  The owner returns credits with a CREDIT message when half of the delegated buffer
 * has been consumed, and at the latest when all unreturned messages fill three quarters of it,
 * whether or not they are matched.  So a send that finds no room while at least three quarters
 * are unreturned waits: the first expected message of the queue, and all messages behind it, as
 * for a credit.  The room comes independently of the receives of the owner's host: from the
 * owner, which has the credits to send CREDIT (credit.c proves that, because this side has
 * credits if the owner has none); or from a CQE of the local device.  Waiting is better than a
 * rendezvous, which costs a receiver that is already behind two more messages.  A send that
 * finds no room while less is unreturned is too large for the rest of the ring, and goes by
 * rendezvous.  So do unexpected messages, and messages that let others pass in the queue
 * (send.c), because smaller messages could otherwise overtake them without bound.  On fabrics
 * with `reports_apart` every such send goes by rendezvous: the owner may have returned the
 * credits of all messages in the buffer, and each notification that is not yet in the owner's
 * count hides one consumed message; the owner has no duty to return the credits of those
 * notifications.
 *
 * Cancel.  A QUEUED send is cancelled like any other; a written one is complete.  No state in
 * between waits for a peer.
 *
 * Release.  WITHDRAW asks for the delegated buffer.  No new write begins after that; when all
 * signalled writes are complete, RELEASE follows, behind all messages in the buffer.  Behind
 * unsignalled writes RELEASE is a signalled transfer, and the staging buffer is freed at its
 * CQE.  A delegated buffer without a staging buffer is released, too.
 *
 * Failure path.  The end of the link ends the writes; the staging buffer is freed when the link
 * is down.  The delegated buffer belongs to the receiver, and so does the protection against a
 * peer that misuses it.
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

/* Frees the places of messages that the peer has consumed. */
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

/* Is there an invitation for a message of this size and tag? */
static bool is_invited(const struct rme_peer *peer, enum rme_stream stream, uint64_t size,
                       int32_t tag)
{
    const struct rme_invites *invites = &peer->talk->invites;

    return stream == RME_EXPECTED && invites->held != NULL && invites->tag == tag &&
           invites->held->length == size;
}

/*
 * Messages to this peer in flight that overlap with a rendezvous of the next one: writes that
 * the peer has not consumed, as far as known, and messages that wait for their receives or are
 * being moved.
 */
static uint64_t under_way(struct rme_peer *peer)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;

    uint32_t waiting = peer->talk->rts_out[RME_EXPECTED], moving = peer->rme->under_way;

    reclaim(hold);
    return (uint64_t)(hold->count - hold->taken) + (waiting > moving ? waiting : moving);
}

/* Result of the check whether a message fits the delegated buffer. */
enum fit { FIT_NOT, FIT_CROWDED, FIT_FULL, FIT_LATER, FIT_NOW };

/* Asks the planner.  FIT_NOW: the planner chooses the delegated buffer. */
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

/* May the message use free room?  A smaller unexpected message does not take the room for which
 * the first waiting expected message waits. */
static bool is_first(const struct rme_peer *peer, enum rme_stream stream)
{
    return stream == RME_EXPECTED ||
           (peer->talk->holds == 0 && rme_node_alone(&peer->talk->sendq[RME_EXPECTED]));
}

/* Checks whether a message can be written now.  `copied`: the payload is copied; otherwise
 * gathered, if its memory is registered. */
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

/* Allocates the next write, of `size` bytes; the caller has checked for room. */
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

/* Posts the write.  Its first segment is in the staging buffer, and `inside` bytes long. */
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

/* Allocates the next write and composes its header in the staging buffer, at the returned
 * address. */
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

/* Writes the payload from the host's memory, if that is registered; the caller has checked for
 * a credit.  The send is ENDING afterwards: its memory is still in use. */
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

/* Starts a send.  The first expected message of the queue waits for room if the room is certain
 * to come. */
static enum rme_started start(struct rme *rme, struct rme_op *op)
{
    enum rme_stream stream = rme_op_stream(op);
    bool copied = true;
    enum fit fit = op->rndv == NULL
                       ? look(op->peer, stream, op->seg, op->nseg, op->size, op->tag, &copied)
                       : FIT_NOT;

    if (op->peer->talk->fast.held == NULL)
        rme_fast_hold_missed(op->peer, stream, op->size);
    if (fit == FIT_LATER && stream == RME_EXPECTED && !rme_match_is_first(&op->match))
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
