/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Prints the rate of this machine's time stamp counter in kHz, or nothing without one.
 *
 * QEMU's emulated CPUs use it. A guest that starts on a busy machine measures the rate wrongly,
 * sometimes by a factor of seven, and its clock stays wrong; therefore the guest gets the rate
 * as a parameter.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#include <x86intrin.h>

struct reading {
    uint64_t ticks, ns;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Reads both clocks at the same moment: the least disturbed of a hundred readings. */
static struct reading look(void)
{
    struct reading best = {0, 0};
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 100; i++) {
        uint64_t before = __rdtsc(), ns = now_ns(), after = __rdtsc();

        if (after - before < least) {
            least = after - before;
            best = (struct reading){before + (after - before) / 2, ns};
        }
    }
    return best;
}

int main(void)
{
    struct reading begin = look();

    usleep(200000);
    struct reading end = look();
    printf("%.0f\n", (double)(end.ticks - begin.ticks) * 1e6 / (double)(end.ns - begin.ns));
    return 0;
}
#else
int main(void)
{
    return 0;
}
#endif
