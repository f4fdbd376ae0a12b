/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The claim ring and the pool of bounce slots: see shm.h for why they need no lock. */
#include "emul/verbs/shm.h"

#include <string.h>

static inline _Atomic uint64_t *entry_at(const struct shm_head *seg, const struct shm_ring *ring,
                                         uint64_t seq)
{
    return shm_at(seg, ring->off + (seq & ring->mask) * ring->stride);
}

void shm_ring_init(struct shm_head *seg, struct shm_ring *ring, uint64_t off, uint32_t entries,
                   uint32_t stride, uint32_t cap)
{
    ring->off = off;
    ring->mask = entries - 1;
    ring->stride = stride;
    ring->cap = cap;
    memset(shm_at(seg, off), 0, (size_t)entries * stride);
    for (uint32_t i = 0; i < entries; i++)
        atomic_store_explicit(entry_at(seg, ring, i), RING_STATE(i, 0, RING_FREE),
                              memory_order_relaxed);
    atomic_store(&ring->head, 0);
    atomic_store(&ring->tail, 0);
}

void *shm_ring_claim(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot,
                     uint64_t *seq)
{
    for (;;) {
        uint64_t t = atomic_load_explicit(&ring->tail, memory_order_acquire);
        _Atomic uint64_t *e = entry_at(seg, ring, t);
        uint64_t s = atomic_load_explicit(e, memory_order_acquire);

        if (RING_SEQ(s) > t || (RING_SEQ(s) == t && RING_PHASE(s) != RING_FREE)) {
            /* somebody has claimed t already: help the tail along and look again */
            atomic_compare_exchange_strong(&ring->tail, &t, t + 1);
            continue;
        }
        if (RING_SEQ(s) < t)
            return NULL; /* the entry of one round ago is still unread */
        uint64_t h = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (t >= h && t - h >= ring->cap)
            return NULL;
        if (atomic_compare_exchange_strong(e, &s, RING_STATE(t, slot, RING_CLAIMED))) {
            uint64_t expect = t;
            atomic_compare_exchange_strong(&ring->tail, &expect, t + 1);
            *seq = t;
            return e;
        }
    }
}

void *shm_ring_peek(const struct shm_head *seg, struct shm_ring *ring)
{
    uint64_t h = atomic_load_explicit(&ring->head, memory_order_relaxed);
    _Atomic uint64_t *e = entry_at(seg, ring, h);
    uint64_t s = atomic_load_explicit(e, memory_order_acquire);

    if (RING_SEQ(s) != h || RING_PHASE(s) != RING_READY)
        return NULL;
    return e;
}

void shm_ring_pop(const struct shm_head *seg, struct shm_ring *ring)
{
    uint64_t h = atomic_load_explicit(&ring->head, memory_order_relaxed);

    atomic_store_explicit(entry_at(seg, ring, h),
                          RING_STATE(h + ring->mask + 1, 0, RING_FREE), memory_order_release);
    atomic_store_explicit(&ring->head, h + 1, memory_order_release);
}

unsigned shm_ring_recover(const struct shm_head *seg, struct shm_ring *ring, uint32_t slot,
                          size_t skip_off)
{
    uint64_t h = atomic_load_explicit(&ring->head, memory_order_relaxed);
    unsigned n = 0;

    for (uint64_t seq = h; seq <= h + ring->mask; seq++) {
        _Atomic uint64_t *e = entry_at(seg, ring, seq);
        uint64_t s = atomic_load_explicit(e, memory_order_acquire);
        if (RING_SEQ(s) != seq || RING_PHASE(s) == RING_FREE)
            break;
        if (RING_PHASE(s) == RING_CLAIMED && RING_SLOT(s) == slot) {
            *((unsigned char *)e + skip_off) = 1;
            shm_ring_publish(e, seq, slot);
            n++;
        }
    }
    return n;
}

int shm_bounce_get(struct shm_head *seg, uint32_t slot)
{
    /* from the front: the slots used last are the ones in the caches */
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
    atomic_store(&shm_bounce(seg, i)->owner, 0);
    atomic_fetch_or(&seg->bounce_free[i / 64], UINT64_C(1) << (i % 64));
}
