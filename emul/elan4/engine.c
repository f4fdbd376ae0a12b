/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine executes DMAs that could not be executed, or completed, when their command was:
 * long ones, held-back ones, refused ones, those that an event started, and reads that this
 * process requested, which move data of the other process's memory. The list of DMAs is
 * private to this process. An entry is taken out of the list by the thread that executes a
 * step of it.
 *
 * Each call has bounded work, even if all is refused: only entries due at its start are tried,
 * each once, and after a refusal all entries to the same destination wait. Otherwise refused
 * entries could hold the caller, and keep the engine's thread from noticing dead peers.
 *
 * `next_due` is not later than the earliest due time. It is raised only under the lock, by a
 * look at all entries.
 */
#include "emul/elan4/emu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_COST    1024  /* minimum cost of a step, in bytes */
#define REFUSED_COST 16384 /* minimum cost of a refused step, in bytes */
#define SERVED_BYTES (UINT64_C(4) << 20)

struct job {
    struct job *next;
    struct emu4_end from; /* owner of the source; with a reference */
    uint64_t w[7], done;
    uint64_t due; /* CLOCK_MONOTONIC, ns; 0: can run */
    uint32_t backoff_us;
    bool delivered; /* only the source event is left */
};

struct list {
    struct job *first, **end;
};

static struct {
    pthread_mutex_t lock;
    struct list ready, waiting;
    _Atomic unsigned count; /* of `ready` */
    _Atomic uint64_t next_due;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .ready = {NULL, &engine.ready.first},
            .waiting = {NULL, &engine.waiting.first}};

static void append(struct list *l, struct job *j)
{
    j->next = NULL;
    *l->end = j;
    l->end = &j->next;
}

static struct job *take_out(struct list *l, struct job **at)
{
    struct job *j = *at;

    *at = j->next;
    if (*at == NULL)
        l->end = at;
    return j;
}

static void empty(struct list *l)
{
    while (l->first != NULL)
        free(take_out(l, &l->first));
}

/* The entries' references belong to the parent. */
void emu4_engine_forked(void)
{
    pthread_mutex_init(&engine.lock, NULL);
    empty(&engine.ready);
    empty(&engine.waiting);
    atomic_store(&engine.count, 0);
    atomic_store(&engine.next_due, 0);
}

uint64_t emu4_engine_next_due(void)
{
    return atomic_load(&engine.next_due);
}

/* Under the lock. Returns whether the engine's thread must be woken. */
static bool put(struct job *j)
{
    uint64_t next = atomic_load(&engine.next_due);

    if (!j->due) {
        append(&engine.ready, j);
        atomic_fetch_add(&engine.count, 1);
        return false;
    }
    append(&engine.waiting, j);
    if (next && next <= j->due)
        return false;
    atomic_store(&engine.next_due, j->due);
    return true;
}

static void put_and_wake(struct job *j)
{
    pthread_mutex_lock(&engine.lock);
    bool wake = put(j);
    pthread_mutex_unlock(&engine.lock);
    if (wake)
        emu4_service_wake(emu4_proc_peek());
}

bool emu4_engine_put(const struct emu4_end *from, const uint64_t w[7], uint64_t done,
                     uint64_t due)
{
    struct job *j = malloc(sizeof(*j));

    if (j == NULL)
        return false;
    *j = (struct job){.from = *from, .done = done, .due = due};
    memcpy(j->w, w, sizeof(j->w));
    emu4_peer_ref(from->peer);
    put_and_wake(j);
    return true;
}

uint64_t emu4_burst(const struct emu4_proc *p)
{
    return p->knobs.burst != 0 ? p->knobs.burst + p->knobs.slice : 0;
}

static bool has_commands(const struct shm_ctx *c)
{
    return __atomic_load_n(&c->inbox_head, __ATOMIC_RELAXED) !=
           __atomic_load_n(&c->inbox_tail, __ATOMIC_RELAXED);
}

bool emu4_engine_has_work(struct emu4_proc *p)
{
    uint64_t due = atomic_load_explicit(&engine.next_due, memory_order_relaxed);

    if (atomic_load_explicit(&engine.count, memory_order_relaxed) || (due && due <= emu4_now()))
        return true;
    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        const struct shm_ctx *c = &p->self.seg->ctx[i];
        if (atomic_load_explicit(&c->attached, memory_order_relaxed) && has_commands(c))
            return true;
    }
    return false;
}

/* Returns an entry due at `by`, the one that has waited longest since its last try. */
static struct job *due_one(uint64_t by)
{
    uint64_t next = 0;

    for (struct job **at = &engine.waiting.first; *at; at = &(*at)->next) {
        if ((*at)->due <= by)
            return take_out(&engine.waiting, at);
        if (!next || (*at)->due < next)
            next = (*at)->due;
    }
    atomic_store(&engine.next_due, next);
    return NULL;
}

static struct job *take(uint64_t by)
{
    struct job *j = NULL;

    pthread_mutex_lock(&engine.lock);
    uint64_t due = atomic_load(&engine.next_due);
    if (due && due <= by)
        j = due_one(by);
    if (j == NULL && engine.ready.first != NULL) {
        j = take_out(&engine.ready, &engine.ready.first);
        atomic_fetch_sub(&engine.count, 1);
    }
    pthread_mutex_unlock(&engine.lock);
    return j;
}

static bool same_place(const struct job *a, const struct job *b)
{
    bool queue = a->w[0] & DMA_QueueWrite;

    return a->from.c == b->from.c && a->w[2] == b->w[2] &&
           queue == (bool)(b->w[0] & DMA_QueueWrite) && (!queue || a->w[6] == b->w[6]);
}

/* Puts a refused entry back, and delays those to the same destination as long. */
static void wait_for_room(struct emu4_proc *p, struct job *j, enum dma_end r)
{
    uint64_t most = r == DMA_ABSENT ? p->knobs.absent_us : p->knobs.retry_us;
    uint32_t backoff = j->backoff_us ? j->backoff_us : 1;

    j->due = emu4_now() + (backoff < most ? backoff : most) * 1000;
    j->backoff_us = backoff < 1u << 30 ? backoff * 2 : backoff;
    pthread_mutex_lock(&engine.lock);
    for (struct job *o = engine.waiting.first; o; o = o->next)
        if (o->due < j->due && same_place(o, j)) {
            o->due = j->due;
            o->backoff_us = j->backoff_us;
        }
    bool wake = put(j);
    pthread_mutex_unlock(&engine.lock);
    if (wake)
        emu4_service_wake(p);
}

static void drop(struct emu4_proc *p, struct job *j)
{
    emu4_peer_put(p, j->from.peer);
    free(j);
}

/* Limits of one call. */
struct pass {
    uint64_t budget; /* bytes */
    uint64_t by;     /* only entries due by this time are tried */
};

/* Charges a step to the budget; steps without data have a minimum cost. */
static void charge(struct pass *pass, enum dma_end r, uint64_t bytes)
{
    uint64_t least = r == DMA_NACK || r == DMA_ABSENT ? REFUSED_COST : STEP_COST;
    uint64_t cost = bytes > least ? bytes : least;

    pass->budget -= cost < pass->budget ? cost : pass->budget;
}

/* Executes one step of an entry. */
static void step(struct emu4_proc *p, struct job *j, struct pass *pass)
{
    uint64_t before = j->done;
    enum dma_end r = DMA_DONE;

    if (atomic_load(&j->from.peer->dead) ||
        atomic_load(&j->from.c->attached) != j->from.generation) {
        drop(p, j);
        return;
    }
    if (!j->delivered)
        r = emu4_dma_step(p, &j->from, j->w, &j->done, p->knobs.slice);
    if (r == DMA_DONE) {
        j->delivered = true;
        if (!emu4_dma_delivered(&j->from, j->w))
            r = DMA_NACK;
    }
    charge(pass, r, j->done - before);
    switch (r) {
    case DMA_MORE:
        EMU4_COUNT(dma_sliced, 1);
        j->due = 0;
        put_and_wake(j);
        break;
    case DMA_NACK:
    case DMA_ABSENT: /* retried without limit */
        wait_for_room(p, j, r);
        break;
    case DMA_DONE:
    case DMA_DEAD:
        drop(p, j);
        break;
    }
}

/* Executes commands that events sent to the ports of this process's contexts. */
static bool run_commands(struct emu4_proc *p)
{
    bool ran = false;

    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        struct emu4_end e = {&p->self, &p->self.seg->ctx[i],
                             atomic_load(&p->self.seg->ctx[i].attached)};
        struct emu4_txn t;
        if (!e.generation || !has_commands(e.c))
            continue;
        emu4_lock(&t, &e);
        if (atomic_load(&e.c->attached) == e.generation)
            ran |= emu4_inbox_run(&t, 16);
        emu4_unlock(&t);
    }
    return ran;
}

static void run(struct emu4_proc *p, struct pass *pass)
{
    for (bool more = true; more && pass->budget;) {
        more = run_commands(p);
        struct job *j = take(pass->by);
        if (j != NULL)
            step(p, j, pass);
        more |= j != NULL;
    }
}

bool emu4_engine_run(struct emu4_proc *p, uint64_t budget)
{
    struct pass pass = {.budget = budget, .by = emu4_now()};

    run(p, &pass);
    return emu4_engine_has_work(p);
}

void emu4_engine_serve(struct emu4_proc *p)
{
    struct pass pass = {.budget = SERVED_BYTES, .by = emu4_now()};

    run(p, &pass);
}
