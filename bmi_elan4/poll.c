/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * poll.c - one poll: takes packets and handles timeouts.
 *
 * Conditions without a packet must be polled for: the memory of a message is free, a peer's
 * command queue is, the time of an ending link is over.  deadline() requests this only while
 * something waits for them.
 */
#include "bmi_elan4/elan.h"

static void look_around(struct rme_fabric *f)
{
    bool hint = atomic_exchange(&f->hint, 0);
    int64_t now = elan_now();

    if (hint || f->polls % 64 == 0)
        elan_handshake_calls(f, now);
    elan_links_check(f, now);
    elan_links_overdue(f, now);
    if (f->died)
        elan_accounts_check(f);
}

/* Returns ms until the next check of an ending link, which grow with the time since its end
 * began: the last packets land within a millisecond, or the peer has no processor time.  Many
 * processes that leave a busy server at once must not use up the processor by polling. */
static int until_next_look(const struct rme_link *ending)
{
    int64_t begun = ending->until - ELAN_DRAIN_MS;
    int64_t pause = (elan_now() - begun) / 8;

    return pause < ELAN_RESTLESS_MS ? ELAN_RESTLESS_MS
           : pause > ELAN_LOOK_MS   ? ELAN_LOOK_MS
                                    : (int)pause;
}

/* Returns ms until the next poll for conditions without a packet; 0: not needed. */
static int restless(const struct rme_fabric *f)
{
    if (!TAILQ_EMPTY(&f->wanting) || !TAILQ_EMPTY(&f->dirty) || !TAILQ_EMPTY(&f->ready) ||
        !TAILQ_EMPTY(&f->eventful) || f->died)
        return ELAN_RESTLESS_MS;
    if (!TAILQ_EMPTY(&f->ending))
        return until_next_look(TAILQ_FIRST(&f->ending));
    return f->asking || f->bootstrap.behind ? ELAN_LOOK_MS : 0;
}

int elan_op_poll(struct rme_fabric *f, struct rme_event *events, int max)
{
    f->out = events;
    f->used = 0;
    f->max = max;
    f->polls++;
    if (atomic_load(&f->hint) || f->died || f->polls % 64 == 0)
        look_around(f);
    if (atomic_load_explicit(&f->nic->traps, memory_order_relaxed) != f->traps)
        elan_refusals(f);
    if (!TAILQ_EMPTY(&f->eventful))
        elan_tell_all(f);
    elan_rx_ready(f);
    elan_rx_take(f);
    elan_tx_landed(f);
    if (!TAILQ_EMPTY(&f->dirty))
        elan_op_flush(f);
    if (!TAILQ_EMPTY(&f->eventful))
        elan_tell_all(f);
    f->out = NULL;
    f->max = 0;
    atomic_store_explicit(&f->restless, restless(f), memory_order_relaxed);
    return f->used;
}

int elan_op_deadline(struct rme_fabric *f)
{
    int ms = restless(f);

    return ms ? ms : TAILQ_EMPTY(&f->sending) ? -1 : ELAN_LOOK_MS;
}
