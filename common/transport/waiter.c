/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transport/core.h"

/* True if the waiter waits for `what` (a context, or RME_WAIT_UNEXPECTED). */
static bool waits_for(const struct rme_waiter *waiter, int what)
{
    if (waiter->ctx == what)
        return true;
    /* rme_test_context returns for unexpected messages as well; the thread fetches them next */
    return what == RME_WAIT_UNEXPECTED ? waiter->ctx >= 0 : waiter->ctx == RME_WAIT_ANY;
}

void rme_wait_wake(struct rme *rme, int what)
{
    struct rme_waiter *waiter;

    if (rme->sleeping && waits_for(rme->leader, what))
        rme->pending |= RME_PENDING_WAKE;
    list_for_each(waiter, &rme->followers, link)
        if (waits_for(waiter, what))
            pthread_cond_signal(&waiter->cond);
}
