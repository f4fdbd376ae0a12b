/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine executes the waiting work of this process's contexts, and the work that this
 * process started in others: reads that it requested, chains that its data started. The other
 * process need not run. Its engine is woken when only time-dependent work remains, and takes
 * over unfinished work when this process dies.
 *
 * Any number of threads may run the engine; each entry is claimed by one of them. The outcome
 * of another process's entry is written under that process's lock, which may be held for long
 * by a stopped or preempted thread. Then the outcome is kept and written later; until then the
 * entry stays claimed and does not move data. Outcomes and claims are limited by the number of
 * marks, from which the owner learns after this process's death whether an entry was delivered.
 * With all marks in use no other process is helped.
 *
 * A job is dropped when the context has nothing to do. The check runs under the context's lock,
 * under which other processes enter requests before they add the job.
 *
 * Each call has bounded work, even if all is refused: only entries due at its start are tried,
 * each once, and after a refusal all entries to the same destination wait. Otherwise refused
 * entries could hold the caller and its locks, and keep the engine's thread from noticing dead
 * peers. DMAs that do not fit into a full table are kept in private memory, and take turns with
 * refused ones.
 *
 * `next_due` is the earliest due time, shared by all threads. Any thread may lower it; only the
 * engine's thread clears it, after it has passed, and then checks the tables itself. So no due
 * time is lost.
 */
#include "emul/elan4/emu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOBS          64
#define LATE          EMU4_MARKS
#define LATE_PAUSE_NS 10000000
#define STEP_COST     1024  /* minimum cost of a step, in bytes */
#define REFUSED_COST  16384 /* minimum cost of a refused step, in bytes */
#define TURNS         256   /* kept DMAs that are tried in one round */
#define SERVED_BYTES  (UINT64_C(4) << 20)

/* Outcome of another process's entry that could not be written yet. */
struct late {
    struct emu4_end e; /* with a reference */
    struct emu4_claim claim;
    uint64_t done;
    enum dma_end r;
};

/* A local DMA that did not fit into the full table. */
struct kept_dma {
    struct kept_dma *next;
    struct shm_ctx *c;
    uint32_t generation;
    uint64_t w[7], done, due;
};

static struct {
    pthread_mutex_t lock;
    struct emu4_end job[JOBS];
    _Atomic unsigned count;
    struct late late[LATE];
    _Atomic unsigned late_count;
    _Atomic uint32_t marks;    /* one bit for each mark in use */
    _Atomic uint64_t late_due; /* time of the next attempt to write late outcomes */
    _Atomic uint64_t next_due;
    pthread_mutex_t kept_lock; /* taken before a context's lock */
    struct kept_dma *kept_first, *kept_last;
    _Atomic unsigned kept_count;
    unsigned kept_turn;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER, .kept_lock = PTHREAD_MUTEX_INITIALIZER};

static void list_kept(struct kept_dma *k)
{
    k->next = NULL;
    if (engine.kept_first)
        engine.kept_last->next = k;
    else
        engine.kept_first = k;
    engine.kept_last = k;
}

void emu4_engine_forked(void)
{
    pthread_mutex_init(&engine.kept_lock, NULL);
    engine.kept_first = NULL;
    atomic_store(&engine.kept_count, 0);
    pthread_mutex_init(&engine.lock, NULL);
    atomic_store(&engine.count, 0);
    atomic_store(&engine.late_count, 0);
    atomic_store(&engine.marks, 0);
    atomic_store(&engine.next_due, 0);
}

uint64_t emu4_engine_next_due(void)
{
    return atomic_load(&engine.next_due);
}

static bool sooner(uint64_t due)
{
    uint64_t old = atomic_load(&engine.next_due);

    while (old == 0 || due < old)
        if (atomic_compare_exchange_weak(&engine.next_due, &old, due))
            return true;
    return false;
}

void emu4_engine_due(uint64_t due)
{
    if (sooner(due))
        emu4_service_wake(emu4_proc_peek());
}

static bool same(const struct emu4_end *a, const struct emu4_end *b)
{
    return a->c == b->c && a->generation == b->generation;
}

void emu4_engine_help(struct emu4_proc *p, const struct emu4_end *e)
{
    if (e->peer->self)
        return; /* served without a job */
    pthread_mutex_lock(&engine.lock);
    unsigned n = atomic_load(&engine.count);
    for (unsigned i = 0; i < n; i++)
        if (same(&engine.job[i], e)) {
            pthread_mutex_unlock(&engine.lock);
            return;
        }
    bool taken = n < JOBS;
    if (taken) {
        emu4_peer_ref(e->peer);
        engine.job[n] = *e;
        atomic_store(&engine.count, n + 1);
    }
    pthread_mutex_unlock(&engine.lock);
    if (!taken)
        emu4_ring(e->peer);
    (void)p;
}

/* Returns false when all late outcomes are in use. */
static bool may_help(void)
{
    return atomic_load_explicit(&engine.late_count, memory_order_relaxed) < LATE;
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

    if ((atomic_load_explicit(&engine.count, memory_order_relaxed) && may_help()) ||
        (due && due <= emu4_now()))
        return true;
    for (unsigned i = 0; i < EMU4_CTXS; i++) {
        const struct shm_ctx *c = &p->self.seg->ctx[i];
        if (!atomic_load_explicit(&c->attached, memory_order_relaxed))
            continue;
        if (has_commands(c) || !emu4_table_idle(c))
            return true;
    }
    return false;
}

static uint64_t pause_ns(struct emu4_proc *p, enum dma_end r, uint32_t backoff_us)
{
    uint64_t most = r == DMA_ABSENT ? p->knobs.absent_us : p->knobs.retry_us;

    return (backoff_us < most ? backoff_us : most) * 1000;
}

static void keep_sooner(uint64_t *due, uint64_t other)
{
    if (other && (!*due || other < *due))
        *due = other;
}

/* Writes the outcome of a step to its entry. Under the lock, with the entry claimed by this
 * thread. False: the lock was lost. */
static bool settle(struct emu4_proc *p, struct emu4_txn *t, unsigned i, enum dma_end r,
                   uint64_t done, uint64_t *next_due)
{
    struct emu4_end *e = t->e;
    struct shm_dma *d = &e->c->dma[i];
    bool waits = false, theirs = false; /* theirs: the due time is unknown to the owner */

    EMU4_TXN_SET(t, d->done, done);
    switch (r) {
    case DMA_MORE:
        EMU4_COUNT(dma_sliced, 1);
        emu4_table_move(t, i, TABLE_READY);
        break;
    case DMA_NACK:
    case DMA_ABSENT: { /* retried without limit */
        uint32_t backoff = d->backoff_us ? d->backoff_us : 1;
        uint64_t due = emu4_now() + pause_ns(p, r, backoff);
        EMU4_TXN_SET(t, d->backoff_us, backoff < 1u << 30 ? backoff * 2 : backoff);
        EMU4_TXN_SET(t, d->due, due);
        emu4_table_move(t, i, TABLE_WAIT);
        if (e->peer->self)
            keep_sooner(next_due, due);
        else
            theirs = true;
        waits = true;
        break;
    }
    case DMA_DONE:
        if (d->word[5])
            emu4_event_set(t, d->word[5]);
        /* fall through */
    case DMA_DEAD:
        emu4_table_move(t, i, TABLE_REMOVED);
        break;
    }
    if (!emu4_txn_commit(t))
        return false;
    if (waits)
        emu4_table_wait_with(e->c, i);
    if (theirs) {
        atomic_store(&e->peer->seg->news, 1); /* the engine's thread may be about to sleep */
        emu4_ring(e->peer);
    }
    return true;
}

/* Writes the outcome of an entry. False: the lock is not available. */
static bool settle_if_locked(struct emu4_proc *p, struct late *l, uint64_t *next_due)
{
    struct emu4_end *e = &l->e;
    const struct shm_dma *d = &e->c->dma[l->claim.entry];
    struct emu4_txn t;
    bool settled;

    if (atomic_load(&e->peer->dead))
        return true;
    do {
        settled = true;
        if (!emu4_lock(&t, e))
            return false;
        if (atomic_load(&e->c->attached) == e->generation && d->seq == l->claim.seq &&
            atomic_load(&d->claim) == e->peer->user + 1)
            settled = settle(p, &t, l->claim.entry, l->r, l->done, next_due);
        emu4_unlock(&t);
    } while (!settled && e->peer->self); /* local entries have no mark and cannot be late */
    /* re-add the job: more data remains or a chain was started, and another thread may have
     * found nothing to do and dropped the job */
    if (!e->peer->self && (l->r == DMA_MORE || has_commands(e->c)))
        emu4_engine_help(p, e);
    return settled;
}

/* Allocates a mark; -1 when all are in use. */
static int take_mark(void)
{
    uint32_t used = atomic_load(&engine.marks);

    for (;;) {
        uint32_t free = ~used & ((1u << EMU4_MARKS) - 1);
        if (!free)
            return -1;
        if (atomic_compare_exchange_weak(&engine.marks, &used, used | (free & -free)))
            return __builtin_ctz(free);
    }
}

static void give_mark(int mark)
{
    if (mark >= 0)
        atomic_fetch_and(&engine.marks, ~(1u << mark));
}

/* Keeps an outcome of another process's entry. There is room, because each has a mark. */
static void keep_late(const struct late *l, uint64_t *next_due)
{
    pthread_mutex_lock(&engine.lock);
    unsigned n = atomic_load(&engine.late_count);
    emu4_peer_ref(l->e.peer);
    engine.late[n] = *l;
    atomic_store(&engine.late_count, n + 1);
    pthread_mutex_unlock(&engine.lock);
    EMU4_COUNT(claims_late, 1);
    uint64_t due = emu4_now() + LATE_PAUSE_NS;
    atomic_store(&engine.late_due, due);
    keep_sooner(next_due, due);
}

/* Writes the outcome of an entry, now or later. */
static void finish(struct emu4_proc *p, struct late *l, uint64_t *next_due)
{
    if (!settle_if_locked(p, l, next_due))
        keep_late(l, next_due);
    else if (!l->e.peer->self)
        give_mark((int)l->claim.mark);
}

/* Retries each late outcome once. */
static void late_step(struct emu4_proc *p, uint64_t *next_due)
{
    for (unsigned n = atomic_load(&engine.late_count); n; n--) {
        struct late l;
        pthread_mutex_lock(&engine.lock);
        unsigned left = atomic_load(&engine.late_count);
        if (n <= left) {
            l = engine.late[n - 1];
            engine.late[n - 1] = engine.late[left - 1];
            atomic_store(&engine.late_count, left - 1);
        }
        pthread_mutex_unlock(&engine.lock);
        if (n > left)
            continue; /* taken by another thread */
        finish(p, &l, next_due);
        emu4_peer_put(p, l.e.peer);
    }
}

static void count_end(const uint64_t w[7], bool own)
{
    if (!own)
        EMU4_COUNT(dma_helped, 1);
    else if (w[0] & DMA_QueueWrite)
        EMU4_COUNT(dma_queue, 1);
    else
        EMU4_COUNT(dma_write, 1);
}

/* Returns job `i`, with a reference; false if there is none. */
static bool take_job(struct emu4_end *e, unsigned i)
{
    bool found = false;

    pthread_mutex_lock(&engine.lock);
    if (i < atomic_load(&engine.count)) {
        *e = engine.job[i];
        emu4_peer_ref(e->peer);
        found = true;
    }
    pthread_mutex_unlock(&engine.lock);
    return found;
}

/* Removes a job. The caller holds its own reference. */
static void drop_job(struct emu4_proc *p, const struct emu4_end *e)
{
    bool found = false;

    if (p->knobs.forget_late_us)
        usleep((useconds_t)p->knobs.forget_late_us);
    pthread_mutex_lock(&engine.lock);
    unsigned n = atomic_load(&engine.count);
    for (unsigned i = 0; i < n && !found; i++)
        if (same(&engine.job[i], e)) {
            engine.job[i] = engine.job[n - 1];
            atomic_store(&engine.count, n - 1);
            found = true;
        }
    pthread_mutex_unlock(&engine.lock);
    if (found)
        emu4_peer_put(p, e->peer);
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

/* Executes one step of a claimed entry. */
static void claimed_step(struct emu4_proc *p, struct emu4_end *e, struct late *late,
                         const uint64_t w[7], struct pass *pass, uint64_t *next_due)
{
    bool own = e->peer->self;

    emu4_step(EMU4_STEP_CLAIMED);
    if (!own)
        emu4_step(EMU4_STEP_HELPING);
    if (late->done > E4_DMA_SIZE(w[0]))
        late->done = 0; /* overwritten by another process */
    uint64_t before = late->done;
    late->r = emu4_dma_step(p, e, w, &late->done, p->knobs.slice, own ? NULL : &late->claim);
    charge(pass, late->r, late->done - before);
    if (late->r == DMA_DONE)
        count_end(w, own);
    if (!own && p->knobs.settle_late_us)
        usleep((useconds_t)p->knobs.settle_late_us);
    finish(p, late, next_due);
}

enum outcome { IDLE, RAN, BUSY };

/* Executes one step of a context. BUSY: its lock or a mark is not available. IDLE: nothing to
 * do; the job of another process's context is dropped. */
static enum outcome step(struct emu4_proc *p, struct emu4_end *e, struct pass *pass,
                         uint64_t *next_due)
{
    bool own = e->peer->self, ran = false;
    uint64_t w[7], due = 0;
    int i = -1, mark = own ? 0 : take_mark();
    struct emu4_txn t;

    if (mark < 0 || !emu4_lock(&t, e)) {
        if (!own)
            give_mark(mark);
        return BUSY;
    }
    if (atomic_load(&e->c->attached) == e->generation) {
        ran = emu4_inbox_run(&t, 16);
        i = emu4_table_claim(&t, own, pass->by, &due);
    }
    if (own)
        keep_sooner(next_due, due);
    if (i < 0) {
        if (!own && !ran)
            drop_job(p, e);
        emu4_unlock(&t);
        if (!own)
            give_mark(mark);
        return ran ? RAN : IDLE;
    }
    struct shm_dma *d = &e->c->dma[i];
    for (unsigned k = 0; k < 7; k++)
        w[k] = d->word[k];
    struct late late = {
        .e = *e, .claim = {d->seq, (unsigned)i, (unsigned)mark}, .done = atomic_load(&d->done)};
    emu4_unlock(&t);
    claimed_step(p, e, &late, w, pass, next_due);
    return RAN;
}

static bool jobs_step(struct emu4_proc *p, struct pass *pass, uint64_t *next_due)
{
    struct emu4_end e;
    bool any = false;

    for (unsigned i = 0; pass->budget && take_job(&e, i); i++) {
        if (atomic_load(&e.peer->dead)) {
            drop_job(p, &e);
        } else {
            enum outcome o = step(p, &e, pass, next_due);
            any |= o == RAN;
            /* remaining work is left to the owner, such as DMAs that wait for room in its
             * table */
            if (o == IDLE && (has_commands(e.c) || !emu4_table_idle(e.c)))
                emu4_ring(e.peer);
        }
        emu4_peer_put(p, e.peer);
    }
    return any;
}

static struct kept_dma *make_kept(struct shm_ctx *c, uint32_t generation, const uint64_t w[7],
                                  uint64_t done, uint64_t due)
{
    struct kept_dma *k = malloc(sizeof(*k));

    if (!k)
        return NULL;
    *k = (struct kept_dma){.c = c, .generation = generation, .done = done, .due = due};
    memcpy(k->w, w, sizeof(k->w));
    return k;
}

static bool put_kept(struct emu4_txn *t, const struct kept_dma *k)
{
    return emu4_table_put(t, k->w, k->done, k->due, 0) >= 0 && emu4_txn_commit(t);
}

/* Replaces a refused entry of the full table, which is kept instead, so that refused entries
 * leave room for others. False: no refused entry, or no memory. */
static bool take_turns(struct emu4_txn *t, const struct kept_dma *k)
{
    int i = emu4_table_refused(k->c, engine.kept_turn++);
    const struct shm_dma *d = &k->c->dma[i < 0 ? 0 : i];
    struct kept_dma *other =
        i < 0 ? NULL : make_kept(k->c, k->generation, d->word, atomic_load(&d->done), d->due);

    if (!other)
        return false;
    emu4_table_move(t, (unsigned)i, TABLE_REMOVED);
    if (!emu4_txn_commit(t)) {
        free(other);
        return false;
    }
    list_kept(other);
    atomic_fetch_add(&engine.kept_count, 1);
    return put_kept(t, k);
}

/* Moves kept DMAs into their tables in turn, up to TURNS in one call. */
static void kept_step(struct emu4_proc *p, uint64_t *next_due)
{
    pthread_mutex_lock(&engine.kept_lock);
    for (unsigned n = 0; n < TURNS && engine.kept_first; n++) {
        struct kept_dma *k = engine.kept_first;
        struct emu4_end e = {&p->self, k->c, k->generation};
        struct emu4_txn t;

        engine.kept_first = k->next;
        emu4_lock(&t, &e);
        bool gone = atomic_load(&k->c->attached) != k->generation;
        bool put = gone || put_kept(&t, k) || take_turns(&t, k);
        emu4_unlock(&t);
        if (!put) {
            list_kept(k);
            continue;
        }
        if (!gone)
            keep_sooner(next_due, k->due);
        atomic_fetch_sub(&engine.kept_count, 1);
        free(k);
    }
    pthread_mutex_unlock(&engine.kept_lock);
}

bool emu4_engine_keep(const struct emu4_end *own, const uint64_t w[7], uint64_t done,
                      uint64_t due)
{
    struct kept_dma *k = make_kept(own->c, own->generation, w, done, due);

    if (!k)
        return false;
    pthread_mutex_lock(&engine.kept_lock);
    list_kept(k);
    atomic_fetch_add(&engine.kept_count, 1);
    pthread_mutex_unlock(&engine.kept_lock);
    return true;
}

static void run(struct emu4_proc *p, struct pass *pass)
{
    uint64_t next_due = 0;

    if (atomic_load(&engine.late_count)) {
        uint64_t due = atomic_load(&engine.late_due);
        if (emu4_now() >= due)
            late_step(p, &next_due);
        else
            keep_sooner(&next_due, due); /* an earlier time may have replaced it */
    }
    if (atomic_load(&engine.kept_count))
        kept_step(p, &next_due);
    for (bool more = true; more && pass->budget;) {
        more = false;
        for (unsigned i = 0; i < EMU4_CTXS && pass->budget; i++) {
            struct emu4_end e = {&p->self, &p->self.seg->ctx[i],
                                 atomic_load(&p->self.seg->ctx[i].attached)};
            if (!e.generation ||
                (!has_commands(e.c) && emu4_table_idle(e.c) && !emu4_table_waits(e.c)))
                continue;
            more |= step(p, &e, pass, &next_due) == RAN;
        }
        if (atomic_load(&engine.count) && may_help())
            more |= jobs_step(p, pass, &next_due);
    }
    if (atomic_load(&engine.kept_count)) /* completed entries have made room */
        kept_step(p, &next_due);
    if (next_due)
        emu4_engine_due(next_due);
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
    if (!pass.budget) /* some contexts may not have been examined */
        sooner(emu4_now());
}

void emu4_engine_due_passed(void)
{
    uint64_t due = atomic_load(&engine.next_due);

    if (due && due <= emu4_now())
        atomic_compare_exchange_strong(&engine.next_due, &due, 0);
}
