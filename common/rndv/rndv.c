/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rendezvous.  A message that does not fit an eager buffer is moved by RDMA, directly between
 * the memory of its send and that of its receive [004 4.2, 5.2].
 *
 * Normal path.  The sender sends RTS: size, load, and an offer of its memory.  The receiver
 * matches RTS like any message, and the planner decides which side moves the data:
 *  - write: the receiver sends CTS with its memory; the sender posts RDMA writes, with an
 *    immediate on the last one;
 *  - read: the receiver posts RDMA reads of the offered memory, and sends FIN behind the reads.
 *
 * One side, the target, thus exposes memory, and the other side, the initiator, moves the data;
 * the code of both is the same for send and receive.  The memory of an op is prepared in
 * fragments (mem.c).  If everything is registered already, one fragment is the whole message:
 * two control messages and no registration.  Otherwise fragments follow each other, two at a
 * time, so that fragment k+1 is registered while fragment k is moved.  The target advertises
 * each fragment in a CTS of its own: a window of the message that begins at the end of the
 * previous one.  The initiator moves each fragment by one transfer; a fragment that was made
 * before its window arrived ends where the window ends.  A notification follows each window:
 * the immediate, or FIN after the reads.  Windows are answered in order, so a notification
 * needs no name except that of the op.  RTS offers the whole message, as one fragment, or
 * nothing:  a message that is not offered is written.  A receive that is posted first may open
 * its memory before RTS:  early_cts.c.  stop.c has the failure path.
 *
 * Why memory is safe.  An op ends only when no device can access its memory any more:
 *  - the initiator ends when its last transfer is complete locally;
 *  - the target ends at the last notification, which follows all data;
 *  - memory windows of a target are invalidated before its end is reported (window.c);
 *  - any other end of a target needs the peer's confirmation (FIN with a status, or CANCEL),
 *    which the peer sends when it has no transfer in flight and will start none, or the end of
 *    the link, after which rkeys are void.
 */
#include <stdlib.h>

#include "rndv/rndv.h"

/* Allocates a handle: never 0, no name of a place in a ring, and not in use, which
 * matters only after 2^32 handles. */
static uint32_t new_handle(struct rme_peer *peer)
{
    do
        peer->last_handle++;
    while (peer->last_handle == 0 || peer->last_handle >= RME_WIRE_RING_NAME ||
           rme_rndv_find(peer, peer->last_handle) != NULL);
    return peer->last_handle;
}

void rme_rndv_init(struct rme_rndv_state *state)
{
    list_init(&state->work);
    list_init(&state->free);
    for (unsigned i = 0; i < RME_RNDV_OWN; i++) {
        list_init(&state->own[i].control.link);
        list_add_tail(&state->own[i].control.link, &state->free);
    }
    for (int class = 0; class < RME_RESERVES; class ++)
        list_init(&state->reserve[class].waiting);
}

bool rme_rndv_new(struct rme *rme, struct rme_op *op, const struct rme_rndv_stage *stages)
{
    struct list_head *node = list_pop(&rme->rndv_state->free);
    struct rme_rndv *r =
        node != NULL ? container_of(node, struct rme_rndv, control.link) : malloc(sizeof(*r));

    if (r == NULL)
        return false;
    *r = (struct rme_rndv){
        .op = op, .stages = stages, .max_segs = UINT32_MAX, .most = UINT64_MAX};
    list_init(&r->control.link);
    list_init(&r->frags);
    list_init(&r->remote_windows);
    op->rndv = r;
    rme_table_put(&rme->table, &r->own, rme_handle_key(op->peer, new_handle(op->peer)),
                  RME_HANDLE_OWN);
    return true;
}

void rme_rndv_set_peer_handle(struct rme_op *op, uint32_t handle)
{
    struct rme_table *table = &op->peer->rme->table;

    rme_table_drop(table, &op->rndv->theirs);
    rme_table_put(table, &op->rndv->theirs, rme_handle_key(op->peer, handle),
                  RME_HANDLE_THEIRS);
}

/* Ends the op's share of the load, and its role as the open receive of the peer. */
static void unload(struct rme_op *op)
{
    struct rme_early_cts *early = &op->peer->rndv->early;
    struct rme_load *load = op->rndv->load;

    if (early->receive == op)
        early->receive = NULL;
    if (load == NULL)
        return;
    load->ops--;
    load->bytes -= op->size;
    op->rndv->load = NULL;
}

void rme_rndv_free(struct rme *rme, struct rme_op *op)
{
    struct rme_rndv_state *state = rme->rndv_state;
    struct rme_rndv *r = op->rndv;
    struct list_head *node;

    while (!list_empty(&r->frags))
        rme_frag_free(rme, rme_frag_first(op));
    while ((node = list_pop(&r->remote_windows)) != NULL)
        free(container_of(node, struct rme_remote_window, link));
    unload(op);
    rme_table_drop(&rme->table, &r->own);
    rme_table_drop(&rme->table, &r->theirs);
    op->rndv = NULL;
    if (r >= state->own && r < state->own + RME_RNDV_OWN)
        list_add_tail(&r->control.link, &state->free);
    else
        free(r);
}

struct rme_plan_in rme_rndv_plan_in(const struct rme *rme, uint64_t bytes)
{
    return (struct rme_plan_in){
        .bytes = bytes,
        .frag_size = rme->tuning.frag_size,
        .pack_threshold = rme->tuning.pack_threshold,
        .prefer = rme->tuning.prefer,
        .lists = rme->tuning.lists,
        .max_sge = rme->caps->segments_apart ? 1 : rme->caps->max_sge,
        .max_read_sge = rme->caps->segments_apart ? 1 : rme->caps->max_read_sge,
        .has_read = rme->caps->has_read,
        .slow_read = rme->caps->slow_read,
        .has_early_cts = rme->tuning.early_cts && !rme->caps->register_each &&
                         bytes <= rme->tuning.rdma_bytes,
        .opens = rme->caps->mws != 0,
        .each = rme->caps->mws == 0 && rme->caps->register_each,
        .limits = rme->limits,
    };
}

struct rme_plan_side rme_rndv_side(const struct rme *rme, uint64_t segments, bool ready)
{
    return (struct rme_plan_side){.segments = segments,
                                  .ready = ready,
                                  .kept = rme_mreg_caches(rme->mreg),
                                  .server = rme->server,
                                  .load = rme->load};
}

struct rme_plan_in rme_rndv_plan_in_send(const struct rme *rme, uint64_t bytes,
                                         struct rme_plan_side own)
{
    struct rme_plan_in in = rme_rndv_plan_in(rme, bytes);

    in.send = own;
    in.recv.kept = own.kept; /* as here */
    in.sender = true;
    return in;
}

struct rme_plan_side rme_rndv_own_side(struct rme *rme, const struct rme_op *op)
{
    bool ready = op->nseg == 1 && rme_zone_find(rme->zone, op->seg[0].base, op->seg[0].length,
                                                RME_ACCESS_LOCAL) != NULL;

    return rme_rndv_side(rme, op->nseg, ready);
}

void rme_rndv_begin(struct rme *rme, struct rme_op *op, enum rme_op_state state,
                    const struct rme_rndv_stage *stages)
{
    struct rme_load *load = state == RME_OP_MOVING ? &rme->load : &op->peer->load;

    unload(op);
    op->rndv->load = load; /* of the side that moves the data */
    load->ops++;
    load->bytes += op->size;
    op->rndv->stages = stages;
    rme_op_step(op, state);
    rme_rndv_advance(rme, op);
}

void rme_rndv_target_done(struct rme *rme, struct rme_op *op, uint64_t done)
{
    struct rme_rndv *r = op->rndv;
    struct rme_frag *frag;

    while ((frag = rme_frag_first(op)) != NULL && frag->offset + frag->length <= done) {
        if (!rme_op_sends(op))
            rme_frag_unpack(rme, frag);
        rme_frag_free(rme, frag);
    }
    r->done = done;
    if (done == op->size)
        rme_op_end(rme, op, 0);
    else
        rme_rndv_advance(rme, op);
}

/* ---- The end ---- */

static void count_end(struct rme_op *op)
{
    struct rme_peer *peer = op->peer;
    bool reads = op->rndv->reads;

    if (!rme_op_sends(op)) {
        rme_peer_count(peer, reads ? RME_C_RECVS_RNDV_READ : RME_C_RECVS_RNDV_WRITE, 1);
        return;
    }
    rme_peer_count(peer, reads ? RME_C_SENDS_RNDV_READ : RME_C_SENDS_RNDV_WRITE, 1);
    if (op->kind == RME_OP_UNEXPECTED)
        rme_peer_count(peer, RME_C_UNEXPECTED_SENT, 1);
    rme_peer_count(peer, RME_C_BYTES_SENT, op->size);
}

static void ended(struct rme *rme, struct rme_op *op)
{
    struct rme_peer *peer = op->peer;

    if (op->error == 0)
        count_end(op);
    unload(op);
    rme_frags_drop(rme, op);
    rme_frags_invalidate(rme, op);
    /* delays the reports of the peer's later receives until this op is reported */
    op->completing =
        op->error == 0 && (op->rndv->moves > 0 || (op->invalidating > 0 && rme_op_sends(op)));
    peer->completing_ops += op->completing;
    if (op->rndv->rts_out) {
        op->rndv->rts_out = false;
        peer->rndv->rts_out[rme_op_stream(op)]--;
        rme_peer_schedule(peer);
    }
}

const struct rme_op_ops rme_rndv_op_ops = {.ended = ended, .free = rme_rndv_free};
