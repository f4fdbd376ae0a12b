/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waiting DMAs of a context. A used entry is ready, waits for a time, or is claimed by an
 * executing thread. With EMUELAN4_REORDER the next entry is chosen at random: two DMAs have no
 * guaranteed order.
 */
#include "emul/elan4/emu.h"

static int first_free(const struct shm_ctx *c)
{
    for (unsigned k = 0; k <= EMU4_WORDS; k++) {
        unsigned w = (c->put_cursor / 64 + k) % EMU4_WORDS;
        uint64_t free = ~c->used[w];
        if (k == 0)
            free &= ~UINT64_C(0) << (c->put_cursor % 64);
        if (free)
            return (int)(w * 64 + (unsigned)__builtin_ctzll(free));
    }
    return -1;
}

_Static_assert(EMU4_WORDS == 64, "a word sums up a map");

/* Changes a bit of a map, and the bit of its word in the summary. */
static void change(struct emu4_txn *t, uint64_t *map, uint64_t *sum, unsigned i, bool on)
{
    uint64_t bit = UINT64_C(1) << (i % 64), word = UINT64_C(1) << (i / 64);
    uint64_t now = on ? map[i / 64] | bit : map[i / 64] & ~bit;

    emu4_txn_state(t, &map[i / 64], now, 8);
    emu4_txn_state(t, sum, now ? *sum | word : *sum & ~word, 8);
}

int emu4_table_put(struct emu4_txn *t, const uint64_t w[7], uint64_t done, uint64_t due,
                   uint32_t claim)
{
    struct shm_ctx *c = t->e->c;
    int i = first_free(c);

    if (i < 0)
        return -1;
    struct shm_dma *d = &c->dma[i];
    uint64_t bit = UINT64_C(1) << (i % 64);
    for (unsigned k = 0; k < 7; k++)
        EMU4_TXN_SET(t, d->word[k], w[k]);
    EMU4_TXN_SET(t, d->seq, c->dma_seq + 1);
    EMU4_TXN_SET(t, d->done, done);
    EMU4_TXN_SET(t, d->due, due);
    EMU4_TXN_SET(t, d->backoff_us, 0);
    EMU4_TXN_SET(t, d->claim, claim);
    EMU4_TXN_SET(t, c->dma_seq, c->dma_seq + 1);
    EMU4_TXN_SET(t, c->put_cursor, (uint64_t)(i + 1) % EMU4_DMAS);
    EMU4_TXN_SET(t, c->used[i / 64], c->used[i / 64] | bit);
    if (due)
        change(t, c->wait, &c->wait_words, (unsigned)i, true);
    else if (!claim)
        change(t, c->ready, &c->ready_words, (unsigned)i, true);
    return i;
}

void emu4_table_move(struct emu4_txn *t, unsigned i, enum table_to to)
{
    struct shm_ctx *c = t->e->c;
    uint64_t bit = UINT64_C(1) << (i % 64);

    EMU4_TXN_SET(t, c->dma[i].claim, 0);
    switch (to) {
    case TABLE_READY:
        change(t, c->ready, &c->ready_words, i, true);
        break;
    case TABLE_WAIT:
        change(t, c->wait, &c->wait_words, i, true);
        break;
    case TABLE_REMOVED:
        EMU4_TXN_SET(t, c->used[i / 64], c->used[i / 64] & ~bit);
        break;
    }
}

/* Returns a due entry, round-robin; stores the earliest time of the others in `next_due`. */
static int due_one(const struct shm_ctx *c, uint64_t by, uint64_t *next_due)
{
    unsigned from = c->get_cursor % EMU4_DMAS;
    int found = -1;

    *next_due = 0;
    for (unsigned w = 0; w < EMU4_WORDS; w++)
        for (uint64_t bits = c->wait[w] & c->used[w]; bits; bits &= bits - 1) {
            unsigned i = w * 64 + (unsigned)__builtin_ctzll(bits);
            uint64_t due = c->dma[i].due;
            if (due <= by && (found < 0 || ((unsigned)found < from && i >= from)))
                found = (int)i;
            else if (due > by && (!*next_due || due < *next_due))
                *next_due = due;
        }
    return found;
}

int emu4_table_refused(const struct shm_ctx *c, unsigned from)
{
    from %= EMU4_DMAS;
    for (unsigned k = 0; k <= EMU4_WORDS; k++) {
        unsigned w = (from / 64 + k) % EMU4_WORDS;
        uint64_t bits = c->wait[w] & c->used[w];
        if (k == 0)
            bits &= ~UINT64_C(0) << (from % 64);
        for (; bits; bits &= bits - 1) {
            unsigned i = w * 64 + (unsigned)__builtin_ctzll(bits);
            if (c->dma[i].backoff_us)
                return (int)i;
        }
    }
    return -1;
}

static bool same_place(const struct shm_dma *a, const struct shm_dma *b)
{
    bool queue = a->word[0] & DMA_QueueWrite;

    return a->word[2] == b->word[2] && queue == (bool)(b->word[0] & DMA_QueueWrite) &&
           (!queue || a->word[6] == b->word[6]);
}

void emu4_table_wait_with(struct shm_ctx *c, unsigned i)
{
    const struct shm_dma *d = &c->dma[i];

    for (unsigned w = 0; w < EMU4_WORDS; w++)
        for (uint64_t bits = c->wait[w] & c->used[w]; bits; bits &= bits - 1) {
            struct shm_dma *o = &c->dma[w * 64 + (unsigned)__builtin_ctzll(bits)];
            if (o == d || o->due > d->due || !same_place(o, d))
                continue;
            __atomic_store_n(&o->due, d->due, __ATOMIC_RELAXED);
            __atomic_store_n(&o->backoff_us, d->backoff_us, __ATOMIC_RELAXED);
        }
}

static int ready_one(const struct shm_ctx *c)
{
    unsigned from = c->get_cursor % EMU4_DMAS;

    if (emu4_knobs()->reorder)
        from = emu4_random() % EMU4_DMAS;
    for (unsigned k = 0; k <= EMU4_WORDS; k++) {
        unsigned w = (from / 64 + k) % EMU4_WORDS;
        uint64_t bits = c->ready[w] & c->used[w];
        if (k == 0)
            bits &= ~UINT64_C(0) << (from % 64);
        if (bits)
            return (int)(w * 64 + (unsigned)__builtin_ctzll(bits));
    }
    return -1;
}

int emu4_table_claim(struct emu4_txn *t, bool waiting, uint64_t by, uint64_t *next_due)
{
    struct shm_ctx *c = t->e->c;
    int i = -1;

    *next_due = 0;
    if (waiting)
        i = due_one(c, by, next_due);
    bool waited = i >= 0;
    if (!waited)
        i = ready_one(c);
    if (i < 0)
        return -1;
    EMU4_TXN_SET(t, c->dma[i].claim, t->e->peer->user + 1);
    if (waited)
        change(t, c->wait, &c->wait_words, (unsigned)i, false);
    else
        change(t, c->ready, &c->ready_words, (unsigned)i, false);
    EMU4_TXN_SET(t, c->get_cursor, (uint64_t)(i + 1) % EMU4_DMAS);
    if (emu4_txn_commit(t))
        return i;
    if (waited)
        *next_due = by; /* the entry waits on */
    return -1;
}

bool emu4_table_idle(const struct shm_ctx *c)
{
    return !__atomic_load_n(&c->ready_words, __ATOMIC_RELAXED);
}

bool emu4_table_waits(const struct shm_ctx *c)
{
    return __atomic_load_n(&c->wait_words, __ATOMIC_RELAXED);
}
