/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Buffers and jobs are handed out in order. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/pool.h"

static struct waiter waiter[3];
static int order[3], ran;

static void note(struct job *job)
{
    order[ran++] = (int)((struct waiter *)(void *)job - waiter);
}

/* The linker redirects calls of NAME to __wrap_NAME: no network is initialized. */
void *__wrap_BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type send_recv);
int __wrap_BMI_memfree(BMI_addr_t addr, void *memory, bmi_size_t size,
                       enum bmi_op_type send_recv);

void *__wrap_BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type send_recv)
{
    (void)addr, (void)send_recv;
    return calloc(1, (size_t)size);
}

int __wrap_BMI_memfree(BMI_addr_t addr, void *memory, bmi_size_t size,
                       enum bmi_op_type send_recv)
{
    (void)addr, (void)size, (void)send_recv;
    free(memory);
    return 0;
}

static struct pool *pool_of(struct workers *workers, int buffers)
{
    struct pool *pool;

    assert_int_equal(pool_new(workers, 0, 8192, buffers, true, &pool), 0);
    return pool;
}

static void returned_buffer_goes_to_first_waiter(void **state)
{
    struct workers *workers;
    struct waiter holder;
    struct buffer *buffer;
    struct pool *pool;

    (void)state;
    assert_int_equal(workers_start(1, &workers), 0);
    pool = pool_of(workers, 1);
    assert_int_equal(pool_get(pool, &holder), 1);
    buffer = holder.buffer;
    memset((char *)buffer->bytes + 8182, 7, 10); /* the last bytes */
    buffer->filled = 8192;
    for (int i = 0; i < 3; i++) {
        waiter[i].job.run = note;
        assert_int_equal(pool_get(pool, &waiter[i]), 0);
    }
    assert_true(pool_wanted(pool) && !pool_try(pool));
    assert_true(pool_unwait(pool, &waiter[1]));
    assert_false(pool_unwait(pool, &waiter[1]));
    pool_put(pool, buffer);
    assert_true(waiter[0].buffer == buffer && !waiter[2].buffer);
    assert_int_equal(((char *)buffer->bytes)[8191], 0); /* cleared */
    pool_put(pool, buffer);
    assert_true(waiter[2].buffer == buffer && !pool_wanted(pool));
    workers_stop(workers);
    assert_true(ran == 2 && order[0] == 0 && order[1] == 2);
    assert_int_equal(pool_in_use(pool), 1);
    pool_put(pool, buffer);
    assert_int_equal(pool_in_use(pool), 0);
    assert_ptr_equal(pool_try(pool), buffer);
    pool_put(pool, buffer);
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(returned_buffer_goes_to_first_waiter)};

    return cmocka_run_group_tests_name("iod/pool", tests, NULL, NULL);
}
