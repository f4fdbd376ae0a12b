/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Internal interfaces of the engine.  engine.c describes its parts, and the order of locks. */
#ifndef RME_ENGINE_H
#define RME_ENGINE_H

#include "rndv/rndv.h"
#include "op/operations.h"
#include "proto/proto.h"

/* How waits poll before they sleep (wait.c). */
struct rme_polling {
    unsigned fails;      /* recent failed polls, less two for each poll that ended a wait */
    unsigned pause_left; /* waits of the pause that are left, which do not poll */
    /* length of the last pause, without its random part; 0: polling has ended a wait since */
    unsigned pause;
    uint64_t yield_ns;   /* duration of a sched_yield() with no other thread; 0: not called */
    unsigned yield_skip; /* rounds between two calls of sched_yield(); 0: another thread ran */
};

/* All state of an engine.  The lower layers access `rme` only. */
struct rme_engine {
    struct rme rme;
    struct rme_operations operations;
    struct rme_rings rings;
    struct rme_rndv_state rndv_state;
    struct rme_protocols protocols;

    unsigned forks; /* rme_forks in the opening process */
    bool logged;    /* the error of a forked child is in the log */

    struct rme_polling polling;
    uint32_t timer_skip;
};

static inline struct rme_engine *rme_engine(struct rme *rme)
{
    return container_of(rme, struct rme_engine, rme);
}

/* ---- forked.c ---- */

/* Number of forks, counted in the children, that lead from the first process with an engine to
 * this one. */
extern unsigned rme_forks;

/* Marks an engine as owned by this process.  Returns 0, or a negative errno, logged, if forks
 * cannot be detected. */
int rme_forked_mark(struct rme *rme);
/* Logs once in a forked child that the engine cannot be used. */
void rme_forked_explain(struct rme *rme);

/* True in a child of the process that opened the engine; the child must not use the engine.
 * Every call of the host checks this first. */
static inline bool rme_forked(struct rme *rme)
{
    if (__builtin_expect(rme_engine(rme)->forks == rme_forks, 1))
        return false;
    rme_forked_explain(rme);
    return true;
}
/* Takes the lock for a call of the host; false in a forked child. */
static inline bool rme_enter(struct rme *rme)
{
    if (rme_forked(rme))
        return false;
    rme_lock(rme);
    return true;
}

/* ---- progress.c ---- */

/* Handles available events of the fabric, and timers if `timers` is set or TIMER_SKIP calls
 * have skipped them.  Returns the number of events. */
int rme_progress(struct rme *rme, bool timers);

/* Slow paths of rme_run_pending() and rme_unlock(), for pending work. */
void rme_run_pending_slow(struct rme *rme);
void rme_unlock_pending(struct rme *rme);
/*
 * Runs pending work: rings doorbells, and does the work that needs the lock released, such as
 * registration and deregistration.  Called with the lock held and returns with it; may release
 * the lock in between.  Afterwards completions are visible to the host.
 */
static inline void rme_run_pending(struct rme *rme)
{
    if (rme->pending & (RME_PENDING_FLUSH | RME_PENDING_RUN))
        rme_run_pending_slow(rme);
}
/* Runs pending work, releases the lock, wakes the leader if necessary, and passes log lines to
 * the host. */
static inline void rme_unlock(struct rme *rme)
{
    if (rme->pending != 0 || atomic_load_explicit(&rme->pin.chores, memory_order_relaxed))
        rme_unlock_pending(rme);
    else
        pthread_mutex_unlock(&rme->lock);
}

/* Deregisters evicted registrations, trims idle memory, and passes log lines to the host.
 * Called without the lock. */
void rme_do_chores(struct rme *rme);

/* ---- wait.c ---- */

/* Makes progress until waiter->ready() returns true, a thread that waits for a context should
 * fetch an unexpected message, or wait_ms is over.  Returns waiter->found.  Called without the
 * lock. */
int rme_wait(struct rme *rme, struct rme_waiter *waiter, int wait_ms);

/* Microseconds that a wait polls at present before sleeping.  Called with the lock held. */
uint32_t rme_wait_polls_us(struct rme *rme);

#endif
