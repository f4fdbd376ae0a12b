/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Execution of one DMA. The data is moved in pieces. Then the DMA is delivered in one
 * transaction on the target's state: the target's event is set, or the message is entered into
 * the target's queue. Only afterwards a transaction on the owner's state sets the source event.
 * An absent, blocked or full target refuses the DMA, which stays in the table and is retried
 * without limit.
 *
 * A process may execute a DMA of another process (engine.c). If the executing process dies
 * between the two transactions, the owner reads the mark left by the first one to learn whether
 * the DMA was delivered. Each of the claims that a process may hold has its own mark.
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

/* Records the outcome of another process's DMA, in the transaction that delivers it. */
static void leave_mark(struct emu4_txn *t, const struct emu4_end *from,
                       const struct emu4_claim *claim, uint64_t refused)
{
    struct emu4_end *to = t->e;
    struct shm_mark *m = &to->c->mark[to->peer->user][claim->mark];

    EMU4_TXN_SET(t, m->incarnation, from->peer->incarnation);
    EMU4_TXN_SET(t, m->seq, claim->seq | refused);
}

/* Ends a delivery. False: not delivered, because the target has taken its lock back. */
static bool end(struct emu4_proc *p, struct emu4_txn *t, const struct emu4_end *from,
                const struct emu4_claim *claim)
{
    struct emu4_end *to = t->e;

    if (claim)
        leave_mark(t, from, claim, 0);
    bool committed = emu4_txn_commit(t);
    bool help = to->c->inbox_head != to->c->inbox_tail;
    emu4_unlock(t);
    if (committed && help)
        emu4_engine_help(p, to);
    return committed;
}

/* Traps at the owner of a claimed DMA, and ends the DMA, in one transaction. */
static bool end_claimed(struct emu4_end *from, int type, uint64_t a0, uint64_t a1,
                        const struct emu4_claim *claim)
{
    struct shm_dma *d = &from->c->dma[claim->entry];
    struct emu4_txn t;
    bool committed = true;

    if (!emu4_lock(&t, from))
        return false;
    if (atomic_load(&from->c->attached) == from->generation && d->seq == claim->seq &&
        atomic_load(&d->claim) == from->peer->user + 1) {
        emu4_trap(&t, type, UTS_DPROC, a0, a1);
        emu4_table_move(&t, claim->entry, TABLE_REMOVED);
        committed = emu4_txn_commit(&t);
    }
    emu4_unlock(&t);
    return committed;
}

/* Traps at the owner. If the trap cannot be delivered now, the DMA is refused and retried. */
static enum dma_end refuse(struct emu4_end *from, int type, uint64_t a0, uint64_t a1,
                           const struct emu4_claim *claim)
{
    bool committed = claim ? end_claimed(from, type, a0, a1, claim)
                           : emu4_trap_now(from, type, UTS_DPROC, a0, a1);

    if (committed)
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
static enum dma_end refuse_there(struct emu4_end *to, uint64_t a0, uint64_t a1,
                                 const struct emu4_end *from, const struct emu4_claim *claim)
{
    struct emu4_txn t;
    bool committed;

    do {
        if (!begin(&t, to))
            return refused(to); /* the target may have detached */
        emu4_trap(&t, UTS_INVALID_ADDR, UTS_IPROC, a0, a1);
        if (claim)
            leave_mark(&t, from, claim, EMU4_MARK_REFUSED);
        committed = emu4_txn_commit(&t);
        emu4_unlock(&t);
    } while (!committed && to->peer->self);
    return committed ? DMA_DEAD : refused(to);
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
                                const uint64_t w[7], const struct emu4_claim *claim)
{
    char buf[INPUT_QUEUE_MAX];
    uint64_t size = SIZE_OF(w);
    struct emu4_place src, slot, mine = {.ptr = buf, .pid = p->pid};
    struct emu4_txn t;
    E4_InputQueue q;

    if (size > INPUT_QUEUE_MAX)
        return refuse(from, UTS_BAD_TRAP, w[0], size, claim);
    if (!emu4_place(from, SRC_ADDR(w), size, &src))
        return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size, claim);
    if (!src.ptr) {
        if (emu4_move(&src, &mine, size) < 0)
            return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size, claim);
        src = mine;
    }
    if (!begin(&t, to))
        return refused(to);
    if (!read_queue(to, DST_EVENT(w), &q)) {
        emu4_unlock(&t);
        return refuse_there(to, DST_EVENT(w), 0, from, claim);
    }
    E4_Addr next = next_slot(&q);
    if (next == q.q_fptr) {
        emu4_unlock(&t);
        return refused(to);
    }
    emu4_step(EMU4_STEP_SLOT_FOUND);
    if (!emu4_holds(&t)) { /* the slot may have been reused */
        emu4_unlock(&t);
        return refused(to);
    }
    if (DST_ADDR(w) > INPUT_QUEUE_MAX || DST_ADDR(w) + size > slot_bytes(&q) ||
        !emu4_place(to, q.q_bptr + DST_ADDR(w), size, &slot) ||
        emu4_move(&src, &slot, size) < 0) {
        emu4_unlock(&t);
        return refuse_there(to, q.q_bptr + DST_ADDR(w), size, from, claim);
    }
    emu4_step(EMU4_STEP_SLOT_WRITTEN);
    emu4_txn_store(&t, DST_EVENT(w), next, 8);
    if (q.q_event)
        emu4_event_set(&t, q.q_event);
    if (!end(p, &t, from, claim))
        return refused(to);
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
    if (src.ptr)
        src.ptr = (char *)src.ptr + done;
    if (dst.ptr)
        dst.ptr = (char *)dst.ptr + done;
    atomic_fetch_add(&me->busy, 1);
    if (is_open(to)) {
        if (emu4_step_watched(EMU4_STEP_HALF_COPIED)) {
            rc = emu4_move(&src, &dst, len / 2);
            emu4_step(EMU4_STEP_HALF_COPIED);
        }
        rc = emu4_move(&src, &dst, len);
    }
    atomic_fetch_sub(&me->busy, 1);
    return rc;
}

static enum dma_end rdma_write(struct emu4_proc *p, struct emu4_end *from, struct emu4_end *to,
                               const uint64_t w[7], uint64_t *done, uint64_t limit,
                               const struct emu4_claim *claim)
{
    uint64_t size = SIZE_OF(w), len = size - *done < limit ? size - *done : limit;
    struct emu4_place src, dst;
    struct emu4_txn t;

    if (len) {
        if (!emu4_place(from, SRC_ADDR(w), size, &src))
            return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size, claim);
        if (!emu4_place(to, DST_ADDR(w), size, &dst))
            return refuse_there(to, DST_ADDR(w), size, from, claim);
        int rc = piece(to, src, dst, *done, len);
        if (rc == -EFAULT)
            return refuse(from, UTS_INVALID_ADDR, SRC_ADDR(w), size, claim);
        if (rc == -ENXIO)
            return refuse_there(to, DST_ADDR(w), size, from, claim);
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
        if (!end(p, &t, from, claim))
            return refused(to);
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
                                struct emu4_end *to, const struct emu4_claim *claim)
{
    uint32_t route = route_of(from, vp);

    if (!route)
        return refuse(from, UTS_INVALID_VPROC, vp, 0, claim);
    if (emu4_target_get(p, route, to))
        return DMA_DONE;
    EMU4_COUNT(nacks, 1);
    return DMA_ABSENT;
}

enum dma_end emu4_dma_step(struct emu4_proc *p, struct emu4_end *from, const uint64_t w[7],
                           uint64_t *done, uint64_t limit, const struct emu4_claim *claim)
{
    struct emu4_end to;
    enum dma_end r = find_target(p, from, VPROC(w), &to, claim);

    if (r != DMA_DONE)
        return r;
    if (w[0] & DMA_QueueWrite)
        r = queue_write(p, from, &to, w, claim);
    else
        r = rdma_write(p, from, &to, w, done, limit, claim);
    emu4_peer_put(p, to.peer);
    if (r == DMA_DONE)
        emu4_step(EMU4_STEP_DELIVERED);
    return r;
}

enum dma_end emu4_dma_remote(struct emu4_proc *p, struct emu4_end *from, uint32_t vp,
                             const uint64_t w[7])
{
    struct emu4_end to;
    struct emu4_txn t;
    enum dma_end r = find_target(p, from, vp, &to, NULL);

    if (r != DMA_DONE)
        return r;
    if (!begin(&t, &to)) {
        r = refused(&to);
    } else if (emu4_table_put(&t, w, 0, 0, 0) < 0) {
        emu4_unlock(&t);
        r = refused(&to);
    } else {
        bool asked = emu4_txn_commit(&t);
        emu4_unlock(&t);
        if (asked)
            emu4_engine_help(p, &to);
        else
            r = refused(&to);
    }
    emu4_peer_put(p, to.peer);
    return r;
}

static void set_source_event(struct emu4_end *e, uint64_t event)
{
    struct emu4_txn t;
    bool done = !event;

    while (!done && emu4_lock(&t, e)) {
        emu4_event_set(&t, event);
        done = emu4_txn_commit(&t);
        emu4_unlock(&t);
    }
}

static bool put(struct emu4_ctx *x, const uint64_t w[7], uint64_t done, uint64_t due)
{
    struct emu4_txn t;

    emu4_lock(&t, &x->end);
    bool is_put = emu4_table_put(&t, w, done, due, 0) >= 0 && emu4_txn_commit(&t);
    emu4_unlock(&t);
    return is_put;
}

/*
 * Enters a DMA into the table, for the engine. With a full table the caller runs the engine
 * first. If the table remains full, because all entries may be refused, the DMA is kept beside
 * the table.
 */
static void put_off(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7], uint64_t done,
                    uint64_t due)
{
    if (!put(x, w, done, due)) {
        emu4_engine_run(p, UINT64_MAX);
        if (!put(x, w, done, due) && !emu4_engine_keep(&x->end, w, done, due)) {
            emu4_trap_now(&x->end, UTS_BAD_TRAP, UTS_DPROC, w[0], 0);
            return;
        }
    }
    if (due)
        emu4_engine_due(due);
}

/* Holds a DMA back so that later ones overtake it; false if not chosen. */
static bool hold(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7])
{
    const struct emu4_knobs *k = &p->knobs;

    if (!k->reorder || emu4_random() % 100 >= k->reorder)
        return false;
    EMU4_COUNT(dma_held, 1);
    put_off(p, x, w, 0, emu4_now() + 1 + emu4_random() % (k->hold_us * 1000 + 1));
    return true;
}

static void delivered(struct emu4_ctx *x, const uint64_t w[7])
{
    if (w[0] & DMA_QueueWrite)
        EMU4_COUNT(dma_queue, 1);
    else
        EMU4_COUNT(dma_write, 1);
    set_source_event(&x->end, SRC_EVENT(w));
}

/* Executes a DMA, or leaves the rest to the engine. */
static void go(struct emu4_proc *p, struct emu4_ctx *x, const uint64_t w[7])
{
    uint64_t done = 0;

    switch (emu4_dma_step(p, &x->end, w, &done, UINT64_MAX, NULL)) {
    case DMA_DONE:
        delivered(x, w);
        break;
    case DMA_MORE:
        put_off(p, x, w, done, 0);
        break;
    case DMA_NACK:
    case DMA_ABSENT:
        put_off(p, x, w, done, emu4_now() + 1000);
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
        put_off(p, x, w, 0, 0);
        return;
    }
    *budget -= size;
    go(p, x, w);
}

/* ---- Chains of writes ---- */

bool emu4_dma_joins(const struct emu4_proc *p, const uint64_t w[7], const uint64_t first[7])
{
    return !(w[0] & DMA_QueueWrite) && !DST_EVENT(w) && VPROC(w) == VPROC(first) &&
           SIZE_OF(w) <= p->knobs.slice && !emu4_steps;
}

/* Looks up the addresses of one write; false if the write cannot be part of a chain. */
static bool find_ends(struct emu4_ctx *x, struct emu4_end *to, const uint64_t w[7],
                      struct iovec *here, struct iovec *there)
{
    uint64_t size = SIZE_OF(w);
    struct emu4_place src, dst;

    if (!emu4_place(&x->end, SRC_ADDR(w), size, &src) ||
        !emu4_place(to, DST_ADDR(w), size, &dst) || dst.ptr)
        return false;
    *here = (struct iovec){src.ptr ? src.ptr : (void *)(uintptr_t)src.va, size};
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
        delivered(x, w[i]);
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

/*
 * Determines how far a dead user had executed a DMA. DMA_DONE: delivered; DMA_DEAD: refused at
 * the target; DMA_MORE: neither. Takes the target's lock, so that a list made valid by the dead
 * user, which contains the mark, is applied first. False: the lock is not available now.
 */
static bool outcome(struct emu4_proc *p, struct emu4_end *e, const struct shm_dma *d,
                    uint64_t incarnation, enum dma_end *r)
{
    struct emu4_end to;
    struct emu4_txn t;
    uint32_t route = route_of(e, d->word[2]);

    *r = DMA_MORE;
    if (!route || !emu4_target_get(p, route, &to))
        return true;
    bool locked = emu4_lock(&t, &to);
    for (unsigned u = 0; locked && u < EMU4_USERS; u++) {
        if (atomic_load(&to.peer->seg->user[u].incarnation) != incarnation)
            continue;
        for (const struct shm_mark *m = to.c->mark[u]; m < to.c->mark[u] + EMU4_MARKS; m++)
            if (m->incarnation == p->self.incarnation &&
                (m->seq & ~EMU4_MARK_REFUSED) == d->seq)
                *r = m->seq & EMU4_MARK_REFUSED ? DMA_DEAD : DMA_DONE;
    }
    if (locked)
        emu4_unlock(&t);
    emu4_peer_put(p, to.peer);
    return locked;
}

/* Returns whether the entry is claimed by that user. Under the lock. */
static bool claimed(const struct emu4_end *e, unsigned i, uint32_t user)
{
    return emu4_bit(e->c->used, i) && !emu4_bit(e->c->ready, i) && !emu4_bit(e->c->wait, i) &&
           atomic_load(&e->c->dma[i].claim) == user + 1;
}

bool emu4_dma_reclaim(struct emu4_proc *p, uint32_t user, uint64_t incarnation)
{
    enum dma_end r;
    bool all = true;

    for (unsigned x = 0; x < EMU4_CTXS; x++) {
        struct emu4_end e = {&p->self, &p->self.seg->ctx[x], 0};
        if (!atomic_load(&e.c->attached))
            continue;
        for (unsigned i = 0; i < EMU4_DMAS; i++) {
            struct shm_dma *d = &e.c->dma[i];
            struct emu4_txn t;
            emu4_lock(&t, &e);
            uint64_t seq = d->seq;
            bool ours = claimed(&e, i, user);
            emu4_unlock(&t);
            if (!ours)
                continue;
            if (!outcome(p, &e, d, incarnation, &r)) {
                all = false;
                continue;
            }
            emu4_lock(&t, &e);
            if (claimed(&e, i, user) && d->seq == seq) { /* still the same context and DMA */
                EMU4_COUNT(claims_redone, 1);
                if (r == DMA_DONE && d->word[5])
                    emu4_event_set(&t, d->word[5]);
                emu4_table_move(&t, i, r == DMA_MORE ? TABLE_READY : TABLE_REMOVED);
                all &= emu4_txn_commit(&t);
            }
            emu4_unlock(&t);
        }
    }
    return all;
}
