/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What each peer may have of the zones [000 5.2]: blocks for copies of the messages that come
 * from it or go to it.
 *
 * Normal path.  Half of what zones may be (zone_bytes) is shared by the peers that have any, it
 * among them, and one more; a peer that is the only one with a link has that half alone.  Who
 * has less than its share gets what is left of it: the unit is cut to a smaller block, down to
 * SMALLEST.  Shares get smaller as peers come, and who has more by then gets nothing further
 * until its messages end.  So where messages end all have the same, and half of the zones is
 * there for who comes; where those who came first sleep the next ones have something all the
 * same, eight of them in any case.  However many they are, a peer that has nothing may try
 * SMALLEST.
 *
 * Who gets none uses the reserve (unit.c), in turn, for this unit alone: nobody waits for what
 * another peer holds, and the next unit may have a block again.
 *
 * What the host has of the zones is its own business, and counts for no peer.  Where it leaves
 * less than the shares, or the system refuses, units are cut as well before the reserve is
 * used.
 */
#include "move/move.h"
#include "plan/plan.h"

/* units are not cut smaller than this: the smallest class of zones in the paper */
#define SMALLEST (64u << 10)

/* What a unit takes of a zone: its class. */
static uint64_t block_of(uint64_t length)
{
    uint64_t block = RME_ZONE_MIN_BLOCK;

    while (block < length)
        block *= 2;
    return block;
}

/* The next smaller class; 0: there is none. */
static uint64_t smaller(uint64_t length)
{
    uint64_t block = block_of(length) / 2;

    return block >= SMALLEST ? block : 0;
}

static uint64_t left_of_share(const struct rme_peer *peer)
{
    const struct rme *rme = peer->rme;
    bool alone = rme->stats.value[RME_C_PEERS] <= 1;
    uint32_t have = rme->mover->packers + (peer->packed == 0); /* or will */
    uint64_t share = rme->tuning.zone_bytes / 2 / (alone ? 1 : have + 1);

    if (share < SMALLEST)
        share = SMALLEST;
    return share > peer->packed ? share - peer->packed : 0;
}

uint64_t rme_ration(const struct rme_peer *peer, uint64_t length)
{
    uint64_t left = left_of_share(peer);

    while (length > 0 && block_of(length) > left)
        length = smaller(length);
    return length;
}

/* What the peer has opened from where the next unit begins: how much of it one transfer can
 * move. */
static uint64_t one_transfer(const struct rme_op *op)
{
    const struct rme_rndv *r = op->rndv;

    for (struct rme_node *node = r->openings.next; node != &r->openings; node = node->next) {
        const struct rme_opening *opening = rme_entry(node, struct rme_opening, link);
        uint64_t end = opening->offset + opening->length;

        if (end > r->prepared)
            return rme_least(end - r->prepared, rme_move_most(op->peer->rme, op));
    }
    return 0;
}

bool rme_ration_unit(const struct rme_op *op, struct rme_unit *unit, uint64_t rest)
{
    struct rme *rme = op->peer->rme;
    const struct rme_rndv *r = op->rndv;
    uint64_t length =
        rme_least(rest, rme_least(r->most, rme_plan_unit(rme->tuning.unit, true)));

    unit->length = rest;
    if (unit->memory == RME_MEMORY_PACK) {
        unit->length = rme_ration(op->peer, length);
        rme_count_add(rme, RME_C_PACK_CUT, unit->length != 0 && unit->length < length);
        if (unit->length == 0)
            unit->memory = RME_MEMORY_RESERVE;
    }
    if (unit->memory != RME_MEMORY_RESERVE)
        return true;
    unit->length = rme_least(rest, rme->mover->reserve_size);
    if (op->state != RME_OP_MOVING)
        return true;
    unit->length = rme_least(unit->length, one_transfer(op));
    return unit->length != 0; /* else rme_rndv_open is followed by another attempt */
}

bool rme_ration_cut(struct rme_op *op, uint64_t length)
{
    uint64_t block = smaller(length);

    if (block == 0)
        return false;
    op->rndv->most = block;
    rme_count(op->peer->rme, RME_C_PACK_CUT);
    return true;
}

static void count(struct rme *rme)
{
    rme->stats.value[RME_C_PACK_BYTES] = rme->mover->packed;
}

void rme_ration_take(struct rme_peer *peer, struct rme_unit *unit)
{
    struct rme_mover *mover = peer->rme->mover;

    unit->ration = block_of(unit->length);
    mover->packers += peer->packed == 0;
    mover->packed += unit->ration;
    peer->packed += unit->ration;
    count(peer->rme);
}

void rme_ration_give(struct rme_peer *peer, struct rme_unit *unit)
{
    struct rme_mover *mover = peer->rme->mover;

    if (unit->ration == 0)
        return;
    mover->packed -= unit->ration;
    peer->packed -= unit->ration;
    mover->packers -= peer->packed == 0;
    unit->ration = 0;
    count(peer->rme);
}
