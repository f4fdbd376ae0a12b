/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Patterned memory with canaries, for the fixture. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "bed.h"

#define CANARY 0xc5
#define MARGIN 64 /* canaries before the first and behind the last piece */

uint64_t bed_random(uint64_t *state, uint64_t bound)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return bound ? z % bound : z;
}

/* Returns a byte that differs between neighbours, pages and seeds. */
uint8_t pattern_byte(uint64_t seed, int64_t at)
{
    uint64_t i = (uint64_t)at;

    return (uint8_t)(i * 31 + (i >> 8) * 17 + (i >> 16) * 7 + seed * 101 + 1);
}

/* Memory of all blobs; threads make some. */
struct owned {
    void *arena;
    struct node *zone;
};

static struct owned *owned;
static size_t owned_count, owned_room;
static pthread_mutex_t owned_lock = PTHREAD_MUTEX_INITIALIZER;

static void own(void *arena, struct node *zone)
{
    pthread_mutex_lock(&owned_lock);
    if (owned_count == owned_room) {
        owned_room = owned_room * 2 + 64;
        owned = realloc(owned, owned_room * sizeof *owned);
        assert_non_null(owned);
    }
    owned[owned_count++] = (struct owned){arena, zone};
    pthread_mutex_unlock(&owned_lock);
}

static void disown(const void *arena)
{
    size_t i;

    pthread_mutex_lock(&owned_lock);
    for (i = owned_count; i > 0 && owned[i - 1].arena != arena; i--)
        ;
    assert_true(i > 0);
    owned[i - 1] = owned[--owned_count];
    pthread_mutex_unlock(&owned_lock);
}

void blobs_free(const struct node *n)
{
    for (size_t i = owned_count; i > 0; i--)
        if (n == NULL || owned[i - 1].zone == n)
            blob_free(&(struct blob){.arena = owned[i - 1].arena, .zone = owned[i - 1].zone});
}

static void allocate(struct blob *b, size_t size)
{
    b->size = size;
    b->arena = b->zone != NULL ? rme_memory_alloc(b->zone->rme, size)
                               : aligned_alloc(64, (size + 63) & ~(size_t)63);
    assert_non_null(b->arena);
    own(b->arena, b->zone);
}

/* Lays out pieces of the lengths in b with the given gap before each. */
static void lay_out(struct blob *b, const unsigned *gap)
{
    size_t size = 2 * MARGIN;

    b->total = 0;
    for (int i = 0; i < b->count; i++) {
        size += gap[i] + (size_t)b->length[i];
        b->total += b->length[i];
    }
    allocate(b, size);
    uint8_t *at = b->arena + MARGIN;
    for (int i = 0; i < b->count; i++) {
        at += gap[i];
        b->base[i] = at;
        at += b->length[i];
    }
    blob_canary(b);
}

void blob_misaligned(struct blob *b, size_t size, unsigned misalign)
{
    memset(b, 0, sizeof *b);
    b->count = 1;
    b->length[0] = (int64_t)size;
    lay_out(b, &misalign);
}

void blob_flat(struct blob *b, size_t size)
{
    blob_misaligned(b, size, 0);
}

void blobs_flat(struct blob *out, struct blob *in, size_t size, uint64_t seed)
{
    blob_flat(out, size);
    blob_flat(in, size);
    blob_fill(out, seed);
}

void blob_zone(struct blob *b, struct node *n, size_t size)
{
    unsigned gap = 0;

    memset(b, 0, sizeof *b);
    b->zone = n;
    b->count = 1;
    b->length[0] = (int64_t)size;
    lay_out(b, &gap);
}

void blob_pieces(struct blob *b, int count, int min, int max, bool with_empty, uint64_t seed)
{
    unsigned gap[BED_PIECES] = {0};

    assert_in_range(count, 0, BED_PIECES);
    memset(b, 0, sizeof *b);
    b->count = count;
    for (int i = 0; i < count; i++) {
        b->length[i] = min + (int64_t)bed_random(&seed, (uint64_t)(max - min) + 1);
        if (with_empty && bed_random(&seed, 5) == 0)
            b->length[i] = 0;
        gap[i] = 1 + (unsigned)bed_random(&seed, 16);
    }
    lay_out(b, gap);
    for (int i = 0; with_empty && i < count; i++)
        if (!b->length[i] && bed_random(&seed, 2))
            b->base[i] = NULL;
}

void blob_split(struct blob *b, int64_t total, int count, uint64_t seed)
{
    unsigned gap[BED_PIECES] = {0};
    int64_t left = total;

    assert_in_range(count, 1, BED_PIECES);
    memset(b, 0, sizeof *b);
    b->count = count;
    for (int i = 0; i < count; i++) {
        int64_t share = left / (count - i);
        b->length[i] =
            i == count - 1 ? left : (int64_t)bed_random(&seed, (uint64_t)(2 * share) + 1);
        if (b->length[i] > left)
            b->length[i] = left;
        left -= b->length[i];
        gap[i] = 1 + (unsigned)bed_random(&seed, 16);
    }
    lay_out(b, gap);
}

void blob_free(struct blob *b)
{
    disown(b->arena);
    if (b->zone != NULL)
        assert_int_equal(rme_memory_free(b->zone->rme, b->arena), 0);
    else
        free(b->arena);
    memset(b, 0, sizeof *b);
}

void blob_canary(struct blob *b)
{
    memset(b->arena, CANARY, b->size);
}

void blob_fill(struct blob *b, uint64_t seed)
{
    int64_t at = 0;

    blob_canary(b);
    for (int i = 0; i < b->count; i++)
        for (int64_t k = 0; k < b->length[i]; k++)
            ((uint8_t *)b->base[i])[k] = pattern_byte(seed, at++);
}

static void check_canary(const uint8_t *from, const uint8_t *to)
{
    for (; from < to; from++)
        if (*from != CANARY)
            fail_msg("memory around a piece was written to");
}

void blob_check(const struct blob *b, uint64_t seed, int64_t n)
{
    const uint8_t *gap = b->arena;
    int64_t at = 0;

    for (int i = 0; i < b->count; i++) {
        const uint8_t *p = b->base[i];
        if (!b->length[i])
            continue;
        check_canary(gap, p);
        gap = p + b->length[i];
        for (int64_t k = 0; k < b->length[i]; k++, at++) {
            uint8_t want = at < n ? pattern_byte(seed, at) : CANARY;
            if (p[k] != want)
                fail_msg("byte %lld of %lld is %#x, not %#x", (long long)at,
                         (long long)b->total, p[k], want);
        }
    }
    check_canary(gap, b->arena + b->size);
}

int64_t blob_foreign(const struct blob *b, uint64_t seed)
{
    int64_t at = 0;

    for (int i = 0; i < b->count; i++) {
        const uint8_t *p = b->base[i];
        for (int64_t k = 0; k < b->length[i]; k++, at++)
            if (p[k] != CANARY && p[k] != pattern_byte(seed, at))
                return at;
    }
    return -1;
}

struct rme_list blob_list(const struct blob *b)
{
    return (struct rme_list){.base = b->base, .length = b->length, .count = b->count};
}
