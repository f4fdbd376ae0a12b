/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stripe.c - large transfers of a link over two rails.
 *
 * Between hosts with several rails each, a link has a secondary QP (link/side.c) on another
 * rail, which carries RDMA only.  The unit of striping is the transfer: the engine splits large
 * messages and has several messages in flight, so whole transfers keep both rails busy.  Each
 * transfer uses the QP with fewer bytes in flight, if the peer's keys have an upper half, the
 * key of the secondary QP.  A transfer that is alone and ends its operation is cut into halves.
 *
 * The secondary QP counts entries queued and completed; a QP completes in order.
 *
 * Failure: the loss of a secondary QP with entries in flight or windows open fails its link,
 * like the loss of the link's own QP.  Otherwise the link continues without; its next secondary
 * QP uses the same rail if the peer may hold keys of that rail.  The end of a link ends its
 * secondary QP, and LINK_DOWN follows both (link/side.c).
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

/* Returns true if the peer's keys permit the transfer on both QPs. */
static bool is_open(const struct rme_link *l, const struct rme_xfer *x)
{
    if (x->read && !l->side->read_depth)
        return false;
    for (uint32_t i = 0; i < x->npiece; i++)
        if (x->piece[i].rkey >> 32 == 0)
            return false;
    return x->npiece != 0;
}

#define PAGE 4096u /* halves meet at a multiple of this */

/* Part of a transfer, with its pieces. */
struct part {
    struct rme_xfer x; /* first member, by which the part is freed */
    struct rme_piece piece[];
};

/* Copies bytes [from, to) of a piece that begins at offset `at`; segments go to `seg`.  Returns
 * false if there are none. */
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

/* Returns a copy of the data [from, to) of a transfer, without notification; NULL: no
 * memory. */
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

/* Returns the QP with fewer bytes in flight.  With equal numbers: the one not used last, or the
 * link's own if both are idle. */
static struct rme_link *lane_of(struct rme_link *l)
{
    struct rme_link *side = l->side;
    bool to_side = side->load == l->load ? l->load && !l->last_by_side : side->load < l->load;
    l->last_by_side = to_side;
    return to_side ? side : l;
}

/* Queues the data of a transfer with a notification, as two halves if `alone`.  Returns false
 * without memory. */
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

/*
 * Queues a transfer on either QP.
 *
 * fabric.h requires notifications and messages in order, and each notification behind the data
 * of its operation; data has no order.  Data is queued on either QP at once, and notifications
 * keep the order of the link's own queue.  A transfer with a notification is divided if its
 * data uses the secondary QP or if entries are held back: its data becomes one or two parts,
 * which are copies, and the transfer itself becomes the report behind them.  A notification is
 * held until the secondary QP has completed all entries queued before it; a message, until the
 * secondary QP's windows whose keys it may carry are bound; both also wait behind earlier held
 * ones.
 */
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
