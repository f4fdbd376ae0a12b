/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that wait in a call of the host, and their notification.  engine/wait.c implements
 * the waiting. */
#ifndef RME_WAITER_H
#define RME_WAITER_H

#include "transport/core.h"

/* A waiting call of the host; in its stack frame. */
struct rme_waiter {
    struct list_head link; /* in rme->followers */
    pthread_cond_t cond;   /* valid while in rme->followers */
    int ctx;               /* RME_WAIT_*, or a context */
    int found;             /* completions taken by ready() */
    uint64_t until;        /* end of the wait, as rme_now() */
    /* takes what is ready and counts it in `found`; true: the call shall return.  The engine's
     * lock is held. */
    bool (*ready)(struct rme *rme, struct rme_waiter *waiter);
};

#define RME_WAIT_ANY        (-1) /* a completion of any context */
#define RME_WAIT_UNEXPECTED (-2) /* an unexpected message */

/* Wakes the sleeping threads that wait for `what`. */
void rme_wait_tell(struct rme *rme, int what);
/* Reports that `what`, a context or RME_WAIT_*, is ready. */
static inline void rme_wait_notify(struct rme *rme, int what)
{
    if (rme->sleeping || !list_empty(&rme->followers))
        rme_wait_tell(rme, what);
}
/* Wakes the leader if a timer is due before the end of the leader's sleep. */
void rme_wait_deadline(struct rme *rme);
/* Wakes the leader after a link was requested or disconnected, because the fabric may report
 * the result without an event that ends the sleep. */
static inline void rme_wait_link(struct rme *rme)
{
    if (rme->sleeping)
        rme->pending |= RME_PENDING_WAKE;
}

#endif
