/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "caching.h"

#define CALL_NS 10000.0
#define PAGE_NS 1000.0 /* holes of up to 10 pages are included */

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
        cmocka_unit_test(directions_are_apart),
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(full_cache_in_use_does_not_fail),
        cmocka_unit_test(unmap_while_registering_is_detected),
        cmocka_unit_test(memory_that_cannot_be_registered_evicts_nothing),
        cmocka_unit_test(cache_evicts_for_new_registration),
        cmocka_unit_test(dead_registrations_make_room),
        cmocka_unit_test(hints_register),
        cmocka_unit_test(hints_are_bounded),
        cmocka_unit_test(hints_leave_blocks_alone),
        cmocka_unit_test(exposed_range_is_exact),
        cmocka_unit_test(exposed_key_serves_one_operation),
    };

    return cmocka_run_group_tests_name("mreg", tests, NULL, NULL);
}
