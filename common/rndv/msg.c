/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages of a rendezvous: RTS, CTS, FIN and CANCEL, and the objects that arriving ones name.
 * doc/wire-protocol.md has their fields.
 *
 * FIN and CANCEL of an op, one at a time, are sent as soon as a credit and a buffer permit, and
 * precede all other queued control messages (peer->endings), because a CTS may wait for a
 * memory window that only the end of an op releases.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rndv/rndv.h"

#define REMOTE_WINDOWS_MAX 4 /* windows not used up; the target sends at most two */

/* Writes the segments of a fragment and their keys into a message. */
static void put_segments(const struct rme_peer *peer, const struct rme_frag *frag, void *tx,
                         uint8_t type)
{
    for (uint32_t i = 0; i < frag->nmseg; i++) {
        const struct rme_mseg *mseg = &frag->mseg[i];
        uint64_t key = frag->nrange != 0 ? frag->range[i].key : rme_peer_key(peer, mseg->rkey);
        struct rme_wire_segment segment = {(uintptr_t)mseg->base, key, mseg->length};

        rme_wire_put_segment(tx, type, i, &segment);
    }
}

void rme_rts_send(struct rme_op *op, struct rme_frag *frag, void *tx)
{
    struct rme_peer *peer = op->peer;
    const struct rme *rme = peer->rme;
    struct rme_wire_message message;

    rme_peer_header(peer, RME_WIRE_RTS, &message);
    message.tag = op->tag;
    message.from = rme_rndv_handle(op);
    message.total = op->size;
    message.shape = op->nseg;
    message.load_ops = rme->load.ops;
    message.load_bytes = rme->load.bytes;
    message.nsegment = frag != NULL ? frag->nmseg : 0;
    message.flags |= rme_stream_flag(rme_op_stream(op));
    if (frag != NULL)
        put_segments(peer, frag, tx, RME_WIRE_RTS);
    rme_peer_send_control(peer, &message, tx);
}

void rme_cts_send(struct rme_frag *frag, uint8_t flags, int32_t tag, uint32_t to, void *tx)
{
    struct rme_op *op = frag->op;
    struct rme_wire_message message;

    rme_peer_header(op->peer, RME_WIRE_CTS, &message);
    message.flags |= flags;
    message.tag = tag;
    message.to = to;
    message.from = rme_rndv_handle(op);
    message.offset = frag->offset;
    message.nsegment = frag->nmseg;
    message.shape = rme_peer_shape(op->peer, op->nseg);
    put_segments(op->peer, frag, tx, RME_WIRE_CTS);
    rme_peer_send_control(op->peer, &message, tx);
}

void rme_fin_put(struct rme_peer *peer, struct rme_frag *frag, void *tx)
{
    struct rme_wire_message message;

    rme_peer_header(peer, RME_WIRE_FIN, &message);
    message.to = rme_rndv_peer_handle(frag->op);
    message.status = RME_WIRE_OK;
    message.offset = frag->offset + frag->length;
    if (frag->rdma_op.read)
        message.shape = rme_peer_shape(peer, frag->op->nseg);
    rme_wire_encode(&message, tx);
    frag->rdma_op.tx = tx;
    frag->rdma_op.tx_length = rme_wire_length(RME_WIRE_FIN, 0);
    rme_count_add(peer->rme, RME_C_CONTROL_SENT, frag->rdma_op.read);
}

/* Sends FIN or CANCEL of an op. */
static bool send_ctrl(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_op *op = container_of(control, struct rme_rndv, control)->op;
    struct rme_rndv *r = op->rndv;
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    if (r->refuses)
        rme_window_consumed(&peer->holding[RME_EXPECTED], op->size);
    rme_peer_header(peer, r->ctrl, &message);
    message.to = rme_rndv_peer_handle(op);
    message.from = rme_rndv_handle(op);
    if (r->ctrl == RME_WIRE_FIN) {
        message.status = rme_wire_status_of(op->error);
        message.offset = op->error == 0 ? op->size : 0;
        if (r->refuses) {
            message.flags |= RME_WIRE_F_EAGER;
            message.tag = op->tag;
            message.total = op->size;
            message.offset = op->total;
        }
        message.shape = rme_peer_shape(peer, op->nseg);
    } else {
        message.tag = op->tag;
        message.flags |= rme_op_sends(op) ? RME_WIRE_F_FROM_SENDER : 0;
        message.flags |= rme_stream_flag(rme_op_stream(op));
    }
    rme_peer_send_closing(peer, &message, tx,
                          r->ctrl == RME_WIRE_FIN && op->error == 0 ? r->closes : 0);
    list_del_init(&r->control.link);
    rme_op_put(peer->rme, op);
    return true;
}

void rme_ctrl_queue(struct rme_op *op, enum rme_wire_type type)
{
    struct rme_control *control = &op->rndv->control;

    control->send = send_ctrl;
    op->refcount += list_empty(&control->link);
    list_del_init(&control->link);
    list_add_tail(&control->link, &op->peer->endings);
    op->rndv->ctrl = (uint8_t)type;
    rme_peer_schedule(op->peer);
}

bool rme_ctrl_unqueue(struct rme_op *op)
{
    if (op->rndv == NULL || list_empty(&op->rndv->control.link))
        return false;
    list_del_init(&op->rndv->control.link);
    return true;
}

bool rme_cancel_answer(struct rme_peer *peer, uint32_t to)
{
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    rme_peer_header(peer, RME_WIRE_FIN, &message);
    message.status = RME_WIRE_CANCELED;
    message.to = to;
    rme_peer_send_control(peer, &message, tx);
    return true;
}

/* ---- Arrivals ---- */

struct rme_op *rme_rndv_find(struct rme_peer *peer, uint32_t handle)
{
    struct rme_keyed *keyed =
        rme_table_find(&peer->rme->table, rme_handle_key(peer, handle), RME_HANDLE_OWN);

    return keyed != NULL ? container_of(keyed, struct rme_rndv, own)->op : NULL;
}

struct rme_op *rme_rndv_answered(struct rme_peer *peer, uint32_t handle)
{
    struct rme_op *op = rme_rndv_find(peer, handle);

    if (op == NULL || !rme_op_sends(op) || !op->rndv->rts_out)
        return NULL;
    return op;
}

/* The peer knows the handle here, unless CANCEL has crossed the first message about the op.
 * The peer's handle must equal the known one, if one is known. */
struct rme_op *rme_cancel_find(struct rme_peer *peer, const struct rme_wire_message *cancel)
{
    bool from_sender = (cancel->flags & RME_WIRE_F_FROM_SENDER) != 0;
    struct rme_op *op = rme_rndv_find(peer, cancel->to);
    struct rme_keyed *theirs = NULL;

    if (cancel->to == 0)
        theirs = rme_table_find(&peer->rme->table, rme_handle_key(peer, cancel->from),
                                RME_HANDLE_THEIRS);
    if (theirs != NULL)
        op = container_of(theirs, struct rme_rndv, theirs)->op;
    return op != NULL && rme_op_sends(op) != from_sender &&
                   (rme_rndv_peer_handle(op) == 0 || rme_rndv_peer_handle(op) == cancel->from)
               ? op
               : NULL;
}

bool rme_fin_is_valid(const struct rme_op *op, const struct rme_wire_message *fin)
{
    const struct rme_frag *frag = rme_frag_first(op);
    bool offered = op->state != RME_OP_MOVING && frag != NULL && frag->state == RME_FRAG_POSTED;

    return fin->offset == op->size && (op->size == 0 || offered);
}

struct rme_remote_window *rme_remote_window_new(const struct rme_wire_message *message)
{
    struct rme_remote_window *window =
        malloc(sizeof(*window) + message->nsegment * sizeof(window->segment[0]));

    if (window == NULL)
        return NULL;
    list_init(&window->link);
    window->offset = message->offset;
    window->length = message->rndv_window;
    window->nsegment = message->nsegment;
    for (uint32_t i = 0; i < message->nsegment; i++)
        rme_wire_segment_at(message, i, &window->segment[i]);
    return window;
}

/* Ends the link for a window out of order, and says all of the window and of the op. */
static void refuse_window(struct rme_op *op, const struct rme_wire_message *cts,
                          unsigned waiting)
{
    char why[256];

    snprintf(why, sizeof(why),
             "a CTS whose window does not follow the last one: %" PRIu64 " bytes at %" PRIu64
             " for send %" PRIu32 " by receive %" PRIu32 "; the send has %" PRIu64
             " bytes, %" PRIu64 " opened by receive %" PRIu32 ", %u windows waiting",
             cts->rndv_window, cts->offset, cts->to, cts->from, op->size, op->rndv->opened,
             rme_rndv_peer_handle(op), waiting);
    rme_peer_protocol_error(op->peer, why);
}

bool rme_remote_window_add(struct rme_op *op, const struct rme_wire_message *cts)
{
    struct rme_rndv *r = op->rndv;
    struct rme_remote_window *window;
    unsigned waiting = 0;

    list_for_each(window, &r->remote_windows, link)
        waiting++;
    if (waiting >= REMOTE_WINDOWS_MAX || cts->offset != r->opened || cts->rndv_window == 0 ||
        cts->rndv_window > op->size - r->opened) {
        refuse_window(op, cts, waiting);
        return false;
    }
    window = rme_remote_window_new(cts);
    if (window == NULL) {
        rme_peer_fail(op->peer, -ENOMEM, "no memory for the description of a transfer");
        return false;
    }
    list_add_tail(&window->link, &r->remote_windows);
    r->opened += cts->rndv_window;
    return true;
}
