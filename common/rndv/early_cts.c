/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Early CTS: the receiver goes first.  A large message needs RTS and CTS before its first byte
 * moves, and each of the two wakes a sleeping process.  A receive that is posted first need not
 * wait for RTS: the receiver opens its memory with an unsolicited CTS, and the sender writes at
 * once, with the immediate that ends any rendezvous write.
 *
 * Normal path.  A receive is posted, the oldest of its (peer, tag) is unmatched, the link moves
 * nothing large, that receive's memory is registered already and the planner would have the
 * sender write: the CTS is sent, and the op waits as EARLY_CTS, matched like a POSTED one.  The
 * sender holds the window until it sends the next message of that tag.  If this message has the
 * size of the receive, its memory is ready and nothing is queued before it, the message is
 * written at once.  Otherwise, or if the sender has other data to move and the receiver could
 * read, the message goes as usual: EAGER or RTS.
 *
 * Why both sides agree on the message.  An EAGER or RTS voids the early CTS for its tag, on
 * both sides: the sender drops a held window when it sends one, and the receiver closes the
 * memory when it matches one with the receive.  An early CTS could also arrive after such a
 * message was sent, and before the receiver has seen the message.  Therefore it carries the
 * number of messages that the receiver has seen (EAGER and RTS, of all tags), and the sender
 * drops an early CTS on arrival if it has sent more.  So a held window is for the next message
 * of the tag: the receiver had seen all earlier ones when it opened the receive, the oldest of
 * its tag.  A dropped one is followed by an EAGER or RTS of the tag, or by the cancel of the
 * receive.
 *
 * Why order is kept.  No message of the tag may overtake the written one.  Therefore the write
 * is handed to the fabric as a whole before the next message is started, or the window is
 * dropped; without memory for the write its CANCEL precedes the next message.
 *
 * Why one early CTS for a peer at a time.  It serves the first message of an idle link.
 * Messages that follow closely hide the latency of each other's RTS, and by RTS the planner
 * shares the work between the two sides.
 *
 * Failure path.  An open receive is cancelled like one whose memory is advertised (stop.c), but
 * the peer's send has no name yet: CANCEL has `to` 0.  The sender drops the window and answers
 * FIN, even without one in hand; if a send has taken it, the send is stopped as usual: the send
 * completes, or both ends are cancelled.  Until then the receive waits for FIN or the immediate
 * alone: an EAGER or RTS was not written into its memory, and meets the next receive.
 *
 * Hosts post receives for answers that may be large and are small.  So the engine counts void
 * early CTS for each peer, and after several in a row rarely sends one.
 */
#include <errno.h>

#include "plan/plan.h"
#include "rndv/rndv.h"

/* void early CTS in a row after which the peer rarely gets one */
#define FAIL_STREAK 4u
/* then one receive of this many tries again */
#define TRY_AGAIN 64u

/* ---- The receiver ---- */

static bool is_tried(struct rme_early_cts *early)
{
    return early->fail_streak < FAIL_STREAK || ++early->fail_streak % TRY_AGAIN == 0;
}

/* May an early CTS be sent to the peer now?  Its link moves nothing large. */
static bool may_send(const struct rme_peer *peer)
{
    return peer->state == RME_PEER_UP && (peer->hello.flags & RME_HELLO_F_EARLY_CTS) != 0 &&
           peer->rndv->early.receive == NULL && peer->load.ops == 0 &&
           list_empty(&peer->rdma_queue) && list_empty(&peer->moving) &&
           list_empty(&peer->control) && list_empty(&peer->endings) && !peer->tx_wait &&
           rme_credit_may(&peer->credit, RME_CREDIT_DATA);
}

/* Would the planner open the receive's memory?  The sender's side is unknown.  A message that
 * the sender would write into its ring needs no early CTS. */
static bool is_useful(struct rme *rme, const struct rme_op *op, uint64_t ring_max)
{
    const struct rme_peer *peer = op->peer;
    struct rme_plan_in in = rme_rndv_plan_in(rme, op->total);
    struct rme_plan plan;

    in.eager_max = peer->eager_max[RME_EXPECTED];
    in.send = rme_plan_unseen_sender((peer->hello.flags & RME_HELLO_F_SERVER) != 0, peer->load);
    in.recv = rme_rndv_own_side(rme, op);
    in.ring_max = ring_max;
    in.early = true;
    rme_plan(&in, &plan);
    return plan.early_cts;
}

/*
 * Sends the early CTS.  Most hosts post a receive and then the send that provokes its message:
 * the two share a doorbell.  If no thread polls, a thread will do so to wait for this receive.
 * The message may wait for either.
 */
static bool send_cts(struct rme_op *op, struct rme_frag *frag)
{
    struct rme_peer *peer = op->peer;
    bool hurry = (peer->rme->pending & RME_PENDING_FLUSH) != 0 || peer->rme->leader != NULL;
    void *tx = rme_frag_tx(frag, true);

    if (tx == NULL)
        return false;
    rme_count(peer->rme, RME_C_EARLY_CTS_SENT);
    rme_cts_send(frag, RME_WIRE_F_UNSOLICITED, op->tag, peer->rndv->early.seen, tx);
    if (!hurry)
        peer->rme->pending &= ~(uint32_t)RME_PENDING_FLUSH;
    peer->rme->lingers = !hurry;
    return true;
}

static void written(struct rme *rme, struct rme_op *op, uint64_t end)
{
    op->peer->rndv->early.fail_streak = 0;
    rme_rndv_target_done(rme, op, end);
}

static const struct rme_rndv_stage stages[RME_OP_STATES] = {
    [RME_OP_EARLY_CTS] = {.moved = written},
};

void rme_early_cts_try(struct rme *rme, struct rme_op *op, uint64_t ring_max)
{
    struct rme_frag *frag;

    if (op->state != RME_OP_POSTED || !may_send(op->peer) || !is_useful(rme, op, ring_max) ||
        !is_tried(&op->peer->rndv->early))
        return;
    op->size = op->total;
    if (!rme_rndv_new(rme, op, stages))
        return;
    op->rndv->access = RME_ACCESS_REMOTE_WRITE;
    op->rndv->max_segs = rme_mw_segments_max(rme, RME_WIRE_CTS, op->peer->tx_size);
    frag = rme_rndv_first(rme, op);
    if (frag == NULL || frag->state != RME_FRAG_READY || frag->length != op->size ||
        !send_cts(op, frag)) {
        rme_rndv_free(rme, op);
        return;
    }
    frag->state = RME_FRAG_POSTED;
    rme_op_step(op, RME_OP_EARLY_CTS);
    op->peer->rndv->early.receive = op;
}

void rme_early_cts_void(struct rme *rme, struct rme_op *op)
{
    op->peer->rndv->early.fail_streak++;
    rme_rndv_free(rme, op);
    rme_op_step(op, RME_OP_POSTED);
}

/* ---- The sender ---- */

/* Is the held window for this send, and may all of it move now?  A send that may need RTS after
 * all must not precede those that wait. */
static bool is_for(const struct rme_op *op)
{
    const struct rme_peer *peer = op->peer;

    return op->kind == RME_OP_SEND &&
           rme_early_cts_is_for(&peer->rndv->early, op->tag, op->size) &&
           op->size <= rme_xfer_max(peer, op->size) && list_empty(&peer->rdma_queue) &&
           rme_xfer_may(peer, op->size) && rme_rndv_may_start(op);
}

/* Writes the send into the memory of the held window. */
static enum rme_started write_whole(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_early_cts *early = &peer->rndv->early;

    rme_send_leave(op);
    rme_rndv_set_peer_handle(op, early->from);
    list_add_tail(&early->held->link, &op->rndv->remote_windows);
    early->held = NULL;
    rme_count(rme, RME_C_EARLY_CTS_TAKEN);
    op->rndv->opened = op->size;
    rme_rndv_begin(rme, op, RME_OP_MOVING, rme_put_stages);
    if (op->state != RME_OP_MOVING) /* no memory: CANCEL precedes the next message of the tag */
        return RME_START_STUCK;
    while (!list_empty(&peer->rdma_queue) && rme_xfer_progress(peer))
        continue;
    return RME_START_GONE;
}

enum rme_started rme_early_cts_start(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    struct rme_frag *frag;

    if (!is_for(op))
        return RME_START_OTHER;
    if (op->rndv == NULL && !rme_rndv_plan_send(rme, op))
        return RME_START_GONE;
    if (op->rndv->access == RME_ACCESS_REMOTE_READ && rme->load.ops != 0)
        return RME_START_OTHER; /* the receiver may read the offer of RTS */
    if (!rme_peer_may(peer, RME_CREDIT_DATA))
        return RME_START_STUCK;
    frag = rme_rndv_first(rme, op);
    if (frag == NULL)
        return RME_START_GONE;
    if (frag->state != RME_FRAG_READY || frag->length != op->size || rme_frag_waits(rme, frag))
        return RME_START_OTHER;
    /* an immediate carries no count of consumed messages (op/end.c): CREDIT precedes, which may
     * use the last credit */
    if ((peer->credit.unacked &&
         !rme_peer_send_header(peer, RME_WIRE_CREDIT, RME_CREDIT_RETURN)) ||
        !rme_peer_may_report(peer))
        return RME_START_STUCK;
    return write_whole(rme, op);
}

void rme_early_cts_arrived(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_early_cts *early = &peer->rndv->early;

    if (early->held != NULL || message->rndv_window == 0 || message->offset != 0 ||
        (int32_t)(message->to - early->sent) > 0) {
        rme_peer_protocol_error(peer, "an unexpected early CTS");
        return;
    }
    if (message->to != early->sent) /* void: it has crossed a message */
        return;
    early->held = rme_remote_window_new(message);
    if (early->held == NULL) {
        rme_peer_fail(peer, -ENOMEM, "no memory for an early CTS");
        return;
    }
    early->tag = message->tag;
    early->from = message->from;
}

static bool send_answer(struct rme_peer *peer, struct rme_control *control)
{
    if (!rme_cancel_answer(peer, peer->rndv->early.cancelled))
        return false;
    list_del_init(&control->link);
    return true;
}

void rme_early_cts_init(struct rme_early_cts *early)
{
    list_init(&early->answer.link);
    early->answer.send = send_answer;
}

/* Handles the cancel of a receive whose window no send has taken; of a taken one, the send is
 * found by the receive's handle (rme_rndv_cancelled). */
bool rme_early_cts_cancelled(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    struct rme_early_cts *early = &peer->rndv->early;

    if ((cancel->flags & RME_WIRE_F_FROM_SENDER) != 0 || cancel->to != 0)
        return false;
    if (early->held != NULL && early->from == cancel->from)
        rme_early_cts_drop(early);
    early->cancelled = cancel->from;
    list_del_init(&early->answer.link);
    list_add_tail(&early->answer.link, &peer->endings);
    rme_peer_schedule(peer);
    return true;
}
