/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * held.c - transfers of a striped link that wait for its secondary QP, and insertion into a
 * link's queue.  stripe.c has the rules of order.
 */
#include <stdlib.h>
#include "bmi_ib/queue/queue.h"

/* Holds a notification or message back if the secondary QP must complete entries before it. */
static bool holds(struct rme_link *l, struct rme_xfer *x)
{
    if (x->notify == RME_NOTIFY_NONE)
        return false;
    uint32_t before = ib_is_message(x) ? l->gate : l->side->entered;
    if (!l->held.head && !ib_is_before(l->side, before))
        return false;
    x->fabric.mark = before;
    ib_queue_put(&l->held, x);
    return true;
}

void ib_stripe_passed(struct rme_link *side)
{
    struct rme_link *l = side->main;
    struct rme_xfer *x;
    if (!l || !l->held.head)
        return;
    while ((x = l->held.head) && !ib_is_before(side, (uint32_t)x->fabric.mark)) {
        ib_queue_get(&l->held);
        ib_queue_put(&l->queue, x);
    }
    if (l->queue.head && !l->stalled) {
        ib_link_dirty(l);
        ib_resume(l->f);
    }
}

void ib_xfer_drop(struct rme_fabric *f, struct rme_xfer *x)
{
    if (x->fabric.what == IB_XFER_PART)
        free(x);
    else if (x->notify == RME_NOTIFY_MSG)
        ib_tx_release(f, ib_tx_of(x->tx));
}

void ib_xfer_enqueue(struct rme_link *l, struct rme_xfer *x)
{
    if (l->state >= IB_DRAINING) { /* lost; LINK_DOWN is pending */
        ib_xfer_drop(l->f, x);
        return;
    }
    x->fabric.at = 0;
    if (l->side && holds(l, x))
        return;
    ib_queue_put(&l->queue, x);
    if (!l->stalled)
        ib_link_dirty(l);
}
