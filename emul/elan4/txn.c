/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lock of a context, and the log by which its state changes as a whole (shm.h says why).
 *
 * Normal path: lock; list the stores; make the list valid; carry them out; make it invalid;
 * unlock. Nothing of what they change is touched before the list is valid, so a process that
 * dies earlier has changed nothing; and one that dies later has the rest of its list carried
 * out by whoever takes the lock from it. Stores may be made twice so: a word that one of them
 * sets is believed only when no list is valid (wait.c), or it would be set once more after its
 * owner has cleared it.
 *
 * Others than the owner wait for about a millisecond before they take it as refused, so that a
 * process that is stopped inside, or an evil one, holds up nobody but the owner of that
 * context; and the owner takes the lock from it after a while (a knob). What counts is how long
 * it has waited, not how long it was stopped itself: its own threads are stopped with it.
 *
 * The lock's word says all that matters at once: who holds it, by which acquisition, and
 * whether a list is valid. A list is made valid, and invalid, by changing that word from what
 * it was; so who has lost the lock makes none valid, and who takes it knows whether there is
 * one to carry out. Who lost it before its list was valid has done nothing, and begins again;
 * who lost it after that has had its list carried out. It looks before each store whether the
 * lock is still its own, so at most one store of it comes late; what it writes late into
 * `log_at` is known by its ticket, and the list begins again there.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define PATIENCE_NS 1000000
#define LOOK_NS     200000
#define LOOK_MAX_NS 20000000 /* between two looks counts as waiting at most */

/* The word of the next acquisition; the list stays what it is. */
static uint64_t next_word(uint64_t was, uint32_t stores, const struct emu4_end *e)
{
    return EMU4_LOCK(EMU4_LOCK_TICKET(was) + 1, stores, e->peer->user + 1);
}

static void begin(struct emu4_txn *t, struct emu4_end *e, uint64_t word)
{
    t->e = e;
    t->lock = word;
    t->n = 0;
    t->inbox_tail = e->c->inbox_tail;
    t->bell = false;
    t->lost = false;
}

bool emu4_holds(const struct emu4_txn *t)
{
    return atomic_load_explicit(&t->e->c->lock, memory_order_relaxed) == t->lock;
}

/* Changes whether a list is valid. False: the lock is not ours any more. */
static bool set_stores(struct emu4_txn *t, uint32_t stores)
{
    uint64_t was = t->lock;
    uint64_t word = EMU4_LOCK(EMU4_LOCK_TICKET(was), stores, EMU4_LOCK_HOLDER(was));

    if (!atomic_compare_exchange_strong_explicit(&t->e->c->lock, &was, word,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    t->lock = word;
    return true;
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

/* False: no memory is there. */
static bool apply(struct emu4_txn *t, const struct shm_store *s)
{
    struct emu4_place at, from;
    uint64_t value = s->value;
    uint32_t bytes = s->bytes;

    if (bytes != 1 && bytes != 2 && bytes != 4)
        bytes = 8;
    if (!place_of(t->e, s->where, bytes, &at) || (s->where & (bytes - 1)))
        return false;
    if (!at.ptr) {
        from = (struct emu4_place){.ptr = &value, .pid = at.pid};
        return emu4_move(&from, &at, bytes) != -ENXIO;
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
    return true;
}

/* Carries out the list from `at` on; `n` is ours, not read twice from where others can write.
 */
static void carry_out(struct emu4_txn *t, uint32_t at, uint32_t n, bool again)
{
    struct shm_ctx *c = t->e->c;
    uint64_t ticket = EMU4_LOCK(EMU4_LOCK_TICKET(t->lock), 0, 0);

    for (uint32_t i = at; i < n; i++) {
        struct shm_store s = c->log[i];
        if (!emu4_holds(t))
            return; /* taken from us while we were stopped: somebody does the rest */
        bool stored = apply(t, &s);
        if (!stored && ADDR_REGION(s.where) == REGION_TRAP)
            emu4_trap_listed(t, i, n, again);
        else if (!stored)
            emu4_trap_stored(t, i, s.where, again);
        if (i + 1 == n && !t->e->peer->self)
            emu4_step(EMU4_STEP_STORED);
        atomic_store_explicit(&c->log_at, ticket | (i + 1), memory_order_release);
        if (i == 0)
            emu4_step(EMU4_STEP_HALF_APPLIED);
    }
}

/* The owner's thread is told what concerns it. */
static void ring(struct emu4_txn *t)
{
    if (t->bell && t->e->peer->self)
        emu4_service_wake(emu4_proc_peek());
    else if (t->bell)
        emu4_ring(t->e->peer);
    t->bell = false;
}

/* The lock was taken from who had that word: what it had made valid is carried out. */
static void redo(struct emu4_txn *t, uint64_t was)
{
    uint32_t n = EMU4_LOCK_STORES(was);
    uint64_t at = atomic_load(&t->e->c->log_at);

    EMU4_COUNT(locks_broken, 1);
    if (n > EMU4_LOG)
        n = 0; /* somebody wrote over it */
    if (n) {
        EMU4_COUNT(logs_redone, 1);
        carry_out(t, EMU4_LOCK_TICKET(at) == EMU4_LOCK_TICKET(was) ? (uint32_t)at : 0, n, true);
        ring(t);
    }
    set_stores(t, 0);
}

/* Takes the lock from who had that word. False: it has another one by now. */
static bool take_from(struct emu4_txn *t, struct emu4_end *e, uint64_t was)
{
    uint64_t mine = next_word(was, EMU4_LOCK_STORES(was), e);

    if (!atomic_compare_exchange_strong(&e->c->lock, &was, mine))
        return false;
    begin(t, e, mine);
    redo(t, was);
    return true;
}

/* Whether the holder is dead or cannot be. */
static bool holder_gone(const struct emu4_end *e, uint32_t holder)
{
    if (holder > EMU4_USERS)
        return e->peer->self; /* nobody: somebody wrote over it */
    if (holder == 1)
        return !e->peer->self && emu4_process_gone(e->peer->pid);
    return emu4_process_gone(atomic_load(&e->peer->seg->user[holder - 1].pid));
}

static bool lock_free(struct emu4_txn *t, struct emu4_end *e)
{
    uint64_t was = atomic_load_explicit(&e->c->lock, memory_order_relaxed);
    uint64_t mine = next_word(was, 0, e);

    if (EMU4_LOCK_HOLDER(was) ||
        !atomic_compare_exchange_strong_explicit(&e->c->lock, &was, mine, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    begin(t, e, mine);
    return true;
}

static bool lock_slowly(struct emu4_txn *t, struct emu4_end *e)
{
    uint64_t looked = emu4_now(), waited = 0;

    for (unsigned k = 0;; k++) {
        if (lock_free(t, e))
            return true;
        if (k % 64)
            continue;
        if (k >= 256)
            sched_yield();
        uint64_t now = emu4_now();
        if (now - looked < LOOK_NS)
            continue;
        waited += now - looked < LOOK_MAX_NS ? now - looked : LOOK_MAX_NS;
        looked = now;
        uint64_t was = atomic_load(&e->c->lock);
        bool late = e->peer->self && waited > emu4_knobs()->lock_ms * 1000000;
        if (EMU4_LOCK_HOLDER(was) && (late || holder_gone(e, EMU4_LOCK_HOLDER(was))) &&
            take_from(t, e, was))
            return true;
        if (!e->peer->self && waited > PATIENCE_NS)
            return false;
        if (waited > 10 * PATIENCE_NS) {
            struct timespec ts = {0, LOOK_NS};
            nanosleep(&ts, NULL);
        }
    }
}

bool emu4_lock(struct emu4_txn *t, struct emu4_end *e)
{
    if (!lock_free(t, e) && !lock_slowly(t, e))
        return false;
    emu4_step(EMU4_STEP_LOCKED);
    return true;
}

void emu4_unlock(struct emu4_txn *t)
{
    uint64_t was = t->lock;

    /* only if it is still ours: who writes over it loses, not who comes next */
    atomic_compare_exchange_strong_explicit(&t->e->c->lock, &was,
                                            EMU4_LOCK(EMU4_LOCK_TICKET(was), 0, 0),
                                            memory_order_release, memory_order_relaxed);
}

void emu4_txn_list(struct emu4_txn *t, uint64_t where, uint64_t value, uint32_t bytes)
{
    if (t->n >= EMU4_LOG)
        return; /* the longest list is that of an event that copies 255 dwords: it fits */
    if (!emu4_holds(t)) {
        t->lost = true;
        return;
    }
    t->e->c->log[t->n++] = (struct shm_store){where, value, bytes, 0};
}

void emu4_txn_store(struct emu4_txn *t, E4_Addr where, uint64_t value, uint32_t bytes)
{
    if (ADDR_REGION(where) == REGION_STATE || ADDR_REGION(where) == REGION_TRAP)
        emu4_trap(t, UTS_INVALID_ADDR, UTS_EPROC, where, 0);
    else
        emu4_txn_list(t, where, value, bytes);
}

void emu4_txn_state(struct emu4_txn *t, const volatile void *field, uint64_t value,
                    uint32_t bytes)
{
    uint64_t off = (uint64_t)((const volatile char *)field - (const volatile char *)t->e->c);

    emu4_txn_list(t, ADDR(REGION_STATE, 0, off), value, bytes);
}

/* Makes the list valid, and carries it out. False: it was not made valid. */
static bool publish(struct emu4_txn *t)
{
    uint64_t ticket = EMU4_LOCK(EMU4_LOCK_TICKET(t->lock), 0, 0);

    if (!emu4_holds(t))
        return false; /* `log_traps` may be a successor's by now */
    atomic_store_explicit(&t->e->c->log_at, ticket, memory_order_relaxed);
    t->e->c->log_traps = t->e->c->trap_tail;
    if (!set_stores(t, t->n))
        return false;
    emu4_step(EMU4_STEP_LOGGED);
    carry_out(t, 0, t->n, false);
    emu4_step(EMU4_STEP_APPLIED);
    set_stores(t, 0);
    return true;
}

bool emu4_txn_commit(struct emu4_txn *t)
{
    struct shm_ctx *c = t->e->c;

    if (t->inbox_tail != c->inbox_tail)
        EMU4_TXN_SET(t, c->inbox_tail, t->inbox_tail);
    emu4_step(EMU4_STEP_LISTED);
    bool done = t->n ? publish(t) : !t->lost;
    ring(t);
    begin(t, t->e, t->lock);
    return done;
}

void emu4_txn_forget_user(struct emu4_proc *p, uint32_t user)
{
    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        struct emu4_end e = {&p->self, &p->self.seg->ctx[i], 0};
        uint64_t was = atomic_load(&e.c->lock);
        struct emu4_txn t;
        if (EMU4_LOCK_HOLDER(was) == user + 1 && take_from(&t, &e, was))
            emu4_unlock(&t);
    }
}
