/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * held.c - notifications and messages of a striped link that wait for its side, and how
 * anything gets into a link's queue.  What waits for what, and why, is told in stripe.c.
 */
#include <stdlib.h>
#include "bmi_ib/queue/queue.h"

/* Takes a notification or a message if it has to wait for the side. */
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
        l->f->resume = true;
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
    if (l->state >= IB_DRAINING) { /* lost; the engine does not know yet */
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
