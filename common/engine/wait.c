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
 * Duration of polling.  A wait polls for spin_us, a few times the cost of a wake-up: a longer
 * exchange gains little from polling.  If other threads take the processor meanwhile, the wait
 * polls for the fraction CROWDED_PART of spin_us only, about the cost of a wake-up, because
 * longer polling would delay the awaited work itself, such as that of a software device on the
 * same processor.
 *
 * A process that waits for large messages, or for a peer without a processor, should not poll.
 * So polling stops after SPIN_FAILS failed spins, less two for each success.  After a
 * pause the next SPINS_TRIED waits try again, and if these trials fail, too, the pause is
 * doubled.  More than one trial is necessary: where a wake-up takes as long as spin_us, two
 * sleeping processes see each other's fast replies only if both poll at the same time.  The
 * pause has a random part, so that their trials do not miss each other permanently.  One or two
 * late messages do not stop polling, because otherwise a process delayed once would sleep from
 * then on.
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

#define SPIN_FAILS   8  /* failed spins, less two per success, that stop spinning */
#define SPINS_TRIED  4  /* trials after a pause */
#define SPINS_PAUSE  16 /* waits without spinning, at first */
#define SPINS_LONGER 4  /* maximum number of doublings of the pause */
/* fractions of spin_us polled before the first sched_yield(): usually, and if another thread
 * ran during the last one */
#define QUICK_PART  16
#define SHARED_PART 64
/* fraction of spin_us polled under CPU contention */
#define CROWDED_PART 4
#define CLOCK_SKIP   8 /* empty rounds per reading of the clock */
/* maximum of offer_skip; a power of two less one */
#define OFFER_SKIP  15
#define TAKEN       2 /* factor of the idle cost above which another thread ran */
#define TAKEN_AGAIN 2 /* such calls in a row that mean contention, not an interrupt */

/* Yields the processor, without the lock, and adapts offer_skip: 0 means that another thread
 * ran.  Returns the duration.  The idle cost is that of the first call, or of a later one that
 * takes less than half: the earlier one was made under contention. */
static uint64_t offer(struct rme_engine *e)
{
    uint64_t begin = rme_now_ns(), for_ns;

    sched_yield();
    for_ns = rme_now_ns() - begin;
    if (e->offer_ns == 0 || TAKEN * for_ns < e->offer_ns)
        e->offer_ns = for_ns;
    if (for_ns > TAKEN * e->offer_ns)
        e->offer_skip = 0;
    else if (e->offer_skip < OFFER_SKIP)
        e->offer_skip = 2 * e->offer_skip + 1;
    return for_ns;
}

/*
 * True if a thread that waits for a context should return to fetch an unexpected message.  True
 * once only: if no unexpected message has arrived or been fetched since that return, the host
 * fetches none at present, and repeated returns would only waste processor time.
 */
static bool is_called_away(const struct rme *rme, const struct rme_waiter *waiter)
{
    return waiter->ctx >= 0 && !list_empty(&rme->protocols->unexpected) &&
           rme->operations->ctx[waiter->ctx].unexpected_seen !=
               rme->protocols->unexpected_changes;
}

/* Takes what is ready for the waiter.  Returns true if the waiter should return. */
static bool look(struct rme *rme, struct rme_waiter *waiter)
{
    return waiter->ready(rme, waiter) || is_called_away(rme, waiter);
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
    if (look(rme, waiter))
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
    return look(rme, waiter);
}

uint32_t rme_wait_polls_us(struct rme *rme)
{
    return rme_engine(rme)->spin_fails < SPIN_FAILS ? rme->tuning.spin_us : 0;
}

/* Returns the microseconds that this wait polls.  Counts a wait of the pause; trials follow the
 * last one. */
static uint32_t spin_for(struct rme *rme)
{
    struct rme_engine *e = rme_engine(rme);

    if (e->spin_fails > SPIN_FAILS && --e->spin_fails == SPIN_FAILS)
        e->spin_fails = SPIN_FAILS - SPINS_TRIED;
    return rme_wait_polls_us(rme);
}

/* Records the result of a spin.  `ended`: polling ended the wait.  `lost`: a sched_yield() took
 * longer than polling may take. */
static void learn(struct rme *rme, bool ended, bool lost)
{
    struct rme_engine *e = rme_engine(rme);
    unsigned pause = SPINS_PAUSE << e->spins_longer;

    if (ended && !lost) {
        e->spin_fails -= e->spin_fails < 2 ? e->spin_fails : 2;
        e->spins_longer = 0;
    } else if (lost || ++e->spin_fails == SPIN_FAILS) {
        e->spin_fails = SPIN_FAILS + pause + rme_random(rme, pause) + 1;
        e->spins_longer += e->spins_longer < SPINS_LONGER;
    }
}

/*
 * Polls for spin_us, releasing the lock between rounds.  For the first part (QUICK_PART, or
 * SHARED_PART) the leader only polls, because an early reply comes from a peer that was already
 * at work.  Afterwards the leader yields the processor between rounds.  With fewer processors
 * than threads, the thread that gets the processor is often the one, here or at the peer, that
 * produces the awaited event; and a thread that has used its time slice for polling has to wait
 * for the processor when there is work.  A higher spin_us means that processors are available,
 * and lengthens the first part in proportion.  The leader does not yield after a round with
 * events, because more work may follow at once, such as the next fragment of a large message.
 *
 * A computing process keeps a yielded processor for its whole time slice, milliseconds, whereas
 * a sleeping thread gets the processor back at its wake-up.  So a sched_yield() that takes
 * longer than polling may take ends the spin, and the next waits sleep at once.  (Without this
 * rule, copying a file in blocks of 256 KiB beside two computing processes ran at a fifth of
 * TCP's rate.)
 *
 * A sched_yield() costs as much as several rounds, and much more in a virtual machine.  So
 * after each call in which no other thread ran, more rounds pass until the next call, up to
 * OFFER_SKIP.  A call in which another thread ran, as its duration shows, resets this to a call
 * per round.
 *
 * Reading the clock costs a good part of a round and is not needed after the last one.  Empty
 * rounds are short, so one reading serves several.
 */
static bool spin_leading(struct rme *rme, struct rme_waiter *waiter)
{
    uint64_t spin = rme->tuning.spin_us * 1000ull, begin = rme_now_ns(), now = begin;
    uint64_t end =
        min_u64(begin + spin, min_u64(waiter->until, UINT64_MAX / 1000000) * 1000000);
    struct rme_engine *e = rme_engine(rme);
    uint64_t quick = spin / (e->offer_skip != 0 ? QUICK_PART : SHARED_PART);
    unsigned rounds = 0, kept = 0, taken = 0; /* kept: rounds since the last sched_yield() */
    uint64_t for_ns = 0;
    bool busy = true, offered, over;

    do {
        offered = now - begin >= quick && !busy && kept++ >= e->offer_skip;
        pthread_mutex_unlock(&rme->lock);
        if (offered) {
            for_ns = offer(e);
            taken = e->offer_skip == 0 ? taken + 1 : 0;
            if (taken == TAKEN_AGAIN)
                end = min_u64(end, begin + spin / CROWDED_PART);
            kept = 0;
        }
        rme_lock(rme);
        busy = rme_progress(rme, false) > 0;
        rme_run_pending(rme);
        over = look(rme, waiter);
        if (!over && (busy || offered || ++rounds % CLOCK_SKIP == 0))
            now = rme_now_ns();
    } while (!over && for_ns <= spin && now < end);
    learn(rme, over, for_ns > spin);
    return over;
}

static bool lead(struct rme *rme, struct rme_waiter *waiter)
{
    bool over;

    rme->leader = waiter;
    over = (spin_for(rme) != 0 && spin_leading(rme, waiter)) || sleep_leading(rme, waiter);
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
    return look(rme, waiter);
}

/* Waits after a first attempt found nothing.  Not inlined, so that a successful call saves no
 * registers for it. */
__attribute__((noinline)) static bool wait_on(struct rme *rme, struct rme_waiter *waiter,
                                              int wait_ms)
{
    bool over = is_called_away(rme, waiter);

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
            over = look(rme, waiter);
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
        rme_grant_count_call(rme, !over && !is_called_away(rme, waiter));
    if (waiter->found == 0 && wait_ms > 0 && is_called_away(rme, waiter))
        rme->operations->ctx[waiter->ctx].unexpected_seen = rme->protocols->unexpected_changes;
    rme_unlock(rme);
    pthread_setcancelstate(cancels, NULL);
    return waiter->found;
}
