/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Transfers of the initiator.  A transfer covers the intersection of the next local fragment
 * and the next remote window, split into work requests (split.c) that are passed to the fabric
 * in order.  Limits bound the outstanding transfers of a peer and of the process [004 5.1], and
 * the outstanding bytes of a peer.  Transfers above a limit wait in peer->rdma_queue.  A peer
 * without a posted transfer may post one despite the limit of the process: peers that do not
 * respond hold their transfers without bound, and must not block all others.
 *
 * Bytes are limited to keep the latency of small messages low, because these cannot pass data
 * that the device has accepted for writing or reading.  A transfer has at most half of the
 * limit (option xfer_bytes_peer), so that the device stays busy while the next one is posted.
 * An op has no more transfers built than the device may have.  Its next transfer is appended to
 * the queue, so ops take turns, and a new op waits for the transfers built so far, not for
 * whole messages.  While the peer moves data of this side over the same wire, each side has
 * half of the limit.  If several devices carry the link's data, the limit applies to each,
 * because a message waits for one of them.
 *
 * An invited message is posted as a whole, because no message of its tag may pass it on the way
 * to its receive.  A message above the limit is therefore not invited.
 *
 * The last transfer of a window carries its report: an immediate, which uses one credit of the
 * receiver, or a FIN behind the reads.  The fabric delivers the report after the data of all
 * transfers of the op queued before, so one report per window suffices.
 */
#include <errno.h>
#include <stdlib.h>

#include "move/move.h"

#define KEEP_ROOM  1024u /* larger arrays are freed, not pooled */
#define OWN(array) (sizeof(array) / sizeof((array)[0]))

static struct rme_move *move_new(struct rme *rme)
{
    struct list_head *node = rme_pool_take(&rme->move_state->moves);
    struct rme_move *move;

    if (node != NULL)
        return container_of(node, struct rme_move, link);
    move = calloc(1, sizeof(*move));
    if (move == NULL)
        return NULL;
    move->piece = move->own_piece;
    move->piece_room = OWN(move->own_piece);
    move->seg = move->own_seg;
    move->seg_room = OWN(move->own_seg);
    list_init(&move->link);
    return move;
}

static void move_destroy(struct rme_move *move)
{
    if (move->piece != move->own_piece)
        free(move->piece);
    if (move->seg != move->own_seg)
        free(move->seg);
    free(move);
}

static void move_recycle(struct rme *rme, struct rme_move *move)
{
    if (move->piece_room > KEEP_ROOM || move->seg_room > KEEP_ROOM ||
        !rme_pool_keep(&rme->move_state->moves, &move->link))
        move_destroy(move);
}

void rme_move_clear(struct rme *rme)
{
    struct list_head *node;

    while ((node = rme_pool_take(&rme->move_state->moves)) != NULL)
        move_destroy(container_of(node, struct rme_move, link));
}

static bool move_reserve(struct rme_move *move, struct rme_split_size size)
{
    if (size.npiece > move->piece_room) {
        struct rme_rdma_seg *piece = malloc(size.npiece * sizeof(*piece));

        if (piece == NULL)
            return false;
        if (move->piece != move->own_piece)
            free(move->piece);
        move->piece = piece;
        move->piece_room = size.npiece;
    }
    if (size.nseg > move->seg_room) {
        struct rme_sge *seg = malloc(size.nseg * sizeof(*seg));

        if (seg == NULL)
            return false;
        if (move->seg != move->own_seg)
            free(move->seg);
        move->seg = seg;
        move->seg_room = size.nseg;
    }
    return true;
}

/* Returns the fragment that contains offset `at`; NULL: not made yet. */
static struct rme_frag *frag_at(struct rme_rndv *r, uint64_t at)
{
    for (struct list_head *node = r->frags.next; node != &r->frags; node = node->next) {
        struct rme_frag *frag = container_of(node, struct rme_frag, link);

        if (frag->offset + frag->length > at)
            return frag;
    }
    return NULL;
}

/* Builds and queues the transfer of `length` bytes from r->at.  Returns false if memory is
 * short. */
static bool build(struct rme *rme, struct rme_op *op, struct rme_frag *frag,
                  struct rme_remote_window *remote_window, uint64_t length)
{
    struct rme_rndv *r = op->rndv;
    bool read = !rme_op_sends(op);
    struct rme_split_limits limits = {read ? rme->caps->max_read_sge : rme->caps->max_sge,
                                      rme->caps->max_piece};
    uint64_t in_frag = r->at - frag->offset;
    uint64_t in_window = r->at - remote_window->offset;
    bool report = in_window + length == remote_window->length;
    struct rme_split_size size;
    struct rme_move *move = move_new(rme);

    if (move == NULL)
        return false;
    size = rme_split(frag->mseg, in_frag, remote_window->segment, in_window, length, &limits,
                     NULL, NULL);
    if (!move_reserve(move, size)) {
        move_recycle(rme, move);
        return false;
    }
    rme_split(frag->mseg, in_frag, remote_window->segment, in_window, length, &limits,
              move->piece, move->seg);
    move->op = op;
    move->frag = frag;
    move->posted = false;
    move->missed = false;
    move->reported = false;
    move->end = r->at + length;
    move->rdma_op = (struct rme_rdma_op){.read = read,
                                         .notify = !report ? RME_NOTIFY_NONE
                                                   : read  ? RME_NOTIFY_MSG
                                                           : RME_NOTIFY_IMM,
                                         .ordered = r->invited,
                                         .imm = rme_rndv_peer_handle(r),
                                         .piece = move->piece,
                                         .npiece = size.npiece,
                                         .bytes = length,
                                         .owner = move};
    list_add_tail(&move->link, &op->peer->rdma_queue);
    op->refcount++;
    r->moves++;
    r->move_bytes += length;
    r->at += length;
    return true;
}

bool rme_move_whole(const struct rme *rme, uint64_t bytes)
{
    return bytes <= rme->tuning.rdma_bytes;
}

void rme_move_start(struct rme *rme, struct rme_op *op)
{
    struct rme_rndv *r = op->rndv;
    uint64_t most = rme_move_most(rme, op);

    while (!list_empty(&r->remote_windows) && r->move_bytes < rme->tuning.rdma_bytes) {
        struct rme_remote_window *remote_window =
            container_of(r->remote_windows.next, struct rme_remote_window, link);
        struct rme_frag *frag = frag_at(r, r->at);
        uint64_t frag_end, window_end;

        if (frag == NULL || frag->state != RME_FRAG_READY)
            return;
        frag_end = frag->offset + frag->length;
        window_end = remote_window->offset + remote_window->length;
        if (!build(rme, op, frag, remote_window,
                   min_u64(min_u64(frag_end, window_end) - r->at, most))) {
            op->protocol->failed(rme, op, -ENOMEM);
            return;
        }
        rme_peer_schedule(op->peer);
        if (r->at == window_end) {
            list_del_init(&remote_window->link);
            free(remote_window);
        }
    }
}

void rme_move_wake_next(struct rme *rme)
{
    if (!list_empty(&rme->rdma_waitq) && rme->rdma_ops < rme->tuning.rdma_ops)
        rme_peer_schedule(
            container_of(list_pop(&rme->rdma_waitq), struct rme_peer, rdma_waitq));
}

/* Writes the FIN that follows the reads of a window.  Its offset is the end of the data
 * read. */
static void put_fin(struct rme_peer *peer, struct rme_move *move, void *tx)
{
    struct rme_wire_message message;

    rme_peer_header(peer, RME_WIRE_FIN, &message);
    message.to = rme_rndv_peer_handle(move->op->rndv);
    message.status = RME_WIRE_OK;
    message.offset = move->end;
    rme_wire_encode(&message, tx);
    move->rdma_op.tx = tx;
    move->rdma_op.tx_length = rme_wire_length(RME_WIRE_FIN, 0);
    rme_count(peer->rme, RME_C_CONTROL_SENT);
}

/*
 * Records the report of the newest transfer in all transfers of the op that have none yet.  The
 * fabric delivers the report behind them, so a peer that has received it has received all of
 * them.
 */
static void note_report(struct rme_peer *peer, const struct rme_move *last)
{
    /* with unordered reports `acked` does not identify the messages that the peer has
     * received */
    uint32_t report =
        peer->rme->caps->reports_apart ? peer->credit.acked + 1 : peer->credit.spent;

    for (struct list_head *node = peer->moving.prev; node != &peer->moving; node = node->prev) {
        struct rme_move *move = container_of(node, struct rme_move, link);

        if (move->op != last->op)
            continue;
        if (move->reported)
            return;
        move->reported = true;
        move->report = report;
    }
}

bool rme_move_room(const struct rme_peer *peer, uint64_t bytes)
{
    const struct rme_tuning *tuning = &peer->rme->tuning;
    uint64_t most = peer->load.ops == 0 ? tuning->rdma_bytes : tuning->rdma_bytes / 2;

    return peer->rdma_ops < tuning->rdma_ops_peer &&
           (peer->rdma_ops == 0 || peer->rdma_bytes + bytes <= most);
}

bool rme_move_permitted(const struct rme_peer *peer)
{
    return peer->rdma_ops == 0 || peer->rme->rdma_ops < peer->rme->tuning.rdma_ops;
}

/*
 * Returns the first transfer that need not wait for the reserve block; NULL: none.  Transfers
 * of other ops may pass one that waits for the block.  They may not pass one that could not be
 * posted while the block was free, because they might again take the room or the credit that
 * was missing.
 */
static struct rme_move *next_move(const struct rme_peer *peer)
{
    for (struct list_head *node = peer->rdma_queue.next; node != &peer->rdma_queue;
         node = node->next) {
        struct rme_move *move = container_of(node, struct rme_move, link);

        if (!rme_frag_waits(peer->rme, move->frag))
            return move;
        if (move->missed)
            return NULL;
    }
    return NULL;
}

bool rme_move_progress(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    struct rme_move *move = next_move(peer);

    if (move == NULL)
        return false;
    move->missed = true;
    if (!rme_move_room(peer, move->rdma_op.bytes))
        return false;
    if (!rme_move_permitted(peer)) {
        if (list_empty(&peer->rdma_waitq))
            list_add_tail(&peer->rdma_waitq, &rme->rdma_waitq);
        return false;
    }
    if (move->rdma_op.notify == RME_NOTIFY_MSG) {
        void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

        if (tx == NULL)
            return false;
        put_fin(peer, move, tx);
    } else if (move->rdma_op.notify == RME_NOTIFY_IMM) {
        if (!rme_peer_may_report(peer))
            return false;
        rme_credit_spend(&peer->credit);
        if (rme->caps->reports_apart && !move->rdma_op.ordered)
            peer->credit.apart++;
    }
    rme_frag_posts(rme, move->frag);
    list_del_init(&move->link);
    list_add_tail(&move->link, &peer->moving);
    if (move->rdma_op.notify != RME_NOTIFY_NONE)
        note_report(peer, move);
    move->posted = true;
    peer->rdma_ops++;
    peer->rdma_bytes += move->rdma_op.bytes;
    rme->rdma_ops++;
    rme->pending |= RME_PENDING_FLUSH;
    rme->ops->rdma_op(peer->link, &move->rdma_op);
    return true;
}

void rme_move_free(struct rme *rme, struct rme_move *move)
{
    struct rme_op *op = move->op;

    if (move->posted) {
        op->peer->rdma_ops--;
        op->peer->rdma_bytes -= move->rdma_op.bytes;
        rme->rdma_ops--;
        rme_move_wake_next(rme);
    }
    op->rndv->moves--;
    op->rndv->move_bytes -= move->rdma_op.bytes;
    list_del_init(&move->link);
    move_recycle(rme, move);
    rme_op_put(rme, op);
}

void rme_move_done(struct rme *rme, struct rme_rdma_op *rdma_op)
{
    struct rme_move *move = rdma_op->owner;
    struct rme_op *op = move->op;
    struct rme_rndv *r = op->rndv;
    struct rme_frag *frag = move->frag;

    op->refcount++; /* keeps the op until the end of this function */
    r->done += rdma_op->bytes;
    frag->moved += rdma_op->bytes;
    rme_peer_schedule(op->peer);
    rme_move_free(rme, move);
    if (frag->moved == frag->length) {
        if (!rme_op_sends(op))
            rme_frag_unpack(rme, frag);
        rme_frag_free(rme, frag);
    }
    if (op->state != RME_OP_ENDING) {
        if (r->done == op->size)
            rme_op_end(rme, op, 0);
        else
            op->protocol->ready(rme, op);
    }
    rme_op_put(rme, op);
}

void rme_moves_told(struct rme_peer *peer)
{
    const struct rme_credit *credit = &peer->credit;
    bool sure =
        credit->exact && (!peer->rme->caps->reports_apart || credit->acked == credit->spent);

    for (struct list_head *node = peer->moving.next; node != &peer->moving; node = node->next) {
        struct rme_move *move = container_of(node, struct rme_move, link);

        if (!move->reported || move->end != move->op->size ||
            (credit->exact && (int32_t)(credit->acked - move->report) < 0))
            continue;
        if (sure)
            rme_op_end(peer->rme, move->op, 0);
        else
            rme_op_late(move->op);
    }
}

void rme_moves_lost(struct rme_peer *peer)
{
    while (!list_empty(&peer->moving)) {
        struct rme_move *move = container_of(peer->moving.next, struct rme_move, link);

        if (move->op->state == RME_OP_ENDING && move->op->error == 0) /* acknowledged */
            rme_move_done(peer->rme, &move->rdma_op);
        else
            rme_move_free(peer->rme, move);
    }
}
