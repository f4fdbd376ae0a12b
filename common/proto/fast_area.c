/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Delegated buffers for peers' messages: an area for each peer that would use one, and none for
 * other peers.  fast.c describes their use.
 *
 * Normal path.  The second RTS of a peer whose message would have fitted an area requests one.
 * An area is a mapping of its own, registered for remote writes only; the registration runs
 * without the lock.  On fabrics with memory windows the area is then bound for this peer alone,
 * and GRANT carries its address and rkey.  An immediate that names a place in the area is a
 * message (operations have other names).  The peer manages the places.
 *
 * Sharing.  The option fast_pool bounds the bytes of all areas.  Requests beyond it queue and
 * are served in order: freed bytes go to the first request, unless its peer has sent no message
 * that would have fitted while IDLE_WANTS others were sent.  A queued request withdraws an
 * area: the least recently used one if it was idle during IDLE_WANTS such messages, otherwise
 * the oldest one if TENURE of them were sent since its grant.  So idle areas go to new peers,
 * and if all are busy they rotate slowly, regardless of the share that one peer sends; a peer
 * without an area uses rendezvous.  The measure is messages, not time.  A peer that sends no
 * such message holds no memory, and the area of a peer that has sent none for zone_idle_ms, or
 * up to twice that, is withdrawn, after which the peer frees its staging buffer.
 *
 * Back-off.  If an area could not be made, or comes back unused because the peer has no staging
 * buffer for it (fast_hold.c), the next grant needs twice as many messages each time.
 *
 * Untrusted peers.  A peer can write any bytes into its area at any time.  The header and the
 * length of a message are copied before they are checked, the payload is only copied.  The
 * content counts as if it had arrived in a receive buffer: with the same windows and credits.
 * Without memory windows the rkey is valid for other peers as well, for the bytes of the area
 * alone.
 *
 * The end.  RELEASE follows all messages of the area, so the area is unused when RELEASE is
 * processed; the area is invalidated, deregistered and unmapped.  Until then its bytes count.
 * When the link is down no device accesses the area.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "proto/arrive.h"
#include "proto/message.h"
#include "proto/rndv.h"

/* largest payload; larger copies cost too much on any device */
#define MESSAGE_MOST (64u << 10)
/* messages of a peer that would have fitted, before an area is granted */
#define WANTS 2u
/* such messages of others without one of the holder: the area is idle */
#define IDLE_WANTS 256u
#define TENURE     8192u /* such messages after which a busy area may be withdrawn */
#define IN_VAIN    7u    /* maximal number of times that WANTS is doubled */
#define PAGE       4096u

/* States of an area, in order. */
enum area_state {
    AREA_WANTED,    /* no memory yet: queued */
    AREA_MAKING,    /* being mapped and registered, without the lock */
    AREA_MADE,      /* GRANT is queued */
    AREA_GRANTED,   /* the peer may use it */
    AREA_WITHDRAWN, /* likewise; WITHDRAW is queued or sent */
    AREA_CLOSING,   /* released by the peer; its memory window is being invalidated */
};

struct rme_fast_area {
    struct rme_fast_job job;
    struct rme_node used;       /* in the pool's areas; WANTED: in its waiting */
    struct rme_node lent;       /* in the pool's list by time of grant */
    struct rme_control control; /* GRANT, WITHDRAW */
    struct rme_peer *peer;      /* NULL: the link ended while the area was made */
    uint8_t state;
    bool registered, leaving;
    /* the pool's clock; WANTED: used_at is the time of the last request */
    uint32_t granted_at, used_at;
    char *memory;
    size_t size;
    struct rme_mr mr;
    struct rme_range range; /* the granted range; its `window` is NULL without memory windows */
    bool open;
};

uint64_t rme_fast_most(const struct rme *rme, enum rme_stream stream)
{
    uint64_t most = stream == RME_EXPECTED ? rme_least(MESSAGE_MOST, rme->tuning.eager_max)
                                           : RME_UNEXPECTED_MAX;
    uint64_t room = rme_least(rme->tuning.fast_bytes, rme->caps->max_piece);

    room = room > RME_WIRE_FAST_SIZE ? room - RME_WIRE_FAST_SIZE : 0;
    return rme_least(most, room);
}

static struct rme_fast_pool *pool_of(const struct rme *rme)
{
    return &rme->protocols->fast;
}

static void count_bytes(struct rme *rme)
{
    rme->stats.value[RME_C_FAST_BYTES] = pool_of(rme)->bytes;
}

/* ---- Its memory ---- */

static void unmap(struct rme *rme, struct rme_fast_area *area)
{
    if (area->registered)
        rme_pin_dereg(&rme->pin, &area->mr);
    if (area->memory != NULL)
        munmap(area->memory, area->size);
    area->registered = false;
    area->memory = NULL;
}

static void map(struct rme *rme, struct rme_fast_area *area)
{
    void *memory =
        mmap(NULL, area->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return;
    area->memory = memory;
    /* a forked child must not share pages that the device writes to */
    (void)madvise(memory, area->size, MADV_DONTFORK);
    area->registered =
        rme_pin_try(&rme->pin, memory, area->size, RME_ACCESS_REMOTE_WRITE, &area->mr) == 0;
    if (!area->registered)
        unmap(rme, area);
}

static void serve(struct rme *rme);

static void run_unmap(struct rme *rme, struct rme_fast_job *job)
{
    struct rme_fast_area *area = rme_entry(job, struct rme_fast_area, job);

    pthread_mutex_unlock(&rme->lock);
    unmap(rme, area);
    rme_lock(rme);
    pool_of(rme)->bytes -= area->size;
    pool_of(rme)->leaving -= area->leaving;
    count_bytes(rme);
    free(area);
    serve(rme);
}

/* Removes the area from the pool's lists. */
static void delist(struct rme_fast_area *area)
{
    rme_node_remove(&area->used);
    rme_node_remove(&area->lent);
}

/* Frees an area that no peer can access any more. */
static void dispose(struct rme *rme, struct rme_fast_area *area)
{
    if (area->open)
        rme->offered--;
    area->open = false;
    if (area->peer != NULL)
        area->peer->talk->fast.given = NULL;
    area->peer = NULL;
    delist(area);
    rme_node_remove(&area->control.link);
    area->job.run = run_unmap;
    rme_node_append(&pool_of(rme)->jobs, &area->job.link);
    rme->pending |= RME_PENDING_SETTLE;
}

/* Back off before the next grant to this peer. */
static void put_off(struct rme_fast *fast)
{
    fast->wants = 0;
    if (fast->in_vain < IN_VAIN)
        fast->in_vain++;
}

/* Gives up an area that could not be allocated, registered or bound. */
static void refuse(struct rme *rme, struct rme_fast_area *area)
{
    if (area->peer != NULL)
        put_off(&area->peer->talk->fast);
    dispose(rme, area);
}

/* ---- Granting ---- */

/* Binds the area for the peer.  False: no memory window is free, or the link has failed. */
static bool open_area(struct rme_peer *peer, struct rme_fast_area *area)
{
    struct rme *rme = peer->rme;
    int error;

    area->range = (struct rme_range){.base = area->memory,
                                     .length = area->size,
                                     .rkey = area->mr.rkey,
                                     .key = rme_peer_key(peer, area->mr.rkey)};
    if (rme->caps->windows == 0)
        return true;
    if (rme->offered + 1 > rme->caps->windows / 2)
        return false;
    error = rme->ops->expose(peer->link, &area->range, 1, RME_ACCESS_REMOTE_WRITE);
    if (error != 0 && error != -EAGAIN)
        rme_peer_fail(peer, error, "a memory window for the peer cannot be opened");
    area->open = error == 0;
    rme->offered += area->open;
    return area->open;
}

static bool send_grant(struct rme_peer *peer, struct rme_fast_area *area)
{
    struct rme *rme = peer->rme;
    struct rme_wire_message message;
    void *tx = rme_peer_tx(peer, RME_CREDIT_CONTROL);

    if (tx == NULL)
        return false;
    rme_node_remove(&area->control.link);
    if (!open_area(peer, area)) {
        rme->ops->tx_put(peer->link, tx);
        if (peer->state == RME_PEER_UP)
            refuse(rme, area);
        return true;
    }
    rme_peer_header(peer, RME_WIRE_GRANT, &message);
    message.from = RME_FAST_FIRST_NAME;
    message.nsegment = 1;
    rme_wire_put_segment(tx, RME_WIRE_GRANT, 0,
                         &(const struct rme_wire_segment){(uintptr_t)area->range.base,
                                                          area->range.key, area->range.length});
    rme_count(rme, RME_C_FAST_GRANTS);
    rme_peer_send_control(peer, &message, tx);
    area->state = AREA_GRANTED;
    area->granted_at = area->used_at = ++pool_of(rme)->clock;
    rme_node_append(&pool_of(rme)->areas, &area->used);
    rme_node_append(&pool_of(rme)->lent, &area->lent);
    peer->credit.bulk_due = (uint32_t)(area->size / 2);
    return true;
}

static bool send_word(struct rme_peer *peer, struct rme_control *control)
{
    struct rme_fast_area *area = rme_entry(control, struct rme_fast_area, control);

    if (area->state == AREA_MADE)
        return send_grant(peer, area);
    if (!rme_peer_send_header(peer, RME_WIRE_WITHDRAW, RME_CREDIT_CONTROL))
        return false;
    rme_count(peer->rme, RME_C_FAST_WITHDRAWN);
    rme_node_remove(&control->link);
    return true;
}

/* needs no `drop`: rme_fast_area_left() removes the control before */
static const struct rme_control_kind area_kind = {.send = send_word};

static void say(struct rme_fast_area *area)
{
    rme_node_append(&area->peer->control, &area->control.link);
    rme_peer_kick(area->peer);
}

static void run_map(struct rme *rme, struct rme_fast_job *job)
{
    struct rme_fast_area *area = rme_entry(job, struct rme_fast_area, job);

    pthread_mutex_unlock(&rme->lock);
    map(rme, area);
    rme_lock(rme);
    if (area->peer == NULL || area->memory == NULL) {
        refuse(rme, area);
        return;
    }
    area->state = AREA_MADE;
    say(area);
}

static void make(struct rme *rme, struct rme_fast_area *area)
{
    struct rme_fast_pool *pool = pool_of(rme);

    rme_node_remove(&area->used);
    area->state = AREA_MAKING;
    area->job.run = run_map;
    rme_node_append(&pool->jobs, &area->job.link);
    rme->pending |= RME_PENDING_SETTLE;
    pool->bytes += area->size;
    count_bytes(rme);
}

/* ---- Sharing ---- */

/* Selects the area to withdraw; NULL: none is idle, and none was granted TENURE ago. */
static struct rme_fast_area *next_to_go(const struct rme_fast_pool *pool)
{
    struct rme_fast_area *unused, *oldest;

    if (rme_node_alone(&pool->areas))
        return NULL;
    unused = rme_entry(pool->areas.next, struct rme_fast_area, used);
    if (pool->clock - unused->used_at >= IDLE_WANTS)
        return unused;
    oldest = rme_entry(pool->lent.next, struct rme_fast_area, lent);
    return pool->clock - oldest->granted_at >= TENURE ? oldest : NULL;
}

static void withdraw(struct rme_fast_pool *pool, struct rme_fast_area *area)
{
    delist(area);
    area->state = AREA_WITHDRAWN;
    area->leaving = true;
    pool->leaving++;
    pool->asked_at = pool->clock;
    say(area);
}

static void withdraw_one(struct rme_fast_pool *pool)
{
    struct rme_fast_area *area;

    if (pool->leaving != 0 && pool->clock - pool->asked_at < IDLE_WANTS)
        return;
    area = next_to_go(pool);
    if (area != NULL)
        withdraw(pool, area);
}

uint64_t rme_fast_look_at(const struct rme *rme)
{
    const struct rme_fast_pool *pool = pool_of(rme);

    return rme->tuning.idle_ms == 0 || rme_node_alone(&pool->areas)
               ? UINT64_MAX
               : pool->looked_at + rme->tuning.idle_ms;
}

/* Areas not used since the last call are idle. */
void rme_fast_look(struct rme *rme, uint64_t now)
{
    struct rme_fast_pool *pool = pool_of(rme);

    if (now < rme_fast_look_at(rme))
        return;
    while (!rme_node_alone(&pool->areas)) {
        struct rme_fast_area *area = rme_entry(pool->areas.next, struct rme_fast_area, used);

        if ((int32_t)(area->used_at - pool->looked_clock) > 0)
            break;
        withdraw(pool, area);
    }
    pool->looked_at = now;
    pool->looked_clock = pool->clock;
}

/* Drops a queued request. */
static void forget(struct rme_fast_area *area)
{
    rme_node_remove(&area->used);
    area->peer->talk->fast.given = NULL;
    free(area);
}

/* Serves the queue: allocates for the first request, or withdraws an area for it. */
static void serve(struct rme *rme)
{
    struct rme_fast_pool *pool = pool_of(rme);
    struct rme_fast_area *first;

    while (!rme_node_alone(&pool->waiting)) {
        first = rme_entry(pool->waiting.next, struct rme_fast_area, used);
        if (pool->clock - first->used_at >= IDLE_WANTS) {
            forget(first);
        } else if (pool->bytes + first->size <= rme->tuning.fast_pool) {
            make(rme, first);
        } else {
            withdraw_one(pool);
            return;
        }
    }
}

/* Queues a request for the peer. */
static void want(struct rme_peer *peer, size_t size)
{
    struct rme_fast_area *area = calloc(1, sizeof(*area));

    if (area == NULL)
        return;
    rme_node_init(&area->lent);
    rme_node_init(&area->control.link);
    area->control.kind = &area_kind;
    area->peer = peer;
    area->state = AREA_WANTED;
    area->size = size;
    rme_node_append(&pool_of(peer->rme)->waiting, &area->used);
    peer->talk->fast.given = area;
}

void rme_fast_wanted(struct rme_peer *peer, uint64_t size)
{
    struct rme *rme = peer->rme;
    struct rme_fast_pool *pool = pool_of(rme);
    struct rme_fast *fast = &peer->talk->fast;
    size_t bytes = ((size_t)rme->tuning.fast_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);

    if (bytes == 0 || (peer->hello.flags & RME_HELLO_F_FAST) == 0 || !peer->credit.exact ||
        peer->state != RME_PEER_UP || size > rme_fast_most(rme, RME_EXPECTED) ||
        size <= peer->eager_max[RME_EXPECTED] || bytes > rme->tuning.fast_pool)
        return;
    pool->clock++;
    if (fast->given == NULL && ++fast->wants < WANTS << fast->in_vain)
        return;
    if (fast->given == NULL)
        want(peer, bytes);
    if (fast->given == NULL || fast->given->state != AREA_WANTED)
        return;
    fast->given->used_at = pool->clock;
    serve(rme);
}

/* ---- Messages in it ---- */

static bool is_lent(const struct rme_fast_area *area)
{
    return area != NULL && (area->state == AREA_GRANTED || area->state == AREA_WITHDRAWN);
}

bool rme_fast_named(const struct rme_peer *peer, uint32_t imm)
{
    return imm >= RME_FAST_FIRST_NAME && is_lent(peer->talk->fast.given);
}

int rme_fast_decode(struct rme_peer *peer, uint32_t imm, struct rme_wire_message *message)
{
    const struct rme_fast_area *area = peer->talk->fast.given;
    size_t offset = (size_t)(imm - RME_FAST_FIRST_NAME) * RME_WIRE_FAST_UNIT;

    if (offset >= area->size)
        return -EPROTO;
    return rme_wire_decode_fast(area->memory + offset, area->size - offset, message);
}

bool rme_fast_there(const struct rme_peer *peer, const struct rme_wire_message *message)
{
    const struct rme_fast_area *area = peer->talk->fast.given;
    size_t at;

    if (!is_lent(area))
        return false;
    at = (size_t)((uintptr_t)message->payload - (uintptr_t)area->memory);
    return at <= area->size && message->payload_length <= area->size - at;
}

uint64_t rme_fast_given(const struct rme_peer *peer)
{
    const struct rme_fast_area *area = peer->talk->fast.given;

    return is_lent(area) ? area->size : 0;
}

void rme_fast_took(struct rme_peer *peer, const struct rme_wire_message *message)
{
    struct rme_fast_pool *pool = pool_of(peer->rme);
    struct rme_fast_area *area = peer->talk->fast.given;

    rme_peer_count(peer, RME_C_RECVS_FAST, 1);
    peer->credit.bulk += (uint32_t)message->payload_length + RME_WIRE_FAST_SIZE;
    if (!is_lent(area))
        return;
    area->used_at = ++pool->clock;
    if (area->state == AREA_GRANTED) {
        rme_node_remove(&area->used);
        rme_node_append(&pool->areas, &area->used);
    }
}

/* ---- The end ---- */

void rme_fast_area_released(struct rme_peer *peer)
{
    struct rme_fast_area *area = peer->talk->fast.given;

    if (area->used_at != area->granted_at)
        peer->talk->fast.in_vain = 0;
    else if (area->state == AREA_GRANTED) /* the peer has no staging buffer */
        put_off(&peer->talk->fast);
    peer->talk->fast.wants = 0;
    peer->credit.bulk_due = 0;
    delist(area);
    rme_node_remove(&area->control.link);
    if (!area->open) {
        dispose(peer->rme, area);
        return;
    }
    area->state = AREA_CLOSING;
    peer->rme->ops->unexpose(peer->link, &area->range, 1, area);
    peer->rme->pending |= RME_PENDING_FLUSH;
}

bool rme_fast_closed(struct rme_peer *peer, const void *closed)
{
    struct rme_fast_area *area = peer->talk->fast.given;

    if (area == NULL || closed != area)
        return false;
    dispose(peer->rme, area);
    return true;
}

void rme_fast_area_left(struct rme_peer *peer)
{
    struct rme_fast_area *area = peer->talk->fast.given;

    if (area == NULL)
        return;
    rme_node_remove(&area->control.link);
    if (area->state == AREA_WANTED)
        forget(area);
    else
        delist(area);
}

void rme_fast_area_down(struct rme_peer *peer)
{
    struct rme_fast_area *area = peer->talk->fast.given;

    if (area == NULL)
        return;
    if (area->state == AREA_MAKING) {
        peer->talk->fast.given = NULL;
        area->peer = NULL;
    } else {
        dispose(peer->rme, area);
    }
}
