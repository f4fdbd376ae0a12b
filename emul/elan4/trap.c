/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Traps: errors detected by the network interface are put into a ring of the affected context
 * and passed to the program by its engine's thread. Without a registered handler the trap is
 * reported on stderr and, depending on a knob, ends the process.
 *
 * Programs count traps to learn that a transfer is over, so each trap is delivered exactly
 * once: a trap is part of the list of stores of the change that found it.
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

void emu4_trap(struct emu4_txn *t, int type, int proc, uint64_t a0, uint64_t a1)
{
    struct shm_trap *trap = &t->e->c->trap[t->trap_tail++ % EMU4_TRAPS];

    EMU4_TXN_SET(t, trap->type, (uint32_t)type);
    EMU4_TXN_SET(t, trap->proc, (uint32_t)proc);
    EMU4_TXN_SET(t, trap->args[0], a0);
    EMU4_TXN_SET(t, trap->args[1], a1);
}

bool emu4_trap_now(struct emu4_end *e, int type, int proc, uint64_t a0, uint64_t a1)
{
    struct emu4_txn t;

    if (!emu4_lock(&t, e))
        return false;
    emu4_trap(&t, type, proc, a0, a1);
    emu4_txn_commit(&t);
    emu4_unlock(&t);
    return true;
}

bool emu4_traps_wait(struct emu4_proc *p)
{
    bool any = false;

    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < EMU4_CTXS; i++)
        any |= p->ctx[i] != NULL &&
               p->ctx[i]->trap_head !=
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
    for (unsigned i = 0; i < x->handlers && h.fn == NULL; i++)
        if ((x->handler[i].type == UTS_ALL_TRAPS || x->handler[i].type == s->type) &&
            (x->handler[i].proc == UTS_ALL_TRAPS || x->handler[i].proc == s->proc))
            h = x->handler[i];
    pthread_mutex_unlock(&p->lock);
    if (h.fn != NULL) {
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
            if (x != NULL) {
                tail = __atomic_load_n(&x->end.c->trap_tail, __ATOMIC_ACQUIRE);
                if (tail - x->trap_head > EMU4_TRAPS)
                    x->trap_head = tail - EMU4_TRAPS;
            }
            if (x == NULL || x->trap_head == tail) {
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
