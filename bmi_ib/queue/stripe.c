/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stripe.c - large transfers of a link over two rails.
 *
 * Between hosts that have several rails each, a link has a side: a queue pair on another rail
 * (link/side.c), which carries RDMA and nothing else.  The unit of striping is the transfer:
 * the engine cuts large messages into several, and has several messages under way, so whole
 * transfers keep both rails busy, and nothing is cut here.  Each goes to the queue pair that
 * has fewer bytes of them, if the peer's keys have an upper half, which is the side's key.
 *
 * Order.  The seam wants notifications and messages in order among each other, and each
 * notification behind the data of its operation; of data alone it wants none.  So data goes to
 * either queue at once, and what notifies stays in the order of the link's own queue.  A
 * transfer with a notification is divided where its data goes to the side, or something waits:
 * its data is a part, of which a copy is queued, and the transfer itself is the report behind
 * it.  A notification waits in `held` until the side has passed all that entered its queue
 * before it; a message, until the side's windows are open whose keys it may carry; and either
 * waits behind what waits already.
 *
 * The side counts what enters its queue, and what is complete: a queue pair completes in order.
 *
 * Failure.  A side that is lost with something under way, or with memory open to the peer,
 * takes its link with it, as a lost queue pair of the link's own does.  Else the link lives on
 * without.  The link's end ends its side, too, and LINK_DOWN comes after both (link/side.c).
 */
#include <stdlib.h>
#include "bmi_ib/queue/queue.h"

bool ib_stripe_wanted(struct rme_link *l, uint64_t bytes)
{
    if (!l->may_stripe || bytes < l->f->stripe_bytes)
        return false;
    if (!l->side)
        l->f->reports->wanted(l);
    return l->side && l->side->state == IB_UP;
}

void ib_stripe_put(struct rme_link *side, struct rme_xfer *x)
{
    side->entered++;
    ib_xfer_enqueue(side, x);
}

/* Does the peer admit it over either rail? */
static bool is_open(const struct rme_link *l, const struct rme_xfer *x)
{
    if (x->read && !l->side->read_depth)
        return false;
    for (uint32_t i = 0; i < x->npiece; i++)
        if (x->piece[i].rkey >> 32 == 0)
            return false;
    return x->npiece != 0;
}

/* A copy of what a transfer moves, without its notification; NULL: no memory. */
static struct rme_xfer *part_of(const struct rme_xfer *x)
{
    struct rme_xfer *part = malloc(sizeof(*part));
    if (!part)
        return NULL;
    *part = (struct rme_xfer){.read = x->read,
                              .notify = RME_NOTIFY_NONE,
                              .piece = x->piece,
                              .npiece = x->npiece,
                              .bytes = x->bytes,
                              .fabric.what = IB_XFER_PART};
    return part;
}

static void carry(struct rme_link *lane, struct rme_xfer *data)
{
    lane->load += data->bytes;
    if (!lane->is_side) {
        ib_xfer_enqueue(lane, data);
        return;
    }
    ib_count(lane->f, STRIPED, 1);
    ib_stripe_put(lane, data);
}

/* The one with fewer bytes; of two that have as many, not the one that had the last.  One that
 * is alone keeps to the link, where its notification waits for nothing. */
static struct rme_link *lane_of(struct rme_link *l)
{
    struct rme_link *side = l->side;
    bool to_side = side->load == l->load ? l->load && !l->last_by_side : side->load < l->load;
    l->last_by_side = to_side;
    return to_side ? side : l;
}

bool ib_stripe(struct rme_link *l, struct rme_xfer *x)
{
    struct rme_link *side = l->side;
    if (!ib_stripe_wanted(l, x->bytes) || x->quiet || !is_open(l, x))
        return false;
    struct rme_link *lane = lane_of(l);
    bool waits = lane == side || l->held.head || ib_is_before(side, side->entered);
    if (x->notify == RME_NOTIFY_NONE || !waits) {
        x->fabric.what = IB_XFER_STRIPE;
        carry(lane, x);
        return true;
    }
    struct rme_xfer *part = part_of(x);
    if (!part)
        return false;
    carry(lane, part);
    x->fabric.what = IB_XFER_REPORT;
    ib_xfer_enqueue(l, x);
    return true;
}
