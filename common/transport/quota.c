/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Quotas of resources that are held for peers.  All peers together hold at most the limit.  A
 * host may take the rest of the first half of the limit, or hold a fair share of that half; a
 * peer may do the same with the share of its host.  doc/design/quotas.md has the exact rule,
 * the proof of its bounds, and the behaviour of a peer without room.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/split.h"
#include "transport/peer.h"

/* ---- Hosts ---- */

/* The key is a hash of the text before the port.  Peers cannot choose texts with equal keys,
 * because the factor is random. */
struct rme_host *rme_host_get(struct rme *rme, const char *name)
{
    const char *end = name != NULL ? strrchr(name, ':') : NULL;
    struct rme_keyed *keyed;
    struct rme_host *host;
    uint64_t key = 0;

    for (const char *at = name; at < end; at++)
        key = (key + (unsigned char)*at) * rme->table.factor;
    keyed = end != NULL ? rme_table_find(&rme->table, key, RME_BY_HOST) : NULL;
    if (keyed != NULL) {
        host = container_of(keyed, struct rme_host, keyed);
    } else {
        host = calloc(1, sizeof(*host));
        if (host == NULL)
            return NULL;
        if (end != NULL)
            rme_table_put(&rme->table, &host->keyed, key, RME_BY_HOST);
    }
    host->npeer++;
    return host;
}

void rme_host_put(struct rme *rme, struct rme_host *host)
{
    if (--host->npeer != 0)
        return;
    rme_table_drop(&rme->table, &host->keyed);
    free(host);
}

/* ---- The rule ---- */

/* Adds to a sum, one of whose parts was `had` before and is `has` now. */
static void add(struct rme_quota *quota, uint64_t had, uint64_t has)
{
    quota->used += has - had;
    if (had == 0 && has != 0)
        quota->holders++;
    else if (had != 0 && has == 0)
        quota->holders--;
}

void rme_quota_add(struct rme_peer *peer, enum rme_quota_id id, uint64_t change)
{
    static const enum rme_counter_id counter[RME_QUOTA_MWS] = {
        [RME_QUOTA_RX] = RME_C_RX_BUFFERED_BYTES,
        [RME_QUOTA_BOUNCE] = RME_C_PACK_BYTES,
        [RME_QUOTA_RINGS] = RME_C_RING_BYTES,
        [RME_QUOTA_CREDITS] = RME_C_CREDITS_LENT,
    };
    struct rme_quota *all = &peer->rme->quota[id], *of_host = &peer->host->quota[id];
    uint64_t had = of_host->used;

    add(of_host, peer->quota[id], peer->quota[id] + change);
    add(all, had, of_host->used);
    peer->quota[id] += change;
    if (id < RME_QUOTA_MWS)
        peer->rme->stats.value[counter[id]] = all->used;
}

/* Returns how much a holder of `has` may hold: a fair share of `part`, or what the others leave
 * of `half`, if that is more. */
static uint64_t share_of(uint64_t part, uint64_t half, const struct rme_quota *sum,
                         uint64_t has)
{
    uint64_t others = sum->used - has, fair = part / (sum->holders + (has == 0) + 1);

    return others < half && half - others > fair ? half - others : fair;
}

/* Returns how much the peer's host may hold. */
static uint64_t host_share(const struct rme_peer *peer, enum rme_quota_id id)
{
    const struct rme_quota *all = &peer->rme->quota[id];

    return share_of(all->limit / 2, all->limit / 2, all, peer->host->quota[id].used);
}

uint64_t rme_quota_host_room(const struct rme_peer *peer, enum rme_quota_id id)
{
    return rme_quota_rest(host_share(peer, id), peer->host->quota[id].used);
}

/* Returns how much the peer may hold. */
static uint64_t peer_share(const struct rme_peer *peer, enum rme_quota_id id)
{
    uint64_t share = host_share(peer, id);

    return peer->host->npeer <= 1
               ? share
               : share_of(share, share / 2, &peer->host->quota[id], peer->quota[id]);
}

uint64_t rme_quota_room(const struct rme_peer *peer, enum rme_quota_id id)
{
    uint64_t room = rme_quota_rest(peer_share(peer, id), peer->quota[id]);

    return peer->rme->npeer == peer->host->npeer ? room
                                                 : min_u64(room, rme_quota_host_room(peer, id));
}

bool rme_quota_is_over(const struct rme_peer *peer, enum rme_quota_id id)
{
    return rme_quota_host_room(peer, id) == 0 && peer->quota[id] >= peer_share(peer, id);
}
