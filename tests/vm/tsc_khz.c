/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Prints the rate of this machine's time stamp counter in kHz, or nothing where there is none.
 *
 * QEMU's emulated CPUs count with it.  A guest that starts on a busy machine measures the rate
 * wrongly, by a factor of seven at times, and its clock runs as wrongly ever after; so it is
 * told the rate.
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

/* Both clocks at one moment: the reading of a hundred that was least disturbed. */
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
