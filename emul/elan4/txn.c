/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lock of a context, and the log that makes state changes atomic (rationale in shm.h).
 *
 * A transaction takes the lock, lists the stores, makes the list valid, applies it, makes it
 * invalid and unlocks. A process that dies before the list is valid has changed nothing. If
 * it dies later, the process that takes the lock applies the list again, from its beginning.
 * Stores can be repeated, so a stored word is trusted only while no list is valid (wait.c);
 * otherwise it could be set again after the program has cleared it.
 *
 * Processes other than the owner wait for about a millisecond and then treat the lock as
 * refused. The owner waits until the holder unlocks or dies: a process that is stopped in the
 * few microseconds of a change delays the owner until it continues. Waiting is a short loop,
 * then a futex: with more processes than processors the holder may need the waiter's one.
 * Threads of the owner are woken after unlocking: a woken thread may take the holder's
 * processor, and then waits for the lock.
 */
#include "emul/elan4/emu.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS 1000000
#define CHECK_NS    200000

static void begin(struct emu4_txn *t, struct emu4_end *e)
{
    t->e = e;
    t->n = 0;
    t->inbox_tail = e->c->inbox_tail;
    t->trap_tail = e->c->trap_tail;
}

/* Makes a list of `stores` valid, or, if 0, the list invalid.  A reader of one of the stores
 * sees that the list is valid: the fence pairs with that of is_set() (wait.c). */
static void set_stores(struct emu4_txn *t, uint32_t stores)
{
    atomic_store_explicit(&t->e->c->lock, EMU4_LOCK(stores, t->e->peer->user + 1),
                          memory_order_release);
    atomic_thread_fence(memory_order_release);
}

static bool place_of(const struct emu4_end *e, uint64_t where, uint32_t bytes,
                     struct emu4_place *at)
{
    uint64_t off = ADDR_OFFSET(where);

    if (where & (bytes - 1))
        return false;
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
    uint32_t bytes = s->bytes == 1 || s->bytes == 2 || s->bytes == 4 ? s->bytes : 8;

    if (!place_of(t->e, s->where, bytes, &at))
        return;
    if (at.ptr == NULL) {
        from = (struct emu4_place){.ptr = &value, .pid = at.pid};
        emu4_move(&from, &at, bytes);
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

static void carry_out(struct emu4_txn *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct shm_store s = t->e->c->log[i];
        apply(t, &s);
        if (i == 0)
            emu4_step(EMU4_STEP_HALF_APPLIED);
    }
}

/* Takes the lock from a dead holder with the word `was`, and applies its valid list. False: the
 * word has changed. */
static bool take_from(struct emu4_txn *t, struct emu4_end *e, uint64_t was)
{
    uint32_t n = EMU4_LOCK_STORES(was);

    if (!atomic_compare_exchange_strong(&e->c->lock, &was, EMU4_LOCK(n, e->peer->user + 1)))
        return false;
    begin(t, e);
    t->bell = t->interrupt = true; /* the holder may have died before waking */
    EMU4_COUNT(locks_broken, 1);
    if (n && n <= EMU4_LOG) {
        EMU4_COUNT(logs_redone, 1);
        carry_out(t, n);
    }
    set_stores(t, 0);
    begin(t, e);
    return true;
}

static bool holder_dead(const struct emu4_end *e, uint32_t holder)
{
    if (holder > EMU4_USERS)
        return true;
    if (holder == 1)
        return !e->peer->self && emu4_process_dead(e->peer->pid);
    return emu4_process_dead(atomic_load(&e->peer->seg->user[holder - 1].pid));
}

static bool lock_free(struct emu4_txn *t, struct emu4_end *e)
{
    uint64_t was = 0;

    if (!atomic_compare_exchange_strong_explicit(&e->c->lock, &was,
                                                 EMU4_LOCK(0, e->peer->user + 1),
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    begin(t, e);
    t->bell = t->interrupt = false;
    return true;
}

/* Sleeps until the holder of the lock word `was` unlocks; it may have no processor. */
static void await_unlock(struct shm_ctx *c, uint64_t was)
{
    const struct timespec most = {0, CHECK_NS};

    atomic_store(&c->lock_awaited, 1);
    syscall(SYS_futex, &c->lock, FUTEX_WAIT, (uint32_t)was, &most, NULL, 0);
}

static bool lock_slowly(struct emu4_txn *t, struct emu4_end *e)
{
    uint64_t checked = emu4_now(), waited = 0;

    for (unsigned k = 0;; k++) {
        if (lock_free(t, e))
            return true;
        if (k % 64)
            continue;
        uint64_t held = atomic_load(&e->c->lock), now;
        if (k >= 256 && EMU4_LOCK_HOLDER(held))
            await_unlock(e->c, held);
        now = emu4_now();
        if (now - checked < CHECK_NS)
            continue;
        waited += now - checked;
        checked = now;
        uint64_t was = atomic_load(&e->c->lock);
        if (EMU4_LOCK_HOLDER(was) && holder_dead(e, EMU4_LOCK_HOLDER(was)) &&
            take_from(t, e, was))
            return true;
        if (!e->peer->self && waited > PATIENCE_NS)
            return false;
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
    struct shm_ctx *c = t->e->c;

    atomic_store_explicit(&c->lock, 0, memory_order_release);
    /* without a fence: a sleeper that is overlooked wakes up after CHECK_NS */
    if (atomic_load_explicit(&c->lock_awaited, memory_order_relaxed) &&
        atomic_exchange(&c->lock_awaited, 0))
        syscall(SYS_futex, &c->lock, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    emu4_step(EMU4_STEP_UNLOCKED);
    if (t->interrupt)
        emu4_sleepers_wake(c);
    if (t->bell)
        emu4_ring(t->e->peer);
}

void emu4_txn_list(struct emu4_txn *t, uint64_t where, uint64_t value, uint32_t bytes)
{
    if (t->n < EMU4_LOG) /* the longest list, of an event that copies 255 dwords, fits */
        t->e->c->log[t->n++] = (struct shm_store){where, value, bytes, 0};
}

void emu4_txn_store(struct emu4_txn *t, E4_Addr where, uint64_t value, uint32_t bytes)
{
    struct emu4_place at;
    char now[8];

    if (ADDR_REGION(where) == REGION_STATE || !place_of(t->e, where, bytes, &at) ||
        (at.ptr == NULL && emu4_read(t->e, where, now, bytes) < 0))
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

void emu4_txn_commit(struct emu4_txn *t)
{
    struct shm_ctx *c = t->e->c;

    if (t->inbox_tail != c->inbox_tail)
        EMU4_TXN_SET(t, c->inbox_tail, t->inbox_tail);
    if (t->trap_tail != c->trap_tail) {
        EMU4_TXN_SET(t, c->trap_tail, t->trap_tail);
        t->bell = true;
    }
    if (t->n) {
        set_stores(t, t->n);
        emu4_step(EMU4_STEP_LOGGED);
        carry_out(t, t->n);
        emu4_step(EMU4_STEP_APPLIED);
        set_stores(t, 0);
    }
    begin(t, t->e);
}

void emu4_txn_drop_user(struct emu4_proc *p, uint32_t user)
{
    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        struct emu4_end e = {&p->self, &p->self.seg->ctx[i], 0};
        uint64_t was = atomic_load(&e.c->lock);
        struct emu4_txn t;
        if (EMU4_LOCK_HOLDER(was) == user + 1 && take_from(&t, &e, was))
            emu4_unlock(&t);
        else
            emu4_sleepers_wake(e.c); /* the user may have unlocked, and died before waking */
    }
}
