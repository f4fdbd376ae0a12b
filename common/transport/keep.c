/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What peers make the engine keep: messages that no receive has met, descriptions of large
 * ones, unexpected messages that the host has not fetched and the ops that pull them, answers
 * that wait for credits.
 *
 * Each kind has a bound for a link, which the peer knows (windows and rts_max of our hello, its
 * credits): a link that exceeds it is a protocol error and ends, alone.  Of what a peer
 * describes, little is kept: when OFFERS_KEPT bytes (eager.c) are kept for it, the offers of
 * further descriptions are forgotten, and their messages are written instead of read.
 *
 * The process has a bound, too, which no peer knows: option kept_bytes.  From half of it on
 * nobody's promise of buffers grows, and a host that holds at least a fair share of that half
 * (one part of so many as there are hosts that hold anything, and one more) gets no further
 * link, and those of its links that hold a fair share of that share get no credits back but
 * the two that control takes.  They start nothing when the others are used up, and go on when
 * they hold less, or all do.  Whoever holds less than a fair share does not notice:  neither
 * other hosts, nor links of the same one.  The shares of that half add up to less than the
 * other half, so what is kept stays below the bound, but for what was promised when half of it
 * was reached.
 *
 * Why that does not block for ever.  What is kept goes when our host takes it, or with its
 * link.  It may take one message after the other, and the first may be one that is still to be
 * moved; or it waits for an answer to be sent before it takes anything.  For that the peer has
 * to answer, and to return our credits.  It can: who keeps a reserve starts nothing with two
 * credits, and whatever it uses of them comes back at once, by the proof of credit.c.  A link
 * that was promised too few for a reserve is promised them when it has to wait, whatever is
 * left of the pool: they are fewer bytes than what is kept for such a link, unless its host has
 * very many.  If the device has none left, or the peer starts more than it can with its reserve
 * kept (it breaks the rule), the link gets nothing back, and an operation with it may wait; a
 * cancel that waits too long ends the link (cancel_timeout_ms), and with it all that is kept
 * for it.  Credits that are withheld are returned later and in order, so what they tell is
 * late, not wrong.
 *
 * Memory goes back to the system when little is left of much, or few are left of many peers,
 * whose links needed it: malloc keeps what is freed between what is not.  The table of ops
 * gives back what none of them uses any more, at once.  malloc_trim walks over all of the
 * process's heap, with malloc's locks, which in a large host takes a tenth of a second: a
 * thread that has nothing to do calls it, zone_idle_ms later (wait.c), so that what peers do
 * decides neither when nor how often.  The little that is left may be all over the
 * memory of the much, if it is of another peer; so it is looked at again when little is left of
 * that, some times.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "transport/peer.h"

#define TRIM_FROM  (2u << 20) /* so much was kept … */
#define TRIM_PART  8          /* … and this part of it is left: memory goes back */
#define TRIM_PEERS 64u        /* likewise of so many peers */
#define TRIM_AGAIN 6u         /* TRIM_PART to this power is little of all that may be kept */

void rme_keep_init(struct rme_keep *keep, uint64_t limit)
{
    *keep = (struct rme_keep){.limit = limit};
    for (uint32_t i = 0; i < RME_HOST_CHAINS; i++)
        rme_node_init(&keep->hosts[i]);
}

/* ---- Who waits ---- */

/* Puts a node where `key` belongs, or takes it out: 0. */
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

/* A host's place: at the smallest share with which one of its peers need not wait (is_greedy).
 * What that depends on has changed. */
static void place_host(struct rme_keep *keep, struct rme_host *host)
{
    const struct rme_inode *first = least(&host->waiting);
    uint64_t of_host = host->kept + 1, of_peer;

    if (first == NULL) {
        put(&keep->waiting, &host->keep_wait, 0);
        return;
    }
    of_peer = (uint64_t)first->start * (host->users + 1);
    put(&keep->waiting, &host->keep_wait, of_host < of_peer ? of_host : of_peer);
}

/* A peer begins to wait, does so with more or less, or ends it. */
static void place_peer(struct rme_peer *peer, bool waits)
{
    put(&peer->host->waiting, &peer->keep_wait, waits ? peer->kept + 1 : 0);
    place_host(&peer->rme->keep, peer->host);
}

static bool is_waiting(const struct rme_peer *peer)
{
    return peer->keep_wait.end != 0;
}

/* ---- Hosts ---- */

/* The 16 bytes that tell hosts apart; false: none are known. */
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

static struct rme_host *count_peer(struct rme_keep *keep, struct rme_host *host)
{
    host->users++;
    place_host(keep, host);
    if (++keep->peers > keep->most_peers)
        keep->most_peers = keep->peers;
    return host;
}

struct rme_host *rme_keep_host(struct rme *rme, const struct rme_link *link)
{
    struct rme_keep *keep = &rme->keep;
    unsigned char address[16];
    bool known = address_of(rme, link, address);
    uint32_t sum = 0;
    struct rme_node *chain;
    struct rme_host *host;

    for (int i = 0; i < 16; i++)
        sum = sum * 31 + address[i];
    chain = &keep->hosts[sum % RME_HOST_CHAINS];
    for (struct rme_node *node = chain->next; known && node != chain; node = node->next) {
        host = rme_entry(node, struct rme_host, link);
        if (memcmp(host->address, address, 16) == 0)
            return count_peer(keep, host);
    }
    host = calloc(1, sizeof(*host));
    if (host == NULL)
        return NULL;
    memcpy(host->address, address, 16);
    rme_node_init(&host->link);
    if (known)
        rme_node_append(chain, &host->link);
    return count_peer(keep, host);
}

/* Memory of ops goes back when the lock is released. */
static void trim(struct rme *rme)
{
    rme->keep.trim = true;
    rme->pending |= RME_PENDING_UNLOCK;
}

void rme_keep_host_put(struct rme_peer *peer)
{
    struct rme_keep *keep = &peer->rme->keep;
    struct rme_host *host = peer->host;

    keep->peers--;
    if (keep->most_peers >= TRIM_PEERS && keep->peers <= keep->most_peers / TRIM_PART) {
        keep->most_peers = keep->peers;
        trim(peer->rme);
    }
    host->users--;
    place_peer(peer, false);
    if (host->users > 0)
        return;
    rme_node_remove(&host->link);
    free(host);
}

/* ---- The account ---- */

static uint64_t share(const struct rme_keep *keep)
{
    return keep->limit / 2 / (keep->keepers + 1);
}

bool rme_keep_full(const struct rme_keep *keep, const struct rme_host *host)
{
    return rme_keep_is_tight(keep) && host->kept >= share(keep);
}

static bool is_greedy(const struct rme_peer *peer)
{
    const struct rme_keep *keep = &peer->rme->keep;

    return rme_keep_full(keep, peer->host) &&
           peer->kept >= share(keep) / (peer->host->users + 1);
}

void rme_keep_judge(struct rme_peer *peer)
{
    rme_credit_withhold(&peer->credit, is_greedy(peer));
    if (!peer->credit.withholds || is_waiting(peer))
        return;
    place_peer(peer, true);
    rme_peer_kick(peer); /* it may lack a reserve */
}

uint32_t rme_keep_returns(struct rme_peer *peer)
{
    rme_keep_look(peer);
    return rme_credit_ready(&peer->credit);
}

/* Those that need not wait any more are pushed: their credits go back.  Nobody else is looked
 * at: a host comes up with the share that ends its wait, and its peer that holds least. */
static void let_go(struct rme_keep *keep)
{
    uintptr_t ends = rme_keep_is_tight(keep) ? (uintptr_t)share(keep) + 1 : UINTPTR_MAX;
    struct rme_inode *first;

    while ((first = rme_itree_overlap(&keep->waiting, 0, ends)) != NULL) {
        struct rme_host *host = rme_entry(first, struct rme_host, keep_wait);
        struct rme_peer *peer = rme_entry(least(&host->waiting), struct rme_peer, keep_wait);

        place_peer(peer, false);
        rme_credit_withhold(&peer->credit, false);
        rme_peer_kick(peer);
    }
}

/* So many bytes more are kept, or minus so many. */
static void count_bytes(struct rme_peer *peer, uint64_t change)
{
    struct rme_keep *keep = &peer->rme->keep;

    peer->kept += change;
    peer->host->kept += change;
    keep->kept += change;
    peer->rme->stats.value[RME_C_KEPT_BYTES] = keep->kept;
    if (is_waiting(peer))
        place_peer(peer, true);
    else if (least(&peer->host->waiting) != NULL)
        place_host(keep, peer->host);
}

void rme_keep(struct rme_peer *peer, uint64_t bytes)
{
    struct rme_keep *keep = &peer->rme->keep;

    keep->keepers += peer->host->kept == 0;
    count_bytes(peer, bytes);
    if (keep->kept > keep->peak)
        keep->peak = keep->kept;
}

void rme_unkeep(struct rme_peer *peer, uint64_t bytes)
{
    struct rme_keep *keep = &peer->rme->keep;

    count_bytes(peer, -bytes);
    keep->keepers -= peer->host->kept == 0;
    let_go(keep);
    if (keep->kept <= keep->peak / TRIM_PART && (keep->peak >= TRIM_FROM || keep->again > 0)) {
        keep->again = keep->peak >= TRIM_FROM ? TRIM_AGAIN : (uint8_t)(keep->again - 1);
        keep->peak = keep->kept;
        trim(peer->rme);
    }
}
