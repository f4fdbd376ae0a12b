/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waiting.  One of the waiting threads is the leader, which polls for a while, then sleeps in
 * the fabric's wait() without a lock.  The others are followers, each asleep on a condition
 * variable of its own.  A thread that makes something ready, be it the leader, a follower or a
 * posting thread, notifies the waiters concerned (rme_wait_notify).  A leader that is done
 * returns and wakes one follower, which becomes the leader.
 *
 * No wake-up is lost.  Events of the fabric: the leader arms the fabric, polls once more, and
 * sleeps only if that poll found nothing; an event after arm() ends wait().  Other threads: a
 * thread that makes something ready holds the lock.  If that thread finds `sleeping` set, the
 * leader is woken when the thread returns, or before the thread follows.  Otherwise the leader
 * will check its condition before setting `sleeping`, because the lock is not released between
 * that check and setting `sleeping`.  A thread that has requested or ended a link wakes the
 * leader as well, because the fabric may report the result without an event.  wake() also ends
 * a wait() that has not begun yet.
 *
 * Duration of polling.  A wait polls for spin_us at first.  Each wait that ends within spin_us,
 * by polling or by an event during the sleep, doubles the time of the next one, and each other
 * wait halves this time, down to none: a process that waits for large messages, or for a peer
 * without a processor, should not poll.  (KVM's halt_poll_ns is adapted in the same way.)
 * doc/design/polling.md has measurements.
 *
 * Servers and clients use the same rules, whereas in [000 4.4] servers poll and clients sleep
 * for replies: a server without requests sleeps soon, and a client polls while its replies are
 * fast.
 *
 * A leader runs pending work (engine.c) like every other thread.  While registering or packing
 * memory of an operation, the thread has released the lock but remains the leader: followers
 * stay asleep until this work is done, and only threads that call meanwhile poll the fabric.  A
 * registration found in the cache causes no pending work.
 *
 * A cancelled thread (pthread_cancel) ends after its wait, not during the wait, because a
 * leader, or a thread with the lock or with fetched completions, must not end there.
 *
 * No timer is periodic: the sleep lasts until the first of the caller's time, the first timer,
 * the fabric's deadline and the time at which idle memory is given back.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "engine/engine.h"

/* fraction of spin_us polled before the first sched_yield() */
#define QUICK_PART 64
/* fraction of its time that a wait polls while other threads take the processor */
#define CROWDED_PART 4
#define LEAST_PART   16      /* smallest fraction of spin_us that a wait polls */
#define SKIP         16      /* empty rounds per reading of the clock and sched_yield() */
#define TAKEN        2       /* factor of the least duration from which another thread ran */
#define TAKEN_AGAIN  2       /* such calls in a row that mean contention, not an interrupt */
#define NS           1000000 /* in a millisecond */
#define REST         64      /* factor of a lost time slice for which waits do not poll */

/*
 * True if a thread that waits for a context should return to fetch an unexpected message.  True
 * once only: if no unexpected message has arrived or been fetched since that return, the host
 * fetches none at present, and repeated returns would only waste processor time.
 */
static bool is_called_away(const struct rme *rme, const struct rme_waiter *waiter)
{
    return waiter->ctx >= 0 && !rme_node_alone(&rme->protocols->unexpected) &&
           rme->operations->ctx[waiter->ctx].unexpected_seen !=
               rme->protocols->unexpected_changes;
}

/* True if the waiter, which has got `n` completions, should return. */
static bool is_over(const struct rme *rme, const struct rme_waiter *waiter, int n)
{
    return n > 0 || waiter->hopeless || is_called_away(rme, waiter);
}

/* Returns the number of completions that the waiter has got; *over: the waiter should
 * return. */
static int look(struct rme *rme, struct rme_waiter *waiter, bool *over)
{
    int n = waiter->ready(rme, waiter);

    *over = is_over(rme, waiter, n);
    return n;
}

/* Stops the timers of links without work.  Runs before a sleep rather than at the end of the
 * work, which would cost time for every message. */
static void stop_idle_timers(struct rme *rme)
{
    struct rme_timer *timer;

    while ((timer = rme_timers_first(&rme->timers)) != NULL &&
           rme_peer_timer_rest(rme_entry(timer, struct rme_peer, timer)))
        continue;
}

/* Time at which the leader must be awake again. */
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

/* Sends the CREDIT messages that wait for a reply of the host if the call returns nothing
 * (`idle`), or after RME_ANSWER_CALLS calls. */
static void answers(struct rme *rme, bool idle)
{
    if (rme_node_alone(&rme->answers))
        return;
    rme_grant_answers(rme, idle);
    rme_settle(rme);
}

/* Sleeps in the fabric if there is no work.  The lock is held except while asleep. */
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
    /* taken while rme_settle had released the lock */
    if (*over || !rme_node_alone(&rme->answers))
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
        if (rme_mreg_wants_room(rme->mreg))
            rme_mreg_make_room(rme->mreg);
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

/* Returns spin_us in nanoseconds. */
static uint64_t spin_most(const struct rme *rme)
{
    return rme->tuning.spin_us * UINT64_C(1000);
}

/* Returns the nanoseconds that a wait that begins now polls. */
static uint64_t spin_for(struct rme *rme, uint64_t now)
{
    const struct rme_engine *e = rme_engine(rme);

    return now < e->rest_until ? 0 : e->spin_ns;
}

uint32_t rme_wait_polls_us(struct rme *rme)
{
    return (uint32_t)(spin_for(rme, rme_now_ns()) / 1000);
}

/* Adapts the time of polling after a wait.  `soon`: the wait ended within spin_us. */
static void learn(struct rme *rme, bool soon)
{
    struct rme_engine *e = rme_engine(rme);
    uint64_t most = spin_most(rme), least = most / LEAST_PART;

    if (soon)
        e->spin_ns = rme_least(2 * e->spin_ns + least, most);
    else
        e->spin_ns = e->spin_ns / 2 < least ? 0 : e->spin_ns / 2;
}

/*
 * Polls until `end`, releasing the lock between rounds.  For the first part (QUICK_PART) the
 * leader only polls, because an early reply comes from a peer that was already at work.
 * Afterwards the leader yields the processor after every SKIP empty rounds, and after each one
 * while other threads take the processor: with fewer processors than threads, the thread that
 * gets the processor is often the one, here or at the peer, that produces the awaited event,
 * and longer polling would delay that work; so the time is reduced as well (CROWDED_PART).
 * While a rendezvous moves data, the leader yields from the start, because the transfer takes
 * longer anyway.
 *
 * A computing process keeps a yielded processor for its whole time slice, milliseconds, whereas
 * a sleeping thread gets the processor back at its wake-up.  So a sched_yield() that takes
 * longer than spin_us ends the spin, and waits sleep at once for REST times as long.
 */
static int spin_leading(struct rme *rme, struct rme_waiter *waiter, uint64_t begin,
                        uint64_t end, bool *over)
{
    uint64_t quick = begin + (rme->under_way != 0 ? 0 : spin_most(rme) / QUICK_PART);
    uint64_t crowded = begin + (end - begin) / CROWDED_PART, now = begin, after = 0;
    struct rme_engine *e = rme_engine(rme);
    unsigned idle = 0, taken = 0; /* empty rounds; calls of sched_yield() in a row */
    int n;

    do {
        bool yields = now >= quick && idle != 0 && (taken != 0 || idle % SKIP == 0);

        pthread_mutex_unlock(&rme->lock);
        if (yields) {
            sched_yield();
            after = rme_now_ns();
        }
        rme_lock(rme);
        if (yields) {
            uint64_t took = after - now;

            e->yield_ns = e->yield_ns == 0 ? took : rme_least(e->yield_ns, took);
            taken = took > TAKEN * e->yield_ns ? taken + 1 : 0;
            if (taken >= TAKEN_AGAIN)
                end = rme_least(end, crowded);
            if (took > spin_most(rme)) {
                e->rest_until = after + REST * took;
                end = 0;
            }
        }
        idle = rme_progress(rme, false) > 0 ? 0 : idle + 1;
        rme_settle(rme);
        n = look(rme, waiter, over);
        if (!*over && (taken != 0 || idle % SKIP == 0))
            now = rme_now_ns();
    } while (!*over && now < end);
    return n;
}

static int lead(struct rme *rme, struct rme_waiter *waiter, uint64_t until, bool *over)
{
    uint64_t begin = rme_now_ns(), spin = spin_for(rme, begin);
    bool soon = true;
    int n = 0;

    rme->leader = waiter;
    if (spin != 0)
        n = spin_leading(rme, waiter, begin,
                         rme_least(begin + spin, rme_least(until, UINT64_MAX / NS) * NS), over);
    if (!*over) {
        n = sleep_leading(rme, waiter, until, over);
        soon = *over && rme_now_ns() - begin <= spin_most(rme);
    }
    learn(rme, soon);
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

/* Wakes the leader now if the leader's condition may be met, because this thread will not
 * return soon.  True: the lock was released meanwhile. */
static bool pass_wake(struct rme *rme)
{
    if (!rme->wake)
        return false;
    rme->wake = false;
    pthread_mutex_unlock(&rme->lock);
    rme->ops->wake(rme->fabric);
    rme_lock(rme);
    return true;
}

/* Registers memory that the host announced with a hint, while there is no other work.  Other
 * threads may lead meanwhile. */
static int warm(struct rme *rme, struct rme_waiter *waiter, bool *over)
{
    (void)pass_wake(rme);
    pthread_mutex_unlock(&rme->lock);
    rme_mreg_warm(rme->mreg);
    rme_lock(rme);
    rme_progress(rme, false);
    rme_settle(rme);
    return look(rme, waiter, over);
}

/* Waits after a first attempt found nothing.  Returns the number of completions.  Not inlined,
 * so that a successful call saves no registers for it. */
__attribute__((noinline)) static int wait_on(struct rme *rme, struct rme_waiter *waiter,
                                             int wait_ms)
{
    uint64_t until;
    bool over = is_over(rme, waiter, 0);
    int n = 0;

    if (!over && rme_mreg_wants_warming(rme->mreg))
        n = warm(rme, waiter, &over);
    if (!over && wait_ms > 0) {
        until = rme_now() + (uint64_t)wait_ms;
        do {
            if (rme->leader == NULL)
                n = lead(rme, waiter, until, &over);
            else if (pass_wake(rme))
                n = look(rme, waiter, &over);
            else
                n = follow(rme, waiter, until, &over);
        } while (!over && rme_now() < until);
        if (rme->leader == NULL && !rme_node_alone(&rme->followers))
            pthread_cond_signal(&rme_entry(rme->followers.next, struct rme_waiter, link)->cond);
    }
    return n;
}

int rme_wait(struct rme *rme, struct rme_waiter *waiter, int wait_ms)
{
    int n, cancels;

    if (rme_forked(rme)) {
        /* keeps a caller that repeats its call from spinning */
        (void)poll(NULL, 0, wait_ms > 0 ? wait_ms : 0);
        return -ENODEV;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    rme_lock(rme);
    rme_progress(rme, false);
    rme_settle(rme);
    n = waiter->ready(rme, waiter);
    if (n == 0 && (wait_ms > 0 || rme_mreg_wants_warming(rme->mreg)))
        n = wait_on(rme, waiter, wait_ms);
    if (!rme_node_alone(&rme->answers))
        answers(rme, !is_over(rme, waiter, n));
    if (n == 0 && wait_ms > 0 && is_called_away(rme, waiter))
        rme->operations->ctx[waiter->ctx].unexpected_seen = rme->protocols->unexpected_changes;
    rme_unlock(rme);
    pthread_setcancelstate(cancels, NULL);
    return n;
}
