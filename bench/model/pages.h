/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pages.h - pages in Markdown about the engine on modelled devices. */
#ifndef BENCH_MODEL_PAGES_H
#define BENCH_MODEL_PAGES_H

#include <stdio.h>

/* The engine's times by size, beside those of bare writes.  Returns 0, or -1 if a stream
 * failed. */
int engine_page(FILE *out);

#endif
