/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compares splitting of segments into pieces with a byte-wise model, on random lists. */
#include "plan/split.h"
#include "unit.h"

#define BYTES 4096
#define LIST  64

static uint64_t seed = 12345;

static uint32_t draw(uint32_t bound)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(seed >> 33) % bound;
}

/* Splits `total` bytes at `memory` into a list of up to `max` segments in order, some empty. */
static uint32_t cut_local(struct rme_mseg *list, uint8_t *memory, uint64_t total, uint32_t max)
{
    uint64_t at = 0;
    uint32_t n = 0;

    while (at < total) {
        uint64_t length =
            n == max - 1 ? total - at : draw((uint32_t)(total - at) + 1) / (1 + draw(8));

        list[n] = (struct rme_mseg){.base = memory + at, .length = length, .lkey = 100 + n};
        n++;
        at += length;
    }
    return n;
}

static uint32_t cut_remote(struct rme_wire_segment *list, uint8_t *memory, uint64_t total,
                           uint32_t max)
{
    struct rme_mseg local[LIST];
    uint32_t n = cut_local(local, memory, total, max);

    for (uint32_t i = 0; i < n; i++)
        list[i] = (struct rme_wire_segment){(uintptr_t)local[i].base, 200 + i, local[i].length};
    return n;
}

/* Executes the pieces like a device. */
static void execute(const struct rme_rdma_seg *piece, uint32_t npiece, uint32_t max_sge,
                    uint64_t max_piece)
{
    for (uint32_t p = 0; p < npiece; p++) {
        uint8_t *to = (uint8_t *)(uintptr_t)piece[p].raddr;
        uint64_t bytes = 0;

        assert_in_range(piece[p].nseg, 1, max_sge);
        for (uint32_t s = 0; s < piece[p].nseg; s++) {
            assert_true(piece[p].seg[s].length > 0);
            memcpy(to + bytes, piece[p].seg[s].base, piece[p].seg[s].length);
            bytes += piece[p].seg[s].length;
        }
        assert_in_range(bytes, 1, max_piece);
    }
}

static void random_lists(void **state)
{
    static uint8_t from[BYTES], to[BYTES], want[BYTES];

    (void)state;
    for (int round = 0; round < 3000; round++) {
        uint32_t max_sge = 1 + draw(6);
        uint64_t max_piece = 1 + draw(round % 2 ? 100 : 100000);
        uint64_t total = 1 + draw(BYTES), rskip = draw((uint32_t)total);
        uint64_t length = 1 + draw((uint32_t)(total - rskip));
        struct rme_mseg local[LIST];
        struct rme_wire_segment remote[LIST];
        uint32_t nlocal, nremote, npiece;
        uint64_t cuts, segs, pieces;
        struct rme_rdma_seg *piece;
        struct rme_sge *seg;

        for (int i = 0; i < BYTES; i++)
            from[i] = (uint8_t)draw(256);
        memset(to, 0, sizeof(to));
        memset(want, 0, sizeof(want));
        memcpy(want + rskip, from, length);
        nlocal = cut_local(local, from, total, LIST);
        nremote = cut_remote(remote, to, total, LIST);
        cuts = nremote + length / max_piece; /* as the comment of rme_split says */
        segs = cuts + nlocal;
        pieces = cuts + segs / max_sge + 1;
        piece = calloc(pieces, sizeof(*piece));
        seg = calloc(segs, sizeof(*seg));
        assert_non_null(piece);
        assert_non_null(seg);
        npiece = rme_split(local, remote, rskip, length, max_sge, max_piece, piece, seg);
        assert_true(npiece <= pieces);
        assert_true(piece[npiece - 1].seg + piece[npiece - 1].nseg <= seg + segs);
        execute(piece, npiece, max_sge, max_piece);
        assert_memory_equal(to, want, sizeof(to));
        free(piece);
        free(seg);
    }
}

static void beyond_four_gib(void **state)
{
    struct rme_mseg local = {.base = NULL, .length = 1ULL << 40};
    struct rme_wire_segment remote = {0, 1, 1ULL << 40};
    struct rme_rdma_seg piece[4];
    struct rme_sge seg[4];
    uint32_t npiece;

    (void)state;
    npiece = rme_split(&local, &remote, 6ULL << 32, 3ULL << 31, 4, 1ULL << 31, piece, seg);
    assert_int_equal(npiece, 3);
    assert_int_equal(piece[2].raddr, (6ULL << 32) + (2ULL << 31));
    assert_int_equal((uintptr_t)piece[2].seg[0].base, 2ULL << 31);
}

static void cutting_copying(void **state)
{
    static uint8_t memory[BYTES], flat[BYTES], back[BYTES];

    (void)state;
    for (int i = 0; i < BYTES; i++)
        memory[i] = (uint8_t)draw(256);
    for (int round = 0; round < 3000; round++) {
        struct rme_mseg cut[LIST];
        struct rme_seg seg[LIST], part = {NULL, 0};
        struct rme_walk walk;
        uint32_t n = cut_local(cut, memory, BYTES, LIST);
        uint64_t offset = draw(BYTES), length = 1 + draw((uint32_t)(BYTES - offset)), sum = 0;

        for (uint32_t i = 0; i < n; i++)
            seg[i] = (struct rme_seg){cut[i].base, cut[i].length};
        walk = rme_walk(seg, n, offset, length);
        while (rme_walk_next(&walk, &part)) {
            assert_true(part.length > 0);
            assert_ptr_equal(part.base, memory + offset + sum);
            sum += part.length;
        }
        assert_int_equal(sum, length);
        rme_seg_copy(seg, n, offset, flat, length, false);
        assert_memory_equal(flat, memory + offset, length);
        for (uint32_t i = 0; i < n; i++)
            seg[i].base = back + ((uint8_t *)seg[i].base - memory);
        memset(back, 0, sizeof(back));
        rme_seg_copy(seg, n, offset, flat, length, true);
        assert_memory_equal(back + offset, flat, length);
        for (uint64_t i = 0; i < BYTES; i++)
            assert_true((i >= offset && i < offset + length) || back[i] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists),
        cmocka_unit_test(beyond_four_gib),
        cmocka_unit_test(cutting_copying),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
