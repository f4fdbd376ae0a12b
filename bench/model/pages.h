/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pages.h - pages in Markdown about the engine on modelled devices. */
#ifndef BENCH_MODEL_PAGES_H
#define BENCH_MODEL_PAGES_H

#include <stdbool.h>
#include <stdio.h>

#include "bench/model/device.h"

/* All return 0, or -1 if a stream failed. */

/* The engine's times by size, beside those of bare writes. */
int engine_page(FILE *out);
/* The planner's choice beside each protocol that options force; `corners`: few cells alone. */
int planner_page(FILE *out, bool corners);
/* Requests and answers of one server with 1, 10 ... clients, `most` at most. */
int crowd_page(FILE *out, int most);
/* The papers' ratios on the papers' devices, by bench/papers.model. */
int papers_page(FILE *out, const char *path);
/* Both of them with other values of numbers that are assumed; `few`: of the first alone. */
int vary_page(FILE *out, const char *path, bool few);

/* For vary_page.  `outcome`: '-' for a ratio of other devices. */
struct papers_outcomes {
    int count;
    struct {
        const char *item, *text;
        double ratio;
        char outcome;
    } row[128];
};
/* Of the ratios on devices whose names begin so. */
int papers_judge(const char *path, const char *devices, struct papers_outcomes *out);
/* The corners' cells of a device. */
struct judged {
    int above;
    double worst;
};
int planner_judge(const struct device *d, struct judged *out);

#endif
