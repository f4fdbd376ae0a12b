/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Transfers of the initiator, and the remote windows into which, or from which, they move data:
 * each window begins where the one before ended.  A transfer is a fragment, which lies within
 * one window, split into work requests (split.c) that are passed to the fabric in order.
 * Limits bound the outstanding transfers of a peer and of the process [004 5.1], and the
 * outstanding bytes of a peer.  Transfers above a limit of the peer wait in peer->rdma_queue
 * until a posted one of the peer is complete.
 *
 * Peers above the limit of the process wait in rme->movers.  The end of any transfer schedules
 * the first of them.  That peer posts one transfer and queues again behind the others, so peers
 * that wait get equal shares, independent of how many transfers they have in flight.  A peer
 * that cannot use its turn, because a credit, the reserve block or its own limit is missing,
 * leaves the list.  A peer without a posted transfer may post one despite the limit of the
 * process, because peers that do not respond hold their transfers without bound, and must not
 * block all others.
 *
 * Bytes are limited to keep the latency of small messages low, because these cannot pass data
 * that the device has accepted for writing or reading.  A transfer has at most half of the
 * limit (rdma_inflight_bytes), so that the device stays busy while the next one is posted.
 * The rest of a message is a single transfer if the limit permits and the link has no other.
 * An op has at most two transfers.  Its next transfer is appended to the queue, so ops take
 * turns, and a new op waits for the transfers queued so far, not for whole messages.  While the
 * peer moves data of this side over the same wire, each side has half of the limit.  If several
 * devices carry the link's data, the limit applies to each, because a message waits for one of
 * them.
 *
 * A message that answers an early CTS is posted as a whole, because no message of its tag may
 * pass it on the way to its receive.  One of more than one transfer therefore goes by RTS.
 *
 * The last transfer of a window carries its report: an immediate, or FIN if that closes the
 * window, each of which uses one credit of the receiver.  The fabric delivers the report after
 * the data of all transfers of the op queued before, so one report per window suffices.  FIN
 * reports reads: the engine sends FIN when the reads are complete, unless FIN may follow them
 * by itself (caps.chains_reads).
 */
#include <errno.h>
#include <stdlib.h>

#include "rndv/rndv.h"

/* Returns the key of the window if the message that reports its end may close it, so that the
 * peer need not; 0: the window has several parts, or a device cannot. */
static uint64_t closable(const struct rme_peer *peer, const struct rme_remote_window *window)
{
    return peer->rme->caps->closes && (peer->hello.flags & RME_HELLO_F_CLOSES) != 0 &&
                   window->nsegment == 1
               ? window->segment[0].key
               : 0;
}

/* ---- Transfers ---- */

/* Returns how the last transfer of a window reports.  The answer to an early CTS does
 * by an immediate, for which a credit was made sure of, not a buffer. */
static enum rme_notify report_by(const struct rme_op *op, bool read)
{
    if (read)
        return op->peer->rme->caps->chains_reads ? RME_NOTIFY_MSG : RME_NOTIFY_NONE;
    return op->rndv->closes != 0 ? RME_NOTIFY_MSG : RME_NOTIFY_IMM;
}

/* Queues the transfer of a ready fragment, which lies within a remote window.  Returns false if
 * memory is short. */
static bool queue(struct rme *rme, struct rme_frag *frag)
{
    struct rme_op *op = frag->op;
    struct rme_remote_window *window = rme_remote_window_at(op, frag->offset);
    bool read = !rme_op_sends(op);
    uint32_t max_sge = read ? rme->caps->max_read_sge : rme->caps->max_sge;
    uint64_t skip = frag->offset - window->offset;
    bool report = skip + frag->length == window->length;
    uint64_t cuts = window->nsegment + frag->length / rme->caps->max_piece;
    uint64_t segs = cuts + frag->nmseg, pieces = cuts + segs / max_sge + 1;
    struct rme_rdma_seg *piece =
        malloc(pieces * sizeof(*piece) + segs * sizeof(struct rme_sge));

    if (piece == NULL)
        return false;
    op->rndv->closes = read || op->rndv->rts_out ? closable(op->peer, window) : 0;
    frag->rdma_op = (struct rme_rdma_op){
        .read = read,
        .notify = report ? report_by(op, read) : RME_NOTIFY_NONE,
        .closes = read ? 0 : op->rndv->closes,
        .imm = rme_rndv_peer_handle(op),
        .piece = piece,
        .npiece =
            rme_split(frag->mseg, window->segment, skip, frag->length, max_sge,
                      rme->caps->max_piece, piece, (struct rme_sge *)(void *)(piece + pieces)),
        .bytes = frag->length,
        .owner = frag};
    list_add_tail(&frag->control.link, &op->peer->rdma_queue);
    if (report) {
        list_del_init(&window->link);
        free(window);
    }
    return true;
}

void rme_xfers_advance(struct rme *rme, struct rme_op *op)
{
    struct rme_frag *frag;

    while ((frag = rme_rndv_prepare(rme, op)) != NULL) {
        uint64_t room = rme_remote_window_room(op, frag->offset);

        if (room == 0)
            return;
        if (room < frag->length)
            rme_frags_cut(rme, op, frag->offset + room);
        if (!queue(rme, frag)) {
            rme_op_stop(rme, op, RME_STOP_MEMORY, -ENOMEM);
            return;
        }
        frag->state = RME_FRAG_QUEUED;
        rme_peer_schedule(op->peer);
    }
}

/* Do the limits of the peer permit one more transfer? */
static bool peer_may(const struct rme_peer *peer, uint64_t bytes)
{
    return peer->rdma_ops < peer->rme->tuning.rdma_ops_peer &&
           peer->rdma_bytes + bytes <= rme_xfer_limit(peer);
}

/* Does the limit of the process permit one more transfer, for which no other peer waits? */
static bool is_turn(const struct rme_peer *peer)
{
    const struct rme *rme = peer->rme;

    return rme->rdma_ops < rme->tuning.rdma_ops &&
           (list_empty(&rme->movers) || rme->movers.next == &peer->mover);
}

bool rme_xfer_may(const struct rme_peer *peer, uint64_t bytes)
{
    return peer->rdma_ops == 0 || (peer_may(peer, bytes) && is_turn(peer));
}

static void schedule_mover(struct rme *rme)
{
    if (!list_empty(&rme->movers))
        rme_peer_schedule(container_of(rme->movers.next, struct rme_peer, mover));
}

void rme_xfer_end_turn(struct rme_peer *peer)
{
    if (list_empty(&peer->mover))
        return;
    list_del_init(&peer->mover);
    schedule_mover(peer->rme);
}

bool rme_xfer_progress(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    struct rme_frag *frag = container_of(peer->rdma_queue.next, struct rme_frag, control.link);
    bool waits = rme_frag_waits(rme, frag), may = !waits && rme_xfer_may(peer, frag->length);

    if (!may && !waits && peer_may(peer, frag->length)) {
        if (list_empty(&peer->mover))
            list_add_tail(&peer->mover, &rme->movers);
        return false;
    }
    rme_xfer_end_turn(peer);
    if (!may)
        return false;
    if (frag->rdma_op.notify == RME_NOTIFY_MSG) {
        void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

        if (tx == NULL)
            return false;
        rme_fin_put(peer, frag, tx);
    } else if (frag->rdma_op.notify == RME_NOTIFY_IMM) {
        if (!rme_peer_may_report(peer))
            return false;
        rme_credit_spend(&peer->credit);
    }
    rme_frag_posts(rme, frag);
    list_del_init(&frag->control.link);
    list_add_tail(&frag->control.link, &peer->moving);
    frag->op->rndv->reports = frag->rdma_op.notify != RME_NOTIFY_NONE &&
                              frag->offset + frag->length == frag->op->size;
    frag->op->rndv->report = peer->credit.spent;
    frag->state = RME_FRAG_POSTED;
    frag->op->refcount++;
    frag->op->rndv->moves++;
    peer->rdma_ops++;
    peer->rdma_bytes += frag->length;
    rme->rdma_ops++;
    rme->pending |= RME_PENDING_FLUSH;
    rme->ops->rdma_op(peer->link, &frag->rdma_op);
    return true;
}

/* Removes a transfer that is complete, or whose link is down, from the counts. */
static void leave(struct rme *rme, struct rme_frag *frag)
{
    struct rme_peer *peer = frag->op->peer;

    list_del_init(&frag->control.link);
    frag->op->rndv->moves--;
    peer->rdma_ops--;
    peer->rdma_bytes -= frag->length;
    rme->rdma_ops--;
    schedule_mover(rme);
}

void rme_xfer_done(struct rme *rme, struct rme_rdma_op *rdma_op)
{
    struct rme_frag *frag = rdma_op->owner;
    struct rme_op *op = frag->op; /* the transfer has a reference */
    struct rme_rndv *r = op->rndv;

    r->done += frag->length;
    rme_peer_schedule(op->peer);
    leave(rme, frag);
    if (!rme_op_sends(op))
        rme_frag_unpack(rme, frag);
    rme_frag_free(rme, frag);
    if (op->state != RME_OP_ENDING && r->done != op->size)
        rme_rndv_advance(rme, op);
    else if (op->state != RME_OP_ENDING && r->reports)
        rme_op_end(rme, op, 0);
    else if (op->state != RME_OP_ENDING)
        /* FIN of reads, unless chained to them: a device would hold later reads behind it */
        rme_rndv_finish(rme, op, 0);
    rme_op_put(rme, op);
}

/* Only the report of the last transfer of an op matters, because the fabric delivers it behind
 * all transfers of the op.  Local completions may come in any order. */
void rme_xfers_end_acked(struct rme_peer *peer)
{
    const struct rme_credit *credit = &peer->credit;
    struct rme_frag *frag;

    list_for_each(frag, &peer->moving, control.link) {
        struct rme_op *op = frag->op;

        if (op->rndv->reports && (int32_t)(credit->acked - op->rndv->report) >= 0)
            rme_op_end(peer->rme, op, 0);
    }
}

void rme_xfers_lost(struct rme_peer *peer)
{
    struct rme_frag *frag;

    while ((frag = list_first(&peer->moving, struct rme_frag, control.link)) != NULL) {
        struct rme_op *op = frag->op;

        if (op->state == RME_OP_ENDING && op->error == 0) { /* acknowledged */
            rme_xfer_done(peer->rme, &frag->rdma_op);
        } else {
            leave(peer->rme, frag);
            rme_op_put(peer->rme, op);
        }
    }
}
