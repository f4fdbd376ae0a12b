/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loop fabric's device.
 *
 * Each link has a work queue. A step first moves data of its transfers (all, or in chaos a few
 * pieces of any), then delivers messages and notifications from the head. A message may
 * overtake a transfer without a notification; a notification waits for its own data and for
 * that of all earlier work.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "loop_int.h"

#define AT_WORK 8 /* transfers whose data may move at the same time */

/* ---- Registrations: a table of slots; a key is the slot with random bits above it ---- */

#define SLOT_BITS 20
#define ELAN4_KEY UINT64_C(0x4ead0000) /* every key of a host with Elan4's rules */

static struct loop_mr *mr_slot(struct loop_fabric *f)
{
    for (uint32_t i = f->nmrs; i-- > 0;)
        if (!f->mrs[i].lkey)
            return &f->mrs[i];
    uint32_t n = f->nmrs ? f->nmrs * 2 : 16;
    if (n > 1u << SLOT_BITS)
        return NULL;
    struct loop_mr *grown = realloc(f->mrs, n * sizeof *grown);
    if (grown == NULL)
        return NULL;
    memset(grown + f->nmrs, 0, (n - f->nmrs) * sizeof *grown);
    f->mrs = grown;
    f->nmrs = n;
    return &f->mrs[n - 1];
}

unsigned loop_is_shown(const struct loop_fabric *f, const struct loop_mr *mr)
{
    return !f->caps.mws &&
           (mr->access & (RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE)) != 0;
}

int loop_op_reg(struct rme_fabric *rf, void *base, size_t length, unsigned access,
                struct rme_mr *mr)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;
    int error = 0;

    pthread_mutex_lock(&loop_net.lock);
    if (!loop_faulty(f, LOOP_REG, &error)) {
        struct loop_mr *slot = f->mrs_used < f->caps.max_regs ? mr_slot(f) : NULL;
        if (!length) {
            loop_violation("%s: registration of no bytes", f->name);
            error = -EINVAL;
        } else if (slot == NULL) {
            error = -ENOMEM;
        } else {
            uint64_t index = (uint64_t)(slot - f->mrs);
            if (access & RME_ACCESS_REMOTE_WRITE)
                access |= RME_ACCESS_LOCAL_WRITE;
            slot->lkey = (loop_random(f, 0) << SLOT_BITS | index) & INT64_MAX;
            slot->rkey = (loop_random(f, 0) << SLOT_BITS | index) | UINT64_C(1) << 63;
            if (!slot->lkey)
                slot->lkey = UINT64_C(1) << 62;
            slot->base = (uintptr_t)base;
            slot->length = length;
            slot->access = access;
            f->mrs_used++;
            loop_net.census.registrations++;
            loop_net.census.shown += loop_is_shown(f, slot);
            *mr = (struct rme_mr){.handle = (void *)(uintptr_t)(index + 1),
                                  .base = slot->base,
                                  .length = length,
                                  .lkey = f->elan4 ? 0 : slot->lkey,
                                  .rkey = f->elan4 ? ELAN4_KEY + f->host : slot->rkey};
        }
    }
    pthread_mutex_unlock(&loop_net.lock);
    return error;
}

void loop_op_dereg(struct rme_fabric *rf, struct rme_mr *mr)
{
    struct loop_fabric *f = (struct loop_fabric *)rf;
    uintptr_t index = (uintptr_t)mr->handle - 1;

    pthread_mutex_lock(&loop_net.lock);
    if (index >= f->nmrs || !f->mrs[index].lkey ||
        (f->elan4 ? f->mrs[index].base != mr->base : f->mrs[index].lkey != mr->lkey)) {
        loop_violation("%s: deregistration of what is not registered", f->name);
    } else {
        for (uint32_t i = 0; i < f->nmrs; i++)
            if (f->mrs[i].lkey && f->mrs[i].link != NULL && f->mrs[i].below == index)
                loop_violation("%s: deregistration of what is open to a peer", f->name);
        f->mrs[index].lkey = f->mrs[index].rkey = 0;
        f->mrs_used--;
        loop_net.census.registrations--;
        loop_net.census.shown -= loop_is_shown(f, &f->mrs[index]);
    }
    pthread_mutex_unlock(&loop_net.lock);
}

/* ---- Windows: slots of the same table, without a usable local key ---- */

/* Returns the registration that the range's window is bound in; NULL: an error of the
 * engine. */
static const struct loop_mr *below(struct loop_fabric *f, const struct rme_range *range,
                                   unsigned access)
{
    uint64_t index = range->rkey & ((UINT64_C(1) << SLOT_BITS) - 1);
    const struct loop_mr *mr = index < f->nmrs ? &f->mrs[index] : NULL;
    uintptr_t base = (uintptr_t)range->base;

    if (mr == NULL || !mr->lkey || mr->rkey != range->rkey || mr->link != NULL ||
        (mr->access & access) != access || base < mr->base || range->length > mr->length ||
        base - mr->base > mr->length - range->length) {
        loop_violation("%s: %p+%llu cannot be opened: it is not registered for that", f->name,
                       range->base, (unsigned long long)range->length);
        return NULL;
    }
    return mr;
}

static void bind_mw(struct rme_link *link, struct rme_range *range, unsigned access)
{
    struct loop_fabric *f = link->fabric;
    const struct loop_mr *mr = below(f, range, access);
    uint32_t index = mr != NULL ? (uint32_t)(mr - f->mrs) : 0;
    struct loop_mr *slot = mr != NULL ? mr_slot(f) : NULL;

    if (slot == NULL)
        return;
    slot->lkey = UINT64_C(1) << 61 | loop_random(f, UINT64_C(1) << 60);
    slot->rkey = (loop_random(f, 0) << SLOT_BITS | (uint64_t)(slot - f->mrs)) | UINT64_C(1)
                                                                                    << 63;
    slot->base = (uintptr_t)range->base;
    slot->length = range->length;
    slot->access = access;
    slot->link = link;
    slot->below = index;
    range->key = slot->rkey;
    f->windows_used++;
    link->mws++;
    loop_net.census.mws++;
    if (f->config.stats != NULL) {
        f->config.stats->value[RME_C_WINDOWS]++;
        f->config.stats->value[RME_C_SEND_REQUESTS]++;
    }
}

int loop_op_mw_bind(struct rme_link *link, struct rme_range *range, uint32_t n, unsigned access)
{
    struct loop_fabric *f = link->fabric;
    int error = 0;
    uint32_t bound = 0;

    pthread_mutex_lock(&loop_net.lock);
    if (access != RME_ACCESS_REMOTE_READ && access != RME_ACCESS_REMOTE_WRITE)
        loop_violation("%s: memory is opened for the access %u", f->name, access);
    if (!loop_faulty(f, LOOP_MW_BIND, &error) &&
        (link->state == LOOP_STATE_ENDED || n > f->caps.mws - f->windows_used))
        error = -EAGAIN;
    for (uint32_t i = 0; !error && i < n; i++) {
        range[i].key = 0;
        if (range[i].length)
            bind_mw(link, &range[i], access);
        bound += range[i].length != 0;
    }
    if (bound && loop_net.timing != NULL)
        loop_bind_later(link, bound);
    pthread_mutex_unlock(&loop_net.lock);
    return error;
}

static void invalidate_mw(struct rme_link *link, struct loop_mr *slot)
{
    slot->lkey = slot->rkey = 0;
    slot->link = NULL;
    link->fabric->windows_used--;
    link->mws--;
    loop_net.census.mws--;
}

static struct loop_mr *window_of(const struct rme_link *link, uint64_t key)
{
    uint64_t index = key & ((UINT64_C(1) << SLOT_BITS) - 1);
    struct loop_mr *slot = index < link->fabric->nmrs ? &link->fabric->mrs[index] : NULL;

    return slot != NULL && slot->lkey && slot->rkey == key && slot->link == link ? slot : NULL;
}

bool loop_mw_is_open(const struct rme_link *link, uint64_t key)
{
    return window_of(link, key);
}

void loop_mw_close(struct rme_link *link, uint64_t key)
{
    invalidate_mw(link, window_of(link, key));
}

void loop_mws_invalidate(struct rme_link *link, const struct loop_work *w)
{
    struct loop_fabric *f = link->fabric;

    for (uint32_t i = 0; w == NULL && link->mws && i < f->nmrs; i++)
        if (f->mrs[i].lkey && f->mrs[i].link == link)
            invalidate_mw(link, &f->mrs[i]);
    for (uint32_t i = 0; w != NULL && i < w->nkeys; i++) {
        if (loop_mw_is_open(link, w->keys[i]))
            loop_mw_close(link, w->keys[i]);
        else
            loop_violation("%s: what is not open is closed", f->name);
    }
}

static bool is_within(const struct loop_mr *mr, uint64_t base, uint64_t length, unsigned access)
{
    return (mr->access & access) == access && base >= mr->base && length <= mr->length &&
           base - mr->base <= mr->length - length;
}

/* Returns whether the key permits this access. A remote key comes from the peer of `link`;
 * NULL: a local key. */
static bool access_ok(const struct loop_fabric *f, const struct rme_link *link, uint64_t key,
                      uint64_t base, uint64_t length, unsigned access)
{
    uint64_t index = key & ((UINT64_C(1) << SLOT_BITS) - 1);

    if (f->elan4) {
        if (key != (link != NULL ? ELAN4_KEY + f->host : 0))
            return false;
        for (uint32_t i = 0; i < f->nmrs; i++)
            if (f->mrs[i].lkey && is_within(&f->mrs[i], base, length, access))
                return true;
        return false;
    }
    if (!key || index >= f->nmrs)
        return false;
    const struct loop_mr *mr = &f->mrs[index];
    if (link != NULL && mr->link != (f->caps.mws ? link : NULL))
        return false;
    return (link != NULL ? mr->rkey : mr->lkey) == key && is_within(mr, base, length, access);
}

/* ---- Data ---- */

static bool move_segments(struct rme_link *link, const struct rme_rdma_seg *p, bool read)
{
    struct loop_fabric *here = link->fabric;
    uint64_t at = p->raddr;

    for (uint32_t i = 0; i < p->nseg; i++) {
        const struct rme_sge *s = &p->seg[i];
        if (!access_ok(here, NULL, s->lkey, (uintptr_t)s->base, s->length,
                       read ? RME_ACCESS_LOCAL_WRITE : 0)) {
            loop_violation("%s: local segment %p+%llu is not covered by its key", here->name,
                           s->base, (unsigned long long)s->length);
            return false;
        }
        if (!access_ok(link->peer->fabric, link->peer, p->rkey, at, s->length,
                       read ? RME_ACCESS_REMOTE_READ : RME_ACCESS_REMOTE_WRITE)) {
            loop_violation("%s: remote %s of %#llx+%llu at %s is not allowed", here->name,
                           read ? "read" : "write", (unsigned long long)at,
                           (unsigned long long)s->length, link->peer->fabric->name);
            return false;
        }
        if (read)
            memmove(s->base, (void *)(uintptr_t)at, s->length);
        else
            memmove((void *)(uintptr_t)at, s->base, s->length);
        at += s->length;
    }
    loop_net.census.pieces++;
    loop_net.census.bytes += at - p->raddr;
    return true;
}

static void shuffle(struct loop_fabric *f, struct loop_work *w)
{
    uint32_t n = w->rdma_op->npiece;

    w->order = malloc(n * sizeof *w->order);
    if (w->order == NULL)
        return;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = (uint32_t)loop_random(f, i + 1);
        w->order[i] = w->order[j];
        w->order[j] = i;
    }
}

static bool move_piece(struct rme_link *link, struct loop_work *w)
{
    struct loop_fabric *f = link->fabric;

    if (f->chaos && w->order == NULL && w->rdma_op->npiece > 1 && !w->moved)
        shuffle(f, w);
    uint32_t index = w->order != NULL ? w->order[w->moved] : w->moved;
    if (!move_segments(link, &w->rdma_op->piece[index], w->rdma_op->read)) {
        loop_link_fail(link, -EREMOTEIO);
        return false;
    }
    w->moved++;
    return true;
}

/* Finds the incomplete transfers being worked on, oldest first. */
static uint32_t find_work(struct rme_link *link, struct loop_work *at_work[AT_WORK])
{
    uint32_t n = 0, reads = 0;

    for (struct loop_work *w = link->work; w != NULL && n < AT_WORK; w = w->next) {
        if (w->rdma_op == NULL || w->moved == w->rdma_op->npiece ||
            w->awaits & LOOP_AWAITS_DATA)
            continue;
        if (w->rdma_op->read && reads++ == link->fabric->read_depth)
            break;
        at_work[n++] = w;
    }
    return n;
}

/* Returns false when the link is over. */
static bool move_data(struct rme_link *link, bool *worked)
{
    struct loop_fabric *f = link->fabric;
    uint64_t budget = f->chaos ? 1 + loop_random(f, 4) : UINT64_MAX;
    struct loop_work *at_work[AT_WORK];
    uint32_t n;

    while (budget-- && (n = find_work(link, at_work))) {
        *worked = true;
        if (!move_piece(link, at_work[f->chaos ? loop_random(f, n) : 0]))
            return false;
    }
    return true;
}

/* ---- Messages ---- */

/* Admits an arrival, which may need a receive buffer of the peer. Returns false when the link
 * is over. */
static bool admit(struct rme_link *link, bool needs_rx)
{
    if (loop_net.kill_at && !--loop_net.kill_at) {
        loop_link_fail(link, -ECONNRESET);
        return false;
    }
    if (needs_rx && !link->peer->rx_ready) {
        loop_net.census.rnr++;
        link->fabric->rnr++;
        loop_link_fail(link, -ECONNRESET);
        return false;
    }
    return true;
}

static bool carry_message(struct rme_link *link, const struct loop_tx *tx)
{
    struct rme_link *peer = link->peer;
    uint32_t size = peer->fabric->config.rx_size;

    if (!admit(link, true))
        return false;
    if (tx->length > size) {
        loop_violation("%s: message of %zu bytes for receive buffers of %u", link->fabric->name,
                       tx->length, size);
        loop_link_fail(link, -EREMOTEIO);
        return false;
    }
    if (tx->closes && !loop_mw_is_open(peer, tx->closes)) {
        loop_violation("%s: a message closes what is not open", link->fabric->name);
        loop_link_fail(link, -EREMOTEIO);
        return false;
    }
    if (tx->closes)
        loop_mw_close(peer, tx->closes);
    struct loop_rx *rx = calloc(1, sizeof *rx);
    void *data = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (rx == NULL || data == NULL)
        abort(); /* a failure of the test's memory */
    rx->data = data;
    memcpy(rx->data, tx->data, tx->length);
    rx->link = peer;
    LOOP_PUT(peer->rx_lent, rx);
    peer->rx_ready--;
    loop_net.census.rx_held++;
    loop_net.census.messages++;

    struct loop_event *e = loop_event_new(RME_EV_RECV, peer);
    e->event.data = rx->data;
    e->event.length = tx->length;
    e->event.rx = rx;
    loop_event_push(peer->fabric, e);
    return true;
}

static bool carry_immediate(struct rme_link *link, uint32_t imm)
{
    if (!admit(link, !link->fabric->elan4))
        return false;
    struct loop_event *e = loop_event_new(RME_EV_IMM, link->peer);
    e->event.imm = imm;
    loop_event_push(link->peer->fabric, e);
    return true;
}

static void complete(struct rme_link *link, struct loop_work *w)
{
    struct loop_event *e;

    if (w->rdma_op == NULL)
        return;
    e = loop_event_new(RME_EV_RDMA_DONE, link);
    e->event.rdma_op = w->rdma_op;
    if (w->rdma_op->unsignalled)
        e->behind = w->number;
    else if (w->number > link->signalled)
        link->signalled = w->number;
    w->rdma_op = NULL;
    loop_event_push(link->fabric, e);
}

static void finish(struct rme_link *link, struct loop_work **at)
{
    struct loop_work *w = *at;

    *at = w->next;
    if (w->next == NULL)
        link->work_tail = at;
    complete(link, w);
    if (w->keys != NULL) {
        struct loop_event *e = loop_event_new(RME_EV_MW_INVALIDATED, link);
        e->event.closed = w->owner;
        loop_mws_invalidate(link, w);
        loop_event_push(link->fabric, e);
    }
    loop_work_free(link, w);
}

static bool is_incomplete(const struct loop_work *w)
{
    return w->rdma_op != NULL && w->moved < w->rdma_op->npiece;
}

/* Outcome of a step for a piece of work. */
enum turn {
    TURN_DONE,    /* removed without a message to the peer */
    TURN_CARRIED, /* delivered to the peer */
    TURN_NOT,     /* postponed */
    TURN_ALL,     /* postponed together with all work behind it */
};

static enum turn turn_of(const struct loop_work *w, bool incomplete)
{
    bool told = w->keys == NULL && !w->binds &&
                (w->rdma_op == NULL || w->rdma_op->notify != RME_NOTIFY_NONE);

    if (w->awaits & LOOP_AWAITS_DATA)
        return told ? TURN_ALL : TURN_NOT;
    if (!told)
        return is_incomplete(w) || w->awaits ? TURN_NOT : TURN_DONE;
    if (w->carried)
        return w->awaits ? TURN_NOT : TURN_DONE;
    return w->rdma_op != NULL && incomplete ? TURN_ALL : TURN_CARRIED;
}

static bool tell(struct rme_link *link, const struct loop_work *w)
{
    return w->tx != NULL ? carry_message(link, w->tx) : carry_immediate(link, w->imm);
}

/* Delivers work from the head of the queue on. Returns false when the link is over. */
static bool carry(struct rme_link *link, bool *worked)
{
    bool incomplete = false;
    uint64_t budget = link->fabric->chaos ? 1 + loop_random(link->fabric, 3) : UINT64_MAX;

    for (struct loop_work **at = &link->work; *at != NULL && budget;) {
        struct loop_work *w = *at;
        incomplete = incomplete || is_incomplete(w);
        enum turn turn = turn_of(w, incomplete);
        if (turn == TURN_ALL)
            break;
        if (turn == TURN_NOT) {
            at = &w->next;
            continue;
        }
        if (turn == TURN_CARRIED && !tell(link, w)) {
            *worked = true;
            return false;
        }
        *worked = true;
        budget--;
        if (turn == TURN_CARRIED && w->awaits) {
            w->carried = true;
            at = &w->next;
            continue;
        }
        finish(link, at);
    }
    return true;
}

/* ---- Connections ---- */

static void carry_request(struct rme_link *link)
{
    link->request_sent = true;
    if (!strncmp(link->target, "void:", 5))
        return;
    if (!strncmp(link->target, "nowhere:", 8)) {
        loop_link_end(link, -EHOSTUNREACH, NULL, 0);
        return;
    }
    if (!strncmp(link->target, "unknown:", 8)) {
        loop_link_end(link, -ENONET, NULL, 0);
        return;
    }
    struct loop_fabric *f = loop_find_listener(link->target);
    struct rme_link *passive = f != NULL ? loop_link_new(f) : NULL;
    if (passive == NULL) {
        loop_link_end(link, -ECONNREFUSED, NULL, 0);
        return;
    }
    passive->state = LOOP_STATE_REQUESTED;
    passive->peer = link;
    link->peer = passive;
    snprintf(passive->peer_name, sizeof passive->peer_name, "%s%u:%u",
             f->elan4 ? "" : "127.0.0.", link->fabric->host, link->fabric->port);
    struct loop_event *e = loop_event_new(RME_EV_LINK_REQUEST, passive);
    loop_event_hello(f, e, link->hello, LOOP_HELLO_MAX);
    loop_event_push(f, e);
}

/* Ends a link whose peer is gone or whose engine ends it. */
static void end_marked(struct rme_link *link)
{
    if (link->state != LOOP_STATE_REQUESTED)
        loop_link_end(link, link->ending, NULL, 0);
    else if (!link->request_taken)
        loop_link_delete(link);
    else
        loop_idle(link); /* for accept or reject */
}

/* Drains a link of Elan4 that is being ended: data moves on for some steps in both directions,
 * since it cannot be revoked. */
static bool comes_to_its_end(struct rme_link *link)
{
    bool worked;

    if (!link->drain)
        return false;
    link->drain--;
    if (link->peer != NULL && !link->lost && !(loop_net.held & LOOP_HOLD_DATA))
        move_data(link, &worked);
    return true;
}

static bool run_link(struct rme_link *link)
{
    struct loop_fabric *f = link->fabric;
    bool worked = false;

    if (link->lost && !link->ending)
        return false;
    if (f->chaos && !loop_net.held && loop_random(f, 3) == 0)
        return true;
    if (link->ending) {
        if (!comes_to_its_end(link))
            end_marked(link);
        return true;
    }
    if (link->state == LOOP_STATE_CONNECTING && !link->request_sent) {
        loop_idle(link);
        carry_request(link);
        return true;
    }
    if (link->tx_wanted && link->tx_used < f->sq_depth) {
        link->tx_wanted = false;
        loop_event_push(f, loop_event_new(RME_EV_TX_ROOM, link));
        worked = true;
    }
    if (!(loop_net.held & LOOP_HOLD_DATA) && !move_data(link, &worked))
        return true;
    if (!carry(link, &worked))
        return true;
    if ((link->work == NULL || loop_net.timing != NULL) && !link->tx_wanted) {
        loop_idle(link);
        worked = true;
    }
    return worked;
}

bool loop_device_step(void)
{
    bool worked = false;

    if (loop_net.kill_at_step && !--loop_net.kill_at_step)
        for (struct loop_fabric *f = loop_net.fabrics; f; f = f->next)
            loop_cut(f);
    for (struct rme_link *link = loop_net.busy, *next; link; link = next) {
        next = link->busy_next; /* a running link removes no other link from the list */
        worked |= run_link(link);
    }
    return worked;
}

/* ---- A model's time ---- */

void loop_time(const struct loop_timing *timing)
{
    pthread_mutex_lock(&loop_net.lock);
    loop_net.timing = timing;
    pthread_mutex_unlock(&loop_net.lock);
}

static void timed(struct rme_link *link, struct loop_work *work, uint8_t what)
{
    bool worked;

    pthread_mutex_lock(&loop_net.lock);
    work->awaits &= (uint8_t)~what;
    if (move_data(link, &worked))
        carry(link, &worked);
    if (link->tx_wanted)
        loop_busy(link);
    pthread_mutex_unlock(&loop_net.lock);
}

void loop_timed_arrival(struct rme_link *link, struct loop_work *work)
{
    timed(link, work, LOOP_AWAITS_DATA);
}

void loop_timed_end(struct rme_link *link, struct loop_work *work)
{
    timed(link, work, LOOP_AWAITS_END);
}
