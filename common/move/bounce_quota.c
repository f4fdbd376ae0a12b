/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Quotas of bounce buffers: bytes of zones that each peer may hold for copied messages [000
 * 5.2].
 *
 * Normal path.  Half of zone_bytes is divided by n + 1, where n is the number of peers that
 * hold blocks, including the asking one.  A peer that is alone with this process may use the
 * whole half.  A peer below its share gets the rest of the share: the fragment is cut to a
 * smaller block, down to SMALLEST.  Shares shrink as peers are added.  A peer above its new
 * share gets no block until its messages end.
 *
 * So peers whose messages end converge to equal shares, with one share free for the next peer.
 * If the first peers hold their blocks without bound, later ones still get blocks, at least the
 * first eight peers.  A peer without a block may always try SMALLEST.
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

static uint64_t left_of_share(const struct rme_peer *peer)
{
    const struct rme *rme = peer->rme;
    bool alone = rme->stats.value[RME_C_PEERS] <= 1;
    uint32_t have = rme->move_state->packers + (peer->packed == 0); /* with this peer */
    uint64_t share = rme->tuning.zone_bytes / 2 / (alone ? 1 : have + 1);

    if (share < SMALLEST)
        share = SMALLEST;
    return share > peer->packed ? share - peer->packed : 0;
}

uint64_t rme_bounce_quota(const struct rme_peer *peer, uint64_t length)
{
    uint64_t left = left_of_share(peer);

    while (length > 0 && block_of(length) > left)
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
    struct rme *rme = peer->rme;

    frag->bounce_quota = block_of(frag->length);
    rme->move_state->packers += peer->packed == 0;
    rme->stats.value[RME_C_PACK_BYTES] += frag->bounce_quota;
    peer->packed += frag->bounce_quota;
}

void rme_bounce_quota_uncharge(struct rme_peer *peer, struct rme_frag *frag)
{
    struct rme *rme = peer->rme;

    if (frag->bounce_quota == 0)
        return;
    rme->stats.value[RME_C_PACK_BYTES] -= frag->bounce_quota;
    peer->packed -= frag->bounce_quota;
    rme->move_state->packers -= peer->packed == 0;
    frag->bounce_quota = 0;
}
