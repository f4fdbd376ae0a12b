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

/* minimum length to which fragments are cut: the smallest class of zones in the paper */
#define SMALLEST (64u << 10)

uint64_t rme_bounce_block(uint64_t length)
{
    uint64_t block = RME_ZONE_MIN_BLOCK;

    while (block < length)
        block *= 2;
    return block;
}

uint64_t rme_bounce_smaller(uint64_t length)
{
    uint64_t block = rme_bounce_block(length) / 2;

    return block >= SMALLEST ? block : 0;
}

uint64_t rme_bounce_quota(const struct rme_peer *peer, uint64_t length)
{
    uint64_t room = rme_quota_room(peer, RME_QUOTA_BOUNCE);

    if (room < SMALLEST && peer->quota[RME_QUOTA_BOUNCE] == 0)
        room = SMALLEST;
    while (length > 0 && rme_bounce_block(length) > room)
        length = rme_bounce_smaller(length);
    return length;
}
