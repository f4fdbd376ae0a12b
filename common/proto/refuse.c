/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Refusals: report to the sender of an eager message that the receive was too small.
 *
 * An eager send is complete when its bytes are copied out, so the normal case costs no message
 * and no waiting.  When such a message matches a receive that is too small, the receive ends
 * with an error, and REFUSED (the NACK of eager messages) goes back.  REFUSED names the message
 * by its place in the stream: the cost of all eager messages up to it, which both sides count
 * for the window (credit.h).  The sender logs the loss in one line and counts it; the send
 * stays complete, whether or not its host has fetched the completion.  A host that cannot
 * accept that sets eager_max=0: every message that could be refused then goes by rendezvous,
 * where both sides wait for the match.
 *
 * Failure.  A refused message counts as held until REFUSED is sent, so that the window bounds
 * the number of refusals that wait for credits.  Without memory for the refusal, or when the
 * link ends, the sender does not learn of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/refuse.h"

struct rme_refusal {
    struct rme_control control;
    uint32_t place;
    int32_t tag;
    uint64_t size; /* of the message */
    uint64_t room; /* of the receive */
};

static void drop_refusal(struct rme_peer *peer, struct rme_control *control)
{
    rme_unkeep(peer, sizeof(struct rme_refusal));
    free(rme_entry(control, struct rme_refusal, control));
}

static bool send_refusal(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_refusal *refusal = rme_entry(control, struct rme_refusal, control);
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    rme_holding_took(&peer->holding[RME_EXPECTED], refusal->size);
    rme_peer_header(peer, RME_WIRE_REFUSED, &message);
    message.flags |= RME_WIRE_F_OPTIONAL;
    message.tag = refusal->tag;
    message.to = refusal->place;
    message.status = rme_wire_status_of(-EMSGSIZE);
    message.total = refusal->size;
    message.room = refusal->room;
    rme_peer_send_control(peer, &message, tx);
    rme_node_remove(&control->link);
    drop_refusal(peer, control);
    return true;
}

static const struct rme_control_kind refusal_kind = {send_refusal, drop_refusal};

void rme_refuse(struct rme_op *op, uint32_t place)
{
    struct rme_peer *peer = op->peer;
    struct rme_refusal *refusal = malloc(sizeof(*refusal));

    if (refusal == NULL) {
        rme_holding_took(&peer->holding[RME_EXPECTED], op->size);
        return;
    }
    rme_node_init(&refusal->control.link);
    refusal->control.kind = &refusal_kind;
    refusal->place = place;
    refusal->tag = op->tag;
    refusal->size = op->size;
    refusal->room = op->total;
    rme_keep(peer, sizeof(*refusal));
    rme_node_append(&peer->control, &refusal->control.link);
    rme_peer_kick(peer);
}

static void refused(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme *rme = peer->rme;
    int error = rme_wire_status_error(message->status);

    if (error == 0 || (int32_t)(peer->window[RME_EXPECTED].sent - message->to) < 0) {
        rme_peer_protocol_error(peer, "a NACK for no send");
        return;
    }
    rme_count(rme, RME_C_EAGER_REFUSED);
    rme_log_put(
        rme->log, RME_LOG_WARN,
        "%s: a message of %" PRIu64 " bytes with tag %" PRId32
        " is lost: larger than its receive of %" PRIu64
        " bytes (%s), and the eager send had completed; post a larger receive there, or set "
        "eager_max=0 here so that such sends fail",
        rme_peer_name(peer), message->total, message->tag, message->room, strerror(-error));
}

const struct rme_protocol rme_protocol_refusal = {.arrived = {[RME_WIRE_REFUSED] = refused}};
