/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * expose.c - opens memory to the peer of a link, and closes it, by WRs in the link's queue.
 *
 * On a striped link large memory gets a window for each QP, and the key has the secondary QP's
 * in its upper half.  The message that carries the key waits until the secondary QP's window is
 * bound (stripe.c).  Windows are invalidated one after the other, the secondary QP's first
 * (window.c), so the completion of the link's covers both.
 */
#include <errno.h>
#include "bmi_ib/queue/queue.h"

static struct ib_window *open_one(struct rme_link *l, const struct rme_range *range,
                                  unsigned access)
{
    struct rme_fabric *f = l->f;
    struct ib_window *w = LIST_FIRST(&f->windows.free);
    LIST_REMOVE(w, entry);
    f->windows.nfree--;
    LIST_INSERT_HEAD(&l->windows, w, entry);
    w->key = ibv_inc_rkey(w->key);
    w->info = (struct ibv_mw_bind_info){.mr = ib_rkey_mr(f, range->rkey),
                                        .addr = (uintptr_t)range->base,
                                        .length = range->length,
                                        .mw_access_flags = access & RME_ACCESS_REMOTE_WRITE
                                                               ? IBV_ACCESS_REMOTE_WRITE
                                                               : IBV_ACCESS_REMOTE_READ};
    ib_count(f, WINDOWS, 1);
    return w;
}

/* Returns true if all ranges are registered on this rail.  False: its device had failed at
 * registration, even if the event was pending. */
static bool is_there(const struct rme_fabric *rail, const struct rme_range *range, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (range[i].length && !ib_rkey_mr(rail, range[i].rkey))
            return false;
    return true;
}

/* Returns true if the secondary QP can open the same ranges with `wanted` windows. */
static bool side_opens(struct rme_link *l, const struct rme_range *range, uint32_t n,
                       uint32_t wanted)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += range[i].length;
    return ib_stripe_wanted(l, bytes) && is_there(l->side->f, range, n) &&
           ib_windows_ensure(l->side->f, wanted) == 0;
}

int ib_expose(struct rme_link *l, struct rme_range *range, uint32_t n, unsigned access)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < n; i++)
        wanted += range[i].length != 0;
    if (l->state >= IB_DRAINING || ib_windows_ensure(l->f, wanted))
        return -EAGAIN;
    if (!is_there(l->f, range, n)) {
        ib_log(
            l->f, RME_LOG_WARN,
            "%s: memory cannot be opened to the peer: not registered on device %s, which has "
            "failed; a new connection uses another device",
            l->peer, l->f->dev.name);
        l->f->reports->failed(l, -ENODEV, true);
        return -EAGAIN; /* as for any lost link */
    }
    bool both = l->may_stripe && side_opens(l, range, n, wanted);
    for (uint32_t i = 0; i < n; i++) {
        range[i].key = 0;
        range[i].window = NULL;
        if (!range[i].length)
            continue;
        struct ib_window *w = open_one(l, &range[i], access);
        range[i].key = w->key;
        range[i].window = w;
        ib_xfer_enqueue(l, &w->open);
        if (!both)
            continue;
        w->twin = open_one(l->side, &range[i], access);
        w->twin->twin = w;
        range[i].key |= (uint64_t)w->twin->key << 32;
        ib_stripe_put(l->side, &w->twin->open);
    }
    if (both)
        l->gate = l->side->entered;
    return 0;
}

void ib_unexpose(struct rme_link *l, struct rme_range *range, uint32_t n, void *owner)
{
    struct ib_window *last = NULL;
    if (l->state >= IB_DRAINING) /* the end of the link closes windows, which may be freed
                                  * already */
        return;
    for (uint32_t i = 0; i < n; i++)
        if (range[i].window)
            last = range[i].window;
    for (uint32_t i = 0; i < n; i++) {
        struct ib_window *w = range[i].window;
        if (!w)
            continue;
        w->close.owner = w == last ? owner : NULL; /* requests complete in order: the last one
                                                    * reports */
        if (!w->twin) {
            ib_xfer_enqueue(l, &w->close);
            continue;
        }
        w->twin->close.owner = NULL; /* only the link's window reports to the engine */
        ib_stripe_put(l->side, &w->twin->close);
    }
}
