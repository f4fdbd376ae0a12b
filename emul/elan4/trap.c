/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Traps: what the network interface refuses is put into a ring of the context that it concerns,
 * and handed to its program by its engine's thread. A handler may be registered; where there is
 * none the trap is told on stderr and, by a knob, ends the process.
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
    case UTS_PERMISSION:
        return "command without permission";
    case UTS_CMDQ_OVERFLOW:
        return "command queue overflow";
    default:
        return "bad trap";
    }
}

static const char *unit_name(int proc)
{
    static const char *const names[] = {"?", "command", "event", "DMA", "input"};

    return names[proc >= UTS_CPROC && proc <= UTS_IPROC ? proc : 0];
}

void emu4_trap(struct emu4_txn *t, int type, int proc, uint64_t a0, uint64_t a1)
{
    struct shm_ctx *c = t->e->c;
    struct shm_trap *trap = &c->trap[c->trap_tail % EMU4_TRAPS];

    if (!emu4_holds(t)) {
        t->lost = true; /* who begins again meets it again */
        return;
    }
    trap->type = type;
    trap->proc = proc;
    trap->args[0] = a0;
    trap->args[1] = a1;
    __atomic_store_n(&c->trap_tail, c->trap_tail + 1, __ATOMIC_RELEASE);
    t->bell = true;
}

bool emu4_trap_now(struct emu4_end *e, int type, int proc, uint64_t a0, uint64_t a1)
{
    struct emu4_txn t;
    bool told;

    do {
        if (!emu4_lock(&t, e))
            return false;
        emu4_trap(&t, type, proc, a0, a1);
        told = emu4_txn_commit(&t); /* what is in the ring is told */
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

static void deliver(struct emu4_proc *p, struct emu4_ctx *x, const struct shm_trap *s)
{
    ELAN4_USER_TRAP trap = {s->type, s->proc, {s->args[0], s->args[1], 0, 0}};
    struct emu4_handler h = {0};

    EMU4_COUNT(traps, 1);
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < x->handlers && !h.fn; i++)
        if ((x->handler[i].type == UTS_ALL || x->handler[i].type == s->type) &&
            (x->handler[i].proc == -1 || x->handler[i].proc == s->proc))
            h = x->handler[i];
    pthread_mutex_unlock(&p->lock);
    if (h.fn) {
        h.fn(&x->pub, &trap, h.arg);
        return;
    }
    emu4_say("trap of context %d on node %u: %s, found by the %s unit: %#llx, %#llx",
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
            atomic_store(&p->trapping, x); /* elan4_fini waits for it */
            pthread_mutex_unlock(&p->lock);
            deliver(p, x, &s);
            atomic_store(&p->trapping, NULL);
        }
}
