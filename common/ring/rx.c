/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rings for peers' messages: the receiver's side.  tx.c describes their use.
 *
 * Grant.  The second RTS of a peer whose message would have fitted a ring makes one: a mapping
 * of its own, registered for remote writes only.  On fabrics with memory windows the ring is
 * then bound for this peer alone, and GRANT carries its address and rkey.  An immediate that
 * names a place in the ring is a message (operations have other names).  The peer manages the
 * places.  Each attempt to make a ring doubles the number of RTS that the next one needs,
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

#include "ring/ring.h"

#define WANTS_NEEDED_MAX (1u << 30)

struct rme_ring_rx {
    struct rme_ring_memory ring;
    struct list_head link;  /* in rme_rings.granted, until WITHDRAW is sent */
    bool recent;            /* granted or used since the last search for idle rings */
    struct rme_range range; /* the granted range; its `window` is NULL without memory windows */
};

uint64_t rme_ring_msg_max(const struct rme *rme, enum rme_stream stream, uint64_t segments)
{
    uint64_t most = rme_plan_ring_max(rme->limits, rme->tuning.ring_msg_max,
                                      rme->tuning.pack_threshold, segments);
    uint64_t room = min_u64(rme->tuning.ring_bytes, rme->caps->max_piece);

    room = room > RME_WIRE_RING_SIZE ? room - RME_WIRE_RING_SIZE : 0;
    most = stream == RME_EXPECTED ? min_u64(most, rme->tuning.eager_max) : RME_UNEXPECTED_MAX;
    return min_u64(most, room);
}

bool rme_ring_map(struct rme_ring_memory *ring, struct rme_peer *peer, enum rme_quota_id quota,
                  size_t size, unsigned access)
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

void rme_ring_unmap(struct rme_ring_memory *ring, enum rme_quota_id quota)
{
    rme_pin_dereg(&ring->peer->rme->pin, &ring->mr);
    munmap(ring->base, ring->size);
    rme_quota_add(ring->peer, quota, -(uint64_t)ring->size);
}

/* ---- Granting ---- */

/* Makes a ring that is open to the peer; NULL: impossible now. */
static struct rme_ring_rx *rx_new(struct rme_peer *peer)
{
    struct rme *rme = peer->rme;
    struct rme_ring_rx *rx = calloc(1, sizeof(*rx));

    if (rx == NULL || !rme_ring_map(&rx->ring, peer, RME_QUOTA_RINGS, rme->tuning.ring_bytes,
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
        rme_ring_unmap(&rx->ring, RME_QUOTA_RINGS);
        free(rx);
        return NULL;
    }
    rme->offered += rme->caps->mws != 0;
    return rx;
}

void rme_ring_rx_free(struct rme_peer *peer)
{
    struct rme_ring_rx *rx = peer->ring->rx;

    if (rx == NULL)
        return;
    peer->rme->offered -= peer->rme->caps->mws != 0;
    peer->ring->rx = NULL;
    peer->ring->granted = false;
    peer->credit.ring_due = 0;
    list_del_init(&rx->link);
    rme_ring_unmap(&rx->ring, RME_QUOTA_RINGS);
    free(rx);
}

void rme_ring_describe(struct rme_peer *peer, struct rme_wire_message *message, void *tx)
{
    const struct rme_ring_rx *rx = peer->ring->rx;

    peer->ring->granted = true;
    peer->credit.ring_due = (uint32_t)(rx->ring.size / 2);
    message->nsegment = 1;
    rme_wire_put_segment(
        tx, RME_WIRE_CREDIT, 0,
        &(struct rme_wire_segment){(uintptr_t)rx->range.base, rx->range.key, rx->range.length});
}

void rme_ring_wants_restart(struct rme_ring *ring)
{
    ring->wants = 0;
    ring->wants_needed = 2;
}

/* Counts an RTS; true: an attempt to grant a ring is due, and the next one is after twice as
 * many RTS. */
static bool attempt_due(struct rme_ring *ring)
{
    if (++ring->wants < ring->wants_needed)
        return false;
    ring->wants = 0;
    if (ring->wants_needed < WANTS_NEEDED_MAX)
        ring->wants_needed *= 2;
    return true;
}

void rme_ring_wanted(struct rme_peer *peer, uint64_t size, uint64_t segments)
{
    struct rme_ring *ring = peer->ring;
    struct rme *rme = peer->rme;

    if (ring->rx != NULL || size <= peer->eager_max[RME_EXPECTED] ||
        size > rme_ring_msg_max(rme, RME_EXPECTED, segments) ||
        (peer->hello.flags & RME_HELLO_F_RING) == 0 || peer->state != RME_PEER_UP ||
        !attempt_due(ring))
        return;
    ring->rx = rx_new(peer);
    if (ring->rx == NULL)
        return;
    ring->rx->recent = true;
    list_add_tail(&ring->rx->link, &rme->rings->granted);
    rme_count(rme, RME_C_RING_GRANTS);
    rme_ring_queue_credit(peer, RME_RING_GRANT);
}

/* ---- Withdrawing ---- */

uint64_t rme_ring_idle_due(const struct rme *rme)
{
    return rme->tuning.idle_ms == 0 || list_empty(&rme->rings->granted)
               ? UINT64_MAX
               : rme->rings->idle_checked_at + rme->tuning.idle_ms;
}

void rme_ring_withdraw_idle(struct rme *rme, uint64_t now)
{
    struct rme_ring_rx *rx, *next;

    if (now < rme_ring_idle_due(rme))
        return;
    rme->rings->idle_checked_at = now;
    list_for_each_safe(rx, &rme->rings->granted, link, next) {
        if (!rx->recent && rx->ring.peer->state == RME_PEER_UP) {
            list_del_init(&rx->link);
            rme_count(rme, RME_C_RING_WITHDRAWN);
            rme_ring_queue_credit(rx->ring.peer, RME_RING_WITHDRAW);
        }
        rx->recent = false;
    }
}

/* ---- Messages in it ---- */

int rme_ring_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message)
{
    size_t offset = (size_t)(imm - RME_WIRE_RING_NAME) * RME_WIRE_RING_ALIGN;
    struct rme_ring *ring = peer->ring;
    const struct rme_ring_memory *memory;
    int error;

    if (imm < RME_WIRE_RING_NAME || !ring->granted)
        return -ENOENT;
    memory = &ring->rx->ring;
    error = rme_wire_decode_ring(memory->base + offset,
                                 offset < memory->size ? memory->size - offset : 0, message);
    if (error != 0)
        return error;
    rme_peer_count(peer, RME_C_RECVS_RING, 1);
    peer->credit.ring_bytes += (uint32_t)message->payload_length + RME_WIRE_RING_SIZE;
    rme_ring_wants_restart(ring);
    ring->rx->recent = true;
    return 0;
}

/* ---- The end ---- */

void rme_ring_released(struct rme_peer *peer)
{
    struct rme_ring_rx *rx = peer->ring->rx;

    if (!rme_ring_is_granted(peer)) {
        rme_peer_protocol_error(peer, "return of memory that was not granted");
        return;
    }
    peer->ring->granted = false;
    peer->credit.ring_due = 0;
    peer->ring->due[RME_RING_WITHDRAW] = false;
    if (peer->rme->caps->mws == 0) {
        rme_ring_rx_free(peer);
        return;
    }
    list_del_init(&rx->link);
    peer->rme->pending |= RME_PENDING_FLUSH;
    if (peer->rme->ops->mw_invalidate(peer->link, &rx->range, 1, rx))
        rme_ring_rx_free(peer); /* a message of the peer has closed it */
}

bool rme_ring_invalidated(struct rme_peer *peer, const void *closed)
{
    if (closed != peer->ring->rx)
        return false;
    rme_ring_rx_free(peer);
    return true;
}
