/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <sys/random.h>
#include <unistd.h>

#include "base/draw.h"
#include "base/timer.h"

uint64_t rme_draw(void)
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == (ssize_t)sizeof(number))
        return number;
    return (rme_now_ns() ^ (uintptr_t)&number ^ (uint64_t)getpid() << 40) *
           0xff51afd7ed558ccdULL;
}
