/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pages.h - pages in Markdown about the engine on modelled devices. */
#ifndef BENCH_MODEL_PAGES_H
#define BENCH_MODEL_PAGES_H

#include <stdbool.h>
#include <stdio.h>

/* All return 0, or -1 if a stream failed. */

/* The engine's times by size, beside those of bare writes. */
int engine_page(FILE *out);
/* The planner's choice beside each protocol that options force; `corners`: few cells alone. */
int planner_page(FILE *out, bool corners);
/* Requests and answers of one server with 1, 10 ... clients, `most` at most. */
int crowd_page(FILE *out, int most);

#endif
