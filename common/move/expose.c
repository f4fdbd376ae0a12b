/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is open to a peer, and for how long.
 *
 * A unit that the peer shall use (CTS, OFFER, RTS with an offer, INVITE) is opened: exactly its
 * bytes, for the one direction, to this peer alone.  Opening is queued right in front of the
 * message that carries the keys.  It is closed when the peer has reported that it is done with
 * it, when the peer chose another way, or when the op ends.  The op waits for that as for any
 * user of its memory (a pin), so the host is told of the end when no key opens its buffer any
 * more.  Only then the unit's registration and block are given back: a device does not
 * deregister what is open, and a block goes to others.
 *
 * What the peer says after it has read a send's memory waits until that send has ended, as
 * defer.c has it for what we move: a host hears of the end of a send before it hears the
 * answer.  Closing needs only the device, so this blocks nothing.
 *
 * Where the fabric has no windows, all of this does nothing: the key of a registration goes to
 * the peer.  Either the registration is for this unit alone, exact and deregistered before the
 * host is told (rme_pin_alone, mreg.c); or it is one that is kept.
 *
 * Failure path.  The end of the link closes all of it at once; a fabric says nothing then.  So
 * at LINK_DOWN what is still being closed counts as closed.  Nothing is opened before the link
 * is up, so whoever finds a link that is not up while something of it is open finds one that
 * ends.
 *
 * Cancel.  The peer is asked to leave, as ever (rndv.c), and memory is closed behind its
 * answer.  Closing it first would spare the wait, but a transfer that is under way would meet a
 * dead key, which costs the connection, and with it what others do over it; a host that does
 * not want to wait says so (option forceful), and gets just that.
 *
 * Too many.  Windows are bounded.  A CTS or OFFER that finds none waits for one that is
 * closed.  What waits for a receive of the other host, which may take for ever (an offer, an
 * invitation), has at most half of them and is left out when it finds none.  So those that are
 * left belong to peers that move data and need no window for that: they come back.
 *
 * Those of a peer that moves nothing do not, and many receives can be opened to it.  So one
 * that is not the only peer has at most an eighth of what it leaves to the others, its first
 * unit apart: that is opened as soon as there are windows for it.
 */
#include <errno.h>
#include <stdlib.h>

#include "move/move.h"

#define SHARE 8 /* how many times what it has a peer leaves to others */

#define REMOTE (RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE)

static bool has_windows(const struct rme *rme)
{
    return rme->caps->windows != 0;
}

uint32_t rme_exposed_max(const struct rme *rme, uint8_t type, size_t size)
{
    uint32_t fit = rme_wire_segments_max(type, size);
    uint32_t most = rme->caps->windows / 8;

    if (!has_windows(rme) || fit <= most)
        return fit;
    return most != 0 ? most : 1;
}

static int reserve_ranges(struct rme_unit *unit)
{
    struct rme_range *range;

    if (unit->nmseg <= unit->range_room)
        return 0;
    range = malloc(unit->nmseg * sizeof(*range));
    if (range == NULL)
        return -ENOMEM;
    if (unit->range != unit->own_range)
        free(unit->range);
    unit->range = range;
    unit->range_room = unit->nmseg;
    return 0;
}

static int open_unit(struct rme_peer *peer, struct rme_unit *unit)
{
    struct rme *rme = peer->rme;
    int error = peer->state == RME_PEER_UP ? reserve_ranges(unit) : -EAGAIN;

    for (uint32_t i = 0; error == 0 && i < unit->nmseg; i++)
        unit->range[i] = (struct rme_range){.base = unit->mseg[i].base,
                                            .length = unit->mseg[i].length,
                                            .rkey = unit->mseg[i].rkey};
    if (error == 0)
        error = rme->ops->expose(peer->link, unit->range, unit->nmseg, unit->access & REMOTE);
    if (error == 0)
        unit->nrange = unit->nmseg;
    return error;
}

/* May so many windows more be open for messages of the peer? */
static bool is_within_share(const struct rme_peer *peer, uint32_t more)
{
    const struct rme *rme = peer->rme;
    uint64_t wanted = (uint64_t)peer->windows + more;
    uint64_t used = (uint64_t)rme->offered + rme->windows + more;

    return peer->windows == 0 || rme->stats.value[RME_C_PEERS] <= 1 ||
           wanted * SHARE + used <= rme->caps->windows;
}

static int open_in_turn(struct rme_peer *peer, struct rme_unit *unit)
{
    int error = is_within_share(peer, unit->nmseg) ? open_unit(peer, unit) : -EAGAIN;

    if (error == 0) {
        peer->windows += unit->nrange;
        peer->rme->windows += unit->nrange;
    }
    return error;
}

bool rme_unit_open(struct rme_peer *peer, struct rme_unit *unit)
{
    struct rme *rme = peer->rme;
    int error = has_windows(rme) && unit->nrange == 0 ? open_in_turn(peer, unit) : 0;

    if (error == 0)
        return true;
    if (error != -EAGAIN)
        rme_peer_fail(peer, error, "a memory window for the peer cannot be opened");
    else if (rme_node_alone(&peer->window_turn))
        rme_node_append(&rme->window_turn, &peer->window_turn);
    return false;
}

bool rme_unit_offer(struct rme_peer *peer, struct rme_unit *unit)
{
    struct rme *rme = peer->rme;

    if (!has_windows(rme))
        return true;
    if (rme->offered + unit->nmseg > rme->caps->windows / 2 || open_unit(peer, unit) != 0)
        return false;
    unit->offered = unit->nrange;
    rme->offered += unit->offered;
    return true;
}

void rme_unit_describe(const struct rme_peer *peer, const struct rme_unit *unit, void *tx,
                       uint8_t type)
{
    for (uint32_t i = 0; i < unit->nmseg; i++) {
        const struct rme_mseg *mseg = &unit->mseg[i];
        uint64_t key = unit->nrange != 0 ? unit->range[i].key : rme_peer_key(peer, mseg->rkey);
        struct rme_wire_segment segment = {(uintptr_t)mseg->base, key, mseg->length};

        rme_wire_put_segment(tx, type, i, &segment);
    }
}

/* Tells the peer of a unit. */
static bool send_window(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_unit *unit = rme_entry(control, struct rme_unit, control);
    struct rme_op *op = unit->op;
    uint8_t type = rme_op_sends(op) ? RME_WIRE_OFFER : RME_WIRE_CTS;
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    if (!rme_unit_open(peer, unit)) {
        peer->rme->ops->tx_put(peer->link, tx);
        return false;
    }
    rme_peer_header(peer, type, &message);
    message.to = rme_rndv_peer_handle(op->rndv);
    message.from = rme_name_number(&op->rndv->own);
    message.offset = unit->offset;
    message.nsegment = unit->nmseg;
    rme_unit_describe(peer, unit, tx, type);
    rme_node_remove(&unit->control.link);
    unit->told = true;
    op->rndv->introduced = true;
    rme_peer_send_control(peer, &message, tx);
    return true;
}

const struct rme_control_kind rme_control_window = {.send = send_window};

void rme_unit_forget(struct rme *rme, struct rme_unit *unit)
{
    if (unit->offered == 0) {
        unit->op->peer->windows -= unit->nrange;
        rme->windows -= unit->nrange;
    }
    rme->offered -= unit->offered;
    unit->offered = 0;
    unit->nrange = 0;
}

void rme_unit_close(struct rme *rme, struct rme_unit *unit)
{
    struct rme_op *op = unit->op;
    struct rme_peer *peer = op->peer;

    if (unit->nrange == 0 || !rme_node_alone(&unit->closing))
        return;
    /* it ends, and that closes it: nothing was opened before it was up (open_unit) */
    if (peer->state != RME_PEER_UP) {
        rme_unit_forget(rme, unit);
        return;
    }
    op->pins++;
    op->closing++;
    rme_node_append(&peer->closing, &unit->closing);
    rme->ops->unexpose(peer->link, unit->range, unit->nrange, unit);
    rme->pending |= RME_PENDING_FLUSH;
}

void rme_units_close(struct rme *rme, struct rme_op *op)
{
    struct rme_node *units = &op->rndv->units;

    for (struct rme_node *node = units->next; node != units; node = node->next)
        rme_unit_close(rme, rme_entry(node, struct rme_unit, link));
}

void rme_unit_shutting(struct rme_op *op)
{
    if (op->closing == 0 || op->shutting || !rme_op_sends(op))
        return;
    op->shutting = true;
    op->peer->shutting++;
}
