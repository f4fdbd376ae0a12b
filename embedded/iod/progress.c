/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/progress.h"
#include "embedded/iod/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 40

void progress_begin(struct progress *p, bool wanted, uint64_t total)
{
    *p = (struct progress){
        .on = wanted && isatty(STDERR_FILENO), .total = total, .began = clock_seconds()};
}

void progress_show(struct progress *p, uint64_t done)
{
    double now = clock_seconds(), seconds = now - p->began;
    double share = p->total ? (double)done / (double)p->total : 1.0;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    int full = (int)(share * BAR_WIDTH);
    char bar[BAR_WIDTH + 1];

    if (!p->on || now - p->drawn_at < 0.1)
        return;
    p->drawn_at = now;
    p->drawn = true;
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)(full < BAR_WIDTH ? full : BAR_WIDTH));
    bar[BAR_WIDTH] = 0;
    fprintf(stderr, "\r[%s] %3d %%  %.1f of %.1f MB  %.1f MB/s", bar, (int)(share * 100),
            (double)done / 1e6, (double)p->total / 1e6, rate / 1e6);
    if (rate > 0)
        fprintf(stderr, "  %.0f s left", (double)(p->total - done) / rate);
    fputs("\033[K", stderr);
    fflush(stderr);
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = p->on = false;
}
