/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Execution of one DMA. The data is moved in pieces. Then the DMA is delivered in one
 * transaction on the target's state: the target's event is set, or the message is entered into
 * the target's queue. Only afterwards a transaction on the owner's state sets the source event.
 * An absent, blocked or full target refuses the DMA, which is kept by the engine and retried
 * without limit.
 *
 * A DMA that was requested from another process is executed by the requesting process, with the
 * other one's memory and routes.
 *
 * Consecutive writes of a command queue to one process, without a remote event, are moved by
 * one system call, whose cost equals that of copying some kilobytes. After any error all of
 * these writes are repeated one by one.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define SIZE_OF(w)   E4_DMA_SIZE((w)[0])
#define VPROC(w)     ((w)[2])
#define SRC_ADDR(w)  ((w)[3])
#define DST_ADDR(w)  ((w)[4])
#define SRC_EVENT(w) ((w)[5])
#define DST_EVENT(w) ((w)[6])

static bool is_open(const struct emu4_end *to)
{
    return atomic_load(&to->c->attached) == to->generation && !atomic_load(&to->c->blocked);
}

/* Locks the target for a delivery; false when the target refuses. */
static bool begin(struct emu4_txn *t, struct emu4_end *to)
{
    if (!emu4_lock(t, to))
        return false;
    if (!is_open(to) || !emu4_inbox_room(to->c)) {
        emu4_unlock(t);
        return false;
    }
    return true;
}

/* Ends a delivery, and executes what the event started there. */
static void end(struct emu4_txn *t)
{
    struct emu4_end *to = t->e;

    emu4_txn_commit(t);
    if (!to->peer->self)
        emu4_inbox_run(t, 16);
    t->bell |= !to->peer->self && to->c->inbox_head != to->c->inbox_tail;
    emu4_unlock(t);
}

/* Traps at the owner. If the trap cannot be delivered now, the DMA is refused and retried. */
static enum dma_end refuse(struct emu4_end *from, int type, uint64_t a0, uint64_t a1)
{
    if (emu4_trap_now(from, type, UTS_DPROC, a0, a1))
        return DMA_DEAD;
    EMU4_COUNT(nacks, 1);
    return DMA_NACK;
}

static enum dma_end refused(const struct emu4_end *to)
{
    EMU4_COUNT(nacks, 1);
    return atomic_load(&to->c->attached) == to->generation ? DMA_NACK : DMA_ABSENT;
}

/* Traps at the target. */
static enum dma_end refuse_there(struct emu4_end *to, uint64_t a0, uint64_t a1)
{
    struct emu4_txn t;

    if (!begin(&t, to))
        return refused(to); /* the target may have detached */
    emu4_trap(&t, UTS_INVALID_ADDR, UTS_IPROC, a0, a1);
    emu4_txn_commit(&t);
    emu4_unlock(&t);
    return DMA_DEAD;
}

/* Reads and checks a queue descriptor; false if invalid. Under the target's lock. */
static bool read_queue(struct emu4_end *to, E4_Addr at, E4_InputQueue *q)
{
    if (ADDR_REGION(at) != REGION_SDRAM || (at & (E4_INPUTQ_ALIGN - 1)))
        return false;
    return emu4_read(to, at, q, sizeof(*q)) == 0;
}

static uint64_t slot_bytes(const E4_InputQueue *q)
{
    uint64_t n = E4_InputQueueItemSize(q->q_control);

    return n ? n : INPUT_QUEUE_MAX;
}

static E4_Addr next_slot(const E4_InputQueue *q)
{
    if ((uint32_t)q->q_bptr == (uint32_t)q->q_control)
        return q->q_bptr + (E4_Addr)E4_InputQueueLastItemOffset(q->q_control);
    return q->q_bptr + slot_bytes(q);
}

static enum dma_end queue_write(struct emu4_proc *p, struct emu4_end *from, struct emu4_end *to,
                                const uint64_t w[7])
{
    char buf[INPUT_QUEUE_MAX];
    uint64_t size = SIZE_OF(w);
    struct emu4_place src, slot, mine = {.ptr = buf, .pid = p->pid};
    struct emu4_txn t;
    E4_InputQueue q;

    if (size > INPUT_QUEUE_MAX)
        return refuse(from, UTS_BAD_TRAP, w[0], size);
    if (!emu4_place(from, SRC_ADDR(w), size, &src))
        return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size);
    if (src.ptr == NULL) {
        if (emu4_move(&src, &mine, size) < 0)
            return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size);
        src = mine;
    }
    if (!begin(&t, to))
        return refused(to);
    if (!read_queue(to, DST_EVENT(w), &q)) {
        emu4_unlock(&t);
        return refuse_there(to, DST_EVENT(w), 0);
    }
    E4_Addr next = next_slot(&q);
    if (next == q.q_fptr) {
        emu4_unlock(&t);
        return refused(to);
    }
    if (DST_ADDR(w) > INPUT_QUEUE_MAX || DST_ADDR(w) + size > slot_bytes(&q) ||
        !emu4_place(to, q.q_bptr + DST_ADDR(w), size, &slot) ||
        emu4_move(&src, &slot, size) < 0) {
        emu4_unlock(&t);
        return refuse_there(to, q.q_bptr + DST_ADDR(w), size);
    }
    emu4_step(EMU4_STEP_SLOT_WRITTEN);
    emu4_txn_store(&t, DST_EVENT(w), next, 8);
    if (q.q_event)
        emu4_event_set(&t, q.q_event);
    end(&t);
    EMU4_COUNT(dma_bytes, size);
    return DMA_DONE;
}

/* Moves one piece of data; returns 0 or the result of emu4_move(). Writes nothing to a blocked
 * target. */
static int piece(struct emu4_end *to, struct emu4_place src, struct emu4_place dst,
                 uint64_t done, uint64_t len)
{
    struct shm_user *me = &to->peer->seg->user[to->peer->user];
    int rc = -EAGAIN;

    src.va += done;
    dst.va += done;
    if (src.ptr != NULL)
        src.ptr = (char *)src.ptr + done;
    if (dst.ptr != NULL)
        dst.ptr = (char *)dst.ptr + done;
    atomic_fetch_add(&me->busy, 1);
    if (is_open(to))
        rc = emu4_move(&src, &dst, len);
    atomic_fetch_sub(&me->busy, 1);
    return rc;
}

static enum dma_end rdma_write(struct emu4_end *from, struct emu4_end *to, const uint64_t w[7],
                               uint64_t *done, uint64_t limit)
{
    uint64_t size = SIZE_OF(w), len = size - *done < limit ? size - *done : limit;
    struct emu4_place src, dst;
    struct emu4_txn t;

    if (len) {
        if (!emu4_place(from, SRC_ADDR(w), size, &src))
            return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size);
        if (!emu4_place(to, DST_ADDR(w), size, &dst))
            return refuse_there(to, DST_ADDR(w), size);
        int rc = piece(to, src, dst, *done, len);
        if (rc == -EFAULT)
            return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size);
        if (rc == -ENXIO)
            return refuse_there(to, DST_ADDR(w), size);
        if (rc == -EAGAIN || rc == -ESRCH)
            return refused(to);
        EMU4_COUNT(dma_bytes, len);
        *done += len;
        if (*done < size)
            return DMA_MORE;
    }
    if (DST_EVENT(w)) {
        if (!begin(&t, to))
            return refused(to);
        emu4_event_set(&t, DST_EVENT(w));
        end(&t);
    } else if (!is_open(to)) {
        return refused(to);
    }
    return DMA_DONE;
}

static uint32_t route_of(const struct emu4_end *from, uint64_t vp)
{
    return vp < EMU4_VPS ? __atomic_load_n(&from->c->route[vp], __ATOMIC_RELAXED) : 0;
}

/* Looks up the context at `vp`, with a reference. DMA_DONE: found; DMA_ABSENT: not attached;
 * DMA_DEAD: trapped; DMA_NACK: the trap must be retried. */
static enum dma_end find_target(struct emu4_proc *p, struct emu4_end *from, uint64_t vp,
                                struct emu4_end *to)
{
    uint32_t route = route_of(from, vp);

    if (!route)
        return refuse(from, UTS_INVALID_VPROC, vp, 0);
    if (emu4_target_get(p, route, to))
        return DMA_DONE;
    EMU4_COUNT(nacks, 1);
    return DMA_ABSENT;
}

enum dma_end emu4_dma_step(struct emu4_proc *p, struct emu4_end *from, const uint64_t w[7],
                           uint64_t *done, uint64_t limit)
{
    struct emu4_end to;
    enum dma_end r = find_target(p, from, VPROC(w), &to);

    if (r != DMA_DONE)
        return r;
    if (w[0] & DMA_QueueWrite)
        r = queue_write(p, from, &to, w);
    else
        r = rdma_write(from, &to, w, done, limit);
    emu4_peer_put(p, to.peer);
    if (r == DMA_DONE)
        emu4_step(EMU4_STEP_DELIVERED);
    return r;
}

enum dma_end emu4_dma_remote(struct emu4_proc *p, struct emu4_end *from, uint32_t vp,
                             const uint64_t w[7])
{
    struct emu4_end to;
    enum dma_end r = find_target(p, from, vp, &to);

    if (r != DMA_DONE)
        return r;
    if (!is_open(&to) || !emu4_engine_put(&to, w, 0, 0))
        r = refused(&to);
    emu4_peer_put(p, to.peer);
    return r;
}

bool emu4_dma_delivered(struct emu4_end *from, const uint64_t w[7])
{
    struct emu4_txn t;

    if (SRC_EVENT(w)) {
        if (!emu4_lock(&t, from))
            return false;
        emu4_event_set(&t, SRC_EVENT(w));
        emu4_txn_commit(&t);
        emu4_unlock(&t);
    }
    if (!from->peer->self)
        EMU4_COUNT(dma_helped, 1);
    else if (w[0] & DMA_QueueWrite)
        EMU4_COUNT(dma_queue, 1);
    else
        EMU4_COUNT(dma_write, 1);
    return true;
}

/* Leaves a DMA to the engine. */
static void put_off(struct emu4_ctx *x, const uint64_t w[7], uint64_t done, uint64_t due)
{
    if (!emu4_engine_put(&x->end, w, done, due))
        emu4_trap_now(&x->end, UTS_BAD_TRAP, UTS_DPROC, w[0], 0);
}

/* Holds a DMA back so that later ones overtake it; false if not chosen. */
static bool hold(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7])
{
    const struct emu4_knobs *k = &p->knobs;

    if (!k->reorder || emu4_random() % 100 >= k->reorder)
        return false;
    EMU4_COUNT(dma_held, 1);
    put_off(x, w, 0, emu4_now() + 1 + emu4_random() % (k->hold_us * 1000 + 1));
    return true;
}

/* Executes a DMA, or leaves the rest to the engine. */
static void go(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7])
{
    uint64_t done = 0;

    switch (emu4_dma_step(p, &x->end, w, &done, UINT64_MAX)) {
    case DMA_DONE:
        emu4_dma_delivered(&x->end, w);
        break;
    case DMA_MORE:
        put_off(x, w, done, 0);
        break;
    case DMA_NACK:
    case DMA_ABSENT:
        put_off(x, w, done, emu4_now() + 1000);
        break;
    case DMA_DEAD:
        break;
    }
}

void emu4_dma_start(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7],
                    uint64_t *budget)
{
    uint64_t size = SIZE_OF(w);

    if (hold(p, x, w))
        return;
    if (size > p->knobs.slice || size > *budget) {
        put_off(x, w, 0, 0);
        return;
    }
    *budget -= size;
    go(p, x, w);
}

/* ---- Chains of writes ---- */

bool emu4_dma_joins(const struct emu4_proc *p, const uint64_t w[7], const uint64_t first[7])
{
    return !(w[0] & DMA_QueueWrite) && !DST_EVENT(w) && VPROC(w) == VPROC(first) &&
           SIZE_OF(w) <= p->knobs.slice;
}

/* Looks up the addresses of one write; false if the write cannot be part of a chain. */
static bool find_ends(struct emu4_ctx *x, struct emu4_end *to, const uint64_t w[7],
                      struct iovec *here, struct iovec *there)
{
    uint64_t size = SIZE_OF(w);
    struct emu4_place src, dst;

    if (!emu4_place(&x->end, SRC_ADDR(w), size, &src) ||
        !emu4_place(to, DST_ADDR(w), size, &dst) || dst.ptr != NULL)
        return false;
    *here = (struct iovec){src.ptr != NULL ? src.ptr : (void *)(uintptr_t)src.va, size};
    *there = (struct iovec){(void *)(uintptr_t)dst.va, size};
    return true;
}

/* Moves all writes. False: some may have been moved, none is delivered. */
static bool move_together(struct emu4_ctx *x, struct emu4_end *to, uint64_t (*w)[7], unsigned n)
{
    struct shm_user *me = &to->peer->seg->user[to->peer->user];
    struct iovec here[EMU4_CHAIN_MAX], there[EMU4_CHAIN_MAX];
    uint64_t total = 0;
    bool moved;

    for (unsigned i = 0; i < n; i++) {
        if (!find_ends(x, to, w[i], &here[i], &there[i]))
            return false;
        total += SIZE_OF(w[i]);
    }
    atomic_fetch_add(&me->busy, 1);
    moved =
        is_open(to) && process_vm_writev(to->peer->pid, here, n, there, n, 0) == (ssize_t)total;
    atomic_fetch_sub(&me->busy, 1);
    if (!moved || !is_open(to))
        return false;
    EMU4_COUNT(dma_bytes, total);
    EMU4_COUNT(dma_chained, n);
    for (unsigned i = 0; i < n; i++)
        emu4_dma_delivered(&x->end, w[i]);
    return true;
}

void emu4_dma_chain(struct emu4_proc *p, struct emu4_ctx *x, uint64_t (*w)[7], unsigned n)
{
    unsigned left = 0;
    struct emu4_end to;
    bool moved = false;
    uint32_t route = route_of(&x->end, VPROC(w[0]));

    for (unsigned i = 0; i < n; i++)
        if (!hold(p, x, w[i]))
            memmove(w[left++], w[i], sizeof(w[i]));
    if (left > 1 && route && emu4_target_get(p, route, &to)) {
        moved = move_together(x, &to, w, left);
        emu4_peer_put(p, to.peer);
    }
    for (unsigned i = 0; i < left && !moved; i++)
        go(p, x, w[i]);
}
