/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* progress.h - a progress bar on standard error, if that is a terminal and somebody wants one.
 */
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

/* Draws at most ten times a second. */
void progress_show(struct progress *progress, uint64_t done);

/* Wipes the bar. */
void progress_end(struct progress *progress);

#endif
