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
 * A wait polls for poll_us unless polling is paused (record_poll).  doc/design/polling.md has
 * the rules, for servers and clients alike, and their reasons.
 *
 * A leader runs pending work (engine.c) like every other thread.  While registering or packing
 * memory of an operation, the thread has released the lock but remains the leader: followers
 * stay asleep until this work is done, and only threads that call meanwhile poll the fabric.  A
 * registration found in the cache causes no pending work.
 *
 * Cancellation of threads (pthread_cancel) is disabled during a wait, because a leader, or a
 * thread with the lock or with fetched completions, must not end.
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

#define FAILS_MAX      8  /* failed polls, less two per success, before a pause */
#define PAUSE_MIN      16 /* waits of a pause, without its random part */
#define PAUSE_MAX      (16 * PAUSE_MIN)
#define YIELD_SKIP_MAX 15 /* a power of two less one */
#define CLOCK_SKIP     8  /* empty rounds per reading of the clock */
/* Parts of poll_us: polled before the first sched_yield(), usually and under contention; and
 * polled under contention in all, about the cost of a wake-up. */
#define QUIET_PART     16
#define CONTENDED_PART 64
#define SHORT_PART     4

/* Yields the processor, without the lock, and adapts yield_skip.  Returns the duration.  The
 * idle cost is that of the first call, or of a later one that takes less than half: the earlier
 * one was made under contention. */
static uint64_t yield(struct rme_polling *p)
{
    uint64_t begin = rme_now_ns(), took_ns;

    sched_yield();
    took_ns = rme_now_ns() - begin;
    if (p->yield_ns == 0 || 2 * took_ns < p->yield_ns)
        p->yield_ns = took_ns;
    if (took_ns > 2 * p->yield_ns)
        p->yield_skip = 0;
    else if (p->yield_skip < YIELD_SKIP_MAX)
        p->yield_skip = 2 * p->yield_skip + 1;
    return took_ns;
}

/*
 * True if a thread that waits for a context should return to fetch an unexpected message.  True
 * once only: if no unexpected message has arrived or been fetched since that return, the host
 * fetches none at present, and repeated returns would only waste processor time.
 */
static bool has_new_unexpected(const struct rme *rme, const struct rme_waiter *waiter)
{
    return waiter->ctx >= 0 && !list_empty(&rme->protocols->unexpected) &&
           rme->operations->ctx[waiter->ctx].unexpected_seen !=
               rme->protocols->unexpected_changes;
}

/* Takes what is ready for the waiter.  Returns true if the waiter should return. */
static bool take_ready(struct rme *rme, struct rme_waiter *waiter)
{
    return waiter->ready(rme, waiter) || has_new_unexpected(rme, waiter);
}

/* Stops the timers of links without work; at the end of the work that would cost time for every
 * message.  Returns the time at which the leader must be awake again. */
static uint64_t sleep_until(struct rme *rme, uint64_t now, uint64_t until)
{
    int fabric = rme->ops->deadline(rme->fabric);
    struct rme_timer *timer;

    while ((timer = rme_timers_first(&rme->timers)) != NULL &&
           rme_peer_timer_rest(container_of(timer, struct rme_peer, timer)))
        continue;
    until = min_u64(until, rme_timers_next(&rme->timers));
    until = min_u64(until, rme_zone_trim_due(rme->zone, now));
    until = min_u64(until, rme_ring_idle_due(rme));
    return fabric >= 0 ? min_u64(until, now + (uint64_t)fabric) : until;
}

/* Sleeps in the fabric if there is no work.  The lock is held except while asleep. */
static bool sleep_leading(struct rme *rme, struct rme_waiter *waiter)
{
    uint64_t now;
    bool busy;

    rme_grant_send_waiting(rme);
    busy = rme->ops->arm(rme->fabric) != 0 || rme_progress(rme, true) > 0;
    rme_run_pending(rme);
    if (take_ready(rme, waiter))
        return true;
    /* taken while rme_run_pending had released the lock */
    if (busy || rme->credit_waiting != NULL)
        return false;
    now = rme_now();
    rme->sleeps_until = sleep_until(rme, now, waiter->until);
    if (rme->sleeps_until > now) {
        uint64_t ms = rme->sleeps_until - now;

        rme->sleeping = true;
        rme_count(rme, RME_C_SLEEPS);
        pthread_mutex_unlock(&rme->lock);
        atomic_store(&rme->pin.asleep, true); /* before the chores: none is left to a sleeper */
        rme_do_chores(rme);
        rme->ops->wait(rme->fabric, ms > INT_MAX ? INT_MAX : (int)ms);
        atomic_store(&rme->pin.asleep, false);
        rme_lock(rme);
        rme->sleeping = false;
        rme->pending &= ~(uint32_t)RME_PENDING_WAKE;
    }
    if (rme_progress(rme, true) > 0)
        rme_count(rme, RME_C_WAKEUPS);
    rme_run_pending(rme);
    return take_ready(rme, waiter);
}

uint32_t rme_wait_polls_us(struct rme *rme)
{
    return rme_engine(rme)->polling.pause_left == 0 ? rme->tuning.poll_us : 0;
}

enum poll_result { POLL_ENDED_WAIT, POLL_FAILED, POLL_PREEMPTED };

/* Pauses polling.  The random part keeps two processes from missing each other's attempts
 * permanently.  Half of FAILS_MAX attempts follow. */
static void pause_polling(struct rme *rme)
{
    struct rme_polling *p = &rme_engine(rme)->polling;

    p->pause = p->pause == 0 ? PAUSE_MIN : p->pause < PAUSE_MAX ? 2 * p->pause : PAUSE_MAX;
    p->pause_left = p->pause + rme_random(rme, p->pause);
    p->fails = FAILS_MAX / 2;
}

/* Records the result of a poll, and pauses polling after FAILS_MAX failures, less two for each
 * success, or if a computing process kept the yielded processor. */
static void record_poll(struct rme *rme, enum poll_result result)
{
    struct rme_polling *p = &rme_engine(rme)->polling;

    switch (result) {
    case POLL_ENDED_WAIT:
        p->fails -= p->fails < 2 ? p->fails : 2;
        p->pause = 0;
        break;
    case POLL_FAILED:
        if (++p->fails == FAILS_MAX)
            pause_polling(rme);
        break;
    case POLL_PREEMPTED:
        pause_polling(rme);
    }
}

/*
 * Polls for poll_us, releasing the lock between rounds.  After the first part (QUIET_PART, or
 * CONTENDED_PART if another thread ran during the last sched_yield()), the leader yields the
 * processor: every round under contention, else after more rounds each time, up to
 * YIELD_SKIP_MAX.  The leader does not yield after a round with events, because more work may
 * follow at once, such as the next fragment of a large message.  Two contended calls in a row
 * shorten the polling, a single one may be an interrupt.  A call that takes longer than poll_us
 * ends the polling.
 *
 * Reading the clock costs a good part of a round and is not needed after the last one.  Empty
 * rounds are short, so one reading serves several.
 */
static bool poll_leading(struct rme *rme, struct rme_waiter *waiter)
{
    struct rme_polling *p = &rme_engine(rme)->polling;
    uint64_t spin = rme->tuning.poll_us * 1000ull, begin = rme_now_ns(), now = begin;
    uint64_t end =
        min_u64(begin + spin, min_u64(waiter->until, UINT64_MAX / 1000000) * 1000000);
    uint64_t quiet = spin / (p->yield_skip != 0 ? QUIET_PART : CONTENDED_PART);
    unsigned rounds = 0, since_yield = 0, contended = 0;
    uint64_t yield_took = 0;
    bool busy = true, yields, over;

    do {
        yields = now - begin >= quiet && !busy && since_yield++ >= p->yield_skip;
        pthread_mutex_unlock(&rme->lock);
        if (yields) {
            yield_took = yield(p);
            contended = p->yield_skip == 0 ? contended + 1 : 0;
            if (contended == 2)
                end = min_u64(end, begin + spin / SHORT_PART);
            since_yield = 0;
        }
        rme_lock(rme);
        busy = rme_progress(rme, false) > 0;
        rme_run_pending(rme);
        over = take_ready(rme, waiter);
        if (!over && (busy || yields || ++rounds % CLOCK_SKIP == 0))
            now = rme_now_ns();
    } while (!over && yield_took <= spin && now < end);
    record_poll(rme, yield_took > spin ? POLL_PREEMPTED : over ? POLL_ENDED_WAIT : POLL_FAILED);
    return over;
}

/* Polls, unless this wait is one of a pause. */
static bool poll_first(struct rme *rme, struct rme_waiter *waiter)
{
    struct rme_polling *p = &rme_engine(rme)->polling;

    if (p->pause_left != 0) {
        p->pause_left--;
        return false;
    }
    return rme->tuning.poll_us != 0 && poll_leading(rme, waiter);
}

static bool lead(struct rme *rme, struct rme_waiter *waiter)
{
    bool over;

    rme->leader = waiter;
    over = poll_first(rme, waiter) || sleep_leading(rme, waiter);
    rme->leader = NULL;
    return over;
}

static bool follow(struct rme *rme, struct rme_waiter *waiter)
{
    struct timespec ts = {.tv_sec = (time_t)(waiter->until / 1000),
                          .tv_nsec = (long)(waiter->until % 1000) * 1000000};
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter->cond, &attr);
    pthread_condattr_destroy(&attr);
    list_add_tail(&waiter->link, &rme->followers);
    pthread_cond_timedwait(&waiter->cond, &rme->lock, &ts);
    list_del_init(&waiter->link);
    pthread_cond_destroy(&waiter->cond);
    return take_ready(rme, waiter);
}

/* Waits after a first attempt found nothing.  Not inlined, so that a successful call saves no
 * registers for it. */
__attribute__((noinline)) static bool wait_on(struct rme *rme, struct rme_waiter *waiter,
                                              int wait_ms)
{
    bool over = has_new_unexpected(rme, waiter);

    if (over)
        return true;
    waiter->until = rme_now() + (uint64_t)wait_ms;
    do {
        if (rme->leader == NULL) {
            over = lead(rme, waiter);
        } else if (rme->pending & RME_PENDING_WAKE) {
            /* wakes the leader now, because this thread will not return soon */
            rme_unlock(rme);
            rme_lock(rme);
            over = take_ready(rme, waiter);
        } else {
            over = follow(rme, waiter);
        }
    } while (!over && rme_now() < waiter->until);
    if (rme->leader == NULL && !list_empty(&rme->followers))
        pthread_cond_signal(&container_of(rme->followers.next, struct rme_waiter, link)->cond);
    return over;
}

int rme_wait(struct rme *rme, struct rme_waiter *waiter, int wait_ms)
{
    int cancels;
    bool over;

    if (rme_forked(rme)) {
        /* keeps a caller that repeats its call from spinning */
        (void)poll(NULL, 0, wait_ms > 0 ? wait_ms : 0);
        return -ENODEV;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    rme_lock(rme);
    rme_progress(rme, false);
    rme_run_pending(rme);
    over = waiter->ready(rme, waiter);
    if (!over && wait_ms > 0)
        over = wait_on(rme, waiter, wait_ms);
    if (__builtin_expect(rme->credit_waiting != NULL, 0))
        rme_grant_count_call(rme, !over && !has_new_unexpected(rme, waiter));
    if (waiter->found == 0 && wait_ms > 0 && has_new_unexpected(rme, waiter))
        rme->operations->ctx[waiter->ctx].unexpected_seen = rme->protocols->unexpected_changes;
    rme_unlock(rme);
    pthread_setcancelstate(cancels, NULL);
    return waiter->found;
}
