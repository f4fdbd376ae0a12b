/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Per-peer accounting of receive-side memory: unmatched eager messages, descriptions of large
 * messages (RTS), undelivered unexpected messages and the operations that pull them, and
 * replies that wait for credits.
 *
 * Each kind has a limit per link, which the peer knows (windows and rts_max of the hello;
 * credits).  A violation is a protocol error, which ends that link alone.  Descriptions are
 * small: when OFFERS_KEPT bytes (eager.c) are accounted to a peer, the offers of further
 * descriptions are dropped, and their messages are written instead of read.
 *
 * The process has a limit as well, which no peer knows: option rx_buffered_bytes.  From half of
 * it on the following rules hold:
 *
 * - Credits advertised to peers do not grow.
 * - A host with a fair share of that half (divided by the number of hosts that hold anything,
 *   plus one) gets no further link.
 * - Of the links of such a host, those with a fair share of that share (divided by the number
 *   of peers of the host, plus one) get no credits back but the two that control messages need.
 *   Such a link starts nothing when the other credits are used up, and continues when the link,
 *   or all links together, hold less.
 *
 * No credits are withheld from a link with less than its fair share, or of another host.  The
 * shares of that half add up to less than the other half, so the memory stays below the limit,
 * except for credits advertised before half of the limit was reached.
 *
 * No deadlock.  Memory is released when this side's host takes the messages, or at the end of
 * the link.  This host may take one message after the other, and the first one may still have
 * to be moved; or this host may wait for a reply to be sent.  For both, the peer has to answer
 * and to return credits of this side.  The peer can: a peer that keeps a reserve starts nothing
 * with two credits, and the credits that it uses come back at once, by the proof of credit.c.
 * A link that was advertised too few credits for a reserve is advertised them when withholding
 * begins, even if the pool is empty: their buffers are fewer bytes than are accounted to such a
 * link, unless its host has very many links.  If the device has no buffers left, or if the peer
 * breaks the rule and starts more than its reserve permits, the link gets nothing back, and an
 * operation with it may block.  A cancel that waits too long ends the link (cancel_ms),
 * and releases everything accounted to the link.  Withheld credits are returned later and in
 * order, so that the acknowledgements are late but correct.
 *
 * Memory that malloc has freed stays with the process for the next flood (removed.md).
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "transport/peer.h"

void rme_rx_account_init(struct rme_rx_account *account, uint64_t limit)
{
    *account = (struct rme_rx_account){.limit = limit};
    for (uint32_t i = 0; i < RME_HOST_CHAINS; i++)
        list_init(&account->hosts[i]);
}

/* ---- Withheld peers ---- */

/* Inserts or moves a node to `key`; removes the node if `key` is 0. */
static void put(struct rme_itree *tree, struct rme_inode *node, uint64_t key)
{
    if (node->end != 0)
        rme_itree_remove(tree, node);
    node->start = (uintptr_t)key;
    node->end = key == 0 ? 0 : (uintptr_t)key + 1;
    if (key != 0)
        rme_itree_insert(tree, node);
}

static struct rme_inode *least(const struct rme_itree *tree)
{
    return rme_itree_overlap(tree, 0, UINTPTR_MAX);
}

/* Sorts a host by the smallest share with which one of its peers is not withheld
 * (is_over_share), after a change of the host or its peers. */
static void place_host(struct rme_rx_account *account, struct rme_host *host)
{
    const struct rme_inode *first = least(&host->waiting);
    uint64_t of_host = host->rx_buffered + 1, of_peer;

    if (first == NULL) {
        put(&account->waiting, &host->throttle_wait, 0);
        return;
    }
    of_peer = (uint64_t)first->start * (host->users + 1);
    put(&account->waiting, &host->throttle_wait, of_host < of_peer ? of_host : of_peer);
}

/* Inserts, moves or removes a peer in the order of withheld peers. */
static void place_peer(struct rme_peer *peer, bool waits)
{
    put(&peer->host->waiting, &peer->throttle_wait, waits ? peer->rx_buffered + 1 : 0);
    place_host(&peer->rme->rx_account, peer->host);
}

static bool is_waiting(const struct rme_peer *peer)
{
    return peer->throttle_wait.end != 0;
}

/* ---- Hosts ---- */

/* Writes the 16 bytes that identify a host; false: unknown. */
static bool address_of(const struct rme *rme, const struct rme_link *link,
                       unsigned char out[16])
{
    const struct sockaddr *from = link != NULL ? rme->ops->link_sockaddr(link) : NULL;
    uint64_t number;

    memset(out, 0, 16);
    if (from != NULL && from->sa_family == AF_INET) {
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
        return true;
    }
    if (from != NULL && from->sa_family == AF_INET6) {
        memcpy(out, ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr.s6_addr, 16);
        return true;
    }
    if (from != NULL || link == NULL || rme->ops->link_host == NULL)
        return false;
    number = rme->ops->link_host(link);
    memcpy(out, &number, sizeof(number));
    return true;
}

static struct rme_host *count_peer(struct rme_rx_account *account, struct rme_host *host)
{
    host->users++;
    place_host(account, host);
    return host;
}

struct rme_host *rme_rx_account_host(struct rme *rme, const struct rme_link *link)
{
    struct rme_rx_account *account = &rme->rx_account;
    unsigned char address[16];
    bool known = address_of(rme, link, address);
    uint32_t sum = 0;
    struct list_head *chain;
    struct rme_host *host;

    for (int i = 0; i < 16; i++)
        sum = sum * 31 + address[i];
    chain = &account->hosts[sum % RME_HOST_CHAINS];
    for (struct list_head *node = chain->next; known && node != chain; node = node->next) {
        host = container_of(node, struct rme_host, link);
        if (memcmp(host->address, address, 16) == 0)
            return count_peer(account, host);
    }
    host = calloc(1, sizeof(*host));
    if (host == NULL)
        return NULL;
    memcpy(host->address, address, 16);
    list_init(&host->link);
    if (known)
        list_add_tail(&host->link, chain);
    return count_peer(account, host);
}

void rme_rx_account_host_put(struct rme_peer *peer)
{
    struct rme_host *host = peer->host;

    host->users--;
    place_peer(peer, false);
    if (host->users > 0)
        return;
    list_del_init(&host->link);
    free(host);
}

/* ---- The account ---- */

static uint64_t share(const struct rme_rx_account *account)
{
    return account->limit / 2 / (account->charged_hosts + 1);
}

bool rme_rx_account_full(const struct rme_rx_account *account, const struct rme_host *host)
{
    return rme_rx_account_is_tight(account) && host->rx_buffered >= share(account);
}

static bool is_over_share(const struct rme_peer *peer)
{
    const struct rme_rx_account *account = &peer->rme->rx_account;

    return rme_rx_account_full(account, peer->host) &&
           peer->rx_buffered >= share(account) / (peer->host->users + 1);
}

void rme_rx_account_judge(struct rme_peer *peer)
{
    rme_credit_throttle(&peer->credit, is_over_share(peer));
    if (!peer->credit.throttled || is_waiting(peer))
        return;
    place_peer(peer, true);
    rme_peer_schedule(peer); /* a reserve may have to be advertised */
}

uint32_t rme_rx_account_returns(struct rme_peer *peer)
{
    rme_rx_account_look(peer);
    return rme_credit_ready(&peer->credit);
}

/*
 * Ends withholding for all peers below the current share, and schedules them to return their
 * credits.  Visits no other peers: the order of hosts yields the share that ends withholding,
 * and the order of a host's peers the one that holds least.
 */
static void let_go(struct rme_rx_account *account)
{
    uintptr_t ends =
        rme_rx_account_is_tight(account) ? (uintptr_t)share(account) + 1 : UINTPTR_MAX;
    struct rme_inode *first;

    while ((first = rme_itree_overlap(&account->waiting, 0, ends)) != NULL) {
        struct rme_host *host = container_of(first, struct rme_host, throttle_wait);
        struct rme_peer *peer =
            container_of(least(&host->waiting), struct rme_peer, throttle_wait);

        place_peer(peer, false);
        rme_credit_throttle(&peer->credit, false);
        rme_peer_schedule(peer);
    }
}

/* Adds `change`, which may be negative modulo 2^64, to all sums. */
static void count_bytes(struct rme_peer *peer, uint64_t change)
{
    struct rme_rx_account *account = &peer->rme->rx_account;

    peer->rx_buffered += change;
    peer->host->rx_buffered += change;
    account->rx_buffered += change;
    peer->rme->stats.value[RME_C_RX_BUFFERED_BYTES] = account->rx_buffered;
    if (is_waiting(peer))
        place_peer(peer, true);
    else if (least(&peer->host->waiting) != NULL)
        place_host(account, peer->host);
}

void rme_rx_charge(struct rme_peer *peer, uint64_t bytes)
{
    struct rme_rx_account *account = &peer->rme->rx_account;

    account->charged_hosts += peer->host->rx_buffered == 0;
    count_bytes(peer, bytes);
}

void rme_rx_uncharge(struct rme_peer *peer, uint64_t bytes)
{
    struct rme_rx_account *account = &peer->rme->rx_account;

    count_bytes(peer, -bytes);
    account->charged_hosts -= peer->host->rx_buffered == 0;
    let_go(account);
}
