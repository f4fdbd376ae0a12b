/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mw.c - memory windows of type 2, which open memory to one peer.
 *
 * With windows MRs have no remote rights.  A window is bound to exactly the bytes that an
 * operation exposes, for one direction, by a WR on the peer's QP; the device admits only the
 * peer of this QP.  The bind travels in the chains of rdma_op.c ahead of the message with the
 * key, without a doorbell of its own.
 *
 * A window ends by the peer's report, sent with invalidate (caps.closes): the CQE of the
 * receive names the key.  Other windows are closed by a local invalidate, with a doorbell after
 * the report.  Either CQE means that no key opens these bytes and that no access is in
 * progress.
 *
 * Windows of soft-RoCE are not used: accesses with a window's rkey are checked against the
 * bounds of the MR (Linux 6.1; tests/verbs: "use of a memory window"), and a process killed
 * with an open window hangs for a minute, because the QP is destroyed before the window.
 * Without usable windows rkey_scope=operation makes the engine register the bytes of each
 * operation (caps.register_each).
 *
 * All links reuse the windows.  More are allocated when none is free, up to MW_MAX.
 * Windows open at the destruction of a QP are deallocated before: no other QP could close them,
 * an open window keeps its memory registered, and with some drivers its QP, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bmi_ib/queue/queue.h"

#define FIRST_MWS 16   /* windows allocated at open */
#define MW_MAX    4096 /* windows open at a time; more wait */

/* Returns the window of its transfer `close`.  A window is in one place: the free list; its
 * link's list while open or closing; or, closed, in the queue of events that wait for room, as
 * this transfer. */
static struct ib_mw *mw_of(struct rme_rdma_op *close)
{
    return container_of(close, struct ib_mw, close);
}

void ib_mws_drop(struct ib_rail *rail, struct list_head *list)
{
    struct ib_mw *w;
    while ((w = list_first(list, struct ib_mw, entry)) != NULL) {
        int ret;
        list_del_init(&w->entry);
        rme_table_take(&rail->table, &w->by_key);
        ret = ibv_dealloc_mw(w->mw);
        if (ret)
            ib_log(rail, RME_LOG_WARN, "device %s: cannot free a memory window: %s",
                   rail->dev.name, strerror(-ib_error(ret)));
        rail->mws.made--;
        free(w);
    }
}

/* The window waits behind all others, because its keys repeat after 256 bindings. */
static void put_free(struct ib_rail *rail, struct ib_mw *w)
{
    list_add_tail(&w->entry, &rail->mws.free);
    rail->mws.nfree++;
}

/* Makes n windows free.  Returns 0 or -EAGAIN. */
static int ensure(struct ib_rail *rail, uint32_t n)
{
    while (rail->mws.nfree < n) {
        struct ib_mw *w = rail->mws.made < rail->caps.mws ? calloc(1, sizeof(*w)) : NULL;
        if (w != NULL)
            w->mw = ibv_alloc_mw(rail->dev.pd, IBV_MW_TYPE_2);
        if (w == NULL || w->mw == NULL) {
            free(w);
            return -EAGAIN;
        }
        w->key = w->mw->rkey;
        rme_table_put(&rail->table, &w->by_key, w->key >> 8, IB_BY_WINDOW);
        w->open.fabric.what = IB_RDMA_OPEN;
        w->close.fabric.what = IB_RDMA_CLOSE;
        rail->mws.made++;
        put_free(rail, w);
    }
    return 0;
}

/* ---- Opening and closing the fabric ---- */

int ib_mws_open(struct ib_rail *rail)
{
    const struct ibv_device_attr *a = &rail->dev.attr;
    bool region = ib_option(rail, "rkey_scope") != 0;
    if (!region && a->max_mw > 0 && !ib_is_rxe(rail) &&
        a->device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) {
        rail->caps.mws = ib_min((uint32_t)a->max_mw, MW_MAX);
        if (ensure(rail, ib_min(rail->caps.mws, FIRST_MWS)))
            rail->caps.mws = rail->mws.made;
    }
    rail->caps.closes =
        (a->device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) && !ib_is_rxe(rail);
    rail->caps.register_each = !region && rail->caps.mws == 0;
    ib_log(rail, RME_LOG_INFO, "device %s: a key opens %s", rail->dev.name,
           rail->caps.mws ? "the bytes of one operation, to one peer"
           : rail->caps.register_each
               ? "the bytes of one operation, to every peer: the device has no usable memory "
                 "windows of type 2; each operation registers its bytes "
                 "(rkey_scope=region avoids that)"
               : "all of a registration, to every peer, until deregistration: option "
                 "rkey_scope=region");
    return 0;
}

void ib_mws_close(struct ib_rail *rail)
{
    ib_mws_drop(rail, &rail->mws.free);
    rail->mws.nfree = 0;
}

/* ---- Opening and closing memory ---- */

int ib_mw_bind(struct rme_link *l, struct rme_range *range, uint32_t n, unsigned access)
{
    struct ib_rail *rail = l->rail;
    uint32_t wanted = 0;
    bool failed = false;
    for (uint32_t i = 0; i < n; i++) {
        wanted += range[i].length != 0;
        failed = failed || (range[i].length && ib_key_mr(rail, range[i].rkey) == NULL);
    }
    if (l->state >= IB_DRAINING || ensure(rail, wanted))
        return -EAGAIN;
    if (failed) { /* at registration, even if its event is pending */
        ib_log(rail, RME_LOG_WARN,
               "%s: memory cannot be opened to the peer: not registered on device %s, which "
               "has failed; a new connection uses another device",
               l->peer, rail->dev.name);
        l->rail->link_ops->fail(l, -ENODEV, true);
        return -EAGAIN; /* as for any lost link */
    }
    for (uint32_t i = 0; i < n; i++) {
        struct ib_mw *w =
            range[i].length ? list_first(&rail->mws.free, struct ib_mw, entry) : NULL;
        range[i].window = w;
        range[i].key = 0;
        if (w == NULL)
            continue;
        list_del_init(&w->entry);
        rail->mws.nfree--;
        list_add_head(&w->entry, &l->mws);
        w->link = l;
        range[i].key = w->key = ibv_inc_rkey(w->key);
        w->info = (struct ibv_mw_bind_info){.mr = ib_key_mr(rail, range[i].rkey),
                                            .addr = (uintptr_t)range[i].base,
                                            .length = range[i].length,
                                            .mw_access_flags = access & RME_ACCESS_REMOTE_WRITE
                                                                   ? IBV_ACCESS_REMOTE_WRITE
                                                                   : IBV_ACCESS_REMOTE_READ};
        ib_count(rail, WINDOWS, 1);
        ib_link_queue(l, &w->open);
    }
    return 0;
}

/* Frees a window that is closed. */
static void put_closed(struct ib_rail *rail, struct ib_mw *w)
{
    list_del_init(&w->entry);
    put_free(rail, w);
}

bool ib_mw_invalidate(struct rme_link *l, struct rme_range *range, uint32_t n, void *owner)
{
    struct ib_mw *last = NULL;
    if (l->state >= IB_DRAINING) /* the end of the link closes windows, which may be freed
                                  * already */
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (range[i].window != NULL && ((struct ib_mw *)range[i].window)->link != NULL)
            last = range[i].window;
    for (uint32_t i = 0; i < n; i++) {
        struct ib_mw *w = range[i].window;
        if (w == NULL)
            continue;
        if (w->link == NULL) {
            put_closed(l->rail, w);
            continue;
        }
        w->close.owner = w == last ? owner : NULL; /* requests complete in order: the last one
                                                    * reports */
        ib_link_queue(l, &w->close);
    }
    return last == NULL;
}

/* The device has checked that the window belongs to the peer's QP.  A key that repeats after
 * 256 bindings closes what the peer had access to anyway. */
void ib_mw_closed_by_peer(struct rme_link *l, uint32_t key)
{
    struct rme_keyed *k = rme_table_find(&l->rail->table, key >> 8, IB_BY_WINDOW);
    struct ib_mw *w = k != NULL ? container_of(k, struct ib_mw, by_key) : NULL;
    if (w == NULL || w->link != l || w->key != key)
        return;
    w->link = NULL;
    w->mw->rkey = w->key; /* current rkey of the window, which the next bind must name */
}

/* ---- Requests and completions ---- */

/*
 * Builds the WR of a window.  The consumer chooses the low eight bits of a key.  Each binding
 * increments them, so that an old key does not open a new binding.  After 256 bindings of
 * its window a key repeats, but opens only memory that its holder may access anyway, because a
 * window admits the peer of one QP.
 */
void ib_mw_build(struct rme_rdma_op *x, struct ibv_send_wr *wr)
{
    struct ib_mw *w;
    if (x->fabric.what == IB_RDMA_CLOSE) {
        wr->opcode = IBV_WR_LOCAL_INV;
        wr->invalidate_rkey = mw_of(x)->key;
        return;
    }
    w = container_of(x, struct ib_mw, open);
    wr->opcode = IBV_WR_BIND_MW;
    wr->imm_data = 0; /* required by rxe */
    wr->bind_mw.mw = w->mw;
    wr->bind_mw.rkey = w->key;
    wr->bind_mw.bind_info = w->info;
}

void ib_mw_free(struct ib_rail *rail, struct rme_rdma_op *x)
{
    put_free(rail, mw_of(x));
}

bool ib_mw_closed(struct ib_rail *rail, struct rme_rdma_op *x)
{
    struct ib_mw *w = mw_of(x);
    list_del_init(&w->entry);
    w->link = NULL;
    w->mw->rkey = w->key; /* current rkey of the window, which the next bind must name */
    if (x->owner == NULL)
        put_free(rail, w);
    return x->owner != NULL;
}
