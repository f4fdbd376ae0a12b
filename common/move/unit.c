/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Units: fragments of a message in memory that a device can use.
 *
 * Three ways are tried in this order, each after the one before was refused.  An op never fails
 * because memory cannot be registered.
 *
 *  - Direct: the host's own segments, registered (mreg.h).  If all of them are registered
 *    already, the unit is the rest of the message.  Otherwise option `unit` bounds it, and a
 *    thread registers it without the lock.
 *
 *  - Pack: a block of a zone (zone.h) and a copy, also chosen by the planner for small lists.
 *    A long copy is made without the lock, like registration.  Smaller blocks are used if no
 *    block of the size is available, or the peer's quota is used up (bounce_quota.c).
 *
 *  - Reserve: a block allocated when the engine was opened.  One unit uses it at a time, in
 *    turn.  This way must work when nothing can be registered.  In a fabric without windows the
 *    block's keys for peers therefore exist from the beginning, and stay valid.  The block
 *    never contains other data than that of such messages.
 *
 * After a refusal the unit and those behind it are made again in the next way (fall_back); data
 * moved before is kept.  A device that refuses memory for lack of resources has not checked
 * that the memory is mapped.  The kernel is asked before the processor accesses such memory,
 * and the op ends with -EFAULT, as if the device had detected the error.  Lists that the
 * planner packs are not checked, because the check costs a system call per segment.
 *
 * Two reserve blocks exist to avoid a deadlock.  An exposed block is held until the peer has
 * moved the data, and the peer may need its own block to do so.  If one block served for both,
 * two processes could each hold theirs exposed and wait for the other's.  The block for moving
 * is taken when the single transfer of its unit is posted (rme_unit_posts) and held until a
 * local device completes it.  No peer is needed for that, and a transfer without a credit holds
 * no block.  Initiators therefore always make progress, and so do the exposing sides.
 *
 * rme_unit_work registers, and packs LONG_COPY or more, in the thread that is about to release
 * the lock.  The unit is BUSY meanwhile and holds a reference to its op, so that the host's
 * memory and the list of segments stay valid.  If the op ends meanwhile, the unit is detached
 * (op = NULL), and the thread frees it.  Copies out of a block, and into a reserve block, are
 * made with the lock.
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

#define KEEP_ROOM 1024u /* larger arrays are freed, not pooled */
/* Bytes from which a copy is made without the lock.  Shorter copies take microseconds and are
 * made at once, so that the send can use an invitation that has arrived. */
#define LONG_COPY     (64u << 10)
#define RESERVE_BYTES (64u << 10) /* preferred size of a reserve block */
/* smallest size, for a tight memlock limit */
#define RESERVE_BYTES_MIN (RME_RESERVES_LEAST / RME_RESERVES)

/* ---- Allocation ---- */

static struct rme_unit *unit_new(struct rme *rme, struct rme_op *op)
{
    struct list_head *node = rme_pool_take(&rme->move_state->units);
    struct rme_unit *unit;

    if (node != NULL) {
        unit = container_of(node, struct rme_unit, link);
    } else {
        unit = calloc(1, sizeof(*unit));
        if (unit == NULL)
            return NULL;
        unit->mseg = unit->own_mseg;
        unit->mseg_room = sizeof(unit->own_mseg) / sizeof(unit->own_mseg[0]);
        unit->range = unit->own_range;
        unit->range_room = sizeof(unit->own_range) / sizeof(unit->own_range[0]);
        list_init(&unit->closing);
        unit->control.kind = &rme_control_window;
        list_init(&unit->queue);
        list_init(&unit->control.link);
    }
    unit->op = op;
    unit->exposed = false;
    unit->told = false;
    unit->gone = false;
    unit->nrange = unit->offered = 0;
    unit->memory = op->rndv->memory;
    unit->bounce_quota = 0;
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
    if (unit->mseg_room > KEEP_ROOM || !rme_pool_keep(&rme->move_state->units, &unit->link))
        unit_destroy(unit);
}

void rme_unit_clear(struct rme *rme)
{
    struct list_head *node;

    while ((node = rme_pool_take(&rme->move_state->units)) != NULL)
        unit_destroy(container_of(node, struct rme_unit, link));
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

/* Makes the unit the host's own segments of `length` bytes from its offset, or as many of them
 * as a unit may have. */
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

/* Makes the unit a block with this registration; NULL: not registered yet. */
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

/*
 * Returns true if the unit is a block that is filled before the device uses it: with the host's
 * data, or with zeros if a peer writes to it.  Zeros replace data of earlier messages, in case
 * the peer reports a write without having written.
 */
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

/* Marks the unit usable by the device, after filling a short block.  A long one is filled
 * already. */
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
    list_add_tail(&unit->queue, &rme->move_state->work);
    rme->pending |= RME_PENDING_RUN;
}

/* Makes the unit the reserve block.  The unit may not own the block yet (prepare). */
static void use_reserve(struct rme *rme, const struct rme_reserve *reserve,
                        struct rme_unit *unit)
{
    const struct rme_mr *mr = NULL;

    if (reserve->has_shown)
        mr = &reserve->shown[(unit->access & RME_ACCESS_REMOTE_WRITE) != 0];
    else
        /* registered in rme_reserve_open */
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

/*
 * Passes the block to the next waiting unit.  The block for exposing goes to the first one.
 * For the block for moving, the waiting peers are scheduled in order, and the first unit that
 * can be posted takes it.
 */
static void pass_reserve(struct rme *rme, struct rme_reserve *reserve)
{
    struct list_head *node;

    reserve->user = NULL;
    while (reserve->user == NULL && (node = list_pop(&reserve->waiting)) != NULL) {
        struct rme_unit *unit = container_of(node, struct rme_unit, queue);

        if (unit->state == RME_UNIT_WAIT) {
            take_reserve(rme, reserve, unit);
            unit->op->protocol->ready(rme, unit->op);
        } else {
            rme_peer_schedule(unit->op->peer);
        }
    }
}

bool rme_unit_waits(struct rme *rme, const struct rme_unit *unit)
{
    struct rme_reserve *reserve = &rme->move_state->reserve[RME_RESERVE_MOVE];
    struct list_head *node = unit->op->rndv->units.next;

    for (; reserve->user != NULL; node = node->next) {
        struct rme_unit *each = container_of(node, struct rme_unit, link);

        if (each->memory == RME_MEMORY_RESERVE && each != reserve->user) {
            if (list_empty(&each->queue))
                list_add_tail(&each->queue, &reserve->waiting);
            return true;
        }
        if (each == unit)
            break;
    }
    return false;
}

void rme_unit_posts(struct rme *rme, struct rme_unit *unit)
{
    struct rme_reserve *reserve = &rme->move_state->reserve[RME_RESERVE_MOVE];

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
                min_u64(op->size - unit->offset, rme_plan_unit(rme->tuning.unit, false)));
            want_work(rme, unit);
        }
        break;
    case RME_MEMORY_PACK:
        rme_bounce_quota_charge(op->peer, unit);
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
        if (op->state != RME_OP_EXPOSED) { /* rme_unit_posts takes the block */
            use_reserve(rme, &rme->move_state->reserve[RME_RESERVE_MOVE], unit);
            unit->state = RME_UNIT_READY;
            break;
        }
        reserve = &rme->move_state->reserve[RME_RESERVE_EXPOSE];
        if (reserve->user == NULL) {
            take_reserve(rme, reserve, unit);
        } else {
            unit->state = RME_UNIT_WAIT;
            list_add_tail(&unit->queue, &reserve->waiting);
        }
        break;
    }
}

/* Returns true if the processor can read, or write, this memory. */
static bool is_there(uintptr_t base, uint64_t length, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = base & ~(page - 1);
    int result;

    do
        result = madvise((void *)from, base + length - from, advice);
    while (result != 0 && (errno == EAGAIN || errno == EINTR));
    /* Linux before 5.14 lacks these values of `advice`: assume true */
    return result == 0 || (errno == EINVAL && madvise((void *)from, 0, advice) != 0);
}

/* Returns true if the processor can access the op's memory under a unit. */
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
    if (!rme_bounce_quota_unit(op, unit, rest)) {
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
    list_add_tail(&unit->link, &r->units);
    r->nunit++;
    prepare(rme, op, unit);
    r->prepared = unit->offset + unit->length;
    return true;
}

/* ---- Release ---- */

void rme_unit_unpack(struct rme *rme, struct rme_unit *unit)
{
    struct rme_op *op = unit->op;

    if (unit->block == NULL)
        return;
    rme_seg_scatter(op->seg, op->nseg, unit->offset, unit->block, unit->length);
    rme_count_add(rme, RME_C_BYTES_COPIED, unit->length);
}

/*
 * Releases the registration and the block of a unit.  A registered block is not reused before
 * its registration has ended.  Returns true if rme_mreg_dereg_flush must run before the
 * completion is reported.
 */
static bool let_go(struct rme *rme, const struct rme_op *op, struct rme_unit *unit)
{
    void *block = unit->block;
    struct rme_mreg_hold *hold = unit->hold;

    rme_bounce_quota_uncharge(op->peer, unit);
    unit->block = NULL;
    unit->hold = NULL;
    if (block != NULL && hold != NULL)
        return rme_mreg_release_block(rme->mreg, hold, block);
    if (block != NULL)
        rme_zone_put(rme->zone, block);
    return rme_mreg_release(rme->mreg, hold);
}

/* Releases the resources of a unit that is neither open nor in use. */
static void give_back(struct rme *rme, struct rme_unit *unit)
{
    struct rme_peer *peer = unit->op->peer;
    struct rme_reserve *passed = NULL;

    for (int class = 0; class < RME_RESERVES; class ++)
        if (rme->move_state->reserve[class].user == unit)
            passed = &rme->move_state->reserve[class];
    if (unit->memory == RME_MEMORY_RESERVE)
        unit->block = NULL;
    else if (let_go(rme, unit->op, unit))
        unit->op->dereg_flush = true;
    unit_recycle(rme, unit);
    if (passed == NULL)
        return;
    list_del_init(&peer->scheduled); /* other peers come first */
    pass_reserve(rme, passed);
    rme_peer_schedule(peer);
}

void rme_unit_free(struct rme *rme, struct rme_unit *unit)
{
    struct rme_op *op = unit->op;

    list_del_init(&unit->link);
    list_del_init(&unit->queue);
    list_del_init(&unit->control.link);
    op->rndv->nunit--;
    if (unit->state == RME_UNIT_BUSY) {
        unit->op = NULL;
        return;
    }
    rme_unit_close(rme, unit);
    if (unit->nrange == 0)
        give_back(rme, unit);
    else
        unit->gone = true; /* rme_unit_closed releases it */
}

void rme_windows_free(struct rme *rme)
{
    struct list_head *node;

    while ((node = list_pop(&rme->window_waitq)) != NULL)
        rme_peer_schedule(container_of(node, struct rme_peer, window_waitq));
}

void rme_unit_closed(struct rme *rme, struct rme_unit *unit)
{
    struct rme_op *op = unit->op;

    list_del_init(&unit->closing);
    rme_unit_forget(rme, unit);
    if (unit->gone)
        give_back(rme, unit);
    op->closing--;
    rme_op_put(rme, op);
    rme_windows_free(rme);
}

void rme_units_lost(struct rme_peer *peer)
{
    while (!list_empty(&peer->closing))
        rme_unit_closed(peer->rme, container_of(peer->closing.next, struct rme_unit, closing));
    rme_windows_free(peer->rme);
}

/* Frees a unit whose memory was refused, and those behind it, to be made again in the next
 * way. */
static void fall_back(struct rme *rme, struct rme_op *op, struct rme_unit *unit)
{
    struct rme_rndv *r = op->rndv;
    uint64_t offset = unit->offset;
    uint8_t memory = RME_MEMORY_RESERVE;

    if (unit->memory == RME_MEMORY_DIRECT ||
        (unit->memory == RME_MEMORY_PACK && rme_bounce_quota_cut(op, unit->length)))
        memory = RME_MEMORY_PACK;
    r->refused = r->refused || unit->memory == RME_MEMORY_DIRECT;
    if (memory > r->memory)
        r->memory = memory;
    for (;;) {
        struct rme_unit *last = container_of(r->units.prev, struct rme_unit, link);

        if (list_empty(&r->units) || last->offset < offset)
            break;
        rme_unit_free(rme, last);
    }
    r->prepared = offset;
}

/* ---- Work without the lock ---- */

/* Registers the segments of a unit, and counts the time. */
static int register_segments(struct rme *rme, struct rme_unit *unit)
{
    uint64_t begin = rme_now_ns();
    int result =
        rme_mreg_acquire(rme->mreg, unit->mseg, unit->nmseg, unit->access, &unit->hold);

    atomic_fetch_add(&rme->pin.register_ns, rme_now_ns() - begin);
    return result;
}

/* Registers the unit's segments, or allocates and registers its block.  Called without the
 * lock: no other thread accesses the memory of a BUSY unit. */
static int make_usable(struct rme *rme, struct rme_unit *unit)
{
    const struct rme_mr *mr;

    if (unit->memory == RME_MEMORY_DIRECT)
        return register_segments(rme, unit);
    if (unit->block == NULL)
        use_block(unit, rme_zone_alloc(rme->zone, unit->length), NULL);
    if (unit->block == NULL)
        return -ENOMEM;
    if (rme_pin_alone(&rme->pin, unit->access))
        return register_segments(rme, unit);
    if (rme_zone_show(rme->zone, unit->block, unit->length, unit->access, true, &mr) != 0)
        return -ENOMEM;
    use_block(unit, unit->block, mr);
    return 0;
}

/* Makes the unit usable, and fills a long block.  The caller holds a reference to `op`.
 * unit->op is not read, because it may become NULL meanwhile. */
static int do_work(struct rme *rme, struct rme_unit *unit, const struct rme_op *op)
{
    int result = make_usable(rme, unit);

    if (result == 0 && fills_long(unit, op))
        fill(unit, op);
    return result;
}

void rme_unit_work(struct rme *rme)
{
    struct rme_unit *unit =
        container_of(list_pop(&rme->move_state->work), struct rme_unit, queue);
    struct rme_op *op = unit->op;
    int result;

    op->refcount++;
    unit->state = RME_UNIT_BUSY;
    pthread_mutex_unlock(&rme->lock);
    result = do_work(rme, unit, op);
    rme_lock(rme);
    if (unit->op == NULL) {
        if (let_go(rme, op, unit))
            op->dereg_flush = true;
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
    rme_op_put(rme, op);
}

/* ---- Reserve blocks ---- */

/* Allocates a registered block; NULL: refused. */
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

/* Registers the block for exposing, once for each direction, in a fabric without windows. */
static bool show_reserve(struct rme *rme, struct rme_reserve *reserve, size_t size)
{
    int (*reg)(struct rme_pin *, void *, size_t, unsigned, struct rme_mr *) =
        /* only the last refusal is logged */
        size > RESERVE_BYTES_MIN ? rme_pin_try : rme_pin_reg;
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
    struct rme_reserve *reserve = rme->move_state->reserve;

    for (size_t size = RESERVE_BYTES; size >= RESERVE_BYTES_MIN; size /= 2) {
        void *move = registered_block(rme, size);
        void *expose = move != NULL ? registered_block(rme, size) : NULL;

        reserve[RME_RESERVE_MOVE].block = move;
        reserve[RME_RESERVE_EXPOSE].block = expose;
        if (expose != NULL && show_reserve(rme, &reserve[RME_RESERVE_EXPOSE], size)) {
            rme->move_state->reserve_size = size;
            return 0;
        }
        rme_reserve_close(rme);
    }
    return -ENOMEM;
}

void rme_reserve_close(struct rme *rme)
{
    for (int class = 0; class < RME_RESERVES; class ++) {
        struct rme_reserve *reserve = &rme->move_state->reserve[class];

        for (int way = 0; reserve->has_shown && way < 2; way++)
            rme_pin_dereg(&rme->pin, &reserve->shown[way]);
        reserve->has_shown = false;
        if (reserve->block != NULL)
            rme_zone_release(rme->zone, reserve->block);
        reserve->block = NULL;
    }
}
