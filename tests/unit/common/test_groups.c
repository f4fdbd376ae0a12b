/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registration of lists: which segments are registered together, and the fallback when that is
 * refused [001 4.2.2]. */
#include "config.h"
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "caching.h"

#define CALL_NS 10000.0
#define PAGE_NS 1000.0 /* holes of up to 10 pages are included */
#define MOST    4096

static const char *holes[400];

static struct engine *start(uint64_t entries)
{
    return engine_open((struct rme_mreg_config){.max_entries = entries,
                                                .max_bytes = 64 << 20,
                                                .call_ns = CALL_NS,
                                                .page_ns = PAGE_NS},
                       1 << 20, 3 * MOST);
}

/* Changes the protection of pages, and makes the fabric refuse to register them with this
 * access, like the kernel. */
static void make_holes(struct engine *f, unsigned count, size_t first, size_t stride,
                       int rights, unsigned access)
{
    assert_in_range(count, 1, sizeof(holes) / sizeof(holes[0]));
    for (unsigned i = 0; i < count; i++) {
        char *page = f->memory + (first + i * stride) * PAGE;

        holes[i] = page;
        if (rights >= 0)
            assert_int_equal(mprotect(page, PAGE, rights), 0);
        else
            assert_int_equal(munmap(page, PAGE), 0);
    }
    f->fake.holes = holes;
    f->fake.nholes = count;
    f->fake.hole_access = access;
}

/* Acquires and releases a list of `count` segments of 100 bytes; returns the number of
 * successful registrations. */
static unsigned use(struct engine *f, uint32_t count, size_t stride, unsigned access)
{
    static struct rme_mseg seg[MOST];
    struct rme_mreg_hold *hold;
    unsigned before = f->fake.regs;

    for (uint32_t i = 0; i < count; i++)
        seg[i] = (struct rme_mseg){.base = f->memory + i * stride, .length = 100};
    assert_int_equal(rme_mreg_acquire(f->mreg, seg, count, access, &hold), 0);
    for (uint32_t i = 0; i < count; i++)
        assert_true(fake_covers(&f->fake, seg[i].rkey, seg[i].base, 100, access) &&
                    fake_covers(&f->fake, seg[i].lkey, seg[i].base, 100, access));
    if (rme_mreg_release(f->mreg, hold, NULL))
        rme_mreg_dereg_flush(f->mreg);
    return f->fake.regs - before;
}

/* Segments in one page, adjacent ones, and those with at most 10 pages between them share a
 * registration. */
static void near_segments_share_one(void **state)
{
    const size_t stride[] = {11 * PAGE, 2 * PAGE, PAGE, 200, 100};
    struct engine *f = start(0);

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(use(f, 16, stride[i], SINK), 1);
    assert_int_equal(use(f, 16, 12 * PAGE, SINK), 16);
    engine_free(f);
}

/* Returns the number of attempts for a list with a segment in every third page. */
static unsigned attempts(struct engine *f, uint32_t count, unsigned access, unsigned regs)
{
    unsigned before = f->fake.attempts;

    assert_int_equal(use(f, count, 3 * PAGE, access), regs);
    return f->fake.attempts - before;
}

#define UNMAPPED (-1)
#define ANY      (RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_READ)

/* For short lists the kernel is not queried: a query costs as much as 10 calls. */
static void few_are_registered_singly(void **state)
{
    struct engine *f = start(0);

    (void)state;
    make_holes(f, 1, 4, 1, UNMAPPED, ANY);
    assert_int_equal(attempts(f, 10, SINK, 10), 1 + 10);
    assert_int_equal(attempts(f, 10, SINK, 10), 1 + 10);
    assert_int_equal(attempts(f, 11, SINK, 2), 1 + 2);
    engine_free(f);
}

/* The kernel's answer serves one list. */
static void many_end_at_holes(void **state)
{
    struct engine *f = start(0);

    (void)state;
    make_holes(f, 2, 4, 21, UNMAPPED, ANY);
    assert_int_equal(attempts(f, 64, SINK, 3), 1 + 3);
    assert_int_equal(attempts(f, 64, SOURCE, 3), 1 + 3);
    assert_ptr_equal(mmap(f->memory + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                          MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                     f->memory + 4 * PAGE);
    f->fake.nholes = 0;
    assert_int_equal(attempts(f, 64, SINK, 1), 1);
    engine_free(f);
}

/* A read-only neighbour is not a hole for reading. */
static void rights_of_neighbours(void **state)
{
    struct engine *f = start(0);

    (void)state;
    make_holes(f, 3, 31, 3, PROT_READ, RME_ACCESS_LOCAL_WRITE);
    assert_int_equal(attempts(f, 64, SINK, 4), 1 + 4);
    assert_int_equal(attempts(f, 64, SOURCE, 1), 1);
    assert_int_equal(mprotect(f->memory + 61 * PAGE, PAGE, PROT_READ), 0);
    make_holes(f, 3, 31, 3, PROT_NONE, ANY);
    assert_int_equal(attempts(f, 64, SOURCE, 4), 1 + 4);
    assert_int_equal(attempts(f, 64, SINK, 5), 1 + 5); /* page 61 is read-only, too */
    engine_free(f);
}

/* The paper's case with the longest list: 10 holes, 11 registrations. */
static void long_lists(void **state)
{
    struct engine *f = start(0);

    (void)state;
    make_holes(f, 10, 1000, 300, UNMAPPED, ANY);
    assert_int_equal(attempts(f, MOST, SINK, 11), 1 + 11);
    engine_free(f);
    f = start(0);
    make_holes(f, 400, 1, 30, UNMAPPED, ANY);
    assert_int_equal(attempts(f, MOST, SOURCE, 401), 1 + 401);
    engine_free(f);
}

/* If the kernel reports no hole, or the error has another reason, there is one attempt. */
static void failure_without_hole_tried_once(void **state)
{
    struct engine *f = start(0);
    const char *device;

    (void)state;
    device = f->memory + 4 * PAGE;
    f->fake.hole = device;
    assert_int_equal(attempts(f, 64, SINK, 64), 1 + 64);
    f->fake.hole = NULL;
    make_holes(f, 1, 91, 1, UNMAPPED, ANY);
    f->fake.refuse_above = PAGE;
    assert_int_equal(attempts(f, 64, SINK, 64), 1 + 64);
    f->fake.refuse_above = 0;
    assert_int_equal(attempts(f, 64, SINK, 2), 1 + 2);
    engine_free(f);
}

/* An unmapped segment fails, for any neighbours, and nothing stays registered. */
static void unmapped_segment_fails_registration(void **state)
{
    struct engine *f = start(0);
    struct rme_mreg_hold *hold;
    struct rme_mseg seg[64];

    (void)state;
    make_holes(f, 1, 30, 1, UNMAPPED, ANY);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 64; k++)
            seg[k] = (struct rme_mseg){.base = f->memory + (size_t)k * 3 * PAGE, .length = 100};
        assert_int_equal(rme_mreg_acquire(f->mreg, seg, 64, SINK, &hold), -EFAULT);
        assert_int_equal(fake_live(&f->fake), 0);
    }
    engine_free(f);
}

/* For a receiver of data: holes are registered along, also where a key opens the whole
 * registration; not where it is for one operation. */
static void holes_at_a_receiver(void **state)
{
    struct engine *f = start(0);

    (void)state;
    assert_int_equal(attempts(f, 64, SINK, 1), 1);
    f->fake.caps.mws = 0;
    assert_int_equal(attempts(f, 64, SINK, 1), 1);
    make_holes(f, 2, 4, 21, UNMAPPED, ANY);
    assert_int_equal(attempts(f, 64, SINK, 3), 1 + 3);
    f->fake.caps.register_each = true;
    assert_int_equal(attempts(f, 64, SINK, 64), 64);
    engine_free(f);
}

/* Where there is a cache, the groups between the holes are found there. */
static void groups_between_holes_are_cached(void **state)
{
    struct engine *f = start(16);

    (void)state;
    engine_needs_cache(f);
    make_holes(f, 2, 4, 21, UNMAPPED, ANY);
    assert_int_equal(attempts(f, 64, SINK, 3), 1 + 3);
    assert_int_equal(attempts(f, 64, SINK, 0), 0);
    engine_free(f);
}

/* A hole that cannot be watched: the group serves one operation, its segments may be cached. */
static void file_in_hole_is_not_cached(void **state)
{
    FILE *file = tmpfile();
    struct engine *f = start(16);

    (void)state;
    assert_non_null(file);
    if (!rme_mreg_caches(f->mreg)) {
        fclose(file);
        engine_free(f);
        skip();
    }
    assert_int_equal(ftruncate(fileno(file), PAGE), 0);
    assert_ptr_equal(mmap(f->memory + PAGE, PAGE, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED, fileno(file), 0),
                     f->memory + PAGE);
    fclose(file);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(use(f, 2, 2 * PAGE, SINK), 1);
        assert_int_equal(fake_live(&f->fake), 0);
    }
    assert_int_equal(use(f, 1, PAGE, SINK), 1);
    assert_int_equal(use(f, 1, PAGE, SINK), 0);
    engine_free(f);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_segments_share_one),
        cmocka_unit_test(few_are_registered_singly),
        cmocka_unit_test(many_end_at_holes),
        cmocka_unit_test(rights_of_neighbours),
        cmocka_unit_test(long_lists),
        cmocka_unit_test(failure_without_hole_tried_once),
        cmocka_unit_test(unmapped_segment_fails_registration),
        cmocka_unit_test(holes_at_a_receiver),
        cmocka_unit_test(groups_between_holes_are_cached),
        cmocka_unit_test(file_in_hole_is_not_cached),
    };

    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
