/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lock of a context, and the log by which its state changes as a whole (shm.h says why).
 *
 * Normal path: lock; list the stores; make the list valid; carry them out; make it invalid;
 * unlock. Nothing of what they change is touched before the list is valid, so a process that
 * dies earlier has changed nothing; and one that dies later has the rest of its list carried
 * out by whoever takes the lock from it. Its last store may be made twice so: a word that it
 * sets is believed only when no list is valid (wait.c), or it would be set once more after its
 * owner has cleared it.
 *
 * Others than the owner wait for about a millisecond before they take it as refused, so that a
 * process that is stopped inside, or an evil one, holds up nobody but the owner of that
 * context; and the owner takes the lock from it after a while (a knob). Such a process looks
 * before each store whether the lock is still its own, so at most one store of it comes late.
 * When its list was not valid yet, it has done nothing, and begins again; when it was, it has
 * been carried out. The list that is valid then is another one's, so it makes none invalid but
 * its own.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define PATIENCE_NS 1000000

#define LIST_STORES(list) ((uint32_t)(list)&0xffff)
static _Atomic uint32_t lists; /* of this process, so far */

bool emu4_holds(const struct emu4_end *e)
{
    return atomic_load_explicit(&e->c->lock, memory_order_relaxed) == e->peer->user + 1;
}

static bool place_of(const struct emu4_end *e, uint64_t where, uint32_t bytes,
                     struct emu4_place *at)
{
    uint64_t off = ADDR_OFFSET(where);

    if (ADDR_REGION(where) != REGION_STATE)
        return emu4_place(e, where, bytes, at);
    if (off > sizeof(*e->c) || bytes > sizeof(*e->c) - off)
        return false;
    *at = (struct emu4_place){.ptr = (char *)e->c + off, .pid = e->peer->pid};
    return true;
}

static void apply(struct emu4_txn *t, const struct shm_store *s)
{
    struct emu4_place at, from;
    uint64_t value = s->value;
    uint32_t bytes = s->bytes;

    if (bytes != 1 && bytes != 2 && bytes != 4)
        bytes = 8;
    if (!place_of(t->e, s->where, bytes, &at) || (s->where & (bytes - 1))) {
        emu4_trap(t, UTS_INVALID_ADDR, UTS_EPROC, s->where, 0);
        return;
    }
    if (!at.ptr) {
        from = (struct emu4_place){.ptr = &value, .pid = at.pid};
        if (emu4_move(&from, &at, bytes) == -ENXIO)
            emu4_trap(t, UTS_INVALID_ADDR, UTS_EPROC, s->where, 0);
        return;
    }
    switch (bytes) {
    case 1:
        __atomic_store_n((uint8_t *)at.ptr, (uint8_t)value, __ATOMIC_RELEASE);
        break;
    case 2:
        __atomic_store_n((uint16_t *)at.ptr, (uint16_t)value, __ATOMIC_RELEASE);
        break;
    case 4:
        __atomic_store_n((uint32_t *)at.ptr, (uint32_t)value, __ATOMIC_RELEASE);
        break;
    default:
        __atomic_store_n((uint64_t *)at.ptr, value, __ATOMIC_RELEASE);
    }
}

/* Carries out the list from `at` on; `n` is ours, not read twice from where others can write.
 */
static void carry_out(struct emu4_txn *t, uint32_t at, uint32_t n)
{
    struct shm_ctx *c = t->e->c;

    for (uint32_t i = at; i < n; i++) {
        struct shm_store s = c->log[i];
        if (!emu4_holds(t->e))
            return; /* taken from us while we were stopped: somebody has done the rest */
        apply(t, &s);
        if (i + 1 == n && !t->e->peer->self)
            emu4_step(EMU4_STEP_STORED);
        atomic_store_explicit(&c->log_at, i + 1, memory_order_release);
        if (i == 0)
            emu4_step(EMU4_STEP_HALF_APPLIED);
    }
}

/* The holder died: what it had made valid is carried out. We hold the lock now. */
static void redo(struct emu4_end *e)
{
    struct emu4_txn t;
    uint32_t n = LIST_STORES(atomic_load(&e->c->log_valid));

    EMU4_COUNT(locks_broken, 1);
    emu4_txn_begin(&t, e);
    if (n > EMU4_LOG)
        n = 0;
    if (n) {
        EMU4_COUNT(logs_redone, 1);
        carry_out(&t, atomic_load(&e->c->log_at), n);
    }
    atomic_store(&e->c->log_valid, 0);
}

/* Takes the lock from a holder that is dead or cannot be, or in any case. */
static bool take_over(struct emu4_end *e, uint32_t holder, bool any)
{
    struct shm_head *seg = e->peer->seg;
    bool gone;

    if (holder == 0)
        return false;
    if (holder > EMU4_USERS)
        gone = e->peer->self; /* nobody: somebody wrote over it */
    else if (holder == 1)
        gone = !e->peer->self && emu4_process_gone(e->peer->pid);
    else
        gone = emu4_process_gone(atomic_load(&seg->user[holder - 1].pid));
    if ((!gone && !any) ||
        !atomic_compare_exchange_strong(&e->c->lock, &holder, e->peer->user + 1))
        return false;
    redo(e);
    return true;
}

static bool lock_slowly(struct emu4_end *e)
{
    uint32_t me = e->peer->user + 1;
    uint64_t begin = emu4_now(), looked = begin;

    for (unsigned k = 0;; k++) {
        uint32_t holder = 0;
        if (atomic_compare_exchange_strong(&e->c->lock, &holder, me))
            return true;
        if (k % 64)
            continue;
        if (k >= 256)
            sched_yield();
        uint64_t now = emu4_now();
        if (now - looked < 200000)
            continue;
        looked = now;
        bool late = now - begin > emu4_knobs()->lock_ms * 1000000;
        if (take_over(e, holder, e->peer->self && late))
            return true;
        if (!e->peer->self && now - begin > PATIENCE_NS)
            return false;
        if (now - begin > 10 * PATIENCE_NS) {
            struct timespec ts = {0, 200000};
            nanosleep(&ts, NULL);
        }
    }
}

bool emu4_lock(struct emu4_end *e)
{
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong_explicit(&e->c->lock, &none, e->peer->user + 1,
                                                 memory_order_acquire, memory_order_relaxed) &&
        !lock_slowly(e))
        return false;
    emu4_step(EMU4_STEP_LOCKED);
    return true;
}

void emu4_unlock(struct emu4_end *e)
{
    uint32_t me = e->peer->user + 1;

    /* only if it is still ours: who writes over it loses, not who comes next */
    atomic_compare_exchange_strong_explicit(&e->c->lock, &me, 0, memory_order_release,
                                            memory_order_relaxed);
}

void emu4_txn_begin(struct emu4_txn *t, struct emu4_end *e)
{
    t->e = e;
    t->n = 0;
    t->inbox_tail = e->c->inbox_tail;
    t->bell = false;
}

static void add(struct emu4_txn *t, uint64_t where, uint64_t value, uint32_t bytes)
{
    if (t->n >= EMU4_LOG || !emu4_holds(t->e))
        return; /* the longest list is that of an event that copies 255 dwords: it fits */
    t->e->c->log[t->n++] = (struct shm_store){where, value, bytes, 0};
}

void emu4_txn_store(struct emu4_txn *t, E4_Addr where, uint64_t value, uint32_t bytes)
{
    if (ADDR_REGION(where) == REGION_STATE)
        emu4_trap(t, UTS_INVALID_ADDR, UTS_EPROC, where, 0);
    else
        add(t, where, value, bytes);
}

void emu4_txn_state(struct emu4_txn *t, const volatile void *field, uint64_t value,
                    uint32_t bytes)
{
    uint64_t off = (uint64_t)((const volatile char *)field - (const volatile char *)t->e->c);

    add(t, ADDR(REGION_STATE, 0, off), value, bytes);
}

bool emu4_txn_commit(struct emu4_txn *t)
{
    struct shm_ctx *c = t->e->c;
    uint64_t serial = atomic_fetch_add_explicit(&lists, 1, memory_order_relaxed);

    if (t->inbox_tail != c->inbox_tail)
        EMU4_TXN_SET(t, c->inbox_tail, t->inbox_tail);
    uint64_t list = (serial & UINT32_MAX) << 32 | (uint64_t)(t->e->peer->user + 1) << 16 | t->n;
    emu4_step(EMU4_STEP_LISTED);
    if (!emu4_holds(t->e))
        return false;
    atomic_store_explicit(&c->log_at, 0, memory_order_relaxed);
    atomic_store_explicit(&c->log_valid, list, memory_order_release);
    emu4_step(EMU4_STEP_LOGGED);
    carry_out(t, 0, t->n);
    emu4_step(EMU4_STEP_APPLIED);
    atomic_compare_exchange_strong_explicit(&c->log_valid, &list, 0, memory_order_release,
                                            memory_order_relaxed);
    if (t->bell && t->e->peer->self)
        emu4_service_wake(emu4_proc_peek());
    else if (t->bell)
        emu4_ring(t->e->peer);
    t->n = 0;
    t->bell = false;
    return true;
}

void emu4_txn_forget_user(struct emu4_proc *p, uint32_t user)
{
    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        struct emu4_end e = {&p->self, &p->self.seg->ctx[i], 0};
        uint32_t holder = user + 1;
        if (atomic_load(&e.c->lock) == holder &&
            atomic_compare_exchange_strong(&e.c->lock, &holder, 1)) {
            redo(&e);
            emu4_unlock(&e);
        }
    }
}
