/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Distribution of buffers among shares. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/pool.h"

#include <stdatomic.h>

#define MOST 64

static struct workers *workers;
static struct pool *pool;
static struct buffer *held[MOST];
static struct share *of[MOST];
static int count;

static void begin(int buffers, bool fair)
{
    assert_int_equal(workers_start(2, &workers), 0);
    assert_int_equal(pool_new(workers, 0, 8192, buffers, 2, fair, &pool), 0);
    count = 0;
}

static void give_back(int i)
{
    pool_put(pool, of[i], held[i]);
    count--;
    held[i] = held[count];
    of[i] = of[count];
}

static void end(void)
{
    while (count)
        give_back(count - 1);
    workers_stop(workers);
    pool_free(pool);
}

static bool keep(struct share *share, struct buffer *buffer)
{
    if (!buffer)
        return false;
    held[count] = buffer;
    of[count++] = share;
    return true;
}

/* Gets a first buffer; returns false if none is free, without queueing. */
static bool first(struct share *share)
{
    struct waiter waiter = {.next = NULL};
    int result = pool_get(pool, share, &waiter);

    assert_true(result >= 0);
    if (result == 0)
        assert_true(pool_unwait(pool, share, &waiter));
    return result && keep(share, waiter.buffer);
}

static bool further(struct share *share, int own)
{
    return keep(share, pool_try(pool, share, own));
}

/* Runs transfers one after the other, each with as many buffers as it may have. */
static void greed(struct share *share)
{
    while (first(share))
        for (int own = 1; further(share, own); own++)
            ;
}

static void one_host_gets_half(void **state)
{
    struct share a = {0}, b = {0}, c = {0};

    (void)state;
    begin(MOST, true);
    greed(&a);
    assert_int_equal(count, MOST / 2);
    greed(&b);
    assert_int_equal(count, MOST / 2 + MOST / 4);
    assert_true(first(&c));
    end();
}

static void one_transfer_leaves_room_in_its_host(void **state)
{
    struct share a = {0};
    int own = 1;

    (void)state;
    begin(MOST, true);
    assert_true(first(&a));
    while (further(&a, own))
        own++;
    assert_true(own > 1 && own <= MOST / 4);
    assert_true(first(&a));
    assert_true(further(&a, 1));
    end();
}

static void single_buffer_is_shared(void **state)
{
    struct share a = {0}, b = {0};

    (void)state;
    begin(1, true);
    assert_true(first(&a));
    assert_false(first(&b));
    give_back(0);
    assert_true(first(&b));
    end();
}

/* Memory used by one client is cleared before another client receives into it. */
static void buffer_given_back_is_cleared(void **state)
{
    struct share a = {0}, b = {0};
    const struct iovec *piece;

    (void)state;
    begin(4, true);
    assert_true(first(&a));
    piece = held[0]->memory.piece;
    for (int i = 0; i < 2; i++)
        memset(piece[i].iov_base, 'a', piece[i].iov_len);
    held[0]->filled = 8192;
    give_back(0);
    assert_true(first(&b));
    assert_ptr_equal(held[0]->memory.piece, piece);
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < piece[i].iov_len; at++)
            assert_int_equal(((char *)piece[i].iov_base)[at], 0);
    end();
}

static void without_fairness_all_is_had(void **state)
{
    struct share a = {0};

    (void)state;
    begin(5, false);
    assert_true(first(&a));
    for (int own = 1; own < 5; own++)
        assert_true(further(&a, own));
    assert_false(further(&a, 5));
    end();
}

static atomic_int granted;

static void on_grant(struct job *job)
{
    (void)job;
    atomic_fetch_add(&granted, 1);
}

/* A returned buffer goes to a share that may have one, not to the first in the queue. */
static void grants_go_to_who_may(void **state)
{
    struct share a = {0}, b = {0};
    struct waiter wa = {.job.run = on_grant}, wb = {.job.run = on_grant};

    (void)state;
    atomic_store(&granted, 0);
    begin(3, true);
    assert_true(first(&a));
    assert_true(first(&b));
    assert_int_equal(pool_get(pool, &a, &wa), 0); /* holds 1, 1 is left */
    assert_true(pool_wanted(pool, &b));           /* would have 2 left */
    assert_int_equal(pool_get(pool, &b, &wb), 0);
    give_back(0); /* of a: b may not have a second one yet */
    while (atomic_load(&granted) < 1)
        ;
    assert_non_null(wa.buffer);
    assert_true(pool_unwait(pool, &b, &wb) || wb.buffer);
    keep(&a, wa.buffer);
    end();
}

static void memory_goes_back(void **state)
{
    struct share a = {0};

    (void)state;
    begin(8, false);
    for (int own = 0; own < 8; own++)
        assert_true(own ? further(&a, own) : first(&a));
    pool_trim(pool); /* records the number of spares: none */
    while (count > 2)
        give_back(0);
    assert_int_equal(pool_made(pool), 8);
    pool_trim(pool);
    assert_int_equal(pool_made(pool), 8); /* all were needed since the last call */
    pool_trim(pool);
    assert_int_equal(pool_made(pool), 2);
    assert_int_equal(pool_in_use(pool), 2);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host_gets_half),
        cmocka_unit_test(one_transfer_leaves_room_in_its_host),
        cmocka_unit_test(single_buffer_is_shared),
        cmocka_unit_test(buffer_given_back_is_cleared),
        cmocka_unit_test(without_fairness_all_is_had),
        cmocka_unit_test(grants_go_to_who_may),
        cmocka_unit_test(memory_goes_back),
    };

    return cmocka_run_group_tests_name("iod/pool", tests, NULL, NULL);
}
