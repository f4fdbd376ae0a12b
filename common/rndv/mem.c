/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fragments of messages in memory that a device can use.
 *
 * Three ways are tried in this order, each after the one before was refused.  An op never fails
 * because memory cannot be registered.
 *
 *  - Direct: the host's own segments, registered (mreg.h).  If all of them are registered
 *    already, the fragment is the rest of the message.  Otherwise the option fragment_bytes
 *    limits the fragment, and a thread registers it without the lock.
 *
 *  - Pack: a block of a zone (zone.h) and a copy, also chosen by the planner for small lists.
 *    A long copy is made without the lock, like registration.  Smaller blocks are used if no
 *    block of the size is available, or the peer's quota is used up (below).
 *
 *  - Reserve: a block allocated when the engine was opened.  One fragment uses it at a time, in
 *    turn.  The block must be usable when nothing can be registered.  The key for a peer's
 *    writes therefore exists from the beginning and, in a fabric without windows, stays valid.
 *    The block never contains other data than that of such messages.
 *
 * After a refusal the fragment and those behind it are made again in the next way (fall_back);
 * data moved before is kept.  A refused offer of several fragments is not made, and these are
 * registered one by one.  A device that refuses memory for lack of resources has not
 * checked that the memory is mapped.  The kernel is asked before the processor accesses such
 * memory, and the op ends with -EFAULT, as if the device had detected the error.  Lists that
 * the planner packs are not checked, because the check costs a system call per segment.
 *
 * Two reserve blocks exist to avoid a deadlock.  The block of a target is held until the peer
 * has moved the data, and the peer may need its own block to do so.  If one block served for
 * both, two processes could each hold the block of a target and wait for the other's.  The
 * block for moving is taken when the single transfer of its fragment is posted (rme_frag_posts)
 * and held until a local device completes it.  No peer is needed for that, and a transfer
 * without a credit holds no block.  Initiators therefore always make progress, and so do
 * targets.
 *
 * rme_frag_work registers, and packs LONG_COPY or more, in the thread that is about to release
 * the lock.  The fragment is BUSY meanwhile and holds a reference to its op, so that the host's
 * memory and the list of segments stay valid.  If the op ends meanwhile, the fragment is gone,
 * and the thread frees it.  Copies out of a block, and into a reserve block, are made with the
 * lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rndv/rndv.h"
#include "plan/plan.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* Bytes from which a copy is made without the lock.  Shorter copies take microseconds and are
 * made at once, so that the send can use an early CTS that has arrived. */
#define LONG_COPY     (64u << 10)
#define RESERVE_BYTES (64u << 10) /* preferred size of a reserve block */
/* smallest size, for a tight memlock limit */
#define RESERVE_BYTES_MIN (RME_RESERVES_MIN / RME_RESERVES)

/* minimum length to which fragments are cut: the smallest class of zones in the paper */
#define SMALLEST (64u << 10)

/* ---- Quotas of bounce buffers ----
 *
 * Bytes of zones that each peer may hold for copied messages are a quota [000 5.2].
 *
 * The peer's room by the quota (transport/quota.c; its limit is pool_bytes) is the largest
 * block of its next fragment: the fragment is cut to a smaller block, down to SMALLEST.  Shares
 * shrink as peers are added.  A peer above its new share gets no block until its messages end.
 * A peer without a block may always try SMALLEST.
 *
 * A fragment without a block uses the reserve, in turn; the next fragment may get a block
 * again.  No peer waits for memory that another peer holds.
 *
 * Memory that the host allocates from the zones counts for no peer.  If less than the shares is
 * left, or the system refuses memory, fragments are cut as well before the reserve is used.
 */

/* Returns the size of the block, a class of the zone, for a fragment of this length. */
static uint64_t block_of(uint64_t length)
{
    uint64_t block = RME_ZONE_MIN_BLOCK;

    while (block < length)
        block *= 2;
    return block;
}

/* Returns the next smaller class; 0: none. */
static uint64_t smaller(uint64_t length)
{
    uint64_t block = block_of(length) / 2;

    return block >= SMALLEST ? block : 0;
}

/* Returns the length at which the peer's quota permits the next fragment of `length` bytes in a
 * block of a zone; 0: no block. */
static uint64_t permitted(const struct rme_peer *peer, uint64_t length)
{
    uint64_t room = rme_quota_room(peer, RME_QUOTA_BOUNCE);

    if (room < SMALLEST && peer->quota[RME_QUOTA_BOUNCE] == 0)
        room = SMALLEST;
    while (length > 0 && block_of(length) > room)
        length = smaller(length);
    return length;
}

/* ---- Allocation ---- */

/* Chooses memory and length of the next fragment of an op, which has at most `length` bytes: a
 * peer whose quota is used up gets the reserve block. */
static enum rme_memory choose_memory(struct rme_op *op, uint64_t *length)
{
    const struct rme_rndv *r = op->rndv;
    struct rme *rme = op->peer->rme;
    uint64_t packed =
        min_u64(*length, min_u64(r->most, rme_plan_frag_size(rme->tuning.frag_size, true)));
    uint64_t granted = r->memory == RME_MEMORY_PACK ? permitted(op->peer, packed) : 0;

    if (r->memory == RME_MEMORY_DIRECT)
        return RME_MEMORY_DIRECT;
    if (granted == 0) {
        *length = min_u64(*length, rme->rndv_state->reserve_size);
        return RME_MEMORY_RESERVE;
    }
    rme_count_add(rme, RME_C_PACK_CUT, granted < packed);
    *length = granted;
    return RME_MEMORY_PACK;
}

/* Creates the next fragment of an op, of up to `length` bytes, with room for the segments.
 * NULL: no memory. */
static struct rme_frag *frag_new(struct rme_op *op, enum rme_memory memory, uint64_t length)
{
    const struct rme_rndv *r = op->rndv;
    struct rme_walk walk = rme_walk(op->seg, op->nseg, r->prepared, length);
    uint32_t count = memory == RME_MEMORY_DIRECT ? 0 : 1;
    struct rme_seg part;
    struct rme_frag *frag;

    while (memory == RME_MEMORY_DIRECT && count < r->max_segs && rme_walk_next(&walk, &part))
        count++;
    frag = calloc(1, sizeof(*frag) + count * (sizeof(frag->mseg[0]) + sizeof(frag->range[0])));
    if (frag == NULL)
        return NULL;
    list_init(&frag->link);
    list_init(&frag->queue);
    list_init(&frag->control.link);
    list_init(&frag->invalidating);
    frag->control.send = rme_frag_send_window;
    frag->range = (struct rme_range *)(void *)(frag->mseg + count);
    frag->op = op;
    frag->memory = (uint8_t)memory;
    frag->access = r->access;
    frag->offset = r->prepared;
    frag->length = length;
    return frag;
}

static void frag_destroy(struct rme_frag *frag)
{
    free((void *)frag->rdma_op.piece);
    free(frag);
}

/* Makes the fragment the host's own segments of `length` bytes from its offset, or as many of
 * them as a fragment may have. */
static void cut_direct(const struct rme_op *op, struct rme_frag *frag, uint64_t length)
{
    struct rme_walk walk = rme_walk(op->seg, op->nseg, frag->offset, length);
    struct rme_seg part;

    frag->length = 0;
    for (frag->nmseg = 0; frag->nmseg < op->rndv->max_segs && rme_walk_next(&walk, &part);
         frag->nmseg++) {
        frag->mseg[frag->nmseg] = (struct rme_mseg){.base = part.base, .length = part.length};
        frag->length += part.length;
    }
}

/* Returns the maximum of bytes of a fragment that is registered.  An offer is a whole message,
 * so one whose registration stays cached is registered as a whole. */
static uint64_t registered_at_once(const struct rme *rme, const struct rme_op *op)
{
    uint64_t most = rme_plan_frag_size(rme->tuning.frag_size, false);

    return op->rndv->access == RME_ACCESS_REMOTE_READ && op->size <= RME_OFFERED_FRAGS * most &&
                   rme_mreg_caches(rme->mreg)
               ? op->size
               : most;
}

/* Makes the fragment a block with this registration; NULL: not registered yet. */
static void use_block(struct rme_frag *frag, void *block, const struct rme_mr *mr)
{
    frag->block = block;
    frag->nmseg = 1;
    frag->mseg[0] = (struct rme_mseg){.base = block,
                                      .length = frag->length,
                                      .lkey = mr != NULL ? mr->lkey : 0,
                                      .rkey = mr != NULL ? mr->rkey : 0};
}

/* Makes the fragment its block of the zone.  Returns false if the block is not registered for
 * this use. */
static bool use_zone(struct rme *rme, struct rme_frag *frag)
{
    const struct rme_mr *mr = rme_zone_find(rme->zone, frag->block, frag->length, frag->access);

    use_block(frag, frag->block, mr);
    return mr != NULL;
}

/*
 * Fills a block before the device uses it: with the host's data, or with zeros if a peer writes
 * to it.  Zeros replace data of earlier messages, in case the peer reports a write without
 * having written.
 */
static void fill(const struct rme_frag *frag, const struct rme_op *op)
{
    if (frag->block == NULL)
        return;
    if (rme_op_sends(op))
        rme_seg_copy(op->seg, op->nseg, frag->offset, frag->block, frag->length, false);
    else if ((frag->access & RME_ACCESS_REMOTE_WRITE) != 0)
        memset(frag->block, 0, frag->length);
}

/* Marks the fragment, whose block is filled, usable by the device. */
static void frag_ready(struct rme *rme, struct rme_frag *frag)
{
    frag->state = RME_FRAG_READY;
    if (frag->block != NULL && rme_op_sends(frag->op))
        rme_count_add(rme, RME_C_BYTES_COPIED, frag->length);
}

static void want_work(struct rme *rme, struct rme_frag *frag)
{
    list_add_tail(&frag->queue, &rme->rndv_state->work);
    rme->pending |= RME_PENDING_RUN;
}

static void take_reserve(struct rme *rme, struct rme_reserve *reserve, struct rme_frag *frag)
{
    reserve->used = true;
    frag->reserve = reserve;
    use_block(frag, reserve->block, reserve->mr);
    fill(frag, frag->op);
    rme_count(rme, RME_C_PACK_RESERVE);
    frag_ready(rme, frag);
}

/*
 * Passes the block to the next waiting fragment.  The block of targets goes to the first one.
 * For the block for moving, the waiting peers are scheduled in order, and the first fragment
 * that can be posted takes it.
 */
static void pass_reserve(struct rme *rme, struct rme_reserve *reserve)
{
    struct list_head *node;

    reserve->used = false;
    while (!reserve->used && (node = list_pop(&reserve->waiting)) != NULL) {
        struct rme_frag *frag = container_of(node, struct rme_frag, queue);

        if (reserve == &rme->rndv_state->reserve[RME_RESERVE_TARGET]) {
            take_reserve(rme, reserve, frag);
            rme_rndv_advance(rme, frag->op);
        } else {
            rme_peer_schedule(frag->op->peer);
        }
    }
}

bool rme_frag_waits(struct rme *rme, struct rme_frag *frag)
{
    struct rme_reserve *reserve = &rme->rndv_state->reserve[RME_RESERVE_INITIATOR];

    if (frag->memory != RME_MEMORY_RESERVE || !reserve->used)
        return false;
    if (list_empty(&frag->queue))
        list_add_tail(&frag->queue, &reserve->waiting);
    return true;
}

void rme_frag_posts(struct rme *rme, struct rme_frag *frag)
{
    if (frag->memory == RME_MEMORY_RESERVE)
        take_reserve(rme, &rme->rndv_state->reserve[RME_RESERVE_INITIATOR], frag);
}

static void prepare(struct rme *rme, struct rme_op *op, struct rme_frag *frag)
{
    struct rme_reserve *reserve;

    switch ((enum rme_memory)frag->memory) {
    case RME_MEMORY_DIRECT:
        if (rme_mreg_try(rme->mreg, frag->mseg, frag->nmseg, frag->access, &frag->hold) == 0) {
            frag_ready(rme, frag);
        } else {
            cut_direct(op, frag, min_u64(frag->length, registered_at_once(rme, op)));
            want_work(rme, frag);
        }
        break;
    case RME_MEMORY_PACK:
        frag->charged = block_of(frag->length);
        rme_quota_add(op->peer, RME_QUOTA_BOUNCE, frag->charged);
        if (frag->length < LONG_COPY)
            frag->block = rme_zone_alloc(rme->zone, frag->length, false);
        if (frag->block != NULL && use_zone(rme, frag)) {
            fill(frag, op);
            frag_ready(rme, frag);
        } else {
            want_work(rme, frag);
        }
        break;
    case RME_MEMORY_RESERVE:
        reserve = &rme->rndv_state->reserve[op->state == RME_OP_TARGET ? RME_RESERVE_TARGET
                                                                       : RME_RESERVE_INITIATOR];
        if (op->state != RME_OP_TARGET) { /* rme_frag_posts takes the block */
            use_block(frag, reserve->block, reserve->mr);
            frag->state = RME_FRAG_READY;
        } else if (!reserve->used) {
            take_reserve(rme, reserve, frag);
        } else {
            list_add_tail(&frag->queue, &reserve->waiting);
        }
        break;
    }
}

/* Returns true if the processor can read, or write, this memory; `unknown` if the kernel lacks
 * these values of `advice` (Linux before 5.14). */
static bool is_there(uintptr_t base, uint64_t length, int advice, bool unknown)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = base & ~(page - 1);
    int result;

    do
        result = madvise((void *)from, base + length - from, advice);
    while (result != 0 && (errno == EAGAIN || errno == EINTR));
    return result == 0 || (unknown && errno == EINVAL && madvise((void *)from, 0, advice) != 0);
}

/* Returns true if the processor can access the op's memory under a fragment. */
static bool may_copy(const struct rme_op *op, const struct rme_frag *frag, bool unknown)
{
    int advice = rme_op_sends(op) ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    struct rme_walk walk = rme_walk(op->seg, op->nseg, frag->offset, frag->length);
    struct rme_seg part;

    while (rme_walk_next(&walk, &part))
        if (!is_there((uintptr_t)part.base, part.length, advice, unknown))
            return false;
    return true;
}

int rme_frag_next(struct rme *rme, struct rme_op *op)
{
    struct rme_rndv *r = op->rndv;
    uint64_t length = op->size - r->prepared, room = length;
    enum rme_memory memory;
    struct rme_frag *frag;

    if (r->frags.next != r->frags.prev || length == 0 || r->stop_error != 0)
        return 0; /* two are there, or none is needed */
    if (op->state == RME_OP_MOVING)
        room = rme_remote_window_room(op, r->prepared);
    length = min_u64(length, room != 0 ? room : rme_xfer_max(op->peer, length));
    memory = choose_memory(op, &length);
    if (memory == RME_MEMORY_RESERVE && room == 0)
        return 0; /* the next CTS is followed by another try */
    frag = frag_new(op, memory, length);
    if (frag == NULL)
        return -ENOMEM;
    if (frag->memory == RME_MEMORY_DIRECT)
        cut_direct(op, frag, length);
    if (r->refused && !may_copy(op, frag, true)) {
        frag_destroy(frag);
        return -EFAULT;
    }
    list_add_tail(&frag->link, &r->frags);
    prepare(rme, op, frag);
    r->prepared = frag->offset + frag->length;
    return 1;
}

/* ---- Release ---- */

void rme_frag_unpack(struct rme *rme, struct rme_frag *frag)
{
    struct rme_op *op = frag->op;

    if (frag->block == NULL)
        return;
    rme_seg_copy(op->seg, op->nseg, frag->offset, frag->block, frag->length, true);
    rme_count_add(rme, RME_C_BYTES_COPIED, frag->length);
}

/* Releases the resources of a fragment that is neither open nor in use.  A registered block is
 * not reused before its registration has ended. */
static void give_back(struct rme *rme, struct rme_frag *frag)
{
    struct rme_op *op = frag->op;
    struct rme_peer *peer = op->peer;
    void *block = frag->memory == RME_MEMORY_RESERVE ? NULL : frag->block;
    struct rme_reserve *passed = frag->reserve;

    rme_quota_add(peer, RME_QUOTA_BOUNCE, -frag->charged);
    op->dereg_flush = rme_mreg_release(rme->mreg, frag->hold, block) || op->dereg_flush;
    frag_destroy(frag);
    if (passed == NULL)
        return;
    list_del_init(&peer->scheduled); /* other peers come first */
    pass_reserve(rme, passed);
    rme_peer_schedule(peer);
}

void rme_frag_free(struct rme *rme, struct rme_frag *frag)
{
    list_del_init(&frag->link);
    list_del_init(&frag->queue);
    list_del_init(&frag->control.link);
    rme_frag_invalidate(rme, frag);
    if (frag->state != RME_FRAG_BUSY && frag->nrange == 0)
        give_back(rme, frag);
    else
        frag->gone = true; /* rme_frag_work or rme_frag_invalidated releases it */
}

void rme_frag_invalidated(struct rme *rme, struct rme_frag *frag)
{
    struct rme_op *op = frag->op;

    list_del_init(&frag->invalidating);
    rme_frag_uncount(frag);
    if (frag->gone)
        give_back(rme, frag);
    op->invalidating--;
    rme_op_put(rme, op);
    rme_mws_free(rme);
}

void rme_frags_lost(struct rme_peer *peer)
{
    struct rme_frag *frag;

    while ((frag = list_first(&peer->invalidating, struct rme_frag, invalidating)) != NULL)
        rme_frag_invalidated(peer->rme, frag);
    rme_mws_free(peer->rme);
}

void rme_frags_cut(struct rme *rme, struct rme_op *op, uint64_t end)
{
    struct rme_rndv *r = op->rndv;
    struct rme_frag *last;

    while ((last = list_last(&r->frags, struct rme_frag, link)) != NULL && last->offset >= end)
        rme_frag_free(rme, last);
    if (last != NULL)
        last->length = min_u64(last->length, end - last->offset);
    r->prepared = end;
}

void rme_frags_drop(struct rme *rme, struct rme_op *op)
{
    struct rme_frag *last;

    while ((last = list_last(&op->rndv->frags, struct rme_frag, link)) != NULL &&
           last->state != RME_FRAG_POSTED)
        rme_frag_free(rme, last);
}

/* Frees a fragment whose memory was refused, and those behind it, to be made again in the next
 * way. */
static void fall_back(struct rme *rme, struct rme_op *op, struct rme_frag *frag)
{
    struct rme_rndv *r = op->rndv;
    uint64_t less = smaller(frag->length);

    if (frag->memory == RME_MEMORY_DIRECT && frag->access == RME_ACCESS_REMOTE_READ &&
        frag->length > rme_plan_frag_size(rme->tuning.frag_size, false)) {
        r->access = RME_ACCESS_LOCAL; /* its fragments may be registered */
    } else if (frag->memory == RME_MEMORY_DIRECT) {
        r->refused = true;
        r->memory = RME_MEMORY_PACK;
    } else if (less != 0) {
        rme_count(rme, RME_C_PACK_CUT);
        r->most = less;
    } else {
        r->memory = RME_MEMORY_RESERVE;
    }
    rme_frags_cut(rme, op, frag->offset);
}

/* ---- Work without the lock ---- */

/* Registers the fragment's segments, and counts the time, or allocates and registers its block.
 * Called without the lock: no other thread accesses the memory of a BUSY fragment.  -EACCES:
 * memory that the processor can access, but for which the kernel refuses devices, such as a
 * shared file of a disk that is to be written (Linux 6.5). */
static int make_usable(struct rme *rme, struct rme_frag *frag)
{
    uint64_t begin;
    int result;

    if (frag->memory == RME_MEMORY_PACK) {
        if (frag->block == NULL)
            frag->block = rme_zone_alloc(rme->zone, frag->length, true);
        if (frag->block != NULL && use_zone(rme, frag))
            return 0;
        if (frag->block == NULL || !rme_pin_alone(&rme->pin, frag->access))
            return -ENOMEM;
    }
    begin = rme_now_ns();
    result = rme_mreg_acquire(rme->mreg, frag->mseg, frag->nmseg, frag->access, &frag->hold);
    rme_pin_count(&rme->pin, RME_C_REGISTER_NS, rme_now_ns() - begin);
    return (result == -EFAULT || result == -EINVAL || result == -EOPNOTSUPP) &&
                   may_copy(frag->op, frag, false)
               ? -EACCES
               : result;
}

struct rme_op *rme_frag_work(struct rme *rme, int *error)
{
    struct rme_frag *frag =
        container_of(list_pop(&rme->rndv_state->work), struct rme_frag, queue);
    struct rme_op *op = frag->op;
    int result;

    op->refcount++;
    frag->state = RME_FRAG_BUSY;
    pthread_mutex_unlock(&rme->lock);
    result = make_usable(rme, frag);
    if (result == 0)
        fill(frag, op);
    rme_lock(rme);
    if (frag->gone) {
        give_back(rme, frag);
        *error = 1;
    } else if (result == 0) {
        frag_ready(rme, frag);
        *error = 0;
    } else {
        frag->state = RME_FRAG_WAIT;
        fall_back(rme, op, frag);
        *error = result == -ENOMEM || result == -EACCES ? 0
                 : result == -EINVAL                    ? -EFAULT
                                                        : result;
    }
    return op;
}

/* ---- Reserve blocks ---- */

/* Allocates a block, which rme_reserve_close frees, with the keys for these rights.  Returns
 * false if there is none, or it is not registered. */
static bool allocate(struct rme *rme, struct rme_reserve *reserve, size_t size, unsigned access)
{
    reserve->block = rme_zone_alloc(rme->zone, size, true);
    if (reserve->block == NULL)
        return false;
    if (!rme_pin_alone(&rme->pin, access))
        reserve->mr = rme_zone_find(rme->zone, reserve->block, size, access);
    /* only the last refusal is logged */
    else if (rme_pin_reg(&rme->pin, reserve->block, size, access, size <= RESERVE_BYTES_MIN,
                         &reserve->own) == 0)
        reserve->mr = &reserve->own;
    return reserve->mr != NULL;
}

int rme_reserve_open(struct rme *rme)
{
    struct rme_reserve *reserve = rme->rndv_state->reserve;

    for (size_t size = RESERVE_BYTES; size >= RESERVE_BYTES_MIN; size /= 2) {
        if (allocate(rme, &reserve[RME_RESERVE_INITIATOR], size, RME_ACCESS_LOCAL) &&
            allocate(rme, &reserve[RME_RESERVE_TARGET], size,
                     RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE)) {
            rme->rndv_state->reserve_size = size;
            return 0;
        }
        rme_reserve_close(rme);
    }
    return -ENOMEM;
}

void rme_reserve_close(struct rme *rme)
{
    for (int class = 0; class < RME_RESERVES; class ++) {
        struct rme_reserve *reserve = &rme->rndv_state->reserve[class];

        if (reserve->mr == &reserve->own)
            rme_pin_dereg(&rme->pin, &reserve->own);
        if (reserve->block != NULL)
            rme_zone_release(rme->zone, reserve->block);
        *reserve = (struct rme_reserve){.waiting = reserve->waiting};
    }
}
