/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Receive-side accounting: memory held for peers.  rx_account.c describes the effect of its
 * limits. */
#ifndef RME_RX_ACCOUNT_H
#define RME_RX_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/itree.h"
#include "base/list.h"

struct rme;
struct rme_link;
struct rme_peer;

/* Host of peers.  Each peer that this side connected to counts as a host of its own. */
struct rme_host {
    struct list_head link; /* in a chain of rme_rx_account.hosts */
    unsigned char address[16];
    uint32_t users;           /* number of peers */
    uint64_t rx_buffered;     /* bytes accounted to all of them */
    struct rme_itree waiting; /* its peers whose credits are withheld, by accounted bytes */
    struct rme_inode throttle_wait; /* in rme_rx_account.waiting */
};

#define RME_HOST_CHAINS 256u

struct rme_rx_account {
    uint64_t limit;         /* bytes: option rx_buffered_bytes */
    uint64_t rx_buffered;   /* bytes accounted to all peers */
    uint32_t charged_hosts; /* hosts with accounted bytes */
    /* hosts with withheld credits, by the share that ends the withholding */
    struct rme_itree waiting;
    struct list_head hosts[RME_HOST_CHAINS];
};

void rme_rx_account_init(struct rme_rx_account *account, uint64_t limit);

/* Returns the host of a peer that connected by `link`, or a new host if `link` is NULL.  NULL:
 * no memory. */
struct rme_host *rme_rx_account_host(struct rme *rme, const struct rme_link *link);
/* Ends the accounting of a peer and removes the peer from its host. */
void rme_rx_account_host_put(struct rme_peer *peer);

/* Add bytes to the account of the peer, or subtract bytes. */
void rme_rx_charge(struct rme_peer *peer, uint64_t bytes);
void rme_rx_uncharge(struct rme_peer *peer, uint64_t bytes);

/* True if the host holds too much for another link. */
bool rme_rx_account_full(const struct rme_rx_account *account, const struct rme_host *host);
/* True if at least half of the limit is in use, so that credits are withheld. */
static inline bool rme_rx_account_is_tight(const struct rme_rx_account *account)
{
    return account->rx_buffered >= account->limit / 2;
}
/* True if the credits advertised to peers may grow. */
static inline bool rme_rx_account_may_grow(const struct rme_rx_account *account)
{
    return !rme_rx_account_is_tight(account);
}
/* Updates whether the peer's credits are withheld.  The peer is scheduled when withholding
 * begins and when it ends. */
void rme_rx_account_judge(struct rme_peer *peer);
/* Calls rme_rx_account_look() and returns the number of credits that may be returned now. */
uint32_t rme_rx_account_returns(struct rme_peer *peer);

#endif
