/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/elan4/gate.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)
#define SHOWN  __attribute__((visibility("default")))

void (*at_step)(struct bed *b, int signal);
void (*at_delay)(struct bed *b);
struct bed *gate_bed;
bool gate_sleep_is_time;
static _Atomic uint64_t stands_at, looks;
static _Thread_local bool counts;

SHOWN int raise(int signal)
{
    if (at_step) {
        at_step(gate_bed, signal);
        return 0;
    }
    return (int)syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
}

SHOWN int usleep(useconds_t us)
{
    struct timespec ts = {us / 1000000, us % 1000000 * 1000L};

    if (gate_sleep_is_time && atomic_load(&stands_at)) {
        atomic_fetch_add(&stands_at, us * UINT64_C(1000));
        return 0;
    }
    if (us != GATE_US || !at_delay)
        return nanosleep(&ts, NULL);
    at_delay(gate_bed);
    return 0;
}

SHOWN int clock_gettime(clockid_t id, struct timespec *ts)
{
    uint64_t now = id == CLOCK_MONOTONIC ? atomic_load(&stands_at) : 0;

    if (!now)
        return (int)syscall(SYS_clock_gettime, id, ts);
    if (counts)
        atomic_fetch_add(&looks, 1);
    *ts = (struct timespec){.tv_sec = (time_t)(now / SECOND), .tv_nsec = (long)(now % SECOND)};
    return 0;
}

void gate_clock_stop(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    atomic_store(&stands_at, (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec);
}

void gate_clock_step(uint64_t ms)
{
    atomic_fetch_add(&stands_at, ms * 1000000);
}

void gate_clock_run(void)
{
    atomic_store(&stands_at, 0);
}

void gate_clock_count(void)
{
    counts = true;
}

uint64_t gate_clock_looks(void)
{
    return atomic_load(&looks);
}
