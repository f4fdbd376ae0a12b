/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The sender writes.  The receiver, the target, opens its memory in windows, each by a CTS; the
 * sender writes each window, and the last transfer of a window carries its report.
 */
#include "rndv/rndv.h"

/* ---- The receiver ---- */

/* Queues the CTS of the next fragments: rme_frag_send_window(). */
static void open_more(struct rme *rme, struct rme_op *op)
{
    struct rme_frag *frag;

    while ((frag = rme_rndv_prepare(rme, op)) != NULL) {
        list_add_tail(&frag->control.link, &op->peer->control);
        frag->state = RME_FRAG_QUEUED;
        rme_peer_schedule(op->peer);
    }
}

void rme_put_receive(struct rme *rme, struct rme_op *op)
{
    op->rndv->access = RME_ACCESS_REMOTE_WRITE;
    op->rndv->max_segs = rme_mw_segments_max(rme, RME_WIRE_CTS, op->peer->tx_size);
    rme_rndv_begin(rme, op, RME_OP_TARGET, rme_put_stages);
}

/* ---- The sender ---- */

void rme_put_begin(struct rme_op *op, const struct rme_wire_message *cts)
{
    struct rme *rme = op->peer->rme;
    struct rme_frag *offered = rme_frag_first(op);

    if (!rme_remote_window_add(op, cts))
        return;
    if (offered != NULL)
        offered->state = RME_FRAG_READY;
    rme_rndv_set_peer_handle(op, cts->from);
    op->rndv->max_segs = UINT32_MAX;
    op->rndv->access = RME_ACCESS_LOCAL;
    rme_frags_invalidate(rme, op); /* the memory offered for reads */
    rme_rndv_begin(rme, op, RME_OP_MOVING, rme_put_stages);
}

static void write_more(struct rme_op *op, const struct rme_wire_message *cts)
{
    if (rme_remote_window_add(op, cts))
        rme_rndv_advance(op->peer->rme, op);
}

const struct rme_rndv_stage rme_put_stages[RME_OP_STATES] = {
    [RME_OP_TARGET] = {.advance = open_more, .moved = rme_rndv_target_done},
    [RME_OP_MOVING] = {.advance = rme_xfers_advance, .opened = write_more},
};
