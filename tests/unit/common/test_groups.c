/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registration of lists: which segments are registered together, and the fallback when that is
 * refused [001 4.2.2]. */
#include "config.h"
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "fake_fabric.h"
#include "memory/mreg.h"

#define PAGE    ((size_t)4096)
#define PAGES   ((size_t)3 * 4096)
#define CALL_NS 10000.0
#define PAGE_NS 1000.0 /* holes of up to 10 pages are included */
#define SOURCE  RME_ACCESS_REMOTE_READ
#define SINK    (RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE)
#define MOST    4096

struct fixture {
    struct fake fake;
    struct rme_log *log;
    struct fake_log seen;
    struct rme_pin pin;
    struct rme_zone *zone;
    struct rme_mreg *mreg;
    char *memory; /* PAGES pages */
    const char *hole[400];
};

static void start(struct fixture *f, uint64_t entries)
{
    struct rme_zone_config zone = {.max_bytes = 1 << 20, .pin = &f->pin};
    struct rme_mreg_config mreg = {.pin = &f->pin,
                                   .max_entries = entries,
                                   .max_bytes = 64 << 20,
                                   .call_ns = CALL_NS,
                                   .page_ns = PAGE_NS};

    *f = (struct fixture){.memory = NULL};
    fake_init(&f->fake);
    f->log = rme_log_new(fake_log_line, &f->seen);
    rme_pin_init(&f->pin, &fake_ops, fake_fabric(&f->fake), f->log);
    assert_int_equal(rme_zone_new(&zone, &f->zone), 0);
    mreg.zone = f->zone;
    assert_int_equal(rme_mreg_new(&mreg, &f->mreg), 0);
    f->memory =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f->memory, MAP_FAILED);
}

/* Changes the protection of pages, and makes the fabric refuse to register them with this
 * access, like the kernel. */
static void make_holes(struct fixture *f, unsigned count, size_t first, size_t stride,
                       int rights, unsigned access)
{
    assert_in_range(count, 1, sizeof(f->hole) / sizeof(f->hole[0]));
    for (unsigned i = 0; i < count; i++) {
        char *page = f->memory + (first + i * stride) * PAGE;

        f->hole[i] = page;
        if (rights >= 0)
            assert_int_equal(mprotect(page, PAGE, rights), 0);
        else
            assert_int_equal(munmap(page, PAGE), 0);
    }
    f->fake.holes = f->hole;
    f->fake.nholes = count;
    f->fake.hole_access = access;
}

static void stop(struct fixture *f)
{
    rme_mreg_free(f->mreg);
    rme_zone_free(f->zone);
    assert_int_equal(fake_live(&f->fake), 0);
    assert_int_equal(f->fake.bad_deregs, 0);
    rme_log_free(f->log);
    fake_destroy(&f->fake);
    munmap(f->memory, PAGES * PAGE);
}

/* Acquires and releases a list of `count` segments of 100 bytes; returns the number of
 * successful registrations. */
static unsigned use(struct fixture *f, uint32_t count, size_t stride, unsigned access)
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
    if (rme_mreg_release(f->mreg, hold))
        rme_mreg_dereg_flush(f->mreg);
    return f->fake.regs - before;
}

/* Segments in one page, and adjacent ones, share a registration. */
static void near_segments_share_one(void **state)
{
    const size_t stride[] = {2 * PAGE, PAGE, 200, 100};
    struct fixture f;

    (void)state;
    start(&f, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(use(&f, 16, stride[i], SINK), 1);
    stop(&f);
}

/* Returns the number of attempts for a list with a segment in every third page. */
static unsigned attempts(struct fixture *f, uint32_t count, unsigned access, unsigned regs)
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
    struct fixture f;

    (void)state;
    start(&f, 0);
    make_holes(&f, 1, 4, 1, UNMAPPED, ANY);
    assert_int_equal(attempts(&f, 10, SINK, 10), 1 + 10);
    assert_int_equal(attempts(&f, 10, SINK, 10), 1 + 10);
    assert_int_equal(attempts(&f, 11, SINK, 2), 1 + 2);
    stop(&f);
}

/* The kernel's answer is remembered for each access, for a number of uses. */
static void many_end_at_holes(void **state)
{
    struct fixture f;
    unsigned sinks = 0;

    (void)state;
    start(&f, 0);
    make_holes(&f, 2, 4, 21, UNMAPPED, ANY);
    assert_int_equal(attempts(&f, 64, SINK, 3), 1 + 3);
    assert_int_equal(attempts(&f, 64, SINK, 3), 3);
    assert_int_equal(attempts(&f, 64, SOURCE, 3), 1 + 3);
    assert_int_equal(attempts(&f, 64, SOURCE, 3), 3);
    assert_ptr_equal(mmap(f.memory + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                          MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                     f.memory + 4 * PAGE);
    f.fake.nholes = 0;
    while (sinks < 100 && use(&f, 64, 3 * PAGE, SINK) != 1)
        sinks++;
    assert_in_range(sinks, 40, 70);
    stop(&f);
}

/* A read-only neighbour is not a hole for reading. */
static void rights_of_neighbours(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 0);
    make_holes(&f, 3, 31, 3, PROT_READ, RME_ACCESS_LOCAL_WRITE);
    assert_int_equal(attempts(&f, 64, SINK, 4), 1 + 4);
    assert_int_equal(attempts(&f, 64, SOURCE, 1), 1);
    assert_int_equal(attempts(&f, 64, SINK, 4), 4);
    assert_int_equal(mprotect(f.memory + 61 * PAGE, PAGE, PROT_READ), 0);
    make_holes(&f, 3, 31, 3, PROT_NONE, ANY);
    assert_int_equal(attempts(&f, 64, SOURCE, 4), 1 + 4);
    assert_int_equal(attempts(&f, 64, SINK, 4), 4);
    stop(&f);
}

/* The paper's case with the longest list: 10 holes, 11 registrations. */
static void long_lists(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 0);
    make_holes(&f, 10, 1000, 300, UNMAPPED, ANY);
    assert_in_range(attempts(&f, MOST, SINK, 11), 12, 11 + 3);
    assert_int_equal(attempts(&f, MOST, SINK, 11), 11);
    stop(&f);
    /* more holes than are remembered: the kernel is queried again, and the list is right */
    start(&f, 0);
    make_holes(&f, 400, 1, 30, UNMAPPED, ANY);
    for (int i = 0; i < 3; i++)
        assert_in_range(attempts(&f, MOST, SOURCE, 401), 402, 401 + 20);
    stop(&f);
}

/* If the kernel reports no hole, or the error has another reason, there is one attempt. */
static void what_no_hole_explains(void **state)
{
    struct fixture f;
    const char *device;

    (void)state;
    start(&f, 0);
    device = f.memory + 4 * PAGE;
    f.fake.hole = device;
    assert_int_equal(attempts(&f, 64, SINK, 64), 1 + 64);
    f.fake.hole = NULL;
    make_holes(&f, 1, 91, 1, UNMAPPED, ANY);
    f.fake.refuse_above = PAGE;
    assert_int_equal(attempts(&f, 64, SINK, 64), 1 + 64);
    f.fake.refuse_above = 0;
    assert_int_equal(attempts(&f, 64, SINK, 2), 1 + 2);
    stop(&f);
}

/* An unmapped segment fails, for any neighbours, and nothing stays registered. */
static void a_segment_in_a_hole(void **state)
{
    struct fixture f;
    struct rme_mreg_hold *hold;
    struct rme_mseg seg[64];

    (void)state;
    start(&f, 0);
    make_holes(&f, 1, 30, 1, UNMAPPED, ANY);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 64; k++)
            seg[k] = (struct rme_mseg){.base = f.memory + (size_t)k * 3 * PAGE, .length = 100};
        assert_int_equal(rme_mreg_acquire(f.mreg, seg, 64, SINK, &hold), -EFAULT);
        assert_int_equal(fake_live(&f.fake), 0);
    }
    stop(&f);
}

/* For a receiver of data: holes are registered along, also where a key opens the whole
 * registration; not where it is for one operation. */
static void holes_at_a_receiver(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 0);
    assert_int_equal(attempts(&f, 64, SINK, 1), 1);
    f.pin.keys_open = true;
    assert_int_equal(attempts(&f, 64, SINK, 1), 1);
    make_holes(&f, 2, 4, 21, UNMAPPED, ANY);
    assert_int_equal(attempts(&f, 64, SINK, 3), 1 + 3);
    f.pin.each = true;
    assert_int_equal(attempts(&f, 64, SINK, 64), 64);
    stop(&f);
}

/* The same unmapped memory many times: no known hole lies between the segments. */
static void a_segment_many_times(void **state)
{
    struct fixture f;
    struct rme_mreg_hold *hold;
    struct rme_mseg seg[11];

    (void)state;
    start(&f, 0);
    make_holes(&f, 1, 4, 1, UNMAPPED, ANY);
    assert_int_equal(attempts(&f, 64, SINK, 2), 1 + 2);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 11; k++)
            seg[k] = (struct rme_mseg){.base = f.memory + 4 * PAGE, .length = 100};
        assert_int_equal(rme_mreg_acquire(f.mreg, seg, 11, SINK, &hold), -EFAULT);
    }
    assert_int_equal(attempts(&f, 64, SINK, 2), 2);
    stop(&f);
}

/* A hole that cannot be watched: the group serves one operation, its segments may be cached. */
static void a_file_in_a_hole(void **state)
{
    FILE *file = tmpfile();
    struct fixture f;

    (void)state;
    start(&f, 16);
    assert_non_null(file);
    if (!rme_mreg_caches(f.mreg)) {
        fclose(file);
        stop(&f);
        skip();
    }
    assert_int_equal(ftruncate(fileno(file), PAGE), 0);
    assert_ptr_equal(mmap(f.memory + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          fileno(file), 0),
                     f.memory + PAGE);
    fclose(file);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(use(&f, 2, 2 * PAGE, SINK), 1);
        assert_int_equal(fake_live(&f.fake), 0);
    }
    assert_int_equal(use(&f, 1, PAGE, SINK), 1);
    assert_int_equal(use(&f, 1, PAGE, SINK), 0);
    stop(&f);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_segments_share_one),
        cmocka_unit_test(few_are_registered_singly),
        cmocka_unit_test(many_end_at_holes),
        cmocka_unit_test(rights_of_neighbours),
        cmocka_unit_test(long_lists),
        cmocka_unit_test(what_no_hole_explains),
        cmocka_unit_test(a_segment_in_a_hole),
        cmocka_unit_test(holes_at_a_receiver),
        cmocka_unit_test(a_segment_many_times),
        cmocka_unit_test(a_file_in_a_hole),
    };

    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
