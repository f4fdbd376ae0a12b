/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stripe.c - large transfers of a link over two rails.
 *
 * Between hosts that have several rails each, a link has a side: a queue pair on another rail
 * (link/side.c), which carries RDMA and nothing else.  The unit of striping is the transfer:
 * the engine cuts large messages into several, and has several messages under way, so whole
 * transfers keep both rails busy.  Each goes to the queue pair that has fewer bytes of them, if
 * the peer's keys have an upper half, which is the side's key.  Only one that is alone, and
 * with which its operation ends, is cut into halves.
 *
 * Order.  The seam wants notifications and messages in order among each other, and each
 * notification behind the data of its operation; of data alone it wants none.  So data goes to
 * either queue at once, and what notifies stays in the order of the link's own queue.  A
 * transfer with a notification is divided where data of it goes to the side, or something
 * waits: its data is a part, or two, that are queued as copies, and the transfer itself is the
 * report behind them.  A notification waits in `held` until the side has passed all that
 * entered its queue before it; a message, until the side's windows are open whose keys it may
 * carry; and either waits behind what waits already.
 *
 * The side counts what enters its queue, and what is complete: a queue pair completes in order.
 *
 * Failure.  A side that is lost with something under way, or with memory open to the peer,
 * takes its link with it, as a lost queue pair of the link's own does.  Else the link lives on
 * without, and its next side is over the same rail where the peer may have keys of that.  The
 * link's end ends its side, too, and LINK_DOWN comes after both (link/side.c).
 */
#include <stdlib.h>
#include "bmi_ib/queue/queue.h"

bool ib_stripe_wanted(struct rme_link *l, uint64_t bytes)
{
    if (l->may_stripe && !l->side && bytes >= l->f->stripe_bytes)
        l->f->reports->wanted(l);
    return ib_is_striped(l, bytes);
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

#define PAGE 4096u /* where halves meet */

/* A part, and what it points to. */
struct part {
    struct rme_xfer x; /* the first: it is freed by that */
    struct rme_piece piece[];
};

/* Bytes [from, to) of a piece, which begins at `at`, as another one; its segments go to `seg`.
 * False: there are none. */
static bool cut(const struct rme_piece *p, uint64_t at, uint64_t from, uint64_t to,
                struct rme_piece *out, struct rme_lseg *seg)
{
    *out = (struct rme_piece){.raddr = p->raddr, .rkey = p->rkey, .seg = seg};
    if (from > at)
        out->raddr += from - at;
    for (uint32_t i = 0; i < p->nseg; at += p->seg[i++].length) {
        uint64_t first = from > at ? from - at : 0, end = to > at ? to - at : 0;
        if (end > p->seg[i].length)
            end = p->seg[i].length;
        if (first >= end)
            continue;
        seg[out->nseg++] =
            (struct rme_lseg){(char *)p->seg[i].base + first, end - first, p->seg[i].lkey};
    }
    return out->nseg != 0;
}

static uint64_t bytes_of(const struct rme_piece *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->nseg; i++)
        bytes += p->seg[i].length;
    return bytes;
}

/* A copy of what a transfer moves of [from, to), without its notification; NULL: no memory. */
static struct rme_xfer *part_of(const struct rme_xfer *x, uint64_t from, uint64_t to)
{
    uint32_t segments = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < x->npiece; i++)
        segments += x->piece[i].nseg;
    struct part *part = malloc(sizeof(*part) + x->npiece * sizeof(struct rme_piece) +
                               segments * sizeof(struct rme_lseg));
    if (!part)
        return NULL;
    struct rme_lseg *seg = (struct rme_lseg *)(part->piece + x->npiece);
    part->x = (struct rme_xfer){.read = x->read,
                                .notify = RME_NOTIFY_NONE,
                                .piece = part->piece,
                                .bytes = to - from,
                                .fabric.what = IB_XFER_PART};
    for (uint32_t i = 0; i < x->npiece; at += bytes_of(&x->piece[i++])) {
        struct rme_piece *out = &part->piece[part->x.npiece];
        if (cut(&x->piece[i], at, from, to, out, seg)) {
            seg += out->nseg;
            part->x.npiece++;
        }
    }
    return &part->x;
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

/* The one with fewer bytes; of two that have as many, not the one that had the last. */
static struct rme_link *lane_of(struct rme_link *l)
{
    struct rme_link *side = l->side;
    bool to_side = side->load == l->load ? l->load && !l->last_by_side : side->load < l->load;
    l->last_by_side = to_side;
    return to_side ? side : l;
}

/* Queues the data of a transfer that notifies: two halves if it is alone.  False: no memory. */
static bool divide(struct rme_link *l, const struct rme_xfer *x, struct rme_link *lane,
                   bool alone)
{
    uint64_t middle = alone ? x->bytes / 2 / PAGE * PAGE : x->bytes;
    struct rme_xfer *first = part_of(x, 0, middle);
    struct rme_xfer *second = first && alone ? part_of(x, middle, x->bytes) : NULL;
    if (!first || (alone && !second)) {
        free(first);
        return false;
    }
    carry(lane, first);
    if (second)
        carry(l->side, second);
    return true;
}

bool ib_stripe(struct rme_link *l, struct rme_xfer *x)
{
    if (!ib_stripe_wanted(l, x->bytes) || x->quiet || !is_open(l, x))
        return false;
    bool tells = x->notify != RME_NOTIFY_NONE;
    bool alone = tells && !l->load && !l->side->load && x->bytes >= 2 * PAGE;
    struct rme_link *lane = lane_of(l);
    bool waits = lane->is_side || l->held.head || ib_is_before(l->side, l->side->entered);
    if (!tells || (!alone && !waits)) {
        x->fabric.what = IB_XFER_STRIPE;
        carry(lane, x);
        return true;
    }
    if (!divide(l, x, lane, alone))
        return false;
    x->fabric.what = IB_XFER_REPORT;
    ib_xfer_enqueue(l, x);
    return true;
}
