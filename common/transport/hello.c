/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hello exchange before a link is up: versions, features and limits of two engines.  The
 * passive side validates the hello and accepts with its own, or rejects with a reason code. */

#include "plan/split.h"
#include "transport/peer.h"

void rme_peer_hello(const struct rme *rme, uint32_t credits, uint8_t out[RME_HELLO_SIZE])
{
    const struct rme_hello hello = {
        .version = RME_WIRE_VERSION,
        .version_min = RME_WIRE_VERSION_MIN,
        .flags = RME_HELLO_F_SHAPE | (rme->server ? RME_HELLO_F_SERVER : 0) |
                 (rme->caps->has_read ? RME_HELLO_F_READ : 0) |
                 (rme->tuning.early_cts ? RME_HELLO_F_EARLY_CTS : 0) |
                 (rme->caps->closes && rme->caps->mws != 0 ? RME_HELLO_F_CLOSES : 0) |
                 (rme->tuning.ring_bytes != 0 ? RME_HELLO_F_RING : 0),
        .incarnation = rme->incarnation,
        .rx_size = rme->tuning.rx_size,
        .credits = (uint16_t)credits,
        .eager_window = rme->tuning.eager_window[RME_EXPECTED],
        .unexpected_window = rme->tuning.eager_window[RME_UNEXPECTED_STREAM],
        .rts_max = rme->tuning.rts_max,
    };

    rme_hello_encode(&hello, out);
}

void rme_peer_agree(struct rme_peer *peer, const struct rme_hello *hello, uint32_t advertised)
{
    struct rme *rme = peer->rme;
    const uint32_t windows[RME_STREAMS] = {hello->eager_window, hello->unexpected_window};

    if (peer->hello.version != 0) /* else the first link */
        rme_count(rme, RME_C_RECONNECTS);
    if (peer->hello.version != 0 && hello->incarnation != peer->hello.incarnation)
        rme_log_put(rme->log, RME_LOG_INFO, "%s: the peer has restarted", rme_peer_name(peer));
    peer->hello = *hello;
    rme_credit_start(&peer->credit, advertised, hello->credits);
    for (int s = 0; s < RME_STREAMS; s++) {
        peer->eager_window[s] =
            (struct rme_window){.limit = (uint32_t)min_u64(windows[s], INT32_MAX)};
        peer->holding[s] = (struct rme_window){.limit = rme->tuning.eager_window[s]};
    }
    peer->tx_size = (uint32_t)min_u64(hello->rx_size, rme->tuning.rx_size);
    peer->eager_max[RME_UNEXPECTED_STREAM] = peer->tx_size - RME_WIRE_HEADER_SIZE;
    peer->eager_max[RME_EXPECTED] =
        rme_plan_eager_max(peer->eager_max[RME_UNEXPECTED_STREAM], rme->tuning.eager_max);
    rme->peer_ops->connected(peer);
    peer->tx_wait = false;
    peer->pong_due = false;
    peer->heard = true;
    peer->cancel_by = UINT64_MAX;
}

/* Accepts a request.  False: no memory, or the host of the peer holds its share. */
static bool accept_request(struct rme *rme, struct rme_link *link,
                           const struct rme_hello *hello)
{
    struct rme_addr *addr = rme_addr_new_passive(rme->ops->link_peer(link));
    struct rme_peer *peer = addr != NULL ? rme_peer_new(rme, addr) : NULL;
    uint32_t advertised = rme_grant_first(rme);
    uint8_t own[RME_HELLO_SIZE];

    if (peer == NULL) {
        if (addr != NULL)
            rme_addr_put(addr);
        return false;
    }
    rme_peer_agree(peer, hello, advertised);
    rme_peer_hello(rme, advertised, own);
    if (rme_quota_host_room(peer, RME_QUOTA_RX) == 0 ||
        rme->ops->link_accept(link, own, sizeof(own), advertised, peer) != 0) {
        rme_peer_destroy(peer);
        return false;
    }
    rme_quota_add(peer, RME_QUOTA_CREDITS, advertised - 1);
    peer->link = link;
    rme->nlink++;
    rme_peer_step(peer, RME_PEER_ACCEPTING);
    rme_peer_set_timer(peer, rme_now() + rme->tuning.connect_ms);
    return true;
}

void rme_peer_request(struct rme *rme, const struct rme_event *event)
{
    struct rme_reject why = {.reason = RME_REJECT_MEMORY};
    uint8_t data[RME_REJECT_SIZE];
    struct rme_hello hello;
    int error = rme_hello_decode(event->hello, event->hello_length, &hello, &why);

    /* one of the two sides must keep a reserve: credit.c */
    if (error == 0 && hello.credits < RME_HELLO_CREDITS_MIN)
        why = (struct rme_reject){.reason = RME_REJECT_CREDITS,
                                  .acceptable = RME_HELLO_CREDITS_MIN};
    else if (error == 0 && rme->closing)
        why.reason = RME_REJECT_CLOSING;
    else if (error == 0 && accept_request(rme, event->link, &hello))
        return;
    rme_log_put(rme->log, RME_LOG_WARN, "%s: connection refused: %s",
                rme->ops->link_peer(event->link), rme_reject_text(why.reason));
    rme_count(rme, RME_C_REJECTS);
    rme_reject_encode(&why, data);
    rme->ops->link_reject(event->link, data, sizeof(data));
}
