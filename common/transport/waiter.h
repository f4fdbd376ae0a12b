/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that wait in a call of the host, and how they hear that something is ready.
 * engine/wait.c has the waiting itself. */
#ifndef RME_WAITER_H
#define RME_WAITER_H

#include "transport/core.h"

/* What a call of the host waits for; in its stack frame. */
struct rme_waiter {
    struct rme_node link; /* in rme->followers */
    pthread_cond_t cond;  /* while it is there */
    int ctx;              /* RME_WAIT_*, or a context */
    bool hopeless;        /* ready(): it never will be */
    /* engine's lock held: take what is ready; how many? */
    int (*ready)(struct rme *rme, struct rme_waiter *waiter);
};

#define RME_WAIT_ANY        (-1) /* a completion of any context */
#define RME_WAIT_UNEXPECTED (-2) /* an unexpected message */

static inline void rme_waiter_init(struct rme_waiter *waiter, int ctx,
                                   int (*ready)(struct rme *, struct rme_waiter *))
{
    waiter->ctx = ctx;
    waiter->hopeless = false;
    waiter->ready = ready;
}

/* The leader is woken when the lock is released. */
static inline void rme_wait_wake(struct rme *rme)
{
    rme->wake = true;
    rme->pending |= RME_PENDING_UNLOCK;
}

/* Tells those who sleep and wait for `what`. */
void rme_wait_tell(struct rme *rme, int what);
/* Something is ready for those who wait for `what`: a context, or RME_WAIT_*. */
static inline void rme_wait_notify(struct rme *rme, int what)
{
    if (rme->sleeping || !rme_node_alone(&rme->followers))
        rme_wait_tell(rme, what);
}
/* A deadline may have come nearer than the leader knows. */
void rme_wait_deadline(struct rme *rme);
/* A link was asked for, or is to end: what the fabric has to say of it may end no sleep. */
static inline void rme_wait_link(struct rme *rme)
{
    if (rme->sleeping)
        rme_wait_wake(rme);
}

#endif
