/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One round of progress: events of the fabric, then timers; and pending work, which each call
 * does before releasing the lock (engine.c).  No function here iterates over all peers or
 * operations.  Messages that events make possible are sent after the round, by rme_run_pending,
 * so that the first message returns the credits of the whole round and doorbells are rung once.
 */
#include <errno.h>

#include "engine/engine.h"

#define ROUND      16 /* events per poll */
#define ROUNDS_MAX 8  /* polls per call, after which other threads get the lock */
#define TIMER_SKIP 64 /* calls per check of the timers while polling */

__attribute__((noinline)) static void received(struct rme_peer *peer,
                                               const struct rme_event *event)
{
    struct rme_wire_message message; /* not cleared, for speed: the decoder sets all fields */

    if (rme_peer_listens(peer)) /* else an arrival of a link that is given up */
        rme_take_message(peer, rme_wire_decode(event->data, event->length, &message), &message,
                         event->length, false);
    rme_rx_return(peer->rme, event->rx);
}

/* Handles an immediate: of a message that the peer wrote into its ring, or of a
 * transfer. */
static void immediate(struct rme_peer *peer, uint32_t imm)
{
    struct rme_wire_message message;
    int error;

    if (!rme_peer_listens(peer))
        return;
    error = rme_ring_decode(peer, imm, &message);
    if (error != -ENOENT) {
        rme_take_message(peer, error, &message,
                         error == 0 ? RME_WIRE_RING_SIZE + message.payload_length : 0, true);
        return;
    }
    peer->heard = true;
    rme_xfers_acked(peer);
    rme_take_immediate(peer, imm);
}

/* Not inlined, like run_timers(): a round of messages alone, or without events, saves no
 * registers for the two. */
__attribute__((noinline)) static void handle(struct rme *rme, const struct rme_event *event)
{
    struct rme_peer *peer = event->owner;

    switch (event->type) {
    case RME_EV_LINK_REQUEST:
        rme_peer_request(rme, event);
        break;
    case RME_EV_LINK_UP:
        rme_peer_up(peer, event);
        break;
    case RME_EV_LINK_DOWN:
        if (peer != NULL) /* else a request that was not accepted */
            rme_peer_down(peer, event);
        break;
    case RME_EV_RECV: /* handled by rme_progress */
        break;
    case RME_EV_IMM:
        immediate(peer, event->imm);
        break;
    case RME_EV_RDMA_DONE:
        if (event->rdma_op == &peer->bye)
            rme_peer_bye_done(peer);
        else if (event->rdma_op->owner == NULL)
            rme_ring_transfer_done(peer, event->rdma_op);
        else
            rme_xfer_done(rme, event->rdma_op);
        break;
    case RME_EV_MW_INVALIDATED:
        if (rme_ring_invalidated(peer, event->closed))
            rme_mws_free(rme);
        else
            rme_frag_invalidated(rme, event->closed);
        break;
    case RME_EV_TX_ROOM:
        peer->tx_wait = false;
        rme_peer_schedule(peer);
        break;
    }
}

__attribute__((noinline)) static void run_timers(struct rme *rme)
{
    uint64_t now = rme_now();
    struct rme_timer *timer;

    rme_engine(rme)->timer_skip = 0;
    while ((timer = rme_timers_due(&rme->timers, now)) != NULL) {
        struct rme_peer *peer = container_of(timer, struct rme_peer, timer);

        if (peer->state == RME_PEER_UP && peer->cancel_by <= now &&
            rme_cancel_overdue(peer, now))
            rme_peer_fail(peer, -ECONNRESET, "cancelled operation not released by the peer");
        else
            rme_peer_timer(peer, now);
    }
    rme_zone_trim_due(rme->zone, now);
    rme_ring_withdraw_idle(rme, now);
}

/* Handles `n` events, and further ones if there were as many as possible.  Returns their
 * number. */
__attribute__((noinline)) static int handle_all(struct rme *rme, struct rme_event *event, int n)
{
    int total = 0;

    for (int round = 1;; round++) {
        for (int i = 0; i < n; i++) {
            if (event[i].type != RME_EV_RECV) {
                handle(rme, &event[i]);
                rme->pending |= RME_PENDING_FLUSH; /* work may have been queued */
            } else if (rme_take_eager(event[i].owner, event[i].data, event[i].length)) {
                rme_rx_return(rme, event[i].rx);
            } else {
                received(event[i].owner, &event[i]);
            }
        }
        total += n;
        if (n < ROUND || round == ROUNDS_MAX)
            break;
        n = rme->ops->poll(rme->fabric, event, ROUND);
    }
    return total;
}

int rme_progress(struct rme *rme, bool timers)
{
    struct rme_event event[ROUND];
    int n = rme->ops->poll(rme->fabric, event, ROUND);

    if (rme->lingers)
        rme->pending |= RME_PENDING_FLUSH;
    if (n > 0)
        n = handle_all(rme, event, n);
    if (timers || ++rme_engine(rme)->timer_skip >= TIMER_SKIP)
        run_timers(rme);
    return n;
}

/* ---- Pending work, done before the lock is released ---- */

/*
 * Deregisters for ended operations, and makes them visible.  One thread at a time runs this
 * function, so that its batch becomes visible before operations that end meanwhile.  Unexpected
 * messages that arrived after the end of an operation are published behind its completion.  The
 * function is not inlined, so that rme_run_pending, which is called several times for each
 * message, saves no registers for it.
 */
__attribute__((noinline)) static void dereg_flush(struct rme *rme)
{
    struct list_head *last = rme->operations->ended.prev, *node;

    rme->operations->deregistering = true;
    pthread_mutex_unlock(&rme->lock);
    rme_mreg_dereg_flush(rme->mreg);
    rme_lock(rme);
    do {
        struct rme_op *op =
            container_of(node = list_pop(&rme->operations->ended), struct rme_op, link);

        if (op->kind == RME_OP_PULL)
            rme_unexp_pulled(rme, op);
        else
            rme_ctx_publish(rme, op);
    } while (node != last);
    rme->operations->deregistering = false;
    if (list_empty(&rme->operations->ended))
        rme_unexp_publish(rme);
}

void rme_run_pending_slow(struct rme *rme)
{
    struct list_head *node;

    for (;;) {
        while ((node = list_pop(&rme->scheduled)) != NULL)
            rme_progress_tx(container_of(node, struct rme_peer, scheduled));
        if (rme->pending & RME_PENDING_FLUSH) {
            rme->pending &= ~(uint32_t)RME_PENDING_FLUSH;
            rme->lingers = false;
            rme->ops->flush(rme->fabric);
        }
        if (!list_empty(&rme->rndv_state->work))
            rme_rndv_work(rme);
        else if (!list_empty(&rme->operations->ended) && !rme->operations->deregistering)
            dereg_flush(rme);
        else if (list_empty(&rme->scheduled))
            break;
    }
    rme->pending &= ~(uint32_t)(RME_PENDING_FLUSH | RME_PENDING_RUN);
}

/* The flag is cleared first, because work that is added meanwhile sets it again. */
void rme_do_chores(struct rme *rme)
{
    atomic_store(&rme->pin.chores, false);
    rme_mreg_dereg_flush(rme->mreg);
    rme_zone_trim(rme->zone);
    rme_log_drain(rme->log);
}

void rme_unlock_pending(struct rme *rme)
{
    bool wake;

    rme_run_pending(rme);
    wake = (rme->pending & RME_PENDING_WAKE) != 0;
    rme->pending = 0;
    pthread_mutex_unlock(&rme->lock);
    if (wake)
        rme->ops->wake(rme->fabric);
    if (atomic_load_explicit(&rme->pin.chores, memory_order_relaxed))
        rme_do_chores(rme);
}
