/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Receive-side accounting: memory held for peers.  keep.c describes the effect of its
 * limits. */
#ifndef RME_KEEP_H
#define RME_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/itree.h"
#include "base/list.h"

struct rme;
struct rme_link;
struct rme_peer;

/* Host of peers.  Each peer that this side connected to counts as a host of its own. */
struct rme_host {
    struct list_head link; /* in a chain of rme_keep.hosts */
    unsigned char address[16];
    uint32_t users;             /* number of peers */
    uint64_t kept;              /* bytes accounted to all of them */
    struct rme_itree waiting;   /* its peers whose credits are withheld, by accounted bytes */
    struct rme_inode keep_wait; /* in rme_keep.waiting */
};

#define RME_HOST_CHAINS 256u

struct rme_keep {
    uint64_t limit;   /* bytes: option kept_bytes */
    uint64_t kept;    /* bytes accounted to all peers */
    uint32_t keepers; /* hosts with accounted bytes */
    /* hosts with withheld credits, by the share that ends the withholding */
    struct rme_itree waiting;
    struct list_head hosts[RME_HOST_CHAINS];
};

void rme_keep_init(struct rme_keep *keep, uint64_t limit);

/* Returns the host of a peer that connected by `link`, or a new host if `link` is NULL.  NULL:
 * no memory. */
struct rme_host *rme_keep_host(struct rme *rme, const struct rme_link *link);
/* Ends the accounting of a peer and removes the peer from its host. */
void rme_keep_host_put(struct rme_peer *peer);

/* Add bytes to the account of the peer, or subtract bytes. */
void rme_keep(struct rme_peer *peer, uint64_t bytes);
void rme_unkeep(struct rme_peer *peer, uint64_t bytes);

/* True if the host holds too much for another link. */
bool rme_keep_full(const struct rme_keep *keep, const struct rme_host *host);
/* True if at least half of the limit is in use, so that credits are withheld. */
static inline bool rme_keep_is_tight(const struct rme_keep *keep)
{
    return keep->kept >= keep->limit / 2;
}
/* True if the credits promised to peers may grow. */
static inline bool rme_keep_may_grow(const struct rme_keep *keep)
{
    return !rme_keep_is_tight(keep);
}
/* Updates whether the peer's credits are withheld.  The peer is scheduled when withholding
 * begins and when it ends. */
void rme_keep_judge(struct rme_peer *peer);
/* Calls rme_keep_look() and returns the number of credits that may be returned now. */
uint32_t rme_keep_returns(struct rme_peer *peer);

#endif
