/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rings for peers' messages: the receiver's side.  eager_rdma.c describes their use.
 *
 * Grant.  The second RTS of a peer whose message would have fitted a ring makes one: a mapping
 * of its own, registered for remote writes only.  On fabrics with memory windows the ring is
 * then bound for this peer alone, and GRANT carries its address and rkey.  An immediate that
 * names a place in the ring is a message (operations have other names).  The peer manages the
 * places.  If no ring could be made, or a ring comes back unused, the next grant needs twice as
 * many messages.
 *
 * Sharing.  The bytes of all rings are a quota (transport/quota.c), option eager_ring_pool.  A
 * peer whose host has its share, or that finds nothing left, uses rendezvous.  Its messages
 * withdraw the least recently used ring if that was idle for IDLE_WANTS messages of others;
 * the bytes go to the peer that asks first after RELEASE.  A ring that was idle for
 * zone_idle_ms, or up to twice that, is withdrawn in any case, after which the peer frees its
 * staging buffer.
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

#include "proto/arrive.h"
#include "proto/message.h"
#include "proto/rndv.h"

/* Largest payload: doc/design/eager-ring.md has the measurements.  The larger limit is for
 * messages that a rendezvous would copy, too. */
#define MESSAGE_MOST (32u << 10)
#define COPIED_MOST  (64u << 10)
/* a ring is idle after this many messages of ring size of other peers, and none of its own */
#define IDLE_WANTS 256u
#define PAGE       4096u

/* States of a ring, in order. */
enum rx_state {
    RX_MADE,      /* GRANT is queued */
    RX_GRANTED,   /* the peer may use it */
    RX_WITHDRAWN, /* likewise; WITHDRAW is queued or sent */
    RX_CLOSING,   /* released by the peer; its memory window is being invalidated */
};

struct rme_eager_rdma_rx {
    struct rme_peer *peer;
    struct list_head link;      /* in the pool's rings, while GRANTED */
    struct rme_control control; /* GRANT, WITHDRAW */
    uint8_t state;
    bool used, open;
    uint32_t used_at; /* the pool's clock */
    struct rme_eager_rdma_memory memory;
    struct rme_range range; /* the granted range; its `window` is NULL without memory windows */
};

uint64_t rme_eager_rdma_most(const struct rme *rme, enum rme_stream stream, bool copied)
{
    uint64_t most = copied && rme->tuning.pack_threshold > MESSAGE_MOST
                        ? min_u64(COPIED_MOST, rme->tuning.pack_threshold) - 1
                        : MESSAGE_MOST;
    uint64_t room = min_u64(rme->tuning.eager_ring_bytes, rme->caps->max_piece);

    room = room > RME_WIRE_RING_SIZE ? room - RME_WIRE_RING_SIZE : 0;
    most = stream == RME_EXPECTED ? min_u64(most, rme->tuning.eager_max) : RME_UNEXPECTED_MAX;
    return min_u64(most, room);
}

static struct rme_eager_rdma_pool *pool_of(const struct rme *rme)
{
    return &rme->protocols->eager_rdma;
}

bool rme_eager_rdma_map(struct rme *rme, struct rme_eager_rdma_memory *memory, size_t size,
                        unsigned access)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return false;
    /* a forked child must not share pages that the device writes to */
    (void)madvise(base, size, MADV_DONTFORK);
    if (rme_pin_try(&rme->pin, base, size, access, &memory->mr) != 0) {
        munmap(base, size);
        return false;
    }
    memory->base = base;
    memory->size = size;
    return true;
}

void rme_eager_rdma_unmap(struct rme *rme, struct rme_eager_rdma_memory *memory)
{
    rme_pin_dereg(&rme->pin, &memory->mr);
    munmap(memory->base, memory->size);
}

/* Frees a ring that no peer can access any more. */
static void rx_free(struct rme_eager_rdma_rx *rx)
{
    struct rme *rme = rx->peer->rme;

    rme->offered -= rx->open;
    rx->peer->proto->eager_rdma.rx = NULL;
    list_del_init(&rx->link);
    list_del_init(&rx->control.link);
    rme_eager_rdma_unmap(rme, &rx->memory);
    rme_quota_add(rx->peer, RME_QUOTA_RINGS, -(uint64_t)rx->memory.size);
    free(rx);
}

/* Lets the next grant to this peer need twice as many messages. */
static void put_off(struct rme_eager_rdma *eager_rdma)
{
    if (eager_rdma->needs <= UINT32_MAX / 2)
        eager_rdma->needs *= 2;
}

/* ---- Granting ---- */

/* Opens the ring to the peer.  False: no memory window is free, or the link has failed. */
static bool rx_open(struct rme_peer *peer, struct rme_eager_rdma_rx *rx)
{
    struct rme *rme = peer->rme;
    int error;

    rx->range = (struct rme_range){.base = rx->memory.base,
                                   .length = rx->memory.size,
                                   .rkey = rx->memory.mr.rkey,
                                   .key = rme_peer_key(peer, rx->memory.mr.rkey)};
    if (rme->caps->mws == 0)
        return true;
    if (rme->offered + 1 > rme->caps->mws / 2)
        return false;
    error = rme->ops->mw_bind(peer->link, &rx->range, 1, RME_ACCESS_REMOTE_WRITE);
    if (error != 0 && error != -EAGAIN)
        rme_peer_fail(peer, error, "a memory window for the peer cannot be opened");
    rx->open = error == 0;
    rme->offered += rx->open;
    return rx->open;
}

/* Puts the open ring into GRANT. */
static void put_grant(struct rme_peer *peer, struct rme_eager_rdma_rx *rx, void *tx)
{
    struct rme_eager_rdma_pool *pool = pool_of(peer->rme);
    const struct rme_wire_segment segment = {(uintptr_t)rx->range.base, rx->range.key,
                                             rx->range.length};

    rme_wire_put_segment(tx, RME_WIRE_CREDIT, 0, &segment);
    rme_count(peer->rme, RME_C_EAGER_RING_GRANTS);
    rx->state = RX_GRANTED;
    rx->used_at = ++pool->clock;
    list_add_tail(&rx->link, &pool->rings);
    peer->credit.bulk_due = (uint32_t)(rx->memory.size / 2);
}

/* Sends GRANT or WITHDRAW. */
static bool send_ctrl(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_eager_rdma_rx *rx = container_of(control, struct rme_eager_rdma_rx, control);
    bool grants = rx->state == RX_MADE;
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    list_del_init(&control->link);
    if (grants && !rx_open(peer, rx)) {
        peer->rme->ops->tx_put(peer->link, tx);
        if (peer->state == RME_PEER_UP) {
            put_off(&peer->proto->eager_rdma);
            rx_free(rx);
        }
        return true;
    }
    rme_peer_header(peer, RME_WIRE_CREDIT, &message);
    message.flags |= grants ? RME_WIRE_F_GRANT : RME_WIRE_F_WITHDRAW;
    message.nsegment = grants;
    if (grants)
        put_grant(peer, rx, tx);
    else
        rme_count(peer->rme, RME_C_EAGER_RING_WITHDRAWN);
    rme_peer_send_control(peer, &message, tx);
    return true;
}

/* needs no `drop`: rme_eager_rdma_rx_left() removes the control before */
static const struct rme_control_kind rx_kind = {.send = send_ctrl};

static void queue_ctrl(struct rme_eager_rdma_rx *rx)
{
    list_add_tail(&rx->control.link, &rx->peer->control);
    rme_peer_schedule(rx->peer);
}

static void make(struct rme_peer *peer, size_t bytes)
{
    struct rme_eager_rdma *eager_rdma = &peer->proto->eager_rdma;
    struct rme_eager_rdma_rx *rx = calloc(1, sizeof(*rx));

    eager_rdma->wants = 0;
    if (rx == NULL ||
        !rme_eager_rdma_map(peer->rme, &rx->memory, bytes, RME_ACCESS_REMOTE_WRITE)) {
        put_off(eager_rdma);
        free(rx);
        return;
    }
    rme_quota_add(peer, RME_QUOTA_RINGS, bytes);
    list_init(&rx->link);
    list_init(&rx->control.link);
    rx->control.kind = &rx_kind;
    rx->peer = peer;
    eager_rdma->rx = rx;
    queue_ctrl(rx);
}

/* ---- Sharing ---- */

/* Withdraws the least recently used ring if it was not used since `mark`.  False: none. */
static bool withdraw_unused(struct rme_eager_rdma_pool *pool, uint32_t mark)
{
    struct rme_eager_rdma_rx *rx;

    if (list_empty(&pool->rings))
        return false;
    rx = container_of(pool->rings.next, struct rme_eager_rdma_rx, link);
    if ((int32_t)(rx->used_at - mark) > 0)
        return false;
    list_del_init(&rx->link);
    rx->state = RX_WITHDRAWN;
    queue_ctrl(rx);
    return true;
}

uint64_t rme_eager_rdma_look_at(const struct rme *rme)
{
    const struct rme_eager_rdma_pool *pool = pool_of(rme);

    return rme->tuning.idle_ms == 0 || list_empty(&pool->rings)
               ? UINT64_MAX
               : pool->looked_at + rme->tuning.idle_ms;
}

void rme_eager_rdma_look(struct rme *rme, uint64_t now)
{
    struct rme_eager_rdma_pool *pool = pool_of(rme);

    if (now < rme_eager_rdma_look_at(rme))
        return;
    while (withdraw_unused(pool, pool->looked_clock))
        continue;
    pool->looked_at = now;
    pool->looked_clock = pool->clock;
}

/* Does the quota permit a ring of this size?  A host's first one needs no share. */
static bool may_make(const struct rme_peer *peer, uint64_t bytes)
{
    return bytes <= rme_quota_left(&peer->rme->quota[RME_QUOTA_RINGS]) &&
           (peer->host->quota[RME_QUOTA_RINGS].used == 0 ||
            bytes <= rme_quota_host_room(peer, RME_QUOTA_RINGS));
}

void rme_eager_rdma_wanted(struct rme_peer *peer, uint64_t size)
{
    struct rme *rme = peer->rme;
    struct rme_eager_rdma_pool *pool = pool_of(rme);
    struct rme_eager_rdma *eager_rdma = &peer->proto->eager_rdma;
    size_t bytes = ((size_t)rme->tuning.eager_ring_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);

    if (bytes == 0 || (peer->hello.flags & RME_HELLO_F_EAGER_RDMA) == 0 ||
        peer->state != RME_PEER_UP || size > rme_eager_rdma_most(rme, RME_EXPECTED, true) ||
        size <= peer->eager_max[RME_EXPECTED] || bytes > rme->tuning.eager_ring_pool)
        return;
    pool->clock++;
    if (eager_rdma->rx != NULL || ++eager_rdma->wants < eager_rdma->needs)
        return;
    if (may_make(peer, bytes))
        make(peer, bytes);
    else
        (void)withdraw_unused(pool, pool->clock - IDLE_WANTS);
}

/* ---- Messages in it ---- */

static bool is_granted(const struct rme_eager_rdma_rx *rx)
{
    return rx != NULL && (rx->state == RX_GRANTED || rx->state == RX_WITHDRAWN);
}

bool rme_eager_rdma_named(const struct rme_peer *peer, uint32_t imm)
{
    return imm >= RME_WIRE_RING_NAME && is_granted(peer->proto->eager_rdma.rx);
}

int rme_eager_rdma_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message)
{
    const struct rme_eager_rdma_memory *memory = &peer->proto->eager_rdma.rx->memory;
    size_t offset = (size_t)(imm - RME_WIRE_RING_NAME) * RME_WIRE_RING_ALIGN;

    return rme_wire_decode_ring(memory->base + offset,
                                offset < memory->size ? memory->size - offset : 0, message);
}

uint64_t rme_eager_rdma_given(const struct rme_peer *peer)
{
    const struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    return is_granted(rx) ? rx->memory.size : 0;
}

void rme_eager_rdma_took(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_eager_rdma_pool *pool = pool_of(peer->rme);
    struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    rme_peer_count(peer, RME_C_RECVS_EAGER_RDMA, 1);
    peer->credit.bulk += (uint32_t)message->payload_length + RME_WIRE_RING_SIZE;
    if (!is_granted(rx))
        return;
    rx->used = true;
    rx->used_at = ++pool->clock;
    if (rx->state == RX_GRANTED) {
        list_del_init(&rx->link);
        list_add_tail(&rx->link, &pool->rings);
    }
}

/* ---- The end ---- */

void rme_eager_rdma_released(struct rme_peer *peer)
{
    struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    if (!is_granted(rx)) {
        rme_peer_protocol_error(peer, "return of memory that was not granted");
        return;
    }
    if (rx->used)
        peer->proto->eager_rdma.needs = RME_EAGER_RDMA_WANTS;
    else
        put_off(&peer->proto->eager_rdma);
    peer->credit.bulk_due = 0;
    list_del_init(&rx->link);
    list_del_init(&rx->control.link);
    if (!rx->open) {
        rx_free(rx);
        return;
    }
    rx->state = RX_CLOSING;
    peer->rme->ops->mw_invalidate(peer->link, &rx->range, 1, rx);
    peer->rme->pending |= RME_PENDING_FLUSH;
}

bool rme_eager_rdma_closed(struct rme_peer *peer, const void *closed)
{
    struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    if (rx == NULL || closed != rx)
        return false;
    rx_free(rx);
    return true;
}

void rme_eager_rdma_rx_left(struct rme_peer *peer)
{
    struct rme_eager_rdma_rx *rx = peer->proto->eager_rdma.rx;

    if (rx == NULL)
        return;
    list_del_init(&rx->link);
    list_del_init(&rx->control.link);
}

void rme_eager_rdma_rx_down(struct rme_peer *peer)
{
    if (peer->proto->eager_rdma.rx != NULL)
        rx_free(peer->proto->eager_rdma.rx);
}
