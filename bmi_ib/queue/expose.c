/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * expose.c - memory is opened to the peer of a link, and closed: by requests in its queue.
 *
 * Of a link that is striped large memory is opened to both queue pairs of the peer, by a window
 * for each, and the key has both: the side's in its upper half.  The message that carries the
 * key waits until the side's window is open (stripe.c).  They are closed one after the other,
 * the side's first (window.c), so when the link's is, both are.
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

/* Is all of it registered on this rail?  Not if its device had failed by then, be it that we
 * have not been told. */
static bool is_there(const struct rme_fabric *rail, const struct rme_range *range, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (range[i].length && !ib_rkey_mr(rail, range[i].rkey))
            return false;
    return true;
}

/* Will so many windows of the side open the same? */
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
        return -EAGAIN; /* as of any link that is lost */
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
    if (l->state >= IB_DRAINING) /* its end closes them, and may have freed them already */
        return;
    for (uint32_t i = 0; i < n; i++)
        if (range[i].window)
            last = range[i].window;
    for (uint32_t i = 0; i < n; i++) {
        struct ib_window *w = range[i].window;
        if (!w)
            continue;
        w->close.owner = w == last ? owner : NULL; /* requests complete in order */
        if (!w->twin) {
            ib_xfer_enqueue(l, &w->close);
            continue;
        }
        w->twin->close.owner = NULL; /* the engine hears of the link's */
        ib_stripe_put(l->side, &w->twin->close);
    }
}
