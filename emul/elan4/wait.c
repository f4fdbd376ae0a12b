/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events as used by programs: priming, polling, sleeping until an interrupt; cookies. */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORD_VALUE UINT64_C(0xfeedfacedeadbeef)

EMU4_EXPORT void elan4_initevent_write(ELAN4_CTX *ctx, E4_Event *event,
                                       volatile E4_uint64 *word)
{
    elan4_store64(E4_EVENT_INIT_VALUE(0, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                  &event->ev_CountAndType);
    elan4_store64(elan4_main2elan(ctx, word), &event->ev_WritePtr);
    elan4_store64(WORD_VALUE, &event->ev_WriteValue);
}

EMU4_EXPORT void elan4_primeevent_write(ELAN4_CTX *ctx, E4_Event *event, int count)
{
    (void)ctx;
    elan4_store64(E4_EVENT_INIT_VALUE(-32 * count, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                  &event->ev_CountAndType);
}

/*
 * Returns whether the word is set and final. If the process that set the word has died, the new
 * holder of the lock may apply the store again. Taking the lock completes the list before the
 * program can clear the word.
 */
static bool is_set(struct emu4_ctx *x, volatile E4_uint64 *word)
{
    if (elan4_load64(word) == 0)
        return false;
    atomic_thread_fence(memory_order_acquire);
    if (EMU4_LOCK_STORES(atomic_load_explicit(&x->end.c->lock, memory_order_acquire))) {
        struct emu4_txn t;
        emu4_lock(&t, &x->end);
        emu4_unlock(&t);
    }
    return true;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

EMU4_EXPORT int elan4_pollevent_word(ELAN4_CTX *ctx, volatile E4_uint64 *word, long usecs)
{
    struct emu4_proc *p = emu4_proc_peek();
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    uint64_t end = 0;

    for (unsigned k = 0;; k++) {
        if (is_set(x, word))
            return 1;
        if (emu4_engine_has_work(p) && emu4_engine_run(p, emu4_burst(p)))
            emu4_service_wake(p);
        if (usecs == 0)
            return is_set(x, word);
        if (k % 32 == 0) {
            uint64_t now = emu4_now();
            if (!end)
                end = usecs < 0 ? UINT64_MAX : now + (uint64_t)usecs * 1000;
            if (now >= end)
                return is_set(x, word);
        }
        if (k % 512 == 511)
            sched_yield(); /* the peer may need this processor */
        relax();
    }
}

static struct shm_int *interrupt_of(struct emu4_ctx *x, uint64_t cookie)
{
    for (unsigned i = 0; i < EMU4_INTS; i++)
        if (atomic_load(&x->end.c->interrupt[i].in_use) &&
            x->end.c->interrupt[i].cookie == cookie)
            return &x->end.c->interrupt[i];
    return NULL;
}

/* Sleeps until the count changes. */
static void sleep_for(struct shm_int *in, uint32_t count)
{
    EMU4_COUNT(sleeps, 1);
    atomic_fetch_add(&in->sleepers, 1);
    while (atomic_load(&in->count) == count)
        syscall(SYS_futex, &in->count, FUTEX_WAIT, count, NULL, NULL, 0);
    atomic_fetch_sub(&in->sleepers, 1);
}

/*
 * Before sleeping, changes the event to one that copies an interrupt command to a queue;
 * restores the event after the interrupt. The count is not negative then, so the event stores
 * the word immediately.
 */
EMU4_EXPORT void elan4_waitevent_word(ELAN4_CTX *ctx, E4_CmdQ *cmdq, E4_CmdQ *irqcq,
                                      E4_Event_Blk *cmdBlk, E4_uint64 intcookie,
                                      E4_Event *event, volatile E4_uint64 *word, long how)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    E4_Addr ev = elan4_main2elan(ctx, event);

    if (how != ELAN_WAIT_EVENT && elan4_pollevent_word(ctx, word, how))
        return;
    struct shm_int *in = interrupt_of(x, intcookie);
    while (!is_set(x, word)) {
        if (in == NULL) { /* no interrupt would arrive */
            elan4_pollevent_word(ctx, word, ELAN_POLL_EVENT);
            return;
        }
        uint32_t count = atomic_load(&in->count);
        elan4_store64(intcookie << E4_MAIN_INT_SHIFT | INTERRUPT_CMD, &cmdBlk->eb_uint64[0]);
        MEMBAR_STORESTORE();
        elan4_wait_event_cmd(
            cmdq, ev, E4_EVENT_INIT_VALUE(0, E4_EVENT_COPY, E4_EVENT_DTYPE_LONG, 1),
            elan4_main2elan(ctx, cmdBlk), elan4_main2elan(ctx, irqcq->cmdq_mapping));
        cmdq->cmdq_flush(cmdq);
        if (!is_set(x, word))
            sleep_for(in, count);
        elan4_wait_event_cmd(cmdq, ev,
                             E4_EVENT_INIT_VALUE(0, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                             elan4_main2elan(ctx, word), WORD_VALUE);
        cmdq->cmdq_flush(cmdq);
    }
}

EMU4_EXPORT int elan4_alloc_intcookie(ELAN4_CTX *ctx, E4_uint64 cookie)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_txn t;

    if (emu4_call(EMU4_CALL_elan4_alloc_intcookie))
        return -1;
    if (x->context < 0 || cookie == 0 || cookie >> (64 - E4_MAIN_INT_SHIFT)) {
        errno = EINVAL;
        return -1;
    }
    emu4_lock(&t, &x->end);
    struct shm_int *found = NULL;
    bool known = interrupt_of(x, cookie) != NULL;
    for (unsigned i = 0; i < EMU4_INTS && found == NULL && !known; i++)
        if (!atomic_load(&x->end.c->interrupt[i].in_use))
            found = &x->end.c->interrupt[i];
    if (found != NULL) {
        found->cookie = cookie;
        atomic_store(&found->in_use, 1);
    }
    emu4_unlock(&t);
    if (found != NULL)
        return 0;
    errno = known ? EEXIST : ENOSPC;
    return -1;
}

struct emu4_pool {
    ELAN4_COOKIEPOOL pub; /* first */
    struct emu4_pool *next;
    _Atomic uint64_t serial;
    uint64_t vp;
};

EMU4_EXPORT ELAN4_COOKIEPOOL *elan4_allocCookiePool(ELAN4_CTX *ctx, unsigned myvp)
{
    struct emu4_ctx *x = emu4_ctx_of(ctx);
    struct emu4_proc *p = emu4_proc_peek();

    if (emu4_call(EMU4_CALL_elan4_allocCookiePool))
        return NULL;
    struct emu4_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return NULL;
    pool->vp = myvp;
    pthread_mutex_lock(&p->lock);
    pool->next = x->pools;
    x->pools = pool;
    pthread_mutex_unlock(&p->lock);
    return &pool->pub;
}

void emu4_pools_free(struct emu4_ctx *x)
{
    for (struct emu4_pool *pool; (pool = x->pools) != NULL; free(pool))
        x->pools = pool->next;
}

/* Composes virtual process, kind and serial number. */
static E4_uint64 cookie(ELAN4_COOKIEPOOL *pub, int type)
{
    struct emu4_pool *pool = (struct emu4_pool *)pub;
    uint64_t n = atomic_fetch_add(&pool->serial, 1);

    return pool->vp << 48 | (uint64_t)type << 44 | (n & ((UINT64_C(1) << 44) - 1));
}

EMU4_EXPORT E4_uint64 elan4_local_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp)
{
    (void)vp;
    return cookie(pool, type);
}

EMU4_EXPORT E4_uint64 elan4_remote_cookie(ELAN4_COOKIEPOOL *pool, int type, unsigned vp)
{
    (void)vp;
    return cookie(pool, type);
}
