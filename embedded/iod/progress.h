/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* progress.h - progress bar on standard error, if requested and a terminal. */
#ifndef IOD_PROGRESS_H
#define IOD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool on;
    bool drawn;
    uint64_t total; /* bytes */
    double began;   /* clock_seconds() */
    double drawn_at;
};

void progress_begin(struct progress *progress, bool wanted, uint64_t total);

/* Draws the bar, at most ten times per second. */
void progress_show(struct progress *progress, uint64_t done);

/* Erases the bar. */
void progress_end(struct progress *progress);

#endif
