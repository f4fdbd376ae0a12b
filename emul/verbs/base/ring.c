/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The message ring and the pool of bounce slots; shm.h explains the absence of locks. */
#include "emul/verbs/base/shm.h"

#include <stdlib.h>

/* Cells beyond the number of places, for posters that were stopped while holding a cell. */
#define SPARE_CELLS 256u

/* Places consecutive entries in different cache lines, because producers and consumer access
 * neighbouring entries at the same time. */
static inline _Atomic uint64_t *word_at(const struct shm_head *seg, const struct shm_ring *ring,
                                        uint64_t seq)
{
    uint64_t i = seq & ring->mask;

    if (ring->shift)
        i = (i & 7) << ring->shift | i >> 3;
    return (_Atomic uint64_t *)shm_at(seg, ring->off_words) + i;
}

static inline void *cell_at(const struct shm_head *seg, const struct shm_ring *ring, uint32_t i)
{
    return shm_at(seg, ring->off_cells + (uint64_t)(i % ring->cells) * ring->stride);
}

static inline uint32_t cell_index(const struct shm_head *seg, const struct shm_ring *ring,
                                  const void *cell)
{
    return (uint32_t)(((uint64_t)((const char *)cell - (const char *)seg) - ring->off_cells) /
                      ring->stride);
}

static inline _Atomic uint64_t *free_word(const struct shm_head *seg,
                                          const struct shm_ring *ring, uint32_t w)
{
    return (_Atomic uint64_t *)shm_at(seg, ring->off_free) + w;
}

static uint32_t cells_for(uint32_t places)
{
    return (places + SPARE_CELLS + 63) & ~63u;
}

uint64_t shm_ring_bytes(uint32_t places, uint32_t stride)
{
    uint64_t cells = cells_for(places);

    return cells * stride + places * sizeof(uint64_t) + cells / 8;
}

static void lay_out(struct shm_ring *ring, uint64_t off, uint32_t places, uint32_t stride)
{
    ring->cells = cells_for(places);
    ring->off_cells = off;
    ring->off_words = off + (uint64_t)ring->cells * stride;
    ring->off_free = ring->off_words + places * sizeof(uint64_t);
    ring->mask = places - 1;
    ring->shift = places >= 64 ? (uint32_t)__builtin_ctz(places) - 3 : 0;
    ring->stride = stride;
}

bool shm_ring_is_at(const struct shm_ring *ring, uint64_t off, uint32_t places, uint32_t stride)
{
    struct shm_ring own;

    lay_out(&own, off, places, stride);
    return ring->off_words == own.off_words && ring->off_cells == own.off_cells &&
           ring->off_free == own.off_free && ring->mask == own.mask &&
           ring->shift == own.shift && ring->cells == own.cells && ring->stride == own.stride;
}

void shm_ring_init(struct shm_head *seg, struct shm_ring *ring, uint64_t off, uint32_t places,
                   uint32_t stride, uint32_t cap)
{
    lay_out(ring, off, places, stride);
    atomic_store(&ring->cap, cap);
    atomic_store(&ring->next, 0);
    for (uint32_t i = 0; i < places; i++)
        atomic_store_explicit(word_at(seg, ring, i), RING_WORD(i, 0), memory_order_relaxed);
    for (uint32_t w = 0; w < ring->cells / 64; w++)
        atomic_store_explicit(free_word(seg, ring, w), ~UINT64_C(0), memory_order_relaxed);
    atomic_store(&ring->head, 0);
    atomic_store(&ring->tail, 0);
}

void *shm_cell_get(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot)
{
    uint32_t words = ring->cells / 64;
    /* each process starts at another word and finds its last cell in its cache */
    uint32_t from = slot * 5 % words;

    for (uint32_t k = 0; k < words; k++) {
        uint32_t w = (from + k) % words;
        uint64_t bits = atomic_load_explicit(free_word(seg, ring, w), memory_order_relaxed);
        while (bits) {
            unsigned bit = (unsigned)__builtin_ctzll(bits);
            if (atomic_compare_exchange_weak(free_word(seg, ring, w), &bits,
                                             bits & ~(UINT64_C(1) << bit))) {
                struct shm_cell *c = cell_at(seg, ring, w * 64 + bit);
                atomic_store(&c->owner, slot);
                return c;
            }
        }
    }
    return NULL;
}

void shm_cell_put(const struct shm_head *seg, struct shm_ring *ring, void *cell)
{
    uint32_t i = cell_index(seg, ring, cell);

    atomic_store(&((struct shm_cell *)cell)->owner, 0);
    atomic_fetch_or(free_word(seg, ring, i / 64), UINT64_C(1) << (i % 64));
}

enum shm_pushed shm_ring_push(const struct shm_head *seg, struct shm_ring *ring, void *cell)
{
    uint32_t n = cell_index(seg, ring, cell) + 1;

    for (;;) {
        uint64_t t = atomic_load_explicit(&ring->tail, memory_order_acquire);
        _Atomic uint64_t *w = word_at(seg, ring, t);
        uint64_t s = atomic_load_explicit(w, memory_order_acquire);

        int64_t ahead = RING_AHEAD(s, t);
        if (ahead > 0 || (ahead == 0 && RING_CELL(s))) {
            if (ahead == 0 && RING_CELL(s) == RING_SEAL)
                return SHM_SEALED;
            /* the place is filled already: advance the tail and try again */
            atomic_compare_exchange_strong(&ring->tail, &t, t + 1);
            continue;
        }
        if (ahead < 0)
            return SHM_FULL; /* the entry of one round ago is unread */
        uint64_t h = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (t >= h && t - h >= atomic_load_explicit(&ring->cap, memory_order_relaxed))
            return SHM_FULL;
        if (atomic_compare_exchange_strong(w, &s, RING_WORD(t, n))) {
            atomic_compare_exchange_strong(&ring->tail, &t, t + 1);
            return SHM_PUSHED;
        }
    }
}

bool shm_ring_seal(const struct shm_head *seg, struct shm_ring *ring)
{
    uint64_t h = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t empty = RING_WORD(h, 0);

    return atomic_compare_exchange_strong(word_at(seg, ring, h), &empty,
                                          RING_WORD(h, RING_SEAL));
}

void *shm_ring_peek(const struct shm_head *seg, const struct shm_ring *ring, uint64_t i)
{
    uint64_t seq = atomic_load_explicit(&ring->head, memory_order_relaxed) + i;

    if (i > ring->mask)
        return NULL;
    uint64_t s = atomic_load_explicit(word_at(seg, ring, seq), memory_order_acquire);
    uint32_t i_cell = RING_CELL(s) - 1; /* neither a free place nor the seal */
    return RING_AHEAD(s, seq) == 0 && i_cell < RING_SEAL - 1 ? cell_at(seg, ring, i_cell)
                                                             : NULL;
}

void shm_ring_swap(const struct shm_head *seg, struct shm_ring *ring, uint64_t i, uint64_t j)
{
    uint64_t h = atomic_load_explicit(&ring->head, memory_order_relaxed);
    _Atomic uint64_t *a = word_at(seg, ring, h + i), *b = word_at(seg, ring, h + j);
    uint64_t in_a = atomic_load(a), in_b = atomic_load(b);

    atomic_store(a, RING_WORD(h + i, RING_CELL(in_b)));
    atomic_store(b, RING_WORD(h + j, RING_CELL(in_a)));
}

void shm_ring_pop(const struct shm_head *seg, struct shm_ring *ring)
{
    uint64_t h = atomic_load_explicit(&ring->head, memory_order_relaxed);
    void *cell = shm_ring_peek(seg, ring, 0);

    if (cell == NULL)
        return;
    atomic_store_explicit(word_at(seg, ring, h), RING_WORD(h + ring->mask + 1, 0),
                          memory_order_release);
    atomic_store_explicit(&ring->head, h + 1, memory_order_release);
    shm_cell_put(seg, ring, cell);
}

unsigned shm_ring_recover(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot)
{
    uint64_t *queued = calloc(ring->cells / 64, sizeof(*queued));
    unsigned n = 0;
    void *q;

    if (queued == NULL)
        return 0; /* the cells remain unused until the ring is destroyed */
    for (uint64_t i = 0; (q = shm_ring_peek(seg, ring, i)) != NULL; i++) {
        uint32_t k = cell_index(seg, ring, q);
        queued[k / 64] |= UINT64_C(1) << (k % 64);
    }
    for (uint32_t i = 0; i < ring->cells; i++) {
        struct shm_cell *c = cell_at(seg, ring, i);
        uint64_t bits = atomic_load(free_word(seg, ring, i / 64));
        if ((bits | queued[i / 64]) >> (i % 64) & 1 || atomic_load(&c->owner) != slot)
            continue;
        shm_cell_put(seg, ring, c);
        n++;
    }
    free(queued);
    return n;
}

int shm_bounce_get(struct shm_head *seg, uint32_t slot)
{
    /* first-fit: the slots used last are in the caches */
    for (uint32_t w = 0; w < EMU_BOUNCE_SLOTS / 64; w++) {
        uint64_t bits = atomic_load_explicit(&seg->bounce_free[w], memory_order_relaxed);
        while (bits) {
            unsigned bit = (unsigned)__builtin_ctzll(bits);
            if (atomic_compare_exchange_weak(&seg->bounce_free[w], &bits,
                                             bits & ~(UINT64_C(1) << bit))) {
                atomic_store(&shm_bounce(seg, w * 64 + bit)->owner, slot);
                return (int)(w * 64 + bit);
            }
        }
    }
    return -1;
}

void shm_bounce_put(struct shm_head *seg, uint32_t i)
{
    i &= EMU_BOUNCE_SLOTS - 1; /* limit a number written by a peer */
    atomic_store(&shm_bounce(seg, i)->owner, 0);
    atomic_fetch_or(&seg->bounce_free[i / 64], UINT64_C(1) << (i % 64));
}
