/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Units: ranges of a message as memory that a device can use.
 *
 * Three ways, each tried when the one before was refused; an op never fails because memory
 * cannot be registered:
 *
 *  1. direct: the host's own segments, registered (mreg.h).  When all of it is registered
 *     already the unit is the rest of the message, otherwise option `unit` bounds it, and a
 *     thread registers it without the lock.
 *  2. pack: a block of a zone (zone.h) and a copy.  Also what the planner wants for small
 *     lists.  A copy that takes long is made without the lock, as registering is.  Where there
 *     is no block of the size, or the peer has its share (ration.c), smaller ones are used.
 *  3. reserve: a block that the engine has kept for this since it was opened; one unit uses it
 *     at a time, in turn.  It is for when nothing can be registered, so where there are no
 *     windows it has keys for peers from the beginning: these open the block for good, and
 *     nothing but such messages is ever in it.
 *
 * When a way is refused, the unit and those after it are made again in the next way
 * (fall_back); what was moved before stays moved.  A device that refuses memory for want of
 * room has not looked whether it is there, so the kernel is asked before the processor touches
 * it: the op ends with -EFAULT, as if the device had found out.  Lists that the planner packs
 * are not looked at, which would cost a call for each piece.
 *
 * Why there are two reserve blocks.  A block that is exposed is held until the peer has moved
 * data, and the peer may need its own block for that.  If exposing and moving shared one, two
 * processes could each hold theirs exposed and wait for the other's.  The block used for moving
 * is taken when the transfer of a unit, which is a single one, is posted (rme_unit_posts), and
 * held until a device is done, which needs nobody; who lacks a credit has no block.  So movers
 * always get their turn, and thereby exposers do.
 *
 * Registering, and packing of LONG_COPY or more, take place in rme_unit_work, called by
 * whichever thread is about to release the lock.  The unit is BUSY meanwhile and pins its op,
 * so that the host's memory and the list of its segments stay.  If the op ends in between, the
 * unit is only given up (op = NULL) and the thread cleans up.  Copying out of a block, and
 * packing into a reserve block, still hold the lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "move/move.h"
#include "plan/plan.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define KEEP_ROOM 1024u /* larger arrays are not kept for reuse */
/* A copy of so much delays others that want the lock.  A smaller one, which takes
 * microseconds, is made at once, so that the send can take an invitation that is there. */
#define LONG_COPY     (64u << 10)
#define RESERVE_BYTES (64u << 10) /* what a reserve block should have */
/* what it may have when the memlock limit is tight */
#define RESERVE_BYTES_MIN (RME_RESERVES_LEAST / RME_RESERVES)

/* ---- Making ---- */

static struct rme_unit *unit_new(struct rme *rme, struct rme_op *op)
{
    struct rme_node *node = rme_pool_take(&rme->mover->units);
    struct rme_unit *unit;

    if (node != NULL) {
        unit = rme_entry(node, struct rme_unit, link);
    } else {
        unit = calloc(1, sizeof(*unit));
        if (unit == NULL)
            return NULL;
        unit->mseg = unit->own_mseg;
        unit->mseg_room = sizeof(unit->own_mseg) / sizeof(unit->own_mseg[0]);
        unit->range = unit->own_range;
        unit->range_room = sizeof(unit->own_range) / sizeof(unit->own_range[0]);
        rme_node_init(&unit->closing);
        unit->control.kind = &rme_control_window;
        rme_node_init(&unit->queue);
        rme_node_init(&unit->control.link);
    }
    unit->op = op;
    unit->exposed = false;
    unit->told = false;
    unit->gone = false;
    unit->nrange = unit->offered = 0;
    unit->memory = op->rndv->memory;
    unit->ration = 0;
    unit->access = op->rndv->access;
    unit->offset = op->rndv->prepared;
    unit->moved = 0;
    unit->block = NULL;
    unit->hold = NULL;
    return unit;
}

static void unit_destroy(struct rme_unit *unit)
{
    if (unit->mseg != unit->own_mseg)
        free(unit->mseg);
    if (unit->range != unit->own_range)
        free(unit->range);
    free(unit);
}

static void unit_recycle(struct rme *rme, struct rme_unit *unit)
{
    unit->op = NULL;
    if (unit->mseg_room > KEEP_ROOM || !rme_pool_keep(&rme->mover->units, &unit->link))
        unit_destroy(unit);
}

void rme_unit_clear(struct rme *rme)
{
    struct rme_node *node;

    while ((node = rme_pool_take(&rme->mover->units)) != NULL)
        unit_destroy(rme_entry(node, struct rme_unit, link));
}

static bool reserve_msegs(struct rme_unit *unit, uint32_t count)
{
    struct rme_mseg *mseg;

    if (count <= unit->mseg_room)
        return true;
    mseg = malloc(count * sizeof(*mseg));
    if (mseg == NULL)
        return false;
    if (unit->mseg != unit->own_mseg)
        free(unit->mseg);
    unit->mseg = mseg;
    unit->mseg_room = count;
    return true;
}

/* The unit shall be the host's own segments of [offset, offset + length), or as many as fit. */
static bool cut_direct(struct rme_op *op, struct rme_unit *unit, uint64_t length)
{
    struct rme_walk walk = rme_walk(op->seg, op->nseg, unit->offset, length);
    uint32_t count = rme_seg_count(op->seg, op->nseg, unit->offset, length, op->rndv->max_segs,
                                   &unit->length);
    struct rme_seg part;

    if (!reserve_msegs(unit, count))
        return false;
    for (uint32_t n = 0; n < count && rme_walk_next(&walk, &part); n++)
        unit->mseg[n] = (struct rme_mseg){.base = part.base, .length = part.length};
    unit->nmseg = count;
    return true;
}

/* The unit is a block, and this registration is for it; NULL: there is none yet. */
static void use_block(struct rme_unit *unit, void *block, const struct rme_mr *mr)
{
    unit->block = block;
    unit->nmseg = 1;
    unit->mseg[0] = (struct rme_mseg){.base = block, .length = unit->length};
    if (mr != NULL) {
        unit->mseg[0].lkey = mr->lkey;
        unit->mseg[0].rkey = mr->rkey;
    }
}

/* Is it a block that is filled before the device uses it?  With the host's data, or with zeros
 * where a peer writes: a peer may say that it has written, and have written nothing. */
static bool is_filled(const struct rme_unit *unit, const struct rme_op *op)
{
    return unit->block != NULL &&
           (rme_op_sends(op) || (unit->access & RME_ACCESS_REMOTE_WRITE) != 0);
}

static bool fills_long(const struct rme_unit *unit, const struct rme_op *op)
{
    return is_filled(unit, op) && unit->length >= LONG_COPY && unit->memory == RME_MEMORY_PACK;
}

static void fill(const struct rme_unit *unit, const struct rme_op *op)
{
    if (rme_op_sends(op))
        rme_seg_gather(op->seg, op->nseg, unit->offset, unit->block, unit->length);
    else
        memset(unit->block, 0, unit->length);
}

/* Lets the device use the unit.  A long block was filled before. */
static void unit_ready(struct rme *rme, struct rme_unit *unit)
{
    const struct rme_op *op = unit->op;

    unit->state = RME_UNIT_READY;
    if (is_filled(unit, op) && !fills_long(unit, op))
        fill(unit, op);
    if (unit->block != NULL && rme_op_sends(op))
        rme_count_add(rme, RME_C_BYTES_COPIED, unit->length);
}

static void want_work(struct rme *rme, struct rme_unit *unit)
{
    unit->state = RME_UNIT_WORK;
    rme_node_append(&rme->mover->work, &unit->queue);
    rme->pending |= RME_PENDING_SETTLE;
}

/* The unit is that block, as soon as it has it. */
static void use_reserve(struct rme *rme, const struct rme_reserve *reserve,
                        struct rme_unit *unit)
{
    const struct rme_mr *mr = NULL;

    if (reserve->has_shown)
        mr = &reserve->shown[(unit->access & RME_ACCESS_REMOTE_WRITE) != 0];
    else
        /* it is there: rme_reserve_open */
        (void)rme_zone_find(rme->zone, reserve->block, unit->length, &mr);
    use_block(unit, reserve->block, mr);
}

static void take_reserve(struct rme *rme, struct rme_reserve *reserve, struct rme_unit *unit)
{
    reserve->user = unit;
    use_reserve(rme, reserve, unit);
    rme_count(rme, RME_C_PACK_RESERVE);
    unit_ready(rme, unit);
}

/* The next unit that waits for the block to be exposed gets it.  Of those that wait to be moved
 * whoever can post first, in this order. */
static void pass_reserve(struct rme *rme, struct rme_reserve *reserve)
{
    struct rme_node *node;

    reserve->user = NULL;
    while (reserve->user == NULL && (node = rme_node_take(&reserve->waiting)) != NULL) {
        struct rme_unit *unit = rme_entry(node, struct rme_unit, queue);

        if (unit->state == RME_UNIT_TURN) {
            take_reserve(rme, reserve, unit);
            unit->op->protocol->ready(rme, unit->op);
        } else {
            rme_peer_kick(unit->op->peer);
        }
    }
}

bool rme_unit_waits(struct rme *rme, const struct rme_unit *unit)
{
    struct rme_reserve *reserve = &rme->mover->reserve[RME_RESERVE_MOVE];
    struct rme_node *node = unit->op->rndv->units.next;

    for (; reserve->user != NULL; node = node->next) {
        struct rme_unit *each = rme_entry(node, struct rme_unit, link);

        if (each->memory == RME_MEMORY_RESERVE && each != reserve->user) {
            if (rme_node_alone(&each->queue))
                rme_node_append(&reserve->waiting, &each->queue);
            return true;
        }
        if (each == unit)
            break;
    }
    return false;
}

void rme_unit_posts(struct rme *rme, struct rme_unit *unit)
{
    struct rme_reserve *reserve = &rme->mover->reserve[RME_RESERVE_MOVE];

    if (unit->memory == RME_MEMORY_RESERVE && reserve->user == NULL)
        take_reserve(rme, reserve, unit);
}

static void prepare(struct rme *rme, struct rme_op *op, struct rme_unit *unit)
{
    struct rme_reserve *reserve;
    const struct rme_mr *mr = NULL;
    void *block;

    switch ((enum rme_memory)unit->memory) {
    case RME_MEMORY_DIRECT:
        if (rme_mreg_try(rme->mreg, unit->mseg, unit->nmseg, unit->access, &unit->hold) == 0) {
            unit_ready(rme, unit);
        } else {
            cut_direct(
                op, unit,
                rme_least(op->size - unit->offset, rme_plan_unit(rme->tuning.unit, false)));
            want_work(rme, unit);
        }
        break;
    case RME_MEMORY_PACK:
        rme_ration_take(op->peer, unit);
        block = rme_zone_try(rme->zone, unit->length);
        if (block != NULL)
            (void)rme_zone_show(rme->zone, block, unit->length, unit->access, false, &mr);
        use_block(unit, block, mr);
        if (mr != NULL && !fills_long(unit, op))
            unit_ready(rme, unit);
        else
            want_work(rme, unit);
        break;
    case RME_MEMORY_RESERVE:
        if (op->state != RME_OP_EXPOSED) { /* rme_unit_posts does the rest */
            use_reserve(rme, &rme->mover->reserve[RME_RESERVE_MOVE], unit);
            unit->state = RME_UNIT_READY;
            break;
        }
        reserve = &rme->mover->reserve[RME_RESERVE_EXPOSE];
        if (reserve->user == NULL) {
            take_reserve(rme, reserve, unit);
        } else {
            unit->state = RME_UNIT_TURN;
            rme_node_append(&reserve->waiting, &unit->queue);
        }
        break;
    }
}

/* Can the processor read that, or write it? */
static bool is_there(uintptr_t base, uint64_t length, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = base & ~(page - 1);
    int result;

    do
        result = madvise((void *)from, base + length - from, advice);
    while (result != 0 && (errno == EAGAIN || errno == EINTR));
    /* before Linux 5.14: not known */
    return result == 0 || (errno == EINVAL && madvise((void *)from, 0, advice) != 0);
}

/* The same for the op's memory under a unit. */
static bool may_copy(const struct rme_op *op, const struct rme_unit *unit)
{
    int advice = rme_op_sends(op) ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    struct rme_walk walk = rme_walk(op->seg, op->nseg, unit->offset, unit->length);
    struct rme_seg part;

    while (rme_walk_next(&walk, &part))
        if (!is_there((uintptr_t)part.base, part.length, advice))
            return false;
    return true;
}

bool rme_unit_next(struct rme *rme, struct rme_op *op)
{
    struct rme_rndv *r = op->rndv;
    uint64_t rest = op->size - r->prepared;
    struct rme_unit *unit;

    if (r->nunit >= RME_UNITS_AHEAD || rest == 0 || r->stop || r->peer_stop)
        return false;
    unit = unit_new(rme, op);
    if (unit == NULL) {
        op->protocol->failed(rme, op, -ENOMEM);
        return false;
    }
    if (!rme_ration_unit(op, unit, rest)) {
        unit_recycle(rme, unit);
        return false;
    }
    if (unit->memory == RME_MEMORY_DIRECT && !cut_direct(op, unit, rest)) {
        unit_recycle(rme, unit);
        op->protocol->failed(rme, op, -ENOMEM);
        return false;
    }
    if (r->refused && !may_copy(op, unit)) {
        unit_recycle(rme, unit);
        op->protocol->failed(rme, op, -EFAULT);
        return false;
    }
    rme_node_append(&r->units, &unit->link);
    r->nunit++;
    prepare(rme, op, unit);
    r->prepared = unit->offset + unit->length;
    return true;
}

/* ---- Letting go ---- */

void rme_unit_unpack(struct rme *rme, struct rme_unit *unit)
{
    struct rme_op *op = unit->op;

    if (unit->block == NULL)
        return;
    rme_seg_scatter(op->seg, op->nseg, unit->offset, unit->block, unit->length);
    rme_count_add(rme, RME_C_BYTES_COPIED, unit->length);
}

/* The hold and the block of a unit go back; who uses the block next has it when the hold is
 * deregistered.  True: that is to be done. */
static bool let_go(struct rme *rme, const struct rme_op *op, struct rme_unit *unit)
{
    void *block = unit->block;
    struct rme_mreg_hold *hold = unit->hold;

    rme_ration_give(op->peer, unit);
    unit->block = NULL;
    unit->hold = NULL;
    if (block != NULL && hold != NULL)
        return rme_mreg_release_block(rme->mreg, hold, block);
    if (block != NULL)
        rme_zone_put(rme->zone, block);
    return rme_mreg_release(rme->mreg, hold);
}

/* Gives back what it held; nothing of it is open or in use. */
static void give_back(struct rme *rme, struct rme_unit *unit)
{
    struct rme_peer *peer = unit->op->peer;
    struct rme_reserve *passed = NULL;

    for (int class = 0; class < RME_RESERVES; class ++)
        if (rme->mover->reserve[class].user == unit)
            passed = &rme->mover->reserve[class];
    if (unit->memory == RME_MEMORY_RESERVE)
        unit->block = NULL;
    else if (let_go(rme, unit->op, unit))
        unit->op->reap = true;
    unit_recycle(rme, unit);
    if (passed == NULL)
        return;
    rme_node_remove(&peer->kick); /* others come first */
    pass_reserve(rme, passed);
    rme_peer_kick(peer);
}

void rme_unit_free(struct rme *rme, struct rme_unit *unit)
{
    struct rme_op *op = unit->op;

    rme_node_remove(&unit->link);
    rme_node_remove(&unit->queue);
    rme_node_remove(&unit->control.link);
    op->rndv->nunit--;
    if (unit->state == RME_UNIT_BUSY) {
        unit->op = NULL;
        return;
    }
    rme_unit_close(rme, unit);
    if (unit->nrange == 0)
        give_back(rme, unit);
    else
        unit->gone = true; /* it waits until nothing of it is open */
}

void rme_windows_free(struct rme *rme)
{
    struct rme_node *node;

    while ((node = rme_node_take(&rme->window_turn)) != NULL)
        rme_peer_kick(rme_entry(node, struct rme_peer, window_turn));
}

void rme_unit_closed(struct rme *rme, struct rme_unit *unit)
{
    struct rme_op *op = unit->op;

    rme_node_remove(&unit->closing);
    rme_unit_forget(rme, unit);
    if (unit->gone)
        give_back(rme, unit);
    if (--op->closing == 0 && op->shutting) {
        op->shutting = false;
        op->peer->shutting--;
    }
    rme_op_unpin(rme, op);
    rme_windows_free(rme);
}

void rme_units_lost(struct rme_peer *peer)
{
    while (!rme_node_alone(&peer->closing))
        rme_unit_closed(peer->rme, rme_entry(peer->closing.next, struct rme_unit, closing));
    rme_windows_free(peer->rme);
}

/* The way in which the unit was to be made is refused: it and those after it are made again in
 * the next way. */
static void fall_back(struct rme *rme, struct rme_op *op, struct rme_unit *unit)
{
    struct rme_rndv *r = op->rndv;
    uint64_t offset = unit->offset;
    uint8_t memory = RME_MEMORY_RESERVE;

    if (unit->memory == RME_MEMORY_DIRECT ||
        (unit->memory == RME_MEMORY_PACK && rme_ration_cut(op, unit->length)))
        memory = RME_MEMORY_PACK;
    r->refused = r->refused || unit->memory == RME_MEMORY_DIRECT;
    if (memory > r->memory)
        r->memory = memory;
    for (;;) {
        struct rme_unit *last = rme_entry(r->units.prev, struct rme_unit, link);

        if (rme_node_alone(&r->units) || last->offset < offset)
            break;
        rme_unit_free(rme, last);
    }
    r->prepared = offset;
}

/* ---- Work without the lock ---- */

/* If `spent` is not NULL it becomes the nanoseconds that this took. */
static int register_segments(struct rme *rme, struct rme_unit *unit, uint64_t *spent)
{
    uint64_t begin = spent != NULL ? rme_now_ns() : 0;
    int result =
        rme_mreg_acquire(rme->mreg, unit->mseg, unit->nmseg, unit->access, &unit->hold);

    if (spent != NULL)
        *spent = rme_now_ns() - begin;
    return result;
}

/* Registers, or finds a block.  No lock held; the unit is BUSY, so nobody else looks at its
 * memory. */
static int make_usable(struct rme *rme, struct rme_unit *unit, uint64_t *spent)
{
    const struct rme_mr *mr;

    if (unit->memory == RME_MEMORY_DIRECT)
        return register_segments(rme, unit, spent);
    if (unit->block == NULL)
        use_block(unit, rme_zone_alloc(rme->zone, unit->length), NULL);
    if (unit->block == NULL)
        return -ENOMEM;
    if (rme_pin_alone(&rme->pin, unit->access))
        return register_segments(rme, unit, spent);
    if (rme_zone_show(rme->zone, unit->block, unit->length, unit->access, true, &mr) != 0)
        return -ENOMEM;
    use_block(unit, unit->block, mr);
    return 0;
}

/* The same, and fills a long block.  `op` is pinned; unit->op is not looked at, as it may be
 * given up. */
static int do_work(struct rme *rme, struct rme_unit *unit, const struct rme_op *op,
                   uint64_t *spent)
{
    int result = make_usable(rme, unit, spent);

    if (result == 0 && fills_long(unit, op))
        fill(unit, op);
    return result;
}

void rme_unit_work(struct rme *rme)
{
    struct rme_unit *unit = rme_entry(rme_node_take(&rme->mover->work), struct rme_unit, queue);
    struct rme_op *op = unit->op;
    bool watched = op->watch != NULL;
    uint64_t spent = 0;
    int result;

    op->pins++;
    unit->state = RME_UNIT_BUSY;
    pthread_mutex_unlock(&rme->lock);
    result = do_work(rme, unit, op, watched ? &spent : NULL);
    rme_lock(rme);
    rme_times_registered(op, spent);
    if (unit->op == NULL) {
        if (let_go(rme, op, unit))
            op->reap = true;
        unit_recycle(rme, unit);
    } else if (result == 0) {
        unit_ready(rme, unit);
        op->protocol->ready(rme, op);
    } else {
        unit->state = RME_UNIT_WORK;
        fall_back(rme, op, unit);
        if (result == -ENOMEM || result == -EACCES)
            op->protocol->ready(rme, op);
        else
            op->protocol->failed(rme, op,
                                 result == -EFAULT || result == -EINVAL ? -EFAULT : result);
    }
    rme_op_unpin(rme, op);
}

/* ---- The reserve ---- */

/* A registered block of `size` bytes, or NULL. */
static void *registered_block(struct rme *rme, size_t size)
{
    const struct rme_mr *mr;
    void *block = rme_zone_alloc(rme->zone, size);

    if (block != NULL && rme_zone_find(rme->zone, block, size, &mr) != 0) {
        rme_zone_release(rme->zone, block);
        return NULL;
    }
    return block;
}

/* Registers the block that peers shall use, for each direction, where no window does that. */
static bool show_reserve(struct rme *rme, struct rme_reserve *reserve, size_t size)
{
    int (*reg)(struct rme_pin *, void *, size_t, unsigned, struct rme_mr *) =
        size > RESERVE_BYTES_MIN ? rme_pin_try : rme_pin_reg; /* the last refusal is told */
    struct rme_mr *shown = reserve->shown;

    if (!rme->pin.keys_open)
        return true;
    if (reg(&rme->pin, reserve->block, size, RME_ACCESS_REMOTE_READ, &shown[0]) != 0)
        return false;
    if (reg(&rme->pin, reserve->block, size, RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE,
            &shown[1]) != 0) {
        rme_pin_dereg(&rme->pin, &shown[0]);
        return false;
    }
    reserve->has_shown = true;
    return true;
}

int rme_reserve_open(struct rme *rme)
{
    struct rme_reserve *reserve = rme->mover->reserve;

    for (size_t size = RESERVE_BYTES; size >= RESERVE_BYTES_MIN; size /= 2) {
        void *move = registered_block(rme, size);
        void *expose = move != NULL ? registered_block(rme, size) : NULL;

        reserve[RME_RESERVE_MOVE].block = move;
        reserve[RME_RESERVE_EXPOSE].block = expose;
        if (expose != NULL && show_reserve(rme, &reserve[RME_RESERVE_EXPOSE], size)) {
            rme->mover->reserve_size = size;
            return 0;
        }
        rme_reserve_close(rme);
    }
    return -ENOMEM;
}

void rme_reserve_close(struct rme *rme)
{
    for (int class = 0; class < RME_RESERVES; class ++) {
        struct rme_reserve *reserve = &rme->mover->reserve[class];

        for (int way = 0; reserve->has_shown && way < 2; way++)
            rme_pin_dereg(&rme->pin, &reserve->shown[way]);
        reserve->has_shown = false;
        if (reserve->block != NULL)
            rme_zone_release(rme->zone, reserve->block);
        reserve->block = NULL;
    }
}
