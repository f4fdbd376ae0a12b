/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Delegated buffers granted by peers: grant, withdrawal, release, and the staging buffer.
 * fast.c describes their use.
 *
 * Staging buffers are bounded like areas (fast_pool), and shared likewise (fast_area.c): of the
 * full size while little of the pool is used, then smaller ones, so that more peers can have
 * one.  If the pool is exhausted one is released: the least recently used if IDLE_SENT messages
 * went to other peers since, otherwise the oldest if TENURE messages did.  The grant that found
 * the pool exhausted is released at once, and its owner repeats it later.
 */
#include <stdlib.h>

#include "proto/fast_hold.h"
#include "proto/arrive.h"
#include "proto/talk.h"

#define AREA_MOST   (4u << 20)   /* bytes of a peer's area that are used at most */
#define STAGE_LEAST (128u << 10) /* bytes of a staging buffer, unless the area is smaller */
#define STAGE_PART  32u          /* a staging buffer gets at most this part of the free pool */
#define IDLE_SENT   256u         /* messages to other peers without one of this hold: idle */
#define TENURE      8192u        /* messages after which a busy hold may be released */

static void hold_free(struct rme *rme, struct rme_fast_hold *hold)
{
    rme_node_remove(&hold->used);
    rme_node_remove(&hold->granted);
    if (hold->stage != NULL)
        (void)rme_zone_put(rme->zone, hold->stage);
    rme->protocols->fast.stages -= hold->size;
    free(hold);
}

/* Sends RELEASE; the area is the peer's again from then on. */
static bool send_release(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    rme_node_remove(&control->link);
    rme_peer_header(peer, RME_WIRE_RELEASE, &message);
    rme_wire_encode(&message, tx);
    rme_count(peer->rme, RME_C_CONTROL_SENT);
    peer->talk->fast.held = NULL;
    if (hold == NULL || hold->pending == 0) {
        peer->rme->ops->tx_send(peer->link, tx, RME_WIRE_HEADER_SIZE);
        if (hold != NULL)
            hold_free(peer->rme, hold);
        return true;
    }
    hold->gone = true;
    hold->pending++;
    hold->last = (struct rme_xfer){
        .notify = RME_NOTIFY_MSG, .tx = tx, .tx_length = RME_WIRE_HEADER_SIZE};
    rme_node_append(&peer->talk->fast.leaving, &hold->leaving);
    peer->rme->ops->xfer(peer->link, &hold->last);
    return true;
}

static void drop_release(struct rme_peer *peer, struct rme_control *control)
{
    (void)peer;
    rme_node_remove(&control->link);
}

const struct rme_control_kind rme_fast_release_kind = {send_release, drop_release};

static void say_release(struct rme_peer *peer)
{
    rme_node_append(&peer->control, &peer->talk->fast.release.link);
    rme_peer_kick(peer);
}

/* Releases an area once requested and only unsignalled writes remain in flight.  A link that is
 * given up needs no RELEASE. */
static void end_if_idle(struct rme_fast_hold *hold)
{
    struct rme_peer *peer = hold->peer;

    if (hold->ending && !hold->making && hold->loud == 0 && rme_peer_listens(peer) &&
        rme_node_alone(&peer->talk->fast.release.link))
        say_release(peer);
}

/* Ends the use of an area: no new message, and RELEASE when the signalled writes are
 * complete. */
static void end_hold(struct rme_fast_hold *hold)
{
    rme_node_remove(&hold->used);
    rme_node_remove(&hold->granted);
    hold->ending = true;
    rme_peer_kick(hold->peer);
    end_if_idle(hold);
}

/* Allocates the staging buffer, a zone block. */
static void make_stage(struct rme *rme, struct rme_fast_job *job)
{
    struct rme_fast_hold *hold = rme_entry(job, struct rme_fast_hold, job);
    const struct rme_mr *mr;

    pthread_mutex_unlock(&rme->lock);
    hold->stage = rme_zone_alloc(rme->zone, hold->size);
    rme_lock(rme);
    hold->making = false;
    if (hold->peer == NULL) {
        hold_free(rme, hold);
        return;
    }
    if (hold->stage != NULL && rme_zone_find(rme->zone, hold->stage, hold->size, &mr) == 0)
        hold->lkey = mr->lkey;
    else
        end_hold(hold);
    end_if_idle(hold);
}

/* ---- Sharing ---- */

/* Evicts a staging buffer so that a later grant can have one. */
static void make_way(struct rme_fast_pool *pool)
{
    struct rme_fast_hold *unused, *oldest;

    if (rme_node_alone(&pool->holds))
        return;
    unused = rme_entry(pool->holds.next, struct rme_fast_hold, used);
    oldest = rme_entry(pool->granted.next, struct rme_fast_hold, granted);
    if (pool->sent - unused->used_at >= IDLE_SENT)
        end_hold(unused);
    else if (pool->sent - oldest->granted_at >= TENURE)
        end_hold(oldest);
}

/* Size of a staging buffer for an area of that size; 0: the pool is exhausted. */
static uint64_t stage_room(const struct rme *rme, uint64_t lent)
{
    uint64_t limit = rme->tuning.fast_pool, used = rme->protocols->fast.stages;
    uint64_t left = limit - rme_least(used, limit), part = STAGE_LEAST;
    uint64_t most = rme_least(rme_least(lent, rme->tuning.fast_bytes), AREA_MOST);

    while (2 * part <= left / STAGE_PART)
        part *= 2;
    if (left < limit - limit / 4)
        most = rme_least(most, part);
    return left < rme_least(most, rme_least(limit, STAGE_LEAST)) ? 0 : rme_least(most, left);
}

void rme_fast_hold_used(struct rme_fast_hold *hold)
{
    struct rme_fast_pool *pool = &hold->peer->rme->protocols->fast;

    hold->used_at = ++pool->sent;
    rme_node_remove(&hold->used);
    rme_node_append(&pool->holds, &hold->used);
}

void rme_fast_hold_missed(struct rme_peer *peer, enum rme_stream stream, uint64_t size)
{
    if ((peer->hello.flags & RME_HELLO_F_FAST) != 0 && size <= rme_fast_most(peer->rme, stream))
        peer->rme->protocols->fast.sent++;
}

static struct rme_fast_hold *hold_new(struct rme_peer *peer, uint64_t room)
{
    struct rme_fast_pool *pool = &peer->rme->protocols->fast;
    struct rme_fast_hold *hold = calloc(1, sizeof(*hold));

    if (hold == NULL)
        return NULL;
    hold->peer = peer;
    hold->ring.units = (uint32_t)(room / RME_WIRE_FAST_UNIT);
    hold->size = (size_t)hold->ring.units * RME_WIRE_FAST_UNIT;
    pool->stages += hold->size;
    hold->used_at = hold->granted_at = pool->sent;
    rme_node_append(&pool->holds, &hold->used);
    rme_node_append(&pool->granted, &hold->granted);
    hold->making = true;
    hold->job.run = make_stage;
    rme_node_append(&pool->jobs, &hold->job.link);
    peer->rme->pending |= RME_PENDING_SETTLE;
    return hold;
}

void rme_fast_granted(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_wire_segment segment;
    struct rme_fast_hold *hold;
    uint64_t room;

    if (peer->talk->fast.held != NULL || !rme_node_alone(&peer->talk->fast.release.link) ||
        message->nsegment != 1 || peer->rme->tuning.fast_bytes == 0 || !peer->credit.exact) {
        rme_peer_protocol_error(peer, "an unexpected GRANT");
        return;
    }
    rme_wire_segment_at(message, 0, &segment);
    room = stage_room(peer->rme, segment.length);
    if (room == 0)
        make_way(&peer->rme->protocols->fast);
    hold = room >= RME_WIRE_FAST_UNIT ? hold_new(peer, room) : NULL;
    if (hold == NULL) {
        say_release(peer);
        return;
    }
    hold->address = segment.address;
    hold->key = segment.key;
    hold->late = (uint32_t)rme_least(segment.length - segment.length / 4, UINT32_MAX);
    hold->name = message->from;
    peer->talk->fast.held = hold;
}

/* Without a hold, a RELEASE has crossed this WITHDRAW. */
void rme_fast_withdrawn(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;

    (void)message;
    if (hold != NULL)
        end_hold(hold);
}

/* ---- Completion ---- */

/* Returns a gathering send's memory to the host. */
static void end_send(struct rme *rme, struct rme_fast_write *write)
{
    struct rme_op *op = write->op;

    if (op == NULL)
        return;
    write->op = NULL;
    write->hold->sends--;
    rme_op_unpin(rme, op);
}

/* Releases the registrations of a write that is complete, or whose link is down, and ends its
 * send if that has not ended. */
static void let_go(struct rme *rme, struct rme_fast_write *write)
{
    if (rme_mreg_release(rme->mreg, write->mreg) && write->op != NULL)
        write->op->reap = true;
    write->mreg = NULL;
    for (uint32_t i = 1; i < RME_FAST_SEGS; i++)
        if ((write->zoned >> i & 1) != 0)
            rme_zone_drop(rme->zone, write->seg[i].base);
    write->zoned = 0;
    end_send(rme, write);
}

void rme_fast_told(struct rme_peer *peer)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;

    for (uint32_t i = hold->taken; hold->sends > 0 && i < hold->count; i++) {
        struct rme_fast_write *write = &hold->write[(hold->first + i) % RME_FAST_WRITES];

        if (!rme_fast_is_taken(&peer->credit, write))
            return;
        end_send(peer->rme, write);
    }
}

void rme_fast_moved(struct rme_peer *peer, struct rme_xfer *xfer)
{
    struct rme_fast_write *write = NULL;
    struct rme_fast_hold *hold;

    if (xfer->notify == RME_NOTIFY_IMM)
        write = rme_entry(xfer, struct rme_fast_write, xfer);
    hold = write != NULL ? write->hold : rme_entry(xfer, struct rme_fast_hold, last);
    hold->pending--;
    if (hold->gone) {
        if (hold->pending == 0) {
            rme_node_remove(&hold->leaving);
            hold_free(peer->rme, hold);
        }
        return;
    }
    write->done = true;
    let_go(peer->rme, write);
    hold->loud -= !xfer->quiet;
    end_if_idle(hold);
    if (peer->talk->holds != 0 || !rme_node_alone(&peer->talk->sendq[RME_EXPECTED]))
        rme_peer_kick(peer);
}

void rme_fast_hold_down(struct rme_peer *peer)
{
    struct rme_fast_hold *hold = peer->talk->fast.held;
    struct rme_node *node;

    while ((node = rme_node_take(&peer->talk->fast.leaving)) != NULL)
        hold_free(peer->rme, rme_entry(node, struct rme_fast_hold, leaving));
    if (hold == NULL)
        return;
    for (uint32_t i = 0; i < hold->count; i++)
        let_go(peer->rme, &hold->write[(hold->first + i) % RME_FAST_WRITES]);
    peer->talk->fast.held = NULL;
    rme_node_remove(&hold->used);
    rme_node_remove(&hold->granted);
    hold->peer = NULL;
    if (!hold->making)
        hold_free(peer->rme, hold);
}

void rme_fast_work(struct rme *rme)
{
    struct rme_node *node = rme_node_take(&rme->protocols->fast.jobs);
    struct rme_fast_job *job = rme_entry(node, struct rme_fast_job, link);

    job->run(rme, job);
}
