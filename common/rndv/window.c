/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opens memory to a peer, and closes it.
 *
 * A fragment that the peer shall access (CTS, RTS with an offer) is opened: exactly its bytes,
 * for one direction, to this peer alone.  Opening is queued immediately before the message that
 * carries the keys.  The fragment is closed when the peer has reported the end of its
 * transfers, when the peer chose another way, or when the op ends.  Closing holds a reference
 * to the op, so the completion is reported only when no key opens the host's buffer any more.
 * The fragment's registration and block are released after that: a device does not deregister
 * open memory, and a block is reused for other messages.
 *
 * The message that reports the end of a window may have closed it (caps.closes): FIN, which
 * reports reads anyway, and reports writes in place of an immediate.  A fragment of several
 * ranges is closed here.
 *
 * The end of a send whose memory the peer has read is completing until its fragments are closed
 * (op/end.c).
 *
 * Without windows in the fabric nothing is opened or closed, and the peer gets the key of a
 * registration.  The registration is either made for this fragment alone, exact and
 * deregistered before the completion is reported (rme_pin_alone, mreg.c), or cached.
 *
 * Failure.  The end of the link closes all of its windows, without events from the fabric.  At
 * LINK_DOWN all pending closes therefore count as complete.  Nothing is opened before the link
 * is up, so a link that is not up while a fragment is open is a link that ends.
 *
 * Cancel.  CANCEL is sent first (stop.c), and the memory is closed after the answer.  Closing
 * first would avoid the wait, but a transfer in flight would use an invalid key and end the
 * connection, with all operations over it.  A host that accepts this calls
 * rme_set_forceful_cancel().
 *
 * Limits.  The number of windows is bounded.  A CTS without a window waits until one is closed.
 * Fragments that wait for a receive of the other host (an offer, an early CTS) may stay open
 * without bound.  Such fragments get at most half of the windows; the offer or CTS is
 * omitted if none is left.  The other windows belong to peers that move data and need no
 * further window for that, so these windows are released.
 *
 * A peer that moves nothing releases none, and many receives can be opened to such a peer.
 * Therefore the windows of messages that are being moved are a quota (transport/quota.c).  A
 * peer's first fragment, and all of a peer without others, are opened as soon as enough windows
 * are free.
 */
#include <errno.h>

#include "rndv/rndv.h"

/* A message gets at most an eighth of the windows, so that others move at the same time. */
uint32_t rme_mw_segments_max(const struct rme *rme, uint8_t type, size_t size)
{
    uint32_t fit = rme_wire_segments_max(type, size);
    uint32_t most = rme->caps->mws / 8;

    if (rme->caps->mws == 0 || fit <= most)
        return fit;
    return most != 0 ? most : 1;
}

/* Returns true if `more` windows may be opened for a message of the peer that is moved. */
static bool may_open(const struct rme_peer *peer, uint32_t more)
{
    const struct rme *rme = peer->rme;

    return more + rme->offered <= rme_quota_left(&rme->quota[RME_QUOTA_MWS]) &&
           (peer->quota[RME_QUOTA_MWS] == 0 || rme->stats.value[RME_C_PEERS] <= 1 ||
            more <= rme_quota_room(peer, RME_QUOTA_MWS));
}

/* Adds the windows of an open fragment to the counts, or removes them. */
static void count(struct rme_peer *peer, const struct rme_frag *frag, uint64_t more)
{
    if (frag->early)
        peer->rme->offered += (uint32_t)more;
    else
        rme_quota_add(peer, RME_QUOTA_MWS, more);
}

int rme_frag_bind(struct rme_peer *peer, struct rme_frag *frag, bool early)
{
    struct rme *rme = peer->rme;
    int error;

    if (rme->caps->mws == 0 || frag->nrange != 0)
        return 0;
    if (peer->state != RME_PEER_UP || !(early ? rme->offered + frag->nmseg <= rme->caps->mws / 2
                                              : may_open(peer, frag->nmseg)))
        return -EAGAIN;
    for (uint32_t i = 0; i < frag->nmseg; i++)
        frag->range[i] = (struct rme_range){.base = frag->mseg[i].base,
                                            .length = frag->mseg[i].length,
                                            .rkey = frag->mseg[i].rkey};
    error = rme->ops->mw_bind(peer->link, frag->range, frag->nmseg,
                              frag->access & RME_ACCESS_REMOTE);
    if (error != 0)
        return error;
    frag->nrange = frag->nmseg;
    frag->early = early;
    count(peer, frag, frag->nrange);
    return 0;
}

void *rme_frag_tx(struct rme_frag *frag, bool early)
{
    struct rme_peer *peer = frag->op->peer;
    void *tx = rme_peer_tx(peer, early ? RME_CREDIT_DATA : RME_CREDIT_CONTROL);
    int error = tx != NULL ? rme_frag_bind(peer, frag, early) : 0;

    if (error == 0)
        return tx;
    peer->rme->ops->tx_put(peer->link, tx);
    if (!early && error != -EAGAIN)
        rme_peer_fail(peer, error, "a memory window for the peer cannot be opened");
    else if (!early && list_empty(&peer->mw_waitq))
        list_add_tail(&peer->mw_waitq, &peer->rme->mw_waitq);
    return NULL;
}

bool rme_frag_send_window(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_frag *frag = container_of(control, struct rme_frag, control);
    void *tx = rme_frag_tx(frag, false);

    (void)peer;
    if (tx == NULL)
        return false;
    list_del_init(&frag->control.link);
    frag->state = RME_FRAG_POSTED;
    rme_cts_send(frag, 0, 0, rme_rndv_peer_handle(frag->op), tx);
    return true;
}

void rme_frag_uncount(struct rme_frag *frag)
{
    count(frag->op->peer, frag, -(uint64_t)frag->nrange);
    frag->nrange = 0;
}

void rme_mws_free(struct rme *rme)
{
    struct list_head *node;

    while ((node = list_pop(&rme->mw_waitq)) != NULL)
        rme_peer_schedule(container_of(node, struct rme_peer, mw_waitq));
}

void rme_frag_invalidate(struct rme *rme, struct rme_frag *frag)
{
    struct rme_op *op = frag->op;
    struct rme_peer *peer = op->peer;

    if (frag->nrange == 0 || !list_empty(&frag->invalidating))
        return;
    /* the link is ending, which closes the fragment: none is opened before the link is up */
    if (peer->state != RME_PEER_UP) {
        rme_frag_uncount(frag);
        return;
    }
    if (rme->ops->mw_invalidate(peer->link, frag->range, frag->nrange, frag)) {
        rme_frag_uncount(frag);
        rme_mws_free(rme);
        return;
    }
    op->refcount++;
    op->invalidating++;
    list_add_tail(&frag->invalidating, &peer->invalidating);
    rme->pending |= RME_PENDING_FLUSH;
}

void rme_frags_invalidate(struct rme *rme, struct rme_op *op)
{
    struct rme_frag *frag;

    list_for_each(frag, &op->rndv->frags, link)
        rme_frag_invalidate(rme, frag);
}
