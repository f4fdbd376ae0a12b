/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine's inside.  engine.c tells how its parts work together, who holds which lock, and
 * in which order. */
#ifndef RME_ENGINE_H
#define RME_ENGINE_H

#include "move/move.h"
#include "op/operations.h"
#include "proto/talk.h"
#include "transport/waiter.h"

/* All of an engine.  `rme` is what the floors below know of it. */
struct rme_engine {
    struct rme rme;
    struct rme_operations operations;
    struct rme_mover mover;
    struct rme_protocols protocols;

    const char *ours; /* forked.c: 0 there in a child; NULL: not known */
    bool told;        /* the child has been told */

    /* wait.c */
    unsigned spins_in_vain;  /* of late; SPINS_IN_VAIN: it does not poll */
    unsigned spins_left_out; /* waits that do not poll before it tries again */
    unsigned spins_longer;   /* times that this has doubled */
    uint64_t offer_ns;       /* what it takes to offer the processor when nobody takes it */
    unsigned offer_skip;     /* rounds between two offers of who leads */
    uint32_t timer_skip;
};

static inline struct rme_engine *rme_engine(struct rme *rme)
{
    return rme_entry(rme, struct rme_engine, rme);
}

/* ---- forked.c ---- */

/* Marks an engine as this process's; ends that; says once in a child's log that it cannot be
 * used. */
void rme_forked_mark(struct rme *rme);
void rme_forked_unmark(struct rme *rme);
void rme_forked_explain(struct rme *rme);

/* Is this a child of the process that opened the engine?  It must not touch it.  First in every
 * call of the host. */
static inline bool rme_forked(struct rme *rme)
{
    const char *ours = rme_engine(rme)->ours;

    if (__builtin_expect(ours == NULL || *ours != 0, 1))
        return false;
    rme_forked_explain(rme);
    return true;
}

/* ---- engine.c ---- */

/* The same as those without `_pending`, when there is something to do. */
void rme_settle_pending(struct rme *rme);
void rme_unlock_pending(struct rme *rme);
/*
 * Rings doorbells and does what must be done without the lock: registering, deregistering,
 * trimming.  Called with the lock, returns with it; releases it meanwhile if there is such
 * work.  Then completions are visible.
 */
static inline void rme_settle(struct rme *rme)
{
    if (rme->pending & (RME_PENDING_FLUSH | RME_PENDING_SETTLE))
        rme_settle_pending(rme);
}
/* Settles, releases the lock, wakes the leader if it should see something, hands log lines to
 * the host. */
static inline void rme_unlock(struct rme *rme)
{
    if (rme->pending != 0 || atomic_load_explicit(&rme->pin.chores, memory_order_relaxed))
        rme_unlock_pending(rme);
    else
        pthread_mutex_unlock(&rme->lock);
}

/* ---- wait.c ---- */

/* Makes progress until waiter->ready() says more than 0 or wait_ms is over.  Called without the
 * lock. */
int rme_wait(struct rme *rme, struct rme_waiter *waiter, int wait_ms);

/* How many microseconds a wait polls now before it sleeps.  Called with the lock. */
uint32_t rme_wait_polls_us(struct rme *rme);

/* ---- progress.c ---- */

/* One round: events, pushes, timers.  How many events there were. */
int rme_progress(struct rme *rme, bool timers);

#endif
