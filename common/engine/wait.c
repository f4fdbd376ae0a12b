/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waiting.  Of the threads that wait, one leads: it polls for a while, then sleeps in the
 * fabric's wait() with no lock held.  The others follow: each sleeps on a condition variable of
 * its own.  Whoever makes something ready, be it the leader, a follower or a thread that posts,
 * tells the waiter that wants it (rme_wait_notify).  A leader that has what it wants leaves and
 * wakes one follower, which leads on.
 *
 * No wake-up is lost.  What comes from the fabric: the leader arms the fabric, polls once more,
 * and sleeps only if that poll found nothing; an event after arm() ends wait().  What comes
 * from another thread: it takes the lock, and sees either `sleeping` and wakes the leader, or a
 * leader that will look at its condition before it sets `sleeping`, as between that look and
 * the sleep the lock is not released but by setting it.  wake() also ends a wait() that has not
 * begun yet.
 *
 * How long it polls.  At most spin_us, and only while that pays: a wait that polling for
 * spin_us ended, or would have ended, doubles the time, one that took longer halves it, in the
 * end to nothing.  So small messages that follow each other closely are polled for, and a
 * process that waits for large ones, or for a peer that has no processor, leaves its own to
 * others.  Where polling itself keeps off what it waits for, as with a device in software,
 * whose packets need the same processor, a wait looks as if a little more polling would have
 * ended it.  So polls in vain in a row stop it, too, and one wait in some tries again.
 * Servers and clients do so alike, where [000 4.4] has servers poll and clients sleep for
 * replies: a server sleeps as soon as nobody asks, and a client polls while its replies come
 * soon.
 *
 * A leader settles (engine.c) like everybody.  While it registers or packs what an op needs it
 * has released the lock, but is still the leader: those that sleep behind it wait until it is
 * through with what there was to do, and only threads that call meanwhile look at the fabric.
 * A registration that is found in the cache is nothing to do.
 *
 * Nothing ticks: the sleep lasts until the nearest of the caller's time, the first timer, the
 * fabric's deadline and the moment at which idle memory is to go back.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "engine/engine.h"

#define SPIN_LEAST_US 4  /* polling for less is not worth while */
#define SPINS_IN_VAIN 8  /* in a row: it does not pay */
#define SPIN_AGAIN    16 /* then one of so many waits finds out whether it would now */
/* this part of spin_us is polled before others are offered the processor */
#define QUICK_PART 16
#define CLOCK_SKIP 8 /* rounds of that which find nothing, between looks at the clock */

static uint64_t now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/*
 * Should who waits for a context return for an unexpected message, to fetch it?  Once: if it
 * did not, and nothing has come or been fetched since, nobody asks for such messages now, and
 * returning at once again and again would only burn the processor.
 */
static bool is_called_away(const struct rme *rme, const struct rme_waiter *waiter)
{
    return waiter->ctx >= 0 && !rme_node_alone(&rme->protocols->unexpected) &&
           rme->operations->ctx[waiter->ctx].unexpected_seen !=
               rme->protocols->unexpected_changes;
}

/* How many completions the waiter has got; *over when it should return with what it has. */
static int look(struct rme *rme, struct rme_waiter *waiter, bool *over)
{
    int n = waiter->ready(rme, waiter);

    *over = n > 0 || waiter->hopeless || is_called_away(rme, waiter);
    return n;
}

/* Timers of links whose work is done are put to rest here, not when the work is done: that
 * would cost every message. */
static void stop_idle_timers(struct rme *rme)
{
    struct rme_timer *timer;

    while ((timer = rme_timers_first(&rme->timers)) != NULL &&
           rme_peer_timer_rest(rme_entry(timer, struct rme_peer, timer)))
        continue;
}

/* When the leader must be awake again, at the latest. */
static uint64_t sleep_until(struct rme *rme, uint64_t now, uint64_t until)
{
    int fabric = rme->ops->deadline(rme->fabric);
    uint64_t memory = rme_least(rme_zone_look(rme->zone, now), rme_fast_look_at(rme));
    uint64_t timer;

    stop_idle_timers(rme);
    timer = rme_timers_next(&rme->timers);
    if (timer < until)
        until = timer;
    if (memory < until)
        until = memory;
    if (fabric >= 0 && now + (uint64_t)fabric < until)
        until = now + (uint64_t)fabric;
    return until;
}

/* Credits that wait for an answer of the host go now, if it has got nothing: `idle`; or have
 * waited for long. */
static void answers(struct rme *rme, bool idle)
{
    if (rme_node_alone(&rme->answers))
        return;
    rme_grant_answers(rme, idle);
    if (!rme_node_alone(&rme->kicked))
        rme_settle(rme);
}

/* Sleeps in the fabric, if there is nothing to do.  Lock held, but while asleep. */
static int sleep_leading(struct rme *rme, struct rme_waiter *waiter, uint64_t until, bool *over)
{
    uint64_t now;
    int n;

    answers(rme, true);
    if (rme->ops->arm(rme->fabric) != 0 || rme_progress(rme, true) > 0) {
        rme_settle(rme);
        return look(rme, waiter, over);
    }
    rme_settle(rme);
    n = look(rme, waiter, over);
    if (*over || !rme_node_alone(&rme->answers)) /* taken while settling had no lock */
        return n;
    now = rme_now();
    rme->sleeps_until = sleep_until(rme, now, until);
    if (rme->sleeps_until > now) {
        uint64_t ms = rme->sleeps_until - now;

        rme->sleeping = true;
        rme_count(rme, RME_C_SLEEPS);
        pthread_mutex_unlock(&rme->lock);
        if (rme_zone_wants_trim(rme->zone))
            rme_zone_trim(rme->zone);
        if (rme_log_pending(rme->log))
            rme_log_drain(rme->log);
        rme->ops->wait(rme->fabric, ms > INT_MAX ? INT_MAX : (int)ms);
        rme_lock(rme);
        rme->sleeping = false;
        rme->wake = false;
    }
    if (rme_progress(rme, true) > 0)
        rme_count(rme, RME_C_WAKEUPS);
    rme_settle(rme);
    return look(rme, waiter, over);
}

uint32_t rme_wait_polls_us(struct rme *rme)
{
    return rme_engine(rme)->spins_in_vain < SPINS_IN_VAIN ? rme_engine(rme)->spin_us : 0;
}

/* How long this wait polls. */
static uint32_t spin_for(struct rme *rme)
{
    if (rme_engine(rme)->spins_in_vain < SPINS_IN_VAIN ||
        ++rme_engine(rme)->spins_left_out % SPIN_AGAIN != 0)
        return rme_wait_polls_us(rme);
    return rme->tuning.spin_us;
}

/* A wait that polled for `spin` is over: what came was `found` by that, and if not, would have
 * been, `soon`, by polling for spin_us. */
static void learn(struct rme *rme, uint32_t spin, bool found, bool soon)
{
    uint32_t next = rme_engine(rme)->spin_us;

    if (spin != 0)
        rme_engine(rme)->spins_in_vain = found ? 0 : rme_engine(rme)->spins_in_vain + 1;
    if (found || soon)
        next = next < SPIN_LEAST_US ? SPIN_LEAST_US : 2 * next;
    else
        next = next / 2 < SPIN_LEAST_US ? 0 : next / 2;
    rme_engine(rme)->spin_us = next < rme->tuning.spin_us ? next : rme->tuning.spin_us;
}

/*
 * Polls for `spin` microseconds from `begin`, the lock free between rounds.  What comes at once
 * came from a peer that was at it already; after that the processor is offered to whoever else
 * wants it between two rounds.  With fewer processors than threads that is often the very
 * thread, here or at the peer, that is to make what is waited for; and a thread that has burnt
 * its share of time polling has to wait for the processor when there is work.  Who sets spin_us
 * higher has processors for it, and gets that much more of undisturbed polling.  While a
 * rendezvous moves its data, the processor is offered from the first round that finds nothing:
 * that takes longer anyway.  After a round that found something it is not: there may be more of
 * ours to do at once, as the next part of a large message follows one that is through.
 *
 * A look at the clock takes a good part of a round's time, and who has what it wants needs
 * none.  While the processor is not offered, rounds that find nothing are short, and one look
 * does for several.
 */
static int spin_leading(struct rme *rme, struct rme_waiter *waiter, uint64_t begin,
                        uint32_t spin, uint64_t until, bool *over)
{
    uint64_t now = begin, end = begin + spin;
    uint64_t quick = rme->under_way != 0 ? begin : begin + rme->tuning.spin_us / QUICK_PART;
    unsigned rounds = 0;
    bool busy = true;
    int n = 0;

    if (until < UINT64_MAX / 1000 && until * 1000 < end)
        end = until * 1000;
    do {
        pthread_mutex_unlock(&rme->lock);
        if (now >= quick && !busy)
            sched_yield();
        rme_lock(rme);
        busy = rme_progress(rme, false) > 0;
        rme_settle(rme);
        n = look(rme, waiter, over);
        if (!*over && (busy || now >= quick || ++rounds % CLOCK_SKIP == 0))
            now = now_us();
    } while (!*over && now < end);
    return n;
}

static int lead(struct rme *rme, struct rme_waiter *waiter, uint64_t until, bool *over)
{
    bool may_spin = rme->tuning.spin_us != 0;
    uint64_t begin = may_spin ? now_us() : 0;
    uint32_t spin = may_spin ? spin_for(rme) : 0;
    bool found = false;
    int n = 0;

    rme->leader = waiter;
    if (spin != 0) {
        n = spin_leading(rme, waiter, begin, spin, until, over);
        found = *over;
    }
    if (!*over)
        n = sleep_leading(rme, waiter, until, over);
    if (may_spin)
        learn(rme, spin, found, !found && now_us() - begin <= rme->tuning.spin_us);
    rme->leader = NULL;
    return n;
}

static int follow(struct rme *rme, struct rme_waiter *waiter, uint64_t until, bool *over)
{
    struct timespec ts = {.tv_sec = (time_t)(until / 1000),
                          .tv_nsec = (long)(until % 1000) * 1000000};
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter->cond, &attr);
    pthread_condattr_destroy(&attr);
    rme_node_append(&rme->followers, &waiter->link);
    pthread_cond_timedwait(&waiter->cond, &rme->lock, &ts);
    rme_node_remove(&waiter->link);
    pthread_cond_destroy(&waiter->cond);
    return look(rme, waiter, over);
}

/* Registers ahead of its use what the host gave a hint about: there is nothing else to do.
 * Others may lead meanwhile. */
static int warm(struct rme *rme, struct rme_waiter *waiter, bool *over)
{
    pthread_mutex_unlock(&rme->lock);
    rme_mreg_warm(rme->mreg);
    rme_lock(rme);
    rme_progress(rme, false);
    rme_settle(rme);
    return look(rme, waiter, over);
}

int rme_wait(struct rme *rme, struct rme_waiter *waiter, int wait_ms)
{
    uint64_t until;
    bool over;
    int n;

    if (rme_forked(rme)) {
        /* who asks again and again shall not spin */
        (void)poll(NULL, 0, wait_ms > 0 ? wait_ms : 0);
        return -ENODEV;
    }
    rme_lock(rme);
    rme_progress(rme, false);
    rme_settle(rme);
    n = look(rme, waiter, &over);
    if (!over && rme_mreg_wants_warming(rme->mreg))
        n = warm(rme, waiter, &over);
    if (!over && wait_ms > 0) {
        until = rme_now() + (uint64_t)wait_ms;
        do
            n = rme->leader == NULL ? lead(rme, waiter, until, &over)
                                    : follow(rme, waiter, until, &over);
        while (!over && rme_now() < until);
        if (rme->leader == NULL && !rme_node_alone(&rme->followers))
            pthread_cond_signal(&rme_entry(rme->followers.next, struct rme_waiter, link)->cond);
    }
    answers(rme, !over);
    if (n == 0 && wait_ms > 0 && is_called_away(rme, waiter))
        rme->operations->ctx[waiter->ctx].unexpected_seen = rme->protocols->unexpected_changes;
    rme_unlock(rme);
    return n;
}
