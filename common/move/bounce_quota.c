/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Quotas of bounce buffers: bytes of zones that each peer may hold for copied messages [000
 * 5.2].
 *
 * The peer's room by the quota (transport/quota.c; its limit is zone_bytes) is the largest
 * block of its next fragment: the fragment is cut to a smaller block, down to SMALLEST.  Shares
 * shrink as peers are added.  A peer above its new share gets no block until its messages end.
 * A peer without a block may always try SMALLEST.
 *
 * A fragment without a block uses the reserve (frag.c), in turn; the next fragment may get a
 * block again.  No peer waits for memory that another peer holds.
 *
 * Memory that the host allocates from the zones counts for no peer.  If less than the shares is
 * left, or the system refuses memory, fragments are cut as well before the reserve is used.
 */
#include "move/move.h"
#include "plan/plan.h"

/* minimum length to which fragments are cut: the smallest class of zones in the paper */
#define SMALLEST (64u << 10)

/* Returns the size of the block, a class of the zone, for a fragment of this length. */
static uint64_t block_of(uint64_t length)
{
    uint64_t block = RME_ZONE_MIN_BLOCK;

    while (block < length)
        block *= 2;
    return block;
}

/* Returns the next smaller class; 0: none. */
static uint64_t smaller(uint64_t length)
{
    uint64_t block = block_of(length) / 2;

    return block >= SMALLEST ? block : 0;
}

uint64_t rme_bounce_quota(const struct rme_peer *peer, uint64_t length)
{
    uint64_t room = rme_quota_room(peer, RME_QUOTA_BOUNCE);

    if (room < SMALLEST && peer->quota[RME_QUOTA_BOUNCE] == 0)
        room = SMALLEST;
    while (length > 0 && block_of(length) > room)
        length = smaller(length);
    return length;
}

bool rme_bounce_quota_frag(const struct rme_op *op, struct rme_frag *frag, uint64_t rest)
{
    struct rme *rme = op->peer->rme;
    const struct rme_rndv *r = &op->rndv;
    uint64_t length =
        min_u64(rest, min_u64(r->most, rme_plan_frag_size(rme->tuning.frag_size, true)));

    frag->length = rest;
    if (frag->memory == RME_MEMORY_PACK) {
        frag->length = rme_bounce_quota(op->peer, length);
        rme_count_add(rme, RME_C_PACK_CUT, frag->length != 0 && frag->length < length);
        if (frag->length == 0)
            frag->memory = RME_MEMORY_RESERVE;
    }
    if (frag->memory != RME_MEMORY_RESERVE)
        return true;
    frag->length = min_u64(rest, rme->move_state->reserve_size);
    if (op->state != RME_OP_MOVING)
        return true;
    frag->length = min_u64(frag->length, rme_remote_window_room(op, r->prepared));
    /* 0: rme_frag_next is called again after the next rme_rndv_open */
    return frag->length != 0;
}

bool rme_bounce_quota_cut(struct rme_op *op, uint64_t length)
{
    uint64_t block = smaller(length);

    if (block == 0)
        return false;
    op->rndv.most = block;
    rme_count(op->peer->rme, RME_C_PACK_CUT);
    return true;
}

void rme_bounce_quota_charge(struct rme_peer *peer, struct rme_frag *frag)
{
    frag->bounce_quota = block_of(frag->length);
    rme_quota_add(peer, RME_QUOTA_BOUNCE, frag->bounce_quota);
}

void rme_bounce_quota_uncharge(struct rme_peer *peer, struct rme_frag *frag)
{
    rme_quota_add(peer, RME_QUOTA_BOUNCE, -frag->bounce_quota);
    frag->bounce_quota = 0;
}
