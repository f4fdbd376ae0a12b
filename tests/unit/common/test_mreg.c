/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "caching.h"

#define CALL_NS  10000.0
#define PAGE_NS  1000.0 /* holes of up to 10 pages are included */
#define MAX_SEGS 64

static struct engine *start(uint64_t entries, uint64_t bytes)
{
    return engine_open(
        (struct rme_mreg_config){
            .max_entries = entries, .max_bytes = bytes, .call_ns = CALL_NS, .page_ns = PAGE_NS},
        64 << 20, 256);
}

static void end(struct engine *f, struct rme_mreg_hold *hold)
{
    if (rme_mreg_release(f->mreg, hold, NULL))
        rme_mreg_dereg_flush(f->mreg);
}

static void expect_keys(struct engine *f, const struct rme_mseg *seg, uint32_t count,
                        unsigned access)
{
    for (uint32_t i = 0; i < count; i++)
        if (seg[i].length > 0)
            assert_true(
                fake_covers(&f->fake, seg[i].rkey, seg[i].base, seg[i].length, access) &&
                fake_covers(&f->fake, seg[i].lkey, seg[i].base, seg[i].length, access));
}

/* Makes `count` segments of `length` bytes, `stride` bytes apart. */
static void fill(struct engine *f, struct rme_mseg *seg, uint32_t count, size_t length,
                 size_t stride)
{
    for (uint32_t i = 0; i < count; i++)
        seg[i] = (struct rme_mseg){.base = f->memory + i * stride, .length = length};
}

static void empty_and_zone_segments_cost_nothing(void **state)
{
    struct engine *f = start(0, 0);
    char *block = rme_zone_alloc(f->zone, 10000, true);
    struct rme_mseg seg[3] = {{.base = NULL, .length = 0},
                              {.base = block + 5, .length = 9000},
                              {.base = block, .length = 0}};
    struct rme_mreg_hold *hold;
    unsigned before = f->fake.attempts;

    (void)state;
    assert_int_equal(rme_mreg_try(f->mreg, seg, 3, SINK, &hold), 0);
    expect_keys(f, seg, 3, SINK);
    assert_false(rme_mreg_release(f->mreg, hold, NULL));
    assert_int_equal(rme_mreg_acquire(f->mreg, seg, 3, SINK, &hold), 0);
    expect_keys(f, seg, 3, SINK);
    assert_false(rme_mreg_release(f->mreg, hold, NULL));
    assert_int_equal(rme_mreg_acquire(f->mreg, NULL, 0, SINK, &hold), 0);
    assert_false(rme_mreg_release(f->mreg, hold, NULL));
    assert_int_equal(f->fake.attempts, before);
    assert_int_equal(rme_zone_release(f->zone, block), 0);
    engine_free(f);
}

static void order_and_overlap_do_not_matter(void **state)
{
    struct engine *f = start(0, 0);
    struct rme_mseg seg[4] = {{.base = f->memory + 9000, .length = 4000},
                              {.base = f->memory, .length = 20000},
                              {.base = f->memory + 200 * PAGE, .length = 1},
                              {.base = f->memory + 100, .length = 50}};
    struct rme_mreg_hold *hold;

    (void)state;
    assert_int_equal(rme_mreg_acquire(f->mreg, seg, 4, SINK, &hold), 0);
    assert_int_equal(f->fake.regs, 2);
    expect_keys(f, seg, 4, SINK);
    assert_ptr_equal(seg[0].base, f->memory + 9000);
    end(f, hold);
    engine_free(f);
}

static void refused_hole_splits_group(void **state)
{
    struct engine *f = start(0, 0);
    struct rme_mseg seg[MAX_SEGS];
    struct rme_mreg_hold *hold;

    (void)state;
    fill(f, seg, 8, 100, 3 * PAGE);
    f->fake.hole = f->memory + 4 * PAGE; /* between the second and the third */
    assert_int_equal(rme_mreg_acquire(f->mreg, seg, 8, SOURCE, &hold), 0);
    expect_keys(f, seg, 8, SOURCE);
    assert_int_equal(f->fake.regs, 8);
    end(f, hold);
    rme_log_drain(f->log);
    assert_int_equal(f->seen.lines, 0); /* no log line for this refusal */
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_REG_REFUSED), 0);
    engine_free(f);
}

static void many_releases_one_dereg_flush(void **state)
{
    struct engine *f = start(0, 0);
    struct rme_mreg_hold *hold[10];

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct rme_mseg seg = {.base = f->memory + i * PAGE, .length = PAGE};

        assert_int_equal(rme_mreg_acquire(f->mreg, &seg, 1, SINK, &hold[i]), 0);
    }
    for (int i = 0; i < 10; i++)
        assert_true(rme_mreg_release(f->mreg, hold[i], NULL));
    assert_int_equal(f->fake.deregs, 0);
    rme_mreg_dereg_flush(f->mreg);
    assert_int_equal(f->fake.deregs, 10);
    engine_free(f);
}

/* ---- with a cache ---- */

static struct engine *start_cached(uint64_t entries, uint64_t bytes)
{
    struct engine *f = start(entries, bytes);

    engine_needs_cache(f);
    return f;
}

static void use(struct engine *f, char *base, size_t length, unsigned access)
{
    struct rme_mseg seg = {.base = base, .length = length};
    struct rme_mreg_hold *hold;

    assert_int_equal(rme_mreg_acquire(f->mreg, &seg, 1, access, &hold), 0);
    expect_keys(f, &seg, 1, access);
    end(f, hold);
}

/*
 * Reaps after the page `gone` was unmapped. The unmap returned when its event was read, perhaps
 * before the reader has handled it. Taking the lock, as a lookup does, waits for that; a check
 * without the lock may come too early.
 */
static void dereg_unmapped(struct engine *f, char *gone)
{
    struct rme_mseg seg = {.base = gone, .length = PAGE};
    struct rme_mreg_hold *hold;

    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, SOURCE, &hold), -EAGAIN);
    assert_true(rme_mreg_wants_dereg(f->mreg));
    rme_mreg_dereg_flush(f->mreg);
}

static void second_use_hits_cache(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);
    struct rme_mseg seg = {.base = f->memory + 200, .length = 5000};
    struct rme_mreg_hold *hold;

    (void)state;
    use(f, f->memory + 10, 6000, SOURCE);
    use(f, f->memory + 10, 6000, SOURCE);
    use(f, f->memory, 2 * PAGE, SOURCE); /* cached in whole pages */
    assert_int_equal(f->fake.regs, 1);
    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, RME_ACCESS_LOCAL, &hold), 0);
    assert_false(rme_mreg_release(f->mreg, hold, NULL));
    use(f, f->memory, 2 * PAGE + 1, SOURCE);
    assert_int_equal(f->fake.regs, 2);
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_REG_HITS), 3);
    engine_free(f);
}

static void directions_are_apart(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);

    (void)state;
    use(f, f->memory, PAGE, SOURCE);
    use(f, f->memory, PAGE, SINK);
    use(f, f->memory, PAGE, SOURCE);
    use(f, f->memory, PAGE, SINK);
    assert_int_equal(f->fake.regs, 2); /* one for each direction: no peer gets both */
    rme_mreg_dereg_flush(f->mreg);
    assert_int_equal(fake_live(&f->fake), 2);
    engine_free(f);
}

static void rights_imply_others(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);

    (void)state;
    use(f, f->memory, PAGE, RME_ACCESS_REMOTE_WRITE);
    use(f, f->memory, PAGE, RME_ACCESS_LOCAL_WRITE);
    use(f, f->memory, PAGE, RME_ACCESS_LOCAL);
    use(f, f->memory, PAGE, SINK);
    assert_int_equal(f->fake.regs, 1);
    use(f, f->memory + 2 * PAGE, PAGE, RME_ACCESS_LOCAL);
    use(f, f->memory + 2 * PAGE, PAGE, SOURCE);
    use(f, f->memory + 2 * PAGE, PAGE, RME_ACCESS_LOCAL);
    assert_int_equal(f->fake.regs, 3);
    engine_free(f);
}

static void bytes_are_bounded(void **state)
{
    struct engine *f = start_cached(100, 8 * PAGE);

    (void)state;
    for (int i = 0; i < 32; i++)
        use(f, f->memory + (size_t)i * 8 * PAGE, 3 * PAGE, SOURCE);
    rme_mreg_dereg_flush(f->mreg);
    assert_int_equal(fake_live(&f->fake), 2);
    use(f, f->memory, 9 * PAGE, SOURCE); /* too large to cache */
    assert_int_equal(fake_live(&f->fake), 2);
    engine_free(f);
}

static void full_cache_in_use_does_not_fail(void **state)
{
    struct engine *f = start_cached(2, 1 << 20);
    struct rme_mreg_hold *hold[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct rme_mseg seg = {.base = f->memory + (size_t)i * 20 * PAGE, .length = PAGE};

        assert_int_equal(rme_mreg_acquire(f->mreg, &seg, 1, SINK, &hold[i]), 0);
        expect_keys(f, &seg, 1, SINK);
    }
    for (int i = 0; i < 5; i++)
        end(f, hold[i]);
    assert_int_equal(fake_live(&f->fake), 2);
    engine_free(f);
}

/* Unmaps in the middle of the registration. */
struct in_between {
    char *at;
    int times;
};

static void unmap_once(void *arg)
{
    struct in_between *between = arg;

    if (between->times-- > 0)
        mmap(between->at, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0);
}

static void unmap_while_registering_is_detected(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);
    struct in_between between = {.at = f->memory + PAGE, .times = 1};
    struct rme_mseg seg = {.base = f->memory, .length = 4 * PAGE};
    struct rme_mreg_hold *hold;

    (void)state;
    f->fake.during = unmap_once;
    f->fake.during_arg = &between;
    use(f, f->memory, 4 * PAGE, SOURCE);
    /* The registration served its operation and is not used again, whether or not the monitor
     * has reported the change yet. */
    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, SOURCE, &hold), -EAGAIN);
    rme_mreg_dereg_flush(f->mreg);
    assert_int_equal(fake_live(&f->fake), 0);
    use(f, f->memory, 4 * PAGE, SOURCE);
    use(f, f->memory, 4 * PAGE, SOURCE);
    assert_int_equal(f->fake.regs, 2);
    engine_free(f);
}

static void groups_are_cached_by_their_segments(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);
    struct rme_mseg seg[MAX_SEGS];
    struct rme_mreg_hold *hold;

    (void)state;
    for (int round = 0; round < 3; round++) {
        fill(f, seg, 16, 100, 3 * PAGE);
        assert_int_equal(rme_mreg_acquire(f->mreg, seg, 16, SINK, &hold), 0);
        expect_keys(f, seg, 16, SINK);
        end(f, hold);
    }
    assert_int_equal(f->fake.regs, 1);
    /* a hole is watched with its group */
    assert_int_equal(madvise(f->memory + PAGE, PAGE, MADV_DONTNEED), 0);
    fill(f, seg, 16, 100, 3 * PAGE);
    assert_int_equal(rme_mreg_acquire(f->mreg, seg, 16, SINK, &hold), 0);
    assert_int_equal(f->fake.regs, 2);
    end(f, hold);
    engine_free(f);
}

/* Segments of two pages each, with two pages between them: a use of two pages is served by the
 * group if they are those of a segment.  An allocator may have been discarding a hole while the
 * group was registered: the hole's pages went afterwards, without another event. */
static void holes_of_a_group_serve_no_use(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 9; count++) {
        struct engine *f = start_cached(64, 1 << 20);
        struct rme_mseg seg[9];
        struct rme_mreg_hold *hold;

        fill(f, seg, count, 2 * PAGE, 4 * PAGE);
        assert_int_equal(rme_mreg_acquire(f->mreg, seg, count, SINK, &hold), 0);
        end(f, hold);
        assert_int_equal(f->fake.regs, 1);
        for (size_t page = 0; page + 2 <= 4 * count - 2; page++) {
            struct rme_mseg part = {.base = f->memory + page * PAGE, .length = 2 * PAGE};
            int ret = rme_mreg_try(f->mreg, &part, 1, SINK, &hold);

            assert_int_equal(ret, page % 4 == 0 ? 0 : -EAGAIN);
            if (ret == 0)
                end(f, hold);
        }
        use(f, f->memory + 4 * (count - 1) * PAGE + 100, 2 * PAGE - 100, SINK);
        assert_int_equal(f->fake.regs, 1);
        engine_free(f);
    }
}

/* An eviction helps only where resources lack. */
static void memory_that_cannot_be_registered_evicts_nothing(void **state)
{
    static const int errors[] = {EFAULT, EACCES, EINVAL, EIO};
    struct engine *f = start_cached(16, 1 << 20);
    struct rme_mreg_hold *hold;

    (void)state;
    use(f, f->memory, PAGE, SOURCE);
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct rme_mseg seg = {.base = f->memory + 20 * PAGE, .length = PAGE};
        unsigned before = f->fake.attempts;

        f->fake.refuse = errors[i];
        assert_int_equal(rme_mreg_acquire(f->mreg, &seg, 1, SOURCE, &hold), -errors[i]);
        assert_int_equal(f->fake.attempts, before + 1);
    }
    f->fake.refuse = 0;
    use(f, f->memory, PAGE, SOURCE);
    assert_int_equal(f->fake.regs, 1);
    engine_free(f);
}

static void cache_evicts_for_new_registration(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);

    (void)state;
    use(f, f->memory, PAGE, SOURCE);
    use(f, f->memory + 20 * PAGE, PAGE, SOURCE);
    f->fake.caps.max_regs = 2;
    use(f, f->memory + 40 * PAGE, PAGE, SOURCE);
    assert_int_equal(fake_live(&f->fake), 1);
    engine_free(f);
}

/* Dead registrations count against the limit until deregistered, with and without a cache. */
static void dead_registrations_make_room(void **state)
{
    struct rme_mreg_hold *hold;

    (void)state;
    for (uint64_t entries = 0; entries <= 16; entries += 16) {
        struct engine *f = entries == 0 ? start(0, 0) : start_cached(entries, 1 << 20);
        struct rme_mseg seg = {.base = f->memory, .length = PAGE};

        f->fake.caps.max_regs = 1;
        assert_int_equal(rme_mreg_acquire(f->mreg, &seg, 1, SOURCE, &hold), 0);
        (void)rme_mreg_release(f->mreg, hold, NULL);
        assert_int_equal(madvise(f->memory, PAGE, MADV_DONTNEED), 0);
        use(f, f->memory + 20 * PAGE, PAGE, SOURCE);
        assert_int_equal(f->fake.deregs, entries == 0 ? 2 : 1);
        assert_int_equal(rme_pin_counted(&f->pin, RME_C_REG_REFUSED), 0);
        engine_free(f);
    }
}

static void hints_register(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);
    struct engine *off = start(0, 0);
    struct rme_mseg seg = {.base = f->memory, .length = 3 * PAGE};
    struct rme_mreg_hold *hold;

    (void)state;
    for (int i = 0; i < 3; i++)
        rme_mreg_hint(f->mreg, f->memory, 3 * PAGE, SOURCE);
    assert_int_equal(f->fake.regs, 1);
    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, SOURCE, &hold), 0);
    assert_false(rme_mreg_release(f->mreg, hold, NULL));
    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, SINK, &hold), -EAGAIN);
    seg.base = f->memory + 10 * PAGE;
    rme_mreg_hint(f->mreg, seg.base, 3 * PAGE, RME_ACCESS_REMOTE_WRITE);
    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, SINK, &hold), 0);
    assert_false(rme_mreg_release(f->mreg, hold, NULL));
    rme_mreg_hint(off->mreg, off->memory, 3 * PAGE, SOURCE);
    assert_int_equal(off->fake.attempts, 0);
    engine_free(off);
    engine_free(f);
}

static void hints_are_bounded(void **state)
{
    struct engine *f = start_cached(8, 64 * PAGE);

    (void)state;
    /* limited to a quarter of the cache */
    rme_mreg_hint(f->mreg, f->memory, 200 * PAGE, SOURCE);
    assert_int_equal(f->fake.regs, 1);
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_REGISTERED_BYTES), 16 * PAGE);
    for (size_t i = 0; i < 1000; i++)
        rme_mreg_hint(f->mreg, f->memory + (20 + 2 * (i % 100)) * PAGE, 1, SOURCE);
    assert_int_equal(fake_live(&f->fake), 8);
    f->fake.refuse = ENOMEM; /* a refusal of a hint is not counted */
    rme_mreg_hint(f->mreg, f->memory, PAGE, SOURCE);
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_REG_REFUSED), 0);
    f->fake.refuse = 0;
    rme_mreg_hint(f->mreg, NULL, PAGE, SOURCE); /* nothing is mapped there */
    rme_mreg_hint(f->mreg, f->memory, SIZE_MAX, SOURCE);
    engine_free(f);
}

/* The hinted memory has been discarded. */
static void hints_are_forgotten(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);
    struct rme_mseg seg = {.base = f->memory, .length = 3 * PAGE};
    struct rme_mreg_hold *hold;

    (void)state;
    rme_mreg_hint(f->mreg, f->memory, 3 * PAGE, SOURCE);
    rme_mreg_hint(f->mreg, f->memory + 10 * PAGE, PAGE, SOURCE);
    assert_int_equal(madvise(f->memory + PAGE, PAGE, MADV_DONTNEED), 0);
    dereg_unmapped(f, f->memory);
    assert_int_equal(fake_live(&f->fake), 1); /* the other one */
    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, SOURCE, &hold), -EAGAIN);
    engine_free(f);
}

/* A block, and its slab, may be freed at any time. */
static void hints_leave_blocks_alone(void **state)
{
    struct engine *f = start_cached(16, 1 << 20);
    char *block;

    (void)state;
    block = rme_zone_alloc(f->zone, 8192, true);
    assert_int_equal(f->fake.regs, 1);
    rme_mreg_hint(f->mreg, block, 8192, SOURCE);
    assert_int_equal(f->fake.regs, 1);
    assert_int_equal(rme_zone_release(f->zone, block), 0);

    /* one that is not registered is like other memory, until it is freed */
    f->fake.refuse = ENOMEM;
    block = rme_zone_alloc(f->zone, 1 << 20, true);
    f->fake.refuse = 0;
    rme_mreg_hint(f->mreg, block, 8192, SOURCE);
    assert_int_equal(f->fake.regs, 2);
    assert_int_equal(rme_zone_release(f->zone, block), 0);
    while (!rme_mreg_wants_dereg(f->mreg)) /* the unmap returns before it is handled */
        usleep(1000);
    rme_mreg_dereg_flush(f->mreg);
    assert_int_equal(fake_live(&f->fake), 1);
    engine_free(f);
}

/* Checks that the key's registration covers this range and nothing around it. */
static void expect_exactly(struct engine *f, uint64_t key, const char *base, size_t length,
                           unsigned access)
{
    assert_true(fake_covers(&f->fake, key, base, length, access));
    assert_false(fake_covers(&f->fake, key, base - 1, 1, 0));
    assert_false(fake_covers(&f->fake, key, base + length, 1, 0));
    assert_false(fake_covers(&f->fake, key, base, 1, RME_ACCESS_REMOTE & ~access));
}

/* Keys that open whole registrations: no page remainders; cached. */
static void exposed_range_is_exact(void **state)
{
    struct engine *f = start_cached(100, 1 << 20);
    struct rme_mseg seg[3] = {{.base = f->memory + 100, .length = 5000},
                              {.base = f->memory + 5200, .length = 800},
                              {.base = f->memory + 20 * PAGE, .length = 10}};
    struct rme_mreg_hold *hold;

    (void)state;
    f->fake.caps.mws = 0;
    assert_int_equal(rme_mreg_acquire(f->mreg, seg, 3, SINK, &hold), 0);
    assert_int_equal(f->fake.regs, 2); /* the two of a group, with its hole, and the third */
    assert_int_equal(seg[0].rkey, seg[1].rkey);
    expect_exactly(f, seg[0].rkey, f->memory + 100, 5900, SINK);
    expect_exactly(f, seg[2].rkey, f->memory + 20 * PAGE, 10, SINK);
    end(f, hold);
    use(f, f->memory + 200, 4800, SINK); /* part of it */
    assert_int_equal(f->fake.regs, 2);
    use(f, f->memory + 99, 10, SINK); /* in the same page, but outside */
    use(f, f->memory + 99, 10, SOURCE);
    assert_int_equal(f->fake.regs, 4);
    munmap(f->memory, PAGE); /* overlaps each of them */
    use(f, f->memory + 20 * PAGE, 10, SINK);
    assert_int_equal(f->fake.regs, 4);
    rme_mreg_dereg_flush(f->mreg);
    assert_int_equal(fake_live(&f->fake), 1);
    use(f, f->memory + 30 * PAGE, 3 * PAGE, RME_ACCESS_LOCAL); /* not opened to a peer */
    use(f, f->memory + 30 * PAGE + 5, 3 * PAGE - 5, RME_ACCESS_LOCAL);
    assert_int_equal(f->fake.regs, 5);
    engine_free(f);
}

/* Keys for one operation alone: neither zone nor cache keeps them, and a block is reused only
 * when its key is invalid. */
static void exposed_key_serves_one_operation(void **state)
{
    struct engine *f = start_cached(100, 1 << 20);
    struct rme_mreg_hold *hold, *other;
    struct rme_mseg seg = {.base = f->memory + 100, .length = 5000}, again = seg;
    char *block;

    (void)state;
    f->fake.caps.mws = 0;
    f->fake.caps.register_each = true;
    use(f, f->memory, 3 * PAGE, RME_ACCESS_LOCAL_WRITE); /* cached, for local use */
    assert_int_equal(f->fake.regs, 1);
    assert_int_equal(rme_mreg_try(f->mreg, &seg, 1, SINK, &hold), -EAGAIN);
    assert_int_equal(rme_mreg_acquire(f->mreg, &seg, 1, SINK, &hold), 0);
    assert_int_equal(rme_mreg_acquire(f->mreg, &again, 1, SINK, &other), 0);
    assert_int_equal(f->fake.regs, 3);
    assert_int_not_equal(seg.rkey, again.rkey);
    expect_exactly(f, seg.rkey, f->memory + 100, 5000, SINK);
    assert_true(rme_mreg_release(f->mreg, hold, NULL));
    rme_mreg_dereg_flush(f->mreg);
    assert_false(fake_covers(&f->fake, seg.rkey, f->memory + 100, 1, 0));
    end(f, other);
    assert_int_equal(fake_live(&f->fake), 1);
    /* a hint registers for local use */
    rme_mreg_hint(f->mreg, f->memory + 20 * PAGE, PAGE, SINK);
    assert_int_equal(fake_live(&f->fake), 2);
    assert_int_equal(
        rme_mreg_try(f->mreg, &(struct rme_mseg){.base = f->memory + 20 * PAGE, .length = PAGE},
                     1, RME_ACCESS_LOCAL_WRITE, &hold),
        0);
    end(f, hold);
    for (unsigned i = 0; i < f->fake.regs; i++)
        assert_false(
            fake_covers(&f->fake, i + 1, f->memory + 20 * PAGE, 1, RME_ACCESS_REMOTE_WRITE));

    block = rme_zone_alloc(f->zone, 8192, true);
    seg = (struct rme_mseg){.base = block, .length = 7000};
    assert_int_equal(rme_mreg_acquire(f->mreg, &seg, 1, SOURCE, &hold), 0);
    expect_exactly(f, seg.rkey, block, 7000, SOURCE);
    assert_true(rme_mreg_release(f->mreg, hold, block));
    assert_non_null(rme_zone_find(f->zone, block, 8192, RME_ACCESS_LOCAL)); /* still in use */
    rme_mreg_dereg_flush(f->mreg);
    assert_null(rme_zone_find(f->zone, block, 8192, RME_ACCESS_LOCAL));
    assert_false(fake_covers(&f->fake, seg.rkey, block, 1, 0));
    engine_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_and_zone_segments_cost_nothing),
        cmocka_unit_test(order_and_overlap_do_not_matter),
        cmocka_unit_test(refused_hole_splits_group),
        cmocka_unit_test(many_releases_one_dereg_flush),
        cmocka_unit_test(second_use_hits_cache),
        cmocka_unit_test(directions_are_apart),
        cmocka_unit_test(rights_imply_others),
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(full_cache_in_use_does_not_fail),
        cmocka_unit_test(unmap_while_registering_is_detected),
        cmocka_unit_test(groups_are_cached_by_their_segments),
        cmocka_unit_test(holes_of_a_group_serve_no_use),
        cmocka_unit_test(memory_that_cannot_be_registered_evicts_nothing),
        cmocka_unit_test(cache_evicts_for_new_registration),
        cmocka_unit_test(dead_registrations_make_room),
        cmocka_unit_test(hints_register),
        cmocka_unit_test(hints_are_bounded),
        cmocka_unit_test(hints_are_forgotten),
        cmocka_unit_test(hints_leave_blocks_alone),
        cmocka_unit_test(exposed_range_is_exact),
        cmocka_unit_test(exposed_key_serves_one_operation),
    };

    return cmocka_run_group_tests_name("mreg", tests, NULL, NULL);
}
