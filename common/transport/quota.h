/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Quotas: resources of this process that are held for peers.  quota.c states the rule. */
#ifndef RME_QUOTA_H
#define RME_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/table.h"

struct rme;
struct rme_peer;

enum rme_quota_id {
    RME_QUOTA_RX,      /* bytes of received messages that are kept (rx_account.c) */
    RME_QUOTA_BOUNCE,  /* bytes of bounce buffers (rndv/mem.c) */
    RME_QUOTA_RINGS,   /* bytes of rings (ring/rx.c) */
    RME_QUOTA_CREDITS, /* receive buffers beyond the first one of each link (grant.c) */
    RME_QUOTA_MWS,     /* memory windows of messages that are being moved (rndv/window.c) */
    RME_QUOTA_STAGING, /* bytes of staging buffers for rings of peers (ring/tx.c) */
    RME_QUOTAS,
};

struct rme_quota {
    uint64_t limit;   /* maximum of the sum; only of the process's quota */
    uint64_t used;    /* sum over all hosts, or over all peers of the host */
    uint32_t holders; /* number of these with a part of the sum */
};

/* Host of peers.  Each peer that this side connected to counts as a host of its own. */
struct rme_host {
    struct rme_keyed keyed; /* RME_BY_HOST */
    uint32_t npeer;         /* the host is freed with its last peer */
    struct rme_quota quota[RME_QUOTAS];
};

/* Returns the host of a peer that connected from `name`, "host:port", and counts one peer more.
 * Without a name, or without a port in it: a new host.  NULL: no memory. */
struct rme_host *rme_host_get(struct rme *rme, const char *name);
/* Counts one peer less. */
void rme_host_put(struct rme *rme, struct rme_host *host);

/* Adds `change`, which may be negative modulo 2^64, to what the peer holds. */
void rme_quota_add(struct rme_peer *peer, enum rme_quota_id id, uint64_t change);

/* Return how much more the peer may hold, and how much more all peers of its host may, by their
 * shares.  More may be left than that, or less. */
uint64_t rme_quota_room(const struct rme_peer *peer, enum rme_quota_id id);
uint64_t rme_quota_host_room(const struct rme_peer *peer, enum rme_quota_id id);
/* Returns true if the peer and its host hold their shares. */
bool rme_quota_is_over(const struct rme_peer *peer, enum rme_quota_id id);

static inline uint64_t rme_quota_rest(uint64_t limit, uint64_t used)
{
    return limit > used ? limit - used : 0;
}
/* Returns what is left for all peers. */
static inline uint64_t rme_quota_left(const struct rme_quota *quota)
{
    return rme_quota_rest(quota->limit, quota->used);
}

#endif
