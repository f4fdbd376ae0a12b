/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lock of a context, and the log that makes state changes atomic (rationale in shm.h).
 *
 * A transaction takes the lock, lists the stores, makes the list valid, applies it, makes it
 * invalid and unlocks. A process that dies before the list is valid has changed nothing. If it
 * dies later, the process that takes the lock applies the rest of the list. Stores can be
 * repeated, so a stored word is trusted only while no list is valid (wait.c); otherwise it
 * could be set again after the program has cleared it.
 *
 * Processes other than the owner wait for about a millisecond and then treat the lock as
 * refused, so that a stopped or malicious holder blocks only the owner of that context. The
 * owner breaks the lock after EMUELAN4_LOCK_MS of waiting. Time during which the waiting thread
 * itself was stopped does not count.
 *
 * The lock word contains holder, ticket and state of the list. The list is made valid and
 * invalid by compare-and-swap of the word. Therefore a thread that has lost the lock cannot
 * make a list valid, and the new holder can tell from the word whether a list must be applied.
 * A thread that lost the lock before its list was valid starts again; later its list is applied
 * by the new holder. A thread checks its ownership before each store, so at most one store is
 * late. A late write to `log_at` is recognized by its ticket, and the list is then applied from
 * the beginning.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define PATIENCE_NS  1000000
#define CHECK_NS     200000
#define CHECK_MAX_NS 20000000 /* most waiting time counted between two checks */

/* Returns the word of the next acquisition; the list's state is unchanged. */
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

/* Makes the list valid or invalid. False: the lock was lost. */
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

/* Applies one store; false if the memory is unmapped. */
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

/* Applies the list from `at` on. `n` is a private copy, because other processes can write to
 * the log. */
static void carry_out(struct emu4_txn *t, uint32_t at, uint32_t n, bool again)
{
    struct shm_ctx *c = t->e->c;
    uint64_t ticket = EMU4_LOCK(EMU4_LOCK_TICKET(t->lock), 0, 0);

    for (uint32_t i = at; i < n; i++) {
        struct shm_store s = c->log[i];
        if (!emu4_holds(t))
            return; /* lock lost while stopped: the new holder continues */
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

/* Wakes the owner's thread if needed. */
static void ring(struct emu4_txn *t)
{
    if (t->bell && t->e->peer->self)
        emu4_service_wake(emu4_proc_peek());
    else if (t->bell)
        emu4_ring(t->e->peer);
    t->bell = false;
}

/* Applies the valid list of the former holder, whose lock word was `was`. */
static void redo(struct emu4_txn *t, uint64_t was)
{
    uint32_t n = EMU4_LOCK_STORES(was);
    uint64_t at = atomic_load(&t->e->c->log_at);

    EMU4_COUNT(locks_broken, 1);
    if (n > EMU4_LOG)
        n = 0; /* overwritten by another process */
    if (n) {
        EMU4_COUNT(logs_redone, 1);
        carry_out(t, EMU4_LOCK_TICKET(at) == EMU4_LOCK_TICKET(was) ? (uint32_t)at : 0, n, true);
        ring(t);
    }
    set_stores(t, 0);
}

/* Takes the lock from the holder with the word `was`. False: the word has changed. */
static bool take_from(struct emu4_txn *t, struct emu4_end *e, uint64_t was)
{
    uint64_t mine = next_word(was, EMU4_LOCK_STORES(was), e);

    if (!atomic_compare_exchange_strong(&e->c->lock, &was, mine))
        return false;
    begin(t, e, mine);
    redo(t, was);
    return true;
}

/* Returns whether the holder is dead or invalid. */
static bool holder_dead(const struct emu4_end *e, uint32_t holder)
{
    if (holder > EMU4_USERS)
        return e->peer->self; /* invalid: overwritten by another process */
    if (holder == 1)
        return !e->peer->self && emu4_process_dead(e->peer->pid);
    return emu4_process_dead(atomic_load(&e->peer->seg->user[holder - 1].pid));
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
    uint64_t checked = emu4_now(), waited = 0;

    for (unsigned k = 0;; k++) {
        if (lock_free(t, e))
            return true;
        if (k % 64)
            continue;
        if (k >= 256)
            sched_yield();
        uint64_t now = emu4_now();
        if (now - checked < CHECK_NS)
            continue;
        waited += now - checked < CHECK_MAX_NS ? now - checked : CHECK_MAX_NS;
        checked = now;
        uint64_t was = atomic_load(&e->c->lock);
        bool late = e->peer->self && waited > emu4_knobs()->lock_ms * 1000000;
        if (EMU4_LOCK_HOLDER(was) && (late || holder_dead(e, EMU4_LOCK_HOLDER(was))) &&
            take_from(t, e, was))
            return true;
        if (!e->peer->self && waited > PATIENCE_NS)
            return false;
        if (waited > 10 * PATIENCE_NS) {
            struct timespec ts = {0, CHECK_NS};
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

    /* only if still held: after an overwritten word the next acquisition must not suffer */
    atomic_compare_exchange_strong_explicit(&t->e->c->lock, &was,
                                            EMU4_LOCK(EMU4_LOCK_TICKET(was), 0, 0),
                                            memory_order_release, memory_order_relaxed);
}

void emu4_txn_list(struct emu4_txn *t, uint64_t where, uint64_t value, uint32_t bytes)
{
    if (t->n >= EMU4_LOG)
        return; /* not reached: the longest list, of an event that copies 255 dwords, fits */
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

/* Makes the list valid and applies it. False: not made valid. */
static bool publish(struct emu4_txn *t)
{
    uint64_t ticket = EMU4_LOCK(EMU4_LOCK_TICKET(t->lock), 0, 0);

    if (!emu4_holds(t))
        return false; /* `log_traps` may belong to the new holder */
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

void emu4_txn_drop_user(struct emu4_proc *p, uint32_t user)
{
    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        struct emu4_end e = {&p->self, &p->self.seg->ctx[i], 0};
        uint64_t was = atomic_load(&e.c->lock);
        struct emu4_txn t;
        if (EMU4_LOCK_HOLDER(was) == user + 1 && take_from(&t, &e, was))
            emu4_unlock(&t);
    }
}
