/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Traps: errors detected by the network interface are put into a ring of the affected context
 * and passed to the program by its engine's thread. Without a registered handler the trap is
 * reported on stderr and, depending on a knob, ends the process.
 *
 * Programs count traps to learn that a transfer is over, so each trap is delivered exactly
 * once. Traps found while a list is built are part of the list and delivered with it; traps
 * found while a list is applied are delivered at that time. If the holder dies and the list is
 * applied again, the ring shows which stores were reported.
 */
#include "emul/elan4/emu.h"

#include <signal.h>
#include <unistd.h>

const char *emu4_trap_name(int type)
{
    switch (type) {
    case UTS_INVALID_ADDR:
        return "invalid address";
    case UTS_INVALID_VPROC:
        return "invalid virtual process";
    case UTS_INVALID_COMMAND:
        return "invalid command";
    case UTS_PERMISSION_DENIED:
        return "command without permission";
    case UTS_CPROC_ERROR:
        return "command queue overflow";
    default:
        return "bad trap";
    }
}

static const char *unit_name(int proc)
{
    static const char *const names[] = {"?", "event", "command", "DMA", "thread", "input"};

    return names[proc >= UTS_EPROC && proc <= UTS_IPROC ? proc : 0];
}

/* A listed trap: kind and first argument, followed by the second argument unless 0. */
#define KIND(type, proc) ((uint64_t)(uint16_t)(type) << 16 | (uint16_t)(proc))
#define FIRST(kind)      ADDR(REGION_TRAP, 0, kind)
#define SECOND(kind)     ADDR(REGION_TRAP, 1, kind)

void emu4_trap(struct emu4_txn *t, int type, int proc, uint64_t a0, uint64_t a1)
{
    emu4_txn_list(t, FIRST(KIND(type, proc)), a0, 8);
    if (a1)
        emu4_txn_list(t, SECOND(KIND(type, proc)), a1, 8);
}

/* Returns whether a trap for this store was delivered by the valid list. */
static bool was_reported(const struct shm_ctx *c, uint32_t tail, uint32_t store)
{
    uint32_t n = tail - c->log_traps;

    for (n = n < EMU4_TRAPS ? n : EMU4_TRAPS; n; n--)
        if (c->trap[(tail - n) % EMU4_TRAPS].store == store)
            return true;
    return false;
}

/*
 * Delivers a trap. A thread that has lost the lock meanwhile writes the same as its successor,
 * and its increment of the tail fails. The tail is read before the lock is checked; the ring,
 * where a dead holder may have written after its last change of the lock, is read afterwards.
 */
static void report(struct emu4_txn *t, const struct shm_trap *trap, bool again)
{
    struct shm_ctx *c = t->e->c;
    uint32_t tail = __atomic_load_n(&c->trap_tail, __ATOMIC_ACQUIRE);

    if (!emu4_holds(t) || (again && was_reported(c, tail, trap->store)))
        return;
    emu4_step(EMU4_STEP_REPORTING);
    c->trap[tail % EMU4_TRAPS] = *trap;
    if (__atomic_compare_exchange_n(&c->trap_tail, &tail, tail + 1, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED))
        t->bell = true;
    emu4_step(EMU4_STEP_REPORTED);
}

void emu4_trap_listed(struct emu4_txn *t, uint32_t i, uint32_t n, bool again)
{
    const struct shm_store *s = &t->e->c->log[i];
    uint64_t kind = ADDR_OFFSET(s->where);
    struct shm_trap trap = {
        .type = (int16_t)(kind >> 16), .proc = (int16_t)kind, .args = {s->value}, .store = i};

    if (s->where != FIRST(kind))
        return; /* the second argument, delivered with the first */
    if (i + 1 < n && s[1].where == SECOND(kind))
        trap.args[1] = s[1].value;
    report(t, &trap, again);
}

void emu4_trap_stored(struct emu4_txn *t, uint32_t i, uint64_t where, bool again)
{
    report(t, &(struct shm_trap){UTS_INVALID_ADDR, UTS_EPROC, {where, 0}, i, 0}, again);
}

bool emu4_trap_now(struct emu4_end *e, int type, int proc, uint64_t a0, uint64_t a1)
{
    struct emu4_txn t;
    bool told;

    do {
        if (!emu4_lock(&t, e))
            return false;
        emu4_trap(&t, type, proc, a0, a1);
        told = emu4_txn_commit(&t);
        emu4_unlock(&t);
    } while (!told && e->peer->self);
    return told;
}

bool emu4_traps_wait(struct emu4_proc *p)
{
    bool any = false;

    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < EMU4_CTXS; i++)
        any |= p->ctx[i] && p->ctx[i]->trap_head !=
                                __atomic_load_n(&p->ctx[i]->end.c->trap_tail, __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&p->lock);
    return any;
}

/* Fills in a trap as the driver does: the address is in the unit's trap area. */
static void fill(ELAN4_USER_TRAP *trap, const struct shm_trap *s)
{
    uint64_t at = s->type == UTS_INVALID_ADDR ? s->args[0] : 0;

    trap->ut_type = s->type;
    trap->ut_proc = (unsigned)s->proc;
    switch (s->proc) {
    case UTS_EPROC:
        trap->ut_trap.eproc.tr_faultarea.FaultAddress = at;
        trap->ut_trap.eproc.tr_eventaddr = s->args[0];
        break;
    case UTS_CPROC:
        trap->ut_args[0] = (unsigned)s->args[1];
        trap->ut_trap.cproc.tr_command = s->args[0];
        trap->ut_trap.cproc.tr_faultarea.FaultAddress = at;
        break;
    case UTS_DPROC:
        trap->ut_args[0] = s->type == UTS_INVALID_VPROC ? (unsigned)s->args[0] : 0;
        trap->ut_trap.dproc.tr_prefetchFault.FaultAddress = at;
        break;
    default:
        trap->ut_trap.iproc.tr_faultarea.FaultAddress = at;
        break;
    }
}

static void deliver(struct emu4_proc *p, struct emu4_ctx *x, const struct shm_trap *s)
{
    ELAN4_USER_TRAP trap = {0};
    struct emu4_handler h = {0};

    EMU4_COUNT(traps, 1);
    fill(&trap, s);
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < x->handlers && !h.fn; i++)
        if ((x->handler[i].type == UTS_ALL_TRAPS || x->handler[i].type == s->type) &&
            (x->handler[i].proc == UTS_ALL_TRAPS || x->handler[i].proc == s->proc))
            h = x->handler[i];
    pthread_mutex_unlock(&p->lock);
    if (h.fn) {
        h.fn(&x->pub, &trap, h.arg);
        return;
    }
    emu4_print("trap in context %d of node %u: %s, detected by the %s unit: %#llx, %#llx",
               x->context, x->node, emu4_trap_name(s->type), unit_name(s->proc),
               (unsigned long long)s->args[0], (unsigned long long)s->args[1]);
    if (p->knobs.trap_abort)
        kill(getpid(), SIGABRT);
}

void emu4_traps_deliver(struct emu4_proc *p)
{
    for (unsigned i = 0; i < EMU4_CTXS; i++)
        for (;;) {
            struct shm_trap s;
            struct emu4_txn t;
            pthread_mutex_lock(&p->lock);
            struct emu4_ctx *x = p->ctx[i];
            uint32_t tail = 0;
            if (x) {
                tail = __atomic_load_n(&x->end.c->trap_tail, __ATOMIC_ACQUIRE);
                if (tail - x->trap_head > EMU4_TRAPS)
                    x->trap_head = tail - EMU4_TRAPS;
            }
            if (!x || x->trap_head == tail) {
                pthread_mutex_unlock(&p->lock);
                break;
            }
            emu4_lock(&t, &x->end);
            s = x->end.c->trap[x->trap_head++ % EMU4_TRAPS];
            emu4_unlock(&t);
            atomic_store(&p->trapping, x); /* elan4_fini() waits for it */
            pthread_mutex_unlock(&p->lock);
            deliver(p, x, &s);
            atomic_store(&p->trapping, NULL);
        }
}
