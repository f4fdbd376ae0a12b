/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Order of sending on a link.
 *
 * A sender of any kind adds an entry to one of the peer's queues and schedules the peer;
 * rme_run_pending() runs the queues of scheduled peers after the current batch of events.
 * rme_progress_tx() sends as far as credits and buffers allow: control messages, which end or
 * move operations in flight; transfers; then new messages.  Last, a CREDIT message returns
 * credits if enough are unreturned and no other message carried them.
 *
 * Order of new messages.  Messages of one (peer, tag) leave in the order of posting,
 * independent of their protocols.  Two kinds of waits concern one send alone, and block no
 * message of another tag: its memory is being prepared, or it is large and all RTS slots of
 * the peer are used, because the peer's host has consumed too few messages.  The waiting send
 * leaves the queue and holds its tag: later sends of the tag that reach the head of the queue
 * are moved into the ring of the tag (RME_BY_BLOCKED_TAG).  When the waiting send
 * has been sent, the oldest send of the ring holds the tag and is tried next.  A send is
 * requeued at most twice, independent of the number of sends.
 *
 * Resources of every message, a credit and a buffer, are waited for in the order of posting:
 * the whole queue waits.  RTS slots are waited for in order, too (peer->sends->waitq).  A small
 * message passes the large ones that wait for a slot, as long as the window has room.  Without
 * room the message waits for window or slot at the head of the queue, because smaller ones that
 * passed might starve it.  A send whose memory is ready has its slot and passes it, so such a
 * send waits for a credit or a buffer in front of `waitq`, not in the queue.
 *
 * Unexpected messages have a queue of their own.  Unexpected messages are small, and the peer
 * delivers them in the order of sending, regardless of tags; so that queue waits as a whole.
 * While its first message waits for the peer's host or for its memory, expected messages pass
 * it, and vice versa.  For a credit or a buffer the two queues wait as one, in the order of
 * posting.  Reason: a host whose data send was reported may have nothing left to wait for and
 * stop polling, although the request that it had posted before the data is still queued.  If
 * the data could use the credit for which the request waits, the request would never be sent.
 *
 * Failure path.  A send that is cancelled, or ends with its link, passes the tag on like a
 * completed one.
 */
#include "proto/proto.h"

static struct rme_op *first_of(const struct list_head *ring)
{
    return list_empty(ring) ? NULL : container_of(ring->next, struct rme_op, link);
}

/* Finds the expected send to be tried next: the first of `waitq`, if it need not wait any more,
 * or of the queue; NULL: none. */
static struct rme_op *next_expected(const struct rme_peer *peer)
{
    struct rme_op *op = first_of(&peer->sends->waitq);

    return op != NULL && rme_rndv_may_start(op) ? op
                                                : first_of(&peer->sends->sendq[RME_EXPECTED]);
}

/* Moves a send out of the queue without trying it, because one of its tag waits. */
static bool must_wait(struct rme_op *op)
{
    struct rme_op *holder = rme_tag_holder(op->peer, op->tag);

    if (holder == NULL || holder == op)
        return false;
    list_del_init(&op->link);
    list_add_tail(&op->match.same, &holder->match.same);
    return true;
}

/* Sends the next expected message, or moves it out of the queue.  False: none, or blocked. */
static bool send_expected(struct rme_peer *peer)
{
    struct rme_op *op = next_expected(peer);

    if (op == NULL)
        return false;
    if (must_wait(op))
        return true;
    switch (rme_send_start(op)) {
    case RME_START_GONE:
        return true;
    case RME_START_PREPARE:
        rme_send_wait(op, NULL);
        return true;
    case RME_START_WAIT:
        if (op->rndv == NULL && op->size <= peer->eager_max[RME_EXPECTED])
            return false;
        rme_send_wait(op, &peer->sends->waitq);
        return true;
    default:
        if (op->state == RME_OP_QUEUED && op->rndv != NULL &&
            op != first_of(&peer->sends->waitq))
            rme_send_wait(op, &peer->sends->waitq);
        return false;
    }
}

static bool send_unexpected(struct rme_peer *peer)
{
    struct rme_op *op = first_of(&peer->sends->sendq[RME_UNEXPECTED_STREAM]);

    return op != NULL && rme_send_start(op) == RME_START_GONE;
}

/* Was the first unexpected message posted before the next expected one? */
static bool unexpected_is_older(const struct rme_peer *peer)
{
    const struct rme_op *unexpected = first_of(&peer->sends->sendq[RME_UNEXPECTED_STREAM]);
    const struct rme_op *expected = next_expected(peer);

    return unexpected != NULL && expected != NULL &&
           (int32_t)(unexpected->posted - expected->posted) < 0;
}

/* Starts new messages.  An older unexpected message that lacks a credit needs no check here,
 * because the younger one lacks the credit as well. */
static void start(struct rme_peer *peer)
{
    bool tried = list_empty(&peer->sends->sendq[RME_UNEXPECTED_STREAM]);

    for (;;) {
        if (!tried && unexpected_is_older(peer)) {
            tried = !send_unexpected(peer);
            if (peer->tx_wait)
                return;
        } else if (!send_expected(peer)) {
            break;
        }
    }
    while (!tried && send_unexpected(peer))
        continue;
}

/* Sends queued control messages in order, until one lacks a credit, a buffer or a memory
 * window. */
static void send_control(struct rme_peer *peer, struct list_head *ring)
{
    while (!list_empty(ring)) {
        struct rme_control *control = container_of(ring->next, struct rme_control, link);

        if (!control->send(peer, control))
            return;
    }
}

/* Reports windows that were freed while the peer's RTS slots are all in use.  The message may
 * return no credit, so the last one is not for it. */
static void report_windows(struct rme_peer *peer)
{
    peer->rts_full =
        rme_rts_is_full(peer, RME_EXPECTED) || rme_rts_is_full(peer, RME_UNEXPECTED_STREAM);
    if (peer->rts_full && peer->credit.window_due && rme_peer_may(peer, RME_CREDIT_CONTROL))
        rme_peer_send_header(peer, RME_WIRE_CREDIT, RME_CREDIT_CONTROL);
}

void rme_progress_tx(struct rme_peer *peer)
{
    if (peer->state != RME_PEER_UP)
        return;
    peer->starved = false;
    send_control(peer, &peer->endings);
    send_control(peer, &peer->control);
    while (!list_empty(&peer->rdma_queue) && rme_xfer_progress(peer))
        continue;
    if (list_empty(&peer->rdma_queue))
        rme_xfer_end_turn(peer);
    if (peer->pong_due && rme_peer_send_header(peer, RME_WIRE_PONG, RME_CREDIT_CONTROL))
        peer->pong_due = false;
    start(peer);
    if (peer->bye_state == RME_BYE_DUE)
        rme_peer_send_bye(peer);
    rme_rx_account_check(peer);
    if (peer->credit.throttled)
        rme_grant_reserve(peer);
    if (rme_credit_due(&peer->credit) && !peer->credit_waits)
        rme_peer_send_header(peer, RME_WIRE_CREDIT, RME_CREDIT_RETURN);
    if (peer->rts_full)
        report_windows(peer);
}
