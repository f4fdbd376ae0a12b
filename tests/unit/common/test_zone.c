/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <pthread.h>
#include <sys/mman.h>

#include "unit.h"
#include "fake_fabric.h"
#include "memory/zone.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

struct fixture {
    struct fake fake;
    struct fake_log seen;
    struct rme_log *log;
    struct rme_pin pin;
    struct rme_zone *zone;
};

static struct fixture *start(uint64_t max_bytes)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    fake_init(&f->fake);
    f->log = rme_log_new(fake_log_line, &f->seen);
    rme_pin_init(&f->pin, &fake_ops, fake_fabric(&f->fake), f->log);
    assert_int_equal(rme_zone_new(&f->pin, max_bytes, 1000, &f->zone), 0);
    return f;
}

static void stop(struct fixture *f)
{
    rme_zone_free(f->zone);
    assert_int_equal(fake_live(&f->fake), 0);
    assert_int_equal(f->fake.bad_deregs, 0);
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_REGISTERED_BYTES), 0);
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_ZONE_BYTES), 0);
    rme_log_free(f->log);
    fake_destroy(&f->fake);
    free(f);
}

static bool registered(struct fixture *f, const void *at, size_t length)
{
    const struct rme_mr *mr = rme_zone_find(f->zone, at, length, RME_ACCESS_LOCAL);

    return mr != NULL && fake_covers(&f->fake, mr->rkey, at, length,
                                     RME_ACCESS_REMOTE_WRITE | RME_ACCESS_LOCAL_WRITE);
}

/* A process that needs a few buffers of many sizes pins little; one that needs many registers
 * few slabs. */
static void slabs_grow_with_what_is_used(void **state)
{
    struct fixture *f = start(256 * MIB);
    void *block[16 * 16];
    int blocks = 0;

    (void)state;
    for (size_t size = 4 * KIB; size <= 128 * KIB; size *= 2)
        block[blocks++] = rme_zone_alloc(f->zone, size, true);
    assert_true(rme_pin_counted(&f->pin, RME_C_ZONE_BYTES) <= 2 * MIB);
    while (blocks < 16 * 16)
        block[blocks++] = rme_zone_alloc(f->zone, 64 * KIB, true);
    for (int i = 0; i < blocks; i++)
        assert_non_null(block[i]);
    assert_true(rme_pin_counted(&f->pin, RME_C_ZONE_BYTES) <= 32 * MIB);
    assert_true(f->fake.regs <= 16);
    /* Idle slabs of any size serve any class. */
    for (int i = 0; i < blocks; i++)
        assert_int_equal(rme_zone_release(f->zone, block[i]), 0);
    int regs = f->fake.regs;
    for (int i = 0; i < 16; i++)
        assert_non_null(block[i] = rme_zone_alloc(f->zone, 256 * KIB, true));
    assert_int_equal(f->fake.regs, regs);
    stop(f);
}

static void wrong_frees(void **state)
{
    struct fixture *f = start(256 * MIB);
    char *block = rme_zone_alloc(f->zone, 10000, true),
         *other = rme_zone_alloc(f->zone, 10000, true);
    char *large = rme_zone_alloc(f->zone, 20 * MIB, true);
    int local;

    (void)state;
    assert_null(rme_zone_alloc(f->zone, SIZE_MAX, true));
    assert_null(rme_zone_alloc(f->zone, SIZE_MAX / 4, true));
    assert_null(rme_zone_find(f->zone, block + 1, 16 * KIB, RME_ACCESS_LOCAL)); /* two blocks */
    assert_int_equal(rme_zone_release(f->zone, &local), -EINVAL);
    assert_int_equal(rme_zone_release(f->zone, NULL), -EINVAL);
    assert_int_equal(rme_zone_release(f->zone, block + 1), -EINVAL);
    assert_int_equal(rme_zone_release(f->zone, block + 4096), -EINVAL);
    assert_int_equal(rme_zone_release(f->zone, large + 4096), -EINVAL);
    assert_int_equal(rme_zone_release(f->zone, block), 0);
    assert_int_equal(rme_zone_release(f->zone, block), -EINVAL);
    assert_int_equal(rme_zone_release(f->zone, other), 0);
    assert_int_equal(rme_zone_release(f->zone, large), 0);
    assert_int_equal(rme_zone_release(f->zone, large), -EINVAL);
    stop(f);
}

static void refusal_gives_plain_memory(void **state)
{
    struct fixture *f = start(256 * MIB);
    char *first, *second, *third;

    (void)state;
    f->fake.refuse = ENOMEM;
    first = rme_zone_alloc(f->zone, 5000, true);
    second = rme_zone_alloc(f->zone, 5000, true);
    assert_non_null(first);
    assert_non_null(second);
    memset(first, 1, 8192);
    assert_false(registered(f, first, 1));
    rme_log_drain(f->log);
    assert_int_equal(f->seen.lines, 1);
    assert_non_null(strstr(f->seen.last, "memlock"));
    assert_non_null(strstr(f->seen.last, "ulimit -l"));
    assert_non_null(strstr(f->seen.last, "--ulimit memlock=-1"));
    assert_null(rme_zone_alloc(f->zone, 5000, false));

    /* once the system allows it again, new blocks are registered and unregistered idle memory
     * is freed */
    f->fake.refuse = 0;
    third = rme_zone_alloc(f->zone, 5000, true);
    assert_true(registered(f, third, 5000));
    assert_int_equal(rme_zone_release(f->zone, first), 0);
    assert_int_equal(rme_zone_release(f->zone, second), 0);
    assert_int_equal(rme_zone_release(f->zone, first), -EINVAL);
    assert_int_equal(rme_zone_release(f->zone, third), 0);
    rme_log_drain(f->log);
    assert_int_equal(f->seen.lines, 1);
    stop(f);
}

static void idle_memory_makes_room(void **state)
{
    struct fixture *f = start(16 * MIB);
    char *small[16], *large;

    (void)state;
    for (int i = 0; i < 16; i++)
        small[i] = rme_zone_alloc(f->zone, MIB, true);
    for (int i = 0; i < 16; i++)
        assert_int_equal(rme_zone_release(f->zone, small[i]), 0);
    large = rme_zone_alloc(f->zone, 12 * MIB, true);
    assert_true(registered(f, large, 12 * MIB));
    assert_true(rme_pin_counted(&f->pin, RME_C_REGISTERED_BYTES) <= 16 * MIB);
    stop(f);
}

/* Idle slabs of large blocks hold few small ones: 1,024 blocks of 4 KiB leave most of 64 MiB to
 * others. */
static void small_blocks_do_not_fill_large_slabs(void **state)
{
    struct fixture *f = start(64 * MIB);
    void *large[16], *small[1024];

    (void)state;
    for (int i = 0; i < 16; i++)
        assert_non_null(large[i] = rme_zone_alloc(f->zone, 4 * MIB, true));
    for (int i = 0; i < 16; i++)
        assert_int_equal(rme_zone_release(f->zone, large[i]), 0);
    for (int i = 0; i < 1024; i++) {
        assert_non_null(small[i] = rme_zone_alloc(f->zone, 4 * KIB, true));
        assert_true(registered(f, small[i], 4 * KIB));
    }
    for (int i = 0; i < 14; i++) {
        assert_non_null(large[i] = rme_zone_alloc(f->zone, 4 * MIB, true));
        assert_true(registered(f, large[i], 4 * MIB));
    }
    stop(f);
}

/* Allocates and frees `blocks` blocks of 4 MiB. */
static void use(struct fixture *f, int blocks)
{
    void *block[8];

    for (int i = 0; i < blocks; i++)
        assert_non_null(block[i] = rme_zone_alloc(f->zone, 4 * MIB, true));
    for (int i = 0; i < blocks; i++)
        assert_int_equal(rme_zone_release(f->zone, block[i]), 0);
}

static uint64_t bytes_after_look(struct fixture *f, uint64_t now, uint64_t next)
{
    assert_true(rme_zone_trim_due(f->zone, now) == next);
    if (atomic_exchange(&f->pin.chores, false))
        rme_zone_trim(f->zone);
    return rme_pin_counted(&f->pin, RME_C_REGISTERED_BYTES);
}

static void unused_slabs_are_released(void **state)
{
    struct fixture *f = start(256 * MIB);
    uint64_t now = 1000000;
    char *little, *block;

    (void)state;
    assert_int_equal(bytes_after_look(f, now, UINT64_MAX), 0);
    use(f, 8);
    assert_int_equal(bytes_after_look(f, now + 999, now + 1000), 32 * MIB);
    /* all of it was used since the last check */
    assert_int_equal(bytes_after_look(f, now + 1000, now + 2000), 32 * MIB);
    use(f, 2);
    assert_int_equal(bytes_after_look(f, now + 1999, now + 2000), 32 * MIB);
    assert_int_equal(bytes_after_look(f, now + 2000, now + 3000), 8 * MIB);
    use(f, 3); /* one more is allocated, without evictions */
    assert_int_equal(bytes_after_look(f, now + 3000, now + 4000), 12 * MIB);
    block = rme_zone_alloc(f->zone, 4 * MIB, true);
    /* blocks in use stay */
    assert_int_equal(bytes_after_look(f, now + 9000, UINT64_MAX), 4 * MIB);
    assert_int_equal(rme_zone_release(f->zone, block), 0);
    assert_int_equal(bytes_after_look(f, now + 10000, now + 11000), 4 * MIB);
    assert_int_equal(bytes_after_look(f, now + 11000, UINT64_MAX), 0);

    little = rme_zone_alloc(f->zone, MIB, true);
    assert_int_equal(rme_zone_release(f->zone, little), 0);
    for (int i = 12; i < 20; i++)
        assert_int_equal(bytes_after_look(f, now + 1000 * (uint64_t)i, UINT64_MAX), MIB);
    stop(f);
}

static void device_limit(void **state)
{
    struct fixture *f = start(256 * MIB);

    (void)state;
    f->fake.caps.max_regs = 2;
    assert_true(registered(f, rme_zone_alloc(f->zone, MIB, true), MIB));
    assert_true(registered(f, rme_zone_alloc(f->zone, 4 * MIB, true), 4 * MIB));
    assert_false(registered(f, rme_zone_alloc(f->zone, 6 * MIB, true), 6 * MIB));
    rme_log_drain(f->log);
    assert_non_null(strstr(f->seen.last, "all 2 registrations of the device"));
    stop(f);
}

/* Several threads allocate and free at random; each block keeps its mark until freed. */
struct worker {
    struct fixture *f;
    uint64_t bound;
    unsigned seed;
    int errors, registered;
};

#define HELD 24

/* Checks a used block: a registration covers it, and only its start frees it. */
static void inspect(struct worker *w, char *block, size_t size)
{
    struct rme_zone *zone = w->f->zone;

    w->errors += rme_pin_counted(&w->f->pin, RME_C_REGISTERED_BYTES) > w->bound;
    w->errors += rme_zone_release(zone, block + 1) != -EINVAL;
    w->errors += size > 4 * KIB && rme_zone_release(zone, block + 4 * KIB) != -EINVAL;
    if (rme_zone_find(zone, block, size, RME_ACCESS_LOCAL) == NULL)
        return;
    w->registered++;
    w->errors += !registered(w->f, block, size);
    w->errors += rme_zone_find(zone, block, SIZE_MAX, RME_ACCESS_LOCAL) != NULL;
}

static void *work(void *arg)
{
    static const size_t sizes[] = {100, 5000, 20000, 70000, 300000, 1 << 20, 5 << 20};
    struct worker *w = arg;
    char *held[HELD] = {0};
    size_t size[HELD] = {0};

    for (int i = 0; i < 1500; i++) {
        int at = rand_r(&w->seed) % HELD;

        if (held[at] == NULL) {
            size[at] = sizes[(size_t)rand_r(&w->seed) % (sizeof(sizes) / sizeof(sizes[0]))];
            held[at] = rme_zone_alloc(w->f->zone, size[at], true);
            assert_non_null(held[at]);
            held[at][0] = held[at][size[at] - 1] = (char)(w->seed >> 8);
            held[at][1] = held[at][size[at] - 1];
            inspect(w, held[at], size[at]);
        } else {
            w->errors += held[at][1] != held[at][size[at] - 1];
            w->errors += rme_zone_release(w->f->zone, held[at]) != 0;
            held[at] = NULL;
        }
    }
    for (int at = 0; at < HELD; at++)
        if (held[at] != NULL)
            w->errors += rme_zone_release(w->f->zone, held[at]) != 0;
    return NULL;
}

static void many_threads_under_any_limit(void **state)
{
    static const struct {
        uint64_t bound;
        size_t refuse_above; /* by the system */
    } rows[] = {{48 * MIB, 0},
                {16 * KIB, 0},
                {16 * MIB + 512 * KIB, 0},
                {256 * MIB, 32 * KIB},
                {256 * MIB, 512 * KIB}};

    (void)state;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        struct fixture *f = start(rows[row].bound);
        struct worker worker[4];
        pthread_t thread[4];

        f->fake.refuse_above = rows[row].refuse_above;
        for (unsigned i = 0; i < 4; i++) {
            worker[i] = (struct worker){.f = f, .bound = rows[row].bound, .seed = i + 1};
            assert_int_equal(pthread_create(&thread[i], NULL, work, &worker[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(thread[i], NULL);
            assert_int_equal(worker[i].errors, 0);
        }
        assert_true(worker[0].registered > 0);
        for (uint64_t now = 10000; now <= 12000; now += 1000) {
            (void)rme_zone_trim_due(f->zone, now);
            rme_zone_trim(f->zone);
        }
        assert_true(rme_pin_counted(&f->pin, RME_C_REGISTERED_BYTES) <= MIB);
        stop(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slabs_grow_with_what_is_used),
        cmocka_unit_test(wrong_frees),
        cmocka_unit_test(refusal_gives_plain_memory),
        cmocka_unit_test(idle_memory_makes_room),
        cmocka_unit_test(small_blocks_do_not_fill_large_slabs),
        cmocka_unit_test(unused_slabs_are_released),
        cmocka_unit_test(device_limit),
        cmocka_unit_test(many_threads_under_any_limit),
    };

    return cmocka_run_group_tests_name("zone", tests, NULL, NULL);
}
