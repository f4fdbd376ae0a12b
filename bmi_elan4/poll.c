/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * poll.c - one poll: takes packets, and checks ending links, and links whose peers accept
 * nothing (link.c); LEFT packets, and waiting for them at close.
 *
 * Conditions without a packet must be polled for: the memory of a message is free, a peer's
 * command queue is, the time of an ending link is over.  deadline() requests this only while
 * something waits for them.
 *
 * A side that drops a link before its BYE has landed sends LEFT, unless too much waits for
 * the peer already, because packets to a link that is gone are not answered.  A peer that got
 * no LEFT detects the end by its probes.
 *
 * Packets that have not landed are lost with the context.  On close the process waits until
 * each LEFT has landed, or its receiver is known to be dead or replaced, or none of the
 * receiver's packets has landed for ELAN_LEAVE_MS, or for elan_dead_ms if less.  Time before
 * the close counts, because nothing else shows the death of a process on another node.
 */
#include <errno.h>
#include <time.h>

#include "bmi_elan4/elan.h"

#define ELAN_LEAVE_MS 5000

/* Returns true if all messages have landed, of a link without transfers. */
static bool all_landed(const struct rme_link *l)
{
    return list_empty(&l->queued) && elan_tx_flying(l) == NULL;
}

/* Handles an ending link whose time is over: the host may reuse its memory when it is down. */
static void given_up(struct rme_link *l, int64_t now)
{
    if (now >= l->until + l->f->quarantine_ms) {
        elan_link_log(l, RME_LOG_INFO,
                      "peer did not confirm the end of the connection; aborted");
        if (!l->bye_sent || !all_landed(l))
            (void)elan_tx_alone(l->f, &l->peer, ELAN_LEFT, 0, NULL, 0);
        elan_link_down(l, -ETIMEDOUT);
        return;
    }
    if (!l->kept) {
        l->kept = true;
        l->f->config.stats->value[RME_C_QUARANTINED]++;
        elan_link_log(l, RME_LOG_INFO,
                      "peer not responding; memory that the peer can write to stays mapped");
    }
    elan_ask(l, now);
}

/*
 * Advances an ending link.  BYE says that no DMA to the peer's memory is in flight.  A process
 * may have thousands of links that end together and accept nothing: BYEs to one place wait for
 * each other, because their buffers would keep others from connecting (elan_kept_full()).
 */
static void check(struct rme_link *l, int64_t now)
{
    if (now - l->checked >= ELAN_CHECK_MS) {
        l->checked = now;
        if (elan_account_dead(l->f, &l->peer))
            elan_link_dead(l); /* a dead peer has no DMAs in flight */
    }
    if (l->state == ELAN_ENDING_STATE && now >= l->until)
        given_up(l, now);
    if (l->state != ELAN_ENDING_STATE)
        return;
    elan_moves_complete(l);
    if (l->bye_sent && l->bye_in && all_landed(l))
        elan_link_down(l, l->error);
    else if (!l->bye_sent && list_empty(&l->moves) && list_empty(&l->queued))
        l->bye_sent = !elan_place_full(l->f, l->peer.vp, 2) &&
                      elan_tx_control(l, ELAN_BYE, 0, NULL, 0) == 0;
}

/*
 * Treats all links with the process as silent, because they share its queue.  A process whose
 * account is full (account.c) is probed on one link only.  A link without a message may be in
 * the list of all links only.
 */
static void silent(struct rme_link *found, int64_t now)
{
    struct rme_link *l;

    list_for_each(l, &found->f->links, all)
        if (elan_same(&l->peer, &found->peer) && l->state == ELAN_UP_STATE) {
            elan_link_end(l, -ETIMEDOUT);
            l->until = now; /* it is not waited for, but may be alive and write */
        }
}

/* Returns the observed time for which one has not landed. */
static int64_t age_of(const struct rme_fabric *f, struct elan_dma *d)
{
    if (!d->since)
        d->since = f->watched;
    return f->watched - d->since;
}

/*
 * Checks for a silent peer.
 *
 * A message lands once the peer's interface has it, independently of the peer's process.  If it
 * does not land, there is no process, or its queue stays full.  A transfer has no time limit:
 * the log shows a dead peer on this node, else a probe (elan_op_probe) does, and the host ends
 * the link of an operation that it cancelled.
 *
 * Ages count observed time only: a process that was stopped, or not polled for long, has not
 * observed the peer meanwhile.
 */
static void overdue(struct rme_link *l, int64_t now)
{
    struct elan_move *m = list_first(&l->moves, struct elan_move, next);
    struct elan_tx *tx = elan_tx_flying(l);
    int64_t age = tx != NULL ? age_of(l->f, &tx->d) : 0,
            move_age = m != NULL ? age_of(l->f, &m->d) : 0;
    if ((age < ELAN_CHECK_MS && move_age < ELAN_CHECK_MS) || now - l->checked < ELAN_CHECK_MS)
        return;
    l->checked = now;
    if (elan_account_dead(l->f, &l->peer)) {
        elan_link_dead(l);
    } else if (l->state == ELAN_UP_STATE && elan_unasked(l)) {
        return; /* it ends */
    } else if (age >= l->f->dead_ms && l->state == ELAN_UP_STATE) {
        silent(l, now);
    } else if (age >= ELAN_ASK_MS || move_age >= ELAN_ASK_MS) {
        elan_ask(l, now);
    }
}

static void check_sending(struct rme_fabric *f, int64_t now)
{
    struct rme_link *l, *after;
    int64_t step = now - f->watched_at;

    f->watched_at = now;
    f->watched += step < ELAN_ASK_MS ? step : ELAN_ASK_MS;
    list_for_each_safe(l, &f->sending, sending_next, after)
        overdue(l, now); /* removes no other link */
}

/* ---- Polling ---- */

/* Ends the links of processes that were found dead. */
static void accounts_check(struct rme_fabric *f)
{
    struct rme_link *l, *after;

    f->died = false;
    list_for_each_safe(l, &f->links, all, after)
        if (l->state != ELAN_DOWN_STATE && elan_account_over(f, &l->peer))
            elan_link_dead(l);
}

static void check_links(struct rme_fabric *f)
{
    bool hint = atomic_exchange(&f->hint, 0);
    int64_t now = (int64_t)rme_now();
    struct rme_link *l, *after;

    if (hint || f->polls % 64 == 0)
        elan_handshake_calls(f, now);
    list_for_each_safe(l, &f->ending, ending_next, after)
        check(l, now);
    check_sending(f, now);
    if (f->died)
        accounts_check(f);
}

/* Returns ms until the next check of an ending link, which grow with the time since its end
 * began: the last packets land within a millisecond, or the peer has no processor time.  Many
 * processes that leave a busy server together must not use up the processor by polling. */
static int until_next_check(const struct rme_link *ending)
{
    int64_t begun = ending->until - ELAN_DRAIN_MS;
    int64_t pause = ((int64_t)rme_now() - begun) / 8;

    return pause < ELAN_RESTLESS_MS ? ELAN_RESTLESS_MS
           : pause > ELAN_CHECK_MS  ? ELAN_CHECK_MS
                                    : (int)pause;
}

/* Returns ms until the next poll for conditions without a packet; 0: not needed. */
static int restless(const struct rme_fabric *f)
{
    if (!list_empty(&f->wanting) || !list_empty(&f->dirty) || !list_empty(&f->ready) ||
        !list_empty(&f->eventful) || f->died)
        return ELAN_RESTLESS_MS;
    if (!list_empty(&f->ending))
        return until_next_check(list_first(&f->ending, struct rme_link, ending_next));
    return f->asking || f->bootstrap.behind ? ELAN_CHECK_MS : 0;
}

int elan_op_poll(struct rme_fabric *f, struct rme_event *events, int max)
{
    f->out = events;
    f->used = 0;
    f->max = max;
    f->polls++;
    if (atomic_load(&f->hint) || f->died || f->polls % 64 == 0)
        check_links(f);
    if (atomic_load_explicit(&f->nic->traps, memory_order_relaxed) != f->traps)
        elan_refusals(f);
    elan_report_all(f);
    elan_rx_ready(f);
    elan_rx_take(f);
    elan_tx_landed(f);
    elan_op_flush(f);
    elan_report_all(f);
    f->max = 0;
    atomic_store_explicit(&f->restless, restless(f), memory_order_relaxed);
    return f->used;
}

int elan_op_deadline(struct rme_fabric *f)
{
    int ms = restless(f);

    return ms ? ms : list_empty(&f->sending) ? -1 : ELAN_CHECK_MS;
}

/* ---- Leaving ---- */

/* Returns true if a LEFT has not landed whose receiver may be alive. */
static bool unheard(struct rme_fabric *f)
{
    int64_t most = f->dead_ms < ELAN_LEAVE_MS ? f->dead_ms : ELAN_LEAVE_MS,
            now = (int64_t)rme_now();
    const struct elan_dma *d;

    list_for_each(d, &f->orphans, next) {
        const struct elan_tx *tx = (const struct elan_tx *)d;
        if (!d->is_move && tx->kind == ELAN_LEFT && !elan_tx_over(f, tx) &&
            !elan_tx_waits(f, &d->to, now - most) && !elan_account_dead(f, &d->to))
            return true;
    }
    return false;
}

void elan_leave(struct rme_fabric *f)
{
    struct rme_link *l;

    while ((l = list_first(&f->links, struct rme_link, all)) != NULL) {
        bool known =
            !(l->reports & ELAN_REPORT_REQUEST); /* otherwise the link is freed when down */
        if (l->state == ELAN_UP_STATE || l->state == ELAN_ENDING_STATE)
            (void)elan_tx_alone(l->f, &l->peer, ELAN_LEFT, 0, NULL, 0);
        elan_link_down(l, -ESHUTDOWN);
        if (known)
            elan_op_free(l);
    }
    for (int ms = ELAN_RESTLESS_MS; unheard(f); ms = ms < ELAN_CHECK_MS ? ms + 1 : ms)
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}
