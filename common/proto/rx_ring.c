/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rings for peers' messages: the receiver's side.  eager_rdma.c describes their use.
 *
 * Grant.  The second RTS of a peer whose message would have fitted a ring makes one: a mapping
 * of its own, registered for remote writes only.  On fabrics with memory windows the ring is
 * then bound for this peer alone, and GRANT carries its address and rkey.  An immediate that
 * names a place in the ring is a message (operations have other names).  The peer manages the
 * places.  Each attempt to make a ring doubles the number of messages that the next one needs,
 * whether the quota, memory or windows did not suffice, or the ring was returned; a message in
 * a ring starts the count anew.
 *
 * Sharing.  The bytes of all rings are a quota (transport/quota.c), option eager_ring_pool.  A
 * peer without a ring uses rendezvous.  A ring that was not used for pool_idle_ms, or up to
 * twice that, is withdrawn, after which the peer frees its staging buffer, and the bytes go to
 * the peer that asks first after RELEASE.
 *
 * Untrusted peers.  A peer can write any bytes into its ring at any time.  The header and the
 * length of a message are copied before they are checked, the payload is only copied.  The
 * content counts as if it had arrived in a receive buffer: with the same windows and credits.
 * Without memory windows the rkey is valid for other peers as well, for the bytes of the ring
 * alone.
 *
 * The end.  RELEASE follows all messages of the ring, so no device writes to it when RELEASE is
 * processed: the ring is invalidated, deregistered and unmapped.  A peer that sends RELEASE
 * early harms only itself: its next write meets no registration and ends its link.  At the end
 * of the link the ring is unmapped when the link is down.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "proto/proto.h"

/* Largest payloads of messages that a rendezvous would copy, too, in one piece and of lists:
 * doc/design/eager-ring.md has the measurements. */
#define COPIED_MOST (64u << 10)
#define LIST_MOST   (32u << 10)

struct rme_eager_rdma_rx {
    struct rme_eager_ring ring;
    struct list_head link;  /* in rme_protocols.rings, until WITHDRAW is sent */
    bool recent;            /* granted or used since the last search for idle rings */
    struct rme_range range; /* the granted range; its `window` is NULL without memory windows */
};

static uint64_t most_copied(const struct rme *rme, uint64_t segments)
{
    const struct rme_pack_limit *list = &rme->limits->list;

    if (segments > 1)
        return min_u64(LIST_MOST, list->base + list->segment * (segments - 1));
    return segments == 1 && rme->tuning.pack_threshold != 0
               ? min_u64(COPIED_MOST, rme->tuning.pack_threshold) - 1
               : 0;
}

uint64_t rme_eager_rdma_most(const struct rme *rme, enum rme_stream stream, uint64_t segments)
{
    uint64_t copied = most_copied(rme, segments), most = rme->tuning.ring_most;
    uint64_t room = min_u64(rme->tuning.eager_ring_bytes, rme->caps->max_piece);

    room = room > RME_WIRE_RING_SIZE ? room - RME_WIRE_RING_SIZE : 0;
    if (most < copied)
        most = copied;
    most = stream == RME_EXPECTED ? min_u64(most, rme->tuning.eager_max) : RME_UNEXPECTED_MAX;
    return min_u64(most, room);
}

bool rme_eager_ring_map(struct rme_eager_ring *ring, struct rme_peer *peer,
                        enum rme_quota_id quota, size_t size, unsigned access)
{
    struct rme *rme = peer->rme;
    void *base;

    if (size > rme_quota_left(&rme->quota[quota]) ||
        (peer->host->quota[quota].used != 0 && size > rme_quota_host_room(peer, quota)))
        return false;
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return false;
    /* a forked child must not share pages that the device writes to */
    (void)madvise(base, size, MADV_DONTFORK);
    if (rme_pin_reg(&rme->pin, base, size, access, false, &ring->mr) != 0) {
        munmap(base, size);
        return false;
    }
    rme_quota_add(peer, quota, size);
    ring->peer = peer;
    ring->base = base;
    ring->size = size;
    return true;
}

void rme_eager_ring_unmap(struct rme_eager_ring *ring, enum rme_quota_id quota)
{
    rme_pin_dereg(&ring->peer->rme->pin, &ring->mr);
    munmap(ring->base, ring->size);
    rme_quota_add(ring->peer, quota, -(uint64_t)ring->size);
}

/* ---- Granting ---- */

/* Makes a ring that is open to the peer; NULL: impossible now. */
static struct rme_eager_rdma_rx *rx_new(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    struct rme_eager_rdma_rx *rx = calloc(1, sizeof(*rx));

    if (rx == NULL ||
        !rme_eager_ring_map(&rx->ring, peer, RME_QUOTA_RINGS, rme->tuning.eager_ring_bytes,
                            RME_ACCESS_REMOTE_WRITE)) {
        free(rx);
        return NULL;
    }
    rx->range = (struct rme_range){.base = rx->ring.base,
                                   .length = rx->ring.size,
                                   .rkey = rx->ring.mr.rkey,
                                   .key = rme_peer_key(peer, rx->ring.mr.rkey)};
    if (rme->caps->mws != 0 &&
        (rme->offered >= rme->caps->mws / 2 ||
         rme->ops->mw_bind(peer->link, &rx->range, 1, RME_ACCESS_REMOTE_WRITE) != 0)) {
        rme_eager_ring_unmap(&rx->ring, RME_QUOTA_RINGS);
        free(rx);
        return NULL;
    }
    rme->offered += rme->caps->mws != 0;
    return rx;
}

void rme_eager_rdma_rx_free(struct rme_peer *peer)
{
    struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    if (rx == NULL)
        return;
    peer->rme->offered -= peer->rme->caps->mws != 0;
    peer->proto->eager_rdma.rx = NULL;
    peer->credit.bulk_due = 0;
    list_del_init(&rx->link);
    rme_eager_ring_unmap(&rx->ring, RME_QUOTA_RINGS);
    free(rx);
}

void rme_eager_rdma_describe(struct rme_peer *peer, struct rme_wire_message *message, void *tx)
{
    const struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    peer->credit.bulk_due = (uint32_t)(rx->ring.size / 2);
    message->nsegment = 1;
    rme_wire_put_segment(
        tx, RME_WIRE_CREDIT, 0,
        &(struct rme_wire_segment){(uintptr_t)rx->range.base, rx->range.key, rx->range.length});
}

void rme_eager_rdma_wanted(struct rme_peer *peer, uint64_t size, uint64_t segments)
{
    struct rme_eager_rdma *eager_rdma = &peer->proto->eager_rdma;
    struct rme *rme = peer->rme;
    uint32_t wants;

    if (eager_rdma->rx != NULL || size <= peer->eager_max[RME_EXPECTED] ||
        size > rme_eager_rdma_most(rme, RME_EXPECTED, segments) ||
        (peer->hello.flags & RME_HELLO_F_EAGER_RDMA) == 0 || peer->state != RME_PEER_UP)
        return;
    wants = ++eager_rdma->wants + 2;
    if ((wants & (wants - 1)) != 0) /* 2, 6, 14, 30 ... are tried */
        return;
    eager_rdma->rx = rx_new(peer);
    if (eager_rdma->rx == NULL)
        return;
    eager_rdma->rx->recent = true;
    list_add_tail(&eager_rdma->rx->link, &rme->protocols->rings);
    rme_count(rme, RME_C_EAGER_RING_GRANTS);
    rme_eager_rdma_say(peer, RME_WIRE_F_GRANT);
}

/* ---- Withdrawing ---- */

uint64_t rme_eager_rdma_look_at(const struct rme *rme)
{
    return rme->tuning.idle_ms == 0 || list_empty(&rme->protocols->rings)
               ? UINT64_MAX
               : rme->protocols->rings_looked_at + rme->tuning.idle_ms;
}

void rme_eager_rdma_look(struct rme *rme, uint64_t now)
{
    struct list_head *rings = &rme->protocols->rings, *next;

    if (now < rme_eager_rdma_look_at(rme))
        return;
    rme->protocols->rings_looked_at = now;
    for (struct list_head *node = rings->next; node != rings; node = next) {
        struct rme_eager_rdma_rx *rx = container_of(node, struct rme_eager_rdma_rx, link);

        next = node->next;
        if (!rx->recent && rx->ring.peer->state == RME_PEER_UP) {
            list_del_init(&rx->link);
            rme_count(rme, RME_C_EAGER_RING_WITHDRAWN);
            rme_eager_rdma_say(rx->ring.peer, RME_WIRE_F_WITHDRAW);
        }
        rx->recent = false;
    }
}

/* ---- Messages in it ---- */

int rme_eager_rdma_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message)
{
    size_t offset = (size_t)(imm - RME_WIRE_RING_NAME) * RME_WIRE_RING_ALIGN;
    struct rme_eager_rdma *eager_rdma = &peer->proto->eager_rdma;
    const struct rme_eager_ring *ring;
    int error;

    if (imm < RME_WIRE_RING_NAME || !rme_eager_rdma_given(peer))
        return -ENOENT;
    ring = &eager_rdma->rx->ring;
    error = rme_wire_decode_ring(ring->base + offset,
                                 offset < ring->size ? ring->size - offset : 0, message);
    if (error != 0)
        return error;
    rme_peer_count(peer, RME_C_RECVS_EAGER_RDMA, 1);
    peer->credit.bulk += (uint32_t)message->payload_length + RME_WIRE_RING_SIZE;
    eager_rdma->wants = 0;
    eager_rdma->rx->recent = true;
    return 0;
}

/* ---- The end ---- */

void rme_eager_rdma_released(struct rme_peer *peer)
{
    struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    if (!rme_eager_rdma_given(peer)) {
        rme_peer_protocol_error(peer, "return of memory that was not granted");
        return;
    }
    peer->credit.bulk_due = 0;
    peer->proto->eager_rdma.due &= ~RME_WIRE_F_WITHDRAW;
    if (peer->rme->caps->mws == 0) {
        rme_eager_rdma_rx_free(peer);
        return;
    }
    list_del_init(&rx->link);
    peer->rme->pending |= RME_PENDING_FLUSH;
    if (peer->rme->ops->mw_invalidate(peer->link, &rx->range, 1, rx))
        rme_eager_rdma_rx_free(peer); /* a message of the peer has closed it */
}

bool rme_eager_rdma_closed(struct rme_peer *peer, const void *closed)
{
    if (closed != peer->proto->eager_rdma.rx)
        return false;
    rme_eager_rdma_rx_free(peer);
    return true;
}
