/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* expose.c - memory is opened to the peer of a link, and closed: by requests in its queue. */
#include <errno.h>
#include "bmi_ib/queue/queue.h"

static void open_one(struct rme_link *l, struct rme_range *range, unsigned access)
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
    range->key = w->key;
    range->window = w;
    ib_xfer_enqueue(l, &w->open);
    ib_count(f, WINDOWS, 1);
}

int ib_expose(struct rme_link *l, struct rme_range *range, uint32_t n, unsigned access)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < n; i++)
        wanted += range[i].length != 0;
    if (l->state >= IB_DRAINING || ib_windows_ensure(l->f, wanted))
        return -EAGAIN;
    for (uint32_t i = 0; i < n; i++) {
        range[i].key = 0;
        range[i].window = NULL;
        if (range[i].length)
            open_one(l, &range[i], access);
    }
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
        ib_xfer_enqueue(l, &w->close);
    }
}
