/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "tests/lib/clock.h"

#define SECOND UINT64_C(1000000000)
/* The linker wraps these functions in a sanitizer's library as well, which then refers to
 * them. */
#define SHOWN __attribute__((visibility("default")))

static atomic_bool is_set;
static atomic_uint_fast64_t now, tick; /* ns */

int __real_clock_gettime(clockid_t id, struct timespec *t);
SHOWN int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
SHOWN int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                        const struct timespec *until);

void clock_set(void)
{
    atomic_store(&now, CLOCK_BEGIN_NS);
    atomic_store(&tick, 0);
    atomic_store(&is_set, true);
}

void clock_release(void)
{
    atomic_store(&is_set, false);
}

void clock_step_ns(uint64_t ns)
{
    atomic_fetch_add(&now, ns);
}

void clock_put_ns(uint64_t ns)
{
    atomic_store(&now, ns);
}

void clock_step_ms(uint64_t ms)
{
    clock_step_ns(ms * 1000000);
}

void clock_tick_ns(uint64_t ns)
{
    atomic_store(&tick, ns);
}

int clock_setup(void **state)
{
    (void)state;
    clock_set();
    clock_tick_ns(CLOCK_TICK_NS);
    return 0;
}

int clock_teardown(void **state)
{
    (void)state;
    clock_release();
    return 0;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    uint64_t ns;

    if (!atomic_load(&is_set) || (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE))
        return __real_clock_gettime(id, t);
    ns = atomic_fetch_add(&now, atomic_load(&tick)) + atomic_load(&tick);
    *t = (struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    uint64_t end = (uint64_t)until->tv_sec * SECOND + (uint64_t)until->tv_nsec;

    if (!atomic_load(&is_set))
        return __real_pthread_cond_timedwait(cond, mutex, until);
    if (end > atomic_load(&now))
        atomic_store(&now, end);
    return ETIMEDOUT;
}
