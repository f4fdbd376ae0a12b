/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The account of what peers make the engine keep.  keep.c tells what happens at its bounds. */
#ifndef RME_KEEP_H
#define RME_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/itree.h"
#include "base/list.h"

struct rme;
struct rme_link;
struct rme_peer;

/* Where peers come from; those that we connected ourselves are each alone. */
struct rme_host {
    struct rme_node link; /* in a chain of rme_keep.hosts */
    unsigned char address[16];
    uint32_t users;             /* peers */
    uint64_t kept;              /* bytes */
    struct rme_itree waiting;   /* peers of it that get no credits, by what is kept for them */
    struct rme_inode keep_wait; /* in rme_keep.waiting */
};

#define RME_HOST_CHAINS 256u

struct rme_keep {
    uint64_t limit;             /* bytes: option kept_bytes */
    uint64_t kept;              /* of all peers */
    uint64_t peak;              /* since memory was given back to the system */
    uint32_t keepers;           /* hosts for which something is kept */
    uint32_t peers, most_peers; /* now, and at most since memory was given back */
    bool trim;                  /* memory of ops should go back to malloc */
    bool heap;                  /* memory of malloc should go back to the system, */
    uint64_t heap_at;           /* at that time; 0: nobody has looked yet */
    uint8_t again;              /* so many times more as what was left then goes, too */
    struct rme_itree waiting;   /* hosts of which peers wait, by the share that ends it */
    struct rme_node hosts[RME_HOST_CHAINS];
};

void rme_keep_init(struct rme_keep *keep, uint64_t limit);

/* The host of a peer that comes by this link; `link` NULL: one of its own.  NULL: no memory. */
struct rme_host *rme_keep_host(struct rme *rme, const struct rme_link *link);
/* The peer ends: it waits no more, and its host has one less. */
void rme_keep_host_put(struct rme_peer *peer);

/* So many bytes more, or less, are kept for the peer. */
void rme_keep(struct rme_peer *peer, uint64_t bytes);
void rme_unkeep(struct rme_peer *peer, uint64_t bytes);

/* Does the host hold too much for another link? */
bool rme_keep_full(const struct rme_keep *keep, const struct rme_host *host);
/* Is so much kept that some must wait? */
static inline bool rme_keep_is_tight(const struct rme_keep *keep)
{
    return keep->kept >= keep->limit / 2;
}
/* May the peer's promise grow? */
static inline bool rme_keep_may_grow(const struct rme_keep *keep)
{
    return !rme_keep_is_tight(keep);
}
/* Must the peer wait for its credits, but for a few?  Its account says so from now on; if it
 * must, it is kicked when that is over. */
void rme_keep_judge(struct rme_peer *peer);
/* The same; credits that may go back to it now. */
uint32_t rme_keep_returns(struct rme_peer *peer);

#endif
