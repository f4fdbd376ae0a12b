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
 * the sleep the lock is not released but by setting it.  It wakes the leader when it leaves, or
 * before it follows.  So it does when it has asked for a link, or ended one: what the fabric
 * has to say of that may come without an event.  wake() also ends a wait() that has not begun
 * yet.
 *
 * How long it polls.  For spin_us, a few times what a wake-up takes: an exchange that takes
 * longer has little to gain.  Only for a part of it, about a wake-up, when others take the
 * processor meanwhile, or a device in software, whose packets need the same processor, would be
 * kept from making the very thing that is waited for.  And a process that waits for large
 * messages, or for a peer that has no processor, leaves its own to others: SPINS_IN_VAIN waits
 * that polled in vain stop it, of which one that polling ended makes up for two.  After a while
 * the next few waits try again, and when that is in vain, too, the while is twice as long.  It
 * takes more than one: where a wake-up takes as long as spin_us, of two processes that sleep
 * neither finds the other quick until both poll; chance keeps their tries from missing each
 * other for ever.  And one late message, or two, stop nothing, or whoever was held up once
 * would sleep from then on.
 * Servers and clients do so alike, where [000 4.4] has servers poll and clients sleep for
 * replies: a server sleeps as soon as nobody asks, and a client polls while its replies come
 * soon.
 *
 * A leader settles (engine.c) like everybody.  While it registers or packs what an op needs it
 * has released the lock, but is still the leader: those that sleep behind it wait until it is
 * through with what there was to do, and only threads that call meanwhile look at the fabric.
 * A registration that is found in the cache is nothing to do.
 *
 * A thread that is cancelled (pthread_cancel) ends behind its wait, not in it: it may lead, has
 * the lock now and then, and what it has fetched would be lost.
 *
 * Nothing ticks: the sleep lasts until the nearest of the caller's time, the first timer, the
 * fabric's deadline and the moment at which idle memory is to go back.
 */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "engine/engine.h"

#define SPINS_IN_VAIN 8  /* as many, less what polling has ended: it does not pay */
#define SPINS_TRIED   4  /* waits that try again */
#define SPINS_PAUSE   16 /* waits that do not poll before that, at first */
#define SPINS_LONGER  4  /* times that this doubles */
/* this part of spin_us is polled before others are offered the processor */
#define QUICK_PART 64
/* and only this part is polled at all when somebody wants it meanwhile */
#define CROWDED_PART 4
#define CLOCK_SKIP   8 /* rounds that find nothing, between looks at the clock */
/* rounds between offers of the processor that nobody takes, at most; a power of two less one */
#define OFFER_SKIP   15
#define OFFERS_TRIED 8       /* to find out what one takes that nobody takes */
#define OFFER_MOST   1000000 /* nanoseconds for all of these */
#define TAKEN        2       /* so many times as long: somebody has taken it */
#define TAKEN_AGAIN  2       /* so many in a row are no interrupt: somebody wants it */

static uint64_t now_us(void)
{
    return rme_now_ns() / 1000;
}

/* Offers the processor to others.  How long that took, in nanoseconds. */
static uint64_t offer(void)
{
    uint64_t begin = rme_now_ns();

    sched_yield();
    return rme_now_ns() - begin;
}

/* What that takes when nobody takes it. */
static uint64_t offer_least(void)
{
    uint64_t least = UINT64_MAX, sum = 0;

    for (int i = 0; i < OFFERS_TRIED && sum < OFFER_MOST; i++) {
        uint64_t took = offer();

        least = rme_least(least, took);
        sum += took;
    }
    return least;
}

/* The leader offers it, without the lock, and learns how often that is worth while.  Has
 * somebody taken it, and for how many nanoseconds? */
static bool offer_again(struct rme_engine *e, uint64_t *for_ns)
{
    uint64_t took;
    bool taken;

    if (e->offer_ns == 0)
        e->offer_ns = offer_least();
    took = offer();
    *for_ns = took;
    if (TAKEN * took < e->offer_ns) /* somebody wanted it all the time when that was learnt */
        e->offer_ns = took;
    taken = took > TAKEN * e->offer_ns;
    if (taken)
        e->offer_skip = 0;
    else if (e->offer_skip < OFFER_SKIP)
        e->offer_skip = 2 * e->offer_skip + 1;
    return taken;
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

/* Should the waiter, which has got so many completions, return with what it has? */
static bool is_over(const struct rme *rme, const struct rme_waiter *waiter, int n)
{
    return n > 0 || waiter->hopeless || is_called_away(rme, waiter);
}

/* How many completions the waiter has got; *over when it should return. */
static int look(struct rme *rme, struct rme_waiter *waiter, bool *over)
{
    int n = waiter->ready(rme, waiter);

    *over = is_over(rme, waiter, n);
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

/* When malloc's memory is to go back, if any is; never after zone_idle_ms=0. */
static uint64_t heap_at(struct rme *rme, uint64_t now)
{
    struct rme_keep *keep = &rme->keep;

    if (!keep->heap || rme->tuning.idle_ms == 0)
        return UINT64_MAX;
    if (keep->heap_at == 0)
        keep->heap_at = now + rme->tuning.idle_ms;
    return keep->heap_at;
}

/* When the leader must be awake again, at the latest. */
static uint64_t sleep_until(struct rme *rme, uint64_t now, uint64_t until)
{
    int fabric = rme->ops->deadline(rme->fabric);
    uint64_t memory = rme_least(rme_least(rme_zone_look(rme->zone, now), heap_at(rme, now)),
                                rme_fast_look_at(rme));
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
    rme_settle(rme);
}

/* Sleeps in the fabric, if there is nothing to do.  Lock held, but while asleep. */
static int sleep_leading(struct rme *rme, struct rme_waiter *waiter, uint64_t until, bool *over)
{
    uint64_t now;
    bool trims;
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
    trims = heap_at(rme, now) <= now;
    if (trims) {
        rme->keep.heap = false;
        rme->keep.heap_at = 0;
    }
    rme->sleeps_until = sleep_until(rme, now, until);
    if (rme->sleeps_until > now) {
        uint64_t ms = rme->sleeps_until - now;

        rme->sleeping = true;
        rme_count(rme, RME_C_SLEEPS);
        pthread_mutex_unlock(&rme->lock);
        if (rme_zone_wants_trim(rme->zone))
            rme_zone_trim(rme->zone);
        if (trims)
            malloc_trim(0);
        if (rme_mreg_wants_room(rme->mreg))
            rme_mreg_make_room(rme->mreg);
        if (rme_log_pending(rme->log))
            rme_log_drain(rme->log);
        rme->ops->wait(rme->fabric, ms > INT_MAX ? INT_MAX : (int)ms);
        rme_lock(rme);
        rme->sleeping = false;
        rme->wake = false;
    } else {
        rme->keep.heap |= trims;
    }
    if (rme_progress(rme, true) > 0)
        rme_count(rme, RME_C_WAKEUPS);
    rme_settle(rme);
    return look(rme, waiter, over);
}

uint32_t rme_wait_polls_us(struct rme *rme)
{
    return rme_engine(rme)->spins_in_vain < SPINS_IN_VAIN ? rme->tuning.spin_us : 0;
}

/* How long this wait polls. */
static uint32_t spin_for(struct rme *rme)
{
    struct rme_engine *e = rme_engine(rme);

    if (e->spins_in_vain >= SPINS_IN_VAIN) {
        if (e->spins_left_out > 0) {
            e->spins_left_out--;
            return 0;
        }
        e->spins_in_vain = SPINS_IN_VAIN - SPINS_TRIED;
    }
    return rme->tuning.spin_us;
}

/* A wait is over that polled; that has `ended` it, or not.  `lost`: an offer cost more time
 * than polling may take. */
static void learn(struct rme *rme, bool ended, bool lost)
{
    struct rme_engine *e = rme_engine(rme);

    if (lost)
        e->spins_in_vain = SPINS_IN_VAIN - 1;
    if (ended && !lost) {
        e->spins_in_vain -= e->spins_in_vain < 2 ? e->spins_in_vain : 2;
        e->spins_longer = 0;
    } else if (++e->spins_in_vain == SPINS_IN_VAIN) {
        unsigned pause = SPINS_PAUSE << e->spins_longer;

        e->spins_left_out = pause + rme_random(rme, pause);
        e->spins_longer += e->spins_longer < SPINS_LONGER;
    }
}

/*
 * Polls for `spin` microseconds, the lock free between rounds.  What comes at once came from a
 * peer that was at it already; after that the processor is offered to whoever else wants it
 * between two rounds.  With fewer processors than threads that is often the very
 * thread, here or at the peer, that is to make what is waited for; and a thread that has burnt
 * its share of time polling has to wait for the processor when there is work.  Who sets spin_us
 * higher has processors for it, and gets that much more of undisturbed polling.  While a
 * rendezvous moves its data, the processor is offered from the first round that finds nothing:
 * that takes longer anyway.  After a round that found something it is not: there may be more of
 * ours to do at once, as the next part of a large message follows one that is through.
 *
 * A process that computes takes an offered processor for its whole time slice, milliseconds,
 * while one that sleeps gets the processor back as soon as it is woken.  So an offer that takes
 * longer than polling may take ends it, and the next waits sleep at once: 256 KiB blocks of a
 * file beside two such processes were copied at a fifth of TCP's rate before.
 *
 * An offer is a system call, which takes as long as several rounds, and much longer where the
 * kernel is a guest.  So after each that nobody takes more rounds go by until the next, up to
 * OFFER_SKIP, and one that somebody takes, which shows by the time that it takes, brings back
 * an offer for each round.
 *
 * A look at the clock takes a good part of a round's time, and who has what it wants needs
 * none.  Rounds that find nothing are short, and one look does for several.
 */
static int spin_leading(struct rme *rme, struct rme_waiter *waiter, uint32_t spin,
                        uint64_t until, bool *over, bool *lost)
{
    uint64_t begin = now_us(), now = begin, end = begin + spin;
    uint64_t quick = rme->under_way != 0 ? begin : begin + rme->tuning.spin_us / QUICK_PART;
    struct rme_engine *e = rme_engine(rme);
    unsigned rounds = 0, kept = 0, taken = 0; /* kept: since the last offer */
    uint64_t crowded = begin + spin / CROWDED_PART, for_ns = 0;
    bool busy = true, offered;
    int n = 0;

    if (until < UINT64_MAX / 1000 && until * 1000 < end)
        end = until * 1000;
    do {
        offered = now >= quick && !busy && kept++ >= e->offer_skip;
        pthread_mutex_unlock(&rme->lock);
        if (offered) {
            taken = offer_again(e, &for_ns) ? taken + 1 : 0;
            *lost = for_ns / 1000 > spin;
            if (taken == TAKEN_AGAIN && end > crowded)
                end = crowded;
            kept = 0;
        }
        rme_lock(rme);
        busy = rme_progress(rme, false) > 0;
        rme_settle(rme);
        n = look(rme, waiter, over);
        if (!*over && (busy || offered || ++rounds % CLOCK_SKIP == 0))
            now = now_us();
    } while (!*over && !*lost && now < end);
    return n;
}

static int lead(struct rme *rme, struct rme_waiter *waiter, uint64_t until, bool *over)
{
    uint32_t spin = rme->tuning.spin_us != 0 ? spin_for(rme) : 0;
    bool lost = false;
    int n = 0;

    rme->leader = waiter;
    if (spin != 0) {
        n = spin_leading(rme, waiter, spin, until, over, &lost);
        learn(rme, *over, lost);
    }
    if (!*over)
        n = sleep_leading(rme, waiter, until, over);
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

/* Wakes the leader if something was made ready for it, as this thread will not leave soon.
 * True: the lock was released meanwhile. */
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

/* Registers ahead of its use what the host gave a hint about: there is nothing else to do.
 * Others may lead meanwhile. */
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

/* What was to be taken is not there.  How many completions the waiter has got.  It is not
 * inlined, so that a call that finds something saves no registers for it. */
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
        /* who asks again and again shall not spin */
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
