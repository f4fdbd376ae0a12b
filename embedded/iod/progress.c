/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/progress.h"
#include "embedded/iod/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_WIDTH 40

void progress_begin(struct progress *p, bool wanted, uint64_t total)
{
    *p = (struct progress){
        .on = wanted && isatty(STDERR_FILENO), .total = total, .began = clock_seconds()};
}

/* Returns the width of the terminal. */
static int columns(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

void progress_show(struct progress *p, uint64_t done)
{
    double now = clock_seconds(), seconds = now - p->began;
    double share = p->total ? (double)done / (double)p->total : 1.0;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    int width, full, length;
    char bar[BAR_WIDTH + 1], text[128];

    if (!p->on || now - p->drawn_at < 0.1)
        return;
    p->drawn_at = now;
    p->drawn = true;
    length =
        snprintf(text, sizeof text, "%3d %%  %.1f of %.1f MB  %.1f MB/s", (int)(share * 100),
                 (double)done / 1e6, (double)p->total / 1e6, rate / 1e6);
    if (rate > 0 && (size_t)length < sizeof text)
        length += snprintf(text + length, sizeof text - (size_t)length, "  %.0f s left",
                           (double)(p->total - done) / rate);
    width = columns() - length - 4; /* brackets, a space, and the last column */
    width = width > BAR_WIDTH ? BAR_WIDTH : width;
    fputs("\r", stderr);
    if (width > 0) {
        full = (int)(share * width);
        memset(bar, '.', (size_t)width);
        memset(bar, '#', (size_t)(full < width ? full : width));
        fprintf(stderr, "[%.*s] ", width, bar);
    }
    fprintf(stderr, "%.*s\033[K", columns() - 1, text);
    fflush(stderr);
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = p->on = false;
}
