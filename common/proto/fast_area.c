/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory that is lent to a peer for its messages: an area for each peer that would use one, and
 * none for all others.  fast.c tells what it is for.
 *
 * Normal path.  The second RTS of a peer whose message would have fitted an area asks for one.
 * It is a mapping of its own, registered to be written by a peer and for nothing else; that is
 * done without the lock.  Then it is opened to this peer alone, where the fabric has windows,
 * and GRANT says where it is.  An immediate that names a place in it is a message (the names
 * are none that operations have).  Which places are in use is the peer's business.
 *
 * Sharing.  All areas together are bounded (fast_pool).  Who would have one when nothing is
 * left waits for it, and they are served in the order in which they came: what comes back goes
 * to the first of them, unless it has sent nothing that would have been such a message while
 * IDLE_WANTS others were sent.  For whom waits an area is withdrawn: the one that was used
 * least recently if it was idle while IDLE_WANTS such messages were sent, else the one that was
 * granted first if TENURE of them were sent since.  So idle holders lose theirs to those who
 * come, and where all are busy it goes round, slowly, however much one of them sends; who has
 * none meanwhile uses rendezvous.  The measure is messages, not time.  A peer that sends no
 * such message costs nothing, and one that has sent none for zone_idle_ms, or up to twice that,
 * does not any more: its area is withdrawn, and it gives up what it has for that on its side.
 *
 * In vain.  What could not be made, or comes back as it was because the peer has no stage for
 * it (fast_hold.c), is offered again, after twice as many messages each time.
 *
 * What a peer can do with it.  It can write what it likes into its area, at any time.  A
 * message's header and length are copied before they are looked at, its payload is only copied.
 * What it says with that counts as if it had come in a receive buffer: the same windows, the
 * same credits.  Where there are no windows, the key is good for other peers as well, for the
 * bytes of the area alone.
 *
 * The end.  RELEASE comes behind all messages of the area, so it is unused when that is taken;
 * it is closed, deregistered and unmapped.  Until then its bytes count.  At the end of the link
 * messages that wait in it are taken first (defer.c); when the link is down no device reaches
 * it.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "proto/arrive.h"
#include "proto/message.h"
#include "proto/rndv.h"

/* largest payload; beyond it copies cost too much anywhere */
#define MESSAGE_MOST (64u << 10)
/* messages of a peer that would have been such before an area is lent */
#define WANTS      2u
#define IDLE_WANTS 256u  /* of others, while a holder sends none: it is idle */
#define TENURE     8192u /* of others, after which even a busy holder makes way */
#define IN_VAIN    7u    /* times that WANTS is doubled */
#define PAGE       4096u

/* What becomes of an area, in this order. */
enum area_state {
    AREA_WANTED,    /* there is no memory yet: the peer waits for it */
    AREA_MAKING,    /* it is mapped and registered, without the lock */
    AREA_MADE,      /* GRANT waits */
    AREA_GRANTED,   /* the peer may use it */
    AREA_WITHDRAWN, /* likewise, but WITHDRAW waits or is gone */
    AREA_CLOSING,   /* the peer uses it no more; its window is being closed */
};

struct rme_fast_area {
    struct rme_fast_job job;
    struct rme_node used;       /* in the pool's areas, or WANTED: in its waiting */
    struct rme_node lent;       /* in the pool's lent */
    struct rme_control control; /* GRANT, WITHDRAW */
    struct rme_peer *peer;      /* NULL: it is no use any more */
    uint8_t state;
    bool registered, leaving;
    /* the pool's clock; WANTED: used_at is when it was last wanted */
    uint32_t granted_at, used_at;
    char *memory;
    size_t size;
    struct rme_mr mr;
    struct rme_range range; /* what is open; `window` is NULL without */
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
    /* a child must not get the pages that the device writes to */
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

/* It is in none of the pool's rings. */
static void delist(struct rme_fast_area *area)
{
    rme_node_remove(&area->used);
    rme_node_remove(&area->lent);
}

/* Nobody reaches it any more. */
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

/* The peer is lent nothing now, and later than the last time. */
static void put_off(struct rme_fast *fast)
{
    fast->wants = 0;
    if (fast->in_vain < IN_VAIN)
        fast->in_vain++;
}

/* It cannot be had. */
static void refuse(struct rme *rme, struct rme_fast_area *area)
{
    if (area->peer != NULL)
        put_off(&area->peer->talk->fast);
    dispose(rme, area);
}

/* ---- Granting ---- */

/* Opens it to the peer.  False: not now, or the link has failed. */
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

/* rme_fast_area_left takes it out before. */
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

/* The area that makes way; NULL: none is idle, and none had its time. */
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

/* Those not used since the last look are idle. */
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

/* Its peer does not wait any more. */
static void forget(struct rme_fast_area *area)
{
    rme_node_remove(&area->used);
    area->peer->talk->fast.given = NULL;
    free(area);
}

/* The first who waits gets memory, or somebody is asked for it. */
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

/* The peer waits for memory, behind all who do. */
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
    else if (area->state == AREA_GRANTED) /* it cannot use it */
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
