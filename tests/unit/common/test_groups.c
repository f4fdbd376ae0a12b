/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What of a list is registered together, and what where that is refused [001 4.2.2]. */
#include "config.h"
#include <errno.h>
#include <sys/mman.h>

#include "unit.h"
#include "fake_fabric.h"
#include "memory/mreg.h"

#define PAGE    ((size_t)4096)
#define PAGES   ((size_t)512)
#define CALL_NS 10000.0
#define PAGE_NS 1000.0 /* holes of up to 10 pages are registered along */
#define SOURCE  RME_ACCESS_REMOTE_READ
#define SINK    (RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE)
#define MOST    16

struct fixture {
    struct fake fake;
    struct rme_log *log;
    struct fake_log seen;
    struct rme_pin pin;
    struct rme_zone *zone;
    struct rme_mreg *mreg;
    char *memory; /* PAGES of them */
};

static void start(struct fixture *f, uint64_t entries, bool single)
{
    struct rme_zone_config zone = {.max_bytes = 1 << 20, .pin = &f->pin};
    struct rme_mreg_config mreg = {.pin = &f->pin,
                                   .max_entries = entries,
                                   .max_bytes = 64 << 20,
                                   .single = single,
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

/* Registers a list of `count` segments of 100 bytes, and lets go of it: so many calls of the
 * fabric succeeded. */
static unsigned use(struct fixture *f, uint32_t count, size_t stride, unsigned access)
{
    struct rme_mseg seg[MOST];
    struct rme_mreg_hold *hold;
    unsigned before = f->fake.regs;

    for (uint32_t i = 0; i < count; i++)
        seg[i] = (struct rme_mseg){.base = f->memory + i * stride, .length = 100};
    assert_int_equal(rme_mreg_acquire(f->mreg, seg, count, access, &hold), 0);
    for (uint32_t i = 0; i < count; i++)
        assert_true(fake_covers(&f->fake, seg[i].rkey, seg[i].base, 100, access) &&
                    fake_covers(&f->fake, seg[i].lkey, seg[i].base, 100, access));
    if (rme_mreg_release(f->mreg, hold))
        rme_mreg_reap(f->mreg);
    return f->fake.regs - before;
}

/* Also those of one page, and those that touch. */
static void single_segments_share_nothing(void **state)
{
    const size_t stride[] = {2 * PAGE, PAGE, 200, 100};
    struct fixture f;

    (void)state;
    start(&f, 0, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(use(&f, 16, stride[i], SINK), 16);
    stop(&f);
    start(&f, 0, false);
    for (int i = 0; i < 4; i++)
        assert_int_equal(use(&f, 16, stride[i], SINK), 1);
    stop(&f);
}

/* Each is found again, and found by others in its page. */
static void single_segments_are_kept(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 100, true);
    if (!rme_mreg_caches(f.mreg)) {
        stop(&f);
        skip();
    }
    assert_int_equal(use(&f, 16, 2 * PAGE, SINK), 16);
    assert_int_equal(use(&f, 16, 2 * PAGE, SINK), 0);
    assert_int_equal(use(&f, 16, 200, SINK), 0);
    assert_int_equal(use(&f, 16, 200, SOURCE), 16); /* all of one page */
    assert_int_equal(use(&f, 16, 200, SOURCE), 0);
    stop(&f);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_segments_share_nothing),
        cmocka_unit_test(single_segments_are_kept),
    };

    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
