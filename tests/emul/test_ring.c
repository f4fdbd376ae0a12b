/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ring of completions and messages shared by processes, and its seal. */

#include "emul/verbs/base/shm.h"
#include "tests/emul/pair.h"

#define PLACES 4
#define ME     7

struct box {
    struct shm_head *seg;
    struct shm_ring *ring;
};

static struct box box_new(uint32_t cap)
{
    uint64_t at = 64 + sizeof(struct shm_ring);
    struct box b = {.seg = aligned_alloc(64, 65536)};

    assert_non_null(b.seg);
    b.ring = shm_at(b.seg, 64); /* without the head of the segment */
    assert_true(at + shm_ring_bytes(PLACES, sizeof(struct shm_cqe)) < 65536);
    shm_ring_init(b.seg, b.ring, at, PLACES, sizeof(struct shm_cqe), cap);
    return b;
}

static struct shm_cqe *filled(struct box *b, uint64_t id)
{
    struct shm_cqe *e = shm_cell_get(b->seg, b->ring, ME);

    assert_non_null(e);
    e->wr_id = id;
    return e;
}

static uint64_t next_of(struct box *b)
{
    struct shm_cqe *e = shm_ring_peek(b->seg, b->ring, 0);

    assert_non_null(e);
    uint64_t id = e->wr_id;
    shm_ring_pop(b->seg, b->ring);
    return id;
}

CASE(takes_as_many_as_its_limit)
{
    struct box b = box_new(3);
    uint64_t in = 0, out = 0;

    for (int round = 0; round < 20; round++) {
        while (in < out + 3)
            assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, in++)), SHM_PUSHED);
        struct shm_cqe *e = filled(&b, 99);
        assert_int_equal(shm_ring_push(b.seg, b.ring, e), SHM_FULL);
        shm_cell_put(b.seg, b.ring, e);
        for (int i = 0; i <= round % 3; i++)
            assert_int_equal(next_of(&b), out++);
    }
    free(b.seg);
}

/* A word has 40 bits of its position: the ring works across their wrap-around. */
CASE(goes_on_beyond_40_bits)
{
    const uint64_t end = (UINT64_C(1) << 40) + 3 * PLACES;
    struct box b = box_new(PLACES);
    _Atomic uint64_t *word = shm_at(b.seg, b.ring->off_words);
    uint64_t in = (UINT64_C(1) << 40) - 2 * PLACES, out = in;

    for (uint64_t i = 0; i < PLACES; i++)
        atomic_store(&word[i], RING_WORD(in + i, 0));
    atomic_store(&b.ring->head, in);
    atomic_store(&b.ring->tail, in);
    while (out < end) {
        while (in < out + PLACES)
            assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, in++)), SHM_PUSHED);
        struct shm_cqe *e = filled(&b, 99);
        assert_int_equal(shm_ring_push(b.seg, b.ring, e), SHM_FULL);
        shm_cell_put(b.seg, b.ring, e);
        shm_ring_swap(b.seg, b.ring, 0, 1);
        shm_ring_swap(b.seg, b.ring, 0, 1);
        assert_true(next_of(&b) == out++);
    }
    while (out < in)
        assert_true(next_of(&b) == out++);
    assert_true(shm_ring_seal(b.seg, b.ring));
    free(b.seg);
}

/* Only an empty ring is sealed, at any position of its head; a poster that has a cell already
 * finds the seal. */
CASE(sealed_ring_takes_no_entry)
{
    for (uint64_t used = 0; used < 2 * PLACES; used++) {
        struct box b = box_new(PLACES);
        for (uint64_t i = 0; i < used; i++) {
            assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, i)), SHM_PUSHED);
            assert_int_equal(next_of(&b), i);
        }
        struct shm_cqe *early = filled(&b, 77);
        assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, 5)), SHM_PUSHED);
        assert_false(shm_ring_seal(b.seg, b.ring));
        assert_int_equal(next_of(&b), 5);
        assert_true(shm_ring_seal(b.seg, b.ring));
        assert_null(shm_ring_peek(b.seg, b.ring, 0));
        shm_ring_pop(b.seg, b.ring); /* takes nothing */
        assert_int_equal(shm_ring_push(b.seg, b.ring, early), SHM_SEALED);
        shm_cell_put(b.seg, b.ring, early);
        assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, 78)), SHM_SEALED);
        assert_null(shm_ring_peek(b.seg, b.ring, 0));
        free(b.seg);
    }
}

/* A poster that stopped after filling a place, before moving the tail, is passed. */
CASE(stale_tail_leads_to_seal)
{
    struct box b = box_new(PLACES);

    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, i)), SHM_PUSHED);
        atomic_store(&b.ring->tail, i);
        assert_int_equal(next_of(&b), i);
    }
    assert_int_equal(atomic_load(&b.ring->tail), 2);
    assert_true(shm_ring_seal(b.seg, b.ring));
    assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, 9)), SHM_SEALED);
    assert_int_equal(atomic_load(&b.ring->tail), 3);
    free(b.seg);
}

/* A ring without a free place cannot be sealed and reports that it is full. */
CASE(full_ring_is_not_sealed)
{
    struct box b = box_new(PLACES);

    for (uint64_t i = 0; i < PLACES; i++)
        assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, i)), SHM_PUSHED);
    assert_false(shm_ring_seal(b.seg, b.ring));
    assert_int_equal(shm_ring_push(b.seg, b.ring, filled(&b, 9)), SHM_FULL);
    for (uint64_t i = 0; i < PLACES; i++)
        assert_int_equal(next_of(&b), i);
    free(b.seg);
}

/* A number written by a peer never leads outside of the slots. */
CASE(slot_number_stays_in_range)
{
    const size_t size = sizeof(struct shm_head) + EMU_BOUNCE_SLOTS * sizeof(struct shm_bounce);
    struct shm_head *seg = aligned_alloc(64, (size + 63) & ~(size_t)63);

    assert_non_null(seg);
    memset(seg, 0, size);
    seg->off_bounce = sizeof(*seg);
    shm_bounce_put(seg, EMU_BOUNCE_SLOTS + 3);
    assert_int_equal(atomic_load(&seg->bounce_free[0]), 1u << 3);
    assert_int_equal(shm_bounce_get(seg, 1), 3);
    free(seg);
}
