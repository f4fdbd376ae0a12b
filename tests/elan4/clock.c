/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/elan4/clock.h"

#include <stdatomic.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

int __real_clock_gettime(clockid_t id, struct timespec *ts);
/* Visible, because the linker wraps a sanitizer's library as well, which refers to this
 * function. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t id,
                                                                struct timespec *ts);
int __real_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);

static _Atomic uint64_t stands_at; /* 0: running */
static _Atomic int64_t ahead;      /* offset to the machine's clock while running */
static _Atomic unsigned sleeps;

static uint64_t machine_ns(void)
{
    struct timespec ts;

    __real_clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, ts);
    uint64_t now = atomic_load(&stands_at);
    if (!now)
        now = machine_ns() + (uint64_t)atomic_load(&ahead);
    *ts = (struct timespec){.tv_sec = (time_t)(now / SECOND), .tv_nsec = (long)(now % SECOND)};
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
    atomic_fetch_add(&sleeps, 1);
    return __real_nanosleep(time, rest);
}

void clock_stop(void)
{
    if (!atomic_load(&stands_at))
        atomic_store(&stands_at, machine_ns() + (uint64_t)atomic_load(&ahead));
}

static void clock_step_ns(uint64_t ns)
{
    if (atomic_load(&stands_at))
        atomic_fetch_add(&stands_at, ns);
    else
        atomic_fetch_add(&ahead, (int64_t)ns);
}

void clock_step(uint64_t ms)
{
    clock_step_ns(ms * 1000000);
}

void clock_run(void)
{
    uint64_t stood = atomic_load(&stands_at);

    if (!stood)
        return;
    atomic_store(&ahead, (int64_t)(stood - machine_ns()));
    atomic_store(&stands_at, 0);
}

uint64_t guard_ms(void)
{
    return machine_ns() / 1000000;
}

unsigned clock_sleeps(void)
{
    return atomic_load(&sleeps);
}
