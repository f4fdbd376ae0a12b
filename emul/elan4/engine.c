/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine: carries out what waits in the tables of our contexts; and in those of other
 * processes what we have set off there: a read that we asked for, a chain that our data
 * started. The other process need not run for that. It is rung when something remains that only
 * time will settle, and when we die its own engine takes up what we had begun.
 *
 * Any number of threads may run it: each entry is claimed by one of them. What has become of an
 * entry of another process is written under that process's lock, which may be kept for
 * long: its holder is stopped, or waits for a processor. Then we remember it and write it
 * later; until then the entry is claimed, and the rest of its data does not move. As many can
 * be remembered as can be claimed, each with the mark that tells its owner, when we die,
 * whether it was delivered; with all of them remembered nobody is helped.
 *
 * A context of another process is forgotten when it has nothing to do; that is found and done
 * under its lock, under which others put in what they ask of it before they ask us to help.
 *
 * How long one call works is bounded, whatever is refused: of those that wait it tries only
 * what was due when it began, each once, and after a refusal those that would go to the same
 * place wait as well. Else as many as fill a millisecond with their trying would keep whoever
 * calls, with all of its locks, and the engine's thread from hearing that the peer has died.
 * What a full table has no room for is kept in memory of ours, and takes turns with what was
 * refused.
 *
 * When the next of those that wait is due is known to all. Any thread may make that sooner, by
 * what it has put there or seen; only the engine's thread forgets it, when it has passed, and
 * looks then itself. So no time is forgotten that somebody else has seen meanwhile.
 */
#include "emul/elan4/emu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOBS          64
#define LATE          EMU4_MARKS
#define LATE_PAUSE_NS 10000000
#define STEP_COST     1024  /* bytes that a step costs at least, */
#define REFUSED_COST  16384 /* and one that is refused */
#define TURNS         256   /* DMAs of a full table that are looked at in a round */
#define SERVED_BYTES  (UINT64_C(4) << 20)

/* What became of an entry of another process, which could not be written yet. */
struct late {
    struct emu4_end e; /* with a reference */
    struct emu4_claim claim;
    uint64_t done;
    enum dma_end r;
};

/* DMAs of ours that a full table has no room for. */
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
    _Atomic uint32_t marks;    /* a bit for each that is in use */
    _Atomic uint64_t late_due; /* when they are tried again */
    _Atomic uint64_t next_due;
    pthread_mutex_t kept_lock; /* outside of a context's */
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
        return; /* it is looked after anyhow */
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

/* Not when all that we may claim is waiting to be written down. */
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

/* What becomes of an entry after a step. Under the lock, with the entry ours. False: the lock
 * was taken from us. */
static bool settle(struct emu4_proc *p, struct emu4_txn *t, unsigned i, enum dma_end r,
                   uint64_t done, uint64_t *next_due)
{
    struct emu4_end *e = t->e;
    struct shm_dma *d = &e->c->dma[i];
    bool waits = false, theirs = false; /* its owner does not know until when */

    EMU4_TXN_SET(t, d->done, done);
    switch (r) {
    case DMA_MORE:
        EMU4_COUNT(dma_sliced, 1);
        emu4_table_move(t, i, TABLE_READY);
        break;
    case DMA_NACK:
    case DMA_ABSENT: { /* for ever */
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
        emu4_table_move(t, i, TABLE_GONE);
        break;
    }
    if (!emu4_txn_commit(t))
        return false;
    if (waits)
        emu4_table_wait_with(e->c, i);
    if (theirs) {
        atomic_store(&e->peer->seg->news, 1); /* it may be about to sleep */
        emu4_ring(e->peer);
    }
    return true;
}

/* Writes what has become of an entry. False: the lock is not to be had. */
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
    } while (!settled && e->peer->self); /* it has no mark, so no place among the late ones */
    /* there is more of it, or it has set off a chain; and another thread may have found nothing
     * to do there meanwhile, and have forgotten it */
    if (!e->peer->self && (l->r == DMA_MORE || has_commands(e->c)))
        emu4_engine_help(p, e);
    return settled;
}

/* One of our marks, -1: all are in use. */
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

/* There is room: each has a mark. Only what is another process's has to be kept. */
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

/* Writes what has become of an entry, now or later. */
static void finish(struct emu4_proc *p, struct late *l, uint64_t *next_due)
{
    if (!settle_if_locked(p, l, next_due))
        keep_late(l, next_due);
    else if (!l->e.peer->self)
        give_mark((int)l->claim.mark);
}

/* Tries once more with each that is kept. */
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
            continue; /* another thread has it */
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

/* The first of the jobs, with a reference. */
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

/* The caller has a reference of its own. */
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

/* What may be done in one go, */
struct pass {
    uint64_t budget; /* in bytes, */
    uint64_t by;     /* and of what waits only what was due when it began */
};

/* No step is for nothing, least of all one that moves no data. */
static void charge(struct pass *pass, enum dma_end r, uint64_t bytes)
{
    uint64_t least = r == DMA_NACK || r == DMA_ABSENT ? REFUSED_COST : STEP_COST;
    uint64_t cost = bytes > least ? bytes : least;

    pass->budget -= cost < pass->budget ? cost : pass->budget;
}

/* What it is asked to do for a context. */
static void claimed_step(struct emu4_proc *p, struct emu4_end *e, struct late *late,
                         const uint64_t w[7], struct pass *pass, uint64_t *next_due)
{
    bool own = e->peer->self;

    emu4_step(EMU4_STEP_CLAIMED);
    if (!own)
        emu4_step(EMU4_STEP_HELPING);
    if (late->done > E4_DMA_SIZE(w[0]))
        late->done = 0; /* somebody wrote over it */
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

/* One step of a context. BUSY: its lock was not to be had, or none of our marks. IDLE: it has
 * nothing to do; if it is another process's we have forgotten it. */
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
            /* what has to wait for room in its table, say, it finds itself */
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

/* It takes the place of one that was refused, which is kept instead: those that nobody takes
 * leave room for others. False: there is none, or no memory. */
static bool take_turns(struct emu4_txn *t, const struct kept_dma *k)
{
    int i = emu4_table_refused(k->c, engine.kept_turn++);
    const struct shm_dma *d = &k->c->dma[i < 0 ? 0 : i];
    struct kept_dma *other =
        i < 0 ? NULL : make_kept(k->c, k->generation, d->word, atomic_load(&d->done), d->due);

    if (!other)
        return false;
    emu4_table_move(t, (unsigned)i, TABLE_GONE);
    if (!emu4_txn_commit(t)) {
        free(other);
        return false;
    }
    list_kept(other);
    atomic_fetch_add(&engine.kept_count, 1);
    return put_kept(t, k);
}

/* What the table of a context of ours had no room for goes into it, each in its turn; some of
 * them at a time. */
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
            keep_sooner(&next_due, due); /* an earlier time may have taken its place */
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
    if (atomic_load(&engine.kept_count)) /* what was done last has made room */
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
    if (!pass.budget) /* not all contexts may have been looked at */
        sooner(emu4_now());
}

void emu4_engine_due_passed(void)
{
    uint64_t due = atomic_load(&engine.next_due);

    if (due && due <= emu4_now())
        atomic_compare_exchange_strong(&engine.next_due, &due, 0);
}
